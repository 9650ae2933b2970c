#include "core/passes/decompose/rules.h"

#include <unordered_map>

namespace braze::passes::decomposition {

Rule find_rule(std::string_view callee) {
    static const std::unordered_map<std::string_view, Rule> table = {
#define RULE(callee, rule) {callee, rules::rule},
#define RULE_OP(callee, rule, op) {callee, [](Lowering& c) { rules::rule(c, ir::Op::op); }},
#include "core/passes/decompose/decompositions.def"
#undef RULE
#undef RULE_OP
    };
    auto it = table.find(callee);
    return it == table.end() ? nullptr : it->second;
}

}  // namespace braze::passes::decomposition
