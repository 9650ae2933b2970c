#include "bridge/symbols.h"

#include <algorithm>

#include "core/support/error.h"

namespace braze::bridge {

Relation Relation::negated() const {
    switch (kind) {
        case Eq: return {Ne, a, b};
        case Ne: return {Eq, a, b};
        case Lt: return {Le, b, a};
        default: return {Lt, b, a};
    }
}

std::string Relation::str() const {
    constexpr const char* text[] = {" == ", " != ", " < ", " <= "};
    return a.str() + text[kind] + b.str();
}

bool Relation::holds(int64_t x, int64_t y) const {
    switch (kind) {
        case Eq: return x == y;
        case Ne: return x != y;
        case Lt: return x < y;
        default: return x <= y;
    }
}

std::optional<bool> Relation::known() const {
    switch (kind) {
        case Eq:
            if (shapes::known_eq(a, b)) return true;
            if (shapes::known_ne(a, b)) return false;
            return std::nullopt;
        case Ne:
            if (shapes::known_ne(a, b)) return true;
            if (shapes::known_eq(a, b)) return false;
            return std::nullopt;
        case Lt:
            if (shapes::known_lt(a, b)) return true;
            if (shapes::known_le(b, a)) return false;
            return std::nullopt;
        default:
            if (shapes::known_le(a, b)) return true;
            if (shapes::known_lt(b, a)) return false;
            return std::nullopt;
    }
}

Expr SymbolTable::add(int64_t hint, int input, int axis) {
    for (const Symbol& s : symbols_)
        if (s.hint == hint && s.axis != kItself) {
            Expr now = resolve(s.symbol);
            places_.push_back({input, axis, s.symbol});
            return now;
        }
    Expr e = Expr::symbol("s" + std::to_string(symbols_.size()), {kLeastSymbolic, kMostSymbolic});
    symbols_.push_back({e, hint, input, axis});
    return e;
}

Expr SymbolTable::add_number(int64_t hint, int input) {
    Expr e = Expr::symbol("s" + std::to_string(symbols_.size()), {kLeastSymbolic, kMostSymbolic});
    symbols_.push_back({e, hint, input, kItself});
    return e;
}

Expr SymbolTable::resolve(const Expr& e) const {
    if (e.is_const() || bound_.empty()) return e;
    return e.substitute([&](const Expr& s) -> std::optional<Expr> {
        auto it = bound_.find(s);
        return it == bound_.end() ? std::nullopt : std::optional<Expr>(resolve(it->second));
    });
}

std::vector<Expr> SymbolTable::resolve(const std::vector<Expr>& es) const {
    std::vector<Expr> out;
    for (const Expr& e : es) out.push_back(resolve(e));
    return out;
}

int64_t SymbolTable::hint(const Expr& e) const {
    auto v = e.evaluate([&](const Expr& s) -> std::optional<int64_t> {
        for (const Symbol& x : symbols_)
            if (x.symbol == s) return x.hint;
        return std::nullopt;
    });
    BRAZE_CHECK(v.has_value(), "a size without a hint: " + e.str());
    return *v;
}

void SymbolTable::bind(const Expr& symbol, const Expr& value) {
    bound_[symbol] = value;
    ++version_;
}

int64_t SymbolTable::fix(const Expr& e) {
    Expr now = resolve(e);
    std::vector<Expr> free;
    now.symbols(free);
    for (const Expr& s : free) bind(s, hint(s));
    return hint(e);
}

bool SymbolTable::decide(Relation r, bool of_numbers) {
    r.a = resolve(r.a);
    r.b = resolve(r.b);
    bool answer = r.holds(hint(r.a), hint(r.b));
    if (auto known = r.known()) {
        BRAZE_CHECK(*known == answer, "the ranges contradict the sizes of the trace: " + r.str());
        return answer;
    }
    Relation held = answer ? r : r.negated();
    auto free = [](const Expr& x) { return !x.is_const() && !x.is_symbol(); };
    bool guard_is_enough = of_numbers && (free(held.a) ? held.b.is_const() : free(held.b) && held.a.is_const());
    if (held.kind == Relation::Eq && !guard_is_enough) {
        unify(held.a, held.b);
        return answer;
    }
    assume(std::move(held));
    return answer;
}

void SymbolTable::assume(Relation r) {
    if (r.known().value_or(false)) return;
    if (!relation_texts_.insert(r.str()).second) return;
    relations_.push_back(std::move(r));
    if (relations_.size() <= kMostRelations) return;
    fix(relations_.back().a);  // (numbers that are sorted, say: no other ones will fit)
    fix(relations_.back().b);
}

void SymbolTable::unify(const Expr& x, const Expr& y) {
    Expr a = resolve(x), b = resolve(y);
    if (a == b || shapes::known_eq(a, b)) return;
    if (!a.is_symbol()) std::swap(a, b);
    relations_.push_back({Relation::Eq, a, b});
    if (a.is_symbol() && !b.contains(a)) {
        bind(a, b);
        return;
    }
    // not solved for a symbol: only these very sizes
    fix(a);
    fix(b);
}

bool SymbolTable::is_one(const Expr& e) { return decide({Relation::Eq, e, Expr(1)}); }

bool has_symbols(const c10::IValue& v) {
    if (!v.isList()) return false;
    auto list = v.toListRef();
    return std::any_of(list.begin(), list.end(), [](const c10::IValue& x) { return x.isSymInt(); });
}

int64_t SymbolValues::operator()(const Expr& e) const {
    if (auto c = e.as_const()) return *c;
    auto v = table_.resolve(e).evaluate([&](const Expr& symbol) -> std::optional<int64_t> {
        for (size_t i = 0; i < values_.size(); ++i)
            if (table_.symbols()[i].symbol == symbol) return values_[i];
        return std::nullopt;
    });
    BRAZE_CHECK(v.has_value(), "cannot evaluate " + e.str());
    return *v;
}

bool SymbolicMetadata::constant() const {
    auto fixed = [](const Expr& e) { return e.is_const(); };
    return std::all_of(sizes.begin(), sizes.end(), fixed) && std::all_of(strides.begin(), strides.end(), fixed) &&
           offset.is_const();
}

bool has_dense_layout(SymbolTable& t, const std::vector<Expr>& sizes, const std::vector<Expr>& strides,
                      c10::ArrayRef<int> innermost_first) {
    Expr expected(1);
    for (int axis : innermost_first) {
        if (t.is_one(sizes[axis])) continue;
        if (!t.decide({Relation::Eq, strides[axis], expected})) return false;
        expected = expected * t.resolve(sizes[axis]);
    }
    return true;
}

bool is_dense_in_some_order(SymbolTable& t, const std::vector<Expr>& sizes, const std::vector<Expr>& strides) {
    std::vector<int> order;
    for (size_t i = 0; i < sizes.size(); ++i) order.push_back(static_cast<int>(i));
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return t.hint(strides[a]) < t.hint(strides[b]); });
    return has_dense_layout(t, sizes, strides, order);
}

