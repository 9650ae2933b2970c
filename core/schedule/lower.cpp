#include "core/schedule/lower.h"

#include <algorithm>
#include <unordered_map>

#include "core/ir/builder.h"
#include "core/ir/op.h"
#include "core/schedule/scalars.h"
#include "core/support/error.h"

namespace braze::schedule {

using ir::DType;
using ir::Node;
using ir::Op;
using ir::OpKind;
using ir::Value;

namespace {

class Lowering {
  public:
    Lowering(const Facts& facts, const Units& units, const Fused& fused, const std::vector<bool>& stored, int cluster)
        : facts_(facts),
          units_(units),
          stored_(stored),
          cluster_(cluster),
          axes_(fused.clusters[static_cast<size_t>(cluster)].axes) {}

    Draft run(const Cluster& c) {
        for (int u : c.units)
            if (stored_[static_cast<size_t>(u)]) store(units_.list[static_cast<size_t>(u)]);
        draft_.axes = c.axes;
        draft_.next_axis = c.next_axis;
        draft_.reduces = c.reduces;
        draft_.ordered = c.ordered;
        draft_.scalars = std::move(s_.list);
        prune();
        return std::move(draft_);
    }

  private:
    // Drops what no store needs.
    void prune() {
        auto& list = draft_.scalars;
        std::vector<int> place(list.size(), -1);
        for (const auto& s : draft_.stores) place[static_cast<size_t>(s.scalar)] = 0;
        std::vector<Expr> symbols;
        for (const auto& s : draft_.stores) s.address.symbols(symbols);
        for (size_t i = list.size(); i-- > 0;) {
            const loops::Scalar& s = list[i];
            if (s.kind == loops::ScalarKind::IndexOf &&
                std::find(symbols.begin(), symbols.end(), s.symbol) != symbols.end())
                place[i] = 0;
            if (place[i] < 0) continue;
            for (int a : s.args) place[static_cast<size_t>(a)] = 0;
            if (s.mask >= 0) place[static_cast<size_t>(s.mask)] = 0;
            s.address.symbols(symbols);
        }
        size_t kept = 0;
        for (size_t i = 0; i < list.size(); ++i) {
            if (place[i] < 0) continue;
            place[i] = static_cast<int>(kept);
            for (int& a : list[i].args) a = place[static_cast<size_t>(a)];
            if (list[i].mask >= 0) list[i].mask = place[static_cast<size_t>(list[i].mask)];
            if (kept != i) list[kept] = std::move(list[i]);
            ++kept;
        }
        list.resize(kept, loops::Scalar{loops::ScalarKind::Const, DType::F32});
        for (auto& s : draft_.stores) s.scalar = place[static_cast<size_t>(s.scalar)];
    }

    void store(const Unit& u) {
        Index at = u.result_index();
        int scalar;
        if (u.kind == UnitKind::Part) {
            scalar = element(u.node().operands[static_cast<size_t>(u.part)], at, -1);
            const size_t axis = static_cast<size_t>(u.node().get<Expr>("dim")->value());
            at[axis] = at[axis] + u.part_offset;
        } else if (u.kind == UnitKind::Keep && is_view(u.node())) {
            scalar = element(u.node().operands[0], operand_index(u.node(), at), -1);
        } else if (u.kind == UnitKind::Keep) {
            scalar = constant(u.value, at);
        } else {
            scalar = element(u.value, at, -1);
        }
        draft_.stores.push_back({buffer(u.value), dot(at, u.value->type.strides), scalar});
    }

    int buffer(Value* v) {
        for (size_t i = 0; i < draft_.buffers.size(); ++i)
            if (draft_.buffers[i] == v) return static_cast<int>(i);
        draft_.buffers.push_back(v);
        return static_cast<int>(draft_.buffers.size()) - 1;
    }

    // ---- the scalar that is v's element at `index`; where `mask` (>= 0) is false anything will do

    struct Key {
        int value, mask;
        Index index;
        bool operator==(const Key&) const = default;
    };
    struct Hash {
        size_t operator()(const Key& k) const {
            size_t h = static_cast<size_t>(k.value) * 1000003 + static_cast<size_t>(k.mask);
            for (const Expr& e : k.index) h = h * 1000003 + e.hash();
            return h;
        }
    };

    int element(Value* v, const Index& index, int mask) {
        Key key{v->id, mask, index};
        if (auto it = known_.find(key); it != known_.end()) return it->second;
        const int s = compute(v, index, mask);
        known_.emplace(std::move(key), s);
        return s;
    }

