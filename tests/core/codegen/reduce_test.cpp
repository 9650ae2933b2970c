// Reductions: every operator, both directions, several axes, several stages, NaN and ties.
#include <cmath>

#include "tests/core/codegen/builder.h"

namespace braze::codegen::test {

namespace {

void expect_reduction(Op op, DType d, int64_t rows, int64_t columns, Vectorize v, double ulp, bool specials) {
    bool inner = v == Vectorize::InnerLast;  // else over the rows of a [columns, rows] matrix
    Build b({rows}, {columns}, v);
    bool arg = op == Op::ArgMax || op == Op::ArgMin;
    int x = b.in(d), y = b.out(arg ? DType::I64 : d);
    int l = b.load(x, inner ? b.o(0) * Expr(columns) + b.i(0) : b.i(0) * Expr(rows) + b.o(0));
    b.store(y, b.o(0), b.reduce(op, l));
    auto n = static_cast<size_t>(rows * columns);
    std::vector<Bytes> buffers = {random_elements(d, n, 21, specials),
                                  random_elements(arg ? DType::I64 : d, static_cast<size_t>(rows), 22)};
    expect_same(b.k, buffers, {}, 0, rows, ulp);
    if (rows > 2) expect_same(b.k, buffers, {}, 1, rows - 1, ulp);
}

}  // namespace

TEST(CodegenReduce, OrderReductions) {
    for (Op op : {Op::Max, Op::Min, Op::ArgMax, Op::ArgMin})
        for (DType d : {DType::F32, DType::F64, DType::I8, DType::I64, DType::U16})
            for (int64_t n : {1, 16, 65, 300})
                for (Vectorize v : {Vectorize::InnerLast, Vectorize::OuterLast})
                    expect_reduction(op, d, 35, n, v, 0, n % 2 == 1);
}

TEST(CodegenReduce, Sums) {
    for (DType d : {DType::F32, DType::F64, DType::I32, DType::I64, DType::U8})
        for (int64_t n : {1, 3, 16, 17, 65, 300, 20000})
            for (Vectorize v : {Vectorize::InnerLast, Vectorize::OuterLast})
                for (int64_t rows : {3, 35}) {
                    Build b({rows}, {n}, v);
                    int x = b.in(d), y = b.out(d);
                    b.store(y, b.o(0),
                            b.reduce(Op::Sum, b.load(x, v == Vectorize::InnerLast ? b.o(0) * Expr(n) + b.i(0)
                                                                                  : b.i(0) * Expr(rows) + b.o(0))));
                    std::vector<double> values;  // positive, so that the error counts in units of the result
                    for (int64_t i = 0; i < rows * n; ++i)
                        values.push_back(static_cast<double>(i * 7919 % 100) + (ir::is_float(d) ? 0.1 : 0));
                    expect_same(b.k, {elements(d, values), random_elements(d, static_cast<size_t>(rows), 1)}, {}, 0,
                                rows, d == DType::F64 ? 64 : 12);
                }
}

TEST(CodegenReduce, LogicAndProducts) {
    for (Op op : {Op::Any, Op::All})
        for (int64_t n : {1, 16, 70})
            for (Vectorize v : {Vectorize::InnerLast, Vectorize::OuterLast})
                expect_reduction(op, DType::Bool, 40, n, v, 0, false);
    for (DType d : {DType::I32, DType::U8, DType::I64})
        for (int64_t n : {1, 16, 70})
            for (Vectorize v : {Vectorize::InnerLast, Vectorize::OuterLast})
                expect_reduction(Op::Prod, d, 10, n, v, 0, false);
    for (Vectorize v : {Vectorize::InnerLast, Vectorize::OuterLast})
        expect_reduction(Op::Prod, DType::F32, 10, 5, v, 4, false);
}

TEST(CodegenReduce, LongSumStaysExact) {
    const int64_t n = int64_t{1} << 22;
    Expr s = Expr::symbol("s0", {0, int64_t{1} << 40});
    Build b({1}, {s}, Vectorize::InnerLast, {s});
    int x = b.in(DType::F32), y = b.out(DType::F32);
    b.store(y, 0, b.reduce(Op::Sum, b.load(x, b.i(0))));
    Bytes values(static_cast<size_t>(n) * 4);
    const float tenth = 0.1F;
    for (int64_t i = 0; i < n; ++i) std::memcpy(values.data() + i * 4, &tenth, 4);
    const double exact = static_cast<double>(tenth) * static_cast<double>(n);
    for (Isa isa : host_isas()) {
        if (isa == Isa::Scalar) continue;  // the same code with one lane; slow
        Outcome got = run_compiled(b.k, isa, {values, Bytes(4)}, {n}, 0, 1);
        EXPECT_NEAR(element(DType::F32, got.buffers[1], 0), exact, exact * 2e-6) << isa_text(isa);
    }
}

TEST(CodegenReduce, SeveralAxes) {
    Expr s = Expr::symbol("s0", {0, 1 << 20});
    for (Vectorize v : {Vectorize::InnerLast, Vectorize::OuterLast})
        for (Op op : {Op::Sum, Op::ArgMax, Op::Max}) {  // x[i0, o, i1] over i0, i1
            Build b({Expr(6)}, {s, Expr(21)}, v, {s});
            bool arg = op == Op::ArgMax;
            int x = b.in(DType::F32), y = b.out(arg ? DType::I64 : DType::F32);
            int l = b.load(x, b.i(0) * Expr(126) + b.o(0) * Expr(21) + b.i(1));
            b.store(y, b.o(0), b.reduce(op, op == Op::Sum ? b.op(Op::Abs, {l}) : l));
            for (int64_t n : {int64_t{1}, int64_t{4}, int64_t{300}})
                expect_same(
                    b.k, {random_elements(DType::F32, static_cast<size_t>(n * 126), 24, false), Bytes(arg ? 48 : 24)},
                    {n}, 0, 6, 4);
            if (op == Op::Sum) expect_same(b.k, {Bytes(), Bytes(24)}, {0}, 0, 6);
        }
}

TEST(CodegenReduce, Softmax) {
    for (Vectorize v : {Vectorize::InnerLast, Vectorize::OuterLast})
        for (int64_t n : {1, 7, 16, 50, 513}) {
            Build b({6}, {n}, v);
            int x = b.in(DType::F32), y = b.out(DType::F32), top = b.out(DType::F32);
            Expr at = b.o(0) * Expr(n) + b.i(0);
            int l = b.load(x, at);
            int m = b.reduce(Op::Max, l, 0);
            int e = b.op(Op::Exp, {b.op(Op::Sub, {l, m})});
            int sum = b.reduce(Op::Sum, e, 1);
            b.store(top, b.o(0), m, 0);
            b.store(y, at, b.op(Op::Div, {e, sum}), 2);
            expect_same(b.k,
                        {random_elements(DType::F32, static_cast<size_t>(6 * n), 25, false),
                         Bytes(static_cast<size_t>(24 * n)), Bytes(24)},
                        {}, 0, 6, 8);
        }
}

TEST(CodegenReduce, RowKeptBetweenStages) {
    for (Vectorize v : {Vectorize::InnerLast, Vectorize::OuterLast}) {
        Build b({4}, {45}, v);
        int x = b.in(DType::F32), row = b.out(DType::F32), y = b.out(DType::F32);
        Expr at = b.o(0) * Expr(45) + b.i(0);
        int doubled = b.op(Op::Mul, {b.load(x, at), b.constant(DType::F32, 2)});
        b.store(row, at, doubled, 0);
        int most = b.reduce(Op::Max, doubled, 0);
        b.store(y, at, b.op(Op::Sub, {b.load(row, at), most}), 1);
        expect_same(b.k, {random_elements(DType::F32, 180, 26, false), Bytes(720), Bytes(720)}, {}, 0, 4);
    }
}

}  // namespace braze::codegen::test
