// Items, operators, iteration.
#include <cstring>

#include "frontend/cpython/trace_hooks.h"
#include "frontend/interp/addresses.h"
#include "frontend/interp/calls.h"
#include "frontend/interp/tensors.h"
#include "frontend/interp/tracer.h"

namespace braze::frontend {

static bool overrides(Tracer& t, PyObject* o, const char* method) {
    if (!is_python_class(Py_TYPE(o))) return false;
    Owned name = Owned::steal(PyUnicode_InternFromString(method));
    PyObject* m = t.type_attribute(Py_TYPE(o), name.get());
    return m && !(Py_TYPE(m) == &PyWrapperDescr_Type || Py_TYPE(m) == &PyMethodDescr_Type);
}

// A type of C code whose operators may do anything (arrays of other libraries).
static bool foreign(PyObject* o) { return std::strncmp(Py_TYPE(o)->tp_name, "numpy.", 6) == 0; }

PyObject* dict_item(Tracer& t, PyObject* dict, PyObject* key) {
    SourceId s = t.source_of(dict);
    if (t.read_all(key) < 0) return nullptr;
    t.looked_up(dict, key);
    key = t.key_in(dict, key);
    bool tensor = s != kNoSource && is_tensor_key(key);
    if (!is_plain_key(key) && !tensor) {  // its __hash__ is the program's: it runs once
        if (s != kNoSource && t.read_all(dict) < 0) return nullptr;
        return t.result(PyObject_GetItem(dict, key));
    }
    PyObject* v = dict_get(dict, key);
    if (!v && PyErr_Occurred()) return nullptr;
    bool changed = t.journal.changed_key(dict, key);
    if (!v) {
        if (s != kNoSource && !changed) {
            if (is_constant_value(key) || is_singleton(key) || tensor) {
                t.guards.dict_lacks(s, key);
            } else if (t.read_all(dict) < 0) {
                return nullptr;
            }
        }
        PyObject* factory = nullptr;
        if (std::strcmp(Py_TYPE(dict)->tp_name, "collections.defaultdict") == 0 ||
            PyObject_HasAttrString((PyObject*)Py_TYPE(dict), "default_factory"))
            factory = PyObject_GetAttrString(dict, "default_factory");
        PyErr_Clear();
        bool makes = factory && factory != Py_None;
        Owned maker = Owned::steal(factory);
        if (makes && tensor) {  // what __missing__ does
            if (t.journal.before_dict_key(dict, key, false, nullptr) < 0) return nullptr;
            Owned made = Owned::steal(call(t, maker.get(), {nullptr, 0, nullptr}));
            return made && dict_set(dict, key, made.get()) == 0 ? made.release() : nullptr;
        }
        if (makes) {  // reading inserts
            if (s == kNoSource && !t.is_fresh(dict)) return t.stop("unknown-object", "defaultdict");
            if (s != kNoSource && t.journal.before_dict_key(dict, key, false, nullptr) < 0) return nullptr;
            PyObject* r = PyObject_GetItem(dict, key);
            if (r) t.made(r);
            return t.result(r);
        }
        return t.result(PyObject_GetItem(dict, key));  // KeyError, or __missing__
    }
    if (s == kNoSource || changed) return t.result(Py_NewRef(v));
    if (!is_constant_value(key) && !is_singleton(key) && !tensor) {  // the key itself is an object of the program
        if (t.read_all(dict) < 0) return nullptr;
        return t.result(Py_NewRef(v));
    }
    return t.loaded(Py_NewRef(v), t.guards.sources.add(SourceKind::DictItem, s, key));
}

// By the base class's own code where a Python class might override it.
static PyObject* raw_get(PyObject* seq, PyObject* key) {
    if (!is_python_class(Py_TYPE(seq))) return PyObject_GetItem(seq, key);
    return (PyList_Check(seq) ? PyList_Type : PyTuple_Type).tp_as_mapping->mp_subscript(seq, key);
}

// A slice is a new list or tuple.
static PyObject* item_or_slice(Tracer& t, PyObject* seq, PyObject* key) {
    PyObject* v = raw_get(seq, key);
    if (v && PySlice_Check(key) && Py_REFCNT(v) == 1) t.made(v);
    return t.result(v);
}

PyObject* sequence_item(Tracer& t, PyObject* seq, PyObject* key) {
    SourceId s = t.source_of(seq);
    if (s == kNoSource || is_constant_value(seq)) return item_or_slice(t, seq, key);
    if (t.journal.changed(seq) || !PyLong_CheckExact(key)) {
        if (t.read_all(seq) < 0) return nullptr;
        return item_or_slice(t, seq, key);
    }
    Py_ssize_t n = Py_SIZE(seq), i = PyLong_AsSsize_t(key);
    if (i == -1 && PyErr_Occurred()) return nullptr;
    if (i < 0 || i >= n) {
        t.guards.length(s, n);
        i += i < 0 ? n : 0;
    }
    PyObject* v = raw_get(seq, key);
    if (!v) return nullptr;
    return t.loaded(
        v, t.guards.sources.add(PyList_Check(seq) ? SourceKind::ListItem : SourceKind::TupleItem, s, nullptr, i));
}

PyObject* get_item(Tracer& t, PyObject* c, PyObject* key) {
    c = behind_proxy(t, c);
    if (t.capture->is_fake(c)) {
        t.touch(c);
        if (t.read_all(key) < 0) return nullptr;
        Owned rest = Owned::share(key), selected = selected_by_symbols(c, rest);
        if (!selected && PyErr_Occurred()) return nullptr;
        if (selected && PyTuple_GET_SIZE(rest.get()) == 0) return t.result(selected.release());
        return t.result(PyObject_GetItem(selected ? selected.get() : c, rest.get()));
    }
    if (is_symbolic(key)) {  // which item it is, is part of the program
        Owned number = Owned::steal(fixed(key));
        return number ? get_item(t, c, number.get()) : nullptr;
    }
    if (foreign(c) || foreign(key)) return t.stop("unknown-c-function", type_name(Py_TYPE(c)) + "[]");
    if (overrides(t, c, "__getitem__")) return t.result(PyObject_GetItem(c, key));
    if (t.capture->is_fake(key)) t.touch(key);
    if (PyDict_Check(c)) return dict_item(t, c, key);
    if (PyObject* names = t.class_namespace(c); names && is_plain_key(key)) return dict_item(t, names, key);
    if (PyList_Check(c) || PyTuple_Check(c)) return sequence_item(t, c, key);
    if (PyType_Check(c)) return t.result(PyObject_GetItem(c, key));
    if (t.read_all(c) < 0) return nullptr;
    PyObject* v = checked_text(t, PyObject_GetItem(c, key));
    if (v && Py_REFCNT(v) == 1 && t.is_fresh(c) && !t.is_tensor(v)) t.made(v);
    return t.result(v);
}

// Containers may be changed if the trace made them or can find them again.
static int may_change(Tracer& t, PyObject* o) {
    if (t.source_of(o) != kNoSource || t.is_fresh(o)) return 0;
    t.stop("unknown-object", type_name(Py_TYPE(o)));
    return -1;
}

int before_change(Tracer& t, PyObject* o, bool appends) {
    if (may_change(t, o) < 0) return -1;
    if (t.source_of(o) == kNoSource) return 0;
    if (PyList_Check(o))
        return appends ? t.journal.before_list_append(o) : t.read_all(o) < 0 ? -1 : t.journal.before_list(o);
    if (t.read_all(o) < 0) return -1;
    if (PyDict_Check(o)) return t.journal.before_dict(o);
    if (PySet_Check(o)) return t.journal.before_set(o);
    if (PyObject_HasAttrString(o, "maxlen")) return t.journal.before_deque(o);
    PyErr_Clear();
    t.stop("unknown-object", type_name(Py_TYPE(o)));
    return -1;
}

int set_raw_item(Tracer& t, PyObject* c, PyObject* key, PyObject* value) {
    if (PyDict_Check(c)) {
        if (may_change(t, c) < 0) return -1;
        t.looked_up(c, key);
        key = t.key_in(c, key);
        SourceId s = t.source_of(c);
        if (s != kNoSource) {
            bool deletes = !value;
            // Where a new key goes depends on what is there; whether it is new is an assumption.
            if (PyODict_Check(c) || deletes || !(PyUnicode_CheckExact(key) || is_tensor_key(key))) {
                if (t.guards.sources[s].kind != SourceKind::Const && t.read_all(c) < 0) return -1;
            }
            if (t.journal.before_dict_key(c, key, deletes, nullptr) < 0) return -1;
        }
        if (value) return dict_set(c, key, value);
        return dict_delete(c, key);
    }
    if (before_change(t, c, false) < 0) return -1;
    if (PyList_Check(c)) return PyList_Type.tp_as_mapping->mp_ass_subscript(c, key, value);
    return value ? PyObject_SetItem(c, key, value) : PyObject_DelItem(c, key);
}

int set_item(Tracer& t, PyObject* c, PyObject* key, PyObject* value) {
    c = behind_proxy(t, c);
    auto store = [&] { return value ? PyObject_SetItem(c, key, value) : PyObject_DelItem(c, key); };
    if (t.capture->is_fake(c)) {
        t.touch(c);
        if (t.read_all(key) < 0 || (value && t.read_all(value) < 0)) return -1;
        Owned rest = Owned::share(key), selected = value ? selected_by_symbols(c, rest) : nullptr;
        if (!selected && PyErr_Occurred()) return -1;
        return selected ? PyObject_SetItem(selected.get(), rest.get(), value) : store();
    }
    if (is_symbolic(key)) {
        Owned number = Owned::steal(fixed(key));
        return number ? set_item(t, c, number.get(), value) : -1;
    }
    if (foreign(c)) return t.stop("unknown-c-function", type_name(Py_TYPE(c)) + "[] ="), -1;
    if (overrides(t, c, value ? "__setitem__" : "__delitem__")) return store();
    if (PyType_Check(c)) return store();
    return set_raw_item(t, c, key, value);
}

// Operators with operands that C code will read.
static int use_operand(Tracer& t, PyObject* o) {
    if (is_primitive(o)) return t.use_number(o);
    if (foreign(o)) return t.stop("unknown-c-function", "an operator of " + type_name(Py_TYPE(o))), -1;
    if (t.capture->is_fake(o)) {
        t.touch(o);
        return 0;
    }
    return t.read_all(o);
}

}  // namespace braze::frontend

