#include "core/schedule/nest.h"

#include <algorithm>
#include <functional>

#include "core/schedule/axes.h"
#include "core/schedule/stages.h"
#include "core/support/error.h"

namespace braze::schedule {

using loops::Kernel;
using loops::Level;
using loops::Scalar;
using loops::ScalarKind;

namespace {

// An innermost loop shorter than this is not worth keeping apart from the parallel ones.
constexpr int64_t kLongRow = 4096;
constexpr int64_t kFewRows = 8;
constexpr int kMaxSplits = 8;

class Builder {
  public:
    Builder(Draft draft, const std::vector<Expr>& symbols, const Homes& homes) : d_(std::move(draft)), homes_(homes) {
        nest_.kernel.symbols = symbols;
    }

    Nest run() {
        split();
        order();
        merge();
        divide();
        choose_lanes();
        rename();
        params();
        finish();
        return std::move(nest_);
    }

  private:
    // Every expression over the axes.
    void each(const std::function<void(Expr&)>& f) {
        for (Scalar& s : d_.scalars)
            if (s.kind == ScalarKind::Load || s.kind == ScalarKind::Index) f(s.address);
        for (auto& s : d_.stores) f(s.address);
    }

    void split() {
        for (int round = 0; round < kMaxSplits; ++round) {
            std::optional<AxisSplit> found;
            each([&](Expr& e) {
                if (!found && has_division(e)) found = find_split(e, d_.axes);
            });
            if (!found) return;
            const AxisMap map = apply_split(d_.axes, *found, d_.next_axis);
            each([&](Expr& e) { e = e.substitute(map); });
        }
    }

    // ---- order

    // How far neighbours along each axis lie apart in memory, for each access; 0 where it does not move or is
    // irregular. The most important accesses first: stores, then loads, the large before the small.
    void find_distances() {
        std::vector<std::pair<int, std::vector<int64_t>>> rows;
        auto add = [&](int rank, const Expr& address) {
            std::vector<int64_t> row;
            int moved = 0;
            for (const Axis& a : d_.axes) {
                auto affine = address.affine_in(a.symbol);
                row.push_back(affine ? std::abs(hint(affine->first)) : 0);
                moved += row.back() != 0;
            }
            rows.emplace_back(rank - moved, std::move(row));
        };
        for (const auto& s : d_.stores) add(0, s.address);
        for (const Scalar& s : d_.scalars)
            if (s.kind == ScalarKind::Load) add(1, s.address);
        std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        for (auto& [rank, row] : rows) distances_.push_back(std::move(row));
    }

    // Should axis a run outside of axis b?
    bool outside(size_t a, size_t b) const {
        for (const auto& row : distances_)
            if (row[a] != row[b] && row[a] != 0 && row[b] != 0) return row[a] > row[b];
        return a < b;
    }

    void order() {
        find_distances();
        std::vector<size_t> kept, reduced;
        for (size_t i = 0; i < d_.axes.size(); ++i) (d_.axes[i].reduced ? reduced : kept).push_back(i);
        auto sort = [&](std::vector<size_t>& list) {
            for (size_t i = 1; i < list.size(); ++i)
                for (size_t j = i; j > 0 && outside(list[j], list[j - 1]); --j) std::swap(list[j], list[j - 1]);
        };
        sort(kept);
        if (!d_.ordered) sort(reduced);
        for (size_t i : kept) outer_.push_back(d_.axes[i]);
        for (size_t i : reduced) inner_.push_back(d_.axes[i]);
    }

    // ---- merging: two nested axes that every expression sees as one

    static std::optional<Expr> merged(const Expr& e, const Axis& a, const Axis& b, const Expr& both) {
        if (!e.contains(a.symbol) && !e.contains(b.symbol)) return e;
        if (auto x = e.affine_in(a.symbol)) {
            auto y = x->second.affine_in(b.symbol);
            if (y && !x->first.contains(b.symbol) && x->first == y->first * b.extent)
                return y->first * both + y->second;
            if (y) return std::nullopt;
        }
        switch (e.kind()) {
            case shapes::ExprKind::Add: {  // the part that is linear in both, and the rest term by term
                std::vector<Expr> linear, out;
                for (const Expr& t : e.operands()) {
                    if (t.affine_in(a.symbol) && t.affine_in(b.symbol)) {
                        linear.push_back(t);
                        continue;
                    }
                    auto m = merged(t, a, b, both);
                    if (!m) return std::nullopt;
                    out.push_back(*m);
                }
                if (!linear.empty()) {
                    auto m = merged(shapes::sum(linear), a, b, both);
                    if (!m) return std::nullopt;
                    out.push_back(*m);
                }
                return shapes::sum(out);
            }
            case shapes::ExprKind::Mul:
            case shapes::ExprKind::FloorDiv:
            case shapes::ExprKind::Mod: {
                std::vector<Expr> out;
                for (const Expr& x : e.operands()) {
                    auto m = merged(x, a, b, both);
                    if (!m) return std::nullopt;
                    out.push_back(*m);
                }
                if (e.kind() == shapes::ExprKind::FloorDiv) return shapes::floordiv(out[0], out[1]);
                return e.kind() == shapes::ExprKind::Mod ? shapes::mod(out[0], out[1]) : shapes::product(out);
            }
            default: return std::nullopt;
        }
    }

