// Accuracy of the transcendental functions in units of the last place, against long double.
#include <cmath>
#include <limits>

#include "tests/core/codegen/builder.h"

namespace braze::codegen::test {

namespace {

using Reference = long double (*)(long double);

struct Function {
    Op op;
    Reference exact;
    double ulp;     // allowed for f32
    double lo, hi;  // range that is sampled densely
};

// As eager: the exponential overflows in f32.
long double sigmoid(long double x) { return x < -88.722839 ? 0 : 1 / (1 + std::exp(-x)); }

const Function kFunctions[] = {
    {Op::Exp, std::exp, 1.1, -104, 89},    {Op::Exp2, std::exp2, 1.4, -151, 128.5},
    {Op::Expm1, std::expm1, 1.5, -20, 89}, {Op::Log, std::log, 1.0, 0, 100},
    {Op::Log2, std::log2, 1.5, 0, 100},    {Op::Log10, std::log10, 1.7, 0, 100},
    {Op::Log1p, std::log1p, 1.5, -1, 50},  {Op::Tanh, std::tanh, 1.5, -10, 10},
    {Op::Erf, std::erf, 1.6, -5, 5},       {Op::Sin, std::sin, 1.5, -100, 100},
    {Op::Cos, std::cos, 1.5, -100, 100},   {Op::Sigmoid, sigmoid, 2.5, -90, 90},
    {Op::Tan, std::tan, 2, -50, 50},       {Op::Asin, std::asin, 2, -1, 1},
    {Op::Acos, std::acos, 2, -1, 1},       {Op::Atan, std::atan, 2, -50, 50},
    {Op::Sinh, std::sinh, 2, -50, 50},     {Op::Cosh, std::cosh, 2, -50, 50},
    {Op::Asinh, std::asinh, 2, -50, 50},   {Op::Acosh, std::acosh, 2, 1, 50},
    {Op::Atanh, std::atanh, 2, -1, 1},     {Op::Erfc, std::erfc, 2.5, -5, 9},
};

std::vector<float> sample(const Function& f) {
    std::vector<float> xs;
    std::mt19937 rng(7);
    std::uniform_real_distribution<double> in(f.lo, f.hi), decade(-44, 38);
    for (int i = 0; i < 40000; ++i) xs.push_back(static_cast<float>(in(rng)));
    for (int i = 0; i < 20000; ++i) {  // all magnitudes
        double m = std::pow(10.0, decade(rng));
        xs.push_back(static_cast<float>(rng() & 1 ? m : -m));
    }
    const float inf = std::numeric_limits<float>::infinity();
    for (float x : {0.0F, -0.0F, inf, -inf, std::nanf(""), 1.0F, -1.0F, 1e-45F, -1e-45F, 3.4e38F, -3.4e38F, 1.5707964F,
                    88.72284F, -103.97F})
        xs.push_back(x);
    return xs;
}

double ulps(double got, long double want) {
    auto rounded = static_cast<float>(want);
    if (std::isnan(rounded) || std::isinf(rounded) || std::isnan(got) || std::isinf(got))
        return (std::isnan(rounded) && std::isnan(got)) || rounded == static_cast<float>(got) ? 0 : 1e9;
    int e = 0;
    std::frexp(rounded, &e);
    return static_cast<double>(std::fabs(static_cast<long double>(got) - want) /
                               std::ldexp(1.0L, std::max(e - 24, -149)));
}

Kernel apply(Op op, DType d, int64_t n) {
    Build b({n}, {}, Vectorize::OuterLast);
    int p = b.in(d), y = b.out(d);
    b.store(y, b.o(0), b.op(op, {b.load(p, b.o(0))}));
    return b.k;
}

}  // namespace

TEST(CodegenMath, AccuracyOfF32) {
    for (const Function& f : kFunctions) {
        std::vector<float> xs = sample(f);
        const auto n = static_cast<int64_t>(xs.size());
        Kernel k = apply(f.op, DType::F32, n);
        Bytes in(xs.size() * 4);
        std::memcpy(in.data(), xs.data(), in.size());
        for (Isa isa : host_isas()) {
            Outcome got = run_compiled(k, isa, {in, Bytes(in.size())}, {}, 0, n);
            double worst = 0;
            float at = 0;
            for (size_t i = 0; i < xs.size(); ++i) {
                long double want = f.exact(xs[i]);
                double error = ulps(element(DType::F32, got.buffers[1], i), want);
                if (want == 0 && std::signbit(want) != std::signbit(element(DType::F32, got.buffers[1], i)) &&
                    f.op != Op::Erfc)
                    error = 1e9;
                if (error > worst) {
                    worst = error;
                    at = xs[i];
                }
            }
            EXPECT_LE(worst, f.ulp) << ir::name(f.op) << " on " << isa_text(isa) << " at " << at;
        }
    }
}

TEST(CodegenMath, AccuracyOfF64) {
    for (const Function& f : kFunctions) {
        std::vector<double> xs;
        std::mt19937 rng(9);
        std::uniform_real_distribution<double> in(f.lo, f.hi);
        for (int i = 0; i < 4001; ++i) xs.push_back(in(rng));
        Kernel k = apply(f.op, DType::F64, 4001);
        for (Isa isa : host_isas()) {
            Outcome got = run_compiled(k, isa, {elements(DType::F64, xs), Bytes(4001 * 8)}, {}, 0, 4001);
            for (size_t i = 0; i < xs.size(); ++i) {
                long double want = f.exact(xs[i]);
                double y = element(DType::F64, got.buffers[1], i);
                if (std::isnan(y) || std::isinf(y) || (f.op == Op::Sigmoid && xs[i] < -88)) continue;
                EXPECT_LE(std::fabs(y - want), std::fabs(want) * 2e-15L + 1e-300L)
                    << ir::name(f.op) << "(" << xs[i] << ") on " << isa_text(isa);
            }
        }
    }
}

TEST(CodegenMath, PowersOfIntegers) {
    for (DType d : {DType::I8, DType::I32, DType::I64, DType::U8, DType::U64}) {
        Build b({100}, {}, Vectorize::OuterLast);
        int p = b.in(d), q = b.in(d), y = b.out(d);
        b.store(y, b.o(0), b.op(Op::Pow, {b.load(p, b.o(0)), b.load(q, b.o(0))}));
        std::vector<double> base, exponent;
        for (int i = 0; i < 100; ++i) {
            base.push_back(ir::is_signed(d) ? i % 10 - 5 : i % 10);
            exponent.push_back(ir::is_signed(d) ? i / 10 - 3 : i / 10);
        }
        expect_same(b.k, {elements(d, base), elements(d, exponent), Bytes(800)}, {}, 0, 100);
    }
}

TEST(CodegenMath, RemaindersAreExact) {
    for (DType d : {DType::F32, DType::F64})
        for (Op op : {Op::Fmod, Op::Mod, Op::FloorDiv}) {
            std::vector<double> a, c;
            std::mt19937 rng(11);
            for (int i = 0; i < 3000; ++i) {
                double scale = std::pow(10.0, static_cast<int>(rng() % 20) - 10);
                a.push_back((static_cast<double>(rng() % 20001) - 10000) * scale / 7);
                c.push_back((static_cast<double>(rng() % 2001) - 1000) / 16);
            }
            Build b({3000}, {}, Vectorize::OuterLast);
            int p = b.in(d), q = b.in(d), y = b.out(d);
            b.store(y, b.o(0), b.op(op, {b.load(p, b.o(0)), b.load(q, b.o(0))}));
            expect_same(b.k, {elements(d, a), elements(d, c), Bytes(24000)}, {}, 0, 3000);
        }
}

}  // namespace braze::codegen::test
