#include "frontend/interp/addresses.h"

#include <cstring>

namespace braze::frontend {

PyObject* Tracer::address(PyObject* number) {
    if (!number) return nullptr;
    if (PyLong_AsLong(number) < 1000 && PyLong_AsLong(number) > -1000) {  // perhaps one that Python shares
        PyErr_Clear();
        Py_DECREF(number);
        return stop("dynamic-value", "a small number made of an address");
    }
    PyErr_Clear();
    if (addresses_.emplace(number, root_event).second) kept_.push_back(Owned::share(number));
    address_values_.insert(PyLong_AsUnsignedLongMask(number));
    return number;
}

int Tracer::use_number(PyObject* v) {
    if (!is_address(v)) return 0;
    return stop("dynamic-value", "the address of an object that the graph makes"), -1;
}

PyObject* address_of(Tracer& t, PyObject* o) {
    Owned number = Owned::steal(PyLong_FromVoidPtr(o));
    if (!number || is_singleton(o) || o == Py_None || PyBool_Check(o) || o == Py_Ellipsis || o == Py_NotImplemented)
        return number.release();
    SourceId s = t.source_of(o);
    t.compared(o);
    if (s == kNoSource || is_primitive(o) || t.is_fresh(o) || t.capture->is_fake(o)) return t.address(number.release());
    // The address of an object from before is a constant as long as it is that very object.
    t.guards.is(s, o);
    return number.release();
}

// Does the hash follow from the address of something that the trace made?
static bool hash_shows_address(Tracer& t, PyObject* o, int level = 0) {
    if (t.is_address(o)) return true;
    if (is_symbolic(o)) return false;
    if (is_constant_value(o) && !(PyTuple_Check(o) || PyAnySet_Check(o))) return false;
    PyTypeObject* type = Py_TYPE(o);
    if (type->tp_hash == PyTuple_Type.tp_hash || type->tp_hash == PyFrozenSet_Type.tp_hash) {
        Owned elements = Owned::steal(level < 8 ? plain_elements(o) : nullptr);
        bool shows = !elements;
        for (Py_ssize_t i = 0; elements && i < PyList_GET_SIZE(elements.get()) && !shows; ++i)
            shows = hash_shows_address(t, PyList_GET_ITEM(elements.get(), i), level + 1);
        PyErr_Clear();
        return shows;
    }
    if (is_singleton(o)) return false;
    PyTypeObject* base = solid_base(type);
    if (type->tp_hash == PyBaseObject_Type.tp_hash) {
        SourceId s = t.source_of(o);
        if (s == kNoSource || t.is_fresh(o)) return true;
        t.guards.is(s, o);
        return false;
    }
    if (is_python_class(type) && type->tp_hash != base->tp_hash) return false;  // by code of the program: see below
    return !is_value_class(base) && std::strncmp(base->tp_name, "datetime.", 9) != 0 &&
           std::strcmp(base->tp_name, "decimal.Decimal") != 0 && std::strncmp(base->tp_name, "torch.", 6) != 0;
}

PyObject* hash_of(Tracer& t, PyObject* o) {
    if (t.read_all(o) < 0) return nullptr;
    bool shows = hash_shows_address(t, o);
    Py_hash_t h = PyObject_Hash(o);
    if (t.aborting || (h == -1 && PyErr_Occurred())) return nullptr;
    PyObject* number = PyLong_FromSsize_t(h);
    // What a __hash__ returns comes as a number of its own.
    return shows || t.is_address_value(static_cast<unsigned long>(h)) ? t.address(number) : number;
}

bool shows_address(PyObject* text) {
    if (!PyUnicode_Check(text)) return false;
    static PyObject* mark = PyUnicode_InternFromString(" at 0x");
    return PyUnicode_GET_LENGTH(text) > 6 && PyUnicode_Find(text, mark, 0, PyUnicode_GET_LENGTH(text), 1) >= 0;
}

PyObject* checked_text(Tracer& t, PyObject* text) {
    if (!text || !PyUnicode_CheckExact(text) || !shows_address(text)) return text;
    Py_DECREF(text);
    return t.stop("dynamic-value", "the address of an object in a text");
}

}  // namespace braze::frontend