    void merge_list(std::vector<Axis>& list) {
        for (size_t i = 0; i + 1 < list.size();) {
            const Expr extent = list[i].extent * list[i + 1].extent;
            Axis both{Expr::axis("x" + std::to_string(d_.next_axis), extent), extent, list[i].reduced};
            std::vector<Expr> results;
            bool ok = true;
            each([&](Expr& e) {
                if (!ok) return;
                auto m = merged(e, list[i], list[i + 1], both.symbol);
                ok = m.has_value();
                if (ok) results.push_back(*m);
            });
            if (!ok) {
                ++i;
                continue;
            }
            ++d_.next_axis;
            size_t next = 0;
            each([&](Expr& e) { e = results[next++]; });
            list[i] = both;
            list.erase(list.begin() + static_cast<long>(i) + 1);
            if (i > 0) --i;
        }
    }

    void merge() {
        merge_list(outer_);
        merge_list(inner_);
    }

    // ---- outer and inner

    static int64_t count(const std::vector<Axis>& axes) {
        int64_t n = 1;
        for (const Axis& a : axes) n *= std::max<int64_t>(hint(a.extent), 1);
        return n;
    }

    // Without reductions all axes are parallel so far: the last one becomes the inner loop, unless it is needed to keep
    // all cores busy, or is the only one.
    void divide() {
        if (d_.reduces && !inner_.empty()) return;
        if (outer_.size() > 1) {
            const int64_t row = hint(outer_.back().extent), rows = count(outer_) / std::max<int64_t>(row, 1);
            if (rows < kFewRows && row >= kLongRow) return;
            inner_.push_back(outer_.back());
            outer_.pop_back();
        }
    }

    void choose_lanes() {
        if (outer_.empty()) outer_.push_back({Expr::axis("x" + std::to_string(d_.next_axis++), Expr(1)), Expr(1)});
        Kernel& k = nest_.kernel;
        k.vectorize = inner_.empty() ? loops::Vectorize::OuterLast : loops::Vectorize::InnerLast;
        if (inner_.empty() || !d_.reduces) return;
        // Reductions: along whichever axis more of the accesses run through memory one by one. Those that move along
        // most axes touch most of the memory, and only they count.
        std::vector<const Expr*> addresses;
        size_t most = 0;
        const auto moved = [&](const Expr& address) {
            size_t n = 0;
            for (const auto* list : {&outer_, &inner_})
                for (const Axis& axis : *list) n += address.contains(axis.symbol);
            return n;
        };
        for (const Scalar& s : d_.scalars)
            if (s.kind == ScalarKind::Load) addresses.push_back(&s.address);
        for (const auto& s : d_.stores) addresses.push_back(&s.address);
        for (const Expr* e : addresses) most = std::max(most, moved(*e));
        int along_inner = 0, along_outer = 0;
        for (const Expr* e : addresses) {
            if (moved(*e) < most) continue;
            auto x = e->affine_in(inner_.back().symbol), y = e->affine_in(outer_.back().symbol);
            along_inner += x && x->first == Expr(1);
            along_outer += y && y->first == Expr(1);
        }
        if (along_outer > along_inner) k.vectorize = loops::Vectorize::OuterLast;
    }

