#include "core/autograd/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/ir/evaluate.h"
#include "core/ir/text.h"
#include "core/ir/verify.h"
#include "tests/core/random_graph.h"

namespace braze::autograd {
namespace {

using ir::HostTensor;

// The tangents are the last inputs.
Joint joint_of(const std::string& text, int n_tangents, int n_outputs, bool keeps = true) {
    Joint j;
    j.graph = ir::parse_graph(text);
    ir::verify(j.graph);
    j.n_tangents = n_tangents;
    j.first_tangent = static_cast<int>(j.graph.inputs.size()) - n_tangents;
    j.n_outputs = n_outputs;
    j.keeps_input.assign(j.graph.inputs.size(), keeps);
    j.keeps_output.assign(static_cast<size_t>(n_outputs), keeps);
    return j;
}

Partition divide(const Joint& j) {
    std::string obstacle;
    auto p = partition(j, &obstacle);
    EXPECT_TRUE(p) << obstacle;
    ir::verify(p->forward);
    ir::verify(p->backward);
    return std::move(*p);
}
std::string obstacle_of(const Joint& j) {
    std::string obstacle;
    EXPECT_FALSE(partition(j, &obstacle));
    return obstacle;
}
bool has(const ir::Graph& g, ir::Op op) {
    return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const ir::Node* n) { return n->op == op; });
}
bool calls(const ir::Graph& g, const std::string& callee) {
    return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const ir::Node* n) { return n->callee == callee; });
}
void expect_graph(const ir::Graph& got, const std::string& want) {
    EXPECT_TRUE(ir::structurally_equal(got, ir::parse_graph(want))) << ir::print(got);
}

constexpr const char* kExp = R"(graph {
    %0 @0 : f32[2, 3] = input
    %1 @1 : f32[2, 3] = input
    %2 : f32[2, 3] = exp(%0)
    %3 : f32[2, 3] = mul(%1, %2)
    return %2, %3
})";

TEST(Partition, KeepsAnOutputThatEagerKeeps) {
    Joint j = joint_of(kExp, 1, 1);
    j.keeps_input[0] = 0;
    Partition p = divide(j);
    EXPECT_EQ(p.saved, std::vector<Saved>({{Saved::Output, 0}}));
    expect_graph(p.forward, R"(graph {
        %0 @0 : f32[2, 3] = input
        %2 : f32[2, 3] = exp(%0)
        return %2
    })");
    expect_graph(p.backward, R"(graph {
        %0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = input
        %2 : f32[2, 3] = mul(%1, %0)
        return %2
    })");
}

TEST(Partition, KeepsACopyOfWhatOthersMayChange) {
    Partition p = divide(joint_of(kExp, 1, 1, false));
    EXPECT_EQ(p.saved, std::vector<Saved>({{Saved::Value, 1}}));
    ASSERT_EQ(p.forward.outputs.size(), 2u);
    EXPECT_EQ(p.forward.outputs[1]->node->op, ir::Op::Copy);
}

TEST(Partition, InputsAreThereAnyway) {
    Joint j = joint_of(kExp, 1, 1);
    j.keeps_output[0] = 0;
    Partition p = divide(j);
    EXPECT_EQ(p.saved, std::vector<Saved>({{Saved::Input, 0}}));
    EXPECT_TRUE(has(p.backward, ir::Op::Exp));
}

TEST(Partition, ElementwiseOperatorsRunAgain) {
    Partition p = divide(joint_of(R"(graph {
        %0 @0 : f32[64, 64] = input
        %1 @1 : f32[64, 64] = input
        %2 @2 : f32[64, 64] = input
        %3 : f32[64, 64] = call aten::mm(self=%0, mat2=%1)
        %4 : f32[64, 64] = tanh(%3)
        %5 : f32[64, 64] = exp(%4)
        %6 : f32[64] = sum(%5, dims=[1], keepdim=false)
        %7 : f32[64, 64] = mul(%2, %5)
        %8 : f32[64, 64] = mul(%7, %4)
        return %6, %8
    })",
                                  1, 1));
    EXPECT_EQ(p.saved, std::vector<Saved>({{Saved::Value, 1}}));
    EXPECT_EQ(p.forward.outputs[1]->node->callee, "aten::mm");
    EXPECT_TRUE(has(p.backward, ir::Op::Tanh) && has(p.backward, ir::Op::Exp));
    EXPECT_FALSE(calls(p.backward, "aten::mm"));
}

