#include "core/codegen/cpu/elementwise.h"

#include <limits>

#include "core/support/error.h"

namespace braze::codegen {

llvm::Type* element_type(llvm::LLVMContext& c, DType d) {
    switch (d) {
        case DType::Bool: return llvm::Type::getInt1Ty(c);
        case DType::U8:
        case DType::I8: return llvm::Type::getInt8Ty(c);
        case DType::I16:
        case DType::U16:
        case DType::F16:
        case DType::BF16: return llvm::Type::getInt16Ty(c);
        case DType::I32:
        case DType::U32: return llvm::Type::getInt32Ty(c);
        case DType::I64:
        case DType::U64: return llvm::Type::getInt64Ty(c);
        case DType::F32: return llvm::Type::getFloatTy(c);
        case DType::F64: return llvm::Type::getDoubleTy(c);
        default: throw InternalError("the code generator does not compute in " + std::string(ir::name(d)));
    }
}

llvm::Type* memory_type(llvm::LLVMContext& c, DType d) {
    return d == DType::Bool ? llvm::Type::getInt8Ty(c) : element_type(c, d);
}

llvm::Type* with_lanes(llvm::Type* element, int lanes) {
    return lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
}

int lanes_of(const llvm::Value* v) {
    auto* t = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
    return t ? static_cast<int>(t->getNumElements()) : 1;
}

llvm::Value* Elementwise::apply(Op op, DType d, llvm::ArrayRef<llvm::Value*> args) {
    if (op == Op::Where) return b_.CreateSelect(args[0], args[1], args[2]);
    BRAZE_CHECK(!ir::is_half(d), "kernels compute in f32, not in " + std::string(ir::name(d)));
    if (op == Op::Fma) {
        if (d == DType::F32 || d == DType::F64) {
            if (target_.fma) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {args[0]->getType()}, args);
            return b_.CreateFAdd(b_.CreateFMul(args[0], args[1]), args[2]);
        }
        return apply(Op::Add, d, {apply(Op::Mul, d, {args[0], args[1]}), args[2]});
    }
    if (args.size() == 1) return unary(op, d, args[0]);
    return binary(op, d, args[0], args[1]);
}

llvm::Value* Elementwise::unary(Op op, DType d, llvm::Value* x) {
    bool real = ir::is_float(d), boolean = d == DType::Bool;
    llvm::Value* zero = llvm::Constant::getNullValue(x->getType());
    auto intrinsic = [&](llvm::Intrinsic::ID id) { return real ? b_.CreateUnaryIntrinsic(id, x) : x; };
    switch (op) {
        case Op::Neg: return real ? b_.CreateFNeg(x) : b_.CreateSub(zero, x);
        case Op::Abs:
            if (real) return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
            if (boolean || !ir::is_signed(d)) return x;
            return b_.CreateSelect(b_.CreateICmpSLT(x, zero), b_.CreateSub(zero, x), x);
        case Op::Sqrt: return intrinsic(llvm::Intrinsic::sqrt);
        case Op::Rsqrt: return b_.CreateFDiv(number(x, 1.0), b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
        case Op::Reciprocal: return b_.CreateFDiv(number(x, 1.0), x);
        case Op::Floor: return intrinsic(llvm::Intrinsic::floor);
        case Op::Ceil: return intrinsic(llvm::Intrinsic::ceil);
        case Op::Round: return intrinsic(llvm::Intrinsic::roundeven);
        case Op::Trunc: return intrinsic(llvm::Intrinsic::trunc);
        case Op::Sign: {
            if (boolean) return x;
            if (real) {
                llvm::Value* positive = b_.CreateSelect(b_.CreateFCmpOGT(x, zero), number(x, 1.0), zero);
                return b_.CreateSelect(b_.CreateFCmpOLT(x, zero), number(x, -1.0), positive);
            }
            llvm::Value* nonzero = b_.CreateSelect(b_.CreateICmpNE(x, zero), integer(x, 1), zero);
            if (!ir::is_signed(d)) return nonzero;
            return b_.CreateSelect(b_.CreateICmpSLT(x, zero), llvm::Constant::getAllOnesValue(x->getType()), nonzero);
        }
        case Op::Relu:
            if (real) return b_.CreateSelect(b_.CreateFCmpOLT(x, zero), zero, x);
            if (boolean || !ir::is_signed(d)) return x;
            return b_.CreateSelect(b_.CreateICmpSLT(x, zero), zero, x);
        case Op::BitNot: return b_.CreateNot(x);
        case Op::LogicalNot: return real ? b_.CreateFCmpOEQ(x, zero) : b_.CreateICmpEQ(x, zero);
        case Op::IsNan:
            if (real) return is_nan(x);
            return llvm::Constant::getNullValue(with_lanes(b_.getInt1Ty(), lanes_of(x)));
        case Op::IsInf:
            if (real)
                return b_.CreateFCmpOEQ(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x),
                                        number(x, std::numeric_limits<double>::infinity()));
            return llvm::Constant::getNullValue(with_lanes(b_.getInt1Ty(), lanes_of(x)));
        case Op::SignBit: {
            if (real) {
                llvm::Type* bits = with_lanes(b_.getIntNTy(x->getType()->getScalarSizeInBits()), lanes_of(x));
                x = b_.CreateBitCast(x, bits);
                zero = llvm::Constant::getNullValue(bits);
            } else if (boolean || !ir::is_signed(d)) {
                return llvm::Constant::getNullValue(with_lanes(b_.getInt1Ty(), lanes_of(x)));
            }
            return b_.CreateICmpSLT(x, zero);
        }
        default:
            BRAZE_CHECK(real,
                        "operator " + std::string(ir::name(op)) + " is not defined on " + std::string(ir::name(d)));
            return math_.unary(op, x);
    }
}

