// torch's SymInt, SymBool and SymFloat over our expressions.
#include <torch/csrc/utils/python_symnode.h>
#include <cmath>

#include "bridge/capture.h"
#include "bridge/gil.h"
#include "bridge/symbols.h"
#include "core/support/error.h"

namespace braze::bridge {

namespace {

using c10::SymNode;

// An integer expression, a relation that has not been decided, or a float: known, or computed by the graph.
class Node final : public c10::SymNodeImpl {
  public:
    Node(Symbols symbols, Expr e) : symbols_(std::move(symbols)), kind_(Int), expr_(e) {}
    Node(Symbols symbols, Relation r) : symbols_(std::move(symbols)), kind_(Bool), relation_(r) {}
    Node(Symbols symbols, double f) : symbols_(std::move(symbols)), kind_(Float), float_(f) {}
    Node(Symbols symbols, FloatValue f)
        : symbols_(std::move(symbols)), kind_(Float), float_(f.hint), traced_(std::move(f)) {}
    const FloatValue* traced() const { return traced_ ? &*traced_ : nullptr; }

    const Symbols& symbols() const { return symbols_; }
    const Expr& expr() const { return expr_; }
    bool is_integer() const { return kind_ == Int; }

    bool is_int() override { return kind_ == Int; }
    bool is_bool() override { return kind_ == Bool; }
    bool is_float() override { return kind_ == Float; }

    SymNode add(const SymNode& o) override {
        return arithmetic(o, [](Expr a, Expr b) { return a + b; }, [](double a, double b) { return a + b; });
    }
    SymNode sub(const SymNode& o) override {
        return arithmetic(o, [](Expr a, Expr b) { return a - b; }, [](double a, double b) { return a - b; });
    }
    SymNode mul(const SymNode& o) override {
        return arithmetic(o, [](Expr a, Expr b) { return a * b; }, [](double a, double b) { return a * b; });
    }
    SymNode truediv(const SymNode& o) override { return real(value() / value_of(o)); }
    SymNode pow(const SymNode& o) override { return real(std::pow(value(), value_of(o))); }
    SymNode pow_by_natural(const SymNode& o) override {
        auto n = exponent(o);
        if (kind_ == Int && n && *n >= 0 && *n <= 8) {
            Expr product(1);
            for (int64_t i = 0; i < *n; ++i) product = product * expr_;
            return integer(product);
        }
        return integer(Expr(static_cast<int64_t>(std::llround(std::pow(value(), value_of(o))))));
    }
    SymNode floordiv(const SymNode& o) override {
        return division(o, shapes::floordiv, [](double a, double b) { return std::floor(a / b); });
    }
    SymNode mod(const SymNode& o) override {
        return division(o, shapes::mod, [](double a, double b) { return a - std::floor(a / b) * b; });
    }
    SymNode eq(const SymNode& o) override { return compare(o, Relation::Eq, false); }
    SymNode ne(const SymNode& o) override { return compare(o, Relation::Ne, false); }
    SymNode lt(const SymNode& o) override { return compare(o, Relation::Lt, false); }
    SymNode le(const SymNode& o) override { return compare(o, Relation::Le, false); }
    SymNode gt(const SymNode& o) override { return compare(o, Relation::Lt, true); }
    SymNode ge(const SymNode& o) override { return compare(o, Relation::Le, true); }
    SymNode ceil() override { return kind_ == Int ? clone() : integer(Expr(static_cast<int64_t>(std::ceil(value())))); }
    SymNode floor() override {
        return kind_ == Int ? clone() : integer(Expr(static_cast<int64_t>(std::floor(value()))));
    }
    SymNode neg() override { return kind_ == Int ? integer(-expr_) : real(-value()); }
    SymNode sym_min(const SymNode& o) override { return extremum(o, Relation::Le); }
    SymNode sym_max(const SymNode& o) override { return extremum(o, Relation::Lt); }
    // Logic needs the answers at once.
    SymNode sym_or(const SymNode& o) override { return boolean(truth() || o->guard_bool("", 0)); }
    SymNode sym_and(const SymNode& o) override { return boolean(truth() && o->guard_bool("", 0)); }
    SymNode sym_not() override { return c10::make_intrusive<Node>(symbols_, relation_.negated()); }
    SymNode sym_ite(const SymNode& yes, const SymNode& no) override { return truth() ? yes : no; }
    SymNode clone() override {
        if (kind_ == Int) return integer(expr_);
        if (kind_ == Bool) return c10::make_intrusive<Node>(symbols_, relation_);
        return traced_ ? SymNode(c10::make_intrusive<Node>(symbols_, *traced_)) : real(float_);
    }
    SymNode sym_float() override { return kind_ == Float ? clone() : real(value()); }
    SymNode wrap_int(int64_t n) override { return integer(Expr(n)); }
    SymNode wrap_float(double d) override { return real(d); }
    SymNode wrap_bool(bool b) override { return boolean(b); }
    int64_t guard_int(const char*, int64_t) override {
        return kind_ == Int ? symbols_->fix(expr_) : static_cast<int64_t>(value());
    }
    bool guard_bool(const char*, int64_t) override { return truth(); }
    double guard_float(const char*, int64_t) override { return value(); }
    bool statically_known_true(const char*, int64_t) override {
        return kind_ == Bool && resolved().known().value_or(false);
    }
    int64_t int_() override { return guard_int("", 0); }
    bool bool_() override { return truth(); }
    bool has_hint() override { return true; }
    std::string str() override {
        // What the program prints, it knows.
        if (kind_ == Int) return std::to_string(symbols_->fix(expr_));
        return kind_ == Bool ? (truth() ? "True" : "False") : std::to_string(value());
    }
    std::optional<int64_t> constant_int() override {
        return kind_ == Int ? symbols_->resolve(expr_).as_const() : std::nullopt;
    }
    std::optional<bool> constant_bool() override { return kind_ == Bool ? resolved().known() : std::nullopt; }
    std::optional<int64_t> maybe_as_int() override { return constant_int(); }
    bool is_symbolic() override { return true; }