using namespace braze::frontend;

extern "C" {

PyObject* bz_get_item(PyObject* c, PyObject* key) {
    Tracer& t = *Tracer::current();
    return t.begin_hook() ? get_item(t, c, key) : nullptr;
}

int bz_set_item(PyObject* c, PyObject* key, PyObject* value) {
    Tracer& t = *Tracer::current();
    return t.begin_hook() ? set_item(t, c, key, value) : -1;
}

PyObject* bz_binary_op(int op, PyObject* a, PyObject* b) {
    static const binaryfunc ops[] = {PyNumber_Add,
                                     PyNumber_And,
                                     PyNumber_FloorDivide,
                                     PyNumber_Lshift,
                                     PyNumber_MatrixMultiply,
                                     PyNumber_Multiply,
                                     PyNumber_Remainder,
                                     PyNumber_Or,
                                     [](PyObject* x, PyObject* y) { return PyNumber_Power(x, y, Py_None); },
                                     PyNumber_Rshift,
                                     PyNumber_Subtract,
                                     PyNumber_TrueDivide,
                                     PyNumber_Xor,
                                     PyNumber_InPlaceAdd,
                                     PyNumber_InPlaceAnd,
                                     PyNumber_InPlaceFloorDivide,
                                     PyNumber_InPlaceLshift,
                                     PyNumber_InPlaceMatrixMultiply,
                                     PyNumber_InPlaceMultiply,
                                     PyNumber_InPlaceRemainder,
                                     PyNumber_InPlaceOr,
                                     [](PyObject* x, PyObject* y) { return PyNumber_InPlacePower(x, y, Py_None); },
                                     PyNumber_InPlaceRshift,
                                     PyNumber_InPlaceSubtract,
                                     PyNumber_InPlaceTrueDivide,
                                     PyNumber_InPlaceXor};
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    if (is_symbolic(a) || is_symbolic(b))
        if (is_primitive(a) && is_primitive(b)) return t.result(t.number_operation(op, a, b, ops[op]));
    if (is_primitive(a) && is_primitive(b)) return t.use_number(a) < 0 || t.use_number(b) < 0 ? nullptr : ops[op](a, b);
    if (use_operand(t, b) < 0) return nullptr;
    constexpr int first_inplace = 13;
    if (op >= first_inplace && PyWeakref_CheckProxy(a)) return t.stop("unknown-object", type_name(Py_TYPE(a)));
    bool mutable_container = PyList_Check(a) || PyDict_Check(a) || PySet_Check(a);
    if (op >= first_inplace && mutable_container && t.source_of(a) != kNoSource) {
        if (before_change(t, a, PyList_Check(a) && op == first_inplace) < 0) return nullptr;
    } else if (use_operand(t, a) < 0) {
        return nullptr;
    }
    PyObject* r = checked_text(t, ops[op](a, b));
    if (r && r != a && r != b && Py_REFCNT(r) == 1) t.made(r);
    return t.result(r);
}

PyObject* bz_unary_op(int opcode, PyObject* a) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook() || use_operand(t, a) < 0) return nullptr;
    const char* n = bz_opcode_name(opcode);
    bool negates = std::strcmp(n, "UNARY_NEGATIVE") == 0, keeps = std::strcmp(n, "UNARY_POSITIVE") == 0;
    unaryfunc f = negates ? PyNumber_Negative : keeps ? PyNumber_Positive : PyNumber_Invert;
    return t.result(is_symbolic(a) ? t.number_operation(negates ? "neg" : keeps ? "pos" : "invert", a, f) : f(a));
}

