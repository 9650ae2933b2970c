// Which objects are one object: C code that looks for an element or a key asks that first.
#include <algorithm>

#include "frontend/interp/tracer.h"

namespace braze::frontend {

SourceId Tracer::path_of(PyObject* o, PyObject** real) const {
    *real = o;
    if (capture->is_fake(o)) {
        int i = input_of_fake(o);
        if (i < 0) return kNoSource;
        *real = inputs[static_cast<size_t>(i)].real.get();
        return inputs[static_cast<size_t>(i)].source;
    }
    return source_of(o);
}

void Tracer::compared(PyObject* o, int level) {
    if (is_primitive(o) || is_constant_value(o) || is_singleton(o)) return;
    if (PyTuple_Check(o) && level < 4)
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) compared(PyTuple_GET_ITEM(o, i), level + 1);
    PyObject* real;
    if (SourceId s = path_of(o, &real); s != kNoSource) compared_.insert(s);
}

void Tracer::compared_elements(PyObject* c, int level) {
    auto element = [&](PyObject* x) {
        compared(x);
        if (level < 4) compared_elements(x, level + 1);
    };
    if (PyDict_Check(c)) {
        Py_ssize_t pos = 0;
        PyObject *k, *v;
        while (PyDict_Next(c, &pos, &k, &v)) {
            compared(k);
            element(v);
        }
    } else if (PyList_Check(c) || PyTuple_Check(c) || PyAnySet_Check(c) || is_deque(c)) {
        Owned elements = Owned::steal(plain_elements(c));
        for (Py_ssize_t i = 0; elements && i < PyList_GET_SIZE(elements.get()); ++i)
            element(PyList_GET_ITEM(elements.get(), i));
        PyErr_Clear();
    }
}

void Tracer::looked_up(PyObject* container, PyObject* key, int level) {
    if (is_primitive(key) || is_constant_value(key) || is_singleton(key)) return;
    if (source_of(container) == kNoSource) return compared(key);
    // The elements from before are guarded as they are: the key has to be this very object.
    if (PyTuple_Check(key) && level < 4)
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
            looked_up(container, PyTuple_GET_ITEM(key, i), level + 1);
    PyObject* real;
    SourceId s = path_of(key, &real);
    bool by_value = is_value_class(solid_base(Py_TYPE(key))) || PyTuple_Check(key);
    if (s != kNoSource && !by_value) guards.is(s, real);
}

void Tracer::guard_compared() {
    if (compared_.size() < 2) return;
    std::vector<SourceId> sources(compared_.begin(), compared_.end());
    std::sort(sources.begin(), sources.end());
    guards.distinct(std::move(sources));
}

}  // namespace braze::frontend