llvm::Value* Elementwise::compare(Op op, DType d, llvm::Value* a, llvm::Value* b) {
    using P = llvm::CmpInst::Predicate;
    bool real = ir::is_float(d), sign = ir::is_signed(d);
    auto pick = [&](P f, P s, P u) { return real ? b_.CreateFCmp(f, a, b) : b_.CreateICmp(sign ? s : u, a, b); };
    switch (op) {
        case Op::Eq: return pick(P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ);
        case Op::Ne: return pick(P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE);
        case Op::Lt: return pick(P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT);
        case Op::Le: return pick(P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE);
        case Op::Gt: return pick(P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT);
        case Op::Ge: return pick(P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE);
        default: return nullptr;
    }
}

llvm::Value* Elementwise::binary(Op op, DType d, llvm::Value* a, llvm::Value* b) {
    if (llvm::Value* c = compare(op, d, a, b)) return c;
    if (d == DType::Bool) return bool_binary(op, a, b);
    return ir::is_float(d) ? float_binary(op, a, b) : int_binary(op, d, a, b);
}

llvm::Value* Elementwise::bool_binary(Op op, llvm::Value* a, llvm::Value* b) {
    switch (op) {
        case Op::Or:
        case Op::Add:
        case Op::Maximum:
        case Op::Fmax: return b_.CreateOr(a, b);
        case Op::And:
        case Op::Mul:
        case Op::Minimum:
        case Op::Fmin: return b_.CreateAnd(a, b);
        case Op::Xor:
        case Op::Sub: return b_.CreateXor(a, b);
        default: throw InternalError("operator " + std::string(ir::name(op)) + " is not defined on bool");
    }
}

llvm::Value* Elementwise::float_binary(Op op, llvm::Value* a, llvm::Value* b) {
    switch (op) {
        case Op::Add: return b_.CreateFAdd(a, b);
        case Op::Sub: return b_.CreateFSub(a, b);
        case Op::Mul: return b_.CreateFMul(a, b);
        case Op::Div: return b_.CreateFDiv(a, b);
        case Op::FloorDiv: return float_floordiv(a, b);
        case Op::TruncDiv: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, b_.CreateFDiv(a, b));
        case Op::Mod: {
            llvm::Value* zero = number(a, 0.0);
            llvm::Value* m = math_.binary(Op::Fmod, a, b);
            llvm::Value* differ = b_.CreateXor(b_.CreateFCmpOLT(b, zero), b_.CreateFCmpOLT(m, zero));
            return b_.CreateSelect(b_.CreateAnd(b_.CreateFCmpUNE(m, zero), differ), b_.CreateFAdd(m, b), m);
        }
        // the select alone is the instruction max(a, b), which drops a NaN in a
        case Op::Maximum: return b_.CreateSelect(is_nan(a), a, b_.CreateSelect(b_.CreateFCmpOGT(a, b), a, b));
        case Op::Minimum: return b_.CreateSelect(is_nan(a), a, b_.CreateSelect(b_.CreateFCmpOLT(a, b), a, b));
        case Op::Fmax: return b_.CreateSelect(is_nan(a), b, b_.CreateSelect(b_.CreateFCmpOGT(b, a), b, a));
        case Op::Fmin: return b_.CreateSelect(is_nan(a), b, b_.CreateSelect(b_.CreateFCmpOLT(b, a), b, a));
        case Op::CopySign: return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, a, b);
        default: return math_.binary(op, a, b);
    }
}

