/* Handlers: attributes, items, operators. Part of loop.h. */
// clang-format off: the fragment of a function
    OP(LOAD_ATTR) {
        PyObject *v = ACCESS(load_attr)(TOP(), NAME());
        NEED(v);
        REPLACE(1, v);
        NEXT;
    }
    OP(STORE_ATTR) {
        OKAY(ACCESS(store_attr)(TOP(), NAME(), PEEK(2)));
        DROP(2);
        NEXT;
    }
    OP(DELETE_ATTR) {
        OKAY(ACCESS(store_attr)(TOP(), NAME(), NULL));
        DROP(1);
        NEXT;
    }
    OP(LOAD_METHOD) {
        PyObject *owner = TOP(), *method = NULL;
        int unbound = ACCESS(load_method)(owner, NAME(), &method);
        NEED(method);
        if (unbound) {  /* [method, self] */
            TOP() = method;
            PUSH(owner);
        }
        else {  /* [NULL, callable] */
            TOP() = NULL;
            Py_DECREF(owner);
            PUSH(method);
        }
        NEXT;
    }
    OP(BINARY_SUBSCR) {
        PyObject *v = ACCESS(get_item)(PEEK(2), TOP());
        NEED(v);
        REPLACE(2, v);
        NEXT;
    }
    OP(STORE_SUBSCR) {
        OKAY(ACCESS(set_item)(PEEK(2), TOP(), PEEK(3)));
        DROP(3);
        NEXT;
    }
    OP(DELETE_SUBSCR) {
        OKAY(ACCESS(set_item)(PEEK(2), TOP(), NULL));
        DROP(2);
        NEXT;
    }

    /* ---- operators */
    OP(UNARY_POSITIVE) { PyObject *v = ACCESS(unary_op)(UNARY_POSITIVE, TOP()); NEED(v); REPLACE(1, v); NEXT; }
    OP(UNARY_NEGATIVE) { PyObject *v = ACCESS(unary_op)(UNARY_NEGATIVE, TOP()); NEED(v); REPLACE(1, v); NEXT; }
    OP(UNARY_INVERT) { PyObject *v = ACCESS(unary_op)(UNARY_INVERT, TOP()); NEED(v); REPLACE(1, v); NEXT; }
    OP(UNARY_NOT) {
        int t = TRUTH(TOP());
        OKAY(t);
        REPLACE(1, BOOL(!t));
        NEXT;
    }
    OP(BINARY_OP) {
        PyObject *a = PEEK(2), *b = TOP();
        if ((oparg == NB_ADD || oparg == NB_INPLACE_ADD) && PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b)
            && _PyOpcode_Deopt[_Py_OPCODE(*next)] == STORE_FAST && LOCAL(_Py_OPARG(*next)) == a) {
            /* s = s + t: append in place, else loops that build strings are quadratic. CPython does this only in a
             * specialised opcode. The STORE_FAST is part of it. */
            PyObject **target = &LOCAL(_Py_OPARG(*next));
            sp -= 2;
            Py_DECREF(a);
            PyUnicode_Append(target, b);
            Py_DECREF(b);
            if (!*target) goto error;
#if TRACED
            if (is_root) (void)bz_store_fast_root(_Py_OPARG(*next));
#endif
            next++;
            NEXT;
        }
        PyObject *r = ACCESS(binary_op)(oparg, a, b);
        NEED(r);
        REPLACE(2, r);
        NEXT;
    }
    OP(COMPARE_OP) {
        PyObject *r = ACCESS(compare)(PEEK(2), TOP(), oparg);
        NEED(r);
        REPLACE(2, r);
        NEXT;
    }
    OP(IS_OP) {
        int t = ACCESS(is)(PEEK(2), TOP());
        OKAY(t);
        REPLACE(2, BOOL(t ^ oparg));
        NEXT;
    }
    OP(CONTAINS_OP) {
        int t = ACCESS(contains)(TOP(), PEEK(2));
        OKAY(t);
        REPLACE(2, BOOL(t ^ oparg));
        NEXT;
    }
    OP(FORMAT_VALUE) {
        int n = oparg & 4 ? 2 : 1;
        PyObject *r = ACCESS(format_value)(PEEK(n), n == 2 ? TOP() : NULL, oparg & 3);
        NEED(r);
        REPLACE(n, r);
        NEXT;
    }
