#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/ir/builder.h"
#include "core/ir/number.h"
#include "core/ir/op.h"
#include "core/ir/text.h"
#include "core/ir/verify.h"
#include "core/support/error.h"
#include "tests/core/random_graph.h"

namespace braze::ir {
namespace {

TensorType f32(const Sizes& sizes) { return {DType::F32, sizes, contiguous_strides(sizes)}; }

const char* kEverything = R"(graph {
  symbol s0 [2, max]
  free u0 [min, 7]
  line 0 "file.py:12 in forward"
  line 1 "say \"hi\"\n\x01"
  %0 "x" @0 : f32[s0, 3] = input
  %1 @0 : f32[s0, 3] = input
  %2 : bool[2]{0} = input
  %3 : f32[3, s0]{1, 3} = permute(%0, dims=[1, 0])
  %4 : f32[s0, 3] = call aten::add.Tensor(self=%0, other=%1, alpha=1) line=0
  %5 @0 : f32[s0, 3] = call aten::relu_(self=%0) writes=[0] ordered aliases=[0] line=1
  %6 : f32[3], %7 : f32[3] = var_mean(%4, dims=[0], keepdim=false, correction=1.0)
  %8 : f32[2] = call x::y(a=none, b={%6, none, %7}, c=true, d=2*s0 + u0, e=-1e+300, f="t\\e\"", g=dtype(bf16), h=[1, s0], i=f[1.0, inf, nan, -inf], j=b[true, false], k=opaque(3, "cpu"), l=[], m={})
  call x::log(text="", n=f[], o=b[], p=-0.0)
  %9 : i64[] = scalar(value=s0*u0)
  %10 : f32[3] = add(%6, %7)
  return %10, %8, %10
}
)";

TEST(Text, PrintsWhatItReads) {
    Graph g = parse_graph(kEverything);
    EXPECT_EQ(print(g), kEverything);
    verify(g);
    EXPECT_EQ(g.symbols.size(), 1u);
    EXPECT_EQ(g.nodes[5]->writes, std::vector<int>{0});
    EXPECT_TRUE(g.nodes[5]->ordered);
    EXPECT_EQ(g.lines[1], "say \"hi\"\n\x01");
    EXPECT_EQ(g.storage_bound(), 1);
}

TEST(Text, ErrorsSayWhere) {
    auto error = [](const char* text) -> std::string {
        try {
            parse_graph(text);
        } catch (const UserError& e) { return e.what(); }
        return "none";
    };
    EXPECT_NE(error("graph {\n  %0 : f32[2] = input\n  %1 : f32[2] = neg(%7)\n  return %1\n}")
                  .find("line 3: expected a value that was made before"),
              std::string::npos);
    EXPECT_NE(error("graph {\n  %0 : f99[2] = input\n}").find("expected a dtype"), std::string::npos);
    EXPECT_NE(error("graph {\n  %0 : f32[q] = input\n}").find("declared symbols"), std::string::npos);
    EXPECT_NE(error("graph {\n  %0 : f32[2] = frobnicate()\n}").find("an operator"), std::string::npos);
    EXPECT_NE(error("graph {\n  %0 : f32[2] = input\n %0 : f32[2] = input\n}").find("not taken"), std::string::npos);
    EXPECT_NE(error("").find("'graph'"), std::string::npos);
}

TEST(Text, RandomGraphsRoundTrip) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        Graph g = testing::RandomGraph(seed).make(40);
        verify(g);
        std::string text = print(g);
        Graph again = parse_graph(text);
        EXPECT_EQ(print(again), text);
        EXPECT_TRUE(structurally_equal(g, again));
        Graph copy = g.clone();
        verify(copy);
        EXPECT_EQ(print(copy), text);
    }
}

TEST(Graph, CloneIsIndependent) {
    Graph g = parse_graph(kEverything);
    Graph c = g.clone();
    c.nodes.back()->op = Op::Mul;
    EXPECT_FALSE(structurally_equal(g, c));
    EXPECT_EQ(print(g), kEverything);
    EXPECT_EQ(c.id_bound(), g.id_bound());
}

