/* What the traced loop asks of the tracer (implemented in C++, frontend/interp/). The plain loop does what CPython
 * does; the traced loop calls these instead wherever an instruction reads from, writes to or calls an object that may
 * have existed before the trace.
 *
 * Operands are borrowed and MUST still be on the frame's stack (or in its locals) while the hook runs; the loop pops
 * them only after success. So at a break in the root frame the state before the instruction is intact. Results are new
 * references.
 *
 * Failure: NULL / -1 with an exception set. Then the loop asks bz_aborting(): false: an ordinary exception, raised here
 * as usual. true: the trace is over. The root frame stops with BZ_STOPPED before the instruction (before KW_NAMES if
 * the CALL has keyword names); every other traced frame ends at once with the exception set, WITHOUT running its
 * handlers (except, finally, with). The loop also asks bz_aborting() after each hook that succeeded in calling foreign
 * code (bz_call, bz_call_ex, ...), since C code may have swallowed the exception.
 *
 * defaults.h has, for every hook, the function that does just what CPython does. */
#ifndef BRAZE_FRONTEND_CPYTHON_TRACE_HOOKS_H
#define BRAZE_FRONTEND_CPYTHON_TRACE_HOOKS_H
#include "frontend/cpython/api.h"
#ifdef __cplusplus
extern "C" {
#endif

bool bz_aborting(void);
/* Frames that are none of the program's business even while tracing: finalisers that happen to run, the import system.
 * CPython runs them as they are. */
bool bz_runs_untraced(PyCodeObject* co);
/* A traced frame begins (also each resume of a generator) / ends. enter < 0: do not interpret this frame: exception
 * set, abort. */
int bz_frame_enter(bz_frame* f, bool is_root);
void bz_frame_exit(bz_frame* f, PyObject* result /* NULL: exception */);
/* Optional per-instruction limit; called on backward jumps. -1: break (loop too long, interrupt, ...). */
int bz_backward_jump(bz_frame* f);

PyObject* bz_load_fast_root(bz_frame* f, int i, PyObject* value); /* LOAD_FAST of the root frame only; value bound */
int bz_store_fast_root(int i);                                    /* STORE_FAST of the root frame only */
int bz_delete_fast_root(int i);                                   /* DELETE_FAST of the root frame only; bound */
void bz_unbound_fast_root(int i);                                 /* either finds it unbound: the instruction raises */
PyObject* bz_load_global(bz_frame* f, PyObject* name);            /* LOAD_GLOBAL, and the global part of LOAD_NAME */
int bz_store_global(bz_frame* f, PyObject* name, PyObject* value /* NULL: delete */);
PyObject* bz_load_deref(bz_frame* f, int i, PyObject* cell); /* cell is not empty */
int bz_empty_deref(PyObject* cell);                          /* the cell is empty: the instruction raises. -1: break */
int bz_store_deref(bz_frame* f, int i, PyObject* cell, PyObject* value /* NULL: delete */);
PyObject* bz_load_attr(PyObject* owner, PyObject* name);
/* As _PyObject_GetMethod. 1: unbound, call with owner; 0: bound or NULL. */
int bz_load_method(PyObject* owner, PyObject* name, PyObject** method);
/* As _PyObject_LookupSpecial (with, async with). NULL without exception: absent. */
PyObject* bz_load_special(PyObject* owner, PyObject* name);
int bz_store_attr(PyObject* owner, PyObject* name, PyObject* value /* NULL: delete */);
PyObject* bz_get_item(PyObject* container, PyObject* key);
int bz_set_item(PyObject* container, PyObject* key, PyObject* value /* NULL: delete */);
PyObject* bz_binary_op(int nb_op /* NB_ADD ... */, PyObject* a, PyObject* b);
PyObject* bz_unary_op(int opcode, PyObject* a); /* UNARY_POSITIVE, _NEGATIVE, _INVERT (UNARY_NOT uses bz_truth) */
PyObject* bz_compare(PyObject* a, PyObject* b, int op);
int bz_is(PyObject* a, PyObject* b);
int bz_contains(PyObject* container, PyObject* value);
int bz_truth(PyObject* v); /* 1, 0, -1: jumps and `not`; not called for True, False, None */
PyObject* bz_get_iter(PyObject* v);
PyObject* bz_iter_next(PyObject* it); /* NULL without exception: exhausted */
PyObject* bz_call(bz_frame* f, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames);
PyObject* bz_call_ex(bz_frame* f, PyObject* callable, PyObject* args /* tuple */, PyObject* kwargs /* dict or NULL */);
PyObject* bz_format_value(PyObject* v, PyObject* spec, int conversion);
/* The instruction reads the whole container by C code (UNPACK_SEQUENCE, UNPACK_EX, LIST_EXTEND, SET_UPDATE,
 * DICT_UPDATE, DICT_MERGE, GET_LEN, MATCH_*). */
int bz_read_container(PyObject* container);
/* C code is about to change the container (LIST_APPEND, SET_ADD, MAP_ADD, LIST_EXTEND, SET_UPDATE, DICT_UPDATE,
 * DICT_MERGE). Always one that some BUILD_* made; but when the trace began in the middle of a display or comprehension
 * that was before the trace: -1 then (break). */
int bz_mutate_container(PyObject* container);
/* `receiver` is about to be resumed by an await or yield from. Before anything has happened to it. */
int bz_before_send(PyObject* receiver);
/* What stands for an element (borrowed) that C code took out of a container (new reference). */
PyObject* bz_loaded_element(PyObject* v);
/* `exc` (or its class; NULL: none) is about to be raised, which writes to an exception: traceback, context. */
int bz_before_raise(PyObject* exc);
/* The root frame has entered or left an `except` block. */
void bz_handler_moved(void);
int bz_made(PyObject* fresh); /* MAKE_FUNCTION, BUILD_*, ... : created by the trace */
PyObject* bz_import_name(bz_frame* f, PyObject* name, PyObject* fromlist, PyObject* level);
PyObject* bz_import_from(PyObject* module, PyObject* name);
int bz_unsupported(const char* what); /* IMPORT_STAR, PRINT_EXPR, ...: breaks; returns -1 (0: go on as CPython does) */

#ifdef __cplusplus
}
#endif
#endif
