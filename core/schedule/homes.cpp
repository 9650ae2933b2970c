#include "core/schedule/homes.h"

#include <algorithm>
#include <unordered_set>

#include "core/schedule/steps.h"

namespace braze::schedule {

using ir::Node;
using ir::Op;
using ir::Value;

namespace {

bool is_plain_copy(const Node& n) {
    return n.op == Op::Call && n.callee == "aten::copy_" && n.operands.size() == 2 && n.writes == std::vector<int>{0};
}

}  // namespace

Homes::Homes(const Facts& facts) {
    std::unordered_map<const Value*, int> users;  // Calls that touch the memory of an input
    std::unordered_map<int, int> storages;        // inputs of a storage
    std::vector<const Node*> copies;
    for (const Value* v : facts.graph.inputs)
        if (v->storage >= 0) ++storages[v->storage];
    for (const Node* n : facts.graph.nodes) {
        if (n->op != Op::Call) continue;
        std::unordered_set<const Value*> owners;
        for (const Value* v : n->operands) owners.insert(facts.of(v).owner);
        for (const Value* v : owners) ++users[v];
        if (is_plain_copy(*n)) copies.push_back(n);
    }
    for (const Node* n : copies) {
        const Value *input = n->operands[0], *source = n->operands[1];
        const ValueFacts& f = facts.of(source);
        const bool only_user = users[input] == 1 && (input->storage < 0 || storages[input->storage] == 1);
        if (input->node->op != Op::Input || !only_user || !(source->type == input->type)) continue;
        if (!is_computed(*source->node) || f.escapes || f.owner != source) continue;
        if (std::any_of(n->results.begin(), n->results.end(), [&](const Value* r) { return facts.of(r).uses > 0; }))
            continue;
        homes_.try_emplace(source, Home{input, n});
    }
}

void Homes::settle(std::vector<Step>& steps) {
    // A kernel that finds an index out of range raises, and then nothing should have been written.
    if (std::any_of(steps.begin(), steps.end(), [](const Step& s) { return !s.call && s.nest.kernel.has_checks; }))
        homes_.clear();
    if (homes_.empty()) return;
    std::unordered_map<const Value*, std::vector<size_t>> readers, writers;
    for (size_t i = 0; i < steps.size(); ++i) {
        for (const Value* v : steps[i].reads) readers[v].push_back(i);
        for (const Value* v : steps[i].writes) writers[v].push_back(i);
    }
    std::unordered_set<const Node*> gone;
    for (auto it = homes_.begin(); it != homes_.end();) {
        const auto& [source, home] = *it;
        const std::vector<size_t>& at = writers[source];
        bool fits = at.size() == 1 && !steps[at[0]].call;
        for (size_t r : readers[home.input]) {
            if (!fits || steps[r].call == home.copy) continue;
            fits = r <= at[0];
            if (r != at[0]) continue;
            const Nest& nest = steps[r].nest;
            for (size_t w = 0; w < nest.buffers.size(); ++w) {
                const loops::Param& p = nest.kernel.params[w];
                if (nest.buffers[w] == source && p.written)
                    fits &= p.inplace_of >= 0 && nest.buffers[static_cast<size_t>(p.inplace_of)] == home.input;
            }
        }
        if (fits) gone.insert(home.copy);
        it = fits ? std::next(it) : homes_.erase(it);
    }
    std::erase_if(steps, [&](const Step& s) { return s.call && gone.contains(s.call); });
}

}  // namespace braze::schedule
