/* What CPython does at each point where the traced loop asks a hook (trace_hooks.h). The plain loop uses these; a hook
 * that has nothing to add may return them. Same arguments, ownership and results as the hook of the same name. */
#ifndef BRAZE_FRONTEND_CPYTHON_DEFAULTS_H
#define BRAZE_FRONTEND_CPYTHON_DEFAULTS_H
#include "frontend/cpython/api.h"
#ifdef __cplusplus
extern "C" {
#endif

PyObject* bz_default_load_global(bz_frame* f, PyObject* name);
int bz_default_store_global(bz_frame* f, PyObject* name, PyObject* value);
PyObject* bz_default_load_deref(bz_frame* f, int i, PyObject* cell);
int bz_default_store_deref(bz_frame* f, int i, PyObject* cell, PyObject* value);
PyObject* bz_default_load_attr(PyObject* owner, PyObject* name);
int bz_default_load_method(PyObject* owner, PyObject* name, PyObject** method);
PyObject* bz_default_load_special(PyObject* owner, PyObject* name);
int bz_default_store_attr(PyObject* owner, PyObject* name, PyObject* value);
PyObject* bz_default_get_item(PyObject* container, PyObject* key);
int bz_default_set_item(PyObject* container, PyObject* key, PyObject* value);
PyObject* bz_default_binary_op(int nb_op, PyObject* a, PyObject* b);
PyObject* bz_default_unary_op(int opcode, PyObject* a);
PyObject* bz_default_compare(PyObject* a, PyObject* b, int op);
int bz_default_is(PyObject* a, PyObject* b);
int bz_default_contains(PyObject* container, PyObject* value);
int bz_default_truth(PyObject* v);
PyObject* bz_default_get_iter(PyObject* v);
PyObject* bz_default_iter_next(PyObject* it);
PyObject* bz_default_call(bz_frame* f, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames);
PyObject* bz_default_call_ex(bz_frame* f, PyObject* callable, PyObject* args, PyObject* kwargs);
PyObject* bz_default_format_value(PyObject* v, PyObject* spec, int conversion);
PyObject* bz_default_import_name(bz_frame* f, PyObject* name, PyObject* fromlist, PyObject* level);
PyObject* bz_default_import_from(PyObject* module, PyObject* name);
/* Signals, pending calls, a waiting thread's wish for the GIL: what CPython does between instructions. -1 with an
 * exception set. */
int bz_handle_pending(PyThreadState* ts);

#ifdef __cplusplus
}
#endif
#endif