  private:
    enum Kind : uint8_t { Int, Bool, Float };

    SymNode integer(Expr e) const { return c10::make_intrusive<Node>(symbols_, symbols_->resolve(e)); }
    SymNode real(double d) const { return c10::make_intrusive<Node>(symbols_, d); }
    SymNode boolean(bool b) const {
        return c10::make_intrusive<Node>(symbols_, Relation{Relation::Eq, Expr(0), Expr(b ? 0 : 1)});
    }
    Relation resolved() const {
        return {relation_.kind, symbols_->resolve(relation_.a), symbols_->resolve(relation_.b)};
    }
    bool truth() {
        if (kind_ == Bool) return symbols_->decide(relation_);
        if (known() >= 0) return symbols_->floats().ask(FloatRelation::Ne, known(), symbols_->floats().constant(0));
        return value() != 0;
    }

    static std::optional<Expr> integer_of(const SymNode& o) {
        if (auto* n = dynamic_cast<Node*>(o.get()))
            return n->kind_ == Int ? std::optional<Expr>(n->expr_) : std::nullopt;
        if (auto c = o->constant_int()) return Expr(*c);
        return std::nullopt;
    }
    static std::optional<int64_t> exponent(const SymNode& o) {
        auto e = integer_of(o);
        return e ? e->as_const() : std::nullopt;
    }
    // As a number that is known from here on.
    double value() {
        if (kind_ == Int) return static_cast<double>(symbols_->fix(expr_));
        if (traced_ && traced_->data) needs_data();
        if (traced_)
            for (int input : traced_->inputs) symbols_->fix_input(input);
        return kind_ == Bool ? (truth() ? 1 : 0) : float_;
    }
    static double value_of(const SymNode& o) {
        if (auto* n = dynamic_cast<Node*>(o.get())) return n->value();
        if (o->is_float()) return o->guard_float("", 0);
        return o->is_bool() ? (o->guard_bool("", 0) ? 1 : 0) : static_cast<double>(o->guard_int("", 0));
    }

    [[noreturn]] static void needs_data() {
        Gil gil;
        Tracer* tracer = Tracer::active();
        BRAZE_CHECK(tracer, "a number of a trace that is over");
        tracer->stop("data-dependent", "the value of Tensor.item()");
    }
    // As a node that guards can compute.
    int known() const { return traced_ ? traced_->node : FloatNodes::kUnknown; }

