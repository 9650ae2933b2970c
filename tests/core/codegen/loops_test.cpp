// Loop structure: sizes around the vector width, strides, masks, segments, indirect addresses, checks.
#include "tests/core/codegen/builder.h"

namespace braze::codegen::test {

namespace {

constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 1000};

Kernel add_one(std::vector<Expr> outer, std::vector<Expr> inner, Vectorize v, std::vector<Expr> symbols,
               DType d = DType::F32) {
    Build b(outer, inner, v, symbols);
    int x = b.in(d), y = b.out(d);
    Expr address = 0;
    for (size_t i = 0; i < outer.size(); ++i) address = address * outer[i] + b.o(static_cast<int>(i));
    for (size_t i = 0; i < inner.size(); ++i) address = address * inner[i] + b.i(static_cast<int>(i));
    int l = b.load(x, address);
    b.store(y, address, b.op(Op::Add, {l, b.constant(d, 1)}));
    return b.k;
}

}  // namespace

TEST(CodegenLoops, ConstantSizes) {
    for (int64_t n : kSizes)
        for (DType d : {DType::F32, DType::I8, DType::F64}) {
            auto size = static_cast<size_t>(2 * n);
            std::vector<Bytes> buffers = {random_elements(d, size, 1), random_elements(d, size, 2)};
            expect_same(add_one({2}, {n}, Vectorize::InnerLast, {}, d), buffers, {}, 0, 2);
            expect_same(add_one({2, n}, {}, Vectorize::OuterLast, {}, d), buffers, {}, 0, 2 * n);
            expect_same(add_one({2 * n}, {}, Vectorize::OuterLast, {}, d), buffers, {}, 0, 2 * n);
        }
}

TEST(CodegenLoops, SymbolicSizesAndRanges) {
    Expr s = Expr::symbol("s0", {0, 1 << 20});
    Kernel inner = add_one({3}, {s}, Vectorize::InnerLast, {s});
    Kernel outer = add_one({3, s}, {}, Vectorize::OuterLast, {s});
    Kernel three = add_one({s, 3, s}, {}, Vectorize::OuterLast, {s});
    for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{16}, int64_t{33}, int64_t{200}}) {
        auto size = static_cast<size_t>(3 * n);
        std::vector<Bytes> buffers = {random_elements(DType::F32, size, 3), random_elements(DType::F32, size, 4)};
        expect_same(inner, buffers, {n}, 0, 3);
        expect_same(inner, buffers, {n}, 1, 2);
        expect_same(inner, buffers, {n}, 2, 2);
        for (int64_t begin : {int64_t{0}, n / 2, n})
            for (int64_t end : {n, n + n / 3, 3 * n}) expect_same(outer, buffers, {n}, begin, end);
    }
    std::vector<Bytes> buffers = {random_elements(DType::F32, 300, 3), random_elements(DType::F32, 300, 4)};
    for (int64_t begin : {0, 7, 113})
        for (int64_t end : {120, 299, 300}) expect_same(three, buffers, {10}, begin, end);
}

TEST(CodegenLoops, StridesAndBroadcasts) {
    for (int64_t n : {5, 16, 40}) {
        Build b({4}, {n});
        int x = b.in(DType::F32), row = b.in(DType::F32), column = b.in(DType::F32), t = b.in(DType::F32),
            y = b.out(DType::F32);
        int sum = b.load(x, b.o(0) * Expr(3 * n) + b.i(0) * Expr(3));
        sum = b.op(Op::Add, {sum, b.load(row, b.i(0))});
        sum = b.op(Op::Add, {sum, b.load(column, b.o(0))});
        sum = b.op(Op::Add, {sum, b.load(t, b.i(0) * Expr(4) + b.o(0))});
        sum = b.op(Op::Add, {sum, b.load(row, Expr(n - 1) - b.i(0))});
        b.store(y, b.i(0) * Expr(4) + b.o(0), sum);
        auto m = static_cast<size_t>(n);
        std::vector<Bytes> buffers;
        for (size_t s : {12 * m, m, size_t{4}, 4 * m, 4 * m})
            buffers.push_back(random_elements(DType::F32, s, 5, false));
        expect_same(b.k, buffers, {}, 0, 4);
        b.k.vectorize = Vectorize::OuterLast;
        expect_same(b.k, buffers, {}, 0, 4);
    }
}

TEST(CodegenLoops, EverySecondElement) {  // up to the very last one of the param
    for (DType d : {DType::F32, DType::BF16, DType::I8, DType::F64})
        for (int64_t n : {16, 64, 77}) {
            Build b({3}, {n});
            int x = b.in(d), y = b.out(d);
            b.store(y, b.o(0) * Expr(n) + b.i(0), b.load(x, b.o(0) * Expr(2 * n) + b.i(0) * Expr(2) + Expr(1)));
            auto m = static_cast<size_t>(n);
            expect_same(b.k, {random_elements(d, 6 * m, 5), random_elements(d, 3 * m, 6)}, {}, 0, 3);
        }
}

