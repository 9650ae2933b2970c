// floordiv and mod. All rules hold for integers of any sign unless said otherwise; a divisor is not 0.
#include <algorithm>
#include <numeric>

#include "core/shapes/internal.h"

namespace braze::shapes {

using namespace detail;

namespace {

constexpr int kMaxDivisionSteps = 16;

Expr quotient_node(const Expr& a, const Expr& b) { return intern(ExprKind::FloorDiv, {a, b}); }
Expr remainder_node(const Expr& a, const Expr& b) { return intern(ExprKind::Mod, {a, b}); }

bool bounded(Range r) { return r.lo != kMin && r.hi != kMax; }
bool within(Range r, int64_t lo, int64_t hi) { return r.lo >= lo && r.hi <= hi; }

// Splits off the largest part that a constant divides: a = b * quotient + rest, rest.constant in [0, b).
struct Split {
    Polynomial quotient, rest;
};
Split split_multiples(const Expr& a, int64_t b) {
    Split s;
    Polynomial p = split(a);
    for (const Term& t : p.terms) {
        if (t.coefficient % b == 0)
            s.quotient.terms.push_back({t.coefficient / b, t.monomial});
        else
            s.rest.terms.push_back(t);
    }
    s.quotient.constant = floor_div(p.constant, b);
    s.rest.constant = floor_mod(p.constant, b);
    return s;
}

// rest = g * high + low with 0 <= low < g and g dividing b, g > 1: then rest // b = high // (b/g) and
// rest % b = g * (high % (b/g)) + low. Finds such a g.
struct Scale {
    int64_t g;
    Expr high, low;
};
std::optional<Scale> find_scale(const Polynomial& rest, int64_t b) {
    std::vector<int64_t> tried;
    auto attempt = [&](int64_t g) -> std::optional<Scale> {
        if (g <= 1 || std::find(tried.begin(), tried.end(), g) != tried.end()) return std::nullopt;
        tried.push_back(g);
        Polynomial high, low;
        for (const Term& t : rest.terms) {
            if (t.coefficient % g == 0)
                high.terms.push_back({t.coefficient / g, t.monomial});
            else
                low.terms.push_back(t);
        }
        high.constant = floor_div(rest.constant, g);
        low.constant = floor_mod(rest.constant, g);
        if (high.terms.empty()) return std::nullopt;
        Expr l = join(low);
        if (!within(l.range(), 0, g - 1)) return std::nullopt;
        return Scale{g, join(high), l};
    };
    int64_t all = b;
    for (const Term& t : rest.terms) all = std::gcd(all, t.coefficient);
    if (auto s = attempt(all)) return s;
    for (const Term& t : rest.terms)
        if (auto s = attempt(std::gcd(b, t.coefficient))) return s;
    return std::nullopt;
}

std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
    return r;
}

// A sum of one quotient with a constant divisor and a constant: x // m + k.
struct QuotientPlus {
    Expr x;
    int64_t m, k;
};
std::optional<QuotientPlus> as_quotient_plus(const Expr& e) {
    Polynomial p = split(e);
    if (p.terms.size() != 1 || p.terms[0].coefficient != 1) return std::nullopt;
    const Expr& q = p.terms[0].monomial;
    if (q.kind() != ExprKind::FloorDiv || !q.operands()[1].is_const()) return std::nullopt;
    return QuotientPlus{q.operands()[0], q.operands()[1].value(), p.constant};
}

Expr floordiv_const(const Expr& a, int64_t b) {  // b > 1
    auto [quotient, rest] = split_multiples(a, b);
    if (rest.terms.empty()) return join(quotient);
    const Expr q = join(quotient), r = join(rest);
    if (Range g = r.range(); bounded(g) && floor_div(g.lo, b) == floor_div(g.hi, b))
        return q + Expr(floor_div(g.lo, b));
    if (auto s = find_scale(rest, b)) return q + floordiv(s->high, Expr(b / s->g));
    if (auto n = as_quotient_plus(r)) {  // (x // m + k) // b = (x + k*m) // (m*b)
        auto mb = checked_mul(n->m, b);
        auto km = checked_mul(n->k, n->m);
        if (mb && km && n->m > 0) return q + floordiv(n->x + Expr(*km), Expr(*mb));
    }
    if (r.kind() == ExprKind::Mod && r.operands()[1].is_const()) {  // (x % m) // b = (x // b) % (m/b) where b divides m
        int64_t m = r.operands()[1].value();
        if (m > 0 && m % b == 0) return q + mod(floordiv(r.operands()[0], Expr(b)), Expr(m / b));
    }
    return q + quotient_node(r, Expr(b));
}

Expr mod_const(const Expr& a, int64_t b) {  // b > 1
    Polynomial rest = split_multiples(a, b).rest;
    // c*(x % m) is c*x modulo b where b divides c*m
    bool unwrapped = false;
    for (Term& t : rest.terms) {
        if (t.monomial.kind() != ExprKind::Mod || !t.monomial.operands()[1].is_const()) continue;
        auto cm = checked_mul(t.coefficient, t.monomial.operands()[1].value());
        if (!cm || *cm % b != 0) continue;
        Range r = join(rest).range();
        if (within(r, 0, b - 1)) break;  // already reduced
        t.monomial = t.monomial.operands()[0];
        unwrapped = true;
    }
    if (unwrapped) {
        std::vector<Expr> xs{Expr(rest.constant)};
        for (const Term& t : rest.terms) xs.push_back(Expr(t.coefficient) * t.monomial);
        return mod(make_sum(xs), Expr(b));
    }
    const Expr r = join(rest);
    if (Range g = r.range(); bounded(g) && floor_div(g.lo, b) == floor_div(g.hi, b))
        return r - Expr(wrap_mul(floor_div(g.lo, b), b));
    if (auto s = find_scale(rest, b)) return Expr(s->g) * mod(s->high, Expr(b / s->g)) + s->low;
    bool reduced = false;
    for (Term& t : rest.terms) {
        int64_t c = floor_mod(t.coefficient, b);
        reduced |= c != t.coefficient;
        t.coefficient = c;
    }
    if (reduced) return mod(join(rest), Expr(b));
    return remainder_node(r, Expr(b));
}

// a = b * q + r by the leading monomial of b.
struct Division {
    Expr q, r;
};
Division divide(const Expr& a, const Expr& b) {
    Polynomial d = split(b);
    const Term* lead = &d.terms[0];
    for (const Term& t : d.terms)
        if (factors_of(t.monomial).size() > factors_of(lead->monomial).size()) lead = &t;
    Division out{Expr(0), a};
    for (int step = 0; step < kMaxDivisionSteps; ++step) {
        bool progress = false;
        for (const Term& t : split(out.r).terms) {
            if (t.coefficient % lead->coefficient != 0) continue;
            auto m = divide_monomial(t.monomial, lead->monomial);
            if (!m) continue;
            Expr part = Expr(t.coefficient / lead->coefficient) * *m;
            out.q = out.q + part;
            out.r = out.r - part * b;
            progress = true;
            break;
        }
        if (!progress) break;
    }
    return out;
}

bool remainder_of(const Expr& r, const Expr& b) {  // 0 <= r < b
    return known_nonnegative(r) && known_nonnegative(b - r - Expr(1));
}

Division symbolic_division(const Expr& a, const Expr& b) {
    Division d = divide(a, b);
    // A divisor that is a sum: a partial quotient is only worth having if it is the whole one.
    if (b.kind() == ExprKind::Add && d.r != Expr(0) && !remainder_of(d.r, b)) return {Expr(0), a};
    return d;
}

// A common factor of r's terms and the monomial b (constant or symbol); 1 if there is none.
Expr common_factor(const Expr& r, const Expr& b) {
    if (b.kind() == ExprKind::Add) return Expr(1);
    Polynomial p = split(r), d = split(b);
    int64_t g = std::gcd(d.terms[0].coefficient, p.constant);
    for (const Term& t : p.terms) g = std::gcd(g, t.coefficient);
    Expr common(g == 0 ? 1 : g);
    if (p.constant != 0) return common;
    Expr left = d.terms[0].monomial;
    for (const Expr& f : factors_of(left)) {
        Expr candidate = common * f;
        bool everywhere = true;
        Expr symbols_only = split(candidate).terms[0].monomial;
        for (const Term& t : p.terms) everywhere &= divide_monomial(t.monomial, symbols_only).has_value();
        if (everywhere) common = candidate;
    }
    return common;
}

Expr divide_exactly(const Expr& e, const Expr& factor) {
    if (factor.is_const()) {
        Polynomial p = split(e);
        for (Term& t : p.terms) t.coefficient /= factor.value();
        p.constant /= factor.value();
        return join(p);
    }
    Term f = split(factor).terms[0];
    Polynomial p = split(e);
    std::vector<Expr> xs;
    xs.reserve(p.terms.size());
    for (const Term& t : p.terms)
        xs.push_back(Expr(t.coefficient / f.coefficient) * *divide_monomial(t.monomial, f.monomial));
    return make_sum(xs);
}

}  // namespace

