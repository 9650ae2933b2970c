// Symbolic integer expressions: every size, stride, offset and index in the IR is one, constant or not.
//
// An Expr is a handle to an immutable, interned node: structurally equal canonical expressions are the
// same pointer, so == is a pointer comparison. Construction simplifies (constants folded, sums and products
// flattened and sorted, floordiv/mod reduced with the ranges of the symbols). All integers are int64.
// Interning is thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace braze::shapes {

struct Range {  // inclusive
    int64_t lo = std::numeric_limits<int64_t>::min();
    int64_t hi = std::numeric_limits<int64_t>::max();
    bool operator==(const Range&) const = default;
};

enum class ExprKind : uint8_t { Const, Symbol, Add, Mul, FloorDiv, Mod, Min, Max };

struct ExprNode;  // expr.cpp

class Expr {
  public:
    Expr() : Expr(0) {}
    Expr(int64_t value);  // NOLINT(google-explicit-constructor): constants read as numbers
    Expr(int value) : Expr(static_cast<int64_t>(value)) {}  // NOLINT

    // The symbol of that name. Names are global: the same name is the same symbol. The range of the first
    // call stands; a size symbol has range [2, max] or [0, max], an axis symbol [0, extent - 1] or unknown.
    // Names: s0, s1, ... sizes known at run time; o0.. i0.. loop axes; t0.. indices that were loaded.
    static Expr symbol(const std::string& name, Range range = {});

    ExprKind kind() const;
    bool is_const() const { return kind() == ExprKind::Const; }
    bool is_symbol() const { return kind() == ExprKind::Symbol; }
    std::optional<int64_t> as_const() const;
    int64_t value() const;            // of a Const; throws InternalError otherwise
    const std::string& name() const;  // of a Symbol
    const std::vector<Expr>& operands() const;
    Range range() const;  // conservative bounds of the whole expression
    size_t hash() const;
    std::string str() const;  // e.g. "4*s0 + i1 % 8"; parse(str()) is the same expression
    static std::optional<Expr> parse(const std::string& text);

    bool operator==(const Expr& o) const { return node_ == o.node_; }
    bool operator!=(const Expr& o) const { return node_ != o.node_; }

    bool contains(const Expr& symbol) const;
    void symbols(std::vector<Expr>& out) const;  // appended once each, in order of first occurrence
    Expr substitute(const std::function<std::optional<Expr>(const Expr& symbol)>& f) const;
    // Value with every symbol given; nullopt where one is unknown or a divisor is 0.
    std::optional<int64_t> evaluate(const std::function<std::optional<int64_t>(const Expr& symbol)>& f) const;

    // If this == a * symbol + b with a, b free of `symbol`: (a, b). nullopt if not affine in it.
    std::optional<std::pair<Expr, Expr>> affine_in(const Expr& symbol) const;

  private:
    explicit Expr(const ExprNode* n) : node_(n) {}
    const ExprNode* node_;
    friend struct ExprNode;
    friend Expr make_node(ExprKind, std::vector<Expr>);
};

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator-(Expr a);
Expr operator*(Expr a, Expr b);
Expr floordiv(Expr a, Expr b);  // rounds towards minus infinity, as Python's //
Expr mod(Expr a, Expr b);       // sign of the divisor, as Python's %
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);

// Decided from the ranges alone; false means "not known".
bool known_eq(Expr a, Expr b);
bool known_ne(Expr a, Expr b);
bool known_le(Expr a, Expr b);
bool known_lt(Expr a, Expr b);
Expr product(const std::vector<Expr>& xs);

}  // namespace braze::shapes

template <>
struct std::hash<braze::shapes::Expr> {
    size_t operator()(const braze::shapes::Expr& e) const { return e.hash(); }
};
