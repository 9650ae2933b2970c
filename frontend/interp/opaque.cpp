// What C code finds in an object from before that is no container: it follows from guards, or the trace ends.
#include <cstring>

#include "frontend/interp/tracer.h"

namespace braze::frontend {

namespace {

enum class Opaque : uint8_t { Unknown, Called, Immutable, Attributes, Parts };

Opaque kind_of(PyTypeObject* t) {
    struct Row {
        const char* name;
        Opaque kind;
    };
    static const Row rows[] = {
#define OPAQUE(type, kind) {type, Opaque::kind},
#include "frontend/interp/opaque.def"
#undef OPAQUE
    };
    for (const Row& r : rows)
        if (std::strcmp(r.name, t->tp_name) == 0) return r.kind;
    return Opaque::Unknown;
}

}  // namespace

PyTypeObject* solid_base(PyTypeObject* t) {
    while (is_python_class(t) && t->tp_base) t = t->tp_base;
    return t;
}

bool is_value_class(PyTypeObject* base) {
    return base == &PyLong_Type || base == &PyFloat_Type || base == &PyComplex_Type || base == &PyUnicode_Type ||
           base == &PyBytes_Type;
}

// What an instance of a subclass of a number or string class is equal to; nothing for other classes.
Owned plain_value(PyObject* v, PyTypeObject* base) {
    if (base == &PyLong_Type) return Owned::steal(PyLong_Type.tp_as_number->nb_int(v));
    if (base == &PyFloat_Type) return Owned::steal(PyFloat_FromDouble(PyFloat_AS_DOUBLE(v)));
    if (base == &PyComplex_Type) return Owned::steal(PyComplex_FromCComplex(PyComplex_AsCComplex(v)));
    if (base == &PyUnicode_Type) return Owned::steal(PyUnicode_FromObject(v));
    if (base == &PyBytes_Type)
        return Owned::steal(PyBytes_FromStringAndSize(PyBytes_AS_STRING(v), PyBytes_GET_SIZE(v)));
    return nullptr;
}

PyObject* Tracer::class_namespace(PyObject* proxy) const {
    if (Py_TYPE(proxy) != &PyDictProxy_Type) return nullptr;
    auto it = class_of_proxy_.find(proxy);
    if (it == class_of_proxy_.end() || journal.changed(it->second)) return nullptr;
    return reinterpret_cast<PyTypeObject*>(it->second)->tp_dict;
}

void Tracer::is_namespace_of(PyObject* proxy, PyObject* cls) {
    if (Py_TYPE(proxy) != &PyDictProxy_Type || is_fresh(cls) || journal.changed(cls)) return;
    auto* t = reinterpret_cast<PyTypeObject*>(cls);
    if (t->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) return;
    if (class_of_proxy_.emplace(proxy, cls).second) kept_.push_back(Owned::share(proxy));
    identity_.try_emplace(t->tp_dict, guards.sources.add(SourceKind::ClassNamespace, type_source(t), nullptr));
}

int Tracer::read_part(PyObject* v, SourceId s, const char* name, int level) {
    Owned n = Owned::steal(PyUnicode_InternFromString(name));
    Owned part = Owned::steal(n ? PyObject_GenericGetAttr(v, n.get()) : nullptr);
    if (!part || note(part.get(), guards.sources.add(SourceKind::Attribute, s, n.get())) < 0) return -1;
    return read_all(part.get(), level + 1);
}

int Tracer::read_opaque(PyObject* v, SourceId s, int level) {
    PyTypeObject* base = solid_base(Py_TYPE(v));
    if (is_value_class(base)) {
        guards.value_is(s, v, plain_value(v, base).get());
        return 0;
    }
    if (PyType_Check(v) || PyModule_Check(v) || is_iterator_from_before(v)) return 0;  // judged where they move
    // Handles (of a generator of random numbers, say): a graph keeps the one that it was given.
    if (std::strncmp(base->tp_name, "torch.", 6) == 0 || std::strncmp(base->tp_name, "pybind11", 8) == 0) {
        guards.is(s, v);
        return 0;
    }
    switch (kind_of(base)) {
        case Opaque::Called: return 0;
        case Opaque::Immutable: guards.is(s, v); return 0;
        case Opaque::Attributes: {
            PyObject** dp = bz_instance_dict_pointer(v);
            if (!dp || !*dp) return 0;
            know(*dp, guards.sources.add(SourceKind::InstanceDict, s, nullptr));
            return read_all(*dp, level + 1);
        }
        case Opaque::Parts:
            if (PyMethod_Check(v)) return 0;  // noted when it was read
            if (PyWeakref_CheckRef(v)) {
                PyObject* target = PyWeakref_GET_OBJECT(v);
                if (note(target, guards.sources.add(SourceKind::WeakrefTarget, s, nullptr)) < 0) return -1;
                return read_all(target, level + 1);
            }
            if (base == &PyDictProxy_Type) {
                PyObject* names = class_namespace(v);
                return names ? read_all(names, level + 1) : (stop("dynamic-value", "a mappingproxy"), -1);
            }
            for (const char* name : {"func", "args", "keywords"})
                if (!PySlice_Check(v) && read_part(v, s, name, level) < 0) return -1;
            for (const char* name : {"start", "stop", "step"})
                if (PySlice_Check(v) && read_part(v, s, name, level) < 0) return -1;
            return 0;
        case Opaque::Unknown: break;
    }
    return stop("dynamic-value", "the contents of an object of type " + type_name(Py_TYPE(v))), -1;
}

}  // namespace braze::frontend
