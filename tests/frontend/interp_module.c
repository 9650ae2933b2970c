/* braze_interp_test: the interpreter without the tracer. Its hooks do what CPython does, count themselves, and can
 * break off the trace, so that the loops, the hook and the break protocol are tested alone. Made for
 * tests/frontend/test_interp.py and tests/cpython. */
#include "frontend/cpython/v311/internal.h"

enum driver { DRIVE_STEP = 1, DRIVE_TRACE, DRIVE_HANDOVER };
enum policy {
    NEVER,
    AT_COUNT, /* the `limit`-th hook since the trace began breaks */
    AT_ROOT,  /* the `limit`-th hook of the root frame, where the instruction has done nothing yet, but not in an except
                 block: the driver could not go on */
    EVERY_ROOT /* each call of a root frame (so that its callee becomes a root) and each `limit`-th of all those hooks
                */
};

static __thread enum driver driver;
static __thread bool aborting, leave_after_break;
static __thread PyObject *handled_at_start;
static enum policy policy;
static long limit;
static enum driver driver_everywhere;
static int mode_everywhere;
static __thread long counted;
static long total_hooks, total_frames, total_steps, total_traces, total_breaks;

/* ---- the hooks */

bool bz_aborting(void) { return aborting; }

static PyObject *handled_now(void) {
    PyObject *exc = PyThreadState_Get()->exc_info->exc_value;
    return exc == Py_None ? NULL : exc;
}

static int break_off(const char *what) {
    aborting = true;
    total_breaks++;
    PyErr_Format(PyExc_AttributeError, "break at %s",
                 what); /* a class that user code and C code catch: they must not */
    return -1;
}

/* early: the hook runs before the instruction has done anything that matters */
static int tick(const char *what, bool early) {
    bool at_root = early && bz_frame_top() == bz_trace_root_frame() && handled_now() == handled_at_start;
    total_hooks++;
    if (aborting) return break_off(what);
    if (policy == AT_COUNT || at_root) counted++;
    if (policy == AT_COUNT && counted == limit) return break_off(what);
    if (policy == AT_ROOT && at_root && counted == limit) return break_off(what);
    if (policy == EVERY_ROOT && at_root && (counted % limit == 0 || !strcmp(what, "call"))) return break_off(what);
    return 0;
}
#define EARLY(x) tick(#x, true) < 0
#define LATE(x) tick(#x, false) < 0