PyObject* bz_compare(PyObject* a, PyObject* b, int op) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    if (t.any_address() && op != Py_EQ && op != Py_NE && (t.use_number(a) < 0 || t.use_number(b) < 0)) return nullptr;
    if (!is_primitive(a) || !is_primitive(b)) {
        if (use_operand(t, a) < 0 || use_operand(t, b) < 0) return nullptr;
        t.compared_elements(a);  // their elements have paths by now
        t.compared_elements(b);
        // The standard comparison of two objects is by identity.
        if (Py_TYPE(a)->tp_richcompare == PyBaseObject_Type.tp_richcompare && !is_primitive(b)) bz_is(a, b);
    }
    if ((is_symbolic(a) || is_symbolic(b)) && is_primitive(a) && is_primitive(b))
        return t.result(t.number_comparison(a, b, op));
    return t.result(PyObject_RichCompare(a, b, op));
}

int bz_is(PyObject* a, PyObject* b) {
    Tracer& t = *Tracer::current();
    if (t.aborting) return -1;
    if (!is_primitive(a) && !is_primitive(b) && a != b) {
        SourceId sa = t.source_of(a), sb = t.source_of(b);
        if (sa == kNoSource) sa = t.source_of_fake(a);
        if (sb == kNoSource) sb = t.source_of_fake(b);
        if (sa != kNoSource && sb != kNoSource) t.guards.same_object(sa, sb, false);
    }
    return a == b;
}