TEST(CodegenLoops, IndexArithmetic) {  // a causal mask, and numbers beyond 32 bits
    for (int64_t scale : {int64_t{1}, int64_t{1} << 33}) {
        Build b({40}, {40});
        int y = b.out(DType::Bool), z = b.out(DType::F32);
        int row = b.index(b.o(0) * Expr(scale)), column = b.index(b.i(0) * Expr(scale));
        Expr at = b.o(0) * Expr(40) + b.i(0);
        b.store(y, at, b.op(Op::Le, {column, row}));
        b.store(z, at, b.cast(column, DType::F32));
        expect_same(b.k, {random_elements(DType::Bool, 1600, 1), random_elements(DType::F32, 1600, 2)}, {}, 0, 40);
    }
}

TEST(CodegenLoops, SymbolicStride) {
    Expr s = Expr::symbol("s0", {0, 1 << 20}), r = Expr::symbol("s1", {0, 1 << 20});
    for (DType d : {DType::F32, DType::I16}) {
        Build b({s}, {r}, Vectorize::InnerLast, {s, r});
        int x = b.in(d), y = b.out(d);
        b.store(y, b.o(0) * r + b.i(0), b.load(x, b.i(0) * s + b.o(0)));
        expect_same(b.k, {random_elements(d, 7 * 37, 6), random_elements(d, 7 * 37, 7)}, {7, 37}, 0, 7);
        b.k.vectorize = Vectorize::OuterLast;
        expect_same(b.k, {random_elements(d, 7 * 37, 6), random_elements(d, 7 * 37, 7)}, {7, 37}, 0, 7);
    }
}

TEST(CodegenLoops, DividedAddresses) {
    for (int64_t divisor : {3, 8, 10, 16, 48, 64, 100}) {
        Expr d(divisor);
        for (Vectorize v : {Vectorize::InnerLast, Vectorize::OuterLast}) {
            bool inner = v == Vectorize::InnerLast;
            Build b(inner ? std::vector<Expr>{2} : std::vector<Expr>{400},
                    inner ? std::vector<Expr>{200} : std::vector<Expr>{}, v);
            int x = b.in(DType::F32), z = b.in(DType::F64), y = b.out(DType::F32);
            Expr flat = inner ? b.o(0) * Expr(200) + b.i(0) : b.o(0);
            int sum = b.op(Op::Add, {b.load(x, mod(flat, d)), b.load(x, floordiv(flat, d))});
            sum = b.op(Op::Add, {sum, b.cast(b.load(z, mod(flat * Expr(3) + Expr(1), Expr(7))), DType::F32)});
            b.store(y, flat, sum);
            std::vector<Bytes> buffers = {random_elements(DType::F32, 400, 8, false),
                                          random_elements(DType::F64, 7, 9, false),
                                          random_elements(DType::F32, 400, 9)};
            if (inner)
                expect_same(b.k, buffers, {}, 0, 2);
            else
                for (int64_t begin : {0, 3, 17, 390})
                    for (int64_t end : {399, 400, 391}) expect_same(b.k, buffers, {}, begin, end);
        }
    }
}

TEST(CodegenLoops, MaskedLoads) {
    for (DType d : {DType::F32, DType::Bool, DType::I8, DType::BF16, DType::I64})
        for (int64_t n : {5, 16, 70})
            for (Vectorize v : {Vectorize::InnerLast, Vectorize::OuterLast}) {  // x padded by 3 in front and 2 behind
                bool inner = v == Vectorize::InnerLast;
                Expr width(n + 5);
                Build b(inner ? std::vector<Expr>{3} : std::vector<Expr>{3, width},
                        inner ? std::vector<Expr>{width} : std::vector<Expr>{}, v);
                int x = b.in(d), y = b.out(d);
                Expr at = inner ? b.i(0) : b.o(1);
                int i = b.index(at);
                int mask = b.op(Op::And, {b.op(Op::Ge, {i, b.constant(DType::I64, 3)}),
                                          b.op(Op::Lt, {i, b.constant(DType::I64, double(n + 3))})});
                int l = ir::is_float(d) ? b.load(x, b.o(0) * Expr(n) + at - Expr(3), mask, 2.5)
                                        : b.load(x, b.o(0) * Expr(n) + at - Expr(3), mask, int64_t{1});
                b.store(y, b.o(0) * width + at, l);
                auto m = static_cast<size_t>(n);
                expect_same(b.k, {random_elements(d, 3 * m, 10), random_elements(d, 3 * (m + 5), 11)}, {}, 0,
                            inner ? 3 : 3 * (n + 5));
            }
}

TEST(CodegenLoops, UniformMask) {
    Build b({4}, {33});
    int x = b.in(DType::F32), y = b.out(DType::F32);
    int mask = b.op(Op::Lt, {b.index(b.o(0)), b.constant(DType::I64, 2)});
    int l = b.load(x, b.o(0) * Expr(33) + b.i(0), mask, -1.0);
    b.store(y, b.o(0) * Expr(33) + b.i(0), b.op(Op::Add, {l, b.load(x, b.o(0), mask, 7.0)}));
    expect_same(b.k, {random_elements(DType::F32, 66, 12, false), random_elements(DType::F32, 132, 13)}, {}, 0, 4);
}

