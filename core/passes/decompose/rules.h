// The table of decompositions: decompositions.def. A rule is a function of a Lowering; the semantics files are by
// family.
#pragma once
#include <string_view>

#include "core/ir/graph.h"

namespace braze::passes::decomposition {

class Lowering;
using Rule = void (*)(Lowering&);

namespace rules {
#define RULE(callee, rule) void rule(Lowering& c);
#define RULE_OP(callee, rule, op) void rule(Lowering& c, ir::Op op);
#include "core/passes/decompose/decompositions.def"
#undef RULE
#undef RULE_OP
}  // namespace rules

// nullptr: the operator has no rule.
Rule find_rule(std::string_view callee);

}  // namespace braze::passes::decomposition
