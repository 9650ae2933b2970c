#include "core/schedule/fusion.h"

#include <algorithm>
#include <set>

#include "core/schedule/axes.h"
#include "core/schedule/mapping.h"
#include "core/support/error.h"

namespace braze::schedule {

using ir::Node;
using ir::Op;
using ir::Value;

namespace {

// A cluster whose reduced axes are not innermost runs down columns; element-wise stores in it are worth it only while a
// block of columns stays in the cache.
constexpr int64_t kColumnRows = 48;
// Units farther apart in the program are not brought together only because they read the same thing.
constexpr int kSiblingDistance = 48;
constexpr int kMaxStages = 6;
// A function is many instructions, and the time to compile a kernel grows faster than its length. A kernel of some
// thirty functions is bound by them and not by its loads and stores.
constexpr int kFunction = 12, kFunctionWeight = 8;
int weight(const Unit& u) { return u.cost >= kFunction ? kFunctionWeight : u.cost > 6 ? 2 : 1; }

class Fusion {
  public:
    Fusion(const Facts& facts, Units& units, const Options& options)
        : facts_(facts), units_(units), options_(options) {}

    Fused run() {
        reads_.resize(static_cast<size_t>(facts_.graph.id_bound()));
        size_t next = 0;
        int last_ordered = -1, region = 0;
        for (const Node* n : facts_.graph.nodes) {
            if (n->op == Op::Call) {
                call(n, region, last_ordered);
                region += !n->writes.empty();
                continue;
            }
            while (next < units_.list.size() && &units_.list[next].node() == n) place(static_cast<int>(next++));
        }
        BRAZE_CHECK(next == units_.list.size(), "a unit was not placed");
        return std::move(out_);
    }

  private:
    Unit& unit(int u) { return units_.list[static_cast<size_t>(u)]; }
    Operands operands_of(const Unit& u) const { return {units_.elementwise(u), units_.irregular(u)}; }
    Cluster& cluster(int c) { return out_.clusters[static_cast<size_t>(c)]; }
    int item(int c) const { return out_.item_of_cluster[static_cast<size_t>(c)]; }

    // ---- what depends on what

    // Items that have to be done before v's elements can be had; only those of the same region matter.
    void items_before(Value* v, int region, std::vector<int>& out) {
        Value* s = units_.source(v);
        if (facts_.of(s).region != region) return;
        if (const int u = units_.computing(s); u >= 0)
            out.push_back(item(unit(u).cluster));
        else if (auto c = out_.item_of_call.find(s->node); c != out_.item_of_call.end())
            out.push_back(c->second);
        else if (units_.load_only(s))
            for (int p : units_.storing(s)) out.push_back(item(unit(p).cluster));
    }

    void call(const Node* n, int region, int& last_ordered) {
        const int it = out_.order.add();
        out_.item_of_call[n] = it;
        std::vector<int> before;
        for (Value* v : n->operands) {
            const Value* base = facts_.of(v).base;
            Value* memory = facts_.of(base).shared ? facts_.of(base).layout->root : const_cast<Value*>(base);
            if (facts_.of(memory).region != region) continue;
            if (auto c = out_.item_of_call.find(memory->node); c != out_.item_of_call.end())
                before.push_back(c->second);
            for (int u : units_.storing(memory)) before.push_back(item(unit(u).cluster));
        }
        for (int b : before) out_.order.depend(it, b);
        if (!n->ordered) return;
        if (last_ordered >= 0) out_.order.depend(it, last_ordered);
        last_ordered = it;
    }

    // ---- joining

    // Splits an axis that occurs on both sides of a reduction, where it is divided by a factor of its extent.
    bool separate(const Unit& u, Index& index, int c) {
        for (int round = 0; round < 4; ++round) {
            if (Mapping::reduced_axes(u, index, cluster(c))) return true;
            bool changed = false;
            for (const Expr& e : index) {
                auto s = find_split(e, cluster(c).axes);
                if (!s) continue;
                split_axis(c, *s, index);
                changed = true;
                break;
            }
            if (!changed) return false;
        }
        return false;
    }