TEST(Graph, ReplaceUsesAndErase) {
    Graph g;
    Builder b(g);
    Value* x = g.add_input(f32({2}));
    Value* y = b.neg(x);
    Value* z = b.add(y, y);
    g.outputs = {z, y};
    g.replace_uses(y, x);
    g.erase(y->node);
    verify(g);
    EXPECT_EQ(g.nodes.size(), 2u);
    EXPECT_EQ(g.outputs[1], x);
    EXPECT_THROW(g.erase(y->node), InternalError);
    EXPECT_THROW(g.erase(x->node), InternalError);
}

TEST(Graph, EqualityIgnoresNumbering) {
    Graph a = parse_graph("graph { %0 @3 : f32[2] = input\n %9 : f32[2] = neg(%0)\n return %9\n}");
    Graph b = parse_graph("graph { %1 \"x\" @0 : f32[2] = input\n %2 : f32[2] = neg(%1)\n return %2\n}");
    Graph c = parse_graph("graph { %1 @0 : f32[2] = input\n %2 : f32[2] = neg(%1)\n return %1\n}");
    Graph d = parse_graph("graph { %1 : f32[2] = input\n %2 : f32[2] = neg(%1)\n return %2\n}");
    EXPECT_TRUE(structurally_equal(a, b));
    EXPECT_FALSE(structurally_equal(a, c));
    EXPECT_FALSE(structurally_equal(a, d));
}

TEST(Types, Strides) {
    Expr n = Expr::symbol("s0", {2, std::numeric_limits<int64_t>::max()});
    EXPECT_EQ(contiguous_strides({2, 0, 3}), (Sizes{3, 3, 1}));
    EXPECT_TRUE(is_contiguous({DType::F32, {2, 1, 3}, {3, 77, 1}}));
    EXPECT_FALSE(is_contiguous({DType::F32, {2, 3}, {1, 2}}));
    EXPECT_TRUE(is_dense({DType::F32, {2, 3}, {1, 2}}));
    EXPECT_TRUE(is_dense({DType::F32, {n, 3, 5}, {15, 1, 3}}));
    EXPECT_FALSE(is_dense({DType::F32, {2, 3}, {0, 1}}));
    EXPECT_FALSE(is_dense({DType::F32, {2, 3}, {4, 1}}));
    EXPECT_EQ(view_strides({DType::F32, {2, 3, 4}, {12, 4, 1}}, {6, 4}), (Sizes{4, 1}));
    EXPECT_EQ(view_strides({DType::F32, {2, 3}, {1, 2}}, {6}), std::nullopt);
    EXPECT_EQ(view_strides({DType::F32, {4, 3}, {1, 4}}, {2, 2, 3, 1}), (Sizes{2, 1, 4, 4}));
    EXPECT_EQ(view_strides({DType::F32, {n, 6}, {6, 1}}, {n * 6}), (Sizes{1}));
    EXPECT_EQ(view_strides({DType::F32, {n * 6}, {1}}, {n, 2, 3}), (Sizes{6, 3, 1}));
    EXPECT_EQ(view_strides({DType::F32, {}, {}}, {1, 1}), (Sizes{1, 1}));
}