    void rename() {
        Kernel& k = nest_.kernel;
        std::vector<std::pair<Expr, Expr>> names;
        for (size_t i = 0; i < outer_.size(); ++i) {
            k.outer.push_back(outer_[i].extent);
            names.emplace_back(outer_[i].symbol, loops::outer_axis(static_cast<int>(i), outer_[i].extent));
        }
        for (size_t i = 0; i < inner_.size(); ++i) {
            k.inner.push_back(inner_[i].extent);
            names.emplace_back(inner_[i].symbol, loops::inner_axis(static_cast<int>(i), inner_[i].extent));
        }
        auto map = [&](const Expr& s) -> std::optional<Expr> {
            for (const auto& [x, y] : names)
                if (x == s) return y;
            return std::nullopt;
        };
        each([&](Expr& e) { e = e.substitute(map); });
    }

    // ---- params: one per buffer and constant offset, so that kernels which differ in those alone are the same

    static bool moves(const Expr& e) {
        std::vector<Expr> symbols;
        e.symbols(symbols);
        return std::any_of(symbols.begin(), symbols.end(), [](const Expr& s) {
            const char c = s.name()[0];
            return c == 'o' || c == 'i' || c == 't';
        });
    }

    int param(int buffer, Expr& address, bool written, bool masked) {
        std::vector<Expr> fixed;
        if (address.kind() == shapes::ExprKind::Add) {
            for (const Expr& t : address.operands())
                if (!moves(t)) fixed.push_back(t);
        } else if (!moves(address)) {
            fixed.push_back(address);
        }
        Expr offset = shapes::sum(fixed);
        if (!shapes::known_le(Expr(0), offset) || (masked && !offset.is_const()))
            offset = Expr(0);  // stay inside the buffer
        address = address - offset;
        ir::Value* v = d_.buffers[static_cast<size_t>(buffer)];
        for (size_t i = 0; i < nest_.buffers.size(); ++i)
            if (nest_.buffers[i] == v && nest_.offsets[i] == offset && nest_.kernel.params[i].written == written)
                return static_cast<int>(i);
        loops::Param p{v->type.dtype};
        p.written = written;
        p.name = "p" + std::to_string(nest_.buffers.size());
        nest_.kernel.params.push_back(std::move(p));
        nest_.buffers.push_back(v);
        nest_.offsets.push_back(offset);
        return static_cast<int>(nest_.buffers.size()) - 1;
    }

    void params() {
        for (Scalar& s : d_.scalars)
            if (s.kind == ScalarKind::Load) s.param = param(s.param, s.address, false, s.mask >= 0);
        for (auto& s : d_.stores) s.buffer = param(s.buffer, s.address, true, false);
    }

    void finish() {
        Kernel& k = nest_.kernel;
        k.scalars = std::move(d_.scalars);
        set_levels(k);
        std::vector<loops::Store> stores;
        stores.reserve(d_.stores.size());
        for (const auto& s : d_.stores) stores.push_back({s.buffer, s.address, s.scalar, Level::Inner});
        make_stages(k, std::move(stores));
        keep_between_stages(k);
        std::vector<bool> alone;
        alone.reserve(nest_.buffers.size());
        for (const ir::Value* v : nest_.buffers)
            alone.push_back(std::count(nest_.buffers.begin(), nest_.buffers.end(), v) == 1);
        std::vector<int> wanted(nest_.buffers.size(), -1);
        for (size_t w = 0; w < wanted.size(); ++w) {
            const ir::Value* home = k.params[w].written ? homes_.of(nest_.buffers[w]) : nullptr;
            for (size_t r = 0; home && r < wanted.size(); ++r)
                if (nest_.buffers[r] == home) wanted[w] = static_cast<int>(r);
        }
        find_in_place(k, alone, nest_.offsets, wanted);
        nest_.outer_count = shapes::product(k.outer);
        int64_t inner = 0, outer = 1;
        for (const Scalar& s : k.scalars) {
            const int cost =
                s.kind == ScalarKind::Unary || s.kind == ScalarKind::Binary ? std::max(cost_of(s.op), 1) : 1;
            (s.level == Level::Inner ? inner : outer) += cost;
        }
        nest_.work = Expr(outer) + Expr(inner) * shapes::product(k.inner);
        nest_.text = loops::canonical(k);
        char name[17];
        std::snprintf(name, sizeof name, "%016zx", std::hash<std::string>{}(nest_.text));
        k.name = std::string("k_") + name;
    }

    Draft d_;
    const Homes& homes_;
    Nest nest_;
    std::vector<std::vector<int64_t>> distances_;
    std::vector<Axis> outer_, inner_;
};

}  // namespace

Nest make_nest(Draft draft, const std::vector<Expr>& symbols, const Homes& homes) {
    return Builder(std::move(draft), symbols, homes).run();
}

}  // namespace braze::schedule