TEST(CodegenLoops, IndirectWithChecks) {
    for (int64_t bad : {-1, 0, 20, 36}) {
        for (Vectorize v : {Vectorize::InnerLast, Vectorize::OuterLast}) {
            // y[o, i] = x[index[i], o], index wrapped if negative
            Build b({5}, {37}, v);
            int x = b.in(DType::F32), ix = b.in(DType::I64), y = b.out(DType::F32);
            int i = b.load(ix, b.i(0));
            int zero = b.constant(DType::I64, 0), n = b.constant(DType::I64, 11);
            i = b.op(Op::Where, {b.op(Op::Lt, {i, zero}), b.op(Op::Add, {i, n}), i});
            int c = b.check(b.op(Op::And, {b.op(Op::Ge, {i, zero}), b.op(Op::Lt, {i, n})}));
            Expr t = b.index_of(i, c);
            b.store(y, b.o(0) * Expr(37) + b.i(0), b.load(x, t * Expr(5) + b.o(0)));
            std::vector<double> index;
            for (int k = 0; k < 37; ++k) index.push_back(k == bad ? 1000000007.0 : k % 22 - 11);
            expect_same(b.k,
                        {random_elements(DType::F32, 55, 14), elements(DType::I64, index),
                         random_elements(DType::F32, 185, 15)},
                        {}, 0, 5);
        }
    }
}

TEST(CodegenLoops, RowLookup) {  // an embedding: the index depends on the outer axis
    Build b({9}, {40});
    int x = b.in(DType::BF16), ix = b.in(DType::I32), y = b.out(DType::F32);
    int i = b.cast(b.load(ix, b.o(0)), DType::I64);
    int zero = b.constant(DType::I64, 0), n = b.constant(DType::I64, 6);
    int c = b.check(b.op(Op::And, {b.op(Op::Ge, {i, zero}), b.op(Op::Lt, {i, n})}));
    Expr t = b.index_of(i, c);
    b.store(y, b.o(0) * Expr(40) + b.i(0), b.cast(b.load(x, t * Expr(40) + b.i(0)), DType::F32));
    std::vector<double> index = {0, 5, 3, 3, 1, 2, 4, 5, 0};
    expect_same(
        b.k, {random_elements(DType::BF16, 240, 16), elements(DType::I32, index), random_elements(DType::F32, 360, 17)},
        {}, 0, 9);
    index[7] = 6;
    expect_same(
        b.k, {random_elements(DType::BF16, 240, 16), elements(DType::I32, index), random_elements(DType::F32, 360, 17)},
        {}, 0, 9);
}

// y[o, i] = x[i, o] + row[o] + column[i] + same[o, i], in blocks and at their edges
TEST(CodegenLoops, Transposed) {
    for (DType d : {DType::F32, DType::BF16, DType::F64, DType::I8, DType::Bool})
        for (auto [n, m] : {std::pair{16, 16}, {8, 64}, {35, 50}, {100, 17}, {9, 9}})
            for (bool symbolic : {false, true}) {
                Expr s = Expr::symbol("s0", {0, 1 << 20}), r = Expr::symbol("s1", {0, 1 << 20});
                Expr rows = symbolic ? s : Expr(n), columns = symbolic ? r : Expr(m);
                Build b({Expr(2), rows}, {columns}, Vectorize::InnerLast,
                        symbolic ? std::vector<Expr>{s, r} : std::vector<Expr>{});
                DType c = ir::compute_type(d);
                int x = b.in(d), row = b.in(d), column = b.in(d), y = b.out(d);
                Expr slice = b.o(0) * rows * columns;
                auto get = [&](int p, Expr a) { return b.cast(b.load(p, a), c); };
                Op op = d == DType::Bool ? Op::Xor : Op::Add;
                int sum = b.op(op, {get(x, slice + b.i(0) * rows + b.o(1)), get(row, b.o(1))});
                sum = b.op(op, {b.op(op, {sum, get(column, b.i(0))}), get(x, slice + b.o(1) * columns + b.i(0))});
                b.store(y, slice + b.o(1) * columns + b.i(0), b.cast(sum, d));
                auto size = static_cast<size_t>(2 * n * m);
                std::vector<Bytes> buffers = {
                    random_elements(d, size, 1, false), random_elements(d, static_cast<size_t>(n), 2, false),
                    random_elements(d, static_cast<size_t>(m), 3, false), random_elements(d, size, 4)};
                expect_same(b.k, buffers, {n, m}, 0, 2 * n);
                expect_same(b.k, buffers, {n, m}, 3, 2 * n - 2);
            }
}

TEST(CodegenLoops, NothingToDo) {
    Kernel k = add_one({4}, {10}, Vectorize::InnerLast, {});
    for (Isa isa : host_isas()) {
        CompiledKernel code = compile({k}, detect_target(isa_text(isa)), 1)[0];
        EXPECT_EQ(code.fn(nullptr, nullptr, 2, 2), 0);  // buffers of empty tensors may be null
    }
}

}  // namespace braze::codegen::test