// As c10::div_floor_floating: the remainder decides, so that the result is exact where the rounded quotient is not.
llvm::Value* Elementwise::float_floordiv(llvm::Value* a, llvm::Value* b) {
    llvm::Value* zero = number(a, 0.0);
    llvm::Value* one = number(a, 1.0);
    llvm::Value* m = math_.binary(Op::Fmod, a, b);
    llvm::Value* ratio = b_.CreateFDiv(a, b);
    llvm::Value* div = b_.CreateFDiv(b_.CreateFSub(a, m), b);
    llvm::Value* differ = b_.CreateXor(b_.CreateFCmpOLT(b, zero), b_.CreateFCmpOLT(m, zero));
    div = b_.CreateSelect(b_.CreateAnd(b_.CreateFCmpUNE(m, zero), differ), b_.CreateFSub(div, one), div);
    llvm::Value* down = b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, div);
    llvm::Value* far = b_.CreateFCmpOGT(b_.CreateFSub(div, down), number(a, 0.5));
    down = b_.CreateSelect(far, b_.CreateFAdd(down, one), down);
    llvm::Value* result = b_.CreateSelect(b_.CreateFCmpUNE(div, zero), down,
                                          b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, zero, ratio));
    return b_.CreateSelect(b_.CreateFCmpOEQ(b, zero), ratio, result);
}

llvm::Value* Elementwise::combine(Op reduction, DType d, llvm::Value* acc, llvm::Value* x) {
    bool real = ir::is_float(d);
    switch (reduction) {
        case Op::Sum: return real ? b_.CreateFAdd(acc, x) : b_.CreateAdd(acc, x);
        case Op::Prod: return real ? b_.CreateFMul(acc, x) : b_.CreateMul(acc, x);
        case Op::Max: return binary(Op::Maximum, d, acc, x);
        case Op::Min: return binary(Op::Minimum, d, acc, x);
        case Op::Any: return b_.CreateOr(acc, x);
        case Op::All: return b_.CreateAnd(acc, x);
        default:
            throw InternalError("operator " + std::string(ir::name(reduction)) +
                                " is no reduction of the code generator");
    }
}

llvm::Constant* Elementwise::identity(Op reduction, DType d) {
    llvm::Type* t = element_type(b_.getContext(), d);
    bool real = ir::is_float(d);
    unsigned bits = t->getScalarSizeInBits();
    bool sign = ir::is_signed(d);
    switch (reduction) {
        case Op::Sum:
        case Op::Any: return llvm::Constant::getNullValue(t);
        case Op::Prod: return real ? llvm::ConstantFP::get(t, 1.0) : llvm::ConstantInt::get(t, 1);
        case Op::All: return llvm::Constant::getAllOnesValue(t);
        case Op::Max:
        case Op::ArgMax:
            if (real) return llvm::ConstantFP::getInfinity(t, true);
            return llvm::ConstantInt::get(t,
                                          sign ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getMinValue(bits));
        case Op::Min:
        case Op::ArgMin:
            if (real) return llvm::ConstantFP::getInfinity(t, false);
            return llvm::ConstantInt::get(t,
                                          sign ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits));
        default:
            throw InternalError("operator " + std::string(ir::name(reduction)) +
                                " is no reduction of the code generator");
    }
}

}  // namespace braze::codegen
