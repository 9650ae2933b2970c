// From captured calls to compiled kernels.
#include "core/pipeline.h"

#include <gtest/gtest.h>

#include "core/ir/text.h"
#include "core/passes/pass.h"
#include "tests/core/schedule/calls.h"
#include "tests/core/schedule/compare.h"
#include "tests/core/schedule/deep_graph.h"

namespace braze::testing {
namespace {

const char* const kBlock = R"(graph {
    line 0 "model.py:3 in forward"
    %0 : f32[6, 8] = input
    %1 : f32[8, 8] = input
    %2 : f32[8] = input
    %3 : f32[8] = input
    %4 : f32[6, 8] = call aten::mm(self=%0, mat2=%1) line=0
    %5 : f32[6, 8] = call aten::relu(self=%4) line=0
    %6 : f32[6, 8] = call aten::add.Tensor(self=%5, other=%0, alpha=1) line=0
    %7 : f32[6, 8], %8 : f32[6, 1], %9 : f32[6, 1] = call aten::native_layer_norm(input=%6, normalized_shape=[8], weight=%2, bias=%3, eps=1e-05)
    %10 : f32[6, 8] = call aten::_softmax(self=%7, dim=1, half_to_float=false)
    %11 : f32[6, 8] = call aten::mm(self=%10, mat2=%1)
    return %11, %7
})";

// The graph as primitive operators, for the reference.
ir::Graph decomposed(const std::string& text) {
    ir::Graph g = ir::parse_graph(text);
    PipelineOptions options;
    passes::Context context{options, nullptr};
    passes::run_pass(*passes::find_pass("decompose"), g, context);
    return g;
}

void compare(const std::string& text, const runtime::Program& program) {
    const ir::Graph g = decomposed(text);
    const auto inputs = random_inputs(g, 1);
    auto a = copies(inputs), b = copies(inputs);
    const ir::CallHandler reference = test_calls(), actual = test_calls();
    const auto want = ir::evaluate(g, a, {}, reference);
    Host host(program, {}, actual);
    const auto got = host.run(b);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
        expect_close(got[i], want[i], "output " + std::to_string(i) + "\n" + program.dump());
}

TEST(Pipeline, ATransformerBlockIsTwoCallsAndTwoKernels) {
    PipelineOptions options;
    options.verify = true;
    PipelineStats stats;
    const auto program = compile_graph(ir::parse_graph(kBlock), options, &stats);
    compare(kBlock, *program);
    EXPECT_EQ(stats.aten_calls, 2);
    EXPECT_EQ(stats.kernels, 1) << program->dump();
    EXPECT_EQ(stats.nodes_in, 10);
    EXPECT_EQ(stats.code.kernels, 1);
    EXPECT_EQ(stats.stages.back().name, "codegen");
    EXPECT_NE(program->dump().find("model.py:3 in forward"), std::string::npos);
}

TEST(Pipeline, EveryIsaOfTheHostGivesTheSame) {
    for (codegen::Isa isa : codegen::host_isas()) {
        constexpr const char* names[] = {"scalar", "sse2", "avx2", "avx512"};
        PipelineOptions options;
        options.isa = names[static_cast<size_t>(isa)];
        compare(kBlock, *compile_graph(ir::parse_graph(kBlock), options));
    }
}

