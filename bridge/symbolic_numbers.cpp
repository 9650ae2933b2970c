#include "bridge/symbolic_numbers.h"

#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sub.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/utils/python_symnode.h>

#include <array>
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

PyObject* float_binary(Operation op, PyObject* a, PyObject* b) {
    auto known = [](PyObject* o) { return PyFloat_CheckExact(o) || (PyLong_Check(o) && integer(o)); };
    bool left = is_float(a), right = is_float(b);
    if ((!left && !known(a)) || (!right && !known(b))) return plain_binary(op, a, b);
    std::optional<c10::SymFloat> f = left ? std::optional(float_of(a)) : std::nullopt,
                                 g = right ? std::optional(float_of(b)) : std::nullopt;
    const FloatValue *x = f ? float_value(*f) : nullptr, *y = g ? float_value(*g) : nullptr;
    double c = left ? 0 : PyFloat_AsDouble(a), d = right ? 0 : PyFloat_AsDouble(b);
    if ((left && !x) || (right && !y)) return plain_binary(op, a, b);
    FloatValue r;
    double u = x ? x->hint : c, v = y ? y->hint : d;
    switch (op) {
        case Add:
            r.fake = !x ? y->fake + c : y ? x->fake + y->fake : x->fake + d;
            r.hint = u + v;
            break;
        case Subtract:
            r.fake = !x ? at::rsub(y->fake, c) : y ? x->fake - y->fake : x->fake - d;
            r.hint = u - v;
            break;
        case Multiply:
            r.fake = !x ? y->fake * c : y ? x->fake * y->fake : x->fake * d;
            r.hint = u * v;
            break;
        case TrueDivide:
            if (y || d == 0) return plain_binary(op, a, b);  // division by zero is an error in Python
            r.fake = x->fake / d;
            r.hint = u / v;
            break;
        default: return plain_binary(op, a, b);
    }
    for (const FloatValue* p : {x, y})
        if (p) r.inputs.insert(r.inputs.end(), p->inputs.begin(), p->inputs.end());
    return wrap_symbolic(sym_float(f ? *f : *g, std::move(r)));
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
        switch (op) {
            case Add: return wrap_symbolic(*x + *y);
            case Subtract: return wrap_symbolic(*x - *y);
            case Multiply: return wrap_symbolic(*x * *y);
            case FloorDivide: return wrap_symbolic(*x / *y);
            default: return wrap_symbolic(*x % *y);
        }
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
        return on_numbers(PyNumber_Power, a, b, modulus);
    });
}
template <unaryfunc op>
PyObject* known_unary(PyObject* a) {
    return guarded([&]() -> PyObject* { return on_numbers(op, a); });
}
PyObject* negative(PyObject* a) {
    return guarded([&]() -> PyObject* {
        if (is_int(a)) return wrap_symbolic(-int_of(a));
        c10::SymFloat f = float_of(a);
        const FloatValue* x = float_value(f);
        if (!x) return known_unary<PyNumber_Negative>(a);
        return wrap_symbolic(sym_float(f, {-x->fake, -x->hint, x->inputs}));
    });
}
int truth(PyObject* a) {
    try {
        if (is_int(a)) return int_of(a).sym_ne(0).guard_bool(__FILE__, __LINE__);
        return float_of(a).guard_float(__FILE__, __LINE__) != 0;
    } catch (python_error& e) { e.restore(); } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
    return -1;
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
    return guarded([&]() -> PyObject* {
        if (!is_number(b)) {
            if (answers_itself(b)) return Py_NewRef(Py_NotImplemented);
        } else if (auto x = integer(a), y = integer(b); x && y) {
            bool r = false;
            switch (op) {
                case Py_EQ: r = x->sym_eq(*y).guard_bool(__FILE__, __LINE__); break;
                case Py_NE: r = x->sym_ne(*y).guard_bool(__FILE__, __LINE__); break;
                case Py_LT: r = x->sym_lt(*y).guard_bool(__FILE__, __LINE__); break;
                case Py_LE: r = x->sym_le(*y).guard_bool(__FILE__, __LINE__); break;
                case Py_GT: r = x->sym_gt(*y).guard_bool(__FILE__, __LINE__); break;
                default: r = x->sym_ge(*y).guard_bool(__FILE__, __LINE__); break;
            }
            return PyBool_FromLong(r);
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
    bool special = s.starts_with("__") && s != "__format__" && s != "__round__" && s != "__trunc__" && s != "__doc__";
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

PyObject* with_own_numbers(PyObject* o) {
    static PyObject* sym_int = reinterpret_cast<PyObject*>(g_int->tp_base);
    if (!o) return o;
    auto own = [](PyObject* v) {
        return reinterpret_cast<PyObject*>(Py_TYPE(v)) == sym_int ? wrap_symbolic(int_of(v)) : Py_NewRef(v);
    };
    return guarded([&]() -> PyObject* {
        auto held = pybind11::reinterpret_steal<pybind11::object>(o);
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
