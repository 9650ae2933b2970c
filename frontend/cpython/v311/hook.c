/* The PEP 523 hook: which frames are run by whom; and the scratch frame that a trace begins with. */
#define _GNU_SOURCE
#include <pthread.h>
#include "frontend/cpython/v311/internal.h"

#define THREAD_LOCAL static __thread __attribute__((tls_model("initial-exec")))

/* A call of bz_trace: its scratch frame is the next frame of `function` whose arguments are the dummies. */
struct trace_request {
    PyFunctionObject *function;
    PyObject *const *state;
    int n_state, next;
    bool taken;
    enum bz_outcome outcome;
    PyObject *value, **stopped_state;
    int n_stopped, stopped_next;
};

THREAD_LOCAL int mode;
THREAD_LOCAL struct trace_request *request;
THREAD_LOCAL bz_frame *root_frame;
THREAD_LOCAL bool handler_changed;
THREAD_LOCAL uintptr_t stack_low;  /* of this thread; 0: not looked up yet */
THREAD_LOCAL size_t stack_reserve; /* what is left at its low end is for unwinding and C code */

static Py_ssize_t holders;
static _PyFrameEvalFunction previous_eval; /* whoever was installed before us (NULL: CPython's own loop) */
static PyObject *dummy_argument;

int bz_mode_get(void) { return mode; }

int bz_mode_set(int new_mode) {
    int old = mode;
    mode = new_mode;
    return old;
}

bz_frame *bz_trace_root_frame(void) { return root_frame; }
bool bz_trace_handler_changed(void) { return handler_changed; }

/* ---- depth of the C stack: under any hook a Python call takes C stack, so sys.setrecursionlimit no longer is the only
 * limit */

static void __attribute__((noinline)) find_stack(void) {
    pthread_attr_t attr;
    void *low;
    size_t size;
    stack_low = (uintptr_t)1; /* unknown: never deep */
    if (pthread_getattr_np(pthread_self(), &attr)) return;
    if (!pthread_attr_getstack(&attr, &low, &size)) {
        stack_low = (uintptr_t)low;
        stack_reserve = size / 4 < (256 << 10) ? size / 4 : 256 << 10;
    }
    pthread_attr_destroy(&attr);
}

bool bz_stack_is_deep(void) {
    if (!stack_low) find_stack();
    /* A program that has moved to a stack of its own is outside, and not watched. */
    return (uintptr_t)__builtin_frame_address(0) - stack_low < stack_reserve;
}

/* ---- running a frame */

static PyObject *run_by_cpython(PyThreadState *ts, bz_frame *frame, int throwflag) {
    return (previous_eval ? previous_eval : _PyEval_EvalFrameDefault)(ts, frame, throwflag);
}

static void set_handled_exception(PyThreadState *ts, PyObject *exc) {
    if (ts->exc_info->exc_value != exc) Py_XSETREF(ts->exc_info->exc_value, Py_XNewRef(exc));
}

/* No handled exception is NULL at first and None once a handler has ended. */
static bool same_handled_exception(PyObject *a, PyObject *b) {
    return a == b || ((!a || a == Py_None) && (!b || b == Py_None));
}

