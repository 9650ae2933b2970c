/* Substitutes for functions that libpython hides. Texts of errors are CPython's. */
#include "frontend/cpython/v311/internal.h"

/* ---- an opcode without a substitute: CPython's own loop runs it, as the body of a tiny function made for it. The hook
 * leaves that function's frame to CPython. Cost: one more Python frame, visible to code that the opcode calls back, and
 * a traceback entry, which is removed. */
static PyObject *prep_reraise_star;

/* A function (a, b) whose body is: LOAD_FAST a; LOAD_FAST b; <opcode>; RETURN_VALUE. */
static PyObject *make_delegate(int opcode) {
    PyObject *ns = PyDict_New(), *f = NULL;
    if (!ns || PyDict_SetItemString(ns, "__builtins__", PyEval_GetBuiltins()) < 0) {
        Py_XDECREF(ns);
        return NULL;
    }
    char src[200];
    snprintf(src, sizeof src,
             "def op(a, b): return a\n"
             "op.__code__ = op.__code__.replace(co_code=bytes([%d,0,%d,0,%d,1,%d,0,%d,0]), co_stacksize=4)\n",
             RESUME, LOAD_FAST, LOAD_FAST, opcode, RETURN_VALUE);
    PyObject *r = PyRun_String(src, Py_file_input, ns, ns);
    if (r) f = Py_XNewRef(PyDict_GetItemString(ns, "op"));
    Py_XDECREF(r);
    Py_DECREF(ns);
    return f;
}

int bz_init_substitutes(void) {
    if (!prep_reraise_star) prep_reraise_star = make_delegate(PREP_RERAISE_STAR);
    return prep_reraise_star ? 0 : -1;
}

bool bz_is_delegate(PyCodeObject *co) {
    return prep_reraise_star && (PyObject *)co == ((PyFunctionObject *)prep_reraise_star)->func_code;
}

