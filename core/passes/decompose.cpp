// The pass `decompose`: Calls of operators that have a rule become primitive operators, exactly as eager computes them.
// A Call whose arguments its rule does not cover stays a Call.
#include "core/ir/builder.h"
#include "core/passes/decompose/lowering.h"
#include "core/passes/decompose/rules.h"
#include "core/passes/pass.h"

namespace braze::passes {

namespace {

bool has_code(const ir::Node& n) {
    for (const ir::Value* v : n.results) {
        if (!ir::has_code(v->type.dtype)) return false;
    }
    return true;
}

bool lower(ir::Node* n, ir::Builder& b) {
    if (n->op != ir::Op::Call || !n->writes.empty() || n->ordered || n->results.empty() || !has_code(*n)) return false;
    decomposition::Rule rule = decomposition::find_rule(n->callee);
    if (!rule) return false;
    b.set_line(n->line);
    decomposition::Lowering lowering(*n, b);
    try {
        rule(lowering);
    } catch (const decomposition::Declined&) {
        return false;  // what was built so far has no uses
    }
    lowering.commit();
    return true;
}

}  // namespace

bool decompose(ir::Graph& g, Context&) { return ir::rewrite(g, lower); }

}  // namespace braze::passes