static PyObject *run_root(PyThreadState *ts, bz_frame *frame, struct trace_request *r) {
    PyObject **locals = frame->localsplus, *handled = Py_XNewRef(ts->exc_info->exc_value);
    r->taken = true;
    request = NULL;
    for (int i = 0; i < frame->stacktop; i++) Py_CLEAR(locals[i]);
    for (int i = 0; i < r->n_state; i++) locals[i] = Py_XNewRef(r->state[i]);
    frame->stacktop = r->n_state;
    frame->prev_instr = _PyCode_CODE(frame->f_code) + r->next - 1;

    bz_frame *outer_root = root_frame;
    int outer_mode = bz_mode_set(BZ_TRACING);
    root_frame = frame;
    r->outcome = bz_run_traced(ts, frame, 0, true, &r->value);
    root_frame = outer_root;
    mode = outer_mode;

    handler_changed = r->outcome != BZ_RAISED && !same_handled_exception(ts->exc_info->exc_value, handled);
    if (r->outcome == BZ_STOPPED) {
        r->n_stopped = frame->stacktop;
        r->stopped_next = bz_frame_next(frame);
        r->stopped_state = PyMem_Malloc(sizeof(PyObject *) * (r->n_stopped ? r->n_stopped : 1));
        if (r->stopped_state) {
            memcpy(r->stopped_state, locals, sizeof(PyObject *) * r->n_stopped);
            memset(locals, 0, sizeof(PyObject *) * r->n_stopped);
            frame->stacktop = frame->f_code->co_nlocalsplus; /* what CPython clears */
        } else {
            while (frame->stacktop > frame->f_code->co_nlocalsplus) {
                PyObject *v = locals[--frame->stacktop];
                Py_XDECREF(v);
            }
            PyErr_NoMemory();
            r->outcome = BZ_RAISED;
        }
    }
    set_handled_exception(ts, handled);
    Py_XDECREF(handled);
    return r->outcome == BZ_RETURNED ? r->value : NULL;
}

static bool is_requested(const struct trace_request *r, bz_frame *frame) {
    PyCodeObject *co = frame->f_code;
    if (frame->f_func != r->function) return false;
    return co->co_argcount + co->co_kwonlyargcount == 0 || frame->localsplus[0] == dummy_argument;
}

/* Of an object that the trace made. When the trace ends there, an exception would only be printed: CPython ignores it.
 */
static bool is_finaliser(bz_frame *frame) {
    return frame->owner == FRAME_OWNED_BY_THREAD &&
           PyUnicode_CompareWithASCIIString(frame->f_code->co_name, "__del__") == 0;
}

static PyObject *run_nested(PyThreadState *ts, bz_frame *frame, int throwflag) {
    PyObject *value = NULL;
    if (bz_run_traced(ts, frame, throwflag, false, &value) == BZ_RETURNED) return value;
    if (!bz_aborting() || !is_finaliser(frame)) return NULL;
    PyErr_Clear();
    return Py_NewRef(Py_None);
}

static PyObject *eval_hook(PyThreadState *ts, bz_frame *frame, int throwflag) {
    if (bz_stack_is_deep()) {
        PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack is nearly full");
        return NULL;
    }
    if (request && is_requested(request, frame)) return run_root(ts, frame, request);
    if (mode == BZ_OFF || ts->cframe->use_tracing || bz_is_delegate(frame->f_code))
        return run_by_cpython(ts, frame, throwflag);
    if (mode != BZ_TRACING) return bz_on_frame(ts, frame, throwflag);
    if (!bz_runs_untraced(frame->f_code)) return run_nested(ts, frame, throwflag);
    mode = BZ_OFF;
    PyObject *result = run_by_cpython(ts, frame, throwflag);
    mode = BZ_TRACING;
    return result;
}

/* ---- installing the hook. Another user of PEP 523 may come after us and call us for the frames it leaves alone. It is
 * then on top when we want to leave (we are `buried`) and perhaps when we come back; to call it from here would be a
 * circle, so it is passed over while we are needed. */

static PyInterpreterState *interpreter(void) { return PyThreadState_Get()->interp; }

static _PyFrameEvalFunction restored_eval; /* what the last release puts back */
static bool buried;

void bz_hook_acquire(void) {
    if (holders++) return;
    _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interpreter());
    if (now == _PyEval_EvalFrameDefault) buried = false;
    if (now == eval_hook) return;
    restored_eval = now;
    if (!buried) previous_eval = now == _PyEval_EvalFrameDefault ? NULL : now;
    _PyInterpreterState_SetEvalFrameFunc(interpreter(), eval_hook);
}

void bz_hook_release(void) {
    if (--holders) return;
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter()) != eval_hook)
        buried = true;
    else
        _PyInterpreterState_SetEvalFrameFunc(interpreter(), restored_eval);
}

/* ---- tracing */