    void split_axis(int c, const AxisSplit& s, Index& index) {
        Cluster& cl = cluster(c);
        const auto map = apply_split(cl.axes, s, cl.next_axis);
        for (Expr& e : index) e = e.substitute(map);
        for (int m : cl.units)
            for (Expr& e : unit(m).index) e = e.substitute(map);
        for (auto& list : reads_)
            for (Read& r : list)
                if (r.cluster == c)
                    for (Expr& e : r.index) e = e.substitute(map);
    }

    static int64_t reduced_count(const Cluster& c) {
        int64_t n = 1;
        for (const Axis& a : c.axes)
            if (a.reduced) n *= hint(a.extent);
        return n;
    }

    bool fits(const Unit& u, Index& index, int c) {
        Cluster& cl = cluster(c);
        if (cl.cost > options_.cluster_limit) return false;
        if (u.kind != UnitKind::Reduce) {
            if (!cl.reduces) return true;
            const bool full = Mapping::runs_over_reduced(index, cl);
            return !full || !cl.column || reduced_count(cl) <= kColumnRows;
        }
        if (!separate(u, index, c)) return false;
        Cluster& now = cluster(c);  // its axes may have been split
        const auto axes = *Mapping::reduced_axes(u, index, now);
        if (std::none_of(axes.begin(), axes.end(), [](bool b) { return b; }) && now.reduces) return false;
        if (!Mapping::keeps_order(u, index, now.axes, axes)) return false;
        if (now.reduces) {
            for (size_t i = 0; i < axes.size(); ++i)
                if (now.axes[i].reduced != axes[i]) return false;
            int reduces = 0;
            for (int m : now.units) reduces += unit(m).kind == UnitKind::Reduce;
            return reduces < 2 * kMaxStages;
        }
        // A reduction down columns starts anew: the cluster's stores should stay row by row.
        return !reduces_columns(u.node());
    }

    bool try_join(int u, int c, Index index, const std::vector<int>& before) {
        if (!out_.order.allows(item(c), before) || !fits(unit(u), index, c)) return false;
        if (unit(u).kind == UnitKind::Reduce && !cluster(c).reduces) set_reduced(c, unit(u), index);
        join(u, c, std::move(index), before);
        return true;
    }

    void set_reduced(int c, const Unit& u, const Index& index) {
        Cluster& cl = cluster(c);
        const auto axes = *Mapping::reduced_axes(u, index, cl);
        for (size_t i = 0; i < axes.size(); ++i) cl.axes[i].reduced = axes[i];
        cl.reduces = std::any_of(axes.begin(), axes.end(), [](bool b) { return b; });
        cl.column = reduces_columns(u.node());
    }

    void join(int u, int c, Index index, const std::vector<int>& before) {
        Unit& un = unit(u);
        un.cluster = c;
        un.index = std::move(index);
        Cluster& cl = cluster(c);
        cl.units.push_back(u);
        cl.cost += weight(un);
        if (un.kind == UnitKind::Reduce && (un.node().op == Op::ArgMax || un.node().op == Op::ArgMin))
            cl.ordered = true;
        for (int b : before)
            if (b != item(c)) out_.order.depend(item(c), b);
        for (Value* v : units_.elementwise(un)) note_read(v, c, un.index);
    }

    // ---- siblings: readers of the same thing

    struct Read {
        int cluster;
        int unit;
        Index index;
    };

    void note_read(Value* v, int c, const Index& index) {
        const Value* s = units_.source(v);
        if (s->type.numel() != v->type.numel() || s->node->op == Op::Scalar || s->node->op == Op::Iota) return;
        auto& list = reads_[static_cast<size_t>(v->id)];
        for (Read& r : list)
            if (r.cluster == c) {
                r.unit = cluster(c).units.back();
                return;
            }
        list.push_back({c, cluster(c).units.back(), index});
    }

