// A Python number among the arguments of a Call: a Scalar argument, or a wrapped number at a tensor's place.
#pragma once
#include <cstdint>
#include <optional>
#include <variant>

#include "core/ir/graph.h"

namespace braze::passes::decomposition {

class Number {
  public:
    Number(bool v) : value_(v) {}                                     // NOLINT(google-explicit-constructor)
    Number(double v) : value_(v) {}                                   // NOLINT(google-explicit-constructor)
    Number(int v) : value_(shapes::Expr(static_cast<int64_t>(v))) {}  // NOLINT(google-explicit-constructor)
    Number(shapes::Expr v) : value_(v) {}                             // NOLINT(google-explicit-constructor)

    static std::optional<Number> from(const ir::Arg& arg);  // nullopt: not a number

    bool is_bool() const { return std::holds_alternative<bool>(value_); }
    bool is_float() const { return std::holds_alternative<double>(value_); }
    bool is_integer() const { return std::holds_alternative<shapes::Expr>(value_); }

    // nullopt: symbolic.
    std::optional<double> real() const;
    // nullopt: symbolic, or not a whole number in int64.
    std::optional<int64_t> integer() const;
    // As a size expression; nullopt for fractions.
    std::optional<shapes::Expr> expr() const;

  private:
    std::variant<bool, double, shapes::Expr> value_;
};

}  // namespace braze::passes::decomposition