TEST(Partition, ReductionsDoNot) {
    Partition p = divide(joint_of(R"(graph {
        %0 @0 : f32[64, 64] = input
        %1 @1 : f32[64] = input
        %2 : f32[64] = sum(%0, dims=[1], keepdim=false)
        %3 : f32[64] = exp(%2)
        %4 : f32[64] = mul(%1, %2)
        return %3, %4
    })",
                                  1, 1));
    EXPECT_FALSE(has(p.backward, ir::Op::Sum));
}

TEST(Partition, WhatBothHalvesStoreForCallsIsKept) {
    Partition p = divide(joint_of(R"(graph {
        %0 @0 : f32[64, 64] = input
        %1 @1 : f32[64, 64] = input
        %2 @2 : f32[64, 64] = input
        %3 : f32[64, 64] = tanh(%0)
        %4 : f32[64, 64] = call aten::mm(self=%3, mat2=%1)
        %5 : f32[64, 64]{1, 64} = permute(%3, dims=[1, 0])
        %6 : f32[64, 64] = call aten::mm(self=%5, mat2=%2)
        return %4, %6
    })",
                                  1, 1));
    EXPECT_EQ(p.saved, std::vector<Saved>({{Saved::Value, 1}}));
    EXPECT_TRUE(has(p.backward, ir::Op::Permute));
}

TEST(Partition, RandomNumbersAreKept) {
    Partition p = divide(joint_of(R"(graph {
        %0 @0 : f32[64] = input
        %1 @1 : f32[64] = input
        %2 : f32[64] = call aten::rand_like(self=%0) ordered
        %3 : f32[64] = mul(%0, %2)
        %4 : f32[64] = mul(%1, %2)
        return %3, %4
    })",
                                  1, 1));
    EXPECT_EQ(p.saved, std::vector<Saved>({{Saved::Value, 1}}));
    EXPECT_TRUE(calls(p.forward, "aten::rand_like"));
    EXPECT_FALSE(calls(p.backward, "aten::rand_like"));
}

TEST(Partition, WhatReadMemoryThatIsWrittenLaterDoesNotRunAgain) {
    Partition p = divide(joint_of(R"(graph {
        %0 @0 : f32[4] = input
        %1 @1 : f32[4] = input
        %2 @2 : f32[4] = input
        %3 : f32[4] = exp(%0)
        %4 @0 : f32[4] = call aten::add_.Tensor(self=%0, other=%1, alpha=1) writes=[0] aliases=[0]
        %5 : f32[4] = neg(%3)
        %6 : f32[4] = mul(%2, %3)
        return %5, %6
    })",
                                  1, 1));
    EXPECT_EQ(p.saved, std::vector<Saved>({{Saved::Value, 1}}));
    EXPECT_EQ(p.forward.outputs[1]->node->op, ir::Op::Exp);
}

TEST(Partition, WrittenInputsAreCopied) {
    Partition p = divide(joint_of(R"(graph {
        %0 @0 : f32[4] = input
        %1 @1 : f32[4] = input
        %2 @2 : f32[4] = input
        %3 @0 : f32[4] = call aten::add_.Tensor(self=%0, other=%1, alpha=1) writes=[0] aliases=[0]
        %4 : f32[4] = mul(%3, %1)
        %5 : f32[4] = mul(%2, %3)
        return %4, %5
    })",
                                  1, 1));
    EXPECT_EQ(p.saved, std::vector<Saved>({{Saved::Value, 1}}));
    EXPECT_EQ(p.forward.outputs[1]->node->op, ir::Op::Copy);
    EXPECT_TRUE(p.backward.nodes.back()->writes.empty());
}

