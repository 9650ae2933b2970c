/* Handlers: generators and coroutines. Part of loop.h. */
// clang-format off: the fragment of a function
    OP(RETURN_GENERATOR) {
        /* _Py_MakeCoro and _PyFrame_Copy are hidden. The opcode ends the activation, so CPython's loop can run just it:
         * it makes the generator, moves the frame into it and returns it. */
        frame->prev_instr = instr - 1;
        LEAVE();
        result = _PyEval_EvalFrameDefault(ts, frame, 0);
#if TRACED
        if (result && (bz_made(result) < 0 || ABORTING())) Py_CLEAR(result);
        if (!result && !_PyErr_Occurred(ts))
            PyErr_SetString(PyExc_RuntimeError, "the trace that this generator belonged to is over");
        bz_frame_exit(frame, result);
        Py_XDECREF(handled_before);
#endif
        *value = result;
        return result ? BZ_RETURNED : BZ_RAISED;
    }
    OP(YIELD_VALUE) {
        result = POP();
        _PyFrame_GetGenerator(frame)->gi_frame_state = FRAME_SUSPENDED;
        goto leave_returning;
    }
    OP(SEND) {  /* [receiver, value] -> [receiver, yielded] or jump: [result] */
        PyObject *receiver = PEEK(2), *r = NULL;
        PySendResult status;
        SEND_TO(receiver, TOP(), r, status);
        if (status == PYGEN_ERROR) goto error;
        NEED(r);
        if (status == PYGEN_NEXT) {
            REPLACE(1, r);
            NEXT;
        }
        REPLACE(2, r);
        next += oparg;
        NEXT;
    }
    OP(GET_YIELD_FROM_ITER) {
        PyObject *v = TOP();
        if (PyCoro_CheckExact(v)) {
            if (!(frame->f_code->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE))) {
                PyErr_SetString(PyExc_TypeError, "cannot 'yield from' a coroutine object in a non-coroutine generator");
                goto error;
            }
        }
        else if (!PyGen_CheckExact(v)) {
            PyObject *it = ACCESS(get_iter)(v);
            NEED(it);
            REPLACE(1, it);
        }
        NEXT;
    }
    OP(GET_AWAITABLE) {
        PyObject *it = bz_get_awaitable(TOP(), oparg);
        NEED(it);
        REPLACE(1, it);
        NEXT;
    }
    OP(GET_AITER) {
        PyObject *it = bz_get_aiter(TOP());
        NEED(it);
        REPLACE(1, it);
        NEXT;
    }
    OP(GET_ANEXT) {
        PyObject *r = bz_get_anext(TOP());
        NEED(r);
        PUSH(r);
        NEXT;
    }
    OP(ASYNC_GEN_WRAP) {
        PyObject *w = bz_async_gen_wrap(TOP());
        NEED_MADE(w);
        REPLACE(1, w);
        NEXT;
    }
