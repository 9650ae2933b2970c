/* Namespaces and imports. Texts of errors are CPython's. */
#include "frontend/cpython/v311/internal.h"

/* ---- LOAD_GLOBAL, LOAD_NAME and their relatives */

PyObject *bz_default_load_global(bz_frame *f, PyObject *name) {
    PyObject *v, *globals = f->f_globals, *builtins = f->f_builtins;
    if (PyDict_CheckExact(globals) && PyDict_CheckExact(builtins)) {
        Py_hash_t hash = ((PyASCIIObject *)name)->hash;
        if (hash == -1 && (hash = PyObject_Hash(name)) == -1) return NULL;
        v = _PyDict_GetItem_KnownHash(globals, name, hash);
        if (!v && !PyErr_Occurred()) v = _PyDict_GetItem_KnownHash(builtins, name, hash);
        if (!v && !PyErr_Occurred()) bz_name_error(PyExc_NameError, BZ_NAME_ERROR, name);
        return Py_XNewRef(v);
    }
    v = PyObject_GetItem(globals, name);
    if (v || !PyErr_ExceptionMatches(PyExc_KeyError)) return v;
    PyErr_Clear();
    v = PyObject_GetItem(builtins, name);
    if (!v && PyErr_ExceptionMatches(PyExc_KeyError)) bz_name_error(PyExc_NameError, BZ_NAME_ERROR, name);
    return v;
}

int bz_default_store_global(bz_frame *f, PyObject *name, PyObject *value) {
    return value ? PyDict_SetItem(f->f_globals, name, value) : PyDict_DelItem(f->f_globals, name);
}

PyObject *bz_load_class_name(bz_frame *f, PyObject *name) {
    PyObject *v, *locals = f->f_locals;
    if (PyDict_CheckExact(locals)) return Py_XNewRef(PyDict_GetItemWithError(locals, name));
    v = PyObject_GetItem(locals, name);
    if (!v && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear();
    return v;
}

PyObject *bz_load_name(bz_frame *f, PyObject *name) {
    if (!f->f_locals) {
        PyErr_Format(PyExc_SystemError, "no locals when loading %R", name);
        return NULL;
    }
    PyObject *v = bz_load_class_name(f, name);
    if (v || PyErr_Occurred()) return v;
    v = PyDict_GetItemWithError(f->f_globals, name);
    if (v) return Py_NewRef(v);
    if (PyErr_Occurred()) return NULL;
    if (PyDict_CheckExact(f->f_builtins)) {
        v = PyDict_GetItemWithError(f->f_builtins, name);
        if (v) return Py_NewRef(v);
        if (!PyErr_Occurred()) bz_name_error(PyExc_NameError, BZ_NAME_ERROR, name);
        return NULL;
    }
    v = PyObject_GetItem(f->f_builtins, name);
    if (!v && PyErr_ExceptionMatches(PyExc_KeyError)) bz_name_error(PyExc_NameError, BZ_NAME_ERROR, name);
    return v;
}

int bz_store_name(bz_frame *f, PyObject *name, PyObject *value) {
    PyObject *ns = f->f_locals;
    if (!ns) {
        PyErr_Format(PyExc_SystemError, "no locals found when storing %R", name);
        return -1;
    }
    return PyDict_CheckExact(ns) ? PyDict_SetItem(ns, name, value) : PyObject_SetItem(ns, name, value);
}

int bz_delete_name(bz_frame *f, PyObject *name) {
    if (!f->f_locals) {
        PyErr_Format(PyExc_SystemError, "no locals when deleting %R", name);
        return -1;
    }
    if (!PyObject_DelItem(f->f_locals, name)) return 0;
    bz_name_error(PyExc_NameError, BZ_NAME_ERROR, name);
    return -1;
}

PyObject *bz_load_build_class(PyObject *builtins) {
    PyObject *v;
    if (PyDict_CheckExact(builtins)) {
        v = PyDict_GetItemWithError(builtins, bz_id___build_class__);
        if (v) return Py_NewRef(v);
        if (PyErr_Occurred()) return NULL;
    } else {
        v = PyObject_GetItem(builtins, bz_id___build_class__);
        if (v || !PyErr_ExceptionMatches(PyExc_KeyError)) return v;
    }
    PyErr_SetString(PyExc_NameError, "__build_class__ not found");
    return NULL;
}

int bz_setup_annotations(PyObject *locals, PyObject **made) {
    *made = NULL;
    if (!locals) {
        PyErr_SetString(PyExc_SystemError, "no locals found when setting up annotations");
        return -1;
    }
    if (PyDict_CheckExact(locals)) {
        if (PyDict_GetItemWithError(locals, bz_id___annotations__)) return 0;
        if (PyErr_Occurred()) return -1;
    } else {
        PyObject *present = PyObject_GetItem(locals, bz_id___annotations__);
        Py_XDECREF(present);
        if (present) return 0;
        if (!PyErr_ExceptionMatches(PyExc_KeyError)) return -1;
        PyErr_Clear();
    }
    PyObject *annotations = PyDict_New();
    if (!annotations) return -1;
    int err = PyDict_CheckExact(locals) ? PyDict_SetItem(locals, bz_id___annotations__, annotations)
                                        : PyObject_SetItem(locals, bz_id___annotations__, annotations);
    *made = annotations;
    return err;
}

/* ---- imports */

PyObject *bz_default_import_name(bz_frame *f, PyObject *name, PyObject *fromlist, PyObject *level) {
    PyObject *import = PyDict_GetItemWithError(f->f_builtins, bz_id___import__);
    if (!import) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "__import__ not found");
        return NULL;
    }
    PyObject *locals = f->f_locals ? f->f_locals : Py_None;
    if (import == PyInterpreterState_Get()->import_func) {
        int n = _PyLong_AsInt(level);
        if (n == -1 && PyErr_Occurred()) return NULL;
        return PyImport_ImportModuleLevelObject(name, f->f_globals, locals, fromlist, n);
    }
    PyObject *args[] = {name, f->f_globals, locals, fromlist, level};
    Py_INCREF(import);
    PyObject *res = PyObject_Vectorcall(import, args, 5, NULL);
    Py_DECREF(import);
    return res;
}

