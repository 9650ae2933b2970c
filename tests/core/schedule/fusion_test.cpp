// What becomes one kernel.
#include <chrono>

#include "core/ir/builder.h"
#include "tests/core/schedule/calls.h"
#include "tests/core/schedule/compare.h"

namespace braze::testing {
namespace {

using ir::Builder;
using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Sizes;
using ir::Value;

Value* input(Graph& g, const Sizes& sizes, DType d = DType::F32) {
    return g.add_input({d, sizes, ir::contiguous_strides(sizes)});
}

Value* softmax(Builder& b, Value* x, int dim) {
    Value* m = b.reduce(Op::Max, x, {dim}, true);
    Value* e = b.unary(Op::Exp, b.sub(x, b.expand(m, x->type.sizes)));
    return b.div(e, b.expand(b.reduce(Op::Sum, e, {dim}, true), x->type.sizes));
}

Value* layer_norm(Builder& b, Value* x, Value* weight, Value* bias) {
    const int last = x->type.rank() - 1;
    auto [var, mean] = b.var_mean(x, {last}, true, 0);
    Value* r = b.unary(Op::Rsqrt, b.binary(Op::Add, var, 1e-5));
    Value* y = b.mul(b.sub(x, b.expand(mean, x->type.sizes)), b.expand(r, x->type.sizes));
    return b.add(b.mul(y, b.expand(weight, x->type.sizes)), b.expand(bias, x->type.sizes));
}

Value* gelu(Builder& b, Value* x) {
    Value* e = b.unary(Op::Erf, b.binary(Op::Mul, x, 0.7071067811865476));
    return b.mul(b.binary(Op::Mul, x, 0.5), b.binary(Op::Add, e, 1.0));
}

Value* mm(Builder& b, Value* x, Value* w) {
    const Sizes sizes{x->type.sizes[0], w->type.sizes[1]};
    return b
        .call("aten::mm", {x, w}, {{"self", ir::Ref{0}}, {"mat2", ir::Ref{1}}},
              {{DType::F32, sizes, ir::contiguous_strides(sizes)}})
        ->results[0];
}

TEST(Fusion, ChainOfPointwiseIsOneKernelOverOneAxis) {
    Graph g;
    Builder b(g);
    Value* x = input(g, {6, 5, 4});
    g.outputs = {gelu(b, b.unary(Op::Tanh, x))};
    const Checked c = check(g);
    ASSERT_EQ(c.kernels(), 1) << c.text();
    const loops::Kernel& k = c.program.kernels[0];
    EXPECT_EQ(k.outer, (std::vector<shapes::Expr>{120}));
    EXPECT_TRUE(k.inner.empty());
    EXPECT_EQ(k.params.size(), 2u);
}

TEST(Fusion, SoftmaxIsOneKernelOfThreeStages) {
    for (int dim : {0, 1, 2}) {
        Graph g;
        Builder b(g);
        g.outputs = {softmax(b, input(g, {3, 4, 5}), dim)};
        const Checked c = check(g);
        ASSERT_EQ(c.kernels(), 1) << c.text();
        EXPECT_EQ(c.program.kernels[0].stages.size(), 3u);
        EXPECT_EQ(c.program.kernels[0].vectorize, dim == 2 ? loops::Vectorize::InnerLast : loops::Vectorize::OuterLast)
            << c.text();
    }
}

TEST(Fusion, SoftmaxKeepsItsExponentialsInTheResult) {
    Graph g;
    Builder b(g);
    g.outputs = {b.neg(softmax(
        b, b.call("test::id", {input(g, {3, 8})}, {{"self", ir::Ref{0}}}, {{DType::F32, {3, 8}, {8, 1}}})->results[0],
        1))};
    const Checked c = check(g, 1, {}, test_calls());
    ASSERT_EQ(c.program.kernels.size(), 1u);
    const loops::Kernel& k = c.program.kernels[0];
    ASSERT_EQ(k.stages.size(), 3u);
    EXPECT_EQ(k.stages[1].stores.size(), 1u) << c.text();
    EXPECT_EQ(k.params[1].inplace_of, 0) << c.text();  // the input is not read any more when the first one is stored
    int exponentials = 0, own = 0;
    for (const auto& s : k.scalars) {
        exponentials += s.op == Op::Exp;
        own += s.kind == loops::ScalarKind::Load && k.params[static_cast<size_t>(s.param)].written;
    }
    EXPECT_EQ(exponentials, 1);
    EXPECT_EQ(own, 1);
}

TEST(Fusion, ResidualAndLayerNormAreOneKernel) {
    Graph g;
    Builder b(g);
    Value *x = input(g, {2, 3, 8}), *y = input(g, {2, 3, 8});
    Value* sum = b.add(x, y);
    Value* n = layer_norm(b, sum, input(g, {8}), input(g, {8}));
    g.outputs = {sum, n};
    const Checked c = check(g);
    ASSERT_EQ(c.kernels(), 1) << c.text();
    const loops::Kernel& k = c.program.kernels[0];
    EXPECT_EQ(k.outer, (std::vector<shapes::Expr>{6}));
    EXPECT_EQ(k.inner, (std::vector<shapes::Expr>{8}));
}

TEST(Fusion, GroupNormSplitsTheAxisThatItGroups) {
    Graph g;
    Builder b(g);
    Value* x = input(g, {2, 6, 3, 4});
    Value* h = b.reshape(b.unary(Op::Sigmoid, x), {2, 3, 24});
    auto [var, mean] = b.var_mean(h, {2}, true, 0);
    Value* r = b.unary(Op::Rsqrt, b.binary(Op::Add, var, 1e-5));
    Value* y = b.reshape(b.mul(b.sub(h, b.expand(mean, h->type.sizes)), b.expand(r, h->type.sizes)), x->type.sizes);
    Value* w = b.expand(b.reshape(input(g, {6}), {6, 1, 1}), x->type.sizes);
    g.outputs = {b.mul(y, w)};
    const Checked c = check(g);
    EXPECT_EQ(c.kernels(), 1) << c.text();
}

TEST(Fusion, BatchNormInTrainingIsOneKernelPerChannelRow) {
    Graph g;
    Builder b(g);
    Value* x = input(g, {2, 5, 3, 4});
    auto [var, mean] = b.var_mean(x, {0, 2, 3}, true, 0);
    Value* r = b.unary(Op::Rsqrt, b.binary(Op::Add, var, 1e-5));
    g.outputs = {b.unary(Op::Relu, b.mul(b.sub(x, b.expand(mean, x->type.sizes)), b.expand(r, x->type.sizes))), mean,
                 var};
    const Checked c = check(g);
    ASSERT_EQ(c.kernels(), 1) << c.text();
    EXPECT_EQ(c.program.kernels[0].outer, (std::vector<shapes::Expr>{5}));
}

TEST(Fusion, TwoColumnSumsOfTheSameThingAreOneKernel) {
    Graph g;
    Builder b(g);
    Value *dy = input(g, {40, 16}), *x = input(g, {40, 16}), *mean = input(g, {40, 1});
    Value* centred = b.sub(x, b.expand(mean, x->type.sizes));
    g.outputs = {b.reduce(Op::Sum, b.mul(dy, centred), {0}, false), b.reduce(Op::Sum, dy, {0}, false)};
    const Checked c = check(g);
    ASSERT_EQ(c.kernels(), 1) << c.text();
    EXPECT_EQ(c.program.kernels[0].vectorize, loops::Vectorize::OuterLast);
}

TEST(Fusion, SiblingsThatReadTheSameAreOneKernel) {
    Graph g;
    Builder b(g);
    Value* x = input(g, {7, 9});
    g.outputs = {b.unary(Op::Relu, x), b.unary(Op::Sigmoid, x), b.unary(Op::Exp, x)};
    const Checked c = check(g);
    EXPECT_EQ(c.kernels(), 1) << c.text();
}

TEST(Fusion, NoCircleThroughACall) {
    Graph g;
    Builder b(g);
    Value *x = input(g, {4, 4}), *w = input(g, {4, 4});
    Value* a = b.unary(Op::Exp, x);
    g.outputs = {b.add(a, mm(b, a, w))};
    const Checked c = check(g, 1, {}, test_calls());
    EXPECT_EQ(c.kernels(), 2) << c.text();
}

TEST(Fusion, ReshapeAndSplitOfAxesStayAffine) {
    Graph g;
    Builder b(g);
    Value* qkv = input(g, {2, 5, 24});  // batch, sequence, 2 heads of 12
    Value* heads = b.permute(b.reshape(qkv, {2, 5, 2, 12}), {0, 2, 1, 3});
    Value* scaled = b.binary(Op::Mul, heads, 0.25);
    Value* back = b.reshape(b.permute(scaled, {0, 2, 1, 3}), {10, 24});
    g.outputs = {b.unary(Op::Exp, back)};
    const Checked c = check(g);
    ASSERT_EQ(c.kernels(), 1) << c.text();
    EXPECT_EQ(loops::canonical(c.program.kernels[0]).find("//"), std::string::npos) << c.text();
    EXPECT_EQ(c.program.kernels[0].outer.size(), 1u) << c.text();
}

TEST(Fusion, RotaryEmbeddingIsOneKernel) {
    Graph g;
    Builder b(g);
    Value *x = input(g, {2, 3, 5, 8}), *cos = input(g, {5, 8}), *sin = input(g, {5, 8});
    Value* low = b.slice_axis(x, 3, 0, 4);
    Value* high = b.slice_axis(x, 3, 4, 4);
    Value* turned = b.cat({b.neg(high), low}, 3);
    g.outputs = {b.add(b.mul(x, b.expand(cos, x->type.sizes)), b.mul(turned, b.expand(sin, x->type.sizes)))};
    const Checked c = check(g);
    EXPECT_EQ(c.kernels(), 1) << c.text();
}

TEST(Fusion, ACatThatIsStoredIsWrittenByItsProducers) {
    Graph g;
    Builder b(g);
    Value *x = input(g, {3, 4}), *y = input(g, {3, 6});
    g.outputs = {b.cat({b.unary(Op::Exp, x), y, b.neg(x)}, 1)};
    const Checked c = check(g);
    EXPECT_LE(c.kernels(), 3) << c.text();
    for (const auto& k : c.program.kernels)
        for (const auto& s : k.scalars) EXPECT_LT(s.mask, 0) << c.text();
}

TEST(Fusion, LongFullReductionHasTwoLevels) {
    for (int64_t n : {1 << 17, 100003}) {
        Graph g;
        Builder b(g);
        g.outputs = {b.reduce(Op::Sum, b.unary(Op::Abs, input(g, {n})), {0}, false),
                     b.reduce(Op::Max, input(g, {n / 100, 100}), {0, 1}, true)};
        const Checked c = check(g);
        EXPECT_EQ(c.kernels(), 4) << c.text();
    }
}

TEST(Fusion, ChannelsLastFollowsTheMemory) {
    Graph g;
    Builder b(g);
    Value* x = g.add_input({DType::F32, {2, 3, 4, 5}, {60, 1, 15, 3}});
    Value* y = g.add_input({DType::F32, {2, 3, 4, 5}, {60, 1, 15, 3}});
    Value* w = input(g, {3});
    Value* sum = b.add(x, y);
    g.outputs = {sum, b.mul(sum, b.expand(b.reshape(w, {3, 1, 1}), x->type.sizes))};
    const Checked c = check(g);
    ASSERT_EQ(c.kernels(), 1) << c.text();
    EXPECT_EQ(c.program.kernels[0].outer, (std::vector<shapes::Expr>{40})) << c.text();
    EXPECT_EQ(c.program.kernels[0].inner, (std::vector<shapes::Expr>{3})) << c.text();
}

TEST(Fusion, EmbeddingChecksItsIndex) {
    Graph g;
    Builder b(g);
    Value *table = input(g, {3, 4}), *index = input(g, {2, 5}, DType::I64);
    g.outputs = {b.binary(Op::Mul, b.take(table, {index}, {0}, 0), 3.0)};
    const Checked c = check(g);
    EXPECT_EQ(c.kernels(), 1) << c.text();
    EXPECT_TRUE(c.program.kernels[0].has_checks);
    auto inputs = random_inputs(g, 1);
    inputs[1].set_number(3, 3);
    Host host(c.program);
    host.run(inputs);
    EXPECT_TRUE(host.failed_check);
    inputs[1].set_number(3, -3);  // counts from the end
    Host again(c.program);
    const auto out = again.run(inputs);
    ASSERT_FALSE(again.failed_check);
    EXPECT_FLOAT_EQ(static_cast<float>(out[0].number(12)), static_cast<float>(3 * inputs[0].number(0)));
}

TEST(Fusion, AComputedIndexAndAPaddedValueAreNotStored) {
    Graph g;
    Builder b(g);
    Value *table = input(g, {3, 64}), *index = input(g, {2, 5}, DType::I64), *x = input(g, {2, 3, 16, 16});
    Value* i = b.where(b.binary(Op::Lt, index, 0.0), b.binary(Op::Add, index, 3.0), index);
    Value* silu = b.mul(x, b.unary(Op::Sigmoid, x));
    g.outputs = {b.take(table, {i}, {0}, 0), b.pad(silu, {0, 0, 0, 0}, {0, 0, 1, 1}, 0)};
    EXPECT_EQ(check(g).kernels(), 2);
}

TEST(Fusion, LongChainsAreCutAndFast) {
    Graph g;
    Builder b(g);
    Value* x = input(g, {64});
    for (int i = 0; i < 1000; ++i) x = b.binary(Op::Mul, b.unary(Op::Sin, x), 1.0009765625);
    g.outputs = {x};
    const auto begin = std::chrono::steady_clock::now();
    auto p = schedule::schedule(g.clone());
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_LT(ms, 500);  // some milliseconds in an idle process
    RecordProperty("milliseconds", std::to_string(ms));
    EXPECT_LE(p.thunks.size(), 60u);
    for (const auto& k : p.kernels) EXPECT_LE(k.scalars.size(), 320u);
    check(g);
}

TEST(Fusion, EqualLayersAreEqualKernels) {
    Graph g;
    Builder b(g);
    Value* x = input(g, {12, 8});
    for (int layer = 0; layer < 6; ++layer) {
        Value* h = layer_norm(b, x, input(g, {8}), input(g, {8}));
        h = gelu(b, mm(b, h, input(g, {8, 32})));
        x = b.add(x, mm(b, h, input(g, {32, 8})));
    }
    g.outputs = {x};
    const Checked c = check(g, 3, {}, test_calls());
    EXPECT_EQ(c.kernels(), 13) << c.text();
    EXPECT_LE(c.program.kernels.size(), 4u) << c.text();
}

TEST(Fusion, ChannelsWithTheirStatisticsAreNotComputedPerElement) {
    // batch norm of channels-last data: the reciprocal root would be computed for every element
    Graph g;
    Builder b(g);
    Value* x = g.add_input({DType::F32, {2, 16, 4, 5}, {320, 1, 80, 16}});
    Value* var = input(g, {16});
    Value* r = b.unary(Op::Rsqrt, b.binary(Op::Add, b.unary(Op::Abs, var), 1.0));
    g.outputs = {b.mul(x, b.expand(b.reshape(r, {16, 1, 1}), x->type.sizes))};
    EXPECT_EQ(check(g).kernels(), 2);
    Graph rows;
    Builder c(rows);
    x = input(rows, {2, 16, 4, 5});
    r = c.unary(Op::Rsqrt, c.binary(Op::Add, c.unary(Op::Abs, input(rows, {16})), 1.0));
    rows.outputs = {c.mul(x, c.expand(c.reshape(r, {16, 1, 1}), x->type.sizes))};
    EXPECT_EQ(check(rows).kernels(), 1);
}

TEST(Fusion, SymbolicSizes) {
    const shapes::Expr s0 = shapes::Expr::symbol("s0", {2, 1 << 20}), s1 = shapes::Expr::symbol("s1", {2, 1 << 20});
    Graph g;
    g.symbols = {s0, s1};
    Builder b(g);
    Value* x = input(g, {s0, s1, 12});
    Value* h = b.permute(b.reshape(x, {s0, s1, 3, 4}), {0, 2, 1, 3});
    Value* y = b.reshape(b.permute(b.unary(Op::Exp, h), {0, 2, 1, 3}), {s0 * s1, 12});
    Value* n = layer_norm(b, b.reshape(x, {s0 * s1, 12}), input(g, {12}), input(g, {12}));
    g.outputs = {softmax(b, b.add(y, n), 1), b.reduce(Op::Sum, x, {0, 1}, false),
                 b.reduce(Op::Sum, x, {0, 1, 2}, false)};
    auto symbols = [&](const shapes::Expr& s) -> std::optional<int64_t> { return s == s0 ? 3 : 5; };
    const Checked c = check(g, 5, symbols);
    EXPECT_LE(c.kernels(), 3) << c.text();
}

TEST(Fusion, HalfTypesRoundAfterEveryOperator) {
    for (DType d : {DType::BF16, DType::F16}) {
        Graph g;
        Builder b(g);
        Value *x = input(g, {6, 8}, d), *y = input(g, {6, 8}, d);
        Value* z = b.add(b.mul(x, y), b.unary(Op::Exp, x));
        g.outputs = {z, b.reduce(Op::Sum, z, {1}, false), b.where(b.binary(Op::Lt, x, y), x, y), softmax(b, x, 1)};
        const Checked c = check(g);
        EXPECT_LE(c.kernels(), 2) << c.text();
    }
}

}  // namespace
}  // namespace braze::testing
