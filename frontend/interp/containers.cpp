// Guards for containers that C code reads.
#include "frontend/interp/tensors.h"
#include "frontend/interp/tracer.h"

namespace braze::frontend {

bool is_deque(PyObject* v) {
    for (PyTypeObject* t = Py_TYPE(v); t; t = t->tp_base)
        if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || (t->tp_flags & Py_TPFLAGS_IMMUTABLETYPE))
            return std::string(t->tp_name) == "collections.deque";
    return false;
}

int Tracer::read_length(PyObject* v) {
    SourceId s = source_of(v);
    if (s == kNoSource && (PyAnySet_Check(v) || PyDict_Check(v))) return read_all(v);  // equal keys are one
    if (s == kNoSource || is_constant_value(v)) return 0;
    if (!PyList_Check(v) && !PyTuple_Check(v) && !PyDict_Check(v) && !PyAnySet_Check(v) && !is_deque(v))
        return read_all(v);
    Owned old = journal.original(v);
    Py_ssize_t n = old ? PyObject_Length(old.get()) : PyObject_Length(v);
    if (PyDict_Check(v)) n = old ? PyTuple_GET_SIZE(old.get()) : PyDict_GET_SIZE(v);
    if (PyList_Check(v) && !old) n = PyList_GET_SIZE(v);
    guards.length(s, n);
    return 0;
}

// Made by the trace: what it holds may be sourced.
int Tracer::read_fresh(PyObject* v, int level) {
    auto element = [&](PyObject* x) { return is_primitive(x) ? use_number(x) : read_all(x, level + 1); };
    if (PyList_Check(v) || PyTuple_Check(v)) {
        for (Py_ssize_t i = 0; i < Py_SIZE(v); ++i) {
            PyObject* x = PyList_Check(v) ? PyList_GET_ITEM(v, i) : PyTuple_GET_ITEM(v, i);
            if (x && element(x) < 0) return -1;
        }
    } else if (PyDict_Check(v)) {
        Py_ssize_t pos = 0;
        PyObject *k, *x;
        while (PyDict_Next(v, &pos, &k, &x)) {
            if (use_number(k) < 0 || element(x) < 0) return -1;
            compared(k);
        }
    } else if (PyAnySet_Check(v)) {
        compared_elements(v, 4);
        if (!any_address()) return 0;
        Owned elements = Owned::steal(plain_elements(v));
        return elements ? read_fresh(elements.get(), level) : -1;
    }
    return 0;
}

int Tracer::read_all(PyObject* v, int level) {
    if (!v || is_primitive(v)) return 0;
    if (is_tensor(v)) {
        touch(v);
        return 0;
    }
    if (level > 8) return 0;
    if (PyWeakref_CheckProxy(v)) {
        PyObject* target = behind_proxy(*this, v);
        return target == v ? 0 : read_all(target, level + 1);
    }
    SourceId s = source_of(v);
    bool container = PyList_Check(v) || PyTuple_Check(v) || PyDict_Check(v) || PyAnySet_Check(v) || is_deque(v);
    if (s != kNoSource && PyExceptionInstance_Check(v)) {  // str() and repr() read its arguments
        static PyObject* name = PyUnicode_InternFromString("args");
        Owned args = Owned::steal(PyObject_GenericGetAttr(v, name));
        SourceId from = guards.sources.add(SourceKind::Attribute, s, name);
        return args && !journal.changed_slot(v, name) ? note_container(args.get(), from, level) : 0;
    }
    if (is_iterator_from_before(v)) return stop("iterator-from-before", type_name(Py_TYPE(v))), -1;
    if (s == kNoSource) return container ? read_fresh(v, level) : 0;
    // A constant object (a module's dict, a class's table) has no guard of its own: its contents count when they are
    // read.
    if (is_constant_value(v)) return 0;
    if (!container) return read_opaque(v, s, level);
    return note_container(v, s, level);
}