TEST(Partition, BackwardMayWriteItsOwnMemory) {
    Partition p = divide(joint_of(R"(graph {
        %0 @0 : f32[4] = input
        %1 @1 : f32[4] = input
        %2 : f32[4] = neg(%0)
        %3 @2 : f32[4] = call aten::zeros_like(self=%0)
        %4 @2 : f32[4] = call aten::add_.Tensor(self=%3, other=%1, alpha=1) writes=[0] aliases=[0]
        return %2, %4
    })",
                                  1, 1));
    EXPECT_TRUE(calls(p.backward, "aten::zeros_like") && calls(p.backward, "aten::add_.Tensor"));
    EXPECT_FALSE(calls(p.forward, "aten::zeros_like"));
}

TEST(Partition, Obstacles) {
    EXPECT_NE(obstacle_of(joint_of(R"(graph {
        %0 @0 : f32[4] = input
        %1 @1 : f32[4] = input
        %2 : f32[4] = neg(%0)
        %3 : f32[4] = call aten::rand_like(self=%1) ordered
        return %2, %3
    })",
                                   1, 1))
                  .find("an effect"),
              std::string::npos);
    EXPECT_NE(obstacle_of(joint_of(R"(graph {
        %0 @0 : f32[4] = input
        %1 @1 : f32[4] = input
        %2 : f32[4] = neg(%0)
        %3 @0 : f32[4] = call aten::add_.Tensor(self=%0, other=%1, alpha=1) writes=[0] aliases=[0]
        return %2, %3
    })",
                                   1, 1))
                  .find("needs a value of the backward pass"),
              std::string::npos);
    EXPECT_NE(obstacle_of(joint_of(R"(graph {
        %0 @0 : f32[4] = input
        %1 @1 : f32[4] = input
        %2 : f32[4] = neg(%0)
        %3 : f32[4] = mul(%0, %1)
        %4 @0 : f32[4] = call aten::relu_(self=%0) writes=[0] aliases=[0]
        return %2, %3
    })",
                                   1, 1))
                  .find("written later"),
              std::string::npos);
}

std::vector<HostTensor> random_inputs(const ir::Graph& g, std::mt19937& rng) {
    std::vector<HostTensor> all;
    for (const ir::Value* v : g.inputs) {
        std::vector<int64_t> sizes, strides;
        for (const auto& s : v->type.sizes) sizes.push_back(s.value());
        for (const auto& s : v->type.strides) strides.push_back(s.value());
        all.push_back(HostTensor::empty(v->type.dtype, sizes, strides));
        for (int64_t i = 0; i < all.back().numel(); ++i)
            all.back().set_number(i, std::uniform_int_distribution<int>(0, 3)(rng));
    }
    return all;
}

// Two products with an elementwise operator between them; the gradient needs both factors of the second.
constexpr const char* kChain = R"(graph {
    line 0 "first"
    line 1 "second"
    %0 @0 : f32[4, 4] = input
    %1 @1 : f32[4, 4] = input
    %2 : f32[4, 4] = call aten::mm(self=%0, mat2=%0) line=0
    %3 : f32[4, 4] = sin(%2) line=0
    %4 : f32[4, 4] = call aten::mm(self=%3, mat2=%3) line=0
    %5 : f32[4, 4] = cos(%4) line=1
    %6 : f32[4, 4] = call aten::mm(self=%5, mat2=%5) line=1
    %7 : f32[4, 4] = mul(%1, %5)
    %8 : f32[4, 4] = call aten::mm(self=%7, mat2=%3)
    return %6, %8
})";

int count_calls(const ir::Graph& g) {
    return static_cast<int>(
        std::count_if(g.nodes.begin(), g.nodes.end(), [](const ir::Node* n) { return n->op == ir::Op::Call; }));
}

TEST(Partition, ACheckpointedRegionRunsAgain) {
    Joint j = joint_of(kChain, 1, 1);
    EXPECT_EQ(count_calls(divide(j).backward), 1);
    j.regions = {{1, false}, {0, false}};
    const Partition p = divide(j);
    // %2 is computed again from the input, and %4, which others use, is kept
    EXPECT_EQ(count_calls(p.backward), 2) << ir::print(p.backward);
    EXPECT_EQ(p.saved, (std::vector<Saved>{{Saved::Input, 0}, {Saved::Value, 1}})) << ir::print(p.forward);
    j.regions = {{1, false}, {2, false}};
    EXPECT_EQ(count_calls(divide(j).backward), 2);
    j.regions = {{1, true}, {0, false}};
    EXPECT_EQ(count_calls(divide(j).backward), 1);
}