PyObject *bz_default_import_from(PyObject *module, PyObject *name) {
    PyObject *x, *package = NULL, *path = NULL, *msg;
    if (_PyObject_LookupAttr(module, name, &x) != 0) return x;
    package = PyObject_GetAttr(module, bz_id___name__); /* a circular import: the submodule may be in sys.modules */
    if (package && PyUnicode_Check(package)) {
        PyObject *full = PyUnicode_FromFormat("%U.%U", package, name);
        if (!full) {
            Py_DECREF(package);
            return NULL;
        }
        x = PyImport_GetModule(full);
        Py_DECREF(full);
        if (x || PyErr_Occurred()) {
            Py_DECREF(package);
            return x;
        }
    } else
        Py_CLEAR(package);
    path = PyModule_GetFilenameObject(module);
    PyObject *shown = package ? Py_NewRef(package) : PyUnicode_FromString("<unknown module name>");
    if (!shown) goto done;
    if (!path || !PyUnicode_Check(path)) {
        PyErr_Clear();
        msg = PyUnicode_FromFormat("cannot import name %R from %R (unknown location)", name, shown);
        PyErr_SetImportError(msg, package, NULL);
    } else {
        PyObject *spec = PyObject_GetAttr(module, bz_id___spec__);
        msg = PyUnicode_FromFormat(_PyModuleSpec_IsInitializing(spec)
                                       ? "cannot import name %R from partially initialized module %R (most likely due "
                                         "to a circular import) (%S)"
                                       : "cannot import name %R from %R (%S)",
                                   name, shown, path);
        Py_XDECREF(spec);
        PyErr_SetImportError(msg, package, path);
    }
    Py_XDECREF(msg);
done:
    Py_XDECREF(shown);
    Py_XDECREF(package);
    Py_XDECREF(path);
    return NULL;
}

/* The error of `from m import *` where an element of __all__ or a key of __dict__ is no string. */
static void star_name_error(PyObject *module, PyObject *name, bool from_dict) {
    PyObject *mod = PyObject_GetAttr(module, bz_id___name__);
    if (mod && !PyUnicode_Check(mod))
        PyErr_Format(PyExc_TypeError, "module __name__ must be a string, not %.100s", Py_TYPE(mod)->tp_name);
    else if (mod)
        PyErr_Format(PyExc_TypeError, "%s in %U.%s must be str, not %.100s", from_dict ? "Key" : "Item", mod,
                     from_dict ? "__dict__" : "__all__", Py_TYPE(name)->tp_name);
    Py_XDECREF(mod);
}

static int import_all_from(PyObject *locals, PyObject *module) {
    PyObject *all, *dict;
    bool from_dict = false;
    if (_PyObject_LookupAttr(module, bz_id___all__, &all) < 0) return -1;
    if (!all) {
        if (_PyObject_LookupAttr(module, bz_id___dict__, &dict) < 0) return -1;
        if (!dict) {
            PyErr_SetString(PyExc_ImportError, "from-import-* object has no __dict__ and no __all__");
            return -1;
        }
        all = PyMapping_Keys(dict);
        Py_DECREF(dict);
        if (!all) return -1;
        from_dict = true;
    }
    int err = 0;
    for (Py_ssize_t i = 0; !err; i++) {
        PyObject *name = PySequence_GetItem(all, i);
        if (!name) {
            if (PyErr_ExceptionMatches(PyExc_IndexError))
                PyErr_Clear();
            else
                err = -1;
            break;
        }
        if (!PyUnicode_Check(name)) {
            star_name_error(module, name, from_dict);
            err = -1;
        } else if (!(from_dict && PyUnicode_GET_LENGTH(name) && PyUnicode_READ_CHAR(name, 0) == '_')) {
            PyObject *v = PyObject_GetAttr(module, name);
            if (!v)
                err = -1;
            else if (PyDict_CheckExact(locals))
                err = PyDict_SetItem(locals, name, v);
            else
                err = PyObject_SetItem(locals, name, v);
            Py_XDECREF(v);
        }
        Py_DECREF(name);
    }
    Py_DECREF(all);
    return err;
}

int bz_import_star(PyThreadState *ts, bz_frame *f, PyObject *module) {
    PyFrameObject *object = PyThreadState_GetFrame(ts); /* the frame that runs: f's */
    int err = object ? PyFrame_FastToLocalsWithError(object) : -1;
    if (!err && !f->f_locals) {
        PyErr_SetString(PyExc_SystemError, "no locals found during 'import *'");
        err = -1;
    }
    if (!err) {
        err = import_all_from(f->f_locals, module);
        PyFrame_LocalsToFast(object, 0);
    }
    Py_XDECREF(object);
    return err;
}

int bz_print_expr(PyObject *v) {
    PyObject *hook = _PySys_GetAttr(PyThreadState_Get(), bz_id_displayhook), *r = NULL;
    if (hook)
        r = PyObject_CallOneArg(hook, v);
    else
        PyErr_SetString(PyExc_RuntimeError, "lost sys.displayhook");
    Py_XDECREF(r);
    return r ? 0 : -1;
}
