/* Unpacking, pattern matching, argument lists, functions, tables of sets. Texts of errors are CPython's. */
#include "frontend/cpython/v311/internal.h"

static PyObject *unpack_error(int expected, int got, bool starred) {
    if (starred)
        PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %d)", expected, got);
    else
        PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %d, got %d)", expected, got);
    return NULL;
}

static PyObject *new_tuple(PyObject **items, Py_ssize_t n) {
    PyObject *t = PyTuple_New(n);
    for (Py_ssize_t i = 0; t && i < n; i++) PyTuple_SET_ITEM(t, i, Py_NewRef(items[i]));
    return t;
}

/* The items of `seq` for `before` plain targets, then, if after >= 0, one starred target and `after` plain ones. */
PyObject *bz_unpack(PyObject *seq, int before, int after) {
    bool starred = after >= 0;
    if (!starred && PyTuple_CheckExact(seq) && PyTuple_GET_SIZE(seq) == before)
        return new_tuple(((PyTupleObject *)seq)->ob_item, before);
    if (!starred && PyList_CheckExact(seq) && PyList_GET_SIZE(seq) == before)
        return new_tuple(((PyListObject *)seq)->ob_item, before);
    PyObject *it = PyObject_GetIter(seq), *list = NULL;
    if (!it) {
        if (PyErr_ExceptionMatches(PyExc_TypeError) && !Py_TYPE(seq)->tp_iter && !PySequence_Check(seq))
            PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", Py_TYPE(seq)->tp_name);
        return NULL;
    }
    PyObject *items = PyTuple_New(before + (starred ? 1 + after : 0));
    if (!items) goto fail;
    for (int i = 0; i < before; i++) {
        PyObject *item = PyIter_Next(it);
        if (!item) {
            if (!PyErr_Occurred()) unpack_error(starred ? before + after : before, i, starred);
            goto fail;
        }
        PyTuple_SET_ITEM(items, i, item);
    }
    if (!starred) {
        PyObject *extra = PyIter_Next(it);
        if (extra) {
            Py_DECREF(extra);
            PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", before);
        }
        if (PyErr_Occurred()) goto fail;
        Py_DECREF(it);
        return items;
    }
    list = PySequence_List(it);
    if (!list) goto fail;
    Py_ssize_t size = PyList_GET_SIZE(list);
    if (size < after) {
        unpack_error(before + after, before + (int)size, true);
        goto fail;
    }
    for (int i = 0; i < after; i++)
        PyTuple_SET_ITEM(items, before + 1 + i, PyList_GET_ITEM(list, size - after + i)); /* steals the tail */
    Py_SET_SIZE(list, size - after);
    PyTuple_SET_ITEM(items, before, list);
    Py_DECREF(it);
    return items;
fail:
    Py_XDECREF(list);
    Py_XDECREF(items);
    Py_DECREF(it);
    return NULL;
}

/* case {k: ...}: tuple of the values, None where a key is missing. */
PyObject *bz_match_keys(PyObject *map, PyObject *keys) {
    Py_ssize_t n = PyTuple_GET_SIZE(keys);
    if (!n) return PyTuple_New(0);
    PyObject *get = NULL, *seen = NULL, *dummy = NULL, *values = NULL;
    int unbound = _PyObject_GetMethod(map, bz_id_get, &get);
    if (!get || !(seen = PySet_New(NULL)) || !(dummy = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type)) ||
        !(values = PyTuple_New(n)))
        goto fail;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *key = PyTuple_GET_ITEM(keys, i), *args[] = {map, key, dummy};
        if (PySet_Contains(seen, key) || PySet_Add(seen, key)) {
            if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "mapping pattern checks duplicate key (%R)", key);
            goto fail;
        }
        PyObject *v = unbound ? PyObject_Vectorcall(get, args, 3, NULL) : PyObject_Vectorcall(get, args + 1, 2, NULL);
        if (!v) goto fail;
        if (v == dummy) {
            Py_DECREF(v);
            Py_SETREF(values, Py_NewRef(Py_None));
            break;
        }
        PyTuple_SET_ITEM(values, i, v);
    }
    goto done;
fail:
    Py_CLEAR(values);
done:
    Py_XDECREF(get);
    Py_XDECREF(seen);
    Py_XDECREF(dummy);
    return values;
}

/* Appends the attribute `name` of the subject. 1: done, 0: it has none (or an exception is set). */
static int match_attr(PyObject *subject, PyObject *type, PyObject *name, PyObject *seen, PyObject *attrs,
                      bz_getattr get) {
    if (PySet_Contains(seen, name) || PySet_Add(seen, name)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "%s() got multiple sub-patterns for attribute %R",
                         ((PyTypeObject *)type)->tp_name, name);
        return 0;
    }
    PyObject *attr = get(subject, name);
    if (!attr) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
        return 0;
    }
    int err = PyList_Append(attrs, attr);
    Py_DECREF(attr);
    return err == 0;
}

