// f32 functions by range reduction and minimax polynomials (relative error below 2^-27 before rounding).
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include <cmath>
#include <limits>

#include "core/codegen/cpu/elementwise.h"
#include "core/codegen/cpu/vector_math.h"

namespace braze::codegen {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kRound = 12582912.0;  // 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits
constexpr int64_t kRoundBits = 0x4b400000;

}  // namespace

llvm::Value* VectorMath::fma(V a, V b, V c) {
    if (target_.fma) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
    return b_.CreateFAdd(b_.CreateFMul(a, b), c);
}

// Estrin's scheme: a longer polynomial is evaluated as a tree, because its latency would bound the speed of a loop body
// that is one long chain.
llvm::Value* VectorMath::polynomial(V x, std::initializer_list<double> ascending) {
    llvm::SmallVector<V, 12> terms;
    const double* c = ascending.begin();
    for (size_t i = 0; i < ascending.size(); i += 2) {
        if (i + 1 < ascending.size())
            terms.push_back(fma(x, c[i + 1], constant(x, c[i])));
        else
            terms.push_back(constant(x, c[i]));
    }
    for (V power = b_.CreateFMul(x, x); terms.size() > 1;) {
        llvm::SmallVector<V, 12> next;
        for (size_t i = 0; i + 1 < terms.size(); i += 2) next.push_back(fma(terms[i + 1], power, terms[i]));
        if (terms.size() % 2) next.push_back(terms.back());
        terms = next;
        if (terms.size() > 1) power = b_.CreateFMul(power, power);
    }
    return terms[0];
}

llvm::Value* VectorMath::at_most(V x, double limit) {
    V l = constant(x, limit);
    return b_.CreateSelect(b_.CreateFCmpOGT(x, l), l, x);
}
llvm::Value* VectorMath::at_least(V x, double limit) {
    V l = constant(x, limit);
    return b_.CreateSelect(b_.CreateFCmpOLT(x, l), l, x);
}
llvm::Value* VectorMath::as_int(V x) { return b_.CreateBitCast(x, with_lanes(b_.getInt32Ty(), lanes_of(x))); }
llvm::Value* VectorMath::as_float(V bits) {
    return b_.CreateBitCast(bits, with_lanes(b_.getFloatTy(), lanes_of(bits)));
}

llvm::Value* VectorMath::power_of_two(V n) {
    return as_float(b_.CreateShl(b_.CreateAdd(n, integer(n, 127)), integer(n, 23)));
}

// An instruction on 16 floats, for vectors of one or two registers.
llvm::Value* VectorMath::by_registers(llvm::ArrayRef<V> args, llvm::function_ref<V(llvm::ArrayRef<V>)> emit) {
    int lanes = lanes_of(args[0]);
    if (lanes == 16) return emit(args);
    llvm::SmallVector<int, 16> low, high;
    llvm::SmallVector<int, 32> all;
    for (int i = 0; i < 16; ++i) {
        low.push_back(i);
        high.push_back(i + 16);
    }
    for (int i = 0; i < 32; ++i) all.push_back(i);
    llvm::SmallVector<V, 2> lows, highs;
    for (V a : args) {
        lows.push_back(b_.CreateShuffleVector(a, low));
        highs.push_back(b_.CreateShuffleVector(a, high));
    }
    return b_.CreateShuffleVector(emit(lows), emit(highs), all);
}

bool VectorMath::has_registers(V x) const {
    return target_.isa == Isa::Avx512 && (lanes_of(x) == 16 || lanes_of(x) == 32);
}

llvm::Value* VectorMath::scale(V y, V n) {
    if (has_registers(y))
        return by_registers({y, n}, [&](llvm::ArrayRef<V> x) -> V {
            return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                                      {x[0], x[1], x[0], b_.getInt16(0xffff), b_.getInt32(4)});
        });
    V k = b_.CreateSub(as_int(b_.CreateFAdd(n, constant(n, kRound))), integer(as_int(n), kRoundBits));
    V half = b_.CreateAShr(k, integer(k, 1));
    return b_.CreateFMul(b_.CreateFMul(y, power_of_two(half)), power_of_two(b_.CreateSub(k, half)));
}

