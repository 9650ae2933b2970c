#include "core/support/error.h"
#include "tests/core/passes/support.h"
#include "tests/core/random_graph.h"

namespace braze::testing {
namespace {

TEST(Dce, RemovesWhatNobodyUses) {
    EXPECT_TRUE(same(after("dce", R"(graph {
        %0 : f32[2] = input
        %1 : f32[2] = input
        %2 : f32[2] = neg(%0)
        %3 : f32[2] = neg(%2)
        %4 : f32[2] = abs(%1)
        return %4
    })"),
                     "graph { %0 : f32[2] = input\n %1 : f32[2] = input\n %4 : f32[2] = abs(%1)\n return %4 }"));
}

TEST(Dce, KeepsWritesThatAreSeen) {
    ir::Graph g = ir::parse_graph(R"(graph {
        %0 @0 : f32[2] = input
        %1 @1 : f32[2] = call aten::clone(self=%0)
        %2 @1 : f32[2] = call aten::neg_(self=%1) writes=[0] aliases=[0]
        %3 @2 : f32[2] = call aten::clone(self=%0)
        %4 @2 : f32[2] = call aten::neg_(self=%3) writes=[0] aliases=[0]
        %5 @0 : f32[2] = call aten::relu_(self=%0) writes=[0] aliases=[0]
        call aten::check(self=%0)
        %6 @3 : f32[2] = call aten::empty() ordered
        return %1
    })");
    ir::verify(g);
    EXPECT_TRUE(apply("dce", g));
    // gone: the clone %3 and the write to it
    EXPECT_EQ(g.nodes.size(), 6u);
    EXPECT_FALSE(apply("dce", g));
}

TEST(Cse, MergesEqualNodesAndTheirViews) {
    EXPECT_TRUE(same(after("cse", R"(graph {
        %0 : f32[2, 3] = input
        %1 : f32[2, 3] = input
        %2 @0 : f32[2, 3] = call aten::mul.Tensor(self=%0, other=%1)
        %3 @1 : f32[2, 3] = call aten::mul.Tensor(self=%0, other=%1)
        %4 @1 : f32[3, 2]{1, 3} = permute(%3, dims=[1, 0]) aliases=[0]
        %5 @0 : f32[3, 2]{1, 3} = permute(%2, dims=[1, 0]) aliases=[0]
        %6 : f32[2, 3] = add(%0, %1)
        %7 : f32[2, 3] = add(%1, %0)
        %8 : f32[3, 2] = add(%4, %5)
        %9 : f32[2, 3] = sub(%6, %7)
        return %8, %9
    })"),
                     R"(graph {
        %0 : f32[2, 3] = input
        %1 : f32[2, 3] = input
        %2 @0 : f32[2, 3] = call aten::mul.Tensor(self=%0, other=%1)
        %4 @0 : f32[3, 2]{1, 3} = permute(%2, dims=[1, 0]) aliases=[0]
        %6 : f32[2, 3] = add(%0, %1)
        %8 : f32[3, 2] = add(%4, %4)
        %9 : f32[2, 3] = sub(%6, %6)
        return %8, %9
    })"));
}

TEST(Cse, KeepsTwoOutputsApart) {
    const char* text =
        "graph { %0 : f32[2] = input\n %1 : f32[2] = neg(%0)\n %2 : f32[2] = neg(%0)\n %3 : f32[2] = neg(%0)\n %4 : "
        "f32[2] = abs(%3)\n return %1, %2, %4 }";
    EXPECT_TRUE(same(after("cse", text),
                     "graph { %0 : f32[2] = input\n %1 : f32[2] = neg(%0)\n %2 : f32[2] = neg(%0)\n %4 : f32[2] = "
                     "abs(%1)\n return %1, %2, %4 }"));
}

TEST(Cse, AnOutputMayStandForAnInnerValueOnce) {
    // %1 is merged into nothing that is handed out before; %2 and %3 both are handed out, so only one may join %1
    const char* text =
        "graph { %0 : f32[2] = input\n %1 : f32[2] = neg(%0)\n %4 : f32[2] = abs(%1)\n %2 : f32[2] = neg(%0)\n %3 : "
        "f32[2] = neg(%0)\n return %2, %3, %4 }";
    EXPECT_TRUE(same(after("cse", text),
                     "graph { %0 : f32[2] = input\n %1 : f32[2] = neg(%0)\n %4 : f32[2] = abs(%1)\n %3 : f32[2] = "
                     "neg(%0)\n return %1, %3, %4 }"));
}

TEST(Cse, RespectsWrites) {
    const char* text = R"(graph {
        %0 @0 : f32[2] = input
        %1 : f32[2] = neg(%0)
        %2 @0 : f32[2] = call aten::relu_(self=%0) writes=[0] aliases=[0]
        %3 : f32[2] = neg(%0)
        %4 : f32[2] = add(%1, %3)
        %5 @1 : f32[2] = call aten::clone(self=%4)
        %6 @2 : f32[2] = call aten::clone(self=%4)
        %7 @2 : f32[2] = call aten::neg_(self=%6) writes=[0] aliases=[0]
        %8 : f32[2] = add(%5, %6)
        return %8
    })";
    EXPECT_TRUE(same(after("cse", text), text));
}

TEST(Cse, TellsScalarsApart) {
    const char* text = R"(graph {
        %0 : f32[2] = scalar(value=0.0)
        %1 : f32[2] = scalar(value=-0.0)
        %2 : f32[2] = add(%0, %1)
        return %2
    })";
    EXPECT_TRUE(same(after("cse", text), text));
}

TEST(Passes, RandomGraphsKeepTheirNumbers) {
    for (unsigned seed = 0; seed < 300; ++seed) {
        ir::Graph g = RandomGraph(seed).make(30);
        ir::Graph before = g.clone();
        for (const char* pass : {"fold", "cse", "dce", "fold", "cse", "dce"}) {
            apply(pass, g);
            expect_same_effect(before, g, seed, seed % 2 == 0);
            if (::testing::Test::HasFatalFailure()) {
                ADD_FAILURE() << "seed " << seed << ", pass " << pass;
                return;
            }
        }
    }
}

TEST(Passes, RunPassTimesDumpsAndSkips) {
    ir::Graph g = ir::parse_graph("graph { %0 : f32[2] = input\n %1 : f32[2] = neg(%0)\n return %0 }");
    PipelineOptions options;
    options.disabled_passes = {"dce"};
    std::vector<std::string> dumped;
    options.dump = [&](const std::string& stage, const std::string& text) {
        dumped.push_back(stage + text.substr(0, 5));
    };
    PipelineStats stats;
    passes::Context c{options, &stats};
    EXPECT_FALSE(passes::run_pass(*passes::find_pass("dce"), g, c));
    EXPECT_EQ(g.nodes.size(), 2u);
    EXPECT_FALSE(passes::run_pass(*passes::find_pass("cse"), g, c));
    EXPECT_EQ(dumped, std::vector<std::string>{"csegraph"});
    ASSERT_EQ(stats.stages.size(), 1u);
    EXPECT_EQ(stats.stages[0].name, "cse");
    EXPECT_EQ(passes::find_pass("nonsense"), nullptr);
    EXPECT_EQ(passes::find_pass("functionalize")->name, "functionalize");
}

}  // namespace
}  // namespace braze::testing
