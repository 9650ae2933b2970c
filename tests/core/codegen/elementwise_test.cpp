// Every operator on every dtype, every isa, against the interpreter; every cast.
#include <cmath>

#include "tests/core/codegen/builder.h"

namespace braze::codegen::test {

namespace {

constexpr int64_t kCount = 83;  // full vectors, a rest, for every width
const std::vector<DType> kInts = {DType::U8,  DType::I8,  DType::I16, DType::I32,
                                  DType::I64, DType::U16, DType::U32, DType::U64};
const std::vector<DType> kFloats = {DType::F32, DType::F64};

bool exact(Op op) {  // the others are transcendental: both sides have an error
    switch (op) {
        case Op::Rsqrt:
        case Op::Reciprocal:
        case Op::Sqrt:
        case Op::Neg:
        case Op::Abs:
        case Op::Floor:
        case Op::Ceil:
        case Op::Round:
        case Op::Trunc:
        case Op::Sign:
        case Op::Relu: return true;
        case Op::Pow:
        case Op::Atan2:
        case Op::Hypot: return false;
        default: return ir::kind(op) != ir::OpKind::Unary || ir::returns_bool(op);
    }
}

bool for_floats(Op op) {
    switch (op) {
        case Op::BitNot:
        case Op::And:
        case Op::Or:
        case Op::Xor:
        case Op::Shl:
        case Op::Shr: return false;
        default: return true;
    }
}

bool for_ints(Op op) {
    switch (op) {
        case Op::Neg:
        case Op::Abs:
        case Op::Sign:
        case Op::Relu:
        case Op::BitNot:
        case Op::LogicalNot:
        case Op::FloorDiv:
        case Op::TruncDiv:
        case Op::Mod:
        case Op::Fmod:
        case Op::Pow:
        case Op::Maximum:
        case Op::Minimum:
        case Op::Add:
        case Op::Sub:
        case Op::Mul:
        case Op::And:
        case Op::Or:
        case Op::Xor:
        case Op::Shl:
        case Op::Shr: return true;
        default: return ir::returns_bool(op) && op != Op::IsNan && op != Op::IsInf && op != Op::SignBit;
    }
}

bool divides(Op op) { return op == Op::FloorDiv || op == Op::TruncDiv || op == Op::Mod || op == Op::Fmod; }

// All operators of one kind that the dtype has, in one kernel.
void expect_operators(ir::OpKind kind, DType d) {
    bool real = ir::is_float(d);
    std::vector<Op> ops;
    for (int i = 0; i <= static_cast<int>(Op::Ge) + 8; ++i) {
        Op op = static_cast<Op>(i);
        if (ir::kind(op) == kind && (real ? for_floats(op) : for_ints(op))) ops.push_back(op);
    }
    for (size_t first = 0; first < ops.size(); first += 8) {
        for (bool precise : {true, false}) {
            Build b({kCount}, {}, Vectorize::OuterLast);
            std::vector<Bytes> buffers;
            std::vector<int> params, loads;
            int operands = kind == ir::OpKind::Unary ? 1 : 2;
            for (int n = 0; n < operands; ++n) {
                int p = b.in(d);
                Bytes bytes = random_elements(d, kCount, static_cast<uint32_t>(31 + n));
                loads.push_back(b.load(p, b.o(0)));
                buffers.push_back(bytes);
            }
            int divisor =
                operands == 2 && !real
                    ? b.op(Op::Where, {b.op(Op::Eq, {loads[1], b.constant(d, 0)}), b.constant(d, 1), loads[1]})
                    : -1;
            int small = operands == 2 && !real ? b.op(Op::And, {loads[1], b.constant(d, 63)}) : -1;
            bool any = false;
            for (size_t i = first; i < std::min(first + 8, ops.size()); ++i) {
                Op op = ops[i];
                if (exact(op) != precise) continue;
                std::vector<int> args = loads;
                if (!real && divides(op)) args[1] = divisor;
                if (!real && (op == Op::Shl || op == Op::Shr || (op == Op::Pow && d == DType::U64))) args[1] = small;
                int x = b.op(op, args);
                int y = b.out(b.dtype(x));
                b.store(y, b.o(0), x);
                buffers.push_back(random_elements(b.dtype(x), kCount, 40));
                any = true;
            }
            if (any) expect_same(b.k, buffers, {}, 0, kCount, precise ? 0 : 3);
        }
    }
}

}  // namespace

TEST(CodegenElementwise, UnaryFloat) {
    for (DType d : kFloats) expect_operators(ir::OpKind::Unary, d);
}
TEST(CodegenElementwise, BinaryFloat) {
    for (DType d : kFloats) expect_operators(ir::OpKind::Binary, d);
}
TEST(CodegenElementwise, UnaryInt) {
    for (DType d : kInts) expect_operators(ir::OpKind::Unary, d);
}
TEST(CodegenElementwise, BinaryInt) {
    for (DType d : kInts) expect_operators(ir::OpKind::Binary, d);
}

TEST(CodegenElementwise, Logic) {
    Build b({kCount}, {}, Vectorize::OuterLast);
    int p = b.in(DType::Bool), q = b.in(DType::Bool);
    int x = b.load(p, b.o(0)), z = b.load(q, b.o(0));
    std::vector<Bytes> buffers = {random_elements(DType::Bool, kCount, 1), random_elements(DType::Bool, kCount, 2)};
    for (Op op : {Op::And, Op::Or, Op::Xor, Op::Eq, Op::Ne, Op::Lt, Op::Ge}) {
        b.store(b.out(DType::Bool), b.o(0), b.op(op, {x, z}));
        buffers.push_back(Bytes(kCount));
    }
    b.store(b.out(DType::Bool), b.o(0), b.op(Op::LogicalNot, {x}));
    buffers.push_back(Bytes(kCount));
    expect_same(b.k, buffers, {}, 0, kCount);
}

TEST(CodegenElementwise, Ternary) {
    for (DType d : {DType::F32, DType::F64, DType::I32, DType::U8, DType::I64}) {
        Build b({kCount}, {}, Vectorize::OuterLast);
        int p = b.in(DType::Bool), q = b.in(d), r = b.in(d), y = b.out(d);
        b.store(y, b.o(0), b.op(Op::Where, {b.load(p, b.o(0)), b.load(q, b.o(0)), b.load(r, b.o(0))}));
        expect_same(b.k,
                    {random_elements(DType::Bool, kCount, 1), random_elements(d, kCount, 2),
                     random_elements(d, kCount, 3), Bytes(kCount * 8)},
                    {}, 0, kCount);
    }
    Build b({kCount}, {}, Vectorize::OuterLast);  // contracted or not: integers that need no rounding
    int p = b.in(DType::F32), y = b.out(DType::F32);
    int x = b.cast(b.cast(b.load(p, b.o(0)), DType::I8), DType::F32);
    b.store(y, b.o(0), b.op(Op::Fma, {x, x, x}));
    expect_same(b.k, {random_elements(DType::F32, kCount, 2, false), Bytes(kCount * 4)}, {}, 0, kCount);
}

TEST(CodegenElementwise, Casts) {
    std::vector<DType> all = kInts;
    all.insert(all.end(), {DType::Bool, DType::F16, DType::BF16, DType::F32, DType::F64});
    for (DType from : all) {
        Build b({kCount}, {}, Vectorize::OuterLast);
        int x = b.load(b.in(from), b.o(0));
        std::vector<double> values;  // what every target can hold, where out of range is unspecified
        const double small[] = {0, 1, 2, 3, 100, 127, 0.5, 1.5, 2.5, 99.99, 1e-6, 0.75};
        for (int64_t i = 0; i < kCount; ++i) values.push_back(small[i % 12]);
        std::vector<Bytes> buffers = {ir::is_float(from) ? elements(from, values) : random_elements(from, kCount, 3)};
        for (DType to : all) {
            b.store(b.out(to), b.o(0), b.cast(x, to));
            buffers.push_back(random_elements(to, kCount, 4));
        }
        expect_same(b.k, buffers, {}, 0, kCount);
    }
}

TEST(CodegenElementwise, SignedAndSpecialFloatsToIntegers) {
    for (DType from : {DType::F32, DType::F64, DType::BF16}) {
        Build b({kCount}, {}, Vectorize::OuterLast);
        int x = b.load(b.in(from), b.o(0));
        std::vector<double> values;
        for (int64_t i = 0; i < kCount; ++i) values.push_back(static_cast<double>(i - 41) * 1.5);
        std::vector<Bytes> buffers = {elements(from, values)};
        for (DType to : {DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::Bool}) {
            b.store(b.out(to), b.o(0), b.cast(x, to));
            buffers.push_back(random_elements(to, kCount, 4));
        }
        expect_same(b.k, buffers, {}, 0, kCount);
    }
}

// All 65536 values of each half type to f32 and back; and f32 values around every rounding boundary.
TEST(CodegenElementwise, HalvesExhaustively) {
    for (DType half : {DType::F16, DType::BF16}) {
        Bytes every(65536 * 2);
        for (uint32_t i = 0; i < 65536; ++i) {
            auto h = static_cast<uint16_t>(i);
            std::memcpy(every.data() + i * 2, &h, 2);
        }
        Build b({65536}, {}, Vectorize::OuterLast);
        int p = b.in(half), f = b.out(DType::F32), back = b.out(half);
        int x = b.cast(b.load(p, b.o(0)), DType::F32);
        b.store(f, b.o(0), x);
        b.store(back, b.o(0), b.cast(x, half));
        expect_same(b.k, {every, Bytes(65536 * 4), Bytes(65536 * 2)}, {}, 0, 65536);

        std::vector<uint32_t> near;
        for (uint32_t i = 0; i < 65536; ++i)
            for (uint32_t low : {0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
                if (i % 7 == 0) near.push_back((i << 16) | low);
        const auto n = static_cast<int64_t>(near.size());
        Build c({n}, {}, Vectorize::OuterLast);
        int q = c.in(DType::F32), y = c.out(half);
        c.store(y, c.o(0), c.cast(c.load(q, c.o(0)), half));
        Bytes bytes(near.size() * 4);
        std::memcpy(bytes.data(), near.data(), bytes.size());
        expect_same(c.k, {bytes, Bytes(near.size() * 2)}, {}, 0, n);
    }
}

TEST(CodegenElementwise, OutOfRangeCastsDoNotTrap) {
    for (DType to : kInts) {
        Build b({kCount}, {}, Vectorize::OuterLast);
        int p = b.in(DType::F32), y = b.out(to), z = b.out(DType::F32);
        int x = b.load(p, b.o(0));
        b.store(y, b.o(0), b.cast(x, to));
        b.store(z, b.o(0), b.op(Op::Add, {x, b.constant(DType::F32, 1)}));
        Bytes in = random_elements(DType::F32, kCount, 9);
        Outcome want = run_interpreted(b.k, {in, Bytes(kCount * 8), Bytes(kCount * 4)}, {}, 0, kCount);
        for (Isa isa : host_isas()) {
            Outcome got = run_compiled(b.k, isa, {in, Bytes(kCount * 8), Bytes(kCount * 4)}, {}, 0, kCount);
            EXPECT_TRUE(got.ok);
            for (size_t i = 0; i < kCount; ++i) {  // the rest of the kernel is as it should be
                double a = element(DType::F32, got.buffers[2], i), e = element(DType::F32, want.buffers[2], i);
                EXPECT_TRUE(a == e || (std::isnan(a) && std::isnan(e)));
            }
        }
    }
}

TEST(CodegenElementwise, IntegerDivisionDoesNotTrap) {
    for (DType d : kInts)
        for (Op op : {Op::FloorDiv, Op::TruncDiv, Op::Mod, Op::Fmod}) {
            Build b({40}, {}, Vectorize::OuterLast);
            int p = b.in(d), q = b.in(d), y = b.out(d);
            b.store(y, b.o(0), b.op(op, {b.load(p, b.o(0)), b.load(q, b.o(0))}));
            auto bytes = static_cast<size_t>(ir::size_of(d));
            Bytes lowest(40 * bytes), divisors(40 * bytes, 0xff);  // the smallest number, by -1 and by 0
            for (size_t i = 0; i < 40; ++i) lowest[i * bytes + bytes - 1] = 0x80;
            for (size_t i = 0; i < 20 * bytes; ++i) divisors[i] = 0;
            for (Isa isa : host_isas()) {
                Outcome got = run_compiled(b.k, isa, {lowest, divisors, Bytes(40 * bytes)}, {}, 0, 40);
                EXPECT_TRUE(got.ok);
                if (!ir::is_signed(d)) continue;
                Bytes tail(got.buffers[2].begin() + static_cast<std::ptrdiff_t>(20 * bytes), got.buffers[2].end());
                bool quotient = op == Op::FloorDiv || op == Op::TruncDiv;
                EXPECT_EQ(tail, quotient ? Bytes(lowest.begin() + static_cast<std::ptrdiff_t>(20 * bytes), lowest.end())
                                         : Bytes(20 * bytes))
                    << isa_text(isa) << " " << ir::name(op) << " " << ir::name(d);
            }
        }
}

}  // namespace braze::codegen::test
