// Integer arithmetic (wraps, never traps) and conversions.
#include "core/codegen/cpu/elementwise.h"
#include "core/support/error.h"

namespace braze::codegen {

llvm::Value* Elementwise::int_binary(Op op, DType d, llvm::Value* a, llvm::Value* b) {
    bool sign = ir::is_signed(d);
    auto greater = [&] { return sign ? b_.CreateICmpSGT(a, b) : b_.CreateICmpUGT(a, b); };
    switch (op) {
        case Op::Add: return b_.CreateAdd(a, b);
        case Op::Sub: return b_.CreateSub(a, b);
        case Op::Mul: return b_.CreateMul(a, b);
        case Op::And: return b_.CreateAnd(a, b);
        case Op::Or: return b_.CreateOr(a, b);
        case Op::Xor: return b_.CreateXor(a, b);
        case Op::Shl:
        case Op::Shr: return shift(op, sign, a, b);
        case Op::Maximum:
        case Op::Fmax: return b_.CreateSelect(greater(), a, b);
        case Op::Minimum:
        case Op::Fmin: return b_.CreateSelect(greater(), b, a);
        case Op::Div:
        case Op::FloorDiv:
        case Op::TruncDiv:
        case Op::Mod:
        case Op::Fmod: return int_divide(op, d, a, b);
        case Op::Pow: return int_power(sign, a, b);
        default:
            throw InternalError("operator " + std::string(ir::name(op)) + " is not defined on " +
                                std::string(ir::name(d)));
    }
}

// A count outside of the width shifts everything out.
llvm::Value* Elementwise::shift(Op op, bool is_signed, llvm::Value* a, llvm::Value* b) {
    unsigned bits = a->getType()->getScalarSizeInBits();
    llvm::Value* within = b_.CreateICmpULT(b, integer(b, bits));
    llvm::Value* zero = integer(a, 0);
    if (op == Op::Shl) return b_.CreateSelect(within, b_.CreateShl(a, b_.CreateSelect(within, b, zero)), zero);
    if (is_signed) return b_.CreateAShr(a, b_.CreateSelect(within, b, integer(b, bits - 1)));
    return b_.CreateSelect(within, b_.CreateLShr(a, b_.CreateSelect(within, b, zero)), zero);
}

// a / b towards zero for b other than 0 and -1 (signed).
llvm::Value* Elementwise::quotient(bool is_signed, llvm::Value* a, llvm::Value* b) {
    unsigned bits = a->getType()->getScalarSizeInBits();
    int lanes = lanes_of(a);
    if (lanes == 1 || bits == 64 || llvm::isa<llvm::Constant>(b))
        return is_signed ? b_.CreateSDiv(a, b) : b_.CreateUDiv(a, b);
    // There is no vector division of integers; a float type with enough bits gives the same truncated quotient.
    llvm::Type* real = with_lanes(bits == 32 ? b_.getDoubleTy() : b_.getFloatTy(), lanes);
    llvm::Type* wide = with_lanes(bits == 32 ? b_.getInt64Ty() : b_.getInt32Ty(), lanes);
    if (is_signed) {
        llvm::Value* q = b_.CreateFDiv(b_.CreateSIToFP(a, real), b_.CreateSIToFP(b, real));
        return b_.CreateFPToSI(q, a->getType());
    }
    llvm::Value* q =
        b_.CreateFDiv(b_.CreateSIToFP(b_.CreateZExt(a, wide), real), b_.CreateSIToFP(b_.CreateZExt(b, wide), real));
    return b_.CreateTrunc(b_.CreateFPToSI(q, wide), a->getType());
}

llvm::Value* Elementwise::int_divide(Op op, DType d, llvm::Value* a, llvm::Value* b) {
    bool sign = ir::is_signed(d);
    llvm::Value* zero = integer(a, 0);
    llvm::Value* one = integer(a, 1);
    llvm::Value* by_zero = b_.CreateICmpEQ(b, zero);
    if (!sign) {
        llvm::Value* divisor = b_.CreateSelect(by_zero, one, b);
        llvm::Value* q = quotient(false, a, divisor);
        return op == Op::Mod || op == Op::Fmod ? b_.CreateSub(a, b_.CreateMul(q, divisor)) : q;
    }
    llvm::Value* by_minus_one = b_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(b->getType()));
    llvm::Value* divisor = b_.CreateSelect(b_.CreateOr(by_zero, by_minus_one), one, b);
    llvm::Value* q = quotient(true, a, divisor);
    llvm::Value* r = b_.CreateSub(a, b_.CreateMul(q, divisor));
    llvm::Value* negated = b_.CreateSub(zero, a);
    if (op == Op::TruncDiv || op == Op::Div) return b_.CreateSelect(by_minus_one, negated, q);
    if (op == Op::Fmod) return b_.CreateSelect(by_minus_one, zero, r);
    // rounding down differs where there is a remainder whose sign is not the divisor's
    llvm::Value* adjust = b_.CreateAnd(b_.CreateICmpNE(r, zero), b_.CreateICmpSLT(b_.CreateXor(r, divisor), zero));
    if (op == Op::FloorDiv)
        return b_.CreateSelect(by_minus_one, negated, b_.CreateSelect(adjust, b_.CreateSub(q, one), q));
    return b_.CreateSelect(by_minus_one, zero, b_.CreateSelect(adjust, b_.CreateAdd(r, divisor), r));
}

