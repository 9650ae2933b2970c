// Sums and products: every expression is a polynomial over its atoms (symbols, quotients, remainders, minima, maxima),
// written as a sorted sum of sorted monomials. Products of sums are expanded up to a limit.
#include <algorithm>

#include "core/shapes/internal.h"

namespace braze::shapes {
namespace detail {

namespace {

constexpr size_t kMaxExpandedTerms = 64;

Term split_term(const Expr& e) {
    if (e.kind() != ExprKind::Mul || !e.operands()[0].is_const()) return {1, e};
    const auto& xs = e.operands();
    if (xs.size() == 2) return {xs[0].value(), xs[1]};
    return {xs[0].value(), intern(ExprKind::Mul, {xs.begin() + 1, xs.end()})};
}

Expr scaled(int64_t c, const Expr& monomial) {
    if (c == 1) return monomial;
    std::vector<Expr> xs{Expr(c)};
    if (monomial.kind() == ExprKind::Mul)
        xs.insert(xs.end(), monomial.operands().begin(), monomial.operands().end());
    else
        xs.push_back(monomial);
    return intern(ExprKind::Mul, std::move(xs));
}

void append(Polynomial& p, const Expr& e) {
    if (e.is_const()) {
        p.constant = wrap_add(p.constant, e.value());
    } else if (e.kind() == ExprKind::Add) {
        for (const Expr& x : e.operands()) append(p, x);
    } else {
        p.terms.push_back(split_term(e));
    }
}

void merge(std::vector<Term>& terms) {
    std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return less(a.monomial, b.monomial); });
    size_t out = 0;
    for (size_t i = 0; i < terms.size();) {
        Term t = terms[i++];
        for (; i < terms.size() && terms[i].monomial == t.monomial; ++i)
            t.coefficient = wrap_add(t.coefficient, terms[i].coefficient);
        if (t.coefficient != 0) terms[out++] = t;
    }
    terms.resize(out, Term{0, Expr()});
}

// m*(x // m) + x % m is x. Returns true if it changed something (terms are then unsorted).
bool rejoin_quotients(Polynomial& p) {
    for (size_t i = 0; i < p.terms.size(); ++i) {
        const Expr rem = p.terms[i].monomial;
        if (rem.kind() != ExprKind::Mod) continue;
        const int64_t c = p.terms[i].coefficient;
        const Expr x = rem.operands()[0], m = rem.operands()[1];
        const Expr quotient = make_product({Expr(c), m, floordiv(x, m)});
        if (quotient.is_const() || quotient.kind() == ExprKind::Add) continue;
        const Term wanted = split_term(quotient);
        for (size_t j = 0; j < p.terms.size(); ++j) {
            if (p.terms[j].monomial != wanted.monomial || p.terms[j].coefficient != wanted.coefficient) continue;
            p.terms.erase(p.terms.begin() + static_cast<long>(std::max(i, j)));
            p.terms.erase(p.terms.begin() + static_cast<long>(std::min(i, j)));
            append(p, make_product({Expr(c), x}));
            return true;
        }
    }
    return false;
}

}  // namespace

Polynomial split(const Expr& e) {
    Polynomial p;
    append(p, e);
    return p;
}

Expr join(const Polynomial& given) {
    Polynomial p = given;
    do merge(p.terms);
    while (rejoin_quotients(p));
    if (p.terms.empty()) return Expr(p.constant);
    std::vector<Expr> xs;
    xs.reserve(p.terms.size() + 1);
    for (const Term& t : p.terms) xs.push_back(scaled(t.coefficient, t.monomial));
    if (p.constant != 0) xs.emplace_back(p.constant);
    if (xs.size() == 1) return xs[0];
    return intern(ExprKind::Add, std::move(xs));
}

Expr make_sum(const std::vector<Expr>& terms) {
    Polynomial p;
    for (const Expr& t : terms) append(p, t);
    return join(p);
}

