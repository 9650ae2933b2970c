// Which in-place calls have a pure form with the same result, bit for bit and with the same layout.
#pragma once
#include "core/ir/builder.h"

namespace braze::passes::functionalization {

// n writes one operand, wholly, with what a pure computation of its operands gives.
bool has_pure_form(const ir::Node& n);
// Builds that computation; operands stand for n's operands. The result is fresh and has the type of the operand that n
// writes.
ir::Value* pure_form(const ir::Node& n, const std::vector<ir::Value*>& operands, ir::Builder& b);

}  // namespace braze::passes::functionalization
