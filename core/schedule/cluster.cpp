#include "core/schedule/cluster.h"

#include "core/support/error.h"

namespace braze::schedule {

using ir::Node;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {
// A Cat of more operands than this is written part by part instead of being selected from where it is used.
constexpr size_t kSelectedParts = 4;
}  // namespace

int cost_of(Op op) {
    switch (op) {
        case Op::Scalar:
        case Op::Iota: return 0;
        case Op::Div:
        case Op::Sqrt:
        case Op::Rsqrt:
        case Op::Reciprocal:
        case Op::Gather:
        case Op::Take:
        case Op::Pad: return 4;
        case Op::Cat: return 6;
        case Op::FloorDiv:
        case Op::TruncDiv:
        case Op::Mod:
        case Op::Fmod: return 8;
        case Op::Exp:
        case Op::Exp2:
        case Op::Expm1:
        case Op::Log:
        case Op::Log2:
        case Op::Log10:
        case Op::Log1p:
        case Op::Sin:
        case Op::Cos:
        case Op::Tanh:
        case Op::Erf:
        case Op::Sigmoid: return 12;
        case Op::Tan:
        case Op::Asin:
        case Op::Acos:
        case Op::Atan:
        case Op::Sinh:
        case Op::Cosh:
        case Op::Asinh:
        case Op::Acosh:
        case Op::Atanh:
        case Op::Erfc:
        case Op::Hypot:
        case Op::Atan2: return 20;
        case Op::Pow: return 30;
        default: return 1;
    }
}

Units::Units(const Facts& facts) {
    const size_t n = static_cast<size_t>(facts.graph.id_bound());
    computing_.assign(n, -1);
    storing_.resize(n);
    load_only_.assign(n, false);
    for (const Node* node : facts.graph.nodes)
        for (Value* v : node->results) {
            const ValueFacts& f = facts.of(v);
            if (node->op == Op::Call || node->op == Op::Input) {
                load_only_[static_cast<size_t>(v->id)] = true;
                continue;
            }
            if (is_empty(v)) continue;
            const OpKind kind = ir::kind(node->op);
            // A reduction of no elements is a constant.
            const bool constant = node->op == Op::Scalar || node->op == Op::Iota ||
                                  (kind == OpKind::Reduce && is_empty(node->operands[0]));
            if (is_view(*node) || constant) {
                if (f.stored) add(UnitKind::Keep, v, f);
                if (f.stored && f.opaque) load_only_[static_cast<size_t>(v->id)] = true;
            } else if (node->op == Op::Cat && (f.stored || f.uses > 1 || node->operands.size() > kSelectedParts)) {
                load_only_[static_cast<size_t>(v->id)] = true;
                add(UnitKind::Part, v, f);
            } else {
                add(kind == OpKind::Reduce ? UnitKind::Reduce : UnitKind::Pointwise, v, f);
                computing_[static_cast<size_t>(v->id)] = static_cast<int>(list.size()) - 1;
            }
        }
}

void Units::add(UnitKind kind, Value* v, const ValueFacts& f) {
    Unit u{kind, v};
    u.region = f.region;
    u.cost = cost_of(v->node->op);
    if (kind != UnitKind::Part) {
        storing_[static_cast<size_t>(v->id)] = {static_cast<int>(list.size())};
        list.push_back(std::move(u));
        return;
    }
    const size_t axis = static_cast<size_t>(v->node->get<Expr>("dim")->value());
    u.cost = 1;
    for (size_t i = 0; i < v->node->operands.size(); ++i) {
        const Value* x = v->node->operands[i];
        u.part = static_cast<int>(i);
        if (!is_empty(x)) {
            storing_[static_cast<size_t>(v->id)].push_back(static_cast<int>(list.size()));
            list.push_back(u);
        }
        u.part_offset = u.part_offset + x->type.sizes[axis];
    }
}

std::vector<Value*> Units::elementwise(const Unit& u) const {
    const Node& n = u.node();
    switch (u.kind) {
        case UnitKind::Keep:
            return is_view(n) && !load_only(u.value) ? std::vector<Value*>{u.value} : std::vector<Value*>{};
        case UnitKind::Part: return {n.operands[static_cast<size_t>(u.part)]};
        case UnitKind::Reduce: return n.operands;
        case UnitKind::Pointwise: break;
    }
    if (n.op == Op::Gather) return {n.operands[1]};
    if (n.op == Op::Take || n.op == Op::Cat || n.op == Op::Pad) return {};
    return n.operands;
}

std::vector<Value*> Units::irregular(const Unit& u) const {
    const Node& n = u.node();
    if (u.kind == UnitKind::Keep && is_view(n) && load_only(u.value)) return n.operands;
    if (u.kind != UnitKind::Pointwise) return {};
    if (n.op == Op::Gather) return {n.operands[0]};
    if (n.op == Op::Take || n.op == Op::Cat || n.op == Op::Pad) return n.operands;
    return {};
}

Value* Units::source(Value* v) const {
    while (is_view(*v->node) && !load_only(v)) v = v->node->operands[0];
    return v;
}

}  // namespace braze::schedule
