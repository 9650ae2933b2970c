/* What functools.lru_cache's wrapper, which is C, remembers. Its layout is not public: a wrapper made here is looked at
 * first, and where that does not show what it must, nothing is ever found. */
#include "frontend/cpython/v311/internal.h"

typedef struct {
    PyObject_HEAD void *previous, *next;
    Py_hash_t hash;
    PyObject *key, *result;
} link_object;

typedef struct {
    link_object root;
    void *wrapper;
    int typed;
    PyObject *cache; /* results by key; where the size is bounded, links */
    Py_ssize_t hits;
    PyObject *function;
    Py_ssize_t maxsize;
    Py_ssize_t misses;
    PyObject *keyword_mark;
    PyTypeObject *link_type;
    PyObject *info_type, *dict, *weakrefs;
} cache_object;

static bool has_layout(PyObject *wrapper) {
    if (Py_TYPE(wrapper)->tp_basicsize != sizeof(cache_object)) return false;
    cache_object *c = (cache_object *)wrapper;
    return c->cache && PyDict_CheckExact(c->cache);
}

static PyObject *find(PyObject *wrapper, PyObject *key) {
    cache_object *c = (cache_object *)wrapper;
    PyObject *found = PyDict_GetItemWithError(c->cache, key);
    if (!found) PyErr_Clear();
    if (!found || c->maxsize < 0) return found;
    return Py_TYPE(found)->tp_basicsize == sizeof(link_object) ? ((link_object *)found)->result : NULL;
}

static bool holds(PyObject *wrapper, PyObject *key, PyObject *result) {
    PyObject *called = wrapper ? PyObject_CallOneArg(wrapper, key) : NULL;
    bool good = called && called == result && has_layout(wrapper) && find(wrapper, key) == result;
    Py_XDECREF(called);
    return good;
}

/* 1: the layout is this one. Remembered after the first time. */
static int layout_is_known(void) {
    static int known = -1;
    if (known >= 0) return known;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *functools = PyImport_ImportModule("functools"), *key = PyUnicode_FromString("key");
    PyObject *builtins = PyEval_GetBuiltins();
    PyObject *function = builtins ? PyDict_GetItemString(builtins, "type") : NULL;
    PyObject *bounded = NULL, *unbounded = NULL, *a = NULL, *b = NULL;
    if (functools && key && function) {
        bounded = PyObject_CallMethod(functools, "lru_cache", "i", 2);
        unbounded = PyObject_CallMethod(functools, "lru_cache", "O", Py_None);
        a = bounded ? PyObject_CallOneArg(bounded, function) : NULL;
        b = unbounded ? PyObject_CallOneArg(unbounded, function) : NULL;
    }
    known = holds(a, key, (PyObject *)&PyUnicode_Type) && holds(b, key, (PyObject *)&PyUnicode_Type);
    Py_XDECREF(functools);
    Py_XDECREF(key);
    Py_XDECREF(bounded);
    Py_XDECREF(unbounded);
    Py_XDECREF(a);
    Py_XDECREF(b);
    PyErr_Restore(type, value, traceback);
    return known;
}

PyObject *bz_lru_key(PyObject *wrapper, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    if (!layout_is_known() || !has_layout(wrapper)) return NULL;
    cache_object *c = (cache_object *)wrapper;
    Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (!c->typed && !named && n == 1 && (PyUnicode_CheckExact(args[0]) || PyLong_CheckExact(args[0])))
        return Py_NewRef(args[0]);
    PyObject *key = PyTuple_New((c->typed ? 2 : 1) * n + (named ? (c->typed ? 3 : 2) * named + 1 : 0));
    Py_ssize_t at = 0;
    if (!key) {
        PyErr_Clear();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) PyTuple_SET_ITEM(key, at++, Py_NewRef(args[i]));
    if (named) PyTuple_SET_ITEM(key, at++, Py_NewRef(c->keyword_mark));
    for (Py_ssize_t i = 0; i < named; i++) {
        PyTuple_SET_ITEM(key, at++, Py_NewRef(PyTuple_GET_ITEM(kwnames, i)));
        PyTuple_SET_ITEM(key, at++, Py_NewRef(args[n + i]));
    }
    for (Py_ssize_t i = 0; c->typed && i < n + named; i++)
        PyTuple_SET_ITEM(key, at++, Py_NewRef((PyObject *)Py_TYPE(args[i])));
    return key;
}

PyObject *bz_lru_result(PyObject *wrapper, PyObject *key) {
    return layout_is_known() && has_layout(wrapper) ? find(wrapper, key) : NULL;
}
