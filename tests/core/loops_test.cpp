// The loop-nest IR: text form, verifier, reference interpreter.
#include <gtest/gtest.h>

#include <cmath>

#include "core/loops/kernel.h"
#include "core/support/error.h"

namespace braze::loops {
namespace {

using ir::Op;

Scalar load(int param, Expr address, Level level = Level::Inner, DType d = DType::F32) {
    Scalar s{ScalarKind::Load, d, level};
    s.param = param;
    s.address = address;
    return s;
}
Scalar op(ScalarKind kind, Op o, std::vector<int> args, Level level = Level::Inner, DType d = DType::F32) {
    Scalar s{kind, d, level};
    s.op = o;
    s.args = std::move(args);
    return s;
}
Scalar reduce(Op o, int arg, int stage, DType d = DType::F32) {
    Scalar s = op(ScalarKind::Reduce, o, {arg}, Level::Outer, d);
    s.stage = stage;
    return s;
}

Kernel softmax(Expr rows, int64_t columns) {
    Kernel k;
    k.name = "k_softmax";
    k.params = {{DType::F32}, {DType::F32, true}};
    if (rows.is_symbol()) k.symbols = {rows};
    k.outer = {rows};
    k.inner = {columns};
    const Expr address = outer_axis(0, rows) * Expr(columns) + inner_axis(0, columns);
    k.scalars.push_back(load(0, address));
    k.scalars.push_back(reduce(Op::Max, 0, 0));
    k.scalars.push_back(op(ScalarKind::Binary, Op::Sub, {0, 1}));
    k.scalars.push_back(op(ScalarKind::Unary, Op::Exp, {2}));
    k.scalars.push_back(reduce(Op::Sum, 3, 1));
    k.scalars.push_back(op(ScalarKind::Binary, Op::Div, {3, 4}));
    k.stages = {{{}, {1}}, {{}, {4}}, {{{1, address, 5, Level::Inner}}, {}}};
    return k;
}

TEST(Loops, PrintsEverything) {
    EXPECT_EQ(print(softmax(Expr(4), 8)),
              "kernel k_softmax\n"
              "  param p0: f32\n"
              "  param p1: f32 written\n"
              "  outer [4] inner [8] vectorize inner\n"
              "  %0: f32 inner = load p0[i0 + 8*o0]\n"
              "  %1: f32 outer = reduce.max %0 stage 0\n"
              "  %2: f32 inner = sub %0 %1\n"
              "  %3: f32 inner = exp %2\n"
              "  %4: f32 outer = reduce.sum %3 stage 1\n"
              "  %5: f32 inner = div %3 %4\n"
              "  stage 0 reduces %1\n"
              "  stage 1 reduces %4\n"
              "  stage 2\n"
              "    p1[i0 + 8*o0] = %5 inner\n");
}

TEST(Loops, CanonicalTextHasNoNames) {
    Kernel a = softmax(Expr(4), 8), b = softmax(Expr(4), 8);
    b.name = "k_other";
    b.params[0].name = "x";
    EXPECT_EQ(canonical(a), canonical(b));
    EXPECT_NE(canonical(a), canonical(softmax(Expr(4), 9)));
}

TEST(Loops, InterpretsSoftmaxWithASymbolicExtent) {
    const Expr s0 = Expr::symbol("s0", {2, 1000});
    Kernel k = softmax(s0, 5);
    verify(k);
    std::vector<float> x(15), y(15, -1);
    for (int i = 0; i < 15; ++i) x[i] = std::sin(static_cast<float>(i)) * 3;
    void* buffers[] = {x.data(), y.data()};
    const int64_t symbols[] = {3};
    EXPECT_TRUE(interpret(k, buffers, symbols, 1, 3));  // the rows 1 and 2
    for (int j = 0; j < 5; ++j) EXPECT_EQ(y[j], -1);
    for (int r = 1; r < 3; ++r) {
        double sum = 0;
        for (int j = 0; j < 5; ++j) sum += std::exp(static_cast<double>(x[r * 5 + j]));
        for (int j = 0; j < 5; ++j) EXPECT_NEAR(y[r * 5 + j], std::exp(static_cast<double>(x[r * 5 + j])) / sum, 1e-6);
    }
}

// out[i] = mask ? table[index[i]] : 7, with a check of the index
Kernel lookup(int64_t n, int64_t rows) {
    Kernel k;
    k.name = "k_lookup";
    k.params = {{DType::I64}, {DType::F32}, {DType::F32, true}};
    k.outer = {n};
    k.vectorize = Vectorize::OuterLast;
    k.has_checks = true;
    const Expr o = outer_axis(0, n), t = Expr::symbol("t0");
    k.scalars.push_back(load(0, o, Level::Outer, DType::I64));
    Scalar limit{ScalarKind::Const, DType::I64, Level::Uniform};
    limit.value = rows;
    k.scalars.push_back(limit);
    k.scalars.push_back(op(ScalarKind::Binary, Op::Lt, {0, 1}, Level::Outer, DType::Bool));
    k.scalars.push_back(op(ScalarKind::Check, Op::Call, {2}, Level::Outer, DType::Bool));
    k.scalars.push_back(op(ScalarKind::IndexOf, Op::Call, {0, 3}, Level::Outer, DType::I64));
    k.scalars.back().symbol = t;
    Scalar two{ScalarKind::Const, DType::I64, Level::Uniform};
    two.value = int64_t{2};
    k.scalars.push_back(two);
    k.scalars.push_back(op(ScalarKind::Binary, Op::Ne, {0, 5}, Level::Outer, DType::Bool));
    Scalar x = load(1, t, Level::Outer);
    x.mask = 6;
    x.value = 7.0;
    k.scalars.push_back(x);
    k.stages = {{{{2, o, 7, Level::Outer}}, {}}};
    return k;
}

TEST(Loops, IndirectLoadsMasksAndChecks) {
    Kernel k = lookup(4, 3);
    verify(k);
    std::vector<int64_t> index = {0, 2, 1, 0};
    std::vector<float> table = {10, 11, 12}, out(4);
    void* buffers[] = {index.data(), table.data(), out.data()};
    EXPECT_TRUE(interpret(k, buffers, nullptr, 0, 4));
    EXPECT_EQ(out, (std::vector<float>{10, 7, 11, 10}));
    index[3] = 3;
    EXPECT_FALSE(interpret(k, buffers, nullptr, 0, 4));
}

TEST(Loops, VerifierNamesThePlace) {
    auto message = [](const Kernel& k) -> std::string {
        try {
            verify(k);
        } catch (const InternalError& e) { return e.what(); }
        return "";
    };
    EXPECT_EQ(message(softmax(Expr(4), 8)), "");
    Kernel k = softmax(Expr(4), 8);
    k.scalars[3].args = {5};
    EXPECT_NE(message(k).find("scalar %3: operand %5 is not defined before"), std::string::npos) << message(k);
    k = softmax(Expr(4), 8);
    k.scalars[2].level = Level::Outer;
    EXPECT_NE(message(k).find("scalar %2: level is outer, expected inner"), std::string::npos) << message(k);
    k = softmax(Expr(4), 8);
    k.stages[2].stores[0].param = 0;
    EXPECT_NE(message(k).find("stage 2: store to a param that is not written"), std::string::npos) << message(k);
    k = softmax(Expr(4), 8);
    std::swap(k.stages[1], k.stages[2]);
    EXPECT_NE(message(k).find("%4"), std::string::npos) << message(k);
    k = softmax(Expr(4), 8);
    k.scalars[0].address = Expr::symbol("s7");
    EXPECT_NE(message(k).find("unknown symbol s7"), std::string::npos) << message(k);
}

}  // namespace
}  // namespace braze::loops
