#include "frontend/segments/binding.h"

#include <cstring>

#include "frontend/cpython/api.h"

namespace braze::frontend {

BoundArguments::BoundArguments(PyObject* function, PyObject* self, PyObject* const* args, Py_ssize_t n,
                               PyObject* kwnames) {
    ok_ = bind(function, self, args, n, kwnames);
    if (!ok_) PyErr_Clear();
}

BoundArguments::~BoundArguments() {
    if (locals_ != small_) delete[] locals_;
}

bool BoundArguments::bind(PyObject* function, PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
    auto* f = reinterpret_cast<PyFunctionObject*>(function);
    auto* co = reinterpret_cast<PyCodeObject*>(f->func_code);
    size_ = bz_code_nlocalsplus(co);
    if (size_ > 32) locals_ = new PyObject*[static_cast<size_t>(size_)];
    std::memset(locals_, 0, static_cast<size_t>(size_) * sizeof *locals_);
    int npos = co->co_argcount, nkw = co->co_kwonlyargcount, total = npos + nkw;
    Py_ssize_t given = n + (self != nullptr);
    auto positional = [&](Py_ssize_t i) { return self ? (i == 0 ? self : args[i - 1]) : args[i]; };
    for (Py_ssize_t i = 0; i < given && i < npos; ++i) locals_[i] = positional(i);
    if (given > npos && !(co->co_flags & CO_VARARGS)) return false;
    int at = total;
    if (co->co_flags & CO_VARARGS) {
        Py_ssize_t extra = given > npos ? given - npos : 0;
        varargs_ = Owned::steal(PyTuple_New(extra));
        if (!varargs_) return false;
        for (Py_ssize_t i = 0; i < extra; ++i) PyTuple_SET_ITEM(varargs_.get(), i, Py_NewRef(positional(npos + i)));
        locals_[at++] = varargs_.get();
    }
    if (co->co_flags & CO_VARKEYWORDS) {
        varkw_ = Owned::steal(PyDict_New());
        if (!varkw_) return false;
        locals_[at] = varkw_.get();
    }
    for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); ++k) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k), *value = args[n + k];
        int slot = -1;
        for (int i = co->co_posonlyargcount; i < total && slot < 0; ++i)
            if (bz_code_local_name(co, i) == name) slot = i;
        for (int i = co->co_posonlyargcount; i < total && slot < 0; ++i)
            if (PyUnicode_Compare(bz_code_local_name(co, i), name) == 0) slot = i;
        if (slot >= 0) {
            if (locals_[slot]) return false;
            locals_[slot] = value;
        } else if (!varkw_ || PyDict_SetItem(varkw_.get(), name, value) < 0) {
            return false;
        }
    }
    Py_ssize_t ndef = f->func_defaults ? PyTuple_GET_SIZE(f->func_defaults) : 0;
    for (int i = 0; i < npos; ++i) {
        if (locals_[i]) continue;
        Py_ssize_t d = i - (npos - ndef);
        if (d < 0) return false;
        locals_[i] = PyTuple_GET_ITEM(f->func_defaults, d);
    }
    for (int i = npos; i < total; ++i) {
        if (locals_[i]) continue;
        locals_[i] =
            f->func_kwdefaults ? PyDict_GetItemWithError(f->func_kwdefaults, bz_code_local_name(co, i)) : nullptr;
        if (!locals_[i]) return false;
    }
    return true;
}

}  // namespace braze::frontend
