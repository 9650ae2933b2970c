#include "core/schedule/demand.h"

#include <algorithm>

namespace braze::schedule {

using ir::Node;
using ir::Op;
using ir::Value;

namespace {

// Computing a value once, but in its only reader's kernel: bounded by the size of that kernel alone.
constexpr int kMovedOps = 60;
constexpr double kMovedLoads = 3;
// Computing it in several kernels.
constexpr int kRepeatedOps = 8;
// Computing it for every element of something this much larger.
constexpr int64_t kBroadcast = 8;
constexpr int kBroadcastOps = 4;
constexpr int kRowOps = 40;

class Demand {
  public:
    Demand(const Facts& facts, const Units& units, const Fused& fused) : facts_(facts), units_(units), fused_(fused) {}

    std::vector<bool> run() {
        const size_t n = units_.list.size();
        costs_.resize(n);
        needed_.resize(n);
        for (size_t u = 0; u < n; ++u) estimate(u);
        std::vector<bool> stored(n, false);
        for (size_t u = n; u-- > 0;) {
            const Unit& unit = units_.list[u];
            stored[u] = decide(u);
            for (int c : stored[u] ? std::vector<int>{unit.cluster} : needed_[u])
                for (Value* v : operands(unit)) need(v, c);
        }
        return stored;
    }

  private:
    struct Cost {
        int ops = 0;                  // to compute an element from what is in memory
        double loads = 0;             // of about as many elements
        bool leaf = false;            // would be stored rather than computed elsewhere
        bool dear_broadcast = false;  // something varies along its innermost axis with it, many times over
        bool reread = false;          // by a reader that takes elements from anywhere
        int64_t elements = 0;
    };

    std::vector<Value*> operands(const Unit& u) const {
        std::vector<Value*> out = units_.elementwise(u), more = units_.irregular(u);
        out.insert(out.end(), more.begin(), more.end());
        return out;
    }

    bool must_store(const Unit& u) const {
        return u.kind == UnitKind::Part || u.kind == UnitKind::Keep || facts_.of(u.value).stored;
    }

    // Does operand v change along the innermost axis of its reader?
    static bool varies_innermost(const Value* v, const Unit& reader) {
        const ir::TensorType& t = reader.kind == UnitKind::Reduce ? v->type : reader.value->type;
        auto inner = innermost_axis(t);
        if (!inner) return true;
        const Node& n = reader.node();
        if (reader.kind == UnitKind::Pointwise && n.op == Op::Take && v != n.operands[0]) {  // an index
            const auto at = static_cast<size_t>(n.get<Expr>("at")->value());
            if (*inner < at || *inner >= at + v->type.sizes.size()) return false;
            inner = *inner - at;
        }
        return *inner >= v->type.strides.size() || v->type.strides[*inner] != Expr(0);
    }

    // May elements of v be read many times, or in vain, by this reader?
    static bool rereads(const Value* v, const Unit& reader) {
        const Node& n = reader.node();
        if (reader.kind != UnitKind::Pointwise) return false;
        return n.op == Op::Cat || ((n.op == Op::Gather || n.op == Op::Take) && v == n.operands[0]);
    }

    void estimate(size_t u) {
        const Unit& unit = units_.list[u];
        Cost& c = costs_[u];
        c.ops = unit.cost;
        c.elements = 1;
        for (const Expr& s : unit.domain()) c.elements *= std::max<int64_t>(hint(s), 1);
        for (Value* v : operands(unit)) {
            const Value* s = units_.source(v);
            const int p = units_.computing(s);
            const int64_t elements =
                p >= 0 ? costs_[static_cast<size_t>(p)].elements : std::max<int64_t>(hint(s->type.numel()), 1);
            const bool small = elements * kBroadcast <= c.elements;
            if (p >= 0) {
                Cost& o = costs_[static_cast<size_t>(p)];
                if (small && varies_innermost(v, unit)) o.dear_broadcast = true;
                if (rereads(v, unit)) o.reread = true;
                if (!o.leaf) {
                    c.ops = std::min(c.ops + o.ops, 10000);
                    c.loads += small ? 0 : o.loads;
                    continue;
                }
            }
            if (s->node->op != ir::Op::Scalar && s->node->op != ir::Op::Iota) c.loads += small ? 0 : 1;
        }
        const bool reduce = unit.kind == UnitKind::Reduce;
        if (reduce) c.elements = std::max<int64_t>(hint(unit.value->type.numel()), 1);
        c.leaf = must_store(unit) || reduce || c.ops > kMovedOps || c.loads > kMovedLoads;
    }

    void need(Value* v, int cluster) {
        const int p = units_.computing(units_.source(v));
        if (p < 0) return;
        auto& list = needed_[static_cast<size_t>(p)];
        if (std::find(list.begin(), list.end(), cluster) == list.end()) list.push_back(cluster);
    }

    bool decide(size_t u) {
        const Unit& unit = units_.list[u];
        if (must_store(unit)) return true;
        const auto& needed = needed_[u];
        const bool at_home = std::find(needed.begin(), needed.end(), unit.cluster) != needed.end();
        const size_t elsewhere = needed.size() - at_home;
        if (elsewhere == 0) return false;
        const Cost& c = costs_[u];
        if (unit.kind == UnitKind::Reduce) return true;
        // A row's value beside a reduction: a store per row is cheaper than anything.
        const Cluster& home = fused_.clusters[static_cast<size_t>(unit.cluster)];
        if (home.reduces && at_home && belongs_to_row(unit)) return true;
        if (c.dear_broadcast && c.ops > kBroadcastOps) return true;
        if (elsewhere == 1 && !at_home && !c.reread) return c.ops > kMovedOps || c.loads > kMovedLoads;
        if (c.loads == 0) return c.ops > kRowOps;  // only rows or single numbers are read
        return c.ops > kRepeatedOps || c.loads > (at_home || elsewhere > 1 ? 1 : 2);
    }

    bool belongs_to_row(const Unit& unit) const {
        const Cluster& home = fused_.clusters[static_cast<size_t>(unit.cluster)];
        int64_t all = 1;
        for (const Axis& a : home.axes) all *= std::max<int64_t>(hint(a.extent), 1);
        return costs_[static_cast<size_t>(&unit - units_.list.data())].elements < all;
    }

    const Facts& facts_;
    const Units& units_;
    const Fused& fused_;
    std::vector<Cost> costs_;
    std::vector<std::vector<int>> needed_;  // per unit: the clusters that compute it or want to
};

}  // namespace

std::vector<bool> decide_stores(const Facts& facts, const Units& units, const Fused& fused) {
    return Demand(facts, units, fused).run();
}

}  // namespace braze::schedule