int Tracer::read_elements(PyObject* v) {
    SourceId s = source_of(v);
    bool plain = PyList_Check(v) || PyTuple_Check(v) || PyDict_Check(v);
    if (s == kNoSource && (PyList_CheckExact(v) || PyTuple_CheckExact(v)))
        return 0;  // the trace made it of what it knows
    if (s == kNoSource || !plain || is_constant_value(v)) return read_all(v);
    return note_container(v, s, 0, false);
}

int Tracer::note_container(PyObject* v, SourceId s, int level, bool deep) {
    if (read_.contains(v) || !(deep ? read_ : listed_).insert(v).second) return 0;
    if ((deep || !PyDict_Check(v)) && place_symbols(v, s) < 0) return -1;
    Owned old = journal.original(v);
    SourceTable& t = guards.sources;
    auto element = [&](PyObject* x, SourceId es) -> int {
        if (note(x, es) < 0) return -1;
        return !deep || is_primitive(x) || is_tensor(x) ? 0 : read_all(x, level + 1);
    };
    if (PyDict_Check(v)) {
        Owned items = old ? old : Owned::steal(dict_items(v));
        if (!items) return -1;
        Py_ssize_t n = PyTuple_GET_SIZE(items.get());
        Owned keys = Owned::steal(PyTuple_New(n));
        for (Py_ssize_t i = 0; i < n; ++i) {
            PyObject* k = PyTuple_GET_ITEM(PyTuple_GET_ITEM(items.get(), i), 0);
            bool tensor = is_tensor_key(k);
            if (!is_plain_key(k) && !tensor) return stop("dynamic-value", "the keys of a dict"), -1;
            if (tensor && source_of(k) == kNoSource) know(k, t.constant(k));
            Py_INCREF(k);
            PyTuple_SET_ITEM(keys.get(), i, k);
        }
        guards.dict_keys(s, keys.get());
        if (!deep) return 0;
        for (Py_ssize_t i = 0; i < n; ++i) {
            PyObject* pair = PyTuple_GET_ITEM(items.get(), i);
            SourceId at = t.add(SourceKind::DictItem, s, PyTuple_GET_ITEM(pair, 0));
            // A number that a symbol stood for: what is there now is something else.
            if (is_number_input(at) && !journal.changed_whole(v)) continue;
            if (element(PyTuple_GET_ITEM(pair, 1), at) < 0) return -1;
        }
        return 0;
    }
    if (PyAnySet_Check(v)) {
        Owned elements = old ? old : Owned::steal(set_elements(v));
        if (!elements) return -1;
        guards.set_elements(s, elements.get());
        // They have no path of their own, and need none: the guard asks for these very objects, or equal constants.
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(elements.get()); ++i) {
            PyObject* x = PyList_GET_ITEM(elements.get(), i);
            if (is_constant_value(x)) continue;
            if (source_of(x) == kNoSource && !is_fresh(x)) know(x, t.constant(x));
            compared(x);
            if (!is_tensor(x) && read_all(x, level + 1) < 0) return -1;
        }
        return 0;
    }
    PyObject* seq = old ? old.get() : v;
    SourceKind kind = PyList_Check(v)    ? SourceKind::ListItem
                      : PyTuple_Check(v) ? SourceKind::TupleItem
                                         : SourceKind::DequeItem;
    bool copied = kind == SourceKind::DequeItem || old;
    Owned list = Owned::steal(copied ? plain_elements(seq) : nullptr);
    if (copied && !list) return -1;
    Py_ssize_t n = list ? PyList_GET_SIZE(list.get()) : Py_SIZE(seq);
    guards.length(s, n);
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject* x = list                ? PyList_GET_ITEM(list.get(), i)
                      : PyList_Check(seq) ? PyList_GET_ITEM(seq, i)
                                          : PyTuple_GET_ITEM(seq, i);
        if (element(x, t.add(kind, s, nullptr, i)) < 0) return -1;
    }
    return 0;
}

}  // namespace braze::frontend
