// The pass `dce`. A node stays if one of its results is used by a node that stays or is an output, if it is ordered, if
// it has no results and is a Call (then it can only be there for its effect), or if it writes memory that is an
// input's, an output's or is read by a later node that stays.
#include <algorithm>

#include "core/passes/memory.h"
#include "core/passes/pass.h"

namespace braze::passes {

bool eliminate_dead(ir::Graph& g, Context&) {
    Memory memory(g);
    std::vector<char> live(static_cast<size_t>(g.id_bound()), 0);
    std::vector<char> read_later(static_cast<size_t>(memory.count()), 0);
    for (const ir::Value* v : g.outputs) live[static_cast<size_t>(v->id)] = 1;

    auto stays = [&](const ir::Node& n) {
        if (n.op == ir::Op::Input || n.ordered || (n.op == ir::Op::Call && n.results.empty())) return true;
        for (const ir::Value* v : n.results)
            if (live[static_cast<size_t>(v->id)]) return true;
        return std::any_of(n.writes.begin(), n.writes.end(), [&](int w) {
            const ir::Value* v = n.operands[static_cast<size_t>(w)];
            return memory.is_input(v) || memory.is_output(v) || read_later[static_cast<size_t>(memory.of(v))];
        });
    };
    std::vector<ir::Node*> kept;
    kept.reserve(g.nodes.size());
    for (size_t i = g.nodes.size(); i-- > 0;) {
        ir::Node* n = g.nodes[i];
        if (!stays(*n)) continue;
        kept.push_back(n);
        for (const ir::Value* v : n->operands) {
            live[static_cast<size_t>(v->id)] = 1;
            read_later[static_cast<size_t>(memory.of(v))] = 1;
        }
    }
    if (kept.size() == g.nodes.size()) return false;
    std::reverse(kept.begin(), kept.end());
    g.nodes = std::move(kept);
    return true;
}

}  // namespace braze::passes
