/* The loop over the instructions of a frame. Included by loop_plain.c (one instruction, as CPython does it) and
 * loop_traced.c (a whole frame, every access to objects through the hooks), which define
 *
 *   LOOP          the function's name
 *
 *   TRACED        0 or 1
 *
 *   ACCESS(x)     bz_default_x or bz_x
 *
 *   ABORTING()    the trace is over (constant false when plain)
 *
 * and the accesses that differ more (names, dicts, SEND). The handlers of the opcodes are in handlers_*.h.
 *
 * State that CPython can see and that must be right whenever other code may run:
 *   frame->prev_instr   the instruction that runs (line numbers, f_lasti, gen.gi_yieldfrom, locals(), ...)
 *   frame->stacktop     -1 while the frame runs, so that the collector does not look at its half-built stack
 *   ts->cframe, frame->previous, frame->is_entry, gi_frame_state, recursion_remaining
 * Private to an activation: sp, next, begin, kwnames.
 *
 * An instruction leaves its operands on the stack until nothing can fail any more: at a break the root frame must be as
 * before the instruction, and where an exception is raised the unwinding drops them. */

#define LOCAL(i) frame->localsplus[i]
#define PUSH(v) (*sp++ = (v))
#define POP() (*--sp)
#define PEEK(n) sp[-(n)]
#define TOP() sp[-1]
#define NAME() PyTuple_GET_ITEM(names, oparg)
#define BOOL(t) Py_NewRef((t) ? Py_True : Py_False)
/* Drops n operands, the lowest first. */
#define DROP(n)                                              \
    do {                                                     \
        sp -= (n);                                           \
        for (int i_ = 0; i_ < (n); i_++) Py_XDECREF(sp[i_]); \
    } while (0)
/* Drops n operands and pushes the result v. */
#define REPLACE(n, v)       \
    do {                    \
        PyObject* v_ = (v); \
        DROP(n);            \
        PUSH(v_);           \
    } while (0)
#define SET_LOCAL(i, v)            \
    do {                           \
        PyObject* old_ = LOCAL(i); \
        LOCAL(i) = (v);            \
        Py_XDECREF(old_);          \
    } while (0)
/* Checks a new reference, or a status, that an access has returned. */
#define NEED(v)               \
    do {                      \
        if (!(v)) goto error; \
        if (ABORTING()) {     \
            Py_DECREF(v);     \
            goto error;       \
        }                     \
    } while (0)
#define OKAY(status)                                \
    do {                                            \
        if ((status) < 0 || ABORTING()) goto error; \
    } while (0)
#define IS_PLAIN_BOOL(v) ((v) == Py_True || (v) == Py_False || (v) == Py_None)
#define TRUTH(v) (IS_PLAIN_BOOL(v) ? (v) == Py_True : ACCESS(truth)(v))

/* `instr` is the instruction, `next` what follows it and its inline cache. */
#define OP(name) OP_AT(op_##name, name)
/* For macros that define handlers: an argument that they pass on is replaced by its number first. */
#define OP_AT(label, opcode)          \
    label:                            \
    frame->prev_instr = instr = next; \
    next += 1 + _PyOpcode_Caches[opcode];
#define NEXT goto next_instruction
/* Goes on with an instruction of the same group. */
#define CONTINUE                  \
    do {                          \
        op = _Py_OPCODE(*next);   \
        oparg = _Py_OPARG(*next); \
        goto dispatch;            \
    } while (0)
#if TRACED
#define BEFORE_BACKWARD_JUMP() OKAY(bz_backward_jump(frame))
#define SAFE_POINT() ((void)0) /* a trace is not interrupted, and keeps the GIL while it interprets */
#define MADE(v) bz_made(v)
#define BEFORE_RAISE(exc) OKAY(bz_before_raise(exc))
#define HANDLER_MOVED()                  \
    do {                                 \
        if (is_root) bz_handler_moved(); \
    } while (0)
#define UNSUPPORTED(what) OKAY(bz_unsupported(what))
#else
#define BEFORE_RAISE(exc) ((void)0)
#define HANDLER_MOVED() ((void)0)
#define BEFORE_BACKWARD_JUMP() ((void)0)
#define SAFE_POINT()                               \
    do {                                           \
        if (bz_handle_pending(ts) < 0) goto error; \
    } while (0)
#define MADE(v) 0
#define UNSUPPORTED(what) ((void)0)
#endif
/* Reports an object that the instruction made; on failure the operands must still be there. */
#define NEED_MADE(v)                     \
    do {                                 \
        if (!(v)) goto error;            \
        if (MADE(v) < 0 || ABORTING()) { \
            Py_DECREF(v);                \
            goto error;                  \
        }                                \
    } while (0)

/* Links the activation into the thread. */
#define ENTER()                                       \
    do {                                              \
        cframe.use_tracing = ts->cframe->use_tracing; \
        cframe.previous = ts->cframe;                 \
        cframe.current_frame = frame;                 \
        frame->previous = ts->cframe->current_frame;  \
        frame->is_entry = true;                       \
        ts->cframe = &cframe;                         \
        frame->stacktop = -1;                         \
    } while (0)
#define LEAVE()                                          \
    do {                                                 \
        frame->stacktop = (int)(sp - frame->localsplus); \
        _Py_LeaveRecursiveCallTstate(ts);                \
        ts->cframe = cframe.previous;                    \
        ts->cframe->use_tracing = cframe.use_tracing;    \
    } while (0)