Expr make_product(const std::vector<Expr>& factors) {
    int64_t c = 1;
    std::vector<Expr> atoms, sums;
    auto take = [&](auto&& self, const Expr& e) -> void {
        if (e.is_const())
            c = wrap_mul(c, e.value());
        else if (e.kind() == ExprKind::Mul)
            for (const Expr& x : e.operands()) self(self, x);
        else if (e.kind() == ExprKind::Add)
            sums.push_back(e);
        else
            atoms.push_back(e);
    };
    for (const Expr& f : factors) take(take, f);
    if (c == 0) return Expr(0);
    if (atoms.empty() && sums.empty()) return Expr(c);
    if (atoms.empty() && sums.size() == 1) {  // a constant is always distributed
        if (c == 1) return sums[0];
        Polynomial p = split(sums[0]);
        p.constant = wrap_mul(p.constant, c);
        for (Term& t : p.terms) t.coefficient = wrap_mul(t.coefficient, c);
        return join(p);
    }
    size_t expanded = 1;
    for (const Expr& s : sums) expanded = std::min(expanded * s.operands().size(), kMaxExpandedTerms + 1);
    if (!sums.empty() && expanded <= kMaxExpandedTerms) {
        std::sort(atoms.begin(), atoms.end(), less);
        std::vector<Expr> terms{make_product([&] {
            std::vector<Expr> xs = atoms;
            xs.emplace_back(c);
            return xs;
        }())};
        for (const Expr& s : sums) {
            std::vector<Expr> next;
            next.reserve(terms.size() * s.operands().size());
            for (const Expr& t : terms)
                for (const Expr& x : s.operands()) next.push_back(make_product({t, x}));
            terms = std::move(next);
        }
        return make_sum(terms);
    }
    atoms.insert(atoms.end(), sums.begin(), sums.end());
    std::sort(atoms.begin(), atoms.end(), less);
    if (c == 1 && atoms.size() == 1) return atoms[0];
    if (c != 1) atoms.insert(atoms.begin(), Expr(c));
    return intern(ExprKind::Mul, std::move(atoms));
}

std::vector<Expr> factors_of(const Expr& monomial) {
    if (monomial.kind() == ExprKind::Mul) return monomial.operands();
    return {monomial};
}

std::optional<Expr> divide_monomial(const Expr& a, const Expr& b) {
    std::vector<Expr> xs = factors_of(a);
    for (const Expr& f : factors_of(b)) {
        auto it = std::find(xs.begin(), xs.end(), f);
        if (it == xs.end()) return std::nullopt;
        xs.erase(it);
    }
    return make_product(xs);
}

}  // namespace detail

Expr operator+(Expr a, Expr b) {
    if (a.is_const() && b.is_const()) return Expr(detail::wrap_add(a.value(), b.value()));
    if (a == Expr()) return b;
    if (b == Expr()) return a;
    return detail::make_sum({a, b});
}
Expr operator-(Expr a) {
    if (a.is_const()) return Expr(detail::wrap_mul(a.value(), -1));
    return detail::make_product({Expr(-1), a});
}
Expr operator-(Expr a, Expr b) {
    if (a == b) return Expr(0);
    return a + -b;
}
Expr operator*(Expr a, Expr b) {
    if (a.is_const() && b.is_const()) return Expr(detail::wrap_mul(a.value(), b.value()));
    if (a == Expr(1)) return b;
    if (b == Expr(1)) return a;
    return detail::make_product({a, b});
}
Expr product(const std::vector<Expr>& xs) {
    int64_t c = 1;
    for (const Expr& x : xs) {
        if (!x.is_const()) return detail::make_product(xs);
        c = detail::wrap_mul(c, x.value());
    }
    return Expr(c);
}
Expr sum(const std::vector<Expr>& xs) { return detail::make_sum(xs); }

}  // namespace braze::shapes