// x = n * ln2 + r
VectorMath::Scaled VectorMath::reduce_exp(V x) {
    V t = fma(x, 1.4426950408889634, constant(x, kRound));
    V n = b_.CreateFSub(t, constant(x, kRound));
    V r = fma(n, -0.693145751953125, x);  // few enough bits that n * that is exact
    r = fma(n, -1.4286068203094172e-06, r);
    return {n, b_.CreateSub(as_int(t), integer(as_int(t), kRoundBits)), r};
}

// e^r for |r| <= ln2 / 2
llvm::Value* VectorMath::exp_polynomial(V r) {
    V p = polynomial(r, {0.5, 1.666651815e-01, 4.166620597e-02, 8.368953131e-03, 1.395059633e-03});
    return b_.CreateFAdd(fma(p, b_.CreateFMul(r, r), r), constant(r, 1.0));
}

// e^r - 1 for |r| <= ln2 / 2
llvm::Value* VectorMath::expm1_polynomial(V r) {
    V p = polynomial(r, {0.5, 1.666666716e-01, 4.166635498e-02, 8.333273232e-03, 1.394110266e-03, 1.991430327e-04});
    return fma(p, b_.CreateFMul(r, r), r);
}

// 1 - e^x for x in [-80, 0]
llvm::Value* VectorMath::one_minus_exp(V x) {
    Scaled s = reduce_exp(x);
    V scale = power_of_two(s.k);
    V p = b_.CreateFNeg(expm1_polynomial(s.r));
    return fma(p, scale, b_.CreateFSub(constant(x, 1.0), scale));
}

// x / y for y in [1, 2]
llvm::Value* VectorMath::divide_near_one(V x, V y) {
    if (!has_registers(x)) return b_.CreateFDiv(x, y);
    V r = by_registers({y}, [&](llvm::ArrayRef<V> d) -> V {  // the divider is slow at this width
        return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_rcp14_ps_512, {}, {d[0], d[0], b_.getInt16(0xffff)});
    });
    V minus_y = b_.CreateFNeg(y);
    r = fma(r, fma(minus_y, r, 1.0), r);
    V q = b_.CreateFMul(x, r);
    return fma(fma(minus_y, q, x), r, q);
}

llvm::Value* VectorMath::exp(V x) {
    Scaled s = reduce_exp(at_least(at_most(x, 89.0), -104.0));
    return scale(exp_polynomial(s.r), s.n);
}

llvm::Value* VectorMath::exp2(V x) {
    V c = at_least(at_most(x, 129.0), -151.0);
    V t = b_.CreateFAdd(c, constant(x, kRound));
    V n = b_.CreateFSub(t, constant(x, kRound));
    V r = b_.CreateFSub(c, n);
    V p = polynomial(r, {6.931471825e-01, 2.402265072e-01, 5.550410971e-02, 9.618036449e-03, 1.333342982e-03,
                         1.546736603e-04, 1.531521048e-05});
    return scale(fma(p, r, 1.0), n);
}

llvm::Value* VectorMath::expm1(V x) {
    Scaled s = reduce_exp(at_least(at_most(x, 89.0), -18.0));
    V p = expm1_polynomial(s.r);
    V half = power_of_two(b_.CreateSub(s.k, integer(s.k, 1)));  // 2^n itself may overflow
    V y = fma(p, half, b_.CreateFSub(half, constant(x, 0.5)));
    y = b_.CreateFMul(y, constant(x, 2.0));
    return b_.CreateSelect(b_.CreateFCmpOLT(abs(x), constant(x, 0x1p-25)), x, y);  // also keeps -0 and denormals
}

