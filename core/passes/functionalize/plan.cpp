#include "core/passes/functionalize/plan.h"

#include <algorithm>

#include "core/passes/functionalize/inplace.h"

namespace braze::passes::functionalization {

using ir::Node;
using ir::Op;
using ir::Value;

namespace {

int alias_of(const Value* v) {
    const Node& n = *v->node;
    return n.aliases.empty() ? -1 : n.aliases[static_cast<size_t>(v->index)];
}

// Depends on where the storage begins, which another base need not share.
bool sees_storage(const Node& n) {
    return n.op == Op::AsStrided || (n.op == Op::Call && n.callee.find("as_strided") != std::string::npos);
}

// Changes its operand's sizes and strides, as aten::transpose_ does.
bool changes_metadata(const Node& n) {
    if (n.op != Op::Call) return false;
    std::string name = n.callee.substr(0, n.callee.find('.'));
    return name.ends_with("_") && !name.ends_with("__");
}

// Can be run again on another base with the same result.
bool is_plain_view(const Node& n) {
    if (n.operands.size() != 1 || n.ordered || !n.writes.empty() || sees_storage(n) || changes_metadata(n))
        return false;
    return std::all_of(n.aliases.begin(), n.aliases.end(), [](int a) { return a == 0; });
}

}  // namespace

Plan::Plan(const ir::Graph& g)
    : storages_(static_cast<size_t>(g.storage_bound())), origins_(static_cast<size_t>(g.id_bound())) {
    for (const Node* n : g.nodes) look_at(*n);
    for (const Node* n : g.nodes)
        for (const Value* v : n->results) {
            if (v->storage < 0) continue;
            const Storage& s = storages_[static_cast<size_t>(v->storage)];
            if (s.bad || s.pure.empty()) continue;
            int a = alias_of(v);
            origins_[static_cast<size_t>(v->id)] = {v->storage, a < 0 ? nullptr : n->operands[static_cast<size_t>(a)],
                                                    !n->writes.empty()};
        }
    for (const Storage& s : storages_)
        if (!s.bad) rewritten_.insert(s.pure.begin(), s.pure.end());
}

void Plan::look_at(const Node& n) {
    for (const Value* v : n.results) {
        if (v->storage < 0) continue;
        Storage& s = storages_[static_cast<size_t>(v->storage)];
        int a = alias_of(v);
        if (a < 0) {
            s.bad |= s.base != nullptr;
            s.base = v;
        } else if (n.writes.empty()) {
            s.bad |= !is_plain_view(n);
        } else {  // the tensor it wrote
            s.bad |= std::find(n.writes.begin(), n.writes.end(), a) == n.writes.end() ||
                     n.operands[static_cast<size_t>(a)]->type != v->type;
        }
    }
    if (sees_storage(n))
        for (const Value* v : n.operands)
            if (v->storage >= 0) storages_[static_cast<size_t>(v->storage)].bad = true;
    if (!n.writes.empty()) look_at_write(n);
}

void Plan::look_at_write(const Node& n) {
    bool pure = has_pure_form(n) && is_whole(n.operands[0]);
    for (int w : n.writes) {
        const Value* v = n.operands[static_cast<size_t>(w)];
        if (v->storage < 0) continue;
        Storage& s = storages_[static_cast<size_t>(v->storage)];
        if (pure)
            s.pure.push_back(&n);
        else
            s.pure.clear();
    }
}

bool Plan::is_whole(const Value* v) const {
    if (v->storage < 0) return false;
    const Value* base = storages_[static_cast<size_t>(v->storage)].base;
    while (v != base) {
        const Node& n = *v->node;
        bool same_elements =
            !n.writes.empty() || (n.op == Op::Call && (n.callee == "aten::detach" || n.callee == "aten::alias"));
        int a = alias_of(v);
        if (!same_elements || a < 0) return false;
        const Value* up = n.operands[static_cast<size_t>(a)];
        if (up->type != v->type) return false;
        v = up;
    }
    return true;
}

}  // namespace braze::passes::functionalization