    bool join_sibling(int u, const Operands& operands, const std::vector<int>& before) {
        for (Value* v : operands.same) {
            auto list = reads_[static_cast<size_t>(v->id)];  // joining changes it
            for (size_t i = list.size(); i-- > 0;) {
                const Read& r = list[i];
                if (!cluster(r.cluster).alive || cluster(r.cluster).region != unit(u).region ||
                    u - r.unit > kSiblingDistance)
                    continue;
                if (mapping_.consistent(r.index, r.cluster, operands) && try_join(u, r.cluster, r.index, before))
                    return true;
            }
        }
        return unit(u).kind == UnitKind::Reduce && join_column_sibling(u, operands, before);
    }

    // What v is computed from, as far as a few steps tell.
    void leaves(Value* v, int depth, std::set<const Value*>& out) {
        v = units_.source(v);
        if (units_.computing(v) < 0 || depth == 0) {
            if (v->node->op != Op::Scalar && v->node->op != Op::Iota) out.insert(v);
            return;
        }
        if (ir::kind(v->node->op) == ir::OpKind::Reduce) return;
        for (Value* x : v->node->operands) leaves(x, depth - 1, out);
    }

    bool join_column_sibling(int u, const Operands& operands, const std::vector<int>& before) {
        std::set<const Value*> mine;
        for (size_t c = out_.clusters.size(); c-- > 0;) {
            const Cluster& cl = out_.clusters[c];
            if (!cl.alive || !cl.column || cl.region != unit(u).region) continue;
            if (u - cl.units.back() > kSiblingDistance) continue;
            const Unit& first = unit(cl.units.front());
            if (first.kind != UnitKind::Reduce || first.domain() != unit(u).domain()) continue;
            if (mine.empty()) leaves(unit(u).node().operands[0], 6, mine);
            std::set<const Value*> theirs;
            leaves(first.node().operands[0], 6, theirs);
            const bool related = std::any_of(theirs.begin(), theirs.end(), [&](const Value* v) {
                return mine.count(v) && v->type.numel() == first.node().operands[0]->type.numel();
            });
            const Index index = first.index;
            const int ci = static_cast<int>(c);
            if (related && mapping_.consistent(index, ci, operands) && try_join(u, ci, index, before)) return true;
        }
        return false;
    }

    // ---- merging