int bz_contains(PyObject* c, PyObject* v) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return -1;
    c = behind_proxy(t, c);
    if (foreign(c)) return t.stop("unknown-c-function", "in " + type_name(Py_TYPE(c))), -1;
    if (is_symbolic(v) && !t.capture->is_fake(c)) {
        Owned number = Owned::steal(fixed(v));
        return number ? bz_contains(c, number.get()) : -1;
    }
    t.touch(v);
    if (t.is_iterator_from_before(c)) return t.stop("iterator-from-before", type_name(Py_TYPE(c))), -1;
    if (PyDict_Check(c) && !overrides(t, c, "__contains__")) {
        SourceId s = t.source_of(c);
        t.looked_up(c, v);
        v = t.key_in(c, v);
        bool tensor = s != kNoSource && is_tensor_key(v);
        int r = tensor ? dict_get(c, v) != nullptr : PyDict_Contains(c, v);
        if (r >= 0 && s != kNoSource && !t.journal.changed_key(c, v)) {
            if (!is_constant_value(v) && !is_singleton(v) && !tensor) {
                if (t.read_all(c) < 0) return -1;
            } else if (r) {
                t.guards.present(t.guards.sources.add(SourceKind::DictItem, s, v));
            } else {
                t.guards.dict_lacks(s, v);
            }
        }
        return r;
    }
    if (PyObject* names = t.class_namespace(c); names && is_plain_key(v)) return bz_contains(names, v);
    if (PyAnySet_Check(c)) t.looked_up(c, v);
    if (PyList_Check(c) || PyTuple_Check(c) || is_deque(c)) {
        if (t.read_all(c) < 0) return -1;  // they have paths then
        t.compared(v);
        t.compared_elements(c, 4);
    }
    bool of_trace = PyAnySet_CheckExact(c) && t.source_of(c) == kNoSource && is_primitive(v);
    if (!of_trace && (t.read_all(c) < 0 || t.read_all(v) < 0)) return -1;
    if (PyAnySet_Check(c) && t.key_in(c, v) != v) {  // (its hash is Python code, but not the program's)
        int mode = bz_mode_set(BZ_OFF);
        int r = PySet_Contains(c, t.key_in(c, v));
        bz_mode_set(mode);
        return r;
    }
    int r = PySequence_Contains(c, v);
    return t.aborting ? -1 : r;
}

