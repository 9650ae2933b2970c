// What the ranges alone decide, and minima and maxima, which depend on it.
#include <algorithm>

#include "core/shapes/internal.h"

namespace braze::shapes {
namespace detail {

namespace {

// A lower bound of e without the axes of symbolic extent: each takes the end of its range that makes e smallest.
Expr without_axes(Expr e) {
    std::vector<Expr> symbols;
    e.symbols(symbols);
    for (const Expr& s : symbols) {
        if (!s.node()->extent) continue;
        auto affine = e.affine_in(s);
        if (!affine) continue;
        const auto& [a, b] = *affine;
        if (known_nonnegative(a))
            e = b;
        else if (known_nonnegative(-a))
            e = b + a * (Expr(s.node()->extent) - Expr(1));
    }
    return e;
}

// Every symbol becomes its lower end plus a non-negative symbol: then a polynomial whose coefficients are all
// non-negative is seen to be.
Expr shifted(const Expr& e) {
    return e.substitute([](const Expr& s) -> std::optional<Expr> {
        Range r = s.range();
        if (r.lo == kMin || r.lo == 0 || r.lo == r.hi) return std::nullopt;
        return Expr(r.lo) + Expr::symbol("+" + s.name(), {0, r.hi == kMax ? kMax : r.hi - r.lo});
    });
}

bool polynomial_in_symbols(const Expr& e) {
    if (e.is_const() || e.is_symbol()) return true;
    if (e.kind() != ExprKind::Add && e.kind() != ExprKind::Mul) return false;
    return std::all_of(e.operands().begin(), e.operands().end(), polynomial_in_symbols);
}

}  // namespace

bool known_nonnegative(const Expr& e) {
    Range r = e.range();
    if (r.lo >= 0) return true;
    if (e.is_const() || r.hi < 0) return false;
    if (e.node()->symbolic_axis) {
        Expr low = without_axes(e);
        return low != e && known_nonnegative(low);
    }
    // Only a sum of several non-constant terms can be more than its terms' ranges say.
    if (e.kind() != ExprKind::Add || split(e).terms.size() < 2 || !polynomial_in_symbols(e)) return false;
    Expr s = shifted(e);
    return s != e && s.range().lo >= 0;
}

namespace {

Expr extremum(ExprKind kind, const Expr& a, const Expr& b) {
    std::vector<Expr> xs, kept;
    for (const Expr& e : {a, b}) {
        if (e.kind() == kind)
            xs.insert(xs.end(), e.operands().begin(), e.operands().end());
        else
            xs.push_back(e);
    }
    auto beaten_by = [&](const Expr& x, const Expr& y) {
        return kind == ExprKind::Min ? known_le(y, x) : known_le(x, y);
    };
    for (const Expr& x : xs) {
        if (std::any_of(kept.begin(), kept.end(), [&](const Expr& y) { return beaten_by(x, y); })) continue;
        std::erase_if(kept, [&](const Expr& y) { return beaten_by(y, x); });
        kept.push_back(x);
    }
    if (kept.size() == 1) return kept[0];
    std::sort(kept.begin(), kept.end(), less);
    return intern(kind, std::move(kept));
}

}  // namespace
}  // namespace detail

Expr min(Expr a, Expr b) {
    if (a.range().hi <= b.range().lo) return a;
    if (b.range().hi <= a.range().lo) return b;
    return detail::extremum(ExprKind::Min, a, b);
}
Expr max(Expr a, Expr b) {
    if (a.range().lo >= b.range().hi) return a;
    if (b.range().lo >= a.range().hi) return b;
    return detail::extremum(ExprKind::Max, a, b);
}

bool known_eq(Expr a, Expr b) {
    if (a == b) return true;
    if (a.is_const() && b.is_const()) return false;
    return (a - b) == Expr(0) || (known_le(a, b) && known_le(b, a));
}
bool known_ne(Expr a, Expr b) {
    if (a.is_const() && b.is_const()) return a != b;
    if (a == b) return false;
    return known_lt(a, b) || known_lt(b, a);
}
bool known_le(Expr a, Expr b) {
    if (a == b) return true;
    if (a.is_const() && b.is_const()) return a.value() <= b.value();
    if (a.range().hi <= b.range().lo) return true;
    return detail::known_nonnegative(b - a);
}
bool known_lt(Expr a, Expr b) {
    if (a == b) return false;
    if (a.is_const() && b.is_const()) return a.value() < b.value();
    if (a.range().hi < b.range().lo) return true;
    return detail::known_nonnegative(b - a - Expr(1));
}

}  // namespace braze::shapes
