#include "core/schedule/facts.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/ir/builder.h"
#include "core/support/error.h"

namespace braze::schedule {

using ir::Node;
using ir::Op;
using ir::OpKind;
using ir::Value;

bool is_view(const Node& n) { return ir::kind(n.op) == OpKind::View; }
bool is_computed(const Node& n) { return n.op != Op::Call && n.op != Op::Input && !is_view(n); }

bool is_alias(const Node& view) {
    if (view.op == Op::AsStrided) return true;
    if (view.op == Op::Flip) return false;
    const Value *v = view.results[0], *x = view.operands[0];
    if (v->storage >= 0 && x->storage >= 0) return v->storage == x->storage;
    return !view.aliases.empty() && view.aliases[0] >= 0;
}

bool is_empty(const Value* v) {
    return std::any_of(v->type.sizes.begin(), v->type.sizes.end(), [](const Expr& s) { return s == Expr(0); });
}

Expr extent(const ir::TensorType& t) {
    if (ir::is_contiguous(t)) return t.numel();
    std::vector<Expr> terms{Expr(1)};
    for (size_t i = 0; i < t.sizes.size(); ++i) {
        if (t.sizes[i] == Expr(0)) return Expr(0);
        terms.push_back((t.sizes[i] - Expr(1)) * t.strides[i]);
    }
    return shapes::max(shapes::sum(terms), Expr(0));
}

std::optional<Layout> view_layout(const Node& view, const Layout& operand) {
    const ir::TensorType& from = view.operands[0]->type;
    const ir::TensorType& to = view.results[0]->type;
    Layout out{operand.root, operand.offset, std::vector<Expr>(to.sizes.size(), Expr(0))};
    switch (view.op) {
        case Op::Permute: {
            const std::vector<int> dims = ir::to_ints(*view.get<std::vector<Expr>>("dims"));
            for (size_t i = 0; i < dims.size(); ++i) out.strides[i] = operand.strides[static_cast<size_t>(dims[i])];
            return out;
        }
        case Op::Expand: {
            const size_t added = to.sizes.size() - from.sizes.size();
            for (size_t i = added; i < to.sizes.size(); ++i)
                if (from.sizes[i - added] == to.sizes[i]) out.strides[i] = operand.strides[i - added];
            return out;
        }
        case Op::Slice: {
            const auto& starts = *view.get<std::vector<Expr>>("starts");
            const auto& steps = *view.get<std::vector<Expr>>("steps");
            out.offset = out.offset + dot(starts, operand.strides);
            for (size_t i = 0; i < to.sizes.size(); ++i) out.strides[i] = operand.strides[i] * steps[i];
            return out;
        }
        case Op::Reshape: {
            auto strides = ir::view_strides({from.dtype, from.sizes, operand.strides}, to.sizes);
            if (!strides) return std::nullopt;
            out.strides = *strides;
            return out;
        }
        case Op::AsStrided:
            out.offset =
                *view.get<Expr>("offset");  // from the start of the storage, which is where a computed root starts
            out.strides = to.strides;
            return out;
        default: return std::nullopt;
    }
}

Facts::Facts(ir::Graph& g) : graph(g), values_(static_cast<size_t>(g.id_bound())) {
    for (size_t i = 0; i < g.nodes.size(); ++i) describe(g.nodes[i], static_cast<int>(i));
    for (Value* v : g.outputs) ++of(v).uses;
    find_layouts();
    find_owners();
    find_unstable();
    require_outputs();
    require_call_operands();
    require_across_regions();
    find_layouts();
    find_owners();
    for (const Value* v : g.outputs) of(of(v).owner).escapes = of(v).escapes = true;
}

void Facts::describe(Node* n, int position) {
    for (Value* v : n->operands) ++of(v).uses;
    for (Value* v : n->results) {
        ValueFacts& f = of(v);
        f.position = position;
        f.region = regions_ - 1;
        f.base = v;
        f.in_base = Layout{v, Expr(0), v->type.strides};
        f.opaque = n->op == Op::Call || n->op == Op::Input;
        if (!is_view(*n)) continue;
        Value* x = n->operands[0];
        f.alias = is_alias(*n);
        if (!f.alias) continue;
        f.base = of(x).base;
        // The program says where a true view lies; this also covers reshapes whose sizes cannot be compared.
        auto layout = view_layout(*n, of(x).in_base);
        for (size_t d = 0; layout && d < v->type.sizes.size(); ++d) {
            const Expr &said = v->type.strides[d], &is = layout->strides[d];
            BRAZE_CHECK(v->type.sizes[d] == Expr(1) || said == is || !said.is_const() || !is.is_const() || is_empty(v),
                        "%" + std::to_string(v->id) + " is said to be a view with stride " + said.str() +
                            ", but it would have " + is.str());
        }
        f.in_base = Layout{f.base, layout ? layout->offset : of(x).in_base.offset, v->type.strides};
    }
    if (!n->writes.empty()) ++regions_;
}

namespace {

bool has_strides(const Value* v, const std::vector<Expr>& strides) {
    for (size_t d = 0; d < strides.size(); ++d)
        if (v->type.sizes[d] != Expr(1) && v->type.strides[d] != strides[d]) return false;
    return true;
}

}  // namespace

void Facts::find_layouts() {
    for (Node* n : graph.nodes)
        for (Value* v : n->results) {
            ValueFacts& f = of(v);
            if (!is_view(*n) || (f.stored && f.opaque)) {
                f.layout = Layout{v, Expr(0), v->type.strides};
                continue;
            }
            const Value* x = n->operands[0];
            const ValueFacts& o = of(x);
            f.layout.reset();
            if (!o.layout) continue;
            f.layout = view_layout(*n, *o.layout);
            if (f.alias && has_strides(x, o.layout->strides))
                f.layout = Layout{o.layout->root, f.layout ? f.layout->offset : o.layout->offset, v->type.strides};
        }
}

void Facts::find_owners() {
    for (Node* n : graph.nodes)
        for (size_t r = 0; r < n->results.size(); ++r) {
            Value* v = n->results[r];
            ValueFacts& f = of(v);
            f.owner = v;
            if (is_view(*n)) {
                if (f.alias)
                    f.owner = of(n->operands[0]).owner;
                else if (f.shared)
                    f.owner = of(f.layout->root).owner;
            } else if (n->op == Op::Call) {
                int source = r < n->aliases.size() ? n->aliases[r] : -1;
                for (size_t i = 0; i < n->operands.size() && source < 0; ++i)
                    if (v->storage >= 0 && n->operands[i]->storage == v->storage) source = static_cast<int>(i);
                if (source >= 0) f.owner = of(n->operands[static_cast<size_t>(source)]).owner;
            }
        }
}

void Facts::find_unstable() {
    if (regions_ == 1) return;
    std::unordered_set<int> storages;
    std::unordered_set<const Value*> owners;
    for (const Node* n : graph.nodes)
        for (int w : n->writes) {
            const Value* v = n->operands[static_cast<size_t>(w)];
            if (v->storage >= 0) storages.insert(v->storage);
            owners.insert(of(v).owner);
        }
    for (const Node* n : graph.nodes)
        for (Value* v : n->results) {
            ValueFacts& f = of(v);
            f.stable = !owners.count(f.owner) && !(v->storage >= 0 && storages.count(v->storage));
            if (n->op != Op::Call)
                for (const Value* x : n->operands) f.stable &= of(x).stable;
        }
}

void Facts::require_outputs() {
    // How many bases would share the memory of each root.
    std::unordered_map<const Value*, std::unordered_set<const Value*>> wanted;
    for (const Value* v : graph.outputs) {
        const ValueFacts& b = of(of(v).base);
        if (b.layout) wanted[b.layout->root].insert(of(v).base);
    }
    for (const Value* v : graph.outputs) {
        Value* base = of(v).base;
        ValueFacts& f = of(base);
        // A base that is a view is a copy in the program: memory of its own. A root that nobody else sees may serve.
        Value* root = is_view(*base->node) && f.layout ? f.layout->root : nullptr;
        if (root && is_computed(*root->node) && wanted[root].size() == 1 && f.stable && of(root).stable &&
            root->type.numel() == base->type.numel() && has_strides(base, f.layout->strides) &&
            ir::is_dense(base->type) && ir::is_dense(root->type)) {
            f.shared = true;
            of(root).stored = true;
        } else {
            f.stored = true;
        }
    }
}

void Facts::require_call_operands() {
    for (const Node* n : graph.nodes) {
        if (n->op == Op::AsStrided) {  // reads memory by address, whatever its elements mean
            ValueFacts& root = of(of(n->results[0]).base);
            root.stored = root.opaque = true;
        }
        if (n->op != Op::Call) continue;
        for (size_t i = 0; i < n->operands.size(); ++i) {
            Value* base = of(n->operands[i]).base;
            ValueFacts& f = of(base);
            if (f.stored || f.shared) continue;
            const int index = static_cast<int>(i);
            bool exposed = std::find(n->writes.begin(), n->writes.end(), index) != n->writes.end() ||
                           std::find(n->aliases.begin(), n->aliases.end(), index) != n->aliases.end();
            for (const Value* r : n->results) exposed |= r->storage >= 0 && r->storage == n->operands[i]->storage;
            if (is_view(*base->node) && f.layout && !exposed && f.stable && of(f.layout->root).stable &&
                has_strides(base, f.layout->strides)) {
                f.shared = true;
                of(f.layout->root).stored = true;
            } else {
                f.stored = true;
            }
        }
    }
}

// What a node of `region` reads by way of v and what may change in between has to be in memory before.
void Facts::reach(Value* v, int region) {
    while (is_view(*v->node)) {
        ValueFacts& f = of(v);
        if (f.region < region && !f.alias && !f.stable) break;
        v = v->node->operands[0];
    }
    ValueFacts& f = of(v);
    if (f.region >= region || f.stable || f.opaque) return;
    f.stored = f.opaque = true;
}

void Facts::require_across_regions() {
    if (regions_ == 1) return;
    int region = 0;
    for (const Node* n : graph.nodes) {
        if (n->op != Op::Call)
            for (Value* v : n->operands) reach(v, region);
        if (!n->writes.empty()) ++region;
    }
}

}  // namespace braze::schedule
