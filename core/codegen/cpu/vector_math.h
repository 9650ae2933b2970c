// Transcendental functions on vectors of lanes (or one element): inlined for f32 where that pays, else calls. Errors
// stay within about 1.5 ulp, as those of eager's vector library.
#pragma once
#include <llvm/IR/IRBuilder.h>

#include "core/codegen/cpu/compiler.h"

namespace braze::codegen {

class VectorMath {
  public:
    VectorMath(llvm::IRBuilder<>& builder, const CpuTarget& target) : b_(builder), target_(target) {}

    llvm::Value* unary(ir::Op op, llvm::Value* x);
    llvm::Value* binary(ir::Op op, llvm::Value* x, llvm::Value* y);
    // Whether the operator on f32 becomes instructions rather than a call.
    static bool inlined(ir::Op op, const CpuTarget& target);
    // A slot on the stack for one value of that type.
    llvm::Value* stack_slot(llvm::Type* type);
    // void name(T* x, [const T* y,] i64 lanes), in place.
    llvm::Value* call_lanes(const std::string& name, llvm::ArrayRef<llvm::Value*> args);

  private:
    using V = llvm::Value*;

    // vector_math_inlined.cpp
    V exp(V x);
    V exp2(V x);
    V expm1(V x);
    V log(V x);
    V log2(V x);
    V log10(V x);
    V log1p(V x);
    V tanh(V x);
    V erf(V x);
    V sin_cos(V x, bool cosine);
    V fmod(V x, V y);
    struct Scaled {  // x = n * ln2 + r; k is n as an integer
        V n, k, r;
    };
    struct Logarithm {  // x = 2^e * (1 + f); log(1 + f) = f + tail
        V e, f, tail;
    };
    Scaled reduce_exp(V x);
    V exp_polynomial(V r);
    V expm1_polynomial(V r);
    V one_minus_exp(V x);
    V divide_near_one(V x, V y);
    V by_registers(llvm::ArrayRef<V> args, llvm::function_ref<V(llvm::ArrayRef<V>)> emit);
    bool has_registers(V x) const;
    V scale(V y, V n);          // y * 2^n with one rounding, n integral in [-300, 300]
    V power_of_two(V k);        // an integer in [-126, 127]
    Logarithm reduce_log(V x);  // x > 0
    V log_special(V result, V x, V below);
    // `fast` where no lane of `rare` is set; else op called for every lane.
    V with_fallback(V fast, V rare, ir::Op op, llvm::ArrayRef<V> args);

    // vector_math.cpp
    V call(ir::Op op, llvm::ArrayRef<V> args);
    V call_sleef(const std::string& symbol, unsigned width, llvm::ArrayRef<V> args);

    // small vocabulary
    V constant(V like, double v) { return llvm::ConstantFP::get(like->getType(), v); }
    V integer(V like, int64_t v) { return llvm::ConstantInt::get(like->getType(), static_cast<uint64_t>(v), true); }
    V fma(V a, V b, V c);
    V fma(V a, V b, double c) { return fma(a, b, constant(a, c)); }
    V fma(V a, double b, V c) { return fma(a, constant(a, b), c); }
    V polynomial(V x, std::initializer_list<double> ascending);
    V abs(V x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
    V copysign(V x, V sign) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, sign); }
    V at_most(V x, double limit);   // NaN stays
    V at_least(V x, double limit);  // NaN stays
    V as_int(V x);                  // bits
    V as_float(V bits);

    llvm::IRBuilder<>& b_;
    const CpuTarget& target_;
};

}  // namespace braze::codegen
