// Writes: attributes, globals, cells. Each target that existed before goes through the journal.
#include <cstring>

#include "frontend/cpython/trace_hooks.h"
#include "frontend/interp/tensors.h"
#include "frontend/interp/tracer.h"

namespace braze::frontend {

// The ctx of a custom autograd function: made by C code for one call.
static bool is_autograd_context(PyTypeObject* t) {
    for (; t; t = t->tp_base)
        if (std::strcmp(t->tp_name, "torch._C._FunctionBase") == 0) return true;
    return false;
}

int store_generic(Tracer& t, PyObject* owner, PyObject* name, PyObject* value) {
    PyTypeObject* tp = Py_TYPE(owner);
    SourceId s = t.source_of(owner);
    bool fresh = t.is_fresh(owner) || (s == kNoSource && is_autograd_context(tp));
    PyObject* attr = t.type_attribute(tp, name);
    if (attr && Py_TYPE(attr)->tp_descr_set) {
        if (Py_TYPE(attr) == &PyProperty_Type || is_python_class(Py_TYPE(attr)))
            return Py_TYPE(attr)->tp_descr_set(attr, owner, value);  // Python code, interpreted
        if (s == kNoSource && !fresh) return t.stop("unknown-object", type_name(tp)), -1;
        if (s != kNoSource) {
            const char* n = PyUnicode_AsUTF8(name);
            if (std::strcmp(n, "__dict__") == 0 || std::strcmp(n, "__class__") == 0 ||
                Py_TYPE(attr) != &PyMemberDescr_Type)
                return t.stop("unknown-object", std::string(n) + " of " + type_name(tp)), -1;
            size_t size = t.journal.size();
            if (t.journal.before_slot(owner, name) < 0) return -1;
            int err = PyObject_GenericSetAttr(owner, name, value);
            if (err < 0) t.journal.withdraw(size);  // it is read-only, or of another type
            return err;
        }
        return PyObject_GenericSetAttr(owner, name, value);
    }
    PyObject** dp = bz_instance_dict_pointer(owner);
    if (dp && s != kNoSource) {
        if (!*dp) {  // an attribute dict that is made by the first store
            Owned d = Owned::steal(PyObject_GenericGetDict(owner, nullptr));
            if (!d) return -1;
            dp = bz_instance_dict_pointer(owner);
        }
        if (!value && !t.journal.changed_key(*dp, name)) {  // that it is there, or is not, is an assumption
            SourceId d = t.guards.sources.add(SourceKind::InstanceDict, s, nullptr);
            if (PyDict_GetItemWithError(*dp, name)) {
                t.guards.present(t.guards.sources.add(SourceKind::DictItem, d, name));
            } else {
                t.guards.dict_lacks(d, name);
            }
        }
        if (t.journal.before_dict_key(*dp, name, value == nullptr, owner) < 0) return -1;
    } else if (dp && !fresh) {
        return t.stop("unknown-object", type_name(tp)), -1;
    }
    return PyObject_GenericSetAttr(owner, name, value);
}

static int store_class_attribute(Tracer& t, PyObject* cls, PyObject* name, PyObject* value) {
    auto* tp = reinterpret_cast<PyTypeObject*>(cls);
    size_t size = t.journal.size();
    if (!(tp->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)) {
        if (!t.is_fresh(cls) && t.journal.before_type_attribute(cls, name) < 0) return -1;
    }
    int err = PyType_Type.tp_setattro(cls, name, value);
    if (err < 0) t.journal.withdraw(size);
    return err;
}

int store_attribute(Tracer& t, PyObject* owner, PyObject* name, PyObject* value) {
    owner = behind_proxy(t, owner);
    if (t.capture->is_fake(owner)) return set_tensor_attribute(t, owner, name, value);
    PyTypeObject* tp = Py_TYPE(owner);
    static PyObject* setattr = PyUnicode_InternFromString("__setattr__");
    static PyObject* delattr = PyUnicode_InternFromString("__delattr__");
    PyObject* hook = is_python_class(tp) ? t.type_attribute(tp, value ? setattr : delattr) : nullptr;
    if (hook && PyFunction_Check(hook)) return PyObject_SetAttr(owner, name, value);
    if (PyType_Check(owner)) return store_class_attribute(t, owner, name, value);
    if (std::strcmp(solid_base(tp)->tp_name, "_thread._local") == 0)
        return t.stop("thread", "an attribute of threading.local"), -1;
    if (tp->tp_setattro == PyObject_GenericSetAttr || is_python_class(tp) || PyModule_Check(owner))
        return store_generic(t, owner, name, value);
    return t.stop("unknown-object", "an attribute of " + type_name(tp)), -1;
}

}  // namespace braze::frontend

using namespace braze::frontend;

extern "C" {

int bz_store_attr(PyObject* owner, PyObject* name, PyObject* value) {
    Tracer& t = *Tracer::current();
    return t.begin_hook() ? store_attribute(t, owner, name, value) : -1;
}

int bz_store_global(bz_frame* f, PyObject* name, PyObject* value) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return -1;
    PyObject* g = bz_frame_globals(f);
    SourceId s = t.guards.sources.constant(g);
    if (t.source_of(g) == kNoSource) t.know(g, s);
    if (!value && !PyDict_Contains(g, name)) {
        PyErr_Format(PyExc_NameError, "name '%U' is not defined", name);
        return -1;
    }
    if (t.journal.before_dict_key(g, name, value == nullptr, nullptr) < 0) return -1;
    return value ? PyDict_SetItem(g, name, value) : PyDict_DelItem(g, name);
}

int bz_empty_deref(PyObject* cell) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return -1;
    SourceId s = t.source_of(cell);
    if (s != kNoSource && !t.journal.changed(cell))
        t.guards.absent(t.guards.sources.add(SourceKind::CellContents, s, nullptr));
    return 0;
}

int bz_store_deref(bz_frame*, int, PyObject* cell, PyObject* value) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return -1;
    if (!t.is_fresh(cell)) {
        SourceId s = t.source_of(cell);
        if (s == kNoSource) return t.stop("unknown-object", "a variable of another function"), -1;
        if (!value && !t.journal.changed(cell))
            t.guards.present(t.guards.sources.add(SourceKind::CellContents, s, nullptr));
        if (t.journal.before_cell(cell) < 0) return -1;
    }
    return PyCell_Set(cell, value);
}

}  // extern "C"
