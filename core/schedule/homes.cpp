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

bool may_raise(const Step& s) {
    if (!s.call) return s.nest.kernel.has_checks;
    constexpr std::string_view table[] = {
#define STEADY_CALL(callee) callee,
#include "core/schedule/steady_calls.def"
#undef STEADY_CALL
    };
    return std::find(std::begin(table), std::end(table), s.call->callee) == std::end(table);
}

}  // namespace

Homes::Homes(const Facts& facts) : facts_(&facts) {
    std::unordered_map<const Value*, int> writers;  // Calls that write the memory of an input
    std::unordered_map<int, int> storages;          // inputs of a storage
    std::vector<const Node*> copies;
    for (const Value* v : facts.graph.inputs)
        if (v->storage >= 0) ++storages[v->storage];
    for (const Node* n : facts.graph.nodes) {
        if (n->op != Op::Call) continue;
        std::unordered_set<const Value*> owners;
        for (int w : n->writes)
            if (const Value* v = facts.of(n->operands[static_cast<size_t>(w)]).owner; owners.insert(v).second)
                ++writers[v];
        if (is_plain_copy(*n)) copies.push_back(n);
    }
    for (const Node* n : copies) {
        const Value *input = n->operands[0], *source = n->operands[1];
        const ValueFacts& f = facts.of(source);
        const bool only_writer = writers[input] == 1 && (input->storage < 0 || storages[input->storage] == 1);
        if (input->node->op != Op::Input || !only_writer || !(source->type == input->type)) continue;
        if (!is_computed(*source->node) || f.escapes || f.owner != source) continue;
        if (std::any_of(n->results.begin(), n->results.end(), [&](const Value* r) { return facts.of(r).uses > 0; }))
            continue;
        if (homes_.try_emplace(source, Home{input, n}).second) copies_.insert(n);
    }
}

bool Homes::all_at_home(const Step& step) const {
    return !step.call && std::all_of(step.writes.begin(), step.writes.end(), [&](const Value* v) { return of(v); });
}

Homes::Readers Homes::readers(const std::vector<Step>& steps) const {
    Readers found;
    for (size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].call && copies_.contains(steps[i].call)) continue;
        for (const Value* v : steps[i].reads) {
            std::vector<size_t>& at = found[facts_->of(v).owner];
            if (at.empty() || at.back() != i) at.push_back(i);
        }
    }
    return found;
}

std::vector<std::vector<Homes::Before>> Homes::wanted_order(const std::vector<Step>& steps) const {
    std::vector<std::vector<Before>> before(steps.size());
    if (homes_.empty()) return before;
    const Readers by_owner = readers(steps);
    std::vector<size_t> raising;
    for (size_t i = 0; i < steps.size(); ++i)
        if (may_raise(steps[i]) && !(steps[i].call && copies_.contains(steps[i].call))) raising.push_back(i);
    for (size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].call) continue;
        for (const Value* v : steps[i].writes) {
            const Value* home = of(v);
            auto at = home ? by_owner.find(home) : by_owner.end();
            if (at == by_owner.end()) continue;
            for (size_t r : at->second)
                if (r != i) before[i].push_back({r, v});
        }
        if (!all_at_home(steps[i])) continue;
        for (size_t r : raising)
            if (r != i) before[i].push_back({r, nullptr});
    }
    return before;
}

void Homes::settle(std::vector<Step>& steps) {
    if (homes_.empty()) return;
    Readers by_owner = readers(steps);
    std::unordered_map<const Value*, std::vector<size_t>> writers;
    size_t last_check = 0;
    bool checks = false;
    for (size_t i = 0; i < steps.size(); ++i) {
        for (const Value* v : steps[i].writes) writers[v].push_back(i);
        if (!steps[i].call && steps[i].nest.kernel.has_checks) last_check = i, checks = true;
    }
    std::unordered_set<const Node*> gone;
    for (auto it = homes_.begin(); it != homes_.end();) {
        const auto& [source, home] = *it;
        const std::vector<size_t>& at = writers[source];
        // (a kernel that finds an index out of range raises, and then nothing should have been written)
        bool fits = at.size() == 1 && !steps[at[0]].call && (!checks || at[0] > last_check);
        for (size_t r : by_owner[home.input]) {
            fits = fits && r <= at[0];
            if (!fits || r != at[0]) continue;
            const Nest& nest = steps[r].nest;
            for (const Value* v : nest.buffers) fits = fits && (v == home.input || facts_->of(v).owner != home.input);
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
