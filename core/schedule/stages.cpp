#include "core/schedule/stages.h"

#include <algorithm>
#include <array>

#include "core/schedule/cluster.h"

namespace braze::schedule {

using loops::Kernel;
using loops::Level;
using loops::Scalar;
using loops::ScalarKind;
using loops::Store;

namespace {

constexpr int kDear = 12;  // a function rather than a few instructions

// With all that they are computed from, but nothing behind reductions.
void add_operands(const Kernel& k, std::vector<bool>& out) {
    for (size_t i = out.size(); i-- > 0;) {
        const Scalar& s = k.scalars[i];
        if (!out[i] || s.kind == ScalarKind::Reduce) continue;
        for (int a : s.args) out[static_cast<size_t>(a)] = true;
        if (s.mask >= 0) out[static_cast<size_t>(s.mask)] = true;
    }
}

// The scalars that a stage evaluates in its loop, up to and including one of its stores (all by default); nothing
// behind the reductions of earlier stages.
std::vector<bool> evaluated(const Kernel& k, const loops::Stage& stage, const Store* last = nullptr) {
    std::vector<bool> out(k.scalars.size(), false);
    for (const Store& s : stage.stores) {
        if (s.level == Level::Inner || k.inner.empty()) out[static_cast<size_t>(s.scalar)] = true;
        if (&s == last) break;
    }
    if (!last)
        for (int r : stage.reduces) out[static_cast<size_t>(k.scalars[static_cast<size_t>(r)].args[0])] = true;
    add_operands(k, out);
    return out;
}

// The scalars that are evaluated before a store behind the loop of `stage` is done.
std::vector<bool> evaluated_before(const Kernel& k, size_t stage, const Store* store) {
    std::vector<bool> out(k.scalars.size(), false);
    for (size_t st = 0; st <= stage; ++st) {
        for (int r : k.stages[st].reduces) out[static_cast<size_t>(k.scalars[static_cast<size_t>(r)].args[0])] = true;
        bool before = true;
        for (const Store& s : k.stages[st].stores) {
            if (before || s.level == Level::Inner) out[static_cast<size_t>(s.scalar)] = true;
            before = before && &s != store;
        }
    }
    add_operands(k, out);
    return out;
}

// Different points, or outer points if the store is behind the loop, store different elements.
bool stores_once(const Kernel& k, const Store& s) {
    for (size_t i = 0; i < k.outer.size(); ++i)
        if (k.outer[i] != shapes::Expr(1) && !s.address.contains(loops::outer_axis(static_cast<int>(i), k.outer[i])))
            return false;
    for (size_t i = 0; i < k.inner.size() && s.level == Level::Inner; ++i)
        if (k.inner[i] != shapes::Expr(1) && !s.address.contains(loops::inner_axis(static_cast<int>(i), k.inner[i])))
            return false;
    return true;
}

class KeptValue {
  public:
    explicit KeptValue(Kernel& k) : k_(k) {}

    void run() {
        if (k_.stages.size() < 2 || k_.inner.empty() || !choose()) return;
        rewrite();
    }

  private:
    // The most derived dear value that a stage and later ones evaluate, and a store of the last of those to keep it in.
    bool choose() {
        for (const loops::Stage& s : k_.stages) used_.push_back(evaluated(k_, s));
        find_dear();
        for (size_t i = k_.scalars.size(); i-- > 0;) {
            if (!dear_[i] || k_.scalars[i].level != Level::Inner) continue;
            first_ = used_.size();
            size_t last = 0;
            for (size_t s = 0; s < used_.size(); ++s) {
                if (!used_[s][i]) continue;
                first_ = std::min(first_, s);
                last = s;
            }
            if (first_ >= last || first_ == used_.size()) continue;
            for (const Store& st : k_.stages[last].stores)
                if (suits(st, i, last)) {
                    kept_ = static_cast<int>(i);
                    place_ = st;
                    return true;
                }
        }
        return false;
    }

    void find_dear() {
        dear_.assign(k_.scalars.size(), false);
        for (size_t i = 0; i < dear_.size(); ++i) {
            const Scalar& s = k_.scalars[i];
            if (s.kind == ScalarKind::Reduce || s.level != Level::Inner) continue;
            if (s.kind == ScalarKind::Unary || s.kind == ScalarKind::Binary) dear_[i] = cost_of(s.op) >= kDear;
            for (int a : s.args) dear_[i] = dear_[i] || dear_[static_cast<size_t>(a)];
        }
    }

