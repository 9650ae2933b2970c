// Attribute reads: PyObject_GetAttr taken apart, so that each step is an assumption of its own.
#include <cstring>

#include "frontend/cpython/trace_hooks.h"
#include "frontend/interp/tensors.h"
#include "frontend/interp/tracer.h"

namespace braze::frontend {

static bool named(PyTypeObject* t, const char* n) { return std::strcmp(t->tp_name, n) == 0; }

// Does `t` look attributes up the standard way (perhaps with __getattr__ in Python as the last resort)?
static bool standard_lookup(PyTypeObject* t) {
    if (t->tp_getattro == PyObject_GenericGetAttr) return true;
    if (!is_python_class(t)) return false;
    static PyObject* name = PyUnicode_InternFromString("__getattribute__");
    PyObject* g = bz_type_lookup(t, name);
    static PyObject* base = bz_type_lookup(&PyBaseObject_Type, name);
    return g == base;
}

// The value that C code computes for owner.name; a primitive is guarded, an object known, if the owner is sourced.
static PyObject* plain_attribute(Tracer& t, PyObject* owner, PyObject* name, SourceId s) {
    PyObject* v = PyObject_GetAttr(owner, name);
    if (!v || t.aborting) {
        Py_XDECREF(v);
        return nullptr;
    }
    if (s == kNoSource) return t.result(v);
    return t.loaded(v, t.guards.sources.add(SourceKind::Attribute, s, name));
}

static PyObject* module_attribute(Tracer& t, PyObject* module, PyObject* name) {
    PyObject* dict = PyModule_GetDict(module);
    PyObject* v = PyDict_GetItemWithError(dict, name);
    if (!v) {
        if (PyErr_Occurred()) return nullptr;
        // A module's __getattr__ fills it lazily; what it does is no business of the graph.
        int mode = bz_mode_set(BZ_OFF);
        v = PyObject_GetAttr(module, name);
        bz_mode_set(mode);
        if (!v) return nullptr;
        if (!PyDict_GetItemWithError(dict, name)) return t.result(v);
        Py_DECREF(v);
        v = PyDict_GetItemWithError(dict, name);
    }
    if (t.journal.changed_key(dict, name)) return t.result(Py_NewRef(v));
    SourceId d = t.guards.sources.constant(dict);
    return t.loaded(Py_NewRef(v), t.guards.sources.add(SourceKind::DictItem, d, name));
}

// Binds a class attribute to the owner, as descriptors do.
static PyObject* bind(Tracer& t, PyObject* attr, PyObject* owner, PyTypeObject* tp, PyObject* name, SourceId s) {
    PyTypeObject* dt = Py_TYPE(attr);
    if (PyFunction_Check(attr)) return PyMethod_New(attr, owner);
    if (dt == &PyProperty_Type) {
        Owned get = Owned::steal(PyObject_GetAttrString(attr, "fget"));
        if (!get) return nullptr;
        if (get.get() == Py_None || !PyFunction_Check(get.get()))
            return t.result(dt->tp_descr_get(attr, owner, (PyObject*)tp));
        return t.result(PyObject_CallOneArg(get.get(), owner));
    }
    if (dt == &PyMemberDescr_Type || named(dt, "_collections._tuplegetter")) {
        PyObject* v = dt->tp_descr_get(attr, owner, (PyObject*)tp);
        if (s == kNoSource || t.journal.changed_slot(owner, name)) return t.result(v);
        if (!v && dt == &PyMemberDescr_Type) t.guards.absent(t.guards.sources.slot(s, attr));
        if (!v) return nullptr;
        if (dt != &PyMemberDescr_Type) {  // a named tuple's field
            if (t.read_all(owner) < 0) return Py_DECREF(v), nullptr;
            return t.result(v);
        }
        return t.loaded(v, t.guards.sources.slot(s, attr));
    }
    if (dt == &PyGetSetDescr_Type) {
        if (std::strcmp(PyUnicode_AsUTF8(name), "__dict__") == 0) {
            PyObject* d = dt->tp_descr_get(attr, owner, (PyObject*)tp);
            if (d && s != kNoSource) {
                t.know(d, t.guards.sources.add(SourceKind::InstanceDict, s, nullptr));
            } else if (d && t.is_fresh(owner)) {
                t.made(d);
            }
            return d;
        }
        PyObject* v = dt->tp_descr_get(attr, owner, (PyObject*)tp);
        if (v && PyFunction_Check(owner) && t.is_fresh(owner) && PyDict_Check(v)) t.made(v);  // its annotations
        if (!v || s == kNoSource || t.guards.sources[s].kind == SourceKind::Const ||
            t.journal.changed_slot(owner, name))
            return t.result(v);
        return t.loaded(v, t.guards.sources.add(SourceKind::Attribute, s, name));
    }
    return t.result(dt->tp_descr_get(attr, owner, (PyObject*)tp));  // a descriptor class in Python is interpreted
}

// `generic`: object.__getattribute__, without __getattr__.
PyObject* load_attribute(Tracer& t, PyObject* owner, PyObject* name, bool generic) {
    PyTypeObject* tp = Py_TYPE(owner);
    SourceId s = t.source_of(owner);
    PyObject* attr = t.type_attribute(tp, name);
    bool data = attr && Py_TYPE(attr)->tp_descr_get && Py_TYPE(attr)->tp_descr_set;
    if (data) return bind(t, attr, owner, tp, name, s);
    PyObject** dp = bz_instance_dict_pointer(owner);
    if (dp && *dp) {
        PyObject* dict = *dp;
        SourceId ds = s == kNoSource ? t.source_of(dict) : t.guards.sources.add(SourceKind::InstanceDict, s, nullptr);
        PyObject* v = PyDict_GetItemWithError(dict, name);
        if (!v && PyErr_Occurred()) return nullptr;
        bool changed = t.journal.changed_key(dict, name);
        if (v) {
            if (ds == kNoSource || changed) return t.result(Py_NewRef(v));
            return t.loaded(Py_NewRef(v), t.guards.sources.add(SourceKind::DictItem, ds, name));
        }
        if (ds != kNoSource && !changed) t.guards.dict_lacks(ds, name);
    } else if (dp && s != kNoSource) {  // the first attribute makes the dict
        t.guards.dict_lacks(t.guards.sources.add(SourceKind::InstanceDict, s, nullptr), name);
    }
    if (attr) {
        if (Py_TYPE(attr)->tp_descr_get) return bind(t, attr, owner, tp, name, s);
        if (tp->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) return Py_NewRef(attr);
        if (t.journal.changed_slot((PyObject*)tp, name) || t.is_fresh(tp)) return t.result(Py_NewRef(attr));
        return t.loaded(Py_NewRef(attr), t.guards.sources.add(SourceKind::TypeAttribute, t.type_source(tp), name));
    }
    static PyObject* getattr_name = PyUnicode_InternFromString("__getattr__");
    PyObject* hook = generic ? nullptr : t.type_attribute(tp, getattr_name);
    if (!hook) return PyObject_GenericGetAttr(owner, name);  // raises with CPython's own words
    PyObject* args[] = {owner, name};
    Py_INCREF(hook);
    PyObject* v = PyObject_Vectorcall(hook, args, 2, nullptr);
    Py_DECREF(hook);
    return t.result(v);
}

static PyObject* class_attribute(Tracer& t, PyObject* cls, PyObject* name) {
    auto* tp = reinterpret_cast<PyTypeObject*>(cls);
    PyTypeObject* meta = Py_TYPE(cls);
    PyObject* m = meta == &PyType_Type ? bz_type_lookup(meta, name) : t.type_attribute(meta, name);
    if (m && Py_TYPE(m)->tp_descr_set) {  // __dict__, __name__, properties of Enum
        PyObject* v = PyObject_GetAttr(cls, name);
        if (v) t.is_namespace_of(v, cls);
        return t.result(v);
    }
    PyObject* attr = t.type_attribute(tp, name);
    if (!attr) return t.result(PyObject_GetAttr(cls, name));
    if (Py_TYPE(attr)->tp_descr_get) return t.result(PyObject_GetAttr(cls, name));
    if ((tp->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) || t.journal.changed_slot(cls, name) || t.is_fresh(tp))
        return t.result(Py_NewRef(attr));
    return t.loaded(Py_NewRef(attr), t.guards.sources.add(SourceKind::TypeAttribute, t.type_source(tp), name));
}

// super().name: the class dict along the MRO that holds it.
static PyObject* super_attribute(Tracer& t, PyObject* super, PyObject* name) {
    Owned self_class = Owned::steal(PyObject_GetAttrString(super, "__self_class__"));
    Owned this_class = Owned::steal(PyObject_GetAttrString(super, "__thisclass__"));
    if (self_class && self_class.get() != Py_None && this_class) {
        PyObject* mro = reinterpret_cast<PyTypeObject*>(self_class.get())->tp_mro;
        bool after = false;
        for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); ++i) {
            PyObject* k = PyTuple_GET_ITEM(mro, i);
            auto* kt = reinterpret_cast<PyTypeObject*>(k);
            if (after) {
                PyObject* v = PyDict_GetItemWithError(kt->tp_dict, name);
                if (!(kt->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)) {
                    SourceId s = t.guards.sources.add(SourceKind::ClassDictItem, t.type_source(kt), name);
                    if (!v) {
                        t.guards.absent(s);
                    } else if (Py_TYPE(v)->tp_descr_get) {
                        t.guards.is(s, v);
                    } else if (t.note(v, s) < 0) {
                        return nullptr;
                    }
                }
                if (v) break;
            }
            if (k == this_class.get()) after = true;
        }
    }
    PyErr_Clear();
    return t.result(PyObject_GetAttr(super, name));
}

