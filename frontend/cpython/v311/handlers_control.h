/* Handlers: jumps, iteration, return. Part of loop.h. */
// clang-format off: the fragment of a function
#define POP_JUMP_FORWARD(name, condition, wanted) OP_AT(op_##name, name) { \
    int t = condition; \
    OKAY(t); \
    DROP(1); \
    if (t == (wanted)) next += oparg; \
    NEXT; }
#define POP_JUMP_BACKWARD(name, condition, wanted) OP_AT(op_##name, name) { \
    int t = condition; \
    OKAY(t); \
    if (t != (wanted)) { DROP(1); NEXT; } \
    BEFORE_BACKWARD_JUMP(); \
    DROP(1); \
    next -= oparg; \
    SAFE_POINT(); \
    NEXT; }
#define JUMP_OR_POP(name, wanted) OP_AT(op_##name, name) { \
    int t = TRUTH(TOP()); \
    OKAY(t); \
    if (t == (wanted)) next += oparg; \
    else DROP(1); \
    NEXT; }

    POP_JUMP_FORWARD(POP_JUMP_FORWARD_IF_FALSE, TRUTH(TOP()), 0)
    POP_JUMP_FORWARD(POP_JUMP_FORWARD_IF_TRUE, TRUTH(TOP()), 1)
    POP_JUMP_FORWARD(POP_JUMP_FORWARD_IF_NONE, TOP() == Py_None, 1)
    POP_JUMP_FORWARD(POP_JUMP_FORWARD_IF_NOT_NONE, TOP() == Py_None, 0)
    POP_JUMP_BACKWARD(POP_JUMP_BACKWARD_IF_FALSE, TRUTH(TOP()), 0)
    POP_JUMP_BACKWARD(POP_JUMP_BACKWARD_IF_TRUE, TRUTH(TOP()), 1)
    POP_JUMP_BACKWARD(POP_JUMP_BACKWARD_IF_NONE, TOP() == Py_None, 1)
    POP_JUMP_BACKWARD(POP_JUMP_BACKWARD_IF_NOT_NONE, TOP() == Py_None, 0)
    JUMP_OR_POP(JUMP_IF_FALSE_OR_POP, 0)
    JUMP_OR_POP(JUMP_IF_TRUE_OR_POP, 1)
    OP(JUMP_FORWARD) { next += oparg; NEXT; }
    OP(JUMP_BACKWARD) {
        BEFORE_BACKWARD_JUMP();
        next -= oparg;
        SAFE_POINT();
        NEXT;
    }
    OP(JUMP_BACKWARD_NO_INTERRUPT) { next -= oparg; NEXT; }  /* `yield from`: a signal belongs to the innermost frame */
    OP(GET_ITER) {
        PyObject *it = ACCESS(get_iter)(TOP());
        NEED(it);
        REPLACE(1, it);
        NEXT;
    }
    OP(FOR_ITER) {
        PyObject *v = ACCESS(iter_next)(TOP());
        if (v) {
            NEED(v);
            PUSH(v);
            NEXT;
        }
        if (_PyErr_Occurred(ts) || ABORTING()) goto error;
        DROP(1);
        next += oparg;
        NEXT;
    }
    OP(RETURN_VALUE) {
        result = POP();
        goto leave_returning;
    }
#undef POP_JUMP_FORWARD
#undef POP_JUMP_BACKWARD
#undef JUMP_OR_POP
