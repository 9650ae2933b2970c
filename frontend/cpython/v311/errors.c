/* Raising and matching exceptions. Texts are CPython's. */
#include "frontend/cpython/v311/internal.h"

void bz_name_error(PyObject *exc, const char *format, PyObject *name) {
    const char *s = name ? PyUnicode_AsUTF8(name) : NULL;
    if (!s) return;
    PyErr_Format(exc, format, s);
    if (exc == PyExc_NameError) { /* .name feeds "did you mean" */
        PyObject *t, *v, *tb;
        PyErr_Fetch(&t, &v, &tb);
        PyErr_NormalizeException(&t, &v, &tb);
        if (PyErr_GivenExceptionMatches(v, PyExc_NameError) && !((PyNameErrorObject *)v)->name)
            (void)PyObject_SetAttr(v, bz_id_name, name);
        PyErr_Restore(t, v, tb);
    }
}

void bz_unbound_deref(PyCodeObject *co, int i) {
    if (PyErr_Occurred()) return;
    PyObject *name = PyTuple_GET_ITEM(co->co_localsplusnames, i);
    if (bz_code_local_is_free(co, i))
        bz_name_error(PyExc_NameError, BZ_UNBOUND_FREE_ERROR, name);
    else
        bz_name_error(PyExc_UnboundLocalError, BZ_UNBOUND_LOCAL_ERROR, name);
}

bool bz_raise(PyThreadState *ts, PyObject *exc, PyObject *cause) {
    PyObject *type = NULL, *value = NULL;
    if (!exc) {
        value = _PyErr_GetTopmostException(ts)->exc_value;
        if (!value || value == Py_None) {
            PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
            return false;
        }
        PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(value)), Py_NewRef(value), PyException_GetTraceback(value));
        return true;
    }
    if (PyExceptionClass_Check(exc)) {
        type = Py_NewRef(exc);
        value = PyObject_CallNoArgs(exc);
        if (!value) goto done;
        if (!PyExceptionInstance_Check(value)) {
            PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", exc,
                         Py_TYPE(value));
            goto done;
        }
    } else if (PyExceptionInstance_Check(exc)) {
        value = Py_NewRef(exc);
        type = Py_NewRef(PyExceptionInstance_Class(exc));
    } else {
        PyErr_SetString(PyExc_TypeError, "exceptions must derive from BaseException");
        goto done;
    }
    if (cause) {
        PyObject *fixed;
        if (PyExceptionClass_Check(cause)) {
            fixed = PyObject_CallNoArgs(cause);
            if (!fixed) goto done;
        } else if (PyExceptionInstance_Check(cause))
            fixed = Py_NewRef(cause);
        else if (cause == Py_None)
            fixed = NULL;
        else {
            PyErr_SetString(PyExc_TypeError, "exception causes must derive from BaseException");
            goto done;
        }
        PyException_SetCause(value, fixed);
    }
    PyErr_SetObject(type, value);
done:
    Py_XDECREF(value);
    Py_XDECREF(type);
    return false;
}

int bz_check_except_type(PyObject *type) {
    bool ok = true;
    if (PyTuple_Check(type)) {
        for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(type); i++)
            ok = PyExceptionClass_Check(PyTuple_GET_ITEM(type, i));
    } else
        ok = PyExceptionClass_Check(type);
    if (!ok) PyErr_SetString(PyExc_TypeError, "catching classes that do not inherit from BaseException is not allowed");
    return ok ? 0 : -1;
}

int bz_check_except_star_type(PyObject *type) {
    if (bz_check_except_type(type) < 0) return -1;
    int is_group = 0;
    if (PyTuple_Check(type)) {
        for (Py_ssize_t i = 0; !is_group && i < PyTuple_GET_SIZE(type); i++)
            is_group = PyObject_IsSubclass(PyTuple_GET_ITEM(type, i), PyExc_BaseExceptionGroup);
    } else
        is_group = PyObject_IsSubclass(type, PyExc_BaseExceptionGroup);
    if (is_group > 0)
        PyErr_SetString(PyExc_TypeError, "catching ExceptionGroup with except* is not allowed. Use except instead.");
    return is_group ? -1 : 0;
}

/* except* T: splits `exc` into what matches and the rest (new references, None for nothing). */
int bz_exception_group_match(PyObject *exc, PyObject *type, PyObject **match, PyObject **rest) {
    *match = *rest = NULL;
    bool is_group = PyObject_TypeCheck(exc, (PyTypeObject *)PyExc_BaseExceptionGroup);
    if (exc != Py_None && PyErr_GivenExceptionMatches(exc, type)) {
        if (is_group)
            *match = Py_NewRef(exc);
        else { /* wrap a naked exception */
            *match = PyObject_CallFunction(PyExc_BaseExceptionGroup, "O(O)", bz_empty_string, exc);
            if (!*match) return -1;
        }
        *rest = Py_NewRef(Py_None);
    } else if (exc != Py_None && is_group) {
        PyObject *pair = PyObject_CallMethod(exc, "split", "(O)", type);
        if (!pair) return -1;
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) {
            PyErr_Format(PyExc_TypeError, "%.200s.split must return a 2-tuple, not %.200s", Py_TYPE(exc)->tp_name,
                         Py_TYPE(pair)->tp_name);
            Py_DECREF(pair);
            return -1;
        }
        *match = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
        *rest = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
        Py_DECREF(pair);
    } else {
        *match = Py_NewRef(Py_None);
        *rest = Py_NewRef(Py_None);
    }
    return 0;
}

void bz_kwargs_error(PyObject *func, PyObject *kwargs) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        PyObject *s = _PyObject_FunctionStr(func);
        if (s)
            PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s", s,
                         Py_TYPE(kwargs)->tp_name);
        Py_XDECREF(s);
    } else if (PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyObject *t, *v, *tb;
        PyErr_Fetch(&t, &v, &tb);
        if (!v || !PyTuple_Check(v) || PyTuple_GET_SIZE(v) != 1) {
            PyErr_Restore(t, v, tb);
            return;
        }
        PyObject *s = _PyObject_FunctionStr(func);
        if (s)
            PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", s,
                         PyTuple_GET_ITEM(v, 0));
        Py_XDECREF(s);
        Py_XDECREF(t);
        Py_XDECREF(v);
        Py_XDECREF(tb);
    }
}