Expr floordiv(Expr a, Expr b) {
    if (b.is_const()) {
        int64_t d = b.value();
        if (d == 0 || d == kMin) return quotient_node(a, b);
        if (d < 0) return floordiv(-a, Expr(-d));
        if (d == 1) return a;
        if (a.is_const()) return Expr(floor_div(a.value(), d));
        return floordiv_const(a, d);
    }
    if (a == Expr(0)) return a;
    if (a == b) return Expr(1);
    Division d = symbolic_division(a, b);
    if (d.r == Expr(0) || remainder_of(d.r, b)) return d.q;
    Expr f = common_factor(d.r, b);
    if (f != Expr(1)) return d.q + floordiv(divide_exactly(d.r, f), divide_exactly(b, f));
    // (x // m) // b = x // (m*b) where b > 0
    if (d.r.kind() == ExprKind::FloorDiv && b.range().lo > 0)
        return d.q + floordiv(d.r.operands()[0], d.r.operands()[1] * b);
    return d.q + quotient_node(d.r, b);
}

Expr mod(Expr a, Expr b) {
    if (b.is_const()) {
        int64_t d = b.value();
        if (d == 0 || d == kMin) return remainder_node(a, b);
        if (d < 0) return -mod(-a, Expr(-d));
        if (d == 1) return Expr(0);
        if (a.is_const()) return Expr(floor_mod(a.value(), d));
        return mod_const(a, d);
    }
    if (a == Expr(0) || a == b) return Expr(0);
    Division d = symbolic_division(a, b);
    if (d.r == Expr(0) || remainder_of(d.r, b)) return d.r;
    Expr f = common_factor(d.r, b);
    if (f != Expr(1)) return f * mod(divide_exactly(d.r, f), divide_exactly(b, f));
    return remainder_node(d.r, b);
}

}  // namespace braze::shapes