VectorMath::Logarithm VectorMath::reduce_log(V x) {
    V small = b_.CreateFCmpOLT(x, constant(x, 0x1p-126));
    x = b_.CreateSelect(small, b_.CreateFMul(x, constant(x, 0x1p23)), x);
    V bits = as_int(x);
    V base = integer(bits, 0x3f3504f3);  // sqrt(1/2): the mantissa lies in [sqrt(1/2), sqrt(2))
    V offset = b_.CreateSub(bits, base);
    V n = b_.CreateAShr(offset, integer(bits, 23));
    V e = b_.CreateSIToFP(b_.CreateSub(n, b_.CreateSelect(small, integer(n, 23), integer(n, 0))), x->getType());
    V m = as_float(b_.CreateAdd(b_.CreateAnd(offset, integer(bits, 0x7fffff)), base));
    V f = b_.CreateFSub(m, constant(x, 1.0));
    V s = b_.CreateFMul(f, f);
    V p = polynomial(f, {3.333331048e-01, -2.499998510e-01, 2.000226974e-01, -1.666936874e-01, 1.421779245e-01,
                         -1.238165945e-01, 1.187728122e-01, -1.180843636e-01, 6.927829236e-02});
    return {e, f, b_.CreateFMul(s, fma(f, p, constant(x, -0.5)))};
}

// NaN below `below` and for NaN, -inf there, inf at inf.
llvm::Value* VectorMath::log_special(V y, V x, V below) {
    y = b_.CreateSelect(b_.CreateFCmpOEQ(x, below), constant(x, -kInf), y);
    y = b_.CreateSelect(b_.CreateFCmpULT(x, below), constant(x, std::nan("")), y);
    return b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, kInf)), x, y);
}

llvm::Value* VectorMath::log(V x) {
    Logarithm l = reduce_log(x);
    V y = b_.CreateFAdd(l.f, fma(l.e, 1.4286068203094172e-06, l.tail));
    return log_special(fma(l.e, 0.693145751953125, y), x, constant(x, 0.0));
}

llvm::Value* VectorMath::log2(V x) {
    Logarithm l = reduce_log(x);
    V y = fma(l.f, 0.44269504088896343, b_.CreateFMul(l.tail, constant(x, 1.4426950408889634)));
    return log_special(b_.CreateFAdd(b_.CreateFAdd(l.f, y), l.e), x, constant(x, 0.0));
}

llvm::Value* VectorMath::log10(V x) {
    Logarithm l = reduce_log(x);
    V y = fma(l.e, 4.605038981e-06, b_.CreateFMul(l.tail, constant(x, 0.4342944819032518)));
    y = fma(l.f, -1.0103050e-08, y);  // log10(e) beyond its f32 value
    y = fma(l.f, 0.4342944920063019, y);
    return log_special(fma(l.e, 0.301025390625, y), x, constant(x, 0.0));
}

llvm::Value* VectorMath::log1p(V x) {
    V one = constant(x, 1.0);
    V u = b_.CreateFAdd(one, x);
    Logarithm l = reduce_log(u);
    V lost = b_.CreateFDiv(b_.CreateFSub(x, b_.CreateFSub(u, one)), u);  // what the rounding of 1 + x left out
    // for large x it is the 1 that is rounded away
    lost = b_.CreateSelect(b_.CreateFCmpOGE(x, constant(x, 0x1p24)), constant(x, 0.0), lost);
    V y = b_.CreateFAdd(l.f, b_.CreateFAdd(fma(l.e, 1.4286068203094172e-06, l.tail), lost));
    y = log_special(fma(l.e, 0.693145751953125, y), x, constant(x, -1.0));
    return b_.CreateSelect(b_.CreateFCmpOLT(abs(x), constant(x, 0x1p-25)), x, y);
}

llvm::Value* VectorMath::tanh(V x) {
    V z = at_most(abs(x), 10.0);
    V s = b_.CreateFMul(z, z);
    V small = fma(b_.CreateFMul(s, polynomial(s, {-3.333329558e-01, 1.333181560e-01, -5.377315730e-02, 2.075552382e-02,
                                                  -5.843349732e-03})),
                  z, z);
    Scaled e = reduce_exp(b_.CreateFMul(z, constant(x, -2.0)));  // 1 - 2e / (1 + e) with e = exp(-2z)
    V t = b_.CreateFMul(exp_polynomial(e.r), power_of_two(e.k));
    V one = constant(x, 1.0);
    V large = b_.CreateFSub(one, divide_near_one(b_.CreateFAdd(t, t), b_.CreateFAdd(t, one)));
    return copysign(b_.CreateSelect(b_.CreateFCmpOLT(z, constant(x, 0.6)), small, large), x);
}