TEST(Partition, WhatRunsAgainComesBeforeItsUse) {
    Joint j = joint_of(kChain, 1, 1);
    j.regions = {{1, false}, {0, false}};
    const Partition p = divide(j);
    const auto position = [&](auto is) {
        return std::find_if(p.backward.nodes.begin(), p.backward.nodes.end(), is) - p.backward.nodes.begin();
    };
    EXPECT_LT(position([](const ir::Node* n) { return n->op == ir::Op::Mul; }),
              position([](const ir::Node* n) { return n->op == ir::Op::Sin; }));
}

TEST(Partition, ABudgetMakesCallsRunAgain) {
    Joint j = joint_of(kChain, 1, 1);
    j.memory_budget = 0;
    const Partition least = divide(j);
    EXPECT_EQ(least.saved, (std::vector<Saved>{{Saved::Input, 0}})) << ir::print(least.forward);
    EXPECT_EQ(count_calls(least.backward), 3);
    j.memory_budget = 0.5;
    EXPECT_EQ(count_calls(divide(j).backward), 2);
}

TEST(Partition, TheHalvesTogetherAreTheWhole) {
    for (unsigned seed = 0; seed < 400; ++seed) {
        std::mt19937 rng(seed);
        auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
        Joint j;
        j.graph = testing::RandomGraph(seed).make(40);
        j.first_tangent = 4;
        j.n_tangents = 1;
        std::vector<ir::Value*> outputs, gradients;
        std::vector<char> dependent(static_cast<size_t>(j.graph.id_bound()), 0);
        for (ir::Node* n : j.graph.nodes) {
            bool d = n->op == ir::Op::Input && n->results[0] == j.graph.inputs[4];
            for (ir::Value* v : n->operands) d |= dependent[static_cast<size_t>(v->id)] != 0;
            for (ir::Value* v : n->results) {
                dependent[static_cast<size_t>(v->id)] = d;
                if (n->op != ir::Op::Input && pick(0, 3) == 0) (d ? gradients : outputs).push_back(v);
            }
        }
        j.graph.outputs = outputs;
        j.graph.outputs.insert(j.graph.outputs.end(), gradients.begin(), gradients.end());
        j.n_outputs = static_cast<int>(outputs.size());
        for (size_t i = 0; i < j.graph.inputs.size(); ++i) j.keeps_input.push_back(pick(0, 1) != 0);
        for (size_t i = 0; i < outputs.size(); ++i) j.keeps_output.push_back(pick(0, 1) != 0);
        j.graph.lines.assign(4, "line");
        for (ir::Node* n : j.graph.nodes) n->line = pick(-1, 3);
        for (int line = 0; line < pick(0, 4); ++line) j.regions.push_back({pick(0, 2), pick(0, 4) == 0});
        j.memory_budget = pick(0, 4) / 4.0;
        std::string obstacle;
        auto p = partition(j, &obstacle);
        if (!p) continue;  // (a value without a dense layout that only a copy could keep)
        ir::verify(p->forward);
        ir::verify(p->backward);
        std::vector<HostTensor> inputs = random_inputs(j.graph, rng), given;
        std::vector<HostTensor> want = ir::evaluate(j.graph, inputs);
        for (size_t i = 0; i < inputs.size(); ++i)
            if (i != 4) given.push_back(inputs[i]);
        std::vector<HostTensor> got = ir::evaluate(p->forward, given), kept;
        for (const Saved& s : p->saved)
            kept.push_back(s.kind == Saved::Input ? given[static_cast<size_t>(s.index)]
                                                  : got[static_cast<size_t>(s.index)]);
        kept.push_back(inputs[4]);
        got.resize(outputs.size());
        for (HostTensor& t : ir::evaluate(p->backward, kept)) got.push_back(t);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < want.size(); ++i)
            for (int64_t k = 0; k < want[i].numel(); ++k) {
                double a = got[i].number(k), b = want[i].number(k);
                ASSERT_TRUE(a == b || (a != a && b != b)) << "seed " << seed << " output " << i << "\n"
                                                          << ir::print(j.graph);
            }
    }
}

}  // namespace
}  // namespace braze::autograd
