/* Handlers: prologue, stack, variables. Part of loop.h. */
// clang-format off: the fragment of a function
    OP(NOP) NEXT;
    OP(RESUME) {
        if (oparg < 2) SAFE_POINT();
        NEXT;
    }
    OP(EXTENDED_ARG) {
        oparg = oparg << 8 | _Py_OPARG(*next);
        op = _Py_OPCODE(*next);
        goto dispatch;
    }
    OP(COPY_FREE_VARS) {
        PyCodeObject *co = frame->f_code;
        PyObject *closure = frame->f_func->func_closure, **to = &LOCAL(co->co_nlocals + co->co_nplaincellvars);
        for (int i = 0; i < oparg; i++) to[i] = Py_NewRef(PyTuple_GET_ITEM(closure, i));
        NEXT;
    }
    OP(MAKE_CELL) {
        PyObject *v = Py_XNewRef(LOCAL(oparg));
#if TRACED
        if (is_root && v) {
            Py_DECREF(v);  /* the frame holds it */
            v = bz_load_fast_root(frame, oparg, LOCAL(oparg));
            NEED(v);
        }
#endif
        PyObject *cell = PyCell_New(v);
        Py_XDECREF(v);
        NEED_MADE(cell);
        SET_LOCAL(oparg, cell);
        NEXT;
    }

    /* ---- stack */
    OP(POP_TOP) { DROP(1); NEXT; }
    OP(PUSH_NULL) { PUSH(NULL); NEXT; }
    OP(COPY) { PyObject *v = PEEK(oparg); PUSH(Py_NewRef(v)); NEXT; }
    OP(SWAP) {
        PyObject *v = TOP();
        TOP() = PEEK(oparg);
        PEEK(oparg) = v;
        NEXT;
    }
    OP(LOAD_CONST) { PUSH(Py_NewRef(PyTuple_GET_ITEM(consts, oparg))); NEXT; }

    /* ---- fast variables */
    OP(LOAD_FAST) {
        PyObject *v = LOCAL(oparg);
        if (!v) goto unbound_local;
#if TRACED
        if (is_root) {
            v = bz_load_fast_root(frame, oparg, v);
            NEED(v);
            PUSH(v);
            NEXT;
        }
#endif
        PUSH(Py_NewRef(v));
        NEXT;
    }
    OP(LOAD_CLOSURE) {
        PyObject *v = LOCAL(oparg);
        if (!v) goto unbound_local;
        PUSH(Py_NewRef(v));
        NEXT;
    }
    OP(STORE_FAST) {
#if TRACED
        if (is_root) OKAY(bz_store_fast_root(oparg));
#endif
        PyObject *v = POP();
        SET_LOCAL(oparg, v);
        NEXT;
    }
    OP(DELETE_FAST) {
        if (!LOCAL(oparg)) goto unbound_local;
#if TRACED
        if (is_root) OKAY(bz_delete_fast_root(oparg));
#endif
        SET_LOCAL(oparg, NULL);
        NEXT;
    }

    /* ---- cells */
    OP(LOAD_DEREF) {
        PyObject *cell = LOCAL(oparg);
        if (!PyCell_GET(cell)) goto unbound_cell;
        PyObject *v = ACCESS(load_deref)(frame, oparg, cell);
        NEED(v);
        PUSH(v);
        NEXT;
    }
    OP(STORE_DEREF) {
        OKAY(ACCESS(store_deref)(frame, oparg, LOCAL(oparg), TOP()));
        DROP(1);
        NEXT;
    }
    OP(DELETE_DEREF) {
        PyObject *cell = LOCAL(oparg);
        if (!PyCell_GET(cell)) goto unbound_cell;
        OKAY(ACCESS(store_deref)(frame, oparg, cell, NULL));
        NEXT;
    }
    OP(LOAD_CLASSDEREF) {
        PyObject *v = LOAD_CLASS_NAME(frame, PyTuple_GET_ITEM(frame->f_code->co_localsplusnames, oparg));
        if (!v) {
            if (_PyErr_Occurred(ts) || ABORTING()) goto error;
            PyObject *cell = LOCAL(oparg);
            if (!PyCell_GET(cell)) goto unbound_cell;
            v = ACCESS(load_deref)(frame, oparg, cell);
        }
        NEED(v);
        PUSH(v);
        NEXT;
    }

    /* ---- globals and names */
    OP(LOAD_GLOBAL) {
        PyObject *v = ACCESS(load_global)(frame, PyTuple_GET_ITEM(names, oparg >> 1));
        NEED(v);
        if (oparg & 1) PUSH(NULL);
        PUSH(v);
        NEXT;
    }
    OP(STORE_GLOBAL) {
        OKAY(ACCESS(store_global)(frame, NAME(), TOP()));
        DROP(1);
        NEXT;
    }
    OP(DELETE_GLOBAL) {
        int err = ACCESS(store_global)(frame, NAME(), NULL);
        if (err < 0 && !ABORTING() && PyErr_ExceptionMatches(PyExc_KeyError))
            bz_name_error(PyExc_NameError, BZ_NAME_ERROR, NAME());
        OKAY(err);
        NEXT;
    }
    OP(LOAD_NAME) {
        PyObject *v = LOAD_NAME_OF(frame, NAME());
        NEED(v);
        PUSH(v);
        NEXT;
    }
    OP(STORE_NAME) {
        OKAY(STORE_NAME_OF(frame, NAME(), TOP()));
        DROP(1);
        NEXT;
    }
    OP(DELETE_NAME) { OKAY(DELETE_NAME_OF(frame, NAME())); NEXT; }
    OP(SETUP_ANNOTATIONS) {
        if (frame->f_locals == frame->f_globals) UNSUPPORTED("SETUP_ANNOTATIONS in a module");
        PyObject *annotations;
        OKAY(bz_setup_annotations(frame->f_locals, &annotations));
        if (annotations) {
            NEED_MADE(annotations);
            Py_DECREF(annotations);
        }
        NEXT;
    }

    /* ---- imports, display */
    OP(IMPORT_NAME) {
        PyObject *m = ACCESS(import_name)(frame, NAME(), TOP(), PEEK(2));
        NEED(m);
        REPLACE(2, m);
        NEXT;
    }
    OP(IMPORT_FROM) {
        PyObject *v = ACCESS(import_from)(TOP(), NAME());
        NEED(v);
        PUSH(v);
        NEXT;
    }
    OP(IMPORT_STAR) {
        UNSUPPORTED("IMPORT_STAR");
        OKAY(bz_import_star(ts, frame, TOP()));
        DROP(1);
        NEXT;
    }
    OP(PRINT_EXPR) {
        UNSUPPORTED("PRINT_EXPR");
        OKAY(bz_print_expr(TOP()));
        DROP(1);
        NEXT;
    }
    OP(LOAD_BUILD_CLASS) {
        PyObject *v = bz_load_build_class(frame->f_builtins);
        NEED(v);
        PUSH(v);
        NEXT;
    }
    OP(LOAD_ASSERTION_ERROR) { PUSH(Py_NewRef(PyExc_AssertionError)); NEXT; }