    bool suits(const Store& st, size_t value, size_t stage) const {
        if (st.level != Level::Inner || k_.params[static_cast<size_t>(st.param)].dtype != k_.scalars[value].dtype)
            return false;
        int stores = 0;
        for (const loops::Stage& s : k_.stages)
            for (const Store& other : s.stores) stores += other.param == st.param;
        const bool loaded = std::any_of(k_.scalars.begin(), k_.scalars.end(), [&](const Scalar& s) {
            return s.kind == ScalarKind::Load && s.param == st.param;
        });
        if (stores != 1 || loaded) return false;
        // its own value comes from the kept one, so that this is loaded before it is overwritten
        std::vector<bool> reached(k_.scalars.size(), false);
        reached[static_cast<size_t>(st.scalar)] = true;
        for (size_t i = reached.size(); i-- > value;) {
            const Scalar& s = k_.scalars[i];
            if (reached[i] && s.kind != ScalarKind::Reduce)
                for (int a : s.args) reached[static_cast<size_t>(a)] = true;
        }
        return reached[value] && k_.stages[stage].stores.size() >= 1;
    }

    // ---- the list again, in the order of the stages, with what depends on the kept value twice

    void rewrite() {
        const size_t n = k_.scalars.size();
        tainted_.assign(n, false);
        tainted_[static_cast<size_t>(kept_)] = true;
        for (size_t i = static_cast<size_t>(kept_) + 1; i < n; ++i) {
            const Scalar& s = k_.scalars[i];
            if (s.kind == ScalarKind::Reduce) continue;
            for (int a : s.args) tainted_[i] = tainted_[i] || tainted_[static_cast<size_t>(a)];
            if (s.mask >= 0 && tainted_[static_cast<size_t>(s.mask)]) tainted_[i] = true;
            if (tainted_[i] && s.kind == ScalarKind::IndexOf) return;  // addresses depend on it: leave it
        }
        for (auto& m : place_of_) m.assign(n, -1);
        std::vector<loops::Stage> stages;
        for (size_t s = 0; s < k_.stages.size(); ++s) {
            const size_t version = s > first_;
            loops::Stage stage;
            for (int r : k_.stages[s].reduces) stage.reduces.push_back(emit(r, version));
            for (Store st : k_.stages[s].stores) {
                symbols_before(st.address);
                st.scalar = emit(st.scalar, version);
                stage.stores.push_back(st);
            }
            if (s == first_) {
                Store st = place_;
                st.scalar = emit(kept_, 0);
                stage.stores.push_back(st);
            }
            stages.push_back(std::move(stage));
        }
        k_.scalars = std::move(out_);
        k_.stages = std::move(stages);
    }

    void symbols_before(const shapes::Expr& address) {
        std::vector<shapes::Expr> symbols;
        address.symbols(symbols);
        for (const shapes::Expr& e : symbols)
            for (size_t j = 0; j < k_.scalars.size(); ++j)
                if (k_.scalars[j].kind == ScalarKind::IndexOf && k_.scalars[j].symbol == e)
                    emit(static_cast<int>(j), 0);
    }

    int emit(int i, size_t version) {
        const size_t at = static_cast<size_t>(i);
        const Scalar& old = k_.scalars[at];
        if (!tainted_[at]) version = 0;
        int& place = place_of_[version][at];
        if (place >= 0) return place;
        Scalar s = old;
        if (version == 1 && i == kept_) {
            s = Scalar{ScalarKind::Load, old.dtype, Level::Inner};
            s.param = place_.param;
            s.address = place_.address;
            if (!ir::is_float(s.dtype)) s.value = int64_t{0};
        } else {
            if (s.kind == ScalarKind::Reduce) version = static_cast<size_t>(s.stage) > first_;
            symbols_before(s.address);
            for (int& a : s.args) a = emit(a, version);
            if (s.mask >= 0) s.mask = emit(s.mask, version);
        }
        out_.push_back(std::move(s));
        return place = static_cast<int>(out_.size()) - 1;
    }