static enum bz_outcome LOOP(PyThreadState* ts, bz_frame* frame, int throwflag, bool is_root, PyObject** value) {
    static const void* const handlers[256] = {
#define X(name) [name] = &&op_##name,
#include "frontend/cpython/v311/opcodes.def"
#undef X
    };
    _PyCFrame cframe;
    _Py_CODEUNIT* const first = _PyCode_CODE(frame->f_code);
    PyObject *const consts = frame->f_code->co_consts, *const names = frame->f_code->co_names;
    _Py_CODEUNIT *instr = frame->prev_instr, *next = instr + 1;
    PyObject **const stack = frame->localsplus + frame->f_code->co_nlocalsplus,
                     **sp = frame->localsplus + frame->stacktop;
    PyObject *kwnames = NULL, *result = NULL;
    int op, oparg; /* signed: PEEK(oparg) negates it */
    const void* handler;
#if TRACED
    _Py_CODEUNIT* begin = next; /* of the group that runs: where the root frame stops at a break */
    PyObject* const handled_before = Py_XNewRef(ts->exc_info->exc_value);
    bool entered = false;
#endif

    ENTER();
    if (_Py_EnterRecursiveCallTstate(ts, "")) {
        ts->recursion_remaining--;
        goto leave_raising;
    }
#if TRACED
    if (ABORTING()) goto aborted;
    if (bz_frame_enter(frame, is_root) < 0) {
        if (ABORTING()) goto aborted;
        goto leave_raising;
    }
    entered = true;
#endif
    if (throwflag) goto error; /* gen.throw(): as if the yield had raised */
#if !TRACED
    op = _Py_OPCODE(*next);
    oparg = _Py_OPARG(*next);
#else
next_instruction:
    begin = next;
    op = _Py_OPCODE(*next);
    oparg = _Py_OPARG(*next);
#endif
    /* A specialised opcode goes to the handler of the opcode it came from: its partners (the second half of a
     * superinstruction, the CALL after a PRECALL_*) are still in the code. */
dispatch:
    handler = handlers[_PyOpcode_Deopt[op]];
    if (!handler) goto unknown_opcode;
    goto* handler;

#include "frontend/cpython/v311/handlers_calls.h"
#include "frontend/cpython/v311/handlers_containers.h"
#include "frontend/cpython/v311/handlers_control.h"
#include "frontend/cpython/v311/handlers_exceptions.h"
#include "frontend/cpython/v311/handlers_generators.h"
#include "frontend/cpython/v311/handlers_names.h"
#include "frontend/cpython/v311/handlers_objects.h"

unknown_opcode:
    frame->prev_instr = instr = next++;
    PyErr_Format(PyExc_SystemError, "unknown opcode %d", op);
    goto error;

unbound_cell:
#if TRACED
    if (bz_empty_deref(LOCAL(oparg)) < 0) goto error;
#endif
    bz_unbound_deref(frame->f_code, oparg);
    goto error;

unbound_local:
#if TRACED
    if (is_root) bz_unbound_fast_root(oparg);
#endif
    bz_name_error(PyExc_UnboundLocalError, BZ_UNBOUND_LOCAL_ERROR,
                  PyTuple_GET_ITEM(frame->f_code->co_localsplusnames, oparg));

error: /* an exception is set: add this frame to its traceback */
    kwnames = NULL;
#if TRACED
    if (ABORTING()) goto aborted;
#endif
    if (!_PyErr_Occurred(ts)) PyErr_SetString(PyExc_SystemError, "error return without exception set");
    if (!_PyFrame_IsIncomplete(frame)) {
        PyFrameObject* object = PyThreadState_GetFrame(ts);
        if (object) PyTraceBack_Here(object);
        if (object && ts->c_tracefunc) bz_report_exception(ts, object);
        Py_XDECREF(object);
    }

unwind: /* find a handler in this frame, or leave it */
    {
        int depth, target, push_lasti;
        PyObject *type, *exc, *tb;
        if (!bz_find_handler(frame->f_code, (int)(instr - first), &depth, &target, &push_lasti)) goto leave_raising;
        while (sp > stack + depth) {
            PyObject* v = POP();
            Py_XDECREF(v);
        }
        if (push_lasti) {
            PyObject* lasti = PyLong_FromLong((long)(frame->prev_instr - first));
            if (!lasti) goto unwind;
            PUSH(lasti);
        }
        PyErr_Fetch(&type, &exc, &tb);
        PyErr_NormalizeException(&type, &exc, &tb);
        PyException_SetTraceback(exc, tb ? tb : Py_None);
        Py_XDECREF(tb);
        Py_XDECREF(type);
        PUSH(exc);
        next = first + target;
        NEXT;
    }

leave_raising:
    while (sp > stack) {
        PyObject* v = POP();
        Py_XDECREF(v);
    }
#if TRACED
    if (entered) bz_frame_exit(frame, NULL);
    Py_XDECREF(handled_before);
#endif
    LEAVE();
    return BZ_RAISED;

leave_returning: /* the result is off the stack */
#if TRACED
    bz_frame_exit(frame, result);
    Py_XDECREF(handled_before);
#endif
    LEAVE();
    *value = result;
    return BZ_RETURNED;

#if TRACED
aborted: /* the root frame stands before the instruction, every other frame ends */
    if (is_root) {
        PyErr_Clear();
        frame->prev_instr = begin - 1;
        if (entered) bz_frame_exit(frame, NULL);
        Py_XDECREF(handled_before);
        LEAVE();
        return BZ_STOPPED;
    }
    if (!_PyErr_Occurred(ts)) PyErr_SetString(PyExc_RuntimeError, "the trace that this frame belonged to is over");
    if (ts->exc_info->exc_value != handled_before) Py_XSETREF(ts->exc_info->exc_value, Py_XNewRef(handled_before));
    goto leave_raising;
#else
next_instruction:
    frame->prev_instr = next - 1;
    LEAVE();
    return BZ_STOPPED;
#endif
}
