// Symbolic integer expressions: every size, stride, offset and index in the IR is one, constant or not.
//
// An Expr is a handle to an immutable, interned node: structurally equal canonical expressions are the
// same pointer, so == is a pointer comparison. Construction simplifies (constants folded, sums and products
// expanded and sorted, floordiv/mod reduced with the ranges of the symbols). Interning is thread-safe; nodes live as
// long as the process.
//
// Values are mathematical integers that are assumed to fit int64: folding wraps, ranges saturate (the ends of int64
// mean "unbounded"). A divisor is assumed not to be 0: 0 // x is 0 and x // x is 1.
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

struct ExprNode;
class Expr;
using SymbolResolver = std::function<std::optional<Expr>(const std::string& name)>;

class Expr {
  public:
    Expr() : Expr(static_cast<int64_t>(0)) {}
    Expr(int64_t value);  // NOLINT(google-explicit-constructor): constants read as numbers
    Expr(int value) : Expr(static_cast<int64_t>(value)) {}  // NOLINT

    // The symbol of that name and range. Both are its identity: the same name with another range is another symbol that
    // prints the same (axis names are used again in every kernel, with other extents). So ask with the same range, or
    // keep the Expr. A size symbol has range [2, max] or [0, max], a loaded index none. Names: s0, s1, ... sizes known
    // at run time; o0.. i0.. loop axes; t0.. indices that were loaded.
    static Expr symbol(const std::string& name, Range range = {});
    // A loop axis: 0 <= axis < extent. Also a symbolic extent is known to floordiv, mod and the known_* predicates.
    static Expr axis(const std::string& name, const Expr& extent);

    ExprKind kind() const;
    bool is_const() const { return kind() == ExprKind::Const; }
    bool is_symbol() const { return kind() == ExprKind::Symbol; }
    std::optional<int64_t> as_const() const;
    int64_t value() const;            // of a Const; throws InternalError otherwise
    const std::string& name() const;  // of a Symbol
    // Add: terms, a constant last. Mul: factors, a constant first. Others: as written. Const and Symbol: none.
    const std::vector<Expr>& operands() const;
    Range range() const;  // conservative bounds of the whole expression
    size_t hash() const;
    std::string str() const;  // e.g. "4*s0 + i1 % 8"; parse(str()) is the same expression
    // nullopt: not an expression. A name is looked up with `resolve`; without one, it is the first symbol the process
    // made with that name, or a new unbounded one.
    static std::optional<Expr> parse(const std::string& text, const SymbolResolver& resolve = {});

    bool operator==(const Expr& o) const { return node_ == o.node_; }
    bool operator!=(const Expr& o) const { return node_ != o.node_; }

    bool contains(const Expr& symbol) const;
    void symbols(std::vector<Expr>& out) const;  // appended once each, in order of first occurrence
    Expr substitute(const std::function<std::optional<Expr>(const Expr& symbol)>& f) const;
    // Value with every symbol given; nullopt where one is unknown or a divisor is 0.
    std::optional<int64_t> evaluate(const std::function<std::optional<int64_t>(const Expr& symbol)>& f) const;

    // If this == a * symbol + b with a, b free of `symbol`: (a, b). nullopt if not affine in it.
    std::optional<std::pair<Expr, Expr>> affine_in(const Expr& symbol) const;

    const ExprNode* node() const { return node_; }  // for core/shapes
    explicit Expr(const ExprNode* n) : node_(n) {}

  private:
    const ExprNode* node_;
};

struct ExprNode {
    ExprKind kind;
    bool symbolic_axis = false;  // contains an axis whose extent is not constant
    int64_t value = 0;           // Const
    Range range;
    size_t hash = 0;
    std::vector<Expr> operands;
    std::string name;                  // Symbol
    const ExprNode* extent = nullptr;  // Symbol: an axis with this symbolic extent
};

inline ExprKind Expr::kind() const { return node_->kind; }
inline Range Expr::range() const { return node_->range; }
inline size_t Expr::hash() const { return node_->hash; }
inline const std::vector<Expr>& Expr::operands() const { return node_->operands; }
inline std::optional<int64_t> Expr::as_const() const {
    return node_->kind == ExprKind::Const ? std::optional<int64_t>(node_->value) : std::nullopt;
}

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
Expr sum(const std::vector<Expr>& xs);

}  // namespace braze::shapes

template <>
struct std::hash<braze::shapes::Expr> {
    size_t operator()(const braze::shapes::Expr& e) const { return e.hash(); }
};