    Kernel& k_;
    std::vector<std::vector<bool>> used_;  // per stage
    std::vector<bool> dear_, tainted_;
    size_t first_ = 0;
    int kept_ = -1;
    Store place_{};
    std::array<std::vector<int>, 2> place_of_;  // up to the first stage that evaluates it, and after
    std::vector<Scalar> out_;
};

}  // namespace

void set_levels(Kernel& k) {
    for (size_t i = 0; i < k.scalars.size(); ++i) {
        Scalar& s = k.scalars[i];
        s.level = Level::Uniform;
        for (int a : s.args) s.level = std::max(s.level, k.scalars[static_cast<size_t>(a)].level);
        if (s.kind == ScalarKind::Load || s.kind == ScalarKind::Index) s.level = loops::level_of(k, s.address, i);
        if (s.mask >= 0) s.level = std::max(s.level, k.scalars[static_cast<size_t>(s.mask)].level);
        if (s.kind == ScalarKind::Reduce) s.level = Level::Outer;
        k.has_checks |= s.kind == ScalarKind::Check;
    }
}

void make_stages(Kernel& k, std::vector<Store> stores) {
    // The last stage whose reductions a scalar needs; -1: none.
    std::vector<int> after(k.scalars.size(), -1);
    std::vector<std::pair<shapes::Expr, size_t>> indirect;
    auto address = [&](const shapes::Expr& e, int stage) {
        for (const auto& [symbol, i] : indirect)
            if (e.contains(symbol)) stage = std::max(stage, after[i]);
        return stage;
    };
    size_t count = 1;
    for (size_t i = 0; i < k.scalars.size(); ++i) {
        Scalar& s = k.scalars[i];
        for (int a : s.args) after[i] = std::max(after[i], after[static_cast<size_t>(a)]);
        if (s.mask >= 0) after[i] = std::max(after[i], after[static_cast<size_t>(s.mask)]);
        after[i] = address(s.address, after[i]);
        if (s.kind == ScalarKind::IndexOf) indirect.emplace_back(s.symbol, i);
        if (s.kind == ScalarKind::Reduce) count = std::max(count, static_cast<size_t>(s.stage = ++after[i]) + 1);
    }
    k.stages.resize(count);
    for (size_t i = 0; i < k.scalars.size(); ++i)
        if (k.scalars[i].kind == ScalarKind::Reduce)
            k.stages[static_cast<size_t>(k.scalars[i].stage)].reduces.push_back(static_cast<int>(i));
    for (Store& s : stores) {
        s.level =
            std::max(k.scalars[static_cast<size_t>(s.scalar)].level, loops::level_of(k, s.address, k.scalars.size()));
        const int known = address(s.address, after[static_cast<size_t>(s.scalar)]);
        const size_t stage = static_cast<size_t>(std::max(known + (s.level == Level::Inner), 0));
        if (stage >= k.stages.size()) k.stages.resize(stage + 1);
        k.stages[stage].stores.push_back(s);
    }
}

void keep_between_stages(Kernel& k) { KeptValue(k).run(); }

void find_in_place(Kernel& k, const std::vector<bool>& alone, const std::vector<shapes::Expr>& offsets,
                   const std::vector<int>& wanted) {
    std::vector<std::vector<bool>> used;
    used.reserve(k.stages.size());
    for (const loops::Stage& s : k.stages) used.push_back(evaluated(k, s));
    auto taken = [&](size_t r) {
        return std::any_of(k.params.begin(), k.params.end(),
                           [&](const loops::Param& p) { return p.inplace_of == static_cast<int>(r); });
    };
    std::vector<size_t> order;  // those that want a certain one choose first
    for (bool choosy : {true, false})
        for (size_t w = 0; w < k.params.size(); ++w)
            if (k.params[w].written && (wanted[w] >= 0) == choosy) order.push_back(w);
    for (size_t w : order) {
        // the first store, and whether all are of the same elements, each of which only one point stores
        const Store* first = nullptr;
        size_t stage = 0;
        bool same = true;
        for (size_t st = 0; st < k.stages.size(); ++st)
            for (const Store& s : k.stages[st].stores) {
                if (s.param != static_cast<int>(w)) continue;
                if (!first) first = &s, stage = st;
                same = same && s.address == first->address && s.level == first->level && stores_once(k, s);
            }
        if (!first || !same) continue;
        const bool behind_loop = first->level != Level::Inner && !k.inner.empty();
        const std::vector<bool> before =
            behind_loop ? evaluated_before(k, stage, first) : evaluated(k, k.stages[stage], first);
        for (size_t r = 0; r < k.params.size(); ++r) {
            if (wanted[w] >= 0 && wanted[w] != static_cast<int>(r)) continue;
            if (k.params[r].written || !alone[r] || taken(r) || offsets[r] != offsets[w]) continue;
            if (ir::size_of(k.params[r].dtype) != ir::size_of(k.params[w].dtype)) continue;
            bool fits = true, any = false;
            for (size_t i = 0; i < k.scalars.size() && fits; ++i) {
                const Scalar& s = k.scalars[i];
                if (s.kind != ScalarKind::Load || s.param != static_cast<int>(r)) continue;
                any = true;
                fits = s.mask < 0 && s.address == first->address &&
                       (behind_loop ? before[i] : !used[stage][i] || before[i]);
                if (behind_loop) continue;  // (an outer point loads the element once)
                for (size_t later = stage + 1; later < used.size(); ++later) fits = fits && !used[later][i];
            }
            if (!any || !fits) continue;
            k.params[w].inplace_of = static_cast<int>(r);
            break;
        }
    }
}

}  // namespace braze::schedule
