// Sizes that are symbols during a trace.
//
// Fakes keep concrete hint sizes, and expressions beside them. Whoever wants to know a symbol's value, or how it
// compares, gets the hint's answer; the trace then holds only where the answer is the same: that is either known from
// the ranges, or becomes a guard (a relation), or fixes the symbol to its hint.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bridge/float_nodes.h"
#include "bridge/torch.h"
#include "core/shapes/expr.h"
#include "frontend/bridge_api.h"

namespace braze::bridge {

using shapes::Expr;

// Smaller sizes are constants (0 and 1 broadcast); nothing in memory is larger.
constexpr int64_t kLeastSymbolic = 2, kMostSymbolic = int64_t{1} << 46;

// A graph that assumes more of its symbols has them constant.
constexpr size_t kMostRelations = 500;

struct Relation {
    enum Kind : uint8_t { Eq, Ne, Lt, Le } kind;
    Expr a, b;
    Relation negated() const;
    std::string str() const;
    bool holds(int64_t x, int64_t y) const;
    // From the ranges alone.
    std::optional<bool> known() const;
};

class SymbolTable {
  public:
    struct Symbol {
        Expr symbol;
        int64_t hint;
        int input, axis;  // where its value is read; kItself: the input is a Python integer
    };
    struct Place {  // another input size that must have the value of a symbol
        int input, axis;
        Expr symbol;
    };

    static constexpr int kItself = -1;

    // The symbol of an input size. Equal hints share one symbol.
    Expr add(int64_t hint, int input, int axis);
    // The symbol of an input that is an integer.
    Expr add_number(int64_t hint, int input);
    // Inputs that are Python floats: the trace needed the value.
    void fix_input(int input) { fixed_inputs_.insert(input); }
    bool is_fixed(int input) const { return fixed_inputs_.contains(input); }
    // With what is known by now put in.
    Expr resolve(const Expr& e) const;
    std::vector<Expr> resolve(const std::vector<Expr>& es) const;
    int64_t hint(const Expr& e) const;
    // Fixes every symbol in it.
    int64_t fix(const Expr& e);
    // The hint's answer, made part of the guards unless it is known.
    // of_numbers: the program asks, so that nothing has to follow for sizes (n % 2 == 0 does not tell n).
    bool decide(Relation r, bool of_numbers = false);
    // A relation that the hints satisfy becomes a guard; the symbols stay free.
    void assume(Relation r);
    // a and b are the same size from here on (their hints agree).
    void unify(const Expr& a, const Expr& b);
    bool is_one(const Expr& e);

    const std::vector<Symbol>& symbols() const { return symbols_; }
    const std::vector<Place>& places() const { return places_; }
    const std::vector<Relation>& relations() const { return relations_; }
    FloatNodes& floats() { return floats_; }
    const FloatNodes& floats() const { return floats_; }
    int version() const { return version_; }  // changes when resolve() may answer otherwise

  private:
    void bind(const Expr& symbol, const Expr& value);
    std::vector<Symbol> symbols_;
    std::vector<Place> places_;
    std::vector<Relation> relations_;
    std::unordered_set<std::string> relation_texts_;
    std::unordered_map<Expr, Expr> bound_;
    std::unordered_set<int> fixed_inputs_;
    FloatNodes floats_;
    int version_ = 0;
};
using Symbols = std::shared_ptr<SymbolTable>;

// Sizes as expressions over the symbols of the trace.
struct SymbolicMetadata {
    std::vector<Expr> sizes, strides;
    Expr offset;
    bool constant() const;
};

// A float of the program that the graph computes with: a scalar tensor of float64 in its place.
struct FloatValue {
    at::Tensor fake;
    double hint = 0;            // where it does not depend on data
    std::vector<int> inputs{};  // Python floats that it was computed from
    int node = FloatNodes::kUnknown;
    bool data = false;     // it depends on a tensor's contents: it cannot become a constant
    bool nonzero = false;  // whatever the data
};

// Whether an operator's argument is a list with a SymInt in it.
bool has_symbols(const c10::IValue& v);
// A SymInt that is `e`; a plain integer where it is constant.
c10::SymInt sym_int(const Symbols& symbols, const Expr& e);
c10::SymFloat sym_float(const Symbols& symbols, FloatValue value);
// In the trace of another one.
c10::SymFloat sym_float(const c10::SymFloat& like, FloatValue value);
// The table of the trace that it belongs to.
const Symbols& symbols_of(const c10::SymFloat& f);
// Of a SymFloat made by sym_float(); nullptr for any other.
const FloatValue* float_value(const c10::SymFloat& f);
// What the program asks about two numbers, at least one of them symbolic.
bool decide_numbers(Relation::Kind kind, const c10::SymInt& a, const c10::SymInt& b);
// The expression of a SymInt of this trace or of a plain one.
Expr expr_of(const c10::SymInt& s);
// The same of a Python torch.SymInt; nullopt for anything else.
std::optional<Expr> expr_of(PyObject* o);
// Whether an integer of the program is part of it (sizes are not).
bool has_numbers(const c10::SymInt& s);

// Values of size symbols in a run.
class SymbolValues {
  public:
    // size(input, axis) reads an input's size.
    template <class Size>
    SymbolValues(const SymbolTable& table, Size&& size) : table_(table) {
        for (const auto& s : table.symbols()) values_.push_back(size(s.input, s.axis));
    }
    int64_t operator()(const Expr& e) const;

  private:
    const SymbolTable& table_;
    c10::SmallVector<int64_t, 8> values_;
};

// Answers about layouts, by the hints, that become part of the guards.
bool has_dense_layout(SymbolTable& t, const std::vector<Expr>& sizes, const std::vector<Expr>& strides,
                      c10::ArrayRef<int> innermost_first);
bool is_dense_in_some_order(SymbolTable& t, const std::vector<Expr>& sizes, const std::vector<Expr>& strides);
bool is_channels_last_like(SymbolTable& t, const std::vector<Expr>& sizes, const std::vector<Expr>& strides);

// What must hold of the inputs' sizes for a graph to be used.
std::unique_ptr<frontend::ShapeGuard> make_shape_guard(const SymbolTable& symbols);

}  // namespace braze::bridge
