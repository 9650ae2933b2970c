/* Handlers: calls, functions, with. Part of loop.h. */
// clang-format off: the fragment of a function
    OP(PRECALL) {
#if !TRACED  /* the hook of CALL is to see the bound method */
        PyObject *callable = PEEK(oparg + 1);
        if (!PEEK(oparg + 2) && Py_IS_TYPE(callable, &PyMethod_Type)) {
            PEEK(oparg + 1) = Py_NewRef(PyMethod_GET_SELF(callable));
            PEEK(oparg + 2) = Py_NewRef(PyMethod_GET_FUNCTION(callable));
            Py_DECREF(callable);
        }
#endif
        CONTINUE;
    }
    OP(KW_NAMES) {
        kwnames = PyTuple_GET_ITEM(consts, oparg);
        CONTINUE;
    }
    OP(CALL) {
        int n = oparg + (PEEK(oparg + 2) != NULL);  /* with self */
        int positional = n - (kwnames ? (int)PyTuple_GET_SIZE(kwnames) : 0);
        PyObject **args = sp - n;
        PyObject *r = ACCESS(call)(frame, args[-1], args, positional | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
        NEED(r);
        kwnames = NULL;
        REPLACE(oparg + 2, r);
        SAFE_POINT();
        NEXT;
    }
    OP(CALL_FUNCTION_EX) {
        int n = oparg & 1 ? 2 : 1;
        PyObject *fn = PEEK(n + 1), *args = PEEK(n), *kwargs = n == 2 ? TOP() : NULL;
#if TRACED
        if (kwargs && !PyDict_CheckExact(kwargs)) READ_CONTAINER(kwargs);
        if (!PyTuple_CheckExact(args)) READ_CONTAINER(args);
#endif
        PyObject *dict = kwargs ? bz_kwargs_dict(fn, kwargs) : NULL, *tuple, *r;
        if (kwargs && !dict) goto error;
        tuple = bz_args_tuple(fn, args);
#if TRACED
        if (tuple && tuple != args && (bz_loaded_tuple(tuple, -1) < 0 || bz_made(tuple) < 0 || ABORTING()))
            Py_CLEAR(tuple);
        if (tuple && dict != kwargs && (bz_loaded_dict(dict) < 0 || bz_made(dict) < 0 || ABORTING())) Py_CLEAR(tuple);
#endif
        r = tuple ? ACCESS(call_ex)(frame, fn, tuple, dict) : NULL;
        Py_XDECREF(tuple);
        Py_XDECREF(dict);
        NEED(r);
        REPLACE(n + 2, r);  /* with the NULL below the function */
        SAFE_POINT();
        NEXT;
    }
    OP(MAKE_FUNCTION) {
        PyObject *fn = bz_make_function(frame, sp, oparg);
        NEED_MADE(fn);
        REPLACE(1 + __builtin_popcount(oparg & 15), fn);
        NEXT;
    }

    /* ---- with: [manager] -> [exit, result of enter] */
#define ENTER_WITH(name, enter_name, exit_name, what) OP_AT(op_##name, name) { \
    PyObject *manager = TOP(), *exit = NULL, *r = NULL, *no_args[2] = {NULL, NULL}; \
    PyObject *enter = ACCESS(load_special)(manager, enter_name); \
    if (enter) exit = ACCESS(load_special)(manager, exit_name); \
    if (exit) r = ACCESS(call)(frame, enter, no_args + 1, 0 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL); \
    else if (!_PyErr_Occurred(ts) && !ABORTING()) \
        PyErr_Format(PyExc_TypeError, \
                     enter ? "'%.200s' object does not support the " what " protocol (missed %U method)" \
                           : "'%.200s' object does not support the " what " protocol", \
                     Py_TYPE(manager)->tp_name, exit_name); \
    Py_XDECREF(enter); \
    if (!r || ABORTING()) { Py_XDECREF(r); Py_XDECREF(exit); goto error; } \
    REPLACE(1, exit); \
    PUSH(r); \
    NEXT; }
    ENTER_WITH(BEFORE_WITH, bz_id___enter__, bz_id___exit__, "context manager")
    ENTER_WITH(BEFORE_ASYNC_WITH, bz_id___aenter__, bz_id___aexit__, "asynchronous context manager")
#undef ENTER_WITH
    OP(WITH_EXCEPT_START) {  /* [exit, lasti, previous, exc] */
        PyObject *exc = TOP(), *tb = PyException_GetTraceback(exc);
        PyObject *args[4] = {NULL, PyExceptionInstance_Class(exc), exc, tb ? tb : Py_None};
        PyObject *r = ACCESS(call)(frame, PEEK(4), args + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        Py_XDECREF(tb);
        NEED(r);
        PUSH(r);
        NEXT;
    }
