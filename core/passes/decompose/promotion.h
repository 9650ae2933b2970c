// PyTorch's type promotion: the dtype in which a pointwise operator computes.
#pragma once
#include <optional>
#include <span>
#include <variant>

#include "core/passes/decompose/number.h"

namespace braze::passes::decomposition {

// What stands at a tensor's place in a pointwise operator: a tensor or a wrapped number.
class Operand {
  public:
    Operand(ir::Value* v) : value_(v) {}  // NOLINT(google-explicit-constructor)
    Operand(Number n) : value_(n) {}      // NOLINT(google-explicit-constructor)

    ir::Value* tensor() const {  // nullptr: a number
        ir::Value* const* v = std::get_if<ir::Value*>(&value_);
        return v ? *v : nullptr;
    }
    const Number& number() const { return std::get<Number>(value_); }

  private:
    std::variant<ir::Value*, Number> value_;
};

// torch.promote_types for the dtypes that have code; nullopt where PyTorch has none.
std::optional<ir::DType> promote(ir::DType a, ir::DType b);

// torch.result_type: tensors with dimensions come before 0-dim tensors, these before numbers, unless the later has a
// higher kind (bool < integer < float). nullopt where that is the default float dtype, which the graph does not know,
// or undefined.
std::optional<ir::DType> result_type(std::span<const Operand> operands);

}  // namespace braze::passes::decomposition
