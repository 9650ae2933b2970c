/* Handlers: raising and catching. Part of loop.h. */
// clang-format off: the fragment of a function
    OP(RAISE_VARARGS) {
        BEFORE_RAISE(oparg > 0 ? PEEK(oparg) : ts->exc_info->exc_value);
        bool again = bz_raise(ts, oparg > 0 ? PEEK(oparg) : NULL, oparg > 1 ? TOP() : NULL);
        if (again && !ABORTING()) goto unwind;
        goto error;
    }
    OP(PUSH_EXC_INFO) {
        PyObject *exc = TOP(), *old = ts->exc_info->exc_value;
        TOP() = old ? old : Py_NewRef(Py_None);
        PUSH(Py_NewRef(exc));
        ts->exc_info->exc_value = exc;
        HANDLER_MOVED();
        NEXT;
    }
    OP(POP_EXCEPT) {
        PyObject *old = ts->exc_info->exc_value;
        ts->exc_info->exc_value = POP();
        Py_XDECREF(old);
        HANDLER_MOVED();
        NEXT;
    }
    OP(RERAISE) {
        /* With an argument: the traceback keeps the place where the exception was raised first, while the handler is
         * still looked up for this instruction (unwind uses `instr`). */
        if (oparg) frame->prev_instr = first + PyLong_AsLong(PEEK(oparg + 1));
        PyObject *exc = POP();
        PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(exc)), exc, PyException_GetTraceback(exc));
        goto unwind;
    }
    OP(END_ASYNC_FOR) {  /* [iterator, exc] */
        PyObject *exc = TOP();
        if (PyErr_GivenExceptionMatches(exc, PyExc_StopAsyncIteration)) {
            DROP(2);
            NEXT;
        }
        sp--;
        PyErr_Restore(Py_NewRef(PyExceptionInstance_Class(exc)), exc, PyException_GetTraceback(exc));
        goto unwind;
    }
    OP(CHECK_EXC_MATCH) {
        OKAY(bz_check_except_type(TOP()));
        int t = PyErr_GivenExceptionMatches(PEEK(2), TOP());
        REPLACE(1, BOOL(t));
        NEXT;
    }
    OP(CHECK_EG_MATCH) {  /* [exc, type] -> [exc, None] or [rest, match] */
        PyObject *exc = PEEK(2), *match = NULL, *rest = NULL;
        if (bz_check_except_star_type(TOP()) < 0 || bz_exception_group_match(exc, TOP(), &match, &rest) < 0
            || ABORTING()) {
            Py_XDECREF(match);
            Py_XDECREF(rest);
            goto error;
        }
        DROP(1);
        if (match == Py_None) {
            PUSH(match);
            Py_DECREF(rest);
        }
        else {
            TOP() = rest;
            PUSH(match);
            PyErr_SetHandledException(match);
            Py_DECREF(exc);
        }
        NEXT;
    }
    OP(PREP_RERAISE_STAR) {
        PyObject *r = bz_prep_reraise_star(PEEK(2), TOP());
        NEED(r);
        REPLACE(2, r);
        NEXT;
    }
