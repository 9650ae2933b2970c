/* Shared by the C files of this folder: CPython 3.11's internal headers, and the helpers that several of them use. */
#ifndef BRAZE_FRONTEND_CPYTHON_V311_INTERNAL_H
#define BRAZE_FRONTEND_CPYTHON_V311_INTERNAL_H
#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1
#include <Python.h>
#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000
#error "this folder is written for the frame layout and the opcodes of CPython 3.11"
#endif
#include <frameobject.h>
#include <internal/pycore_ceval.h>
#include <internal/pycore_code.h>
#include <internal/pycore_dict.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_moduleobject.h>
#include <internal/pycore_object.h>
#include <internal/pycore_opcode.h>
#include <internal/pycore_pyerrors.h>
#include <internal/pycore_pystate.h>
#include <opcode.h>

#include "frontend/cpython/api.h"
#include "frontend/cpython/defaults.h"
#include "frontend/cpython/trace_hooks.h"

/* Names that the interpreter itself looks up. Own interned strings: &_Py_ID(x) would reach into _PyRuntime at an offset
 * that a patch release may move. */
// clang-format off
#define BZ_NAMES(X) X(__aenter__) X(__aexit__) X(__all__) X(__annotations__) X(__build_class__) X(__dict__) \
    X(__enter__) X(__exit__) X(__import__) X(__match_args__) X(__name__) X(__spec__) X(displayhook) X(get) X(name) \
    X(send)
// clang-format on
#define X(n) extern PyObject* bz_id_##n;
BZ_NAMES(X)
#undef X
extern PyObject* bz_empty_string;

#define BZ_NAME_ERROR "name '%.200s' is not defined"
#define BZ_UNBOUND_LOCAL_ERROR "cannot access local variable '%s' where it is not associated with a value"
#define BZ_UNBOUND_FREE_ERROR \
    "cannot access free variable '%s' where it is not associated with a value in enclosing scope"

/* substitutes.c: functions that libpython hides */
int bz_init_substitutes(void);
bool bz_is_delegate(PyCodeObject* co);                          /* code that must run in CPython's own loop */
PyObject* bz_prep_reraise_star(PyObject* orig, PyObject* excs); /* _PyExc_PrepReraiseStar */
PyObject* bz_get_awaitable(PyObject* obj, int context);
PyObject* bz_get_aiter(PyObject* obj);
PyObject* bz_get_anext(PyObject* aiter);
PyObject* bz_async_gen_wrap(PyObject* v);
void bz_report_exception(PyThreadState* ts, PyFrameObject* f); /* the tracer's 'exception' event */
bool bz_find_handler(PyCodeObject* co, int offset, int* depth, int* target, int* push_lasti);

/* errors.c: raising and matching exceptions */
void bz_name_error(PyObject* exc, const char* format, PyObject* name);
void bz_unbound_deref(PyCodeObject* co, int i);
bool bz_raise(PyThreadState* ts, PyObject* exc, PyObject* cause); /* borrows; true: re-raised, add no traceback entry */
int bz_check_except_type(PyObject* type);
int bz_check_except_star_type(PyObject* type);
int bz_exception_group_match(PyObject* exc, PyObject* type, PyObject** match, PyObject** rest);
void bz_kwargs_error(PyObject* func, PyObject* kwargs); /* turns the error of a dict merge into that of a call */

/* names.c: namespaces and imports */
PyObject* bz_load_name(bz_frame* f, PyObject* name);
PyObject* bz_load_class_name(bz_frame* f, PyObject* name); /* NULL without exception: not there */
int bz_store_name(bz_frame* f, PyObject* name, PyObject* value);
int bz_delete_name(bz_frame* f, PyObject* name);
PyObject* bz_load_build_class(PyObject* builtins);
/* *made: the new dict (new reference), or NULL if there is one. */
int bz_setup_annotations(PyObject* locals, PyObject** made);
int bz_import_star(PyThreadState* ts, bz_frame* f, PyObject* module);
int bz_print_expr(PyObject* v);

/* containers.c: unpacking, matching, argument lists. `get` reads an attribute (PyObject_GetAttr or a hook). */
typedef PyObject* (*bz_getattr)(PyObject* owner, PyObject* name);
PyObject* bz_unpack(PyObject* seq, int before, int after); /* new tuple; after < 0: no starred target */
PyObject* bz_match_keys(PyObject* map, PyObject* keys);
PyObject* bz_match_class(PyObject* subject, PyObject* type, Py_ssize_t nargs, PyObject* kwnames, bz_getattr get);
PyObject* bz_args_tuple(PyObject* func, PyObject* args);
PyObject* bz_kwargs_dict(PyObject* func, PyObject* kwargs);
int bz_list_extend(PyObject* list, PyObject* iterable);
int bz_dict_update(PyObject* dict, PyObject* mapping);
int bz_dict_merge(PyObject* dict, PyObject* mapping, PyObject* func); /* keyword arguments of func */
PyObject* bz_make_function(bz_frame* f, PyObject** top, int flags);   /* operands below `top`, borrowed */
/* Elements that C code took out of a container, replaced by what stands for them in the trace. -1: exception. */
int bz_loaded_tuple(PyObject* fresh, Py_ssize_t except);
int bz_loaded_list(PyObject* list);
int bz_loaded_dict(PyObject* dict);
/* With such elements; the target stays as it was on failure. */
int bz_traced_list_extend(PyObject* list, PyObject* iterable);
int bz_traced_dict_update(PyObject* dict, PyObject* mapping);
int bz_traced_dict_merge(PyObject* dict, PyObject* mapping, PyObject* func);

/* loop_traced.c */
enum bz_outcome bz_run_traced(PyThreadState* ts, bz_frame* frame, int throwflag, bool is_root, PyObject** value);

#endif
