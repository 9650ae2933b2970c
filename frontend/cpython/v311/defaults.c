/* What CPython does where the traced loop asks a hook; namespaces and imports are in names.c. */
#include "frontend/cpython/v311/internal.h"

PyObject *bz_default_load_deref(bz_frame *f, int i, PyObject *cell) { return Py_NewRef(PyCell_GET(cell)); }

int bz_default_store_deref(bz_frame *f, int i, PyObject *cell, PyObject *value) {
    PyObject *old = PyCell_GET(cell);
    PyCell_SET(cell, Py_XNewRef(value));
    Py_XDECREF(old);
    return 0;
}

PyObject *bz_default_load_attr(PyObject *owner, PyObject *name) { return PyObject_GetAttr(owner, name); }
int bz_default_load_method(PyObject *owner, PyObject *name, PyObject **method) {
    return _PyObject_GetMethod(owner, name, method);
}
PyObject *bz_default_load_special(PyObject *owner, PyObject *name) { return _PyObject_LookupSpecial(owner, name); }
int bz_default_store_attr(PyObject *owner, PyObject *name, PyObject *value) {
    return PyObject_SetAttr(owner, name, value);
}
PyObject *bz_default_get_item(PyObject *container, PyObject *key) { return PyObject_GetItem(container, key); }

int bz_default_set_item(PyObject *container, PyObject *key, PyObject *value) {
    return value ? PyObject_SetItem(container, key, value) : PyObject_DelItem(container, key);
}

static PyObject *power(PyObject *a, PyObject *b) { return PyNumber_Power(a, b, Py_None); }
static PyObject *inplace_power(PyObject *a, PyObject *b) { return PyNumber_InPlacePower(a, b, Py_None); }

static const binaryfunc binary_ops[] = {
    [NB_ADD] = PyNumber_Add,
    [NB_AND] = PyNumber_And,
    [NB_FLOOR_DIVIDE] = PyNumber_FloorDivide,
    [NB_LSHIFT] = PyNumber_Lshift,
    [NB_MATRIX_MULTIPLY] = PyNumber_MatrixMultiply,
    [NB_MULTIPLY] = PyNumber_Multiply,
    [NB_REMAINDER] = PyNumber_Remainder,
    [NB_OR] = PyNumber_Or,
    [NB_POWER] = power,
    [NB_RSHIFT] = PyNumber_Rshift,
    [NB_SUBTRACT] = PyNumber_Subtract,
    [NB_TRUE_DIVIDE] = PyNumber_TrueDivide,
    [NB_XOR] = PyNumber_Xor,
    [NB_INPLACE_ADD] = PyNumber_InPlaceAdd,
    [NB_INPLACE_AND] = PyNumber_InPlaceAnd,
    [NB_INPLACE_FLOOR_DIVIDE] = PyNumber_InPlaceFloorDivide,
    [NB_INPLACE_LSHIFT] = PyNumber_InPlaceLshift,
    [NB_INPLACE_MATRIX_MULTIPLY] = PyNumber_InPlaceMatrixMultiply,
    [NB_INPLACE_MULTIPLY] = PyNumber_InPlaceMultiply,
    [NB_INPLACE_REMAINDER] = PyNumber_InPlaceRemainder,
    [NB_INPLACE_OR] = PyNumber_InPlaceOr,
    [NB_INPLACE_POWER] = inplace_power,
    [NB_INPLACE_RSHIFT] = PyNumber_InPlaceRshift,
    [NB_INPLACE_SUBTRACT] = PyNumber_InPlaceSubtract,
    [NB_INPLACE_TRUE_DIVIDE] = PyNumber_InPlaceTrueDivide,
    [NB_INPLACE_XOR] = PyNumber_InPlaceXor,
};

PyObject *bz_default_binary_op(int nb_op, PyObject *a, PyObject *b) { return binary_ops[nb_op](a, b); }

PyObject *bz_default_unary_op(int opcode, PyObject *a) {
    return opcode == UNARY_NEGATIVE   ? PyNumber_Negative(a)
           : opcode == UNARY_POSITIVE ? PyNumber_Positive(a)
                                      : PyNumber_Invert(a);
}

PyObject *bz_default_compare(PyObject *a, PyObject *b, int op) { return PyObject_RichCompare(a, b, op); }
int bz_default_is(PyObject *a, PyObject *b) { return a == b; }
int bz_default_contains(PyObject *container, PyObject *value) { return PySequence_Contains(container, value); }
int bz_default_truth(PyObject *v) { return PyObject_IsTrue(v); }
PyObject *bz_default_get_iter(PyObject *v) { return PyObject_GetIter(v); }

PyObject *bz_default_iter_next(PyObject *it) {
    PyObject *v = Py_TYPE(it)->tp_iternext(it);
    if (!v && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration)) PyErr_Clear();
    return v;
}

PyObject *bz_default_call(bz_frame *f, PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    return PyObject_Vectorcall(callable, args, nargsf, kwnames);
}

PyObject *bz_default_call_ex(bz_frame *f, PyObject *callable, PyObject *args, PyObject *kwargs) {
    return PyObject_Call(callable, args, kwargs);
}

PyObject *bz_default_format_value(PyObject *v, PyObject *spec, int conversion) {
    PyObject *(*convert)(PyObject *) = conversion == 1   ? PyObject_Str
                                       : conversion == 2 ? PyObject_Repr
                                       : conversion == 3 ? PyObject_ASCII
                                                         : NULL;
    PyObject *s = convert ? convert(v) : Py_NewRef(v);
    if (!s || (PyUnicode_CheckExact(s) && !spec)) return s;
    PyObject *r = PyObject_Format(s, spec);
    Py_DECREF(s);
    return r;
}
