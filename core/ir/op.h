// Facts about the operators of ops.def. name() and kind() are declared in graph.h.
#pragma once
#include <optional>
#include <string_view>

#include "core/ir/graph.h"

namespace braze::ir {

std::optional<Op> op_named(std::string_view text);
int arity(Op op);            // number of tensor operands, -1: any
bool is_elementwise(Op op);  // Unary, Binary, Ternary, Cast
bool returns_bool(Op op);    // elementwise, Bool from any dtype
bool is_commutative(Op op);  // bit for bit, whatever the values (NaN payloads aside)

}  // namespace braze::ir