int bz_frame_enter(bz_frame *f, bool is_root) {
    total_frames++;
    if (!is_root && !aborting && bz_handle_pending(PyThreadState_Get()) < 0) return -1;
    return tick("frame_enter", is_root);
}
void bz_frame_exit(bz_frame *f, PyObject *result) {}
bool bz_runs_untraced(PyCodeObject *co) {
    (void)co;
    return false;
}
int bz_backward_jump(bz_frame *f) { return EARLY(backward_jump) ? -1 : bz_handle_pending(PyThreadState_Get()); }
int bz_store_fast_root(int i) { return (void)i, 0; }
int bz_delete_fast_root(int i) { return (void)i, 0; }
void bz_unbound_fast_root(int i) { (void)i; }
int bz_empty_deref(PyObject *cell) { return EARLY(empty_deref) ? -1 : 0; }
PyObject *bz_load_fast_root(bz_frame *f, int i, PyObject *value) {
    return EARLY(load_fast_root) ? NULL : Py_NewRef(value);
}
PyObject *bz_load_global(bz_frame *f, PyObject *name) {
    return EARLY(load_global) ? NULL : bz_default_load_global(f, name);
}
int bz_store_global(bz_frame *f, PyObject *name, PyObject *value) {
    return EARLY(store_global) ? -1 : bz_default_store_global(f, name, value);
}
PyObject *bz_load_deref(bz_frame *f, int i, PyObject *cell) {
    return EARLY(load_deref) ? NULL : bz_default_load_deref(f, i, cell);
}
int bz_store_deref(bz_frame *f, int i, PyObject *cell, PyObject *value) {
    return EARLY(store_deref) ? -1 : bz_default_store_deref(f, i, cell, value);
}
PyObject *bz_load_attr(PyObject *owner, PyObject *name) {
    return EARLY(load_attr) ? NULL : bz_default_load_attr(owner, name);
}
int bz_load_method(PyObject *owner, PyObject *name, PyObject **method) {
    return EARLY(load_method) ? 0 : bz_default_load_method(owner, name, method);
}
PyObject *bz_load_special(PyObject *owner, PyObject *name) {
    return EARLY(load_special) ? NULL : bz_default_load_special(owner, name);
}
int bz_store_attr(PyObject *owner, PyObject *name, PyObject *value) {
    return EARLY(store_attr) ? -1 : bz_default_store_attr(owner, name, value);
}
PyObject *bz_get_item(PyObject *c, PyObject *key) { return EARLY(get_item) ? NULL : bz_default_get_item(c, key); }
int bz_set_item(PyObject *c, PyObject *key, PyObject *value) {
    return EARLY(set_item) ? -1 : bz_default_set_item(c, key, value);
}
PyObject *bz_binary_op(int op, PyObject *a, PyObject *b) {
    return EARLY(binary_op) ? NULL : bz_default_binary_op(op, a, b);
}
PyObject *bz_unary_op(int opcode, PyObject *a) { return EARLY(unary_op) ? NULL : bz_default_unary_op(opcode, a); }
PyObject *bz_compare(PyObject *a, PyObject *b, int op) { return EARLY(compare) ? NULL : bz_default_compare(a, b, op); }
int bz_is(PyObject *a, PyObject *b) { return EARLY(is) ? -1 : bz_default_is(a, b); }
int bz_contains(PyObject *c, PyObject *value) { return EARLY(contains) ? -1 : bz_default_contains(c, value); }
int bz_truth(PyObject *v) { return EARLY(truth) ? -1 : bz_default_truth(v); }
PyObject *bz_get_iter(PyObject *v) { return EARLY(get_iter) ? NULL : bz_default_get_iter(v); }
PyObject *bz_iter_next(PyObject *it) { return EARLY(iter_next) ? NULL : bz_default_iter_next(it); }
/* The traced loop itself is not interrupted; CPython looks at signals and the GIL after each call. */
static PyObject *after_call(PyObject *result) {
    if (result && bz_handle_pending(PyThreadState_Get()) < 0) Py_CLEAR(result);
    return result;
}
PyObject *bz_call(bz_frame *f, PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    return EARLY(call) ? NULL : after_call(bz_default_call(f, callable, args, nargsf, kwnames));
}
PyObject *bz_call_ex(bz_frame *f, PyObject *callable, PyObject *args,
                     PyObject *kwargs) /* late: an iterator of arguments is used up */
{
    return LATE(call_ex) ? NULL : after_call(bz_default_call_ex(f, callable, args, kwargs));
}
PyObject *bz_format_value(PyObject *v, PyObject *spec, int conversion) {
    return EARLY(format) ? NULL : bz_default_format_value(v, spec, conversion);
}
int bz_read_container(PyObject *container) { return EARLY(read_container) ? -1 : 0; }
int bz_mutate_container(PyObject *container) { return EARLY(mutate_container) ? -1 : 0; }
int bz_before_send(PyObject *receiver) { return LATE(before_send) ? -1 : 0; }
PyObject *bz_loaded_element(PyObject *v) { return LATE(loaded_element) ? NULL : Py_NewRef(v); }
int bz_before_raise(PyObject *exc) { return 0; }
void bz_handler_moved(void) {}
int bz_made(PyObject *fresh) { return LATE(made) ? -1 : 0; }
PyObject *bz_import_name(bz_frame *f, PyObject *name, PyObject *fromlist, PyObject *level) {
    return EARLY(import_name) ? NULL : bz_default_import_name(f, name, fromlist, level);
}
PyObject *bz_import_from(PyObject *module, PyObject *name) {
    return EARLY(import_from) ? NULL : bz_default_import_from(module, name);
}
int bz_unsupported(const char *what) { return tick(what, true); }

/* ---- drivers: what is done with a frame on a thread in mode BZ_ACTIVE */

static PyObject *step_all(PyThreadState *ts, bz_frame *f, int throwflag) {
    PyObject *value = NULL;
    enum bz_outcome outcome = BZ_STOPPED;
    while (outcome == BZ_STOPPED) {
        if (bz_tracer_active(ts)) return bz_leave_to_cpython(ts, f, throwflag);
        outcome = bz_step(ts, f, throwflag, &value);
        throwflag = 0;
        total_steps++;
    }
    return outcome == BZ_RETURNED ? value : NULL;
}

