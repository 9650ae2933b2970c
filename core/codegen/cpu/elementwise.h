// Scalar operators as LLVM instructions. Operands are single elements or vectors of lanes, all of the same shape; the
// meaning is that of ir/ops.def.
#pragma once
#include <llvm/IR/IRBuilder.h>

#include "core/codegen/cpu/compiler.h"
#include "core/codegen/cpu/vector_math.h"

namespace braze::codegen {

using ir::DType;
using ir::Op;

// The type in which a dtype is computed. Bool: i1; the half types: i16, their bits.
llvm::Type* element_type(llvm::LLVMContext& context, DType d);
// The type in which a dtype lies in memory. Bool: i8, else the same.
llvm::Type* memory_type(llvm::LLVMContext& context, DType d);
llvm::Type* with_lanes(llvm::Type* element, int lanes);  // lanes == 1: the element type itself
int lanes_of(const llvm::Value* v);

class Elementwise {
  public:
    Elementwise(llvm::IRBuilder<>& builder, const CpuTarget& target)
        : b_(builder), math_(builder, target), target_(target) {}

    // A unary, binary or ternary operator on operands of dtype d (of Where: of the second and third operand).
    llvm::Value* apply(Op op, DType d, llvm::ArrayRef<llvm::Value*> args);
    llvm::Value* cast(llvm::Value* x, DType from, DType to);
    // One step of a reduction (Sum, Prod, Max, Min, Any, All).
    llvm::Value* combine(Op reduction, DType d, llvm::Value* accumulator, llvm::Value* x);
    // The value that leaves every x unchanged, as a constant of one lane.
    llvm::Constant* identity(Op reduction, DType d);
    VectorMath& math() { return math_; }

  private:
    llvm::Value* unary(Op op, DType d, llvm::Value* x);
    llvm::Value* binary(Op op, DType d, llvm::Value* a, llvm::Value* b);
    llvm::Value* compare(Op op, DType d, llvm::Value* a, llvm::Value* b);
    llvm::Value* float_binary(Op op, llvm::Value* a, llvm::Value* b);
    llvm::Value* int_binary(Op op, DType d, llvm::Value* a, llvm::Value* b);
    llvm::Value* bool_binary(Op op, llvm::Value* a, llvm::Value* b);
    llvm::Value* int_divide(Op op, DType d, llvm::Value* a, llvm::Value* b);
    llvm::Value* quotient(bool is_signed, llvm::Value* a, llvm::Value* b);
    llvm::Value* int_power(bool is_signed, llvm::Value* a, llvm::Value* b);
    llvm::Value* shift(Op op, bool is_signed, llvm::Value* a, llvm::Value* b);
    llvm::Value* float_floordiv(llvm::Value* a, llvm::Value* b);
    llvm::Value* float_to_int(llvm::Value* x, DType to);
    llvm::Value* from_half(llvm::Value* bits, DType half);
    llvm::Value* to_half(llvm::Value* x, DType half);
    llvm::Value* is_nan(llvm::Value* x) { return b_.CreateFCmpUNO(x, x); }
    llvm::Value* number(llvm::Value* like, double v) { return llvm::ConstantFP::get(like->getType(), v); }
    llvm::Value* integer(llvm::Value* like, uint64_t v) { return llvm::ConstantInt::get(like->getType(), v); }

    llvm::IRBuilder<>& b_;
    VectorMath math_;
    const CpuTarget& target_;
};

}  // namespace braze::codegen