TEST(Builder, ResultTypes) {
    Graph g;
    Builder b(g);
    Value* x = g.add_input({DType::F32, {2, 3}, {1, 2}});
    Value* y = g.add_input(f32({1, 3}));
    EXPECT_EQ(b.neg(x)->type, x->type);
    EXPECT_EQ(b.unary(Op::IsNan, x)->type.dtype, DType::Bool);
    EXPECT_EQ(print(b.expand(y, {5, 2, 3})->type), "f32[5, 2, 3]{0, 0, 1}");
    EXPECT_EQ(b.expand(x, {2, 3}), x);
    EXPECT_EQ(print(b.permute(x, {1, 0})->type), "f32[3, 2]");
    EXPECT_EQ(print(b.reshape(x, {6})->type), "f32[6]");
    EXPECT_EQ(print(b.unsqueeze(x, 1)->type), "f32[2, 1, 3]{1, 6, 2}");
    EXPECT_EQ(print(b.slice_axis(x, 1, 1, 2)->type), "f32[2, 2]{1, 2}");
    EXPECT_EQ(print(b.cat({x, x, y}, 0)->type), "f32[5, 3]");
    EXPECT_EQ(print(b.pad(x, {1, 0}, {0, -1}, 0.0)->type), "f32[3, 2]");
    EXPECT_EQ(print(b.reduce(Op::Sum, x, {1}, false)->type), "f32[2]");
    EXPECT_EQ(print(b.reduce(Op::Sum, b.cast(x, DType::Bool), {0, 1}, true)->type), "i64[1, 1]");
    EXPECT_EQ(print(b.reduce(Op::ArgMax, x, {1}, false)->type), "i64[2]");
    Value* index = b.iota(DType::I64, {4}, 0);
    EXPECT_EQ(print(b.take(x, {index}, {1}, 1)->type), "f32[2, 4]");
    EXPECT_EQ(print(b.take(x, {index, index}, {0, 1}, 0)->type), "f32[4]");
    EXPECT_NE(print(*b.scalar_int(DType::F32, 3)->node).find(" : f32[] = scalar(value=3.0)"), std::string::npos);
    EXPECT_THROW(b.add(x, y), InternalError);
    EXPECT_THROW(b.add(x, b.cast(x, DType::F64)), InternalError);
    EXPECT_THROW(b.binary(Op::Neg, x, x), InternalError);
    EXPECT_THROW(b.scalar(DType::I64, 0.5), InternalError);
    auto [var, mean] = b.var_mean(x, {0}, true, 1);
    EXPECT_EQ(var->node, mean->node);
    g.outputs = {mean};
    verify(g);
}

TEST(Rewrite, ReplacesChainsInOneWalk) {
    Graph g;
    Builder b(g);
    Value* v = g.add_input(f32({2}));
    Value* x = v;
    for (int i = 0; i < 1000; ++i) v = b.neg(v);
    g.outputs = {v, x};
    bool changed = rewrite(g, [](Node* n, Builder& builder) {
        Value* a = n->operands[0];
        if (n->op == Op::Neg && a->node->op == Op::Neg) {
            builder.replace(n->results[0], a->node->operands[0]);
            return true;
        }
        builder.replace(n->results[0], builder.unary(Op::Neg, builder.copy(a)));
        return true;
    });
    EXPECT_TRUE(changed);
    verify(g);
    EXPECT_FALSE(rewrite(g, [](Node*, Builder&) { return false; }));
}

TEST(Rewrite, KeepsTheGraphWhenAVisitThrows) {
    Graph g = testing::RandomGraph(3).make(20);
    std::string before = print(g);
    int count = 0;
    EXPECT_THROW(rewrite(g,
                         [&](Node*, Builder&) -> bool {
                             if (++count == 5) throw InternalError("stop");
                             return false;
                         }),
                 InternalError);
    EXPECT_EQ(print(g), before);
}

TEST(Verify, RefusesWhatOpsDefForbids) {
    auto refused = [](const char* body) -> std::string {
        Graph g = parse_graph("graph {\n%0 : f32[2, 3] = input\n%1 : i64[2] = input\n%2 @0 : f32[3] = input\n" +
                              std::string(body) + "\nreturn %3\n}");
        try {
            verify(g);
        } catch (const InternalError& e) { return e.what(); }
        return "accepted";
    };
    EXPECT_EQ(refused("%3 : f32[2, 3] = neg(%0)"), "accepted");
    EXPECT_NE(refused("%3 : f32[2, 3] = neg(%0, %0)").find("number of operands is wrong: %3 : f32[2, 3] = neg(%0, %0)"),
              std::string::npos);
    EXPECT_NE(refused("%3 : f32[3, 2] = neg(%0)").find("changes sizes"), std::string::npos);
    EXPECT_NE(refused("%3 : f64[2, 3] = neg(%0)").find("dtype of the result"), std::string::npos);
    EXPECT_NE(refused("%3 : f32[2, 3] = eq(%0, %0)").find("dtype of the result"), std::string::npos);
    EXPECT_NE(refused("%3 : f32[2] = sum(%0, dims=[1])").find("number of attributes"), std::string::npos);
    EXPECT_NE(refused("%3 : f32[2] = sum(%0, dims=[2], keepdim=false)").find("out of range"), std::string::npos);
    EXPECT_NE(refused("%3 : f32[2, 2] = permute(%0, dims=[0, 0])").find("no permutation"), std::string::npos);
    EXPECT_NE(refused("%3 : f32[7] = reshape(%0)").find("number of elements"), std::string::npos);
    EXPECT_NE(refused("%3 : f32[2] = scalar(value=1)").find("accepted"), std::string::npos);
    EXPECT_NE(refused("%3 : i64[2] = scalar(value=1.0)").find("wrong kind"), std::string::npos);
    EXPECT_NE(refused("%3 : f32[4, 3] = cat(%0, %0, dim=1)").find("another axis"), std::string::npos);
    EXPECT_NE(refused("%3 : f32[2, 2] = take(%0, %1, axes=[1], at=1)").find("accepted"), std::string::npos);
    EXPECT_NE(refused("%3 : f32[2, 2] = take(%0, %0, axes=[1], at=1)").find("no i64"), std::string::npos);
    EXPECT_NE(refused("%3 : f32[2, 3] = call a::b(x=%0) writes=[1]").find("writes an operand"), std::string::npos);
    EXPECT_NE(refused("%3 : f32[3] = call a::b(x=%2) aliases=[0]").find("does not share the storage"),
              std::string::npos);
}