// As ATen decides it.
bool is_channels_last_like(SymbolTable& t, const std::vector<Expr>& sizes, const std::vector<Expr>& strides) {
    static const int order4[] = {1, 3, 2, 0}, order5[] = {1, 4, 3, 2, 0};
    if (sizes.size() != 4 && sizes.size() != 5) return false;
    if (t.decide({Relation::Eq, strides[1], Expr(0)})) return false;
    Expr least(0);
    for (int axis : sizes.size() == 4 ? c10::ArrayRef<int>(order4) : c10::ArrayRef<int>(order5)) {
        if (t.decide({Relation::Eq, sizes[axis], Expr(0)}) || t.decide({Relation::Lt, strides[axis], least}))
            return false;
        if (axis == 0 && t.decide({Relation::Eq, least, strides[1]})) return false;
        least = strides[axis];
        if (!t.is_one(sizes[axis])) least = least * sizes[axis];
    }
    return true;
}

namespace {

class ShapeGuard final : public frontend::ShapeGuard {
  public:
    explicit ShapeGuard(const SymbolTable& t)
        : symbols_(t.symbols()), places_(t.places()), relations_(t.relations()), floats_(t.floats().for_guard()) {
        // A symbol that was fixed is no longer a symbol of the graph.
        for (const auto& s : symbols_)
            if (Expr now = t.resolve(s.symbol); now.is_const()) relations_.push_back({Relation::Eq, s.symbol, now});
    }

    bool check(PyObject* const* inputs) const override { return first_failure(inputs).empty(); }
    std::string explain(PyObject* const* inputs) const override { return first_failure(inputs); }
    std::string text() const override {
        std::string out;
        auto add = [&](const std::string& s) { out += (out.empty() ? "" : ", ") + s; };
        for (const auto& s : symbols_) add(s.symbol.str() + " = " + place(s.input, s.axis));
        for (const auto& p : places_) add(place(p.input, p.axis) + " == " + p.symbol.str());
        for (const Relation& r : relations_) add(r.str());
        if (floats_.any_question()) add(floats_.text());
        return out;
    }
    bool empty() const override { return symbols_.empty() && !floats_.any_question(); }

  private:
    static std::string place(int input, int axis) {
        if (axis == SymbolTable::kItself) return "inputs[" + std::to_string(input) + "]";
        return "inputs[" + std::to_string(input) + "].size(" + std::to_string(axis) + ")";
    }
    static int64_t size(PyObject* const* inputs, int input, int axis) {
        if (axis == SymbolTable::kItself) {
            int overflow = 0;
            return PyLong_AsLongLongAndOverflow(inputs[input], &overflow);  // -1: too large
        }
        const at::Tensor& t = THPVariable_Unpack(inputs[input]);
        return axis < t.dim() ? t.size(axis) : -1;
    }
    std::string first_failure(PyObject* const* inputs) const {
        c10::SmallVector<int64_t, 8> values;
        for (const auto& s : symbols_) values.push_back(size(inputs, s.input, s.axis));
        auto value_of = [&](const Expr& symbol) -> std::optional<int64_t> {
            for (size_t i = 0; i < symbols_.size(); ++i)
                if (symbols_[i].symbol == symbol) return values[i];
            return std::nullopt;
        };
        for (size_t i = 0; i < symbols_.size(); ++i)
            if (values[i] < kLeastSymbolic || values[i] > kMostSymbolic)
                return place(symbols_[i].input, symbols_[i].axis) + ": expected at least 2, got " +
                       std::to_string(values[i]);
        for (const auto& p : places_) {
            int64_t expected = *value_of(p.symbol), got = size(inputs, p.input, p.axis);
            if (expected != got)
                return place(p.input, p.axis) + ": expected " + p.symbol.str() + " = " + std::to_string(expected) +
                       ", got " + std::to_string(got);
        }
        for (const Relation& r : relations_) {
            auto a = r.a.evaluate(value_of), b = r.b.evaluate(value_of);
            if (!a || !b || !r.holds(*a, *b)) return "expected " + r.str();
        }
        return floats_.any_question() ? floats_.broken(inputs) : "";
    }

    std::vector<SymbolTable::Symbol> symbols_;
    std::vector<SymbolTable::Place> places_;
    std::vector<Relation> relations_;
    FloatNodes floats_;
};

}  // namespace

std::unique_ptr<frontend::ShapeGuard> make_shape_guard(const SymbolTable& symbols) {
    return std::make_unique<ShapeGuard>(symbols);
}

}  // namespace braze::bridge
