/* Handlers: building, unpacking and matching containers. Part of loop.h. What C code takes out of a container that is
 * older than the trace is announced by bz_read_container and replaced by bz_loaded_element. */
// clang-format off: the fragment of a function
    OP(BUILD_TUPLE) {
        PyObject *t = PyTuple_New(oparg);
        if (!t) goto error;
        for (int i = 0; i < oparg; i++) PyTuple_SET_ITEM(t, i, Py_NewRef(PEEK(oparg - i)));
        NEED_MADE(t);
        REPLACE(oparg, t);
        NEXT;
    }
    OP(BUILD_LIST) {
        PyObject *l = PyList_New(oparg);
        if (!l) goto error;
        for (int i = 0; i < oparg; i++) PyList_SET_ITEM(l, i, Py_NewRef(PEEK(oparg - i)));
        NEED_MADE(l);
        REPLACE(oparg, l);
        NEXT;
    }
    OP(BUILD_SET) {
        PyObject *s = PySet_New(NULL);
        if (!s) goto error;
        for (int i = oparg; i > 0; i--)
            if (PySet_Add(s, PEEK(i)) < 0) { Py_DECREF(s); goto error; }
        NEED_MADE(s);
        REPLACE(oparg, s);
        NEXT;
    }
    OP(BUILD_MAP) {
        PyObject *d = _PyDict_NewPresized(oparg);
        if (!d) goto error;
        for (int i = oparg; i > 0; i--)
            if (PyDict_SetItem(d, PEEK(2 * i), PEEK(2 * i - 1)) < 0) { Py_DECREF(d); goto error; }
        NEED_MADE(d);
        REPLACE(2 * oparg, d);
        NEXT;
    }
    OP(BUILD_CONST_KEY_MAP) {
        PyObject *keys = TOP(), *d = _PyDict_NewPresized(oparg);
        if (!d) goto error;
        for (int i = 0; i < oparg; i++)
            if (PyDict_SetItem(d, PyTuple_GET_ITEM(keys, i), PEEK(oparg + 1 - i)) < 0) { Py_DECREF(d); goto error; }
        NEED_MADE(d);
        REPLACE(oparg + 1, d);
        NEXT;
    }
    OP(BUILD_STRING) {
        PyObject *s = _PyUnicode_JoinArray(bz_empty_string, sp - oparg, oparg);
        NEED(s);
        REPLACE(oparg, s);
        NEXT;
    }
    OP(BUILD_SLICE) {
        PyObject *s = PySlice_New(PEEK(oparg), PEEK(oparg - 1), oparg == 3 ? TOP() : NULL);
        NEED_MADE(s);
        REPLACE(oparg, s);
        NEXT;
    }
    OP(LIST_TO_TUPLE) {
        PyObject *t = PyList_AsTuple(TOP());
        NEED_MADE(t);
        REPLACE(1, t);
        NEXT;
    }

    /* ---- displays with unpacking, comprehensions */
    OP(LIST_APPEND) {
        PyObject *l = PEEK(oparg + 1);
        MUTATE(l);
        OKAY(PyList_Append(l, TOP()));
        DROP(1);
        NEXT;
    }
    OP(SET_ADD) {
        PyObject *s = PEEK(oparg + 1);
        MUTATE(s);
        OKAY(PySet_Add(s, TOP()));
        DROP(1);
        NEXT;
    }
    OP(MAP_ADD) {
        PyObject *d = PEEK(oparg + 2);
        MUTATE(d);
        OKAY(PyDict_SetItem(d, PEEK(2), TOP()));
        DROP(2);
        NEXT;
    }
    OP(LIST_EXTEND) {
        PyObject *l = PEEK(oparg + 1);
        MUTATE(l);
        READ_CONTAINER(TOP());
        EXTEND_LIST(l, TOP());
        DROP(1);
        NEXT;
    }
    OP(SET_UPDATE) {
        PyObject *s = PEEK(oparg + 1);
        MUTATE(s);
        READ_CONTAINER(TOP());
        OKAY(_PySet_Update(s, TOP()));
        DROP(1);
        NEXT;
    }
    OP(DICT_UPDATE) {
        PyObject *d = PEEK(oparg + 1);
        MUTATE(d);
        READ_CONTAINER(TOP());
        UPDATE_DICT(d, TOP());
        DROP(1);
        NEXT;
    }
    OP(DICT_MERGE) {
        PyObject *d = PEEK(oparg + 1);
        MUTATE(d);
        READ_CONTAINER(TOP());
        MERGE_DICT(d, TOP(), PEEK(oparg + 3));
        DROP(1);
        NEXT;
    }

    /* ---- unpacking */
    OP(UNPACK_SEQUENCE) {
        READ_CONTAINER(TOP());
        PyObject *items = bz_unpack(TOP(), oparg, -1);
        NEED(items);
#if TRACED
        if (bz_loaded_tuple(items, -1) < 0 || ABORTING()) { Py_DECREF(items); goto error; }
#endif
        DROP(1);
        for (int i = oparg - 1; i >= 0; i--) PUSH(Py_NewRef(PyTuple_GET_ITEM(items, i)));
        Py_DECREF(items);
        NEXT;
    }
    OP(UNPACK_EX) {
        int before = oparg & 0xFF, after = oparg >> 8;
        READ_CONTAINER(TOP());
        PyObject *items = bz_unpack(TOP(), before, after);
        NEED(items);
#if TRACED
        PyObject *rest = PyTuple_GET_ITEM(items, before);
        if (bz_loaded_list(rest) < 0 || bz_made(rest) < 0 || bz_loaded_tuple(items, before) < 0 || ABORTING()) {
            Py_DECREF(items);
            goto error;
        }
#endif
        DROP(1);
        for (int i = before + after; i >= 0; i--) PUSH(Py_NewRef(PyTuple_GET_ITEM(items, i)));
        Py_DECREF(items);
        NEXT;
    }

    /* ---- match */
    OP(GET_LEN) {
        READ_CONTAINER(TOP());
        Py_ssize_t n = PyObject_Length(TOP());
        PyObject *r = n < 0 ? NULL : PyLong_FromSsize_t(n);
        NEED(r);
        PUSH(r);
        NEXT;
    }
    OP(MATCH_MAPPING) {
        READ_CONTAINER(TOP());
        PyObject *v = TOP();
        PUSH(BOOL(Py_TYPE(v)->tp_flags & Py_TPFLAGS_MAPPING));
        NEXT;
    }
    OP(MATCH_SEQUENCE) {
        READ_CONTAINER(TOP());
        PyObject *v = TOP();
        PUSH(BOOL(Py_TYPE(v)->tp_flags & Py_TPFLAGS_SEQUENCE));
        NEXT;
    }
    OP(MATCH_KEYS) {
        READ_CONTAINER(PEEK(2));
        PyObject *r = bz_match_keys(PEEK(2), TOP());
        NEED(r);
#if TRACED
        if (r != Py_None && (bz_loaded_tuple(r, -1) < 0 || bz_made(r) < 0 || ABORTING())) { Py_DECREF(r); goto error; }
#endif
        PUSH(r);
        NEXT;
    }
    OP(MATCH_CLASS) {
        READ_CONTAINER(PEEK(3));
        PyObject *r = bz_match_class(PEEK(3), PEEK(2), oparg, TOP(), ACCESS(load_attr));
        if (!r && !_PyErr_Occurred(ts)) r = Py_NewRef(Py_None);
        NEED(r);
        if (r != Py_None) NEED_MADE(r);
        REPLACE(3, r);
        NEXT;
    }