    // It is in memory, and not only because this very kernel writes it.
    bool in_memory(const Value* v) const {
        if (units_.load_only(v)) return true;
        const int u = units_.computing(v);
        return u >= 0 && stored_[static_cast<size_t>(u)] && units_.list[static_cast<size_t>(u)].cluster != cluster_;
    }

    int compute(Value* v, const Index& index, int mask) {
        const Node& n = *v->node;
        if (is_empty(v)) return s_.constant_int(v->type.dtype, 0);
        if (const auto& layout = facts_.of(v).layout; layout && in_memory(layout->root))
            return s_.load(buffer(layout->root), v->type.dtype, layout->offset + dot(index, layout->strides), mask);
        switch (ir::kind(n.op)) {
            case OpKind::View: return element(n.operands[0], operand_index(n, index), mask);
            case OpKind::Unary:
            case OpKind::Binary:
            case OpKind::Ternary: return pointwise(v, index, mask);
            case OpKind::Cast: return s_.cast(element(n.operands[0], index, mask), v->type.dtype);
            case OpKind::Constant: return scalar(v);
            case OpKind::Create: return iota(v, index);
            case OpKind::Structure:
                if (n.op == Op::Cat) return cat(n, index, mask);
                if (n.op == Op::Pad) return pad(n, index, mask);
                return element(n.operands[0], index, mask);
            case OpKind::Index: return n.op == Op::Gather ? gather(n, index, mask) : take(n, index, mask);
            case OpKind::Reduce: return reduce(v, index);
            default: break;
        }
        throw InternalError("value %" + std::to_string(v->id) + " is not in memory where it is loaded");
    }

    int pointwise(Value* v, const Index& index, int mask) {
        std::vector<int> args;
        args.reserve(v->node->operands.size());
        for (Value* x : v->node->operands) args.push_back(element(x, index, mask));
        const Op op = v->node->op;
        // Masked-off operands are zeros, and an integer division by zero traps.
        if (mask >= 0 && !ir::is_float(v->type.dtype) &&
            (op == Op::FloorDiv || op == Op::TruncDiv || op == Op::Mod || op == Op::Fmod))
            args[1] = s_.where(mask, args[1], s_.constant_int(v->type.dtype, 1));
        return s_.apply(op, v->type.dtype, std::move(args));
    }

    int attribute(const Node& n, DType d) {
        if (const double* x = n.get<double>("value")) return s_.constant(d, *x);
        if (const bool* x = n.get<bool>("value")) return s_.constant_int(d, *x);
        const Expr* e = n.get<Expr>("value");
        BRAZE_CHECK(e, "a constant without a value");
        return s_.cast(s_.index(*e), d);
    }
    // A value that needs no memory, for the kernel that stores it: readers may have to load it.
    int constant(Value* v, const Index& index) {
        if (v->node->op == Op::Scalar) return scalar(v);
        return v->node->op == Op::Iota ? iota(v, index) : reduce(v, index);
    }
    int scalar(const Value* v) { return attribute(*v->node, v->type.dtype); }

    int iota(const Value* v, const Index& index) {
        const Node& n = *v->node;
        const Expr& i = index[static_cast<size_t>(n.get<Expr>("axis")->value())];
        return s_.cast(s_.index(*n.get<Expr>("start") + i * *n.get<Expr>("step")), v->type.dtype);
    }

    // i < n as a scalar; -1: always, -2: never
    int below(const Expr& i, const Expr& n) {
        if (shapes::known_lt(i, n)) return -1;
        if (shapes::known_le(n, i)) return -2;
        return s_.apply(Op::Lt, DType::Bool, {s_.index(i), s_.index(n)});
    }

    int cat(const Node& n, const Index& index, int mask) {
        const size_t axis = static_cast<size_t>(n.get<Expr>("dim")->value());
        struct Choice {
            int cond, value;
        };
        std::vector<Choice> choices;
        Expr start(0);
        int rest = -1;  // true where no operand so far is the one
        for (size_t k = 0; k < n.operands.size(); ++k) {
            Value* x = n.operands[k];
            if (is_empty(x)) continue;
            const Expr end = start + x->type.sizes[axis];
            const int in = k + 1 == n.operands.size() ? -1 : below(index[axis], end);
            if (in != -2) {
                Index at = index;
                at[axis] = at[axis] - start;
                choices.push_back({in, element(x, at, s_.both(mask, s_.both(rest, in)))});
            }
            if (in == -1) break;
            if (in >= 0) rest = s_.both(rest, s_.apply(Op::LogicalNot, DType::Bool, {in}));
            start = end;
        }
        BRAZE_CHECK(!choices.empty(), "cat without elements");
        int result = choices.back().value;
        for (size_t k = choices.size() - 1; k-- > 0;) result = s_.where(choices[k].cond, choices[k].value, result);
        return result;
    }