int bz_truth(PyObject* v) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return -1;
    if (is_primitive(v)) return PyObject_IsTrue(v);
    if (t.capture->is_fake(v)) {
        t.stop("data-dependent", "the truth of a tensor");
        return -1;
    }
    if (foreign(v)) return t.stop("unknown-c-function", "bool(" + type_name(Py_TYPE(v)) + ")"), -1;
    if (t.read_length(v) < 0) return -1;
    if (is_python_class(Py_TYPE(v))) {  // what decides is an assumption about the class
        static PyObject *b = PyUnicode_InternFromString("__bool__"), *l = PyUnicode_InternFromString("__len__");
        if (!t.type_attribute(Py_TYPE(v), b)) t.type_attribute(Py_TYPE(v), l);
    }
    int r = PyObject_IsTrue(v);
    return t.aborting ? -1 : r;
}

PyObject* bz_get_iter(PyObject* v) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    if (t.capture->is_fake(v)) {
        t.touch(v);
        return t.result(PyObject_GetIter(v));
    }
    if (foreign(v)) return t.stop("unknown-c-function", "iter(" + type_name(Py_TYPE(v)) + ")");
    if (PyIter_Check(v)) return Py_NewRef(v);  // its own iterator; using it is judged in bz_iter_next
    if (!overrides(t, v, "__iter__") && t.read_elements(v) < 0) return nullptr;
    PyObject* it = PyObject_GetIter(v);
    if (it) t.made(it);
    return t.result(it);
}

PyObject* bz_iter_next(PyObject* it) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    if (t.is_iterator_from_before(it)) return t.stop("iterator-from-before", type_name(Py_TYPE(it)));
    PyObject* v = Py_TYPE(it)->tp_iternext(it);
    if (v && PyTuple_CheckExact(v) && Py_REFCNT(v) <= 2) {
        t.made(v);  // enumerate, zip, items reuse theirs
    } else if (v && Py_REFCNT(v) == 1 && !t.is_tensor(v)) {
        t.made(v);
    }
    return t.result(checked_text(t, v));
}

int bz_read_container(PyObject* c) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return -1;
    if (foreign(c)) return t.stop("unknown-c-function", "reading " + type_name(Py_TYPE(c))), -1;
    if (t.source_of(c) != kNoSource && PyIter_Check(c) && !is_python_class(Py_TYPE(c)))
        return t.stop("iterator-from-before", type_name(Py_TYPE(c))), -1;
    return PyList_Check(c) || PyTuple_Check(c) ? t.read_elements(c) : t.read_all(c);
}

int bz_before_send(PyObject* receiver) {
    Tracer& t = *Tracer::current();
    if (t.is_iterator_from_before(receiver)) return t.stop("iterator-from-before", type_name(Py_TYPE(receiver))), -1;
    return 0;
}

PyObject* bz_loaded_element(PyObject* v) { return Tracer::current()->result(Py_NewRef(v)); }

PyObject* bz_format_value(PyObject* v, PyObject* spec, int conversion) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    if (t.use_number(v) < 0) return nullptr;
    if (!is_primitive(v)) {
        if (t.capture->is_fake(v)) return t.stop("data-dependent", "a tensor is formatted");
        if (foreign(v)) return t.stop("unknown-c-function", "format(" + type_name(Py_TYPE(v)) + ")");
        if (t.read_all(v) < 0) return nullptr;
    }
    Owned text = conversion == 1   ? Owned::steal(PyObject_Str(v))
                 : conversion == 2 ? Owned::steal(PyObject_Repr(v))
                 : conversion == 3 ? Owned::steal(PyObject_ASCII(v))
                                   : Owned::share(v);
    if (!text) return nullptr;
    if (!spec && PyUnicode_CheckExact(text.get()))
        return is_primitive(v) ? text.release() : checked_text(t, text.release());
    return t.result(checked_text(t, PyObject_Format(text.get(), spec)));
}

}  // extern "C"