PyObject* behind_proxy(Tracer& t, PyObject* o) {
    if (!PyWeakref_CheckProxy(o) || PyWeakref_GET_OBJECT(o) == Py_None) return o;
    PyObject* target = PyWeakref_GET_OBJECT(o);
    if (SourceId s = t.source_of(o); s != kNoSource)
        t.note(target, t.guards.sources.add(SourceKind::WeakrefTarget, s, nullptr));
    return target;
}

PyObject* get_attribute(Tracer& t, PyObject* owner, PyObject* name) {
    owner = behind_proxy(t, owner);
    if (t.capture->is_fake(owner)) return tensor_attribute(t, owner, name);
    if (PyModule_CheckExact(owner)) return module_attribute(t, owner, name);
    bool standard = Py_TYPE(owner)->tp_getattro == PyModule_Type.tp_getattro;
    if (PyModule_Check(owner) && standard && bz_instance_dict_pointer(owner)) return module_attribute(t, owner, name);
    if (PyType_Check(owner)) {
        static PyObject* const hook_name = PyUnicode_InternFromString("__getattribute__");
        PyTypeObject* meta = Py_TYPE(owner);
        PyObject* hook = meta == &PyType_Type ? nullptr : t.type_attribute(meta, hook_name);
        if (hook && PyFunction_Check(hook)) return t.result(PyObject_GetAttr(owner, name));  // interpreted
        return class_attribute(t, owner, name);
    }
    if (Py_TYPE(owner) == &PySuper_Type) return super_attribute(t, owner, name);
    if (standard_lookup(Py_TYPE(owner))) return load_attribute(t, owner, name, false);
    if (named(solid_base(Py_TYPE(owner)), "_thread._local")) return t.stop("thread", "an attribute of threading.local");
    if (is_python_class(Py_TYPE(owner)))
        return t.result(PyObject_GetAttr(owner, name));  // __getattribute__ in Python: interpreted
    return plain_attribute(t, owner, name, t.source_of(owner));
}

}  // namespace braze::frontend