// Statistics and a weight, changed by the kernel that reduces, at every width and in any order of independent kernels.
TEST(Pipeline, InputsAreWrittenInPlaceBehindALoop) {
    for (const char* dims : {"[0, 2]", "[1, 2]", "[0, 1]"}) {
        const ir::Graph g = ir::parse_graph(R"(graph {
            %0 : f32[35, 35, 35] = input
            %1 @1 : f32[35] = input
            %2 @2 : f32[35] = input
            %3 : f32[35] = sum(%0, dims=)" + std::string(dims) +
                                            R"(, keepdim=false)
            %4 : f32[35] = add(%1, %3)
            %5 @1 : f32[35] = call aten::copy_(self=%1, src=%4) writes=[0] aliases=[0]
            %6 : f32[35] = mul(%2, %3)
            %7 @2 : f32[35] = call aten::copy_(self=%2, src=%6) writes=[0] aliases=[0]
            return %3
        })");
        for (codegen::Isa isa : codegen::host_isas()) {
            constexpr const char* names[] = {"scalar", "sse2", "avx2", "avx512"};
            const auto inputs = random_inputs(g, 1);
            auto a = copies(inputs), b = copies(inputs);
            const ir::CallHandler calls = test_calls();
            ir::evaluate(g, a, {}, calls);
            PipelineOptions options;
            options.isa = names[static_cast<size_t>(isa)];
            PipelineStats stats;
            const auto program = compile_graph(g.clone(), options, &stats);
            EXPECT_EQ(stats.aten_calls, 0) << program->dump();
            Host host(*program);
            host.in_batches = true;
            host.run(b);
            for (size_t i = 0; i < b.size(); ++i) expect_close(b[i], a[i], "input " + std::to_string(i));
        }
    }
}

TEST(Pipeline, RandomGraphsCompiled) {
    for (unsigned seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        DeepGraph random(seed, seed % 2 == 1);
        const ir::Graph g = random.make(10 + static_cast<int>(seed % 30));
        const auto inputs = random_inputs(g, seed, random.symbols());
        auto a = copies(inputs), b = copies(inputs);
        const ir::CallHandler reference = test_calls(), actual = test_calls();
        const auto want = ir::evaluate(g, a, random.symbols(), reference);
        PipelineOptions options;
        options.verify = true;
        const auto program = compile_graph(g.clone(), options);
        Host host(*program, random.symbols(), actual);
        host.in_batches = seed % 3 == 0;
        const auto got = host.run(b);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i)
            expect_close(got[i], want[i], "output " + std::to_string(i) + "\n" + ir::print(g) + program->dump());
        for (size_t i = 0; i < inputs.size(); ++i)
            expect_close(b[i], a[i], "input " + std::to_string(i) + "\n" + ir::print(g));
        if (::testing::Test::HasFailure()) break;
    }
}

TEST(Pipeline, WithoutCodeGenerationCallsStayCalls) {
    PipelineOptions options;
    options.codegen = false;
    PipelineStats stats;
    const auto program = compile_graph(ir::parse_graph(kBlock), options, &stats);
    EXPECT_EQ(stats.aten_calls, 6) << program->dump();
    EXPECT_EQ(stats.kernels, 0);
}

TEST(Pipeline, DumpsEveryStage) {
    PipelineOptions options;
    std::vector<std::string> seen;
    options.dump = [&](const std::string& stage, const std::string& text) {
        seen.push_back(stage);
        EXPECT_FALSE(text.empty()) << stage;
    };
    compile_graph(ir::parse_graph(kBlock), options);
    for (const char* stage :
         {"captured", "functionalize", "decompose", "fold", "cse", "dce", "program", "llvm", "assembly"})
        EXPECT_NE(std::find(seen.begin(), seen.end(), stage), seen.end()) << stage;
}

TEST(Pipeline, DisabledPassesAreSkipped) {
    PipelineOptions options;
    options.disabled_passes = {"decompose", "fold", "cse"};
    PipelineStats stats;
    compile_graph(ir::parse_graph(kBlock), options, &stats);
    EXPECT_EQ(stats.aten_calls, 6);
}

TEST(Pipeline, AnUnusedResultIsNotComputed) {
    PipelineStats stats;
    const auto program = compile_graph(ir::parse_graph(R"(graph {
        %0 : f32[4] = input
        %1 : f32[4] = call aten::exp(self=%0)
        %2 : f32[4] = call aten::neg(self=%0)
        return %2
    })"),
                                       {}, &stats);
    EXPECT_EQ(stats.kernels, 1);
    EXPECT_EQ(loops::canonical(program->kernels[0]).find("exp"), std::string::npos);
}

}  // namespace
}  // namespace braze::testing