// erf(z) = 1 - exp(-z * (1 + Q(z)))
llvm::Value* VectorMath::erf(V x) {
    V z = at_most(abs(x), 4.0);
    V q = polynomial(z, {1.283791661e-01, 6.366198063e-01, 1.027712747e-01, -1.911769435e-02, -2.530612983e-04,
                         1.799354330e-03, -7.406862569e-04, 1.674811501e-04, -2.135464274e-05, 1.193304115e-06});
    return copysign(one_minus_exp(b_.CreateFNeg(fma(q, z, z))), x);
}

llvm::Value* VectorMath::sin_cos(V x, bool cosine) {
    V t = fma(x, 0.6366197723675814, constant(x, kRound));
    V n = b_.CreateFSub(t, constant(x, kRound));
    V r = fma(n, -1.57079637050628662109375, x);  // pi/2 in three f32 parts; the first step is exact
    r = fma(n, 4.37113900018624283e-8, r);
    r = fma(n, 1.71512451e-15, r);
    V s = b_.CreateFMul(r, r);
    V sine = fma(
        b_.CreateFMul(s, polynomial(s, {-1.666666716e-01, 8.333329111e-03, -1.983933034e-04, 2.718272526e-06})), r, r);
    V c = polynomial(s, {4.166666791e-02, -1.388888340e-03, 2.479951581e-05, -2.720987595e-07});
    V cos = fma(fma(c, s, -0.5), s, 1.0);
    V q = as_int(t);
    V zero = integer(q, 0);
    V odd = b_.CreateICmpNE(b_.CreateAnd(q, integer(q, 1)), zero);
    V y = cosine ? b_.CreateSelect(odd, sine, cos) : b_.CreateSelect(odd, cos, sine);
    V quadrant = cosine ? b_.CreateAdd(q, integer(q, 1)) : q;
    V sign = b_.CreateShl(b_.CreateAnd(quadrant, integer(q, 2)), integer(q, 30));
    y = as_float(b_.CreateXor(as_int(y), sign));
    if (!cosine) y = b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, 0.0)), x, y);  // -0
    return with_fallback(y, b_.CreateFCmpUGT(abs(x), constant(x, 30000.0)), cosine ? ir::Op::Cos : ir::Op::Sin, {x});
}

// Exact: in f64 the quotient's integer part and the remainder are exact while the quotient is below 2^28.
llvm::Value* VectorMath::fmod(V x, V y) {
    llvm::Type* wide = with_lanes(b_.getDoubleTy(), lanes_of(x));
    V a = b_.CreateFPExt(x, wide), d = b_.CreateFPExt(y, wide);
    V q = b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, b_.CreateFDiv(a, d));
    V r = b_.CreateFPTrunc(b_.CreateFSub(a, b_.CreateFMul(q, d)), x->getType());
    V common = b_.CreateAnd(b_.CreateFCmpOLT(abs(q), constant(q, 0x1p28)), b_.CreateFCmpOLT(abs(y), constant(y, kInf)));
    return with_fallback(copysign(r, x), b_.CreateNot(common), ir::Op::Fmod, {x, y});
}

llvm::Value* VectorMath::with_fallback(V fast, V rare, ir::Op op, llvm::ArrayRef<V> args) {
    V any = lanes_of(fast) == 1 ? rare : b_.CreateOrReduce(rare);
    llvm::Instruction* point = &*b_.GetInsertPoint();
    llvm::BasicBlock* usual = point->getParent();
    llvm::Instruction* then = llvm::SplitBlockAndInsertIfThen(any, point, false);
    b_.SetInsertPoint(then);
    V slow = call(op, args);
    llvm::BasicBlock* slow_block = b_.GetInsertBlock();
    b_.SetInsertPoint(point->getParent(), point->getParent()->begin());
    llvm::PHINode* phi = b_.CreatePHI(fast->getType(), 2);
    phi->addIncoming(fast, usual);
    phi->addIncoming(slow, slow_block);
    b_.SetInsertPoint(point);
    return phi;
}

}  // namespace braze::codegen