using namespace braze::frontend;

extern "C" {

PyObject* bz_load_attr(PyObject* owner, PyObject* name) {
    Tracer& t = *Tracer::current();
    return t.begin_hook() ? get_attribute(t, owner, name) : nullptr;
}

int bz_load_method(PyObject* owner, PyObject* name, PyObject** method) {
    Tracer& t = *Tracer::current();
    *method = nullptr;
    if (!t.begin_hook()) return 0;
    PyTypeObject* tp = Py_TYPE(owner);
    // An unbound method saves making a bound one; only where the instance cannot override it.
    if (!t.capture->is_fake(owner) && !PyType_Check(owner) && !PyModule_Check(owner) && tp != &PySuper_Type &&
        standard_lookup(tp)) {
        PyObject* attr = bz_type_lookup(tp, name);
        PyObject** dp = bz_instance_dict_pointer(owner);
        bool hidden = dp && *dp && PyDict_GetItemWithError(*dp, name);
        if (attr && !hidden && PyType_HasFeature(Py_TYPE(attr), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
            t.type_attribute(tp, name);
            SourceId s = t.source_of(owner);
            if (dp && s != kNoSource && !(*dp && t.journal.changed_key(*dp, name)))
                t.guards.dict_lacks(t.guards.sources.add(SourceKind::InstanceDict, s, nullptr), name);
            *method = Py_NewRef(attr);
            return 1;
        }
    }
    *method = get_attribute(t, owner, name);
    return 0;
}

PyObject* bz_load_special(PyObject* owner, PyObject* name) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    PyTypeObject* tp = Py_TYPE(owner);
    PyObject* attr = t.type_attribute(tp, name);
    if (!attr) return nullptr;
    if (!Py_TYPE(attr)->tp_descr_get) return Py_NewRef(attr);
    return Py_TYPE(attr)->tp_descr_get(attr, owner, reinterpret_cast<PyObject*>(tp));
}

PyObject* bz_load_global(bz_frame* f, PyObject* name) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    PyObject *globals = bz_frame_globals(f), *builtins = bz_frame_builtins(f);
    if (!PyDict_Check(globals) || !PyDict_Check(builtins)) return t.stop("opcode", "globals that are not a dict");
    SourceTable& src = t.guards.sources;
    PyObject* v = PyDict_GetItemWithError(globals, name);
    if (v) {
        if (t.journal.changed_key(globals, name)) return t.result(Py_NewRef(v));
        return t.loaded(Py_NewRef(v), src.add(SourceKind::DictItem, src.constant(globals), name));
    }
    if (PyErr_Occurred()) return nullptr;
    if (!t.journal.changed_key(globals, name)) t.guards.dict_lacks(src.constant(globals), name);
    v = PyDict_GetItemWithError(builtins, name);
    if (v) return t.loaded(Py_NewRef(v), src.add(SourceKind::DictItem, src.constant(builtins), name));
    if (!PyErr_Occurred()) {
        Owned e = Owned::steal(PyUnicode_FromFormat("name '%U' is not defined", name));
        Owned exc = Owned::steal(e ? PyObject_CallOneArg(PyExc_NameError, e.get()) : nullptr);
        if (exc) {
            PyObject_SetAttrString(exc.get(), "name", name);
            PyErr_SetObject(PyExc_NameError, exc.get());
        }
    }
    return nullptr;
}

PyObject* bz_load_deref(bz_frame*, int, PyObject* cell) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    PyObject* v = PyCell_GET(cell);
    SourceId s = t.source_of(cell);
    if (s == kNoSource || t.journal.changed(cell)) return t.result(Py_NewRef(v));
    return t.loaded(Py_NewRef(v), t.guards.sources.add(SourceKind::CellContents, s, nullptr));
}

}  // extern "C"