    // Brings cluster `from` into `into`, where unit u, already in `into`, reads a value of `from` at u's own index.
    bool try_merge(int into, int from, int u, const Operands& operands) {
        Cluster &a = cluster(into), &b = cluster(from);
        if (a.region != b.region || a.cost + b.cost > options_.cluster_limit) return false;
        if (!out_.order.mergeable(item(into), item(from))) return false;
        auto index = mapping_.index_in(unit(u), from, operands);
        if (!index) return false;
        // b's axes by a's: where an axis of b is an axis of u
        std::vector<std::pair<Expr, Expr>> renamed;
        for (size_t i = 0; i < index->size(); ++i)
            if ((*index)[i].is_symbol()) renamed.emplace_back((*index)[i], unit(u).index[i]);
        const AxisMap map = [&](const Expr& s) -> std::optional<Expr> {
            for (const auto& [x, y] : renamed)
                if (x == s) return y;
            return std::nullopt;
        };
        if (a.axes.size() != b.axes.size()) return false;
        for (const Axis& x : b.axes) {
            auto y = map(x.symbol);
            if (!y || !y->is_symbol()) return false;
            auto it = std::find_if(a.axes.begin(), a.axes.end(), [&](const Axis& z) { return z.symbol == *y; });
            if (it == a.axes.end()) return false;
            if (a.reduces && b.reduces && it->reduced != x.reduced) return false;
        }
        std::vector<bool> reduced;
        reduced.reserve(a.axes.size());
        for (const Axis& z : a.axes) reduced.push_back(z.reduced);
        if (b.reduces)
            for (const Axis& x : b.axes)
                for (size_t i = 0; i < a.axes.size(); ++i)
                    if (a.axes[i].symbol == *map(x.symbol)) reduced[i] = x.reduced;
        for (int m : b.units) {
            Index moved = unit(m).index;
            for (Expr& e : moved) e = e.substitute(map);
            if (!Mapping::keeps_order(unit(m), moved, a.axes, reduced)) return false;
            if (!mapping_.consistent(moved, into, operands_of(unit(m)))) return false;
        }
        for (int m : a.units)
            if (!mapping_.consistent(unit(m).index, from, operands_of(unit(m)), map)) return false;
        if (!a.reduces && b.reduces) {
            if (b.column) return false;
            for (const Axis& x : b.axes)
                for (Axis& z : a.axes)
                    if (z.symbol == *map(x.symbol)) z.reduced = x.reduced;
            a.reduces = true;
        } else if (a.reduces && a.column && reduced_count(a) > kColumnRows) {
            return false;
        }
        for (int m : b.units) {
            Unit& un = unit(m);
            for (Expr& e : un.index) e = e.substitute(map);
            un.cluster = into;
            a.units.push_back(m);
        }
        std::sort(a.units.begin(), a.units.end());
        a.cost += b.cost;
        a.ordered |= b.ordered;
        b.alive = false;
        b.units.clear();
        for (auto& list : reads_)
            for (Read& r : list)
                if (r.cluster == from) {
                    for (Expr& e : r.index) e = e.substitute(map);
                    r.cluster = into;
                }
        out_.order.merge(item(into), item(from));
        return true;
    }

    // ---- one unit

    void place(int u) {
        const Operands operands = operands_of(unit(u));
        std::vector<int> before, candidates;
        for (Value* v : operands.same) items_before(v, unit(u).region, before);
        for (Value* v : operands.other) items_before(v, unit(u).region, before);
        for (Value* v : operands.same) {
            const int p = units_.computing(units_.source(v));
            if (p < 0 || unit(p).region != unit(u).region) continue;
            const int c = unit(p).cluster;
            if (std::find(candidates.begin(), candidates.end(), c) == candidates.end()) candidates.push_back(c);
        }
        // Reductions first: what follows them stays with their rows.
        std::stable_sort(candidates.begin(), candidates.end(),
                         [&](int a, int b) { return cluster(a).reduces > cluster(b).reduces; });
        for (int c : candidates) {
            auto index = mapping_.index_in(unit(u), c, operands);
            if (index && try_join(u, c, *index, before)) break;
        }
        if (unit(u).cluster < 0 && !join_sibling(u, operands, before)) start(u, before);
        const int home = unit(u).cluster;
        for (int c : candidates)
            if (c != home && cluster(c).alive) try_merge(home, c, u, operands);
    }

    void start(int u, const std::vector<int>& before) {
        const int c = static_cast<int>(out_.clusters.size());
        Cluster& cl = out_.clusters.emplace_back();
        out_.item_of_cluster.push_back(out_.order.add());
        cl.region = unit(u).region;
        Index index;
        for (const Expr& size : unit(u).domain()) {
            if (size == Expr(1)) {
                index.emplace_back(0);
                continue;
            }
            const Expr symbol = Expr::axis("x" + std::to_string(cl.next_axis++), size);
            cl.axes.push_back({symbol, size});
            index.push_back(symbol);
        }
        if (unit(u).kind == UnitKind::Reduce) set_reduced(c, unit(u), index);
        join(u, c, std::move(index), before);
    }

    const Facts& facts_;
    Units& units_;
    const Options& options_;
    Fused out_;
    Mapping mapping_{units_, out_.clusters};
    std::vector<std::vector<Read>> reads_;  // by the id of the value read
};

}  // namespace

Fused fuse(const Facts& facts, Units& units, const Options& options) { return Fusion(facts, units, options).run(); }

}  // namespace braze::schedule