    template <class I, class F>
    SymNode arithmetic(const SymNode& o, I&& on_integers, F&& on_floats) {
        if (kind_ == Int)
            if (auto other = integer_of(o)) return integer(on_integers(expr_, *other));
        return real(on_floats(value(), value_of(o)));
    }
    template <class I, class F>
    SymNode division(const SymNode& o, I&& on_integers, F&& on_floats) {
        if (kind_ == Int)
            if (auto other = integer_of(o)) {
                if (symbols_->hint(*other) == 0) {
                    PyErr_SetString(PyExc_ZeroDivisionError, "integer division or modulo by zero");
                    throw python_error();
                }
                symbols_->decide({Relation::Ne, *other, Expr(0)});
                return integer(on_integers(symbols_->resolve(expr_), symbols_->resolve(*other)));
            }
        return real(on_floats(value(), value_of(o)));
    }
    SymNode compare(const SymNode& o, Relation::Kind k, bool swapped) {
        if (kind_ == Int)
            if (auto other = integer_of(o))
                return c10::make_intrusive<Node>(symbols_,
                                                 swapped ? Relation{k, *other, expr_} : Relation{k, expr_, *other});
        if (std::optional<bool> answer = ask(o, k, swapped)) return boolean(*answer);
        double a = value(), b = value_of(o);
        if (swapped) std::swap(a, b);
        bool r = k == Relation::Eq ? a == b : k == Relation::Ne ? a != b : k == Relation::Lt ? a < b : a <= b;
        return boolean(r);
    }
    std::optional<bool> ask(const SymNode& o, Relation::Kind k, bool swapped) {
        auto node = [this](Node* n) {
            if (n->known() >= 0 || n->kind_ != Float || n->traced_) return n->known();
            return symbols_->floats().constant(n->float_);
        };
        auto* other = dynamic_cast<Node*>(o.get());
        if (!other) return std::nullopt;
        int a = node(this), b = node(other);
        if (a < 0 || b < 0) return std::nullopt;
        if (swapped) std::swap(a, b);
        return symbols_->floats().ask(static_cast<FloatRelation::Kind>(k), a, b);
    }
    SymNode extremum(const SymNode& o, Relation::Kind k) {
        if (kind_ == Int)
            if (auto other = integer_of(o)) {
                bool smaller_first = k == Relation::Le;
                return integer(smaller_first ? shapes::min(expr_, *other) : shapes::max(expr_, *other));
            }
        double a = value(), b = value_of(o);
        return real(k == Relation::Le ? std::min(a, b) : std::max(a, b));
    }
    Symbols symbols_;
    Kind kind_;
    Expr expr_;
    Relation relation_{Relation::Eq, Expr(0), Expr(0)};
    double float_ = 0;
    std::optional<FloatValue> traced_;
};

}  // namespace

c10::SymInt sym_int(const Symbols& symbols, const Expr& e) {
    Expr now = symbols->resolve(e);
    if (auto c = now.as_const()) return c10::SymInt(*c);
    return c10::SymInt(SymNode(c10::make_intrusive<Node>(symbols, now)));
}

c10::SymFloat sym_float(const Symbols& symbols, FloatValue value) {
    return c10::SymFloat(SymNode(c10::make_intrusive<Node>(symbols, std::move(value))));
}

c10::SymFloat sym_float(const c10::SymFloat& like, FloatValue value) {
    return sym_float(symbols_of(like), std::move(value));
}

// (torch's conversion of an argument puts a node of its own around the Python object of ours)
static Node* node_behind(const c10::SymFloat& f) {
    c10::SymNodeImpl* n = f.toSymNodeImplUnowned();
    if (auto* python = dynamic_cast<torch::impl::PythonSymNodeImpl*>(n)) {
        pybind11::gil_scoped_acquire gil;
        pybind11::handle o = python->getPyObj();
        if (!pybind11::isinstance<c10::SymNodeImpl>(o)) return nullptr;
        n = o.cast<c10::SymNode>().get();
    }
    return dynamic_cast<Node*>(n);
}

const Symbols& symbols_of(const c10::SymFloat& f) {
    Node* n = node_behind(f);
    BRAZE_CHECK(n, "a number of another trace");
    return n->symbols();
}

const FloatValue* float_value(const c10::SymFloat& f) {
    if (!f.is_symbolic()) return nullptr;
    Node* n = node_behind(f);
    return n ? n->traced() : nullptr;
}

bool decide_numbers(Relation::Kind kind, const c10::SymInt& a, const c10::SymInt& b) {
    const c10::SymInt& s = a.is_heap_allocated() ? a : b;
    BRAZE_CHECK(s.is_heap_allocated(), "no symbol");
    auto* node = dynamic_cast<Node*>(s.toSymNode().get());
    BRAZE_CHECK(node, "a symbol of somebody else");
    return node->symbols()->decide({kind, expr_of(a), expr_of(b)}, true);
}

Expr expr_of(const c10::SymInt& s) {
    if (!s.is_heap_allocated()) return s.as_int_unchecked();
    SymNode node = s.toSymNode();
    if (auto* n = dynamic_cast<Node*>(node.get()); n && n->is_integer()) return n->expr();
    auto c = node->maybe_as_int();
    BRAZE_CHECK(c.has_value(), "a size of another trace: " + node->str());
    return *c;
}

bool has_numbers(const c10::SymInt& s) {
    if (!s.is_heap_allocated()) return false;
    auto* n = dynamic_cast<Node*>(s.toSymNodeImplUnowned());
    if (!n || !n->is_integer()) return false;
    const auto& all = n->symbols()->symbols();
    return std::any_of(all.begin(), all.end(), [n](const SymbolTable::Symbol& x) {
        return x.axis == SymbolTable::kItself && n->expr().contains(x.symbol);
    });
}

std::optional<Expr> expr_of(PyObject* o) {
    if (!torch::is_symint(pybind11::handle(o))) return std::nullopt;
    return expr_of(pybind11::handle(o).cast<c10::SymInt>());
}

}  // namespace braze::bridge
