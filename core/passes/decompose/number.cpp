#include "core/passes/decompose/number.h"

#include <cmath>

namespace braze::passes::decomposition {

using shapes::Expr;

std::optional<Number> Number::from(const ir::Arg& arg) {
    if (const bool* b = std::get_if<bool>(&arg)) return Number(*b);
    if (const double* d = std::get_if<double>(&arg)) return Number(*d);
    if (const Expr* e = std::get_if<Expr>(&arg)) return Number(*e);
    return std::nullopt;
}

std::optional<double> Number::real() const {
    if (const bool* b = std::get_if<bool>(&value_)) return *b ? 1.0 : 0.0;
    if (const double* d = std::get_if<double>(&value_)) return *d;
    std::optional<int64_t> v = std::get<Expr>(value_).as_const();
    if (!v) return std::nullopt;
    return static_cast<double>(*v);
}

std::optional<int64_t> Number::integer() const {
    if (const bool* b = std::get_if<bool>(&value_)) return *b ? 1 : 0;
    if (const double* d = std::get_if<double>(&value_)) {
        // 2^63 is the first double that does not fit.
        if (!(std::abs(*d) < 9223372036854775808.0) || *d != std::trunc(*d)) return std::nullopt;
        return static_cast<int64_t>(*d);
    }
    return std::get<Expr>(value_).as_const();
}

std::optional<Expr> Number::expr() const {
    if (const Expr* e = std::get_if<Expr>(&value_)) return *e;
    if (std::optional<int64_t> v = integer()) return Expr(*v);
    return std::nullopt;
}

}  // namespace braze::passes::decomposition
