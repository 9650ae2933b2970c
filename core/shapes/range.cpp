// Interval arithmetic; the ends of int64 stand for infinity.
#include <algorithm>

#include "core/shapes/internal.h"

namespace braze::shapes::detail {

namespace {

int64_t clamp(__int128 v) { return v <= kMin ? kMin : v >= kMax ? kMax : static_cast<int64_t>(v); }

int64_t corner_product(int64_t a, int64_t b) {
    if (a == 0 || b == 0) return 0;
    if (a == kMin || a == kMax || b == kMin || b == kMax) return (a > 0) == (b > 0) ? kMax : kMin;
    return clamp(static_cast<__int128>(a) * b);
}

// Divides where infinity stays infinity.
int64_t corner_quotient(int64_t a, int64_t b) {
    if (a == kMin || a == kMax) return (a == kMax) == (b > 0) ? kMax : kMin;
    if (b == kMax) return a < 0 ? -1 : 0;
    if (b == kMin) return a > 0 ? -1 : 0;
    return floor_div(a, b);
}

Range div_range(Range a, Range b) {
    if (b.lo <= 0 && b.hi >= 0) {
        if (b.hi == 0 && b.lo < 0)
            b.hi = -1;  // 0 is no divisor
        else if (b.lo == 0 && b.hi > 0)
            b.lo = 1;
        else
            return {};
    }
    int64_t c[] = {corner_quotient(a.lo, b.lo), corner_quotient(a.lo, b.hi), corner_quotient(a.hi, b.lo),
                   corner_quotient(a.hi, b.hi)};
    return {*std::min_element(c, c + 4), *std::max_element(c, c + 4)};
}

Range mod_range(Range a, Range b) {
    if (b.lo >= 0) {
        Range r{0, b.hi == kMax ? kMax : std::max<int64_t>(b.hi - 1, 0)};
        if (a.lo >= 0) r.hi = std::min(r.hi, a.hi);
        return r;
    }
    if (b.hi <= 0) return {b.lo == kMin ? kMin : std::min<int64_t>(b.lo + 1, 0), 0};
    return {b.lo == kMin ? kMin : b.lo + 1, b.hi == kMax ? kMax : b.hi - 1};
}

}  // namespace

Range add_range(Range a, Range b) {
    Range r;
    r.lo = a.lo == kMin || b.lo == kMin ? kMin : clamp(static_cast<__int128>(a.lo) + b.lo);
    r.hi = a.hi == kMax || b.hi == kMax ? kMax : clamp(static_cast<__int128>(a.hi) + b.hi);
    return r;
}

Range mul_range(Range a, Range b) {
    int64_t c[] = {corner_product(a.lo, b.lo), corner_product(a.lo, b.hi), corner_product(a.hi, b.lo),
                   corner_product(a.hi, b.hi)};
    return {*std::min_element(c, c + 4), *std::max_element(c, c + 4)};
}

Range compound_range(ExprKind kind, const std::vector<Expr>& xs) {
    Range r = xs[0].range();
    for (size_t i = 1; i < xs.size(); ++i) {
        Range x = xs[i].range();
        switch (kind) {
            case ExprKind::Add: r = add_range(r, x); break;
            case ExprKind::Mul: r = mul_range(r, x); break;
            case ExprKind::FloorDiv: r = div_range(r, x); break;
            case ExprKind::Mod: r = mod_range(r, x); break;
            case ExprKind::Min: r = {std::min(r.lo, x.lo), std::min(r.hi, x.hi)}; break;
            case ExprKind::Max: r = {std::max(r.lo, x.lo), std::max(r.hi, x.hi)}; break;
            case ExprKind::Const:
            case ExprKind::Symbol: break;
        }
    }
    return r;
}

}  // namespace braze::shapes::detail