/* A few instructions, then the frame goes to CPython, wherever it is. */
static PyObject *step_then_leave(PyThreadState *ts, bz_frame *f, int throwflag) {
    PyObject *value = NULL;
    for (int i = 0; i < 13; i++, throwflag = 0) {
        if (bz_tracer_active(ts)) break;
        enum bz_outcome outcome = bz_step(ts, f, throwflag, &value);
        total_steps++;
        if (outcome != BZ_STOPPED) return outcome == BZ_RETURNED ? value : NULL;
    }
    total_breaks++;
    return bz_leave_to_cpython(ts, f, throwflag);
}

/* Traces as far as it goes, runs the instruction at the break, and so on. */
static PyObject *trace_all(PyThreadState *ts, bz_frame *f) {
    PyCodeObject *co = bz_frame_code(f);
    PyObject **locals = bz_frame_localsplus(f), *func = bz_frame_function(f);
    if (bz_frame_is_generator(f) || bz_frame_locals_mapping(f) ||
        (co->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) ||
        ((PyFunctionObject *)func)->func_code != (PyObject *)co)
        return step_all(ts, f, 0);
    for (;;) {
        if (bz_tracer_active(ts)) return bz_leave_to_cpython(ts, f, 0);
        PyObject *value = NULL, **state = NULL;
        int n, next, old = bz_code_nlocalsplus(co) + bz_frame_stack_depth(f);
        PyObject *outer = handled_at_start;
        handled_at_start = handled_now();
        counted = 0;
        total_traces++;
        enum bz_outcome outcome = bz_trace(func, locals, old, bz_frame_next(f), &value, &state, &n, &next);
        handled_at_start = outer;
        aborting = false;
        if (outcome == BZ_STOPPED && PyErr_Occurred()) Py_FatalError("an exception is set after a break");
        if (outcome == BZ_STOPPED && bz_trace_handler_changed()) {
            bz_state_free(state, n);
            PyErr_SetString(PyExc_AssertionError, "break in an except block");
            outcome = BZ_RAISED;
        }
        if (outcome != BZ_STOPPED) {
            bz_frame_set_state(f, bz_frame_next(f), bz_frame_stack_depth(f));
            return outcome == BZ_RETURNED ? value : NULL;
        }
        for (int i = 0; i < old; i++) Py_XDECREF(locals[i]);
        for (int i = 0; i < n; i++) locals[i] = Py_XNewRef(state[i]);
        bz_frame_set_state(f, next, n - bz_code_nlocalsplus(co));
        bz_state_free(state, n);
        if (leave_after_break) {
            int mode = bz_mode_set(BZ_OFF);
            value = bz_leave_to_cpython(ts, f, 0);
            bz_mode_set(mode);
            return value;
        }
        outcome = bz_step(ts, f, 0, &value);
        if (outcome != BZ_STOPPED) return outcome == BZ_RETURNED ? value : NULL;
    }
}

PyObject *bz_on_frame(PyThreadState *ts, bz_frame *f, int throwflag) {
    if (driver == DRIVE_HANDOVER) return step_then_leave(ts, f, throwflag);
    return driver == DRIVE_TRACE && !throwflag ? trace_all(ts, f) : step_all(ts, f, throwflag);
}

/* ---- the module */

static PyObject *run(enum driver d, PyObject *args, PyObject *kwargs) {
    if (PyTuple_GET_SIZE(args) < 1) {
        PyErr_SetString(PyExc_TypeError, "expected a callable");
        return NULL;
    }
    PyObject *rest = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args)), *res;
    if (!rest) return NULL;
    bz_hook_acquire();
    enum driver old_driver = driver;
    driver = d;
    int old_mode = bz_mode_set(BZ_ACTIVE);
    res = PyObject_Call(PyTuple_GET_ITEM(args, 0), rest, kwargs);
    bz_mode_set(old_mode);
    driver = old_driver;
    bz_hook_release();
    Py_DECREF(rest);
    return res;
}

static PyObject *mod_run_traced(PyObject *m, PyObject *args, PyObject *kwargs) {
    return run(DRIVE_TRACE, args, kwargs);
}
static PyObject *mod_step_all(PyObject *m, PyObject *args, PyObject *kwargs) { return run(DRIVE_STEP, args, kwargs); }

static PyObject *mod_set_policy(PyObject *m, PyObject *args) {
    int p, leave;
    if (!PyArg_ParseTuple(args, "ilp", &p, &limit, &leave)) return NULL;
    policy = (enum policy)p;
    leave_after_break = leave;
    Py_RETURN_NONE;
}

static PyObject *everywhere_hook(PyThreadState *ts, bz_frame *f, int throwflag);
static _PyFrameEvalFunction product_hook;