    int pad(const Node& n, const Index& index, int mask) {
        Value* x = n.operands[0];
        const int fill = attribute(n, x->type.dtype);
        if (is_empty(x)) return fill;
        const auto &low = *n.get<std::vector<Expr>>("low"), &sizes = x->type.sizes;
        Index at(index.size());
        int inside = -1;
        for (size_t i = 0; i < index.size(); ++i) {
            at[i] = index[i] - low[i];
            const int before = below(at[i], Expr(0)), in = below(at[i], sizes[i]);
            if (before == -1 || in == -2) return fill;
            if (before >= 0) inside = s_.both(inside, s_.apply(Op::LogicalNot, DType::Bool, {before}));
            if (in >= 0) inside = s_.both(inside, in);
        }
        return s_.where(inside, element(x, at, s_.both(mask, inside)), fill);
    }

    Expr position(Value* indices, const Index& index, const Expr& size, int mask, bool wrap) {
        return s_.indirect(s_.cast(element(indices, index, mask), DType::I64), size, mask, wrap);
    }

    int gather(const Node& n, const Index& index, int mask) {
        Value* x = n.operands[0];
        const size_t axis = static_cast<size_t>(n.get<Expr>("dim")->value());
        Index at = index;
        at[axis] =
            position(n.operands[1], index, x->type.sizes[axis], mask, false);  // torch.gather takes no negative index
        return element(x, at, mask);
    }

    int take(const Node& n, const Index& index, int mask) {
        Value* x = n.operands[0];
        const std::vector<int> axes = ir::to_ints(*n.get<std::vector<Expr>>("axes"));
        const size_t place = static_cast<size_t>(n.get<Expr>("at")->value());
        const size_t rank = n.operands[1]->type.sizes.size();
        const Index inner(index.begin() + static_cast<long>(place), index.begin() + static_cast<long>(place + rank));
        Index at(x->type.sizes.size());
        std::vector<bool> indexed(at.size(), false);
        for (size_t i = 0; i < axes.size(); ++i) {
            const size_t axis = static_cast<size_t>(axes[i]);
            indexed[axis] = true;
            at[axis] = position(n.operands[i + 1], inner, x->type.sizes[axis], mask, true);
        }
        size_t next = 0;
        for (size_t i = 0; i < at.size(); ++i) {
            if (indexed[i]) continue;
            if (next == place) next += rank;
            at[i] = index[next++];
        }
        return element(x, at, mask);
    }

    int reduce(Value* v, const Index& index) {
        const Node& n = *v->node;
        const Op op = n.op;
        const DType d = v->type.dtype;
        Value* x = n.operands[0];
        if (is_empty(x)) return identity(op, d);
        const int u = units_.computing(v);
        BRAZE_CHECK(u >= 0, "a reduction without a unit");
        const Unit& unit = units_.list[static_cast<size_t>(u)];
        BRAZE_CHECK(unit.cluster == cluster_ && unit.result_index() == index,
                    "the reduction %" + std::to_string(v->id) + " is neither in memory nor computed here");
        const int arg = element(x, unit.index, -1);
        const bool position = op == Op::ArgMax || op == Op::ArgMin;
        bool reduced = false;
        std::vector<Expr> symbols;
        for (size_t i = 0; i < unit.index.size(); ++i)
            if (is_reduced(n, i)) unit.index[i].symbols(symbols);
        for (const Axis& a : axes_)
            for (const Expr& s : symbols) reduced |= s == a.symbol;
        if (!reduced) return position ? s_.constant_int(d, 0) : s_.cast(arg, d);
        const DType accumulate = ir::compute_type(position ? x->type.dtype : d);
        return s_.cast(s_.reduce(op, accumulate, arg), d);
    }

    int identity(Op op, DType d) {
        if (op == Op::Sum || op == Op::Any) return s_.constant_int(d, 0);
        if (op == Op::Prod || op == Op::All) return s_.constant_int(d, 1);
        throw InternalError(std::string(ir::name(op)) + " of no elements");
    }

    const Facts& facts_;
    const Units& units_;
    const std::vector<bool>& stored_;
    const int cluster_;
    const std::vector<Axis>& axes_;
    Draft draft_;
    Scalars s_;
    std::unordered_map<Key, int, Hash> known_;
};

}  // namespace

Draft lower(const Facts& facts, const Units& units, const Fused& fused, const std::vector<bool>& stored, int cluster) {
    return Lowering(facts, units, fused, stored, cluster).run(fused.clusters[static_cast<size_t>(cluster)]);
}

}  // namespace braze::schedule