/* The attribute names that positional sub-patterns stand for (new tuple); *self: the subject itself is the only one. */
static PyObject *positional_names(PyObject *type, Py_ssize_t nargs, bool *self, bz_getattr get) {
    const char *tname = ((PyTypeObject *)type)->tp_name;
    PyObject *names = get(type, bz_id___match_args__);
    *self = false;
    if (names && !PyTuple_CheckExact(names)) {
        PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)", tname, Py_TYPE(names)->tp_name);
        Py_CLEAR(names);
    } else if (!names && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        names = PyTuple_New(0);
        *self = PyType_HasFeature((PyTypeObject *)type, _Py_TPFLAGS_MATCH_SELF);
    }
    if (!names) return NULL;
    Py_ssize_t allowed = *self ? 1 : PyTuple_GET_SIZE(names);
    if (allowed < nargs) {
        PyErr_Format(PyExc_TypeError, "%s() accepts %zd positional sub-pattern%s (%zd given)", tname, allowed,
                     allowed == 1 ? "" : "s", nargs);
        Py_CLEAR(names);
    }
    return names;
}

/* case C(a, b, k=c): tuple of the attributes; NULL without an exception where it does not match. */
PyObject *bz_match_class(PyObject *subject, PyObject *type, Py_ssize_t nargs, PyObject *kwnames, bz_getattr get) {
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "called match pattern must be a type");
        return NULL;
    }
    if (PyObject_IsInstance(subject, type) <= 0) return NULL;
    PyObject *seen = PySet_New(NULL), *attrs = PyList_New(0), *names = NULL, *res = NULL;
    bool self = false;
    if (!seen || !attrs) goto done;
    if (nargs && !(names = positional_names(type, nargs, &self, get))) goto done;
    if (self && PyList_Append(attrs, subject) < 0) goto done;
    for (Py_ssize_t i = 0; !self && i < nargs; i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        if (!PyUnicode_CheckExact(name)) {
            PyErr_Format(PyExc_TypeError, "__match_args__ elements must be strings (got %s)", Py_TYPE(name)->tp_name);
            goto done;
        }
        if (!match_attr(subject, type, name, seen, attrs, get)) goto done;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); i++)
        if (!match_attr(subject, type, PyTuple_GET_ITEM(kwnames, i), seen, attrs, get)) goto done;
    res = PyList_AsTuple(attrs);
done:
    Py_XDECREF(names);
    Py_XDECREF(seen);
    Py_XDECREF(attrs);
    return res;
}

/* The positional arguments of f(*args) as a new reference to a tuple. */
PyObject *bz_args_tuple(PyObject *func, PyObject *args) {
    if (PyTuple_CheckExact(args)) return Py_NewRef(args);
    if (Py_TYPE(args)->tp_iter || PySequence_Check(args)) return PySequence_Tuple(args);
    PyErr_Clear();
    PyObject *s = _PyObject_FunctionStr(func);
    if (s)
        PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s", s, Py_TYPE(args)->tp_name);
    Py_XDECREF(s);
    return NULL;
}

/* The keyword arguments of f(**kwargs) as a new reference to a dict. */
PyObject *bz_kwargs_dict(PyObject *func, PyObject *kwargs) {
    if (PyDict_CheckExact(kwargs)) return Py_NewRef(kwargs);
    PyObject *d = PyDict_New();
    if (d && _PyDict_MergeEx(d, kwargs, 2) < 0) {
        bz_kwargs_error(func, kwargs);
        Py_CLEAR(d);
    }
    return d;
}

int bz_list_extend(PyObject *list, PyObject *iterable) {
    PyObject *none = _PyList_Extend((PyListObject *)list, iterable);
    if (!none && PyErr_ExceptionMatches(PyExc_TypeError) && !Py_TYPE(iterable)->tp_iter &&
        !PySequence_Check(iterable)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s", Py_TYPE(iterable)->tp_name);
    }
    Py_XDECREF(none);
    return none ? 0 : -1;
}

int bz_dict_update(PyObject *dict, PyObject *mapping) {
    int err = PyDict_Update(dict, mapping);
    if (err < 0 && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(mapping)->tp_name);
    return err;
}

int bz_dict_merge(PyObject *dict, PyObject *mapping, PyObject *func) {
    int err = _PyDict_MergeEx(dict, mapping, 2);
    if (err < 0) bz_kwargs_error(func, mapping);
    return err;
}