TEST(Verify, RefusesUseBeforeDefinition) {
    Graph g = testing::RandomGraph(1).make(20);
    std::swap(g.nodes[g.inputs.size()], g.nodes.back());
    EXPECT_THROW(verify(g), InternalError);
}

TEST(Ops, TableIsConsistent) {
    EXPECT_EQ(op_named("var_mean"), Op::VarMean);
    EXPECT_EQ(op_named("nothing"), std::nullopt);
    EXPECT_EQ(name(Op::FloorDiv), "floordiv");
    EXPECT_EQ(kind(Op::Where), OpKind::Ternary);
    EXPECT_EQ(dtype_named("bf16"), DType::BF16);
    EXPECT_EQ(size_of(DType::C64), 8);
    EXPECT_TRUE(is_signed(DType::I8));
    EXPECT_FALSE(is_signed(DType::U8));
}

TEST(Number, HalfTypesRoundToNearestEven) {
    uint16_t raw = 0;
    auto round_trip = [&](DType d, double x) {
        store_number(d, &raw, 0, {.f = x});
        return load_number(d, &raw, 0).f;
    };
    EXPECT_EQ(round_trip(DType::BF16, 1.0 + 1.0 / 256), 1.0);
    EXPECT_EQ(round_trip(DType::BF16, 1.0 + 3.0 / 256), 1.0 + 2.0 / 128);
    EXPECT_EQ(round_trip(DType::F16, 1.0 + 1.0 / 2048), 1.0);
    EXPECT_EQ(round_trip(DType::F16, 1.0 + 3.0 / 2048), 1.0 + 2.0 / 1024);
    EXPECT_EQ(round_trip(DType::F16, 65519), 65504);
    EXPECT_TRUE(std::isinf(round_trip(DType::F16, 65520)));
    EXPECT_EQ(round_trip(DType::F16, std::ldexp(1.0, -24)), std::ldexp(1.0, -24));
    EXPECT_EQ(round_trip(DType::F16, -0.1), -0.0999755859375);
    for (int bits = 0; bits < 0x7c00; ++bits) {  // every finite f16 survives
        raw = static_cast<uint16_t>(bits);
        const double x = load_number(DType::F16, &raw, 0).f;
        EXPECT_EQ(round_trip(DType::F16, x), x);
        EXPECT_EQ(raw, bits);
    }
}

TEST(Number, IntegersWrapAndDivideAsPython) {
    const Number args[] = {{.i = -7}, {.i = 2}};
    EXPECT_EQ(apply(Op::FloorDiv, DType::I32, args).i, -4);
    EXPECT_EQ(apply(Op::TruncDiv, DType::I32, args).i, -3);
    EXPECT_EQ(apply(Op::Mod, DType::I32, args).i, 1);
    EXPECT_EQ(apply(Op::Fmod, DType::I32, args).i, -1);
    const Number big[] = {{.i = 127}, {.i = 1}};
    EXPECT_EQ(apply(Op::Add, DType::I8, big).i, -128);
    EXPECT_EQ(cast_number(DType::F32, DType::I32, {.f = -2.9}).i, -2);
    EXPECT_EQ(cast_number(DType::F32, DType::Bool, {.f = 0.5}).i, 1);
}

}  // namespace
}  // namespace braze::ir