PyObject *bz_prep_reraise_star(PyObject *orig, PyObject *excs) {
    PyObject *args[3] = {NULL, orig, excs};
    PyObject *res = PyObject_Vectorcall(prep_reraise_star, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (!res) {
        PyObject *t, *v, *tb;
        PyErr_Fetch(&t, &v, &tb);
        if (tb && PyTraceBack_Check(tb)) {
            PyObject *rest = Py_XNewRef((PyObject *)((PyTracebackObject *)tb)->tb_next);
            Py_SETREF(tb, rest);
        }
        PyErr_Restore(t, v, tb);
    }
    return res;
}

/* ---- awaitables */

/* What the suspended generator delegates to (borrowed), or NULL. */
static PyObject *yielding_from(PyGenObject *gen) {
    if (gen->gi_frame_state >= FRAME_CLEARED || gen->gi_frame_state == FRAME_CREATED) return NULL;
    bz_frame *f = (bz_frame *)gen->gi_iframe;
    _Py_CODEUNIT next = f->prev_instr[1];
    if (_PyOpcode_Deopt[_Py_OPCODE(next)] != RESUME || _Py_OPARG(next) < 2) return NULL;
    return _PyFrame_StackPeek(f);
}

static bool is_awaitable_generator(PyObject *o) {
    return PyCoro_CheckExact(o) ||
           (PyGen_CheckExact(o) && (((PyGenObject *)o)->gi_code->co_flags & CO_ITERABLE_COROUTINE));
}

static PyObject *awaitable_iter(PyObject *o) {
    if (is_awaitable_generator(o)) return Py_NewRef(o);
    PyTypeObject *t = Py_TYPE(o);
    if (!t->tp_as_async || !t->tp_as_async->am_await) {
        PyErr_Format(PyExc_TypeError, "object %.100s can't be used in 'await' expression", t->tp_name);
        return NULL;
    }
    PyObject *res = t->tp_as_async->am_await(o);
    if (!res) return NULL;
    if (is_awaitable_generator(res))
        PyErr_SetString(PyExc_TypeError, "__await__() returned a coroutine");
    else if (!PyIter_Check(res))
        PyErr_Format(PyExc_TypeError, "__await__() returned non-iterator of type '%.100s'", Py_TYPE(res)->tp_name);
    else
        return res;
    Py_DECREF(res);
    return NULL;
}

PyObject *bz_get_awaitable(PyObject *obj, int context) {
    PyObject *it = awaitable_iter(obj);
    PyTypeObject *t = Py_TYPE(obj);
    if (!it) {
        if (context && (!t->tp_as_async || !t->tp_as_async->am_await))
            PyErr_Format(PyExc_TypeError,
                         "'async with' received an object from %s that does not implement __await__: %.100s",
                         context == 1 ? "__aenter__" : "__aexit__", t->tp_name);
    } else if (PyCoro_CheckExact(it) && yielding_from((PyGenObject *)it)) {
        Py_CLEAR(it);
        PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
    }
    return it;
}

PyObject *bz_get_aiter(PyObject *obj) {
    PyTypeObject *t = Py_TYPE(obj);
    if (!t->tp_as_async || !t->tp_as_async->am_aiter) {
        PyErr_Format(PyExc_TypeError, "'async for' requires an object with __aiter__ method, got %.100s", t->tp_name);
        return NULL;
    }
    PyObject *it = t->tp_as_async->am_aiter(obj);
    if (it && (!Py_TYPE(it)->tp_as_async || !Py_TYPE(it)->tp_as_async->am_anext)) {
        PyErr_Format(PyExc_TypeError,
                     "'async for' received an object from __aiter__ that does not implement __anext__: %.100s",
                     Py_TYPE(it)->tp_name);
        Py_CLEAR(it);
    }
    return it;
}

PyObject *bz_get_anext(PyObject *aiter) {
    PyTypeObject *t = Py_TYPE(aiter);
    if (PyAsyncGen_CheckExact(aiter)) return t->tp_as_async->am_anext(aiter);
    if (!t->tp_as_async || !t->tp_as_async->am_anext) {
        PyErr_Format(PyExc_TypeError, "'async for' requires an iterator with __anext__ method, got %.100s", t->tp_name);
        return NULL;
    }
    PyObject *next = t->tp_as_async->am_anext(aiter);
    if (!next) return NULL;
    PyObject *awaitable = awaitable_iter(next);
    if (!awaitable)
        _PyErr_FormatFromCause(PyExc_TypeError, "'async for' received an invalid object from __anext__: %.100s",
                               Py_TYPE(next)->tp_name);
    Py_DECREF(next);
    return awaitable;
}

/* The struct is private to genobject.c, its type is exported; the type's deallocator puts the object on a free list,
 * which is sound because the size is the same. */
typedef struct {
    PyObject_HEAD PyObject *value;
} async_gen_wrapped_value;

PyObject *bz_async_gen_wrap(PyObject *v) {
    async_gen_wrapped_value *o = PyObject_GC_New(async_gen_wrapped_value, &_PyAsyncGenWrappedValue_Type);
    if (!o) return NULL;
    o->value = Py_NewRef(v);
    PyObject_GC_Track(o);
    return (PyObject *)o;
}

/* ---- the eval breaker: eval_frame_handle_pending is static in ceval.c, but all of it can be said with exported
 * functions */
int bz_handle_pending(PyThreadState *ts) {
    struct _ceval_state *ceval = &ts->interp->ceval;
    if (!_Py_atomic_load_relaxed(&ceval->eval_breaker)) return 0;
    if (Py_MakePendingCalls() != 0) return -1; /* signals, then pending calls */
    if (_Py_atomic_load_relaxed(&ceval->gil_drop_request)) PyEval_RestoreThread(PyEval_SaveThread());
    if (ts->async_exc) {
        PyObject *exc = ts->async_exc;
        ts->async_exc = NULL;
        ceval->pending.async_exc = 0;
        PyEval_RestoreThread(PyEval_SaveThread()); /* taking the GIL recomputes eval_breaker */
        PyErr_SetNone(exc);
        Py_DECREF(exc);
        return -1;
    }
    return 0;
}

/* For a tracer that was set while the frame was already ours. */
void bz_report_exception(PyThreadState *ts, PyFrameObject *f) {
    PyObject *t, *v, *tb;
    if (ts->tracing) return;
    PyErr_Fetch(&t, &v, &tb);
    if (!v) v = Py_NewRef(Py_None);
    PyErr_NormalizeException(&t, &v, &tb);
    PyObject *arg = PyTuple_Pack(3, t, v, tb ? tb : Py_None);
    if (!arg) {
        PyErr_Restore(t, v, tb);
        return;
    }
    int what = ts->tracing_what;
    ts->tracing_what = PyTrace_EXCEPTION;
    PyThreadState_EnterTracing(ts);
    f->f_lineno = PyFrame_GetLineNumber(f);
    int err = ts->c_tracefunc(ts->c_traceobj, f, PyTrace_EXCEPTION, arg);
    f->f_lineno = 0;
    PyThreadState_LeaveTracing(ts);
    ts->tracing_what = what;
    Py_DECREF(arg);
    if (!err) {
        PyErr_Restore(t, v, tb);
        return;
    }
    Py_XDECREF(t);
    Py_XDECREF(v);
    Py_XDECREF(tb);
}

/* ---- the exception table: entries (start, length, target, depth<<1|lasti), each a big-endian base-64 varint; the
 * first byte of an entry has bit 7 set. Entries are sorted by start, so a binary search over bytes is possible once
 * aligned to an entry. */
bool bz_find_handler(PyCodeObject *co, int offset, int *depth, int *target, int *push_lasti) {
    unsigned char *lo = (unsigned char *)PyBytes_AS_STRING(co->co_exceptiontable);
    unsigned char *hi = lo + PyBytes_GET_SIZE(co->co_exceptiontable);
    while (hi - lo > 40) { /* every entry with start <= offset lies before hi */
        unsigned char *mid = lo + (hi - lo) / 2;
        int start;
        while (!(*mid & 128)) mid--;
        if (mid == lo) break;
        parse_varint(mid, &start);
        if (start > offset)
            hi = mid;
        else
            lo = mid;
    }
    for (unsigned char *p = lo; p < hi;) {
        int start, length, depth_lasti;
        p = parse_varint(p, &start);
        if (start > offset) return false;
        p = parse_varint(p, &length);
        p = parse_varint(p, target);
        p = parse_varint(p, &depth_lasti);
        if (offset < start + length) {
            *depth = depth_lasti >> 1;
            *push_lasti = depth_lasti & 1;
            return true;
        }
    }
    return false;
}
