/* The traced loop: every access to objects that may be older than the trace goes through the hooks. */
#include "frontend/cpython/v311/internal.h"

/* ---- the local namespace of a class body or module. A module's is its globals; any other mapping is a container like
 * every other. */

static bool locals_are_globals(bz_frame *f) { return f->f_locals == f->f_globals && PyDict_CheckExact(f->f_globals); }

static PyObject *load_class_name(bz_frame *f, PyObject *name) {
    PyObject *locals = f->f_locals;
    if (PyDict_CheckExact(locals)) {
        int present = bz_contains(locals, name);
        return present > 0 && !bz_aborting() ? bz_get_item(locals, name) : NULL;
    }
    PyObject *v = bz_get_item(locals, name);
    if (!v && !bz_aborting() && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear();
    return v;
}

static PyObject *load_name(bz_frame *f, PyObject *name) {
    if (locals_are_globals(f)) return bz_load_global(f, name);
    if (!f->f_locals) {
        PyErr_Format(PyExc_SystemError, "no locals when loading %R", name);
        return NULL;
    }
    PyObject *v = load_class_name(f, name);
    return v || PyErr_Occurred() || bz_aborting() ? v : bz_load_global(f, name);
}

static int store_name(bz_frame *f, PyObject *name, PyObject *value) {
    if (locals_are_globals(f)) return bz_store_global(f, name, value);
    if (f->f_locals) return bz_set_item(f->f_locals, name, value);
    PyErr_Format(PyExc_SystemError, "no locals found when storing %R", name);
    return -1;
}

static int delete_name(bz_frame *f, PyObject *name) {
    if (!f->f_locals) {
        PyErr_Format(PyExc_SystemError, "no locals when deleting %R", name);
        return -1;
    }
    int err = locals_are_globals(f) ? bz_store_global(f, name, NULL) : bz_set_item(f->f_locals, name, NULL);
    if (err < 0 && !bz_aborting()) bz_name_error(PyExc_NameError, BZ_NAME_ERROR, name);
    return err;
}

/* ---- yield from, await. Generators, coroutines and iterators written in Python are frames, which are traced; what is
 * left are C iterators, whose elements the hook must see. Those with a method `send` (asynchronous generators, futures)
 * return a value at their end. */
static PySendResult send_to(PyObject *receiver, PyObject *v, PyObject **result) {
    PyTypeObject *t = Py_TYPE(receiver);
    bool c_iterator = !PyType_HasFeature(t, Py_TPFLAGS_HEAPTYPE) && !(t->tp_as_async && t->tp_as_async->am_send) &&
                      PyIter_Check(receiver) && !_PyType_Lookup(t, bz_id_send);
    if (v != Py_None || !c_iterator) {
        if (bz_before_send(receiver) < 0) return *result = NULL, PYGEN_ERROR;
        return PyIter_Send(receiver, v, result);
    }
    *result = bz_iter_next(receiver);
    if (*result) return PYGEN_NEXT;
    if (PyErr_Occurred() || bz_aborting()) return PYGEN_ERROR;
    *result = Py_NewRef(Py_None);
    return PYGEN_RETURN;
}

#define LOOP run_traced
#define TRACED 1
#define ACCESS(x) bz_##x
#define ABORTING() bz_aborting()
#define READ_CONTAINER(c) OKAY(bz_read_container(c))
#define MUTATE(c) OKAY(bz_mutate_container(c))
#define LOAD_NAME_OF load_name
#define LOAD_CLASS_NAME load_class_name
#define STORE_NAME_OF store_name
#define DELETE_NAME_OF delete_name
#define EXTEND_LIST(l, from) OKAY(bz_traced_list_extend(l, from))
#define UPDATE_DICT(d, from) OKAY(bz_traced_dict_update(d, from))
#define MERGE_DICT(d, from, fn) OKAY(bz_traced_dict_merge(d, from, fn))
#define SEND_TO(receiver, v, r, status) ((status) = send_to(receiver, v, &(r)))
#include "frontend/cpython/v311/loop.h"

enum bz_outcome bz_run_traced(PyThreadState *ts, bz_frame *frame, int throwflag, bool is_root, PyObject **value) {
    return run_traced(ts, frame, throwflag, is_root, value);
}