static PyObject *everywhere_hook(PyThreadState *ts, bz_frame *f, int throwflag) {
    if (bz_mode_get() == BZ_OFF) {
        bz_mode_set(mode_everywhere);
        driver = driver_everywhere;
    }
    return product_hook(ts, f, throwflag);
}

/* everywhere(kind): every frame of every thread from now on. "loop" (each instruction on the real frame), "handover"
 * (left to CPython after a few), "traced" (the traced loop without a root), "stress" (roots, broken off all the time)
 */
static PyObject *mod_everywhere(PyObject *m, PyObject *kind) {
    const char *k = PyUnicode_AsUTF8(kind);
    if (!k) return NULL;
    mode_everywhere = strcmp(k, "traced") ? BZ_ACTIVE : BZ_TRACING;
    driver_everywhere = !strcmp(k, "stress") ? DRIVE_TRACE : !strcmp(k, "handover") ? DRIVE_HANDOVER : DRIVE_STEP;
    if (driver_everywhere == DRIVE_TRACE) {
        policy = EVERY_ROOT;
        limit = 7;
    }
    bz_hook_acquire();
    PyInterpreterState *interp = PyInterpreterState_Get();
    product_hook = _PyInterpreterState_GetEvalFrameFunc(interp);
    _PyInterpreterState_SetEvalFrameFunc(interp, everywhere_hook);
    Py_RETURN_NONE;
}

/* refused(f): what bz_trace says to f as a root that it should refuse */
static PyObject *mod_trace_root(PyObject *m, PyObject *args) {
    PyObject *func, *value = NULL, **state = NULL, *locals[64] = {NULL};
    int n, next, begin, count;
    if (!PyArg_ParseTuple(args, "Oii", &func, &count, &begin)) return NULL;
    enum bz_outcome outcome = bz_trace(func, locals, count, begin, &value, &state, &n, &next);
    if (outcome == BZ_STOPPED) {
        bz_state_free(state, n);
        aborting = false;
        return PyLong_FromLong(next);
    }
    return value;
}

/* instructions(code): [(index, opcode name, argument, line)] */
static PyObject *mod_instructions(PyObject *m, PyObject *code) {
    PyObject *res = PyList_New(0);
    PyCodeObject *co = (PyCodeObject *)code;
    for (int i = 0, next, arg; res && i < Py_SIZE(co); i = next) {
        int op = bz_code_instruction(co, i, &arg, &next);
        PyObject *entry = Py_BuildValue("(isii)", i, bz_opcode_name(op), arg, bz_code_line(co, i));
        if (!entry || PyList_Append(res, entry) < 0) Py_CLEAR(res);
        Py_XDECREF(entry);
    }
    return res;
}

static PyObject *mod_check_opcodes(PyObject *m, PyObject *unused) {
    const char *message = bz_check_opcodes();
    if (message) return PyUnicode_FromString(message);
    Py_RETURN_NONE;
}

static PyObject *mod_stats(PyObject *m, PyObject *unused) {
    return Py_BuildValue("{slslslslsl}", "hooks", total_hooks, "frames", total_frames, "steps", total_steps, "traces",
                         total_traces, "breaks", total_breaks);
}

static PyMethodDef methods[] = {
    {"run_traced", (PyCFunction)(void (*)(void))mod_run_traced, METH_VARARGS | METH_KEYWORDS,
     "run_traced(f, *args, **kwargs)"},
    {"step_all", (PyCFunction)(void (*)(void))mod_step_all, METH_VARARGS | METH_KEYWORDS,
     "step_all(f, *args, **kwargs)"},
    {"set_policy", mod_set_policy, METH_VARARGS,
     "set_policy(policy, limit, leave): after a break CPython runs the rest, or one instruction is stepped and the "
     "trace goes on"},
    {"everywhere", mod_everywhere, METH_O, "everywhere(kind)"},
    {"trace_root", mod_trace_root, METH_VARARGS, "trace_root(f, n_state, next)"},
    {"instructions", mod_instructions, METH_O, "instructions(code)"},
    {"check_opcodes", mod_check_opcodes, METH_NOARGS, "None, or what is missing"},
    {"stats", mod_stats, METH_NOARGS, "dict of counters"},
    {NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "braze_interp_test", NULL, -1, methods};

PyMODINIT_FUNC PyInit_braze_interp_test(void) {
    if (bz_cpython_init() < 0) return NULL;
    return PyModule_Create(&module);
}