llvm::Value* Elementwise::int_power(bool is_signed, llvm::Value* a, llvm::Value* b) {
    llvm::Type* wide = with_lanes(b_.getInt64Ty(), lanes_of(a));
    auto widen = [&](llvm::Value* x) { return is_signed ? b_.CreateSExt(x, wide) : b_.CreateZExt(x, wide); };
    const char* name = is_signed ? "braze_lanes_power_i64" : "braze_lanes_power_u64";
    return b_.CreateTrunc(math_.call_lanes(name, {widen(a), widen(b)}), a->getType());
}

llvm::Value* Elementwise::from_half(llvm::Value* bits, DType half) {
    int lanes = lanes_of(bits);
    llvm::Type* f32 = with_lanes(b_.getFloatTy(), lanes);
    llvm::Type* i32 = with_lanes(b_.getInt32Ty(), lanes);
    if (half == DType::F16 && target_.f16c)
        return b_.CreateFPExt(b_.CreateBitCast(bits, with_lanes(b_.getHalfTy(), lanes)), f32);
    llvm::Value* x = b_.CreateZExt(bits, i32);
    if (half == DType::BF16) return b_.CreateBitCast(b_.CreateShl(x, integer(x, 16)), f32);
    // f16: place exponent and mantissa, then scale by 2^112, which also normalises denormals; inf and NaN get the top
    // exponent
    llvm::Value* magnitude = b_.CreateShl(b_.CreateAnd(x, integer(x, 0x7fff)), integer(x, 13));
    llvm::Value* sign = b_.CreateShl(b_.CreateAnd(x, integer(x, 0x8000)), integer(x, 16));
    llvm::Value* scaled = b_.CreateFMul(b_.CreateBitCast(magnitude, f32), llvm::ConstantFP::get(f32, 0x1p112));
    llvm::Value* special = b_.CreateICmpUGE(magnitude, integer(x, 0x7c00U << 13U));
    llvm::Value* bits32 =
        b_.CreateSelect(special, b_.CreateOr(magnitude, integer(x, 0x7f800000)), b_.CreateBitCast(scaled, i32));
    return b_.CreateBitCast(b_.CreateOr(bits32, sign), f32);
}