static bool can_be_root(PyCodeObject *co) {
    const int generators = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    return (co->co_flags & CO_OPTIMIZED) && !(co->co_flags & generators);
}

/* CPython makes the scratch frame: it is asked to call the function with the right number of arguments, and the hook
 * takes over. */
static void call_with_dummies(struct trace_request *r) {
    PyCodeObject *co = (PyCodeObject *)r->function->func_code;
    int positional = co->co_argcount, n = positional + co->co_kwonlyargcount;
    PyObject *names = NULL, *local_args[16], **args = n <= 16 ? local_args : PyMem_Malloc(sizeof *args * n);
    if (!dummy_argument) dummy_argument = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (!args) PyErr_NoMemory();
    if (args && dummy_argument &&
        (!co->co_kwonlyargcount || (names = PyTuple_GetSlice(co->co_localsplusnames, positional, n)))) {
        for (int i = 0; i < n; i++) args[i] = dummy_argument;
        PyObject *value = _PyFunction_Vectorcall((PyObject *)r->function, args, positional, names);
        if (!r->taken) { /* failed before the frame ran */
            Py_XDECREF(value);
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_SystemError, "the scratch frame of a trace did not come to the hook");
        }
    }
    Py_XDECREF(names);
    if (args != local_args) PyMem_Free(args);
}

enum bz_outcome bz_trace(PyObject *func, PyObject *const *state, int n_state, int next, PyObject **value,
                         PyObject ***frame_state, int *n_out, int *next_out) {
    *value = NULL;
    *frame_state = NULL;
    *n_out = *next_out = 0;
    if (!PyFunction_Check(func)) {
        PyErr_Format(PyExc_TypeError, "cannot trace: expected a function, found %.200s", Py_TYPE(func)->tp_name);
        return BZ_RAISED;
    }
    PyCodeObject *co = (PyCodeObject *)((PyFunctionObject *)func)->func_code;
    if (!can_be_root(co)) {
        PyErr_Format(PyExc_TypeError, "cannot trace %U: the body of a generator, coroutine, class or module",
                     co->co_qualname);
        return BZ_RAISED;
    }
    if (n_state < co->co_nlocalsplus || n_state > co->co_nlocalsplus + co->co_stacksize || next < 0 ||
        next >= Py_SIZE(co)) {
        PyErr_Format(PyExc_SystemError,
                     "cannot trace %U: expected %d locals and at most %d stack entries, found %d in all, to continue "
                     "at %d of %zd",
                     co->co_qualname, co->co_nlocalsplus, co->co_stacksize, n_state, next, Py_SIZE(co));
        return BZ_RAISED;
    }
    if (root_frame || request || bz_tracer_active(PyThreadState_Get())) {
        PyErr_SetString(PyExc_RuntimeError,
                        "cannot trace: this thread traces already, or sys.settrace or sys.setprofile is in force");
        return BZ_RAISED;
    }
    struct trace_request r = {
        .function = (PyFunctionObject *)func, .state = state, .n_state = n_state, .next = next, .outcome = BZ_RAISED};
    _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interpreter());
    if (now != eval_hook) _PyInterpreterState_SetEvalFrameFunc(interpreter(), eval_hook);
    int outer_mode = bz_mode_set(BZ_OFF); /* of what runs before and after the scratch frame: finalisers */
    request = &r;
    call_with_dummies(&r);
    request = NULL;
    mode = outer_mode;
    if (now != eval_hook && _PyInterpreterState_GetEvalFrameFunc(interpreter()) == eval_hook)
        _PyInterpreterState_SetEvalFrameFunc(interpreter(), now);
    if (r.outcome == BZ_RETURNED) *value = r.value;
    if (r.outcome == BZ_STOPPED) {
        *frame_state = r.stopped_state;
        *n_out = r.n_stopped;
        *next_out = r.stopped_next;
    }
    return r.outcome;
}

void bz_state_free(PyObject **state, int n) {
    if (!state) return;
    for (int i = 0; i < n; i++) Py_XDECREF(state[i]);
    PyMem_Free(state);
}
