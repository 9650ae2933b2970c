// C functions with a meaning of their own in a trace.
#include <cstring>

#include "frontend/cpython/trace_hooks.h"
#include "frontend/interp/addresses.h"
#include "frontend/interp/calls.h"
#include "frontend/interp/gradients.h"
#include "frontend/interp/hooks.h"
#include "frontend/interp/tensors.h"

namespace braze::frontend {

namespace {

PyObject* boolean(bool b) { return Py_NewRef(b ? Py_True : Py_False); }

// `a` begins with what a method is bound to.
PyObject* run(Tracer& t, PyObject* callable, Args a) {
    Py_ssize_t bound = bound_self(callable) || Py_TYPE(callable) == &_PyMethodWrapper_Type;
    PyObject* r = PyObject_Vectorcall(callable, a.v + bound, static_cast<size_t>(a.n - bound), a.kwnames);
    return t.result(checked_text(t, r));
}

PyObject* do_len(Tracer& t, PyObject* callable, Args a) {
    if (a.total() == 1) {
        PyObject* v = a.v[0];
        if (t.capture->is_fake(v)) {
            t.touch(v);
            Owned size = Owned::steal(PyObject_CallMethod(v, "size", nullptr));  // its first size may be symbolic
            if (size && PyTuple_GET_SIZE(size.get()) > 0) return t.result(Py_NewRef(PyTuple_GET_ITEM(size.get(), 0)));
            PyErr_Clear();
        }
        if (t.read_length(v) < 0) return nullptr;
        if (is_python_class(Py_TYPE(v))) {
            static PyObject* n = PyUnicode_InternFromString("__len__");
            t.type_attribute(Py_TYPE(v), n);
        }
    }
    return run(t, callable, a);
}

PyObject* do_getattr(Tracer& t, PyObject* callable, Args a) {
    if (a.kwnames || a.n < 2 || a.n > 3 || !PyUnicode_Check(a.v[1])) return run(t, callable, a);
    PyObject* v = get_attribute(t, a.v[0], a.v[1]);
    if (v || a.n == 2 || t.aborting || !PyErr_ExceptionMatches(PyExc_AttributeError)) return v;
    PyErr_Clear();
    return Py_NewRef(a.v[2]);
}

PyObject* do_hasattr(Tracer& t, PyObject* callable, Args a) {
    if (a.kwnames || a.n != 2 || !PyUnicode_Check(a.v[1])) return run(t, callable, a);
    Owned v = Owned::steal(get_attribute(t, a.v[0], a.v[1]));
    if (v) return boolean(true);
    if (t.aborting || !PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
    PyErr_Clear();
    return boolean(false);
}

PyObject* do_setattr(Tracer& t, PyObject* callable, Args a, bool deletes) {
    if (a.kwnames || a.n != (deletes ? 2 : 3) || !PyUnicode_Check(a.v[1])) return run(t, callable, a);
    if (store_attribute(t, a.v[0], a.v[1], deletes ? nullptr : a.v[2]) < 0) return nullptr;
    Py_RETURN_NONE;
}

PyObject* do_iter(Tracer& t, PyObject* callable, Args a) {
    if (a.kwnames || a.n != 1) return run(t, callable, a);
    return bz_get_iter(a.v[0]);
}

PyObject* do_next(Tracer& t, PyObject* callable, Args a) {
    if (a.kwnames || a.n < 1 || a.n > 2) return run(t, callable, a);
    if (!PyIter_Check(a.v[0])) return run(t, callable, a);
    PyObject* v = bz_iter_next(a.v[0]);
    if (v || t.aborting) return v;
    if (PyErr_Occurred()) {
        if (a.n != 2 || !PyErr_ExceptionMatches(PyExc_StopIteration)) return nullptr;
        PyErr_Clear();
    }
    if (a.n == 2) return Py_NewRef(a.v[1]);
    PyErr_SetNone(PyExc_StopIteration);
    return nullptr;
}

PyObject* do_vars(Tracer& t, PyObject* callable, Args a) {
    if (a.total() != 1) return t.stop("frame-inspection", "vars()");
    static PyObject* n = PyUnicode_InternFromString("__dict__");
    PyObject* d = get_attribute(t, a.v[0], n);
    (void)callable;
    return d;
}

// torch.FloatTensor and the like are no classes of tensors: they ask for a device and a dtype.
bool is_legacy_tensor_type(PyObject* o) { return std::strcmp(Py_TYPE(o)->tp_name, "torch.tensortype") == 0; }

PyObject* do_isinstance(Tracer& t, PyObject* callable, Args a) {
    if (a.n == 2 && is_legacy_tensor_type(a.v[1]) && t.capture->is_fake(a.v[0])) {
        t.touch(a.v[0]);
        Owned type = Owned::steal(PyObject_CallMethod(a.v[0], "type", nullptr)),
              module = Owned::steal(PyObject_GetAttrString(a.v[1], "__module__")),
              name = Owned::steal(PyObject_GetAttrString(a.v[1], "__name__"));
        if (!type || !module || !name) return nullptr;
        Owned full = Owned::steal(PyUnicode_FromFormat("%U.%U", module.get(), name.get()));
        return full ? boolean(PyUnicode_Compare(full.get(), type.get()) == 0) : nullptr;
    }
    if (a.n == 2 && PyTuple_Check(a.v[1]) && t.read_all(a.v[1]) < 0) return nullptr;
    return run(t, callable, a);
}

PyObject* do_id(Tracer& t, PyObject* callable, Args a) {
    return a.total() == 1 ? address_of(t, a.v[0]) : run(t, callable, a);
}

PyObject* do_hash(Tracer& t, PyObject* callable, Args a) {
    return a.total() == 1 ? hash_of(t, a.v[0]) : run(t, callable, a);
}

// object.__reduce_ex__ and the like read all attributes.
PyObject* do_state(Tracer& t, PyObject* callable, Args a) {
    if (a.n < 1 || read_arguments(t, a) < 0) return a.n < 1 ? run(t, callable, a) : nullptr;
    PyObject* o = a.v[0];
    SourceId s = t.source_of(o);
    if (s != kNoSource && !PyType_Check(o) && t.guards.sources[s].kind != SourceKind::Const) {
        SourceTable& sources = t.guards.sources;
        PyObject** dp = bz_instance_dict_pointer(o);
        if (dp && *dp) {
            t.know(*dp, sources.add(SourceKind::InstanceDict, s, nullptr));
            if (t.read_all(*dp) < 0) return nullptr;
        }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(Py_TYPE(o)->tp_mro); ++i) {
            auto* k = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(Py_TYPE(o)->tp_mro, i));
            Py_ssize_t pos = 0;
            PyObject *name, *d;
            while (is_python_class(k) && PyDict_Next(k->tp_dict, &pos, &name, &d)) {
                if (Py_TYPE(d) != &PyMemberDescr_Type) continue;
                if (t.journal.changed_slot(o, name)) continue;
                Owned v = Owned::steal(Py_TYPE(d)->tp_descr_get(d, o, reinterpret_cast<PyObject*>(Py_TYPE(o))));
                PyErr_Clear();
                SourceId slot = sources.slot(s, d);
                if (!v) {
                    t.guards.absent(slot);
                } else if (t.note(v.get(), slot) < 0 || t.read_all(v.get()) < 0) {
                    return nullptr;
                }
            }
        }
    }
    return run(t, callable, a);
}

// Where it looks first depends on what was done to the set before, which no guard sees.
PyObject* do_set_pop(Tracer& t, PyObject* callable, Args a) {
    if (a.total() == 1 && PySet_Check(a.v[0])) {
        if (t.source_of(a.v[0]) != kNoSource && PySet_GET_SIZE(a.v[0]) > 1)
            return t.stop("iterator-from-before", "set.pop");
        if (before_change(t, a.v[0], false) < 0) return nullptr;
    }
    return run(t, callable, a);
}

PyObject* do_build_class(Tracer& t, PyObject* callable, Args a) {
    if (read_arguments(t, a) < 0) return nullptr;
    PyObject* made = run(t, callable, a);
    if (made) t.made(made);
    return made;
}

PyObject* do_exc_info(Tracer& t, PyObject* callable, Args a) {
    Owned handled = Owned::steal(PyErr_GetHandledException());
    if (handled && handled.get() == t.handled_before())
        return t.stop("frame-inspection", "the exception that the caller handles");
    return run(t, callable, a);
}

// Of a frame that the trace has left, or still runs (an error). Any other one is the program's.
PyObject* do_frame_clear(Tracer& t, PyObject* callable, Args a) {
    if (a.n != 1 || !PyFrame_Check(a.v[0])) return run(t, callable, a);
    PyObject* generator = bz_frame_generator(bz_frame_of_object(a.v[0]));
    if (t.source_of(a.v[0]) != kNoSource || (generator && !t.is_fresh(generator)))
        return t.stop("frame-inspection", "frame.clear()");
    return run(t, callable, a);
}

PyObject* do_generic_getattr(Tracer& t, PyObject* callable, Args a) {
    if (a.n != 2 || t.capture->is_fake(a.v[0]) || PyType_Check(a.v[0]) || PyModule_Check(a.v[0])) {
        if (a.n == 2) return get_attribute(t, a.v[0], a.v[1]);
        return run(t, callable, a);
    }
    return load_attribute(t, a.v[0], a.v[1], true);
}

PyObject* do_generic_setattr(Tracer& t, PyObject* callable, Args a, bool deletes) {
    if (a.n != (deletes ? 2 : 3)) return run(t, callable, a);
    // It refuses objects whose C type sets attributes in a way of its own.
    if (!t.capture->is_fake(a.v[0]) && solid_base(Py_TYPE(a.v[0]))->tp_setattro != PyObject_GenericSetAttr)
        return run(t, callable, a);
    if (t.capture->is_fake(a.v[0])) {
        if (set_tensor_attribute(t, a.v[0], a.v[1], deletes ? nullptr : a.v[2]) < 0) return nullptr;
        Py_RETURN_NONE;
    }
    if (store_generic(t, a.v[0], a.v[1], deletes ? nullptr : a.v[2]) < 0) return nullptr;
    Py_RETURN_NONE;
}

PyObject* do_type_setattr(Tracer& t, PyObject* callable, Args a, bool deletes) {
    if (a.n != (deletes ? 2 : 3) || !PyType_Check(a.v[0])) return run(t, callable, a);
    if (Py_TYPE(a.v[0])->tp_setattro != PyType_Type.tp_setattro && !is_python_class(Py_TYPE(a.v[0])))
        return run(t, callable, a);
    if (!t.is_fresh(a.v[0]) && t.journal.before_type_attribute(a.v[0], a.v[1]) < 0) return nullptr;
    if (PyType_Type.tp_setattro(a.v[0], a.v[1], deletes ? nullptr : a.v[2]) < 0) return nullptr;
    Py_RETURN_NONE;
}

// The numbers in a list or tuple, or these themselves; empty where something else is among them, or no symbol.
std::vector<PyObject*> numbers_in(PyObject* const* v, Py_ssize_t n) {
    bool any = false;
    std::vector<PyObject*> out;
    for (Py_ssize_t i = 0; i < n; ++i) {
        if (!is_symbolic(v[i]) && !PyLong_CheckExact(v[i]) && !PyFloat_CheckExact(v[i])) return {};
        any |= is_symbolic(v[i]);
        out.push_back(v[i]);
    }
    return any ? out : std::vector<PyObject*>();
}
std::vector<PyObject*> numbers_in(PyObject* v) {
    if (PyList_CheckExact(v)) return numbers_in(reinterpret_cast<PyListObject*>(v)->ob_item, PyList_GET_SIZE(v));
    if (PyTuple_CheckExact(v)) return numbers_in(reinterpret_cast<PyTupleObject*>(v)->ob_item, PyTuple_GET_SIZE(v));
    if (!PyDictValues_Check(v)) return {};
    Owned values = Owned::steal(PySequence_List(v));  // the dict keeps them
    return values ? numbers_in(values.get()) : std::vector<PyObject*>();
}

PyObject* do_extremum(Tracer& t, PyObject* callable, Args a, bool max) {
    if (read_arguments(t, a) < 0) return nullptr;
    if (!a.kwnames) {
        auto numbers = a.n == 1 ? numbers_in(a.v[0]) : numbers_in(a.v, a.n);
        if (!numbers.empty()) return t.number_extremum(callable, numbers, max);
    }
    return finish_c_call(t, run(t, callable, a));
}

PyObject* do_sum(Tracer& t, PyObject* callable, Args a) {
    if (read_arguments(t, a) < 0) return nullptr;
    if (a.n == 1 && !a.kwnames)
        if (auto numbers = numbers_in(a.v[0]); !numbers.empty()) return t.number_sum(numbers);
    return finish_c_call(t, run(t, callable, a));
}

PyObject* do_dict_get(Tracer& t, PyObject* callable, Args a) {
    if (a.kwnames || a.n < 2 || a.n > 3) return run(t, callable, a);
    bool tensor = t.key_in(a.v[0], a.v[1]) != a.v[1] && is_tensor_key(a.v[1]);
    if (!is_plain_key(a.v[1]) && !is_symbolic(a.v[1]) && !tensor)  // its __hash__ is the program's: it runs once
        return t.read_all(a.v[0]) < 0 ? nullptr : run(t, callable, a);
    Owned key = Owned::steal(fixed(a.v[1]));
    if (!key) return nullptr;
    if (!dict_get(a.v[0], t.key_in(a.v[0], key.get()))) {
        if (PyErr_Occurred() || bz_contains(a.v[0], key.get()) < 0) return nullptr;
        return a.n == 3 ? Py_NewRef(a.v[2]) : Py_NewRef(Py_None);
    }
    return dict_item(t, a.v[0], key.get());
}

// Of the __dict__ of a class: reading the class's attributes.
PyObject* do_namespace(Tracer& t, const CFunction& f, PyObject* callable, Args a) {
    PyObject* names = a.n >= 2 && is_plain_key(a.v[1]) ? t.class_namespace(a.v[0]) : nullptr;
    if (!names || a.kwnames) return read_arguments(t, a) < 0 ? nullptr : run(t, callable, a);
    if (f.name == "mappingproxy.__contains__") {
        int r = bz_contains(names, a.v[1]);
        return r < 0 ? nullptr : boolean(r);
    }
    if (f.name == "mappingproxy.__getitem__") return dict_item(t, names, a.v[1]);
    if (!PyDict_Contains(names, a.v[1])) {
        if (bz_contains(names, a.v[1]) < 0) return nullptr;
        return Py_NewRef(a.n == 3 ? a.v[2] : Py_None);
    }
    return dict_item(t, names, a.v[1]);
}

PyObject* do_set_item(Tracer& t, Args a, bool deletes) {
    if (a.n != (deletes ? 2 : 3)) return t.stop("unknown-c-function", "__setitem__");
    if (t.capture->is_fake(a.v[1])) t.touch(a.v[1]);
    if (set_raw_item(t, a.v[0], a.v[1], deletes ? nullptr : a.v[2]) < 0) return nullptr;
    Py_RETURN_NONE;
}

PyObject* do_generator(Tracer& t, const CFunction& f, PyObject* callable, Args a) {
    if (a.n >= 1 && t.is_iterator_from_before(a.v[0])) return t.stop("iterator-from-before", f.name);
    if (read_arguments(t, a, 1) < 0) return nullptr;
    return run(t, callable, a);
}

// Locks are not taken for real: a trace that is thrown away would never give them back. Within a trace they only have
// to balance.
PyObject* do_lock(Tracer& t, const CFunction& f, Args a) {
    if (a.n < 1) return t.stop("thread", f.name);
    if (f.name.ends_with(".__enter__") || f.name.ends_with(".acquire")) {
        t.held_locks[a.v[0]]++;
        return boolean(true);
    }
    if (f.name.ends_with(".__exit__") || f.name.ends_with(".release")) {
        if (--t.held_locks[a.v[0]] < 0) return t.stop("thread", f.name);
        if (!t.held_locks[a.v[0]]) t.held_locks.erase(a.v[0]);
        Py_RETURN_NONE;
    }
    return t.stop("thread", f.name);
}

// itemgetter and attrgetter read their operand one step at a time.
PyObject* do_getter(Tracer& t, PyObject* getter, Args a, bool items) {
    Owned state = Owned::steal(PyObject_CallMethod(getter, "__reduce__", nullptr));
    if (!state || a.total() != 1) return t.stop("unknown-c-function", Py_TYPE(getter)->tp_name);
    PyObject* keys = PyTuple_GET_ITEM(state.get(), 1);
    Py_ssize_t n = PyTuple_GET_SIZE(keys);
    Owned out = Owned::steal(PyTuple_New(n));
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject* key = PyTuple_GET_ITEM(keys, i);
        Owned v = Owned::share(a.v[0]);
        if (items) {
            v = Owned::steal(get_item(t, v.get(), key));
        } else {
            Owned dot = Owned::steal(PyUnicode_FromString(".")),
                  parts = Owned::steal(PyUnicode_Split(key, dot.get(), -1));
            for (Py_ssize_t k = 0; v && k < PyList_GET_SIZE(parts.get()); ++k)
                v = Owned::steal(get_attribute(t, v.get(), PyList_GET_ITEM(parts.get(), k)));
        }
        if (!v) return nullptr;
        if (n == 1) return v.release();
        PyTuple_SET_ITEM(out.get(), i, v.release());
    }
    t.made(out.get());
    return out.release();
}

}  // namespace

