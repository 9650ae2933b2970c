// Shared by the files of core/shapes; no one else includes it.
#pragma once
#include <compare>
#include <string>
#include <vector>

#include "core/shapes/expr.h"

namespace braze::shapes::detail {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

inline int64_t wrap_add(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t wrap_mul(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
// b is neither 0 nor, with a == kMin, -1.
inline int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
inline int64_t floor_mod(int64_t a, int64_t b) {
    int64_t r = a % b;
    return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}

// ---- intern.cpp: nodes as they are, nothing is simplified
Expr intern(ExprKind kind, std::vector<Expr> operands);
std::optional<Expr> first_symbol(const std::string& name);

// ---- order.cpp: a total order of structure, the same in every process
std::strong_ordering compare(const Expr& a, const Expr& b);
inline bool less(const Expr& a, const Expr& b) { return compare(a, b) < 0; }

// ---- range.cpp
Range add_range(Range a, Range b);
Range mul_range(Range a, Range b);
Range compound_range(ExprKind kind, const std::vector<Expr>& operands);

// ---- sum.cpp: coefficient * monomial, the monomial being no Const, no Add and having no constant factor
struct Term {
    int64_t coefficient;
    Expr monomial;
};
struct Polynomial {
    std::vector<Term> terms;
    int64_t constant = 0;
};
Polynomial split(const Expr& e);
Expr join(const Polynomial& p);  // terms need not be sorted or merged
Expr make_sum(const std::vector<Expr>& terms);
Expr make_product(const std::vector<Expr>& factors);
// The factors of a monomial (itself, if it is no Mul).
std::vector<Expr> factors_of(const Expr& monomial);
// a / b for monomials, if b's factors all occur in a.
std::optional<Expr> divide_monomial(const Expr& a, const Expr& b);

// ---- compare.cpp
bool known_nonnegative(const Expr& e);

}  // namespace braze::shapes::detail