PyObject *bz_make_function(bz_frame *f, PyObject **top, int flags) {
    PyFunctionObject *fn = (PyFunctionObject *)PyFunction_New(*--top, f->f_globals);
    if (!fn) return NULL;
    if (flags & 8) Py_XSETREF(fn->func_closure, Py_NewRef(*--top));
    if (flags & 4) Py_XSETREF(fn->func_annotations, Py_NewRef(*--top));
    if (flags & 2) Py_XSETREF(fn->func_kwdefaults, Py_NewRef(*--top));
    if (flags & 1) Py_XSETREF(fn->func_defaults, Py_NewRef(*--top));
    return (PyObject *)fn;
}

/* ---- elements that C code took out of a container, replaced by what stands for them in the trace */

int bz_loaded_tuple(PyObject *tuple, Py_ssize_t except) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        if (i == except) continue;
        PyObject *old = PyTuple_GET_ITEM(tuple, i), *v = bz_loaded_element(old);
        if (!v) return -1;
        PyTuple_SET_ITEM(tuple, i, v);
        Py_DECREF(old);
    }
    return 0;
}

int bz_loaded_list(PyObject *list) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *v = bz_loaded_element(PyList_GET_ITEM(list, i));
        if (!v) return -1;
        PyList_SetItem(list, i, v);
    }
    return 0;
}

int bz_loaded_dict(PyObject *dict) {
    PyObject *key, *old;
    Py_ssize_t pos = 0;
    while (PyDict_Next(dict, &pos, &key, &old)) {
        PyObject *v = bz_loaded_element(old);
        if (!v) return -1;
        int err = v == old ? 0 : PyDict_SetItem(dict, key, v);
        Py_DECREF(v);
        if (err < 0) return -1;
    }
    return 0;
}

/* At a break the target must be as before the instruction, hence these fill a temporary first. */

int bz_traced_list_extend(PyObject *list, PyObject *iterable) {
    PyObject *part = PyList_New(0);
    Py_ssize_t size = PyList_GET_SIZE(list);
    int err = !part || bz_list_extend(part, iterable) < 0 || bz_loaded_list(part) < 0 || bz_aborting()
                  ? -1
                  : PyList_SetSlice(list, size, size, part);
    Py_XDECREF(part);
    return err;
}

int bz_traced_dict_update(PyObject *dict, PyObject *mapping) {
    PyObject *part = PyDict_New();
    int err = !part || bz_dict_update(part, mapping) < 0 || bz_loaded_dict(part) < 0 || bz_aborting()
                  ? -1
                  : PyDict_Update(dict, part);
    Py_XDECREF(part);
    return err;
}

int bz_traced_dict_merge(PyObject *dict, PyObject *mapping, PyObject *func) {
    PyObject *all = PyDict_Copy(dict); /* keys that are there already are an error */
    int err = !all || bz_dict_merge(all, mapping, func) < 0 || bz_loaded_dict(all) < 0 || bz_aborting()
                  ? -1
                  : PyDict_Update(dict, all);
    Py_XDECREF(all);
    return err;
}

PyObject *bz_set_duplicate(PyObject *set) {
    PySetObject *from = (PySetObject *)set, *copy = (PySetObject *)PySet_New(NULL);
    if (!copy) return NULL;
    size_t n = (size_t)from->mask + 1;
    if (from->table != from->smalltable) {
        setentry *table = PyMem_Malloc(n * sizeof(setentry));
        if (!table) {
            Py_DECREF(copy);
            return PyErr_NoMemory();
        }
        copy->table = table;
        copy->mask = from->mask;
    }
    memcpy(copy->table, from->table, n * sizeof(setentry));
    for (size_t i = 0; i < n; i++) /* the key of a removed entry is a mark that isn't counted; its hash is -1 */
        if (copy->table[i].hash != -1) Py_XINCREF(copy->table[i].key);
    copy->fill = from->fill;
    copy->used = from->used;
    copy->finger = from->finger;
    return (PyObject *)copy;
}

void bz_set_exchange(PyObject *a, PyObject *b) {
    PySetObject *x = (PySetObject *)a, *y = (PySetObject *)b, t = *x;
    setentry *of_x = x->table == x->smalltable ? y->smalltable : x->table;
    setentry *of_y = y->table == y->smalltable ? x->smalltable : y->table;
    x->fill = y->fill, x->used = y->used, x->mask = y->mask, x->finger = y->finger, x->table = of_y;
    memcpy(x->smalltable, y->smalltable, sizeof t.smalltable);
    y->fill = t.fill, y->used = t.used, y->mask = t.mask, y->finger = t.finger, y->table = of_x;
    memcpy(y->smalltable, t.smalltable, sizeof t.smalltable);
}
