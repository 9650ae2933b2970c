// Targets, the cache, batches on threads, dumps.
#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "core/support/error.h"
#include "tests/core/codegen/builder.h"

namespace braze::codegen::test {

namespace {

Kernel scale(double factor, Op op = Op::Mul) {
    Build b({100}, {}, Vectorize::OuterLast);
    int p = b.in(DType::F32), y = b.out(DType::F32);
    b.store(y, b.o(0), b.op(op, {b.load(p, b.o(0)), b.constant(DType::F32, factor)}));
    return b.k;
}

float run(const CompiledKernel& k, float x) {
    std::vector<float> in(100, x), out(100);
    void* buffers[] = {in.data(), out.data()};
    EXPECT_EQ(k.fn(buffers, nullptr, 0, 100), 0);
    for (float y : out) EXPECT_EQ(y, out[0]);
    return out[0];
}

}  // namespace

TEST(CodegenCompile, Targets) {
    std::vector<Isa> isas = host_isas();
    ASSERT_GE(isas.size(), 2u);
    for (Isa isa : isas) EXPECT_EQ(detect_target(isa_text(isa)).isa, isa);
    EXPECT_FALSE(detect_target("sse2").fma);
    try {
        detect_target("avx9000");
        FAIL() << "an unknown isa was accepted";
    } catch (const UserError& e) {
        EXPECT_NE(std::string(e.what()).find("sse2"), std::string::npos)
            << "the message lists what there is: " << e.what();
    }
}

TEST(CodegenCompile, ForcedWidthIsTheWidth) {
    for (Isa isa : host_isas()) {
        std::vector<std::pair<std::string, std::string>> dump;
        compile({scale(3)}, detect_target(isa_text(isa)), 1, nullptr, &dump);
        ASSERT_EQ(dump.size(), 1u);
        EXPECT_NE(dump[0].first.find("define i32"), std::string::npos);
        bool zmm = dump[0].second.find("zmm") != std::string::npos,
             ymm = dump[0].second.find("ymm") != std::string::npos;
        EXPECT_EQ(zmm, isa == Isa::Avx512) << isa_text(isa);
        EXPECT_TRUE(ymm || isa != Isa::Avx2);
        EXPECT_FALSE(ymm && isa < Isa::Avx2);
    }
}

TEST(CodegenCompile, EqualKernelsAreCompiledOnceWhileHeld) {
    CpuTarget target = detect_target();
    CompileStats stats;
    Kernel a = scale(5), b = scale(6), renamed = scale(5);
    renamed.name = "k_other";
    auto first = compile({a, b, renamed}, target, 1, &stats);
    EXPECT_EQ(stats.kernels, 3);
    EXPECT_EQ(stats.unique, 2);
    EXPECT_EQ(stats.cached, 0);
    EXPECT_EQ(first[0].fn, first[2].fn);
    EXPECT_NE(first[0].fn, first[1].fn);
    auto second = compile({renamed}, target, 1, &stats);
    EXPECT_EQ(stats.cached, 1);
    EXPECT_EQ(second[0].fn, first[0].fn);
    first.clear();
    EXPECT_EQ(run(second[0], 2), 10);  // the code lives as long as somebody holds it
    second.clear();
    compile({a}, target, 1, &stats);
    EXPECT_EQ(stats.cached, 0);
}

// What is known about a size is used by the code, so equal texts with other ranges are other kernels.
TEST(CodegenCompile, RangesOfSizesBelongToTheKernel) {
    auto sum = [](int64_t lowest) {
        Expr s = Expr::symbol("s0", {lowest, 1 << 20});
        Build b({1}, {s}, Vectorize::InnerLast, {s});
        int p = b.in(DType::F32), y = b.out(DType::F32);
        b.store(y, 0, b.reduce(Op::Sum, b.load(p, b.i(0))));
        return b.k;
    };
    CompileStats stats;
    auto held = compile({sum(2)}, detect_target(), 1, &stats);
    compile({sum(0)}, detect_target(), 1, &stats);
    EXPECT_EQ(stats.cached, 0);
    Outcome got = run_compiled(sum(0), host_isas().back(), {Bytes(), elements(DType::F32, {7})}, {0}, 0, 1);
    EXPECT_EQ(element(DType::F32, got.buffers[1], 0), 0);
}

TEST(CodegenCompile, Threads) {
    std::vector<Kernel> kernels;
    for (int i = 0; i < 40; ++i) kernels.push_back(scale(100 + i, i % 2 ? Op::Mul : Op::Add));
    CompileStats stats;
    auto code = compile(kernels, detect_target(), 4, &stats);
    EXPECT_EQ(stats.unique, 40);
    EXPECT_GT(stats.seconds_code, 0);
    for (int i = 0; i < 40; ++i)
        EXPECT_EQ(run(code[static_cast<size_t>(i)], 2),
                  i % 2 ? 2.0F * static_cast<float>(100 + i) : static_cast<float>(102 + i));
    EXPECT_TRUE(compile({}, detect_target(), 4).empty());
}

TEST(CodegenCompile, ErrorsComeBackFromWorkers) {
    Build b({4}, {}, Vectorize::OuterLast);
    int p = b.in(DType::F32), y = b.out(DType::F32);
    b.store(y, b.o(0), b.op(Op::BitNot, {b.load(p, b.o(0))}));
    b.k.scalars.back().op = Op::VarMean;
    EXPECT_THROW(compile({scale(1), b.k}, detect_target(), 2), InternalError);
}

// The passes are kept from one module to the next; nothing of a module stays in them.
TEST(CodegenCompile, ModulesOneAfterTheOther) {
    for (int round = 0; round < 3; ++round)
        for (Op op : {Op::Mul, Op::Add, Op::Pow}) {
            const auto code = compile({scale(2, op), scale(3 + round, op)}, detect_target(), 1);
            const float y = static_cast<float>(3 + round), want[] = {2 * y, 2 + y, std::pow(2.0F, y)};
            EXPECT_EQ(run(code[0], 2), 4);
            EXPECT_EQ(run(code[1], 2), want[op == Op::Mul ? 0 : op == Op::Add ? 1 : 2]);
        }
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static __m256d fake_hypot(__m256d, __m256d) { return _mm256_set1_pd(42); }

TEST(CodegenCompile, RegisteredFunctionsAreCalled) {
    std::vector<Isa> isas = host_isas();
    if (std::find(isas.begin(), isas.end(), Isa::Avx2) == isas.end()) {
        EXPECT_LT(isas.back(), Isa::Avx2);
        return;
    }
    Build b({8}, {}, Vectorize::OuterLast);
    int p = b.in(DType::F64), y = b.out(DType::F64);
    int x = b.load(p, b.o(0));
    b.store(y, b.o(0), b.op(Op::Hypot, {x, x}));
    Bytes in = elements(DType::F64, std::vector<double>(8, 1.0));
    const char* name = "Sleef_hypotd4_u05avx2";
    register_symbols({{name, reinterpret_cast<void*>(&fake_hypot)}});
    EXPECT_EQ(element(DType::F64, run_compiled(b.k, Isa::Avx2, {in, Bytes(64)}, {}, 0, 8).buffers[1], 3), 42);
    register_symbols({{name, nullptr}});  // without it: the C function, lane by lane
    EXPECT_NEAR(element(DType::F64, run_compiled(b.k, Isa::Avx2, {in, Bytes(64)}, {}, 0, 8).buffers[1], 3),
                1.4142135623730951, 1e-15);
}
#endif

}  // namespace braze::codegen::test
