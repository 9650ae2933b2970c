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
    return name.ends_with('_') && !name.ends_with("__");
}

// Can be run again on another base with the same result.
bool is_plain_view(const Node& n) {
    if (n.operands.size() != 1 || n.ordered || !n.writes.empty() || sees_storage(n) || changes_metadata(n))
        return false;
    return std::all_of(n.aliases.begin(), n.aliases.end(), [](int a) { return a == 0; });
}

const Value* above(const Value* v) {
    int a = alias_of(v);
    return a < 0 ? nullptr : v->node->operands[static_cast<size_t>(a)];
}

// The results of in-place calls are the tensor that they wrote. (A call may write one tensor and make others.)
const Value* tensor_of(const Value* v) {
    while (!v->node->writes.empty() && alias_of(v) >= 0) v = above(v);
    return v;
}

// v is the tensor `root`, or derived from it.
bool is_below(const Value* v, const Value* root) {
    for (; v; v = above(v)) {
        v = tensor_of(v);
        if (v == root) return true;
    }
    return false;
}

// v has the elements of the tensor `root`, in the same places.
bool is_whole(const Value* v, const Value* root) {
    while ((v = tensor_of(v)) != root) {
        const Node& n = *v->node;
        if (n.op != Op::Call || (n.callee != "aten::detach" && n.callee != "aten::alias")) return false;
        const Value* up = above(v);
        if (!up || up->type != v->type) return false;
        v = up;
    }
    return true;
}

}  // namespace

Plan::Plan(const ir::Graph& g)
    : storages_(static_cast<size_t>(g.storage_bound())),
      origins_(static_cast<size_t>(g.id_bound())),
      last_use_(static_cast<size_t>(g.id_bound()), -1) {
    for (size_t i = 0; i < g.nodes.size(); ++i)
        for (const Value* v : g.nodes[i]->operands) last_use_[static_cast<size_t>(v->id)] = static_cast<int>(i);
    for (const Value* v : g.outputs) last_use_[static_cast<size_t>(v->id)] = static_cast<int>(g.nodes.size());
    for (const Node* n : g.nodes) {
        look_at(*n);
        ++position_;
    }
    for (const Node* n : g.nodes)
        for (const Value* v : n->results) {
            if (v->storage < 0) continue;
            const Storage& s = storages_[static_cast<size_t>(v->storage)];
            if (s.bad || s.pure.empty()) continue;
            int a = alias_of(v);
            origins_[static_cast<size_t>(v->id)] = {v->storage, a < 0 ? nullptr : n->operands[static_cast<size_t>(a)],
                                                    a >= 0 && !n->writes.empty()};
        }
    for (const Storage& s : storages_)
        if (!s.bad) rewritten_.insert(s.pure.begin(), s.pure.end());
}

void Plan::look_at(const Node& n) {
    for (const Value* v : n.results) {
        if (v->storage < 0) continue;
        Storage& s = storages_[static_cast<size_t>(v->storage)];
        s.values.push_back(v);
        int a = alias_of(v);
        if (a < 0) {
            s.bad |= s.base != nullptr;
            s.base = s.root = v;
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
    bool has_form = has_pure_form(n);
    for (int w : n.writes) {
        const Value* v = n.operands[static_cast<size_t>(w)];
        if (v->storage < 0) continue;
        Storage& s = storages_[static_cast<size_t>(v->storage)];
        if (s.bad) continue;
        if (has_form && is_whole(v, s.root)) {
            s.pure.push_back(&n);
        } else if (has_form && can_be_root(v, s)) {
            s.root = tensor_of(v);
            s.pure.push_back(&n);
        } else {
            s.root = s.base;
            s.pure.clear();
        }
    }
}

// Nothing of the storage is used later that is not derived from v. Of an input, what was written before would be lost.
bool Plan::can_be_root(const Value* v, const Storage& s) const {
    if (s.base->node->op == Op::Input && !s.pure.empty()) return false;
    const Value* tensor = tensor_of(v);
    return is_below(v, s.root) && std::all_of(s.values.begin(), s.values.end(), [&](const Value* other) {
               return last_use_[static_cast<size_t>(other->id)] <= position_ || is_below(other, tensor);
           });
}

}  // namespace braze::passes::functionalization
