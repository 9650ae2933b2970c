// What the rules for symbolic sizes share, and the rules: see symbolic_rules.def.
#pragma once
#include "bridge/symbolic_rules.h"

namespace braze::bridge::symbolic {

using Sizes = std::vector<Expr>;
// Appends one entry per result. Strides left empty are those of a new dense tensor laid out as the hint is. False: not
// covered.
using Rule = bool (*)(SymbolicCall& c, std::vector<SymbolicMetadata>& out);

inline SymbolicMetadata fresh(Sizes sizes) { return {std::move(sizes), {}, Expr(0)}; }
inline const Sizes& sizes_of(const SymbolicCall& c, size_t operand) { return c.operands.at(operand).metadata.sizes; }
// nullptr: not given.
const Sizes* sizes_of(const SymbolicCall& c, std::string_view name);
Sizes broadcast(SymbolicCall& c, const std::vector<const Sizes*>& shapes);
// Assumes that `from` can be expanded to `to`.
bool expands_to(SymbolicCall& c, const Sizes& from, const Sizes& to);

#define SYMBOLIC_RULE(op, rule) bool rule(SymbolicCall& c, std::vector<SymbolicMetadata>& out);
#include "bridge/symbolic_rules.def"
#undef SYMBOLIC_RULE

}  // namespace braze::bridge::symbolic