// braze._C.error_on_graph_break(flag): sets what breaks of this thread are, and returns what they were.
static PyObject* do_error_on_break(Tracer& t, Args a) {
    if (a.total() != 1) return t.stop("unknown-c-function", "error_on_graph_break");
    return boolean(std::exchange(t.error_on_break, a.v[0] == Py_True));
}

PyObject* call_special(Tracer& t, const CFunction& f, PyObject* callable, Args a) {
    const std::string& n = f.name;
    if (n == "builtins.len") return do_len(t, callable, a);
    if (n == "builtins.getattr") return do_getattr(t, callable, a);
    if (n == "builtins.hasattr") return do_hasattr(t, callable, a);
    if (n == "builtins.setattr") return do_setattr(t, callable, a, false);
    if (n == "builtins.delattr") return do_setattr(t, callable, a, true);
    if (n == "builtins.iter") return do_iter(t, callable, a);
    if (n == "builtins.next") return do_next(t, callable, a);
    if (n == "set.pop") return do_set_pop(t, callable, a);
    if (n == "builtins.vars") return do_vars(t, callable, a);
    if (n == "builtins.sum") return do_sum(t, callable, a);
    if (n == "builtins.max" || n == "builtins.min") return do_extremum(t, callable, a, n == "builtins.max");
    if (n == "builtins.isinstance") return do_isinstance(t, callable, a);
    if (n == "_abc._abc_instancecheck" || n == "_abc._abc_subclasscheck") return run(t, callable, a);  // calls no class
    if (n == "builtins.id") return do_id(t, callable, a);
    if (n == "builtins.hash" || n.ends_with(".__hash__")) return do_hash(t, callable, a);
    if (n == "builtins.__build_class__") return do_build_class(t, callable, a);
    if (n == "sys.exc_info" || n == "sys.exception") return do_exc_info(t, callable, a);
    if (n == "frame.clear") return do_frame_clear(t, callable, a);
    if (n == "builtins.globals") return t.stop("frame-inspection", "globals()");
    if (n == "object.__getattribute__" || n == "module.__getattribute__") return do_generic_getattr(t, callable, a);
    if (n == "object.__setattr__") return do_generic_setattr(t, callable, a, false);
    if (n == "object.__delattr__") return do_generic_setattr(t, callable, a, true);
    if (n.starts_with("object.__")) return do_state(t, callable, a);
    if (n == "type.__setattr__") return do_type_setattr(t, callable, a, false);
    if (n == "type.__delattr__") return do_type_setattr(t, callable, a, true);
    if (n == "type.__call__") {
        if (a.n < 1 || !PyType_Check(a.v[0])) return run(t, callable, a);
        return call_type(t, reinterpret_cast<PyTypeObject*>(a.v[0]), {a.v + 1, a.n - 1, a.kwnames});
    }
    if (n == "dict.get") return do_dict_get(t, callable, a);
    if (n.starts_with("mappingproxy.")) return do_namespace(t, f, callable, a);
    if (n == "dict.__getitem__" && a.n == 2) {
        Owned key = Owned::steal(fixed(a.v[1]));
        return key ? dict_item(t, a.v[0], key.get()) : nullptr;
    }
    if (n == "dict.__contains__" && a.n == 2) {
        int r = bz_contains(a.v[0], a.v[1]);
        return r < 0 ? nullptr : boolean(r);
    }
    if (n == "list.__getitem__" && a.n == 2) return sequence_item(t, a.v[0], a.v[1]);
    if (n.ends_with(".__setitem__")) return do_set_item(t, a, false);
    if (n.ends_with(".__delitem__")) return do_set_item(t, a, true);
    if (n == "BaseException.with_traceback" && a.n == 2 && t.source_of(a.v[0]) != kNoSource && a.v[1] == Py_None) {
        static PyObject* traceback = PyUnicode_InternFromString("__traceback__");
        return t.journal.before_slot(a.v[0], traceback) < 0 ? nullptr : run(t, callable, a);
    }
    if (n.starts_with("BaseException")) {  // they change the exception, or read more of it than its arguments
        if (a.n && t.source_of(a.v[0]) != kNoSource) return t.stop("unknown-object", n);
        return read_arguments(t, a) < 0 ? nullptr : run(t, callable, a);
    }
    if (n.starts_with("generator.") || n.starts_with("coroutine.")) return do_generator(t, f, callable, a);
    if (n == "torch._C._EngineBase.run_backward") return run_backward(t, callable, a);
    if (n == "torch._C._FunctionBase.apply") return apply_function(t, callable, a);
    if (n == "braze._C.add_hook") return add_hook(t, a);
    if (n == "braze._C.remove_hook") return remove_hook(t, a);
    if (n == "braze._C.constant" && a.total() == 1) return fixed(a.v[0]);
    if (n == "braze._C.error_on_graph_break") return do_error_on_break(t, a);
    if (n.starts_with("_thread.")) return do_lock(t, f, a);
    if (n == "operator.itemgetter") return do_getter(t, callable, a, true);
    if (n == "operator.attrgetter") return do_getter(t, callable, a, false);
    return t.stop("unknown-c-function", n);
}

}  // namespace braze::frontend
