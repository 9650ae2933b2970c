#include "bridge/symbolic_numbers.h"

#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

namespace braze::bridge {

namespace {

PyTypeObject *g_int = nullptr, *g_float = nullptr;

bool is_int(PyObject* o) { return Py_TYPE(o) == g_int; }
bool is_float(PyObject* o) { return Py_TYPE(o) == g_float; }

pybind11::object node_of(PyObject* o) { return pybind11::reinterpret_borrow<pybind11::object>(o).attr("node"); }
c10::SymInt int_of(PyObject* o) { return c10::SymInt(node_of(o).cast<c10::SymNode>()); }

}  // namespace

c10::SymFloat float_of(PyObject* o) { return c10::SymFloat(node_of(o).cast<c10::SymNode>()); }

namespace {

PyObject* make(PyTypeObject* type, const c10::SymNode& node) {
    auto o = pybind11::reinterpret_steal<pybind11::object>(type->tp_alloc(type, 0));
    if (!o) return nullptr;
    pybind11::object n = pybind11::cast(node);
    static PyObject* name = PyUnicode_InternFromString("node");
    return PyObject_GenericSetAttr(o.ptr(), name, n.ptr()) < 0 ? nullptr : o.release().ptr();
}

// The number itself; its symbols are constants from here on. A new reference.
PyObject* number(PyObject* o) {
    if (is_int(o)) return PyLong_FromLongLong(int_of(o).guard_int(__FILE__, __LINE__));
    if (is_float(o)) return PyFloat_FromDouble(float_of(o).guard_float(__FILE__, __LINE__));
    return Py_NewRef(o);
}

template <class F>
PyObject* guarded(F&& f) {
    HANDLE_TH_ERRORS
    return f();
    END_HANDLE_TH_ERRORS
}

// An integer that may take part: ours, or one so small that a product with a size is far from overflowing.
std::optional<c10::SymInt> integer(PyObject* o) {
    if (is_int(o)) return int_of(o);
    if (!PyLong_Check(o)) return std::nullopt;
    int overflow = 0;
    long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    constexpr long long limit = 1LL << 31;
    if (overflow || v > limit || v < -limit) return std::nullopt;
    return c10::SymInt(v);
}

// Whether its absolute value is at most `limit`, in each run of the graph. Python's integers have no end, an
// expression's values have to fit int64: what is a number of the program, and no size in memory, can be as large as it
// likes.
bool within(const c10::SymInt& n, int64_t limit) {
    if (auto c = n.maybe_as_int()) return *c <= limit && *c >= -limit;
    return n.sym_le(limit).guard_bool(__FILE__, __LINE__) && n.sym_ge(-limit).guard_bool(__FILE__, __LINE__);
}

bool fits(const c10::SymInt& n) {
    if (!has_numbers(n)) return true;
    shapes::Range range = expr_of(n).range();
    return range.lo > std::numeric_limits<int64_t>::min() && range.hi < std::numeric_limits<int64_t>::max();
}

constexpr binaryfunc kNumberOps[] = {PyNumber_Add,         PyNumber_Subtract,  PyNumber_Multiply,
                                     PyNumber_FloorDivide, PyNumber_Remainder, PyNumber_TrueDivide};
enum Operation : uint8_t { Add, Subtract, Multiply, FloorDivide, Remainder, TrueDivide };

// f of the numbers themselves.
template <class F, class... O>
PyObject* on_numbers(F&& f, O*... o) {
    auto held = std::array{pybind11::reinterpret_steal<pybind11::object>(number(o))...};
    for (const auto& x : held)
        if (!x) return nullptr;
    return std::apply([&](auto&... x) { return f(x.ptr()...); }, held);
}
PyObject* plain_binary(Operation op, PyObject* a, PyObject* b) { return on_numbers(kNumberOps[op], a, b); }

// A float that takes part in arithmetic: a symbolic one, or a constant.
struct Term {
    std::optional<c10::SymFloat> symbol;
    const FloatValue* value = nullptr;  // nullptr: the constant
    double constant = 0;
    double hint() const { return value ? value->hint : constant; }
    int node(SymbolTable& t) const { return value ? value->node : t.floats().constant(constant); }
};

// nullopt: some other number.
std::optional<Term> term(PyObject* o) {
    Term t;
    if (!is_float(o)) {
        if (!PyFloat_CheckExact(o) && !(PyLong_Check(o) && !is_int(o) && integer(o))) return std::nullopt;
        t.constant = PyFloat_AsDouble(o);
        return t;
    }
    t.symbol = float_of(o);
    t.value = float_value(*t.symbol);
    return t.value ? std::optional(std::move(t)) : std::nullopt;
}

const Symbols& table_of(const Term& x, const Term& y) { return symbols_of(x.symbol ? *x.symbol : *y.symbol); }

PyObject* result(const Term& x, const Term& y, FloatNode::Kind kind, const at::Tensor& fake, double hint,
                 bool nonzero = false) {
    const Symbols& table = table_of(x, y);
    FloatValue r{fake, hint};
    for (const Term* t : {&x, &y}) {
        if (!t->value) continue;
        r.inputs.insert(r.inputs.end(), t->value->inputs.begin(), t->value->inputs.end());
        r.data |= t->value->data;
    }
    r.node = table->floats().add(kind, x.node(*table), y.node(*table));
    r.nonzero = nonzero;
    return wrap_symbolic(sym_float(table, std::move(r)));
}

// Whether it is never zero in a run of the graph; guarded where it can be.
bool never_zero(const Term& x, SymbolTable& table) {
    if (!x.value) return x.constant != 0;
    int node = x.value->node;
    return x.value->nonzero || (node >= 0 && table.floats().value(node) != 0 &&
                                table.floats().ask(FloatRelation::Ne, node, table.floats().constant(0)));
}

PyObject* float_binary(Operation op, PyObject* a, PyObject* b) {
    std::optional<Term> s = term(a), t = term(b);
    if (!s || !t) return plain_binary(op, a, b);
    const FloatValue *x = s->value, *y = t->value;
    double c = s->constant, d = t->constant, u = s->hint(), v = t->hint();
    switch (op) {
        case Add: return result(*s, *t, FloatNode::Add, !x ? y->fake + c : y ? x->fake + y->fake : x->fake + d, u + v);
        case Subtract:
            return result(*s, *t, FloatNode::Subtract,
                          !x  ? at::rsub(y->fake, c)
                          : y ? x->fake - y->fake
                              : x->fake - d,
                          u - v);
        case Multiply:
            return result(*s, *t, FloatNode::Multiply, !x ? y->fake * c : y ? x->fake * y->fake : x->fake * d, u * v);
        case TrueDivide: {
            // Division by zero is an error in Python.
            if (!never_zero(*t, *table_of(*s, *t))) return plain_binary(op, a, b);
            at::Tensor left = x ? x->fake : at::full_like(y->fake, c);
            return result(*s, *t, FloatNode::Divide, y ? left / y->fake : left / d, u / v);
        }
        default: return plain_binary(op, a, b);
    }
}

// a ** b, where the numbers show that Python raises no error and its result is a float.
PyObject* float_power(PyObject* a, PyObject* b) {
    std::optional<Term> s = term(a), t = term(b);
    if (!s || !t || (!s->value && !t->value)) return nullptr;
    SymbolTable& table = *table_of(*s, *t);
    FloatNodes& floats = table.floats();
    int x = s->node(table), y = t->node(table);
    int r = floats.add(FloatNode::Power, x, y);
    if (r < 0 || !(floats.value(x) > 0) || !std::isfinite(floats.value(r))) return nullptr;
    int infinity = floats.constant(std::numeric_limits<double>::infinity());
    if (s->value) floats.ask(FloatRelation::Lt, floats.constant(0), x);
    floats.ask(FloatRelation::Lt, r, infinity);
    at::Tensor fake = !s->value   ? at::pow(s->constant, t->value->fake)
                      : !t->value ? at::pow(s->value->fake, t->constant)
                                  : at::pow(s->value->fake, t->value->fake);
    return result(*s, *t, FloatNode::Power, fake, floats.value(r));
}

// Tensors and the program's classes answer themselves; everything else (sequences, complex numbers) is given the
// number.
bool answers_itself(PyObject* o) {
    return PyType_HasFeature(Py_TYPE(o), Py_TPFLAGS_HEAPTYPE) &&
           !PyType_HasFeature(Py_TYPE(o), Py_TPFLAGS_IMMUTABLETYPE);
}
bool is_number(PyObject* o) { return is_int(o) || is_float(o) || PyLong_Check(o) || PyFloat_Check(o); }

template <Operation op>
PyObject* binary(PyObject* a, PyObject* b) {
    return guarded([&]() -> PyObject* {
        if (!is_number(a) || !is_number(b)) {
            if (answers_itself(is_number(a) ? b : a)) return Py_NewRef(Py_NotImplemented);
            return plain_binary(op, a, b);
        }
        if (is_float(a) || is_float(b)) return float_binary(op, a, b);
        auto x = integer(a), y = integer(b);
        if (!x || !y || op == TrueDivide || (x->maybe_as_int() && y->maybe_as_int())) return plain_binary(op, a, b);
        c10::SymInt r = op == Add           ? *x + *y
                        : op == Subtract    ? *x - *y
                        : op == Multiply    ? *x * *y
                        : op == FloorDivide ? *x / *y
                                            : *x % *y;
        int64_t limit = int64_t{1} << (op == Multiply ? 31 : 61);
        if (!fits(r) && !(within(*x, limit) && within(*y, limit))) return plain_binary(op, a, b);
        return wrap_symbolic(r);
    });
}

// Operators that need the numbers.
template <binaryfunc op>
PyObject* known_binary(PyObject* a, PyObject* b) {
    return guarded([&]() -> PyObject* {
        if ((!is_number(a) && answers_itself(a)) || (!is_number(b) && answers_itself(b)))
            return Py_NewRef(Py_NotImplemented);
        return on_numbers(op, a, b);
    });
}
PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
    return guarded([&]() -> PyObject* {
        for (PyObject* o : {a, b})
            if (!is_number(o) && answers_itself(o)) return Py_NewRef(Py_NotImplemented);
        if (modulus == Py_None && (is_float(a) || is_float(b)))
            if (PyObject* r = float_power(a, b)) return r;
        return on_numbers(PyNumber_Power, a, b, modulus);
    });
}
template <unaryfunc op>
PyObject* known_unary(PyObject* a) {
    return guarded([&]() -> PyObject* { return on_numbers(op, a); });
}
PyObject* negative(PyObject* a) {
    return guarded([&]() -> PyObject* {
        if (is_int(a)) {
            c10::SymInt n = int_of(a);
            return fits(n) || within(n, int64_t{1} << 61) ? wrap_symbolic(-n) : on_numbers(PyNumber_Negative, a);
        }
        c10::SymFloat f = float_of(a);
        const FloatValue* x = float_value(f);
        if (!x) return known_unary<PyNumber_Negative>(a);
        FloatValue r = *x;
        r.fake = -x->fake;
        r.hint = -x->hint;
        FloatNodes& floats = symbols_of(f)->floats();
        r.node = floats.add(FloatNode::Multiply, x->node, floats.constant(-1));
        return wrap_symbolic(sym_float(f, std::move(r)));
    });
}
int truth(PyObject* a) {
    try {
        if (is_int(a)) return decide_numbers(Relation::Ne, int_of(a), c10::SymInt(0));
        c10::SymFloat f = float_of(a);
        const FloatValue* x = float_value(f);
        if (!x || x->node < 0) return f.guard_float(__FILE__, __LINE__) != 0;
        FloatNodes& floats = symbols_of(f)->floats();
        return floats.ask(FloatRelation::Ne, x->node, floats.constant(0));
    } catch (python_error& e) { e.restore(); } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
    return -1;
}

// Of floats that guards can compute.
std::optional<bool> compare_floats(PyObject* a, PyObject* b, int op) {
    if (!is_float(a) && !is_float(b)) return std::nullopt;
    std::optional<Term> s = term(a), t = term(b);
    if (!s || !t) return std::nullopt;
    SymbolTable& table = *table_of(*s, *t);
    int x = s->node(table), y = t->node(table);
    if (x < 0 || y < 0) return std::nullopt;
    switch (op) {
        case Py_EQ: return table.floats().ask(FloatRelation::Eq, x, y);
        case Py_NE: return table.floats().ask(FloatRelation::Ne, x, y);
        case Py_LT: return table.floats().ask(FloatRelation::Lt, x, y);
        case Py_LE: return table.floats().ask(FloatRelation::Le, x, y);
        case Py_GT: return table.floats().ask(FloatRelation::Lt, y, x);
        default: return table.floats().ask(FloatRelation::Le, y, x);
    }
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
    return guarded([&]() -> PyObject* {
        if (!is_number(b)) {
            if (answers_itself(b)) return Py_NewRef(Py_NotImplemented);
        } else if (auto x = integer(a), y = integer(b); x && y) {
            bool r = false;
            switch (op) {
                case Py_EQ: r = decide_numbers(Relation::Eq, *x, *y); break;
                case Py_NE: r = decide_numbers(Relation::Ne, *x, *y); break;
                case Py_LT: r = decide_numbers(Relation::Lt, *x, *y); break;
                case Py_LE: r = decide_numbers(Relation::Le, *x, *y); break;
                case Py_GT: r = decide_numbers(Relation::Lt, *y, *x); break;
                default: r = decide_numbers(Relation::Le, *y, *x); break;
            }
            return PyBool_FromLong(r);
        } else if (std::optional<bool> answer = compare_floats(a, b, op)) {
            return PyBool_FromLong(*answer);
        }
        return on_numbers([op](PyObject* x, PyObject* y) { return PyObject_RichCompare(x, y, op); }, a, b);
    });
}

Py_hash_t hash(PyObject* a) {
    auto x = pybind11::reinterpret_steal<pybind11::object>(known_unary<PyNumber_Positive>(a));
    return x ? PyObject_Hash(x.ptr()) : -1;
}

// What the number has, the number answers; torch asks for the node and its own protocol.
PyObject* attribute(PyObject* self, PyObject* name) {
    PyTypeObject* like = is_int(self) ? &PyLong_Type : &PyFloat_Type;
    const char* n = PyUnicode_AsUTF8(name);
    if (!n) return nullptr;
    std::string_view s = n;
    if (s == "__class__") return Py_NewRef(reinterpret_cast<PyObject*>(like));
    // (what makes, sets or describes the object itself is its class's; operators as methods are the number's)
    static constexpr std::string_view own[] = {
        "__dict__",    "__getattribute__",  "__init__",         "__new__",    "__setattr__",
        "__delattr__", "__init_subclass__", "__subclasshook__", "__module__", "__dir__"};
    bool special = std::find(std::begin(own), std::end(own), s) != std::end(own);
    if (special || !PyObject_HasAttr(reinterpret_cast<PyObject*>(like), name))
        return PyObject_GenericGetAttr(self, name);
    return guarded(
        [&]() -> PyObject* { return on_numbers([name](PyObject* x) { return PyObject_GetAttr(x, name); }, self); });
}

// Special methods that C code looks up on the class.
template <int which>
PyObject* by_number(PyObject* self, PyObject* args) {
    static constexpr const char* names[] = {"__format__", "__round__", "__trunc__",
                                            "__floor__",  "__ceil__",  "__reduce_ex__"};
    return guarded([&]() -> PyObject* {
        auto x = pybind11::reinterpret_steal<pybind11::object>(number(self));
        if (!x) return nullptr;
        auto m = pybind11::reinterpret_steal<pybind11::object>(PyObject_GetAttrString(x.ptr(), names[which]));
        return m ? PyObject_CallObject(m.ptr(), args) : nullptr;
    });
}
PyMethodDef methods[] = {{"__format__", by_number<0>, METH_VARARGS, nullptr},
                         {"__round__", by_number<1>, METH_VARARGS, nullptr},
                         {"__trunc__", by_number<2>, METH_VARARGS, nullptr},
                         {"__floor__", by_number<3>, METH_VARARGS, nullptr},
                         {"__ceil__", by_number<4>, METH_VARARGS, nullptr},
                         {"__reduce_ex__", by_number<5>, METH_VARARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

template <class F>
PyType_Slot slot(int id, F* f) {
    return {id, reinterpret_cast<void*>(f)};
}

PyTypeObject* make_class(const char* name, const char* base, bool integer) {
    std::vector<PyType_Slot> slots{slot(Py_nb_add, binary<Add>),
                                   slot(Py_nb_subtract, binary<Subtract>),
                                   slot(Py_nb_multiply, binary<Multiply>),
                                   slot(Py_nb_floor_divide, binary<FloorDivide>),
                                   slot(Py_nb_remainder, binary<Remainder>),
                                   slot(Py_nb_true_divide, binary<TrueDivide>),
                                   slot(Py_nb_divmod, known_binary<PyNumber_Divmod>),
                                   slot(Py_nb_power, power),
                                   slot(Py_nb_negative, negative),
                                   slot(Py_nb_positive, known_unary<PyNumber_Positive>),
                                   slot(Py_nb_absolute, known_unary<PyNumber_Absolute>),
                                   slot(Py_nb_bool, truth),
                                   slot(Py_nb_int, known_unary<PyNumber_Long>),
                                   slot(Py_nb_float, known_unary<PyNumber_Float>),
                                   slot(Py_tp_richcompare, compare),
                                   slot(Py_tp_hash, hash),
                                   slot(Py_tp_repr, known_unary<PyObject_Repr>),
                                   slot(Py_tp_str, known_unary<PyObject_Str>),
                                   slot(Py_tp_getattro, attribute),
                                   {Py_tp_methods, methods}};
    if (integer)
        for (PyType_Slot s :
             {slot(Py_nb_index, known_unary<PyNumber_Index>), slot(Py_nb_lshift, known_binary<PyNumber_Lshift>),
              slot(Py_nb_rshift, known_binary<PyNumber_Rshift>), slot(Py_nb_and, known_binary<PyNumber_And>),
              slot(Py_nb_or, known_binary<PyNumber_Or>), slot(Py_nb_xor, known_binary<PyNumber_Xor>),
              slot(Py_nb_invert, known_unary<PyNumber_Invert>)})
            slots.push_back(s);
    slots.push_back({0, nullptr});
    PyType_Spec spec{name, 0, 0, Py_TPFLAGS_DEFAULT, slots.data()};
    auto torch = pybind11::reinterpret_steal<pybind11::object>(PyImport_ImportModule("torch"));
    auto b = torch ? pybind11::reinterpret_steal<pybind11::object>(PyObject_GetAttrString(torch.ptr(), base))
                   : pybind11::object();
    return b ? reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(&spec, b.ptr())) : nullptr;
}

}  // namespace

bool init_symbolic_numbers() {
    if (g_int) return true;
    g_int = make_class("braze._C.SymbolicInt", "SymInt", true);
    g_float = make_class("braze._C.SymbolicFloat", "SymFloat", false);
    return g_int && g_float;
}
PyTypeObject* symbolic_int_class() { return g_int; }
PyTypeObject* symbolic_float_class() { return g_float; }

PyObject* wrap_symbolic(const c10::SymInt& n) {
    if (auto c = n.maybe_as_int()) return PyLong_FromLongLong(*c);
    return make(g_int, n.toSymNode());
}
PyObject* wrap_symbolic(const c10::SymFloat& f) {
    if (!f.is_symbolic()) return PyFloat_FromDouble(f.as_float_unchecked());
    return make(g_float, f.toSymNodeImpl());
}

PyObject* extremum(PyObject* a, PyObject* b, bool max) {
    return guarded([&]() -> PyObject* {
        std::optional<Term> s = term(a), t = term(b);
        if (!s || !t || (!s->value && !t->value)) {
            auto x = pybind11::reinterpret_steal<pybind11::object>(number(a)),
                 y = pybind11::reinterpret_steal<pybind11::object>(number(b));
            if (!x || !y) return nullptr;
            int second = PyObject_RichCompareBool(y.ptr(), x.ptr(), max ? Py_GT : Py_LT);
            return second < 0 ? nullptr : (second ? y : x).release().ptr();
        }
        const at::Tensor& like = s->value ? s->value->fake : t->value->fake;
        at::Tensor x = s->value ? s->value->fake : at::full_like(like, s->constant),
                   y = t->value ? t->value->fake : at::full_like(like, t->constant);
        // (a first operand that is no number stays, as in Python)
        at::Tensor fake = at::where(max ? y > x : y < x, y, x);
        double u = s->hint(), v = t->hint();
        double hint = max ? (v > u ? v : u) : (v < u ? v : u);
        bool positive = (!s->value && s->constant > 0) || (!t->value && t->constant > 0);
        // max(x, c) is x where x is no number
        return result(*s, *t, max ? FloatNode::Maximum : FloatNode::Minimum, fake, hint, max && positive);
    });
}

PyObject* with_own_numbers(PyObject* o) {
    static PyObject* sym_int = reinterpret_cast<PyObject*>(g_int->tp_base);
    static PyTypeObject* sym_float = g_float->tp_base;
    if (!o) return o;
    auto own = [](PyObject* v) {
        return reinterpret_cast<PyObject*>(Py_TYPE(v)) == sym_int ? wrap_symbolic(int_of(v)) : Py_NewRef(v);
    };
    return guarded([&]() -> PyObject* {
        auto held = pybind11::reinterpret_steal<pybind11::object>(o);
        if (Py_TYPE(o) == sym_float) return make(g_float, node_of(o).cast<c10::SymNode>());
        if (reinterpret_cast<PyObject*>(Py_TYPE(o)) == sym_int) return wrap_symbolic(int_of(o));
        bool size = Py_TYPE(o) == &THPSizeType;
        if (!size && !PyTuple_CheckExact(o)) return held.release().ptr();
        bool any = false;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
            any |= reinterpret_cast<PyObject*>(Py_TYPE(PyTuple_GET_ITEM(o, i))) == sym_int;
        if (!any) return held.release().ptr();
        auto items = pybind11::reinterpret_steal<pybind11::object>(PyTuple_New(PyTuple_GET_SIZE(o)));
        for (Py_ssize_t i = 0; items && i < PyTuple_GET_SIZE(o); ++i) {
            PyObject* v = own(PyTuple_GET_ITEM(o, i));
            if (!v) return nullptr;
            PyTuple_SET_ITEM(items.ptr(), i, v);
        }
        if (!items || !size) return items.release().ptr();
        return PyObject_CallOneArg(reinterpret_cast<PyObject*>(&THPSizeType), items.ptr());
    });
}

}  // namespace braze::bridge
