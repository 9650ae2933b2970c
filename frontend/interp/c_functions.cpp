// Names and policies of C functions.
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "frontend/interp/calls.h"

namespace braze::frontend {

namespace {

struct Rule {
    const char* name;
    bool prefix;
    const char* policy;
};
const Rule kRules[] = {
#define C_FUNCTION(name, policy) {name, false, #policy},
#define C_PREFIX(name, policy) {name, true, #policy},
#include "frontend/interp/c_functions.def"
#undef C_FUNCTION
#undef C_PREFIX
};

CFunction classify(std::string name) {
    const Rule* best = nullptr;
    for (const Rule& r : kRules) {
        if (!r.prefix && name == r.name) {
            best = &r;
            break;
        }
        if (r.prefix && name.starts_with(r.name) && (!best || std::strlen(r.name) > std::strlen(best->name))) best = &r;
    }
    CFunction f;
    f.name = std::move(name);
    if (!best) return f;
    std::string_view p = best->policy;
    if (p.starts_with("Break_")) {
        f.policy = Policy::Break;
        static std::unordered_map<std::string, std::string> ids;  // the table's spelling of a break id
        std::string id(p.substr(6));
        auto [it, fresh] = ids.try_emplace(id, id);
        if (fresh)
            for (char& c : it->second)
                if (c == '_') c = '-';
        f.break_id = it->second.c_str();
    } else {
        f.policy = p == "Pure"        ? Policy::Pure
                   : p == "Numeric"   ? Policy::Numeric
                   : p == "Fresh"     ? Policy::Fresh
                   : p == "FreshOrIo" ? Policy::FreshOrIo
                   : p == "Appends"   ? Policy::Appends
                   : p == "Changes"   ? Policy::Changes
                   : p == "Torch"     ? Policy::Torch
                                      : Policy::Special;
    }
    return f;
}

std::string text(PyObject* s) {
    const char* c = s && PyUnicode_Check(s) ? PyUnicode_AsUTF8(s) : nullptr;
    if (!c) PyErr_Clear();
    return c ? c : "";
}

// Is it a method of the class of `self` (or of its metaclass, if `self` is a class)? Otherwise a class or static method
// found on a class.
bool method_of(PyTypeObject* t, const PyMethodDef* ml) {
    for (Py_ssize_t i = 0; t->tp_mro && i < PyTuple_GET_SIZE(t->tp_mro); ++i)
        for (PyMethodDef* m = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, i))->tp_methods;
             m && m->ml_name; ++m)
            if (m == ml) return true;
    return false;
}

// What pybind11 gives its functions as `self`.
bool is_function_record(PyObject* self) {
    const char* name = Py_TYPE(self)->tp_name;
    return std::strcmp(name, "PyCapsule") == 0 || std::strstr(name, "pybind11_detail_function_record");
}

// The type that defines a method found on `self`.
std::string defining_type(PyTypeObject* t, const PyMethodDef* ml) {
    for (Py_ssize_t i = 0; t->tp_mro && i < PyTuple_GET_SIZE(t->tp_mro); ++i) {
        auto* k = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, i));
        for (PyMethodDef* m = k->tp_methods; m && m->ml_name; ++m)
            if (m == ml) return k->tp_name;
    }
    return t->tp_name;
}

std::string name_of(PyObject* o) {
    if (PyCFunction_Check(o)) {
        auto* f = reinterpret_cast<PyCFunctionObject*>(o);
        PyObject* self = f->m_self;
        if (!self || PyModule_Check(self) || is_function_record(self)) {
            std::string mod = text(f->m_module);
            if (mod.empty() && self && PyModule_Check(self)) mod = PyModule_GetName(self);
            if (mod.empty()) mod = "PyCapsule";
            return mod + "." + f->m_ml->ml_name;
        }
        if (PyType_Check(self) && !method_of(Py_TYPE(self), f->m_ml)) {
            auto* t = reinterpret_cast<PyTypeObject*>(self);
            std::string owner = defining_type(t, f->m_ml);
            return owner + "." + f->m_ml->ml_name;
        }
        return defining_type(Py_TYPE(self), f->m_ml) + "." + f->m_ml->ml_name;
    }
    if (Py_TYPE(o) == &PyMethodDescr_Type || Py_TYPE(o) == &PyWrapperDescr_Type ||
        Py_TYPE(o) == &PyClassMethodDescr_Type) {
        auto* d = reinterpret_cast<PyDescrObject*>(o);
        return std::string(d->d_type->tp_name) + "." + text(d->d_name);
    }
    if (Py_TYPE(o) == &_PyMethodWrapper_Type) {
        Owned n = Owned::steal(PyObject_GetAttrString(o, "__name__")),
              c = Owned::steal(PyObject_GetAttrString(o, "__objclass__"));
        PyErr_Clear();
        return std::string(c && PyType_Check(c.get()) ? reinterpret_cast<PyTypeObject*>(c.get())->tp_name : "?") + "." +
               text(n.get());
    }
    return "";
}

}  // namespace

PyObject* bound_self(PyObject* o) {
    if (!PyCFunction_Check(o)) return nullptr;
    auto* f = reinterpret_cast<PyCFunctionObject*>(o);
    PyObject* self = f->m_self;
    if (!self || PyModule_Check(self) || is_function_record(self)) return nullptr;
    return !PyType_Check(self) || method_of(Py_TYPE(self), f->m_ml) ? self : nullptr;
}

const CFunction* c_function(PyObject* o) {
    static std::unordered_map<const void*, CFunction> cache;  // by what never dies: the method or slot definition
    const void* key = nullptr;
    if (PyCFunction_Check(o)) {
        auto* f = reinterpret_cast<PyCFunctionObject*>(o);
        key = f->m_ml;
    } else if (Py_TYPE(o) == &PyMethodDescr_Type) {
        key = reinterpret_cast<PyMethodDescrObject*>(o)->d_method;
    } else if (Py_TYPE(o) == &PyWrapperDescr_Type) {
        static std::unordered_map<std::string, CFunction> by_name;  // wrappers of heap types may die
        std::string n = name_of(o);
        auto it = by_name.find(n);
        if (it == by_name.end()) it = by_name.emplace(n, classify(n)).first;
        return &it->second;
    } else if (Py_TYPE(o) == &_PyMethodWrapper_Type || Py_TYPE(o) == &PyClassMethodDescr_Type) {
        static std::unordered_map<std::string, CFunction> by_name;
        std::string n = name_of(o);
        auto it = by_name.find(n);
        if (it == by_name.end()) it = by_name.emplace(n, classify(n)).first;
        return &it->second;
    } else {
        return nullptr;
    }
    auto it = cache.find(key);
    if (it == cache.end()) it = cache.emplace(key, classify(name_of(o))).first;
    return &it->second;
}

bool c_type_allowed(PyTypeObject* t) {
    static const char* const names[] = {
#define C_TYPE(name) name,
#include "frontend/interp/c_types.def"
#undef C_TYPE
    };
    for (const char* n : names)
        if (std::strcmp(t->tp_name, n) == 0) return true;
    return std::strncmp(t->tp_name, "itertools.", 10) == 0 ||
           PyType_IsSubtype(t, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
}

}  // namespace braze::frontend