llvm::Value* Elementwise::to_half(llvm::Value* x, DType half) {
    int lanes = lanes_of(x);
    llvm::Type* i16 = with_lanes(b_.getInt16Ty(), lanes);
    llvm::Type* i32 = with_lanes(b_.getInt32Ty(), lanes);
    llvm::Type* f32 = x->getType();
    if (half == DType::F16 && target_.f16c)
        return b_.CreateBitCast(b_.CreateFPTrunc(x, with_lanes(b_.getHalfTy(), lanes)), i16);
    llvm::Value* bits = b_.CreateBitCast(x, i32);
    if (half == DType::BF16) {
        // round to nearest even by adding just less than half, or half where the kept part is odd
        llvm::Value* odd = b_.CreateAnd(b_.CreateLShr(bits, integer(bits, 16)), integer(bits, 1));
        llvm::Value* rounded =
            b_.CreateLShr(b_.CreateAdd(bits, b_.CreateAdd(odd, integer(bits, 0x7fff))), integer(bits, 16));
        return b_.CreateTrunc(b_.CreateSelect(is_nan(x), integer(bits, 0x7fc0), rounded), i16);
    }
    llvm::Value* sign = b_.CreateAnd(b_.CreateLShr(bits, integer(bits, 16)), integer(bits, 0x8000));
    llvm::Value* magnitude = b_.CreateAnd(bits, integer(bits, 0x7fffffff));
    llvm::Value* odd = b_.CreateAnd(b_.CreateLShr(magnitude, integer(bits, 13)), integer(bits, 1));
    llvm::Value* rebased = b_.CreateSub(magnitude, integer(bits, 112U << 23U));
    llvm::Value* normal =
        b_.CreateLShr(b_.CreateAdd(rebased, b_.CreateAdd(odd, integer(bits, 0xfff))), integer(bits, 13));
    // below 2^-14 the result is denormal: adding 0.5 in f32 rounds at the right place
    llvm::Value* shifted = b_.CreateFAdd(b_.CreateBitCast(magnitude, f32), llvm::ConstantFP::get(f32, 0.5));
    llvm::Value* denormal = b_.CreateSub(b_.CreateBitCast(shifted, i32), integer(bits, 0x3f000000));
    llvm::Value* result = b_.CreateSelect(b_.CreateICmpULT(magnitude, integer(bits, 113U << 23U)), denormal, normal);
    llvm::Value* large = b_.CreateICmpUGE(magnitude, integer(bits, 0x477ff000));  // rounds to 2^16 or more
    result = b_.CreateSelect(large, integer(bits, 0x7c00), result);
    result = b_.CreateSelect(is_nan(x), integer(bits, 0x7e00), result);
    return b_.CreateTrunc(b_.CreateOr(result, sign), i16);
}

// Truncates; what does not fit gives what x86 gives (freeze: some value, but no undefined behaviour).
llvm::Value* Elementwise::float_to_int(llvm::Value* x, DType to) {
    int lanes = lanes_of(x);
    int bytes = ir::size_of(to);
    llvm::Type* target = with_lanes(element_type(b_.getContext(), to), lanes);
    llvm::Type* i32 = with_lanes(b_.getInt32Ty(), lanes);
    llvm::Type* i64 = with_lanes(b_.getInt64Ty(), lanes);
    if (bytes < 4) return b_.CreateTrunc(b_.CreateFreeze(b_.CreateFPToSI(x, i32)), target);
    if (to == DType::I32) return b_.CreateFreeze(b_.CreateFPToSI(x, i32));
    if (to == DType::I64) return b_.CreateFreeze(b_.CreateFPToSI(x, i64));
    if (to == DType::U32) return b_.CreateTrunc(b_.CreateFreeze(b_.CreateFPToSI(x, i64)), target);
    llvm::Value* top = number(x, 0x1p63);
    llvm::Value* high = b_.CreateFCmpOGE(x, top);
    llvm::Value* reduced = b_.CreateSelect(high, b_.CreateFSub(x, top), x);
    llvm::Value* low = b_.CreateFreeze(b_.CreateFPToSI(reduced, i64));
    return b_.CreateXor(low, b_.CreateSelect(high, integer(low, uint64_t{1} << 63U), integer(low, 0)));
}

llvm::Value* Elementwise::cast(llvm::Value* x, DType from, DType to) {
    if (from == to) return x;
    int lanes = lanes_of(x);
    if (ir::is_half(from)) return cast(from_half(x, from), DType::F32, to);
    if (to == DType::Bool)
        return ir::is_float(from) ? b_.CreateFCmpUNE(x, number(x, 0.0)) : b_.CreateICmpNE(x, integer(x, 0));
    if (ir::is_half(to)) return to_half(cast(x, from, DType::F32), to);
    llvm::Type* type = with_lanes(element_type(b_.getContext(), to), lanes);
    if (ir::is_float(from)) {
        if (!ir::is_float(to)) return float_to_int(x, to);
        return to == DType::F64 ? b_.CreateFPExt(x, type) : b_.CreateFPTrunc(x, type);
    }
    bool sign = ir::is_signed(from);
    if (ir::is_float(to)) return sign ? b_.CreateSIToFP(x, type) : b_.CreateUIToFP(x, type);
    return sign ? b_.CreateSExtOrTrunc(x, type) : b_.CreateZExtOrTrunc(x, type);
}

}  // namespace braze::codegen
