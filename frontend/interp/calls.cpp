#include "frontend/interp/calls.h"

#include <structmember.h>

#include <cstring>

#include "frontend/cpython/trace_hooks.h"
#include "frontend/interp/addresses.h"
#include "frontend/interp/tensors.h"
#include "frontend/segments/compiled.h"
#include "frontend/segments/segment.h"

namespace braze::frontend {

static bool named(PyObject* o, const char* n) { return std::strcmp(Py_TYPE(o)->tp_name, n) == 0; }

// A callable that C code will call back: Python functions are interpreted wherever they are called; C functions must be
// pure.
static int check_callback(Tracer& t, PyObject* v, int depth = 0) {
    if (const CFunction* f = c_function(v)) {
        // What these read was guarded with the arguments.
        bool reads = f->name == "builtins.len" || f->name == "builtins.isinstance";
        if (PyObject* self = bound_self(v); self && PyDict_CheckExact(self) && f->name == "dict.__getitem__")
            return t.read_all(self);
        if (f->policy != Policy::Pure && f->policy != Policy::Torch && !reads)
            return t.stop("unknown-c-function", f->name + " as a callback"), -1;
    } else if (named(v, "functools.partial")) {
        Owned inner = Owned::steal(PyObject_GetAttrString(v, "func"));
        if (!inner || depth > 64) return t.stop("unknown-c-function", "a partial of partials"), -1;
        return check_callback(t, inner.get(), depth + 1);
    } else if (PyFunction_Check(v)) {
        return t.use_function(v);
    } else if (PyType_Check(v) && has_finaliser(reinterpret_cast<PyTypeObject*>(v))) {
        return t.stop("finaliser", type_name(reinterpret_cast<PyTypeObject*>(v))), -1;  // it may be called
    } else if (named(v, "operator.attrgetter") || named(v, "operator.methodcaller")) {
        return t.stop("unknown-c-function", std::string(Py_TYPE(v)->tp_name) + " as a callback"), -1;
    }
    return 0;
}

int read_arguments(Tracer& t, Args a, Py_ssize_t from, bool elements_only) {
    for (Py_ssize_t i = from; i < a.total(); ++i) {
        PyObject* v = a.v[i];
        if (is_primitive(v)) {
            if (t.use_number(v) < 0) return -1;
            continue;
        }
        if (t.capture->is_fake(v)) {
            t.touch(v);
            continue;
        }
        if (std::strncmp(Py_TYPE(v)->tp_name, "numpy.", 6) == 0)
            return t.stop("unknown-c-function", "a call with a numpy array"), -1;
        if (check_callback(t, v) < 0 || (elements_only ? t.read_elements(v) : t.read_all(v)) < 0) return -1;
    }
    return 0;
}

PyObject* finish_c_call(Tracer& t, PyObject* r) {
    if (r) r = checked_text(t, r);
    if (!r) return nullptr;
    if (!is_primitive(r) && Py_REFCNT(r) == 1 && !t.is_tensor(r)) {
        t.made(r);
        for (Py_ssize_t i = 0; PyTuple_CheckExact(r) && i < PyTuple_GET_SIZE(r); ++i) {  // of itertools.tee
            PyObject* x = PyTuple_GET_ITEM(r, i);
            if (Py_REFCNT(x) == 1 && PyIter_Check(x)) t.made(x);
        }
    }
    return t.result(r);
}

static PyObject* vectorcall(PyObject* callable, Args a) {
    return PyObject_Vectorcall(callable, a.v, static_cast<size_t>(a.n), a.kwnames);
}

// Methods that store a key or look for an equal one; a number made of an address may be that.
static bool keeps_numbers(const std::string& name, Args a) {
    static const char* const names[] = {"list.append",
                                        "list.remove",
                                        "set.add",
                                        "set.discard",
                                        "set.remove",
                                        "dict.pop",
                                        "dict.setdefault",
                                        "collections.deque.append",
                                        "collections.deque.appendleft"};
    bool listed = false;
    for (const char* n : names) listed |= name == n;
    for (Py_ssize_t i = 1; i < a.total(); ++i) listed &= is_primitive(a.v[i]);
    return listed;
}

static bool looks_for_equal(const std::string& name) {
    for (const char* n : {".remove", ".index", ".count", ".__contains__", ".__eq__", ".__ne__", "countOf", "indexOf"})
        if (name.ends_with(n)) return true;
    return false;
}

static bool needs_gradient(PyObject* tensor) {
    Owned r = Owned::steal(PyObject_GetAttrString(tensor, "requires_grad"));
    PyErr_Clear();
    return r.get() != Py_False;
}

// A method of an object of C++ code from before (pybind11's, no enumeration): a guard that holds thread-local state,
// say.
static bool changes_cpp_object(const Tracer& t, PyObject* callable, Args a) {
    if (!PyCFunction_Check(callable) || bound_self(callable) || a.n == 0 || t.is_fresh(a.v[0])) return false;
    PyTypeObject* type = Py_TYPE(a.v[0]);
    return std::strstr(Py_TYPE(type)->tp_name, "pybind11_type") && type->tp_dict &&
           !PyDict_GetItemString(type->tp_dict, "__members__");
}

static PyObject* call_c(Tracer& t, const CFunction& f, PyObject* callable, Args a) {
    if (changes_cpp_object(t, callable, a)) {
        const char* method = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
        return t.stop("unknown-c-function", type_name(Py_TYPE(a.v[0])) + "." + method);
    }
    // With the object the method is bound to as argument 0.
    PyObject* self = bound_self(callable);
    Owned wrapper_self;
    if (Py_TYPE(callable) == &_PyMethodWrapper_Type) {
        wrapper_self = Owned::steal(PyObject_GetAttrString(callable, "__self__"));
        self = wrapper_self.get();
    }
    std::vector<PyObject*> all;
    if (self) all.push_back(self);
    all.insert(all.end(), a.v, a.v + a.total());
    Args with_self{all.data(), static_cast<Py_ssize_t>(all.size()) - (a.kwnames ? PyTuple_GET_SIZE(a.kwnames) : 0),
                   a.kwnames};
    if (with_self.n > 1 && (f.policy == Policy::Pure || f.policy == Policy::Changes)) {
        PyObject* c = with_self.v[0];
        bool keyed = PyDict_Check(c) || PyAnySet_Check(c);
        for (Py_ssize_t i = 1; i < with_self.n; ++i) {
            if (keyed) {
                if (t.key_in(c, with_self.v[i]) != with_self.v[i]) return t.stop("dynamic-value", "a tensor as a key");
                t.looked_up(c, with_self.v[i]);
                t.compared_elements(with_self.v[i], 4);
            } else if (looks_for_equal(f.name)) {
                if (t.read_all(c) < 0) return nullptr;
                t.compared(with_self.v[i]);
                t.compared_elements(c, 4);
            }
        }
    }
    switch (f.policy) {
        case Policy::Unknown: return t.stop("unknown-c-function", f.name);
        case Policy::Break: return t.stop(f.break_id, f.name);
        case Policy::Special: return call_special(t, f, callable, with_self);
        case Policy::Appends:
        case Policy::Changes:
            if (with_self.n < 1 && a.kwnames) return t.stop("unknown-c-function", f.name);
            if (with_self.n < 1) return t.result(vectorcall(callable, a));  // raises TypeError
            if ((!keeps_numbers(f.name, with_self) && read_arguments(t, with_self, 1) < 0) ||
                before_change(t, with_self.v[0], f.policy == Policy::Appends) < 0)
                return nullptr;
            return finish_c_call(t, vectorcall(callable, a));
        case Policy::Torch: {
            size_t dot = f.name.rfind('.');
            if (f.name.starts_with("torch._C.TensorBase.") || f.name.starts_with("torch._C._TensorBase.")) {
                Owned n = Owned::steal(PyUnicode_FromString(f.name.c_str() + dot + 1));
                if (with_self.n >= 1 && t.capture->is_fake(with_self.v[0])) {  // the table of forbidden names
                    Owned m = Owned::steal(tensor_attribute(t, with_self.v[0], n.get()));
                    if (!m) return nullptr;
                    // (said of what needs no gradient: nothing)
                    // (what a function transform wraps is the transform's own)
                    if (f.name.ends_with(".requires_grad_") &&
                        t.capture->value_of(with_self.v[0]).kind != ValueRef::NotFake &&
                        !(with_self.total() == 2 && with_self.v[1] == Py_False && !needs_gradient(with_self.v[0])))
                        return t.stop("autograd", "Tensor.requires_grad_");
                }
            }
            if (read_arguments(t, with_self) < 0) return nullptr;
            // (these would ask for the numbers)
            if (f.name.ends_with(".as_tensor") || f.name.ends_with(".tensor"))
                if (std::optional<PyObject*> r = tensor_of_numbers(a)) return finish_c_call(t, *r);
            // (torch hides this detach from modes)
            Owned detached;
            if (f.name.ends_with("._make_subclass") && a.n >= 2 && t.capture->is_fake(a.v[1])) {
                detached = Owned::steal(PyObject_CallMethod(a.v[1], "detach", nullptr));
                if (!detached) return nullptr;
                all[1] = detached.get();
                a.v = all.data();
            }
            return finish_c_call(t, vectorcall(callable, a));
        }
        case Policy::Numeric:
            if (!a.kwnames)
                if (std::optional<PyObject*> r = t.number_call(callable, a.v, a.n)) return *r;
            if (read_arguments(t, with_self) < 0) return nullptr;
            return finish_c_call(t, vectorcall(callable, a));
        case Policy::FreshOrIo:
            if (with_self.n > 0 && !t.is_fresh(with_self.v[0])) return t.stop("io", f.name);
            [[fallthrough]];
        case Policy::Fresh:
            if (with_self.n > 0 && !t.is_fresh(with_self.v[0])) return t.stop("unknown-object", f.name);
            [[fallthrough]];
        case Policy::Pure: {
            if (read_arguments(t, with_self) < 0) return nullptr;
            PyObject* r = vectorcall(callable, a);
            if (r && PyType_Check(r) && f.name == "type.__new__") t.made(r);  // a metaclass goes on with it
            return finish_c_call(t, r);
        }
    }
    return nullptr;
}

// super() reads the first argument where it lies in the frame; in the root frame no instruction may have loaded it yet.
static int know_first_argument(Tracer& t) {
    bz_frame* f = bz_frame_top();
    if (!f || f != bz_trace_root_frame() || !t.state_size()) return 0;
    PyObject *first = bz_frame_localsplus(f)[0], *before = t.state()[0];
    bool same = first && first == before && !PyCell_Check(first) && t.source_of(first) == kNoSource;
    return same ? t.note(first, t.guards.sources.local(0)) : 0;
}

// What it makes of its arguments hands on their elements, and looks at none of them.
static bool only_takes_elements(PyTypeObject* type, Args a) {
    if (type == &PyMap_Type || type == &PyFilter_Type) return a.n > 0 && PyFunction_Check(a.v[0]);
    return type == &PyList_Type || type == &PyTuple_Type || type == &PyZip_Type || type == &PyEnum_Type ||
           type == &PyReversed_Type || std::strcmp(type->tp_name, "itertools.chain") == 0 ||
           std::strcmp(type->tp_name, "itertools.islice") == 0 ||
           std::strcmp(type->tp_name, "itertools.zip_longest") == 0;
}

// type.__call__, in steps: the object is known to be fresh before its __init__ runs.
PyObject* call_type(Tracer& t, PyTypeObject* type, Args a) {
    if (a.total() == 1 && is_symbolic(a.v[0])) {
        PyTypeObject* like = Py_TYPE(a.v[0]) == symbolic_int ? &PyLong_Type : &PyFloat_Type;
        if (type == &PyType_Type) return Py_NewRef(reinterpret_cast<PyObject*>(like));
        if (type == like) return Py_NewRef(a.v[0]);
        if (type == &PyLong_Type || type == &PyFloat_Type)
            if (std::optional<PyObject*> r = t.number_call(reinterpret_cast<PyObject*>(type), a.v, 1)) return *r;
    }
    if (type == &PyType_Type && a.total() == 1) return Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(a.v[0])));
    PyTypeObject* base = type;
    while (is_python_class(base) && base->tp_base) base = base->tp_base;
    // Classes of C++ code: guards of thread-local state, for one, that a trace thrown away would leave in a mess.
    if (std::strstr(Py_TYPE(type)->tp_name, "pybind11_type"))
        return t.stop("unknown-c-function", type_name(type) + "()");
    if (type == &_PyWeakref_RefType && a.total() == 1) {  // there is one of each object
        SourceId s = t.source_of(a.v[0]);
        if (s == kNoSource && PyType_Check(a.v[0]) && !t.is_fresh(a.v[0])) s = t.guards.sources.constant(a.v[0]);
        if (s == kNoSource || t.is_tensor(a.v[0])) return t.stop("unknown-c-function", "weakref.ReferenceType()");
        PyObject* r = PyWeakref_NewRef(a.v[0], nullptr);
        return r ? t.loaded(r, t.guards.sources.add(SourceKind::WeakrefOf, s, nullptr)) : t.result(r);
    }
    bool torch_tensor = std::strstr(base->tp_name, "TensorBase") != nullptr;
    if (!torch_tensor && !c_type_allowed(base)) return t.stop("unknown-c-function", type_name(base) + "()");
    if (base == type || type == &PySuper_Type || torch_tensor) {
        if (read_arguments(t, a, 0, only_takes_elements(type, a)) < 0) return nullptr;
        if (type == &PySuper_Type && a.total() == 0 && know_first_argument(t) < 0) return nullptr;
        PyObject* r = PyObject_Vectorcall(reinterpret_cast<PyObject*>(type), a.v, static_cast<size_t>(a.n), a.kwnames);
        r = checked_text(t, r);
        if (r && !t.is_tensor(r)) t.made(r);
        return t.result(r);
    }
    Owned args = Owned::steal(PyTuple_New(a.n)), kwargs;
    if (!args) return nullptr;
    for (Py_ssize_t i = 0; i < a.n; ++i) PyTuple_SET_ITEM(args.get(), i, Py_NewRef(a.v[i]));
    if (a.kwnames) {
        kwargs = Owned::steal(PyDict_New());
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a.kwnames); ++i)
            if (PyDict_SetItem(kwargs.get(), PyTuple_GET_ITEM(a.kwnames, i), a.v[a.n + i]) < 0) return nullptr;
    }
    static PyObject *new_name = PyUnicode_InternFromString("__new__"),
                    *init_name = PyUnicode_InternFromString("__init__");
    static PyObject* del_name = PyUnicode_InternFromString("__del__");
    if (PyObject* del = t.type_attribute(type, del_name); del && PyFunction_Check(del))
        return t.stop("finaliser", type_name(type));
    t.type_attribute(type, new_name);
    bool reads = type->tp_new == base->tp_new && base != &PyBaseObject_Type;  // the elements of an iterable, a number
    if (reads && read_arguments(t, a) < 0) return nullptr;
    PyObject* init = t.type_attribute(type, init_name);
    PyObject* object = type->tp_new(type, args.get(), kwargs.get());
    if (!object || t.aborting) {
        Py_XDECREF(object);
        return nullptr;
    }
    if (!PyObject_TypeCheck(object, type)) return t.result(object);
    if (t.source_of(object) == kNoSource) t.made(object);
    if (init && !PyFunction_Check(init) && read_arguments(t, a) < 0) return Py_DECREF(object), nullptr;
    if (Py_TYPE(object)->tp_init && Py_TYPE(object)->tp_init(object, args.get(), kwargs.get()) < 0)
        return Py_DECREF(object), nullptr;
    return t.result(object);
}

static PyObject* call_partial(Tracer& t, PyObject* partial, Args a) {
    static PyObject *n_func = PyUnicode_InternFromString("func"), *n_args = PyUnicode_InternFromString("args"),
                    *n_kw = PyUnicode_InternFromString("keywords");
    Owned fn = Owned::steal(get_attribute(t, partial, n_func)), pargs = Owned::steal(get_attribute(t, partial, n_args)),
          kw = Owned::steal(get_attribute(t, partial, n_kw));
    if (!fn || !pargs || !kw || t.read_length(pargs.get()) < 0 || t.read_elements(kw.get()) < 0) return nullptr;
    std::vector<Owned> values, names;
    Py_ssize_t npos = 0;
    for (; npos < PyTuple_GET_SIZE(pargs.get()); ++npos) {
        Owned place = Owned::steal(PyLong_FromSsize_t(npos));
        values.push_back(Owned::steal(sequence_item(t, pargs.get(), place.get())));
        if (!values.back()) return nullptr;
    }
    for (Py_ssize_t i = 0; i < a.n; ++i, ++npos) values.push_back(Owned::share(a.v[i]));
    Owned merged = Owned::steal(PyDict_New()), given = Owned::steal(dict_items(kw.get()));
    for (Py_ssize_t i = 0; merged && given && i < PyTuple_GET_SIZE(given.get()); ++i) {
        PyObject* key = PyTuple_GET_ITEM(PyTuple_GET_ITEM(given.get(), i), 0);
        Owned v = Owned::steal(dict_item(t, kw.get(), key));
        if (!v || PyDict_SetItem(merged.get(), key, v.get()) < 0) return nullptr;
    }
    if (!merged || !given) return nullptr;
    for (Py_ssize_t i = 0; a.kwnames && i < PyTuple_GET_SIZE(a.kwnames); ++i)
        PyDict_SetItem(merged.get(), PyTuple_GET_ITEM(a.kwnames, i), a.v[a.n + i]);
    Owned kwnames = Owned::steal(PyTuple_New(PyDict_GET_SIZE(merged.get())));
    Py_ssize_t pos = 0, i = 0;
    PyObject *k, *v;
    while (PyDict_Next(merged.get(), &pos, &k, &v)) {
        PyTuple_SET_ITEM(kwnames.get(), i++, Py_NewRef(k));
        values.push_back(Owned::steal(t.result(Py_NewRef(v))));
        if (!values.back()) return nullptr;
    }
    std::vector<PyObject*> raw;
    for (Owned& o : values) raw.push_back(o.get());
    return call(t, fn.get(), {raw.data(), npos, i ? kwnames.get() : nullptr});
}

// Python code that is not traced: it runs for real, on fakes, because nothing of the user's program is in it. Logging
// that would say something is an effect.
static bool run_untraced(PyObject* fn, bool* emits) {
    auto* f = reinterpret_cast<PyFunctionObject*>(fn);
    PyObject* module = f->func_module;
    const char* m = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
    if (!m) return PyErr_Clear(), false;
    *emits = std::strcmp(m, "warnings") == 0 ||
             (std::strcmp(m, "logging") == 0 && PyUnicode_CompareWithASCIIString(f->func_name, "_log") == 0);
    for (const std::string& traced : settings().run_traced)
        if (traced == m) return false;
    if (std::strcmp(m, "logging") == 0) return PyUnicode_CompareWithASCIIString(f->func_name, "isEnabledFor") == 0;
    for (const std::string& p : settings().run_untraced)
        if (std::strncmp(m, p.c_str(), p.size()) == 0 && (m[p.size()] == 0 || m[p.size()] == '.')) return true;
    return false;
}

// A function with the variables of `fn` and the code that a table gives for its code; nothing if there is none.
static Owned with_replaced_code(PyObject* fn) {
    auto* f = reinterpret_cast<PyFunctionObject*>(fn);
    auto it = settings().replaced_code.find(f->func_code);
    if (it == settings().replaced_code.end()) return {};
    auto* other = reinterpret_cast<PyFunctionObject*>(it->second.get());
    Owned r = Owned::steal(PyFunction_NewWithQualName(other->func_code, other->func_globals, other->func_qualname));
    if (r && f->func_closure && PyFunction_SetClosure(r.get(), f->func_closure) < 0) return {};
    return r;
}

static PyObject* call_function(Tracer& t, PyObject* fn, Args a) {
    PyObject* marked = nullptr;
    if (call_marked(t, fn, a, &marked)) return marked;
    if (Owned other = with_replaced_code(fn)) {
        if (t.use_function(fn) < 0) return nullptr;
        t.made(other.get());
        return call_function(t, other.get(), a);
    }
    if (PyErr_Occurred()) return nullptr;
    bool emits = false;
    bool untraced = run_untraced(fn, &emits);
    if (emits) return t.stop("io", qualified_name(fn));
    if (t.use_function(fn) < 0) return nullptr;
    t.called = fn;
    if (!untraced) return t.result(vectorcall(fn, a));
    int mode = bz_mode_set(BZ_OFF);
    PyObject* r = vectorcall(fn, a);
    bz_mode_set(mode);
    return finish_c_call(t, r);
}

// Made of an encoder's or decoder's settings, which never change: what it calls back has to be pure.
static PyObject* call_json(Tracer& t, PyObject* callable, Args a) {
    SourceId s = t.source_of(callable);
    if (s == kNoSource && !t.is_fresh(callable)) return t.stop("unknown-c-function", type_name(Py_TYPE(callable)));
    if (s != kNoSource) t.guards.is(s, callable);
    for (PyMemberDef* m = Py_TYPE(callable)->tp_members; m && m->name; ++m) {
        Owned part = Owned::steal(PyObject_GetAttrString(callable, m->name));
        if (!part || check_callback(t, part.get()) < 0) return nullptr;
    }
    if (read_arguments(t, a) < 0) return nullptr;
    return finish_c_call(t, vectorcall(callable, a));
}

// list[int](): what it is an alias of is called, and told.
static PyObject* call_alias(Tracer& t, PyObject* alias, Args a) {
    static PyObject* const name = PyUnicode_InternFromString("__orig_class__");
    Owned origin = Owned::steal(PyObject_GetAttrString(alias, "__origin__"));
    Owned r = Owned::steal(origin ? call(t, origin.get(), a) : nullptr);
    if (!r) return nullptr;
    if (store_attribute(t, r.get(), name, alias) < 0) {
        if (t.aborting || !(PyErr_ExceptionMatches(PyExc_AttributeError) || PyErr_ExceptionMatches(PyExc_TypeError)))
            return nullptr;
        PyErr_Clear();
    }
    return r.release();
}

static PyObject* dispatch(Tracer& t, PyObject* callable, Args a);

PyObject* call(Tracer& t, PyObject* callable, Args a) {
    if (Py_EnterRecursiveCall(" while calling a Python object")) return nullptr;  // partials of partials have no frames
    PyObject* r = dispatch(t, callable, a);
    Py_LeaveRecursiveCall();
    return r;
}

// functools.lru_cache's. Of constants it gives what the cache has, as in eager. Else what it caches is traced.
static PyObject* call_cached(Tracer& t, PyObject* callable, Args a) {
    bool constant = true;
    for (Py_ssize_t i = 0; i < a.total(); ++i) constant &= is_constant_value(a.v[i]) || is_singleton(a.v[i]);
    if (t.is_fresh(callable)) {  // its cache is the trace's own
        if (read_arguments(t, a) < 0) return nullptr;
        for (Py_ssize_t i = 0; i < a.total(); ++i) {
            t.compared(a.v[i]);
            t.compared_elements(a.v[i]);
        }
        return t.result(vectorcall(callable, a));
    }
    if (constant) {
        // It runs at most once, for real: what the cache keeps belongs to the program.
        int mode = bz_mode_set(BZ_OFF);
        t.capture->pause();
        Owned r = Owned::steal(vectorcall(callable, a));
        t.capture->resume();
        bz_mode_set(mode);
        if (!r || t.aborting) return nullptr;
        if (is_constant_value(r.get()) || is_singleton(r.get())) return r.release();
        SourceId s = t.source_of(callable);
        Owned key = Owned::steal(bz_lru_key(callable, a.v, a.n, a.kwnames));
        if (s == kNoSource || !key || bz_lru_result(callable, key.get()) != r.get())
            return t.stop("unknown-c-function", "a call of an lru_cache");
        return t.loaded(r.release(), t.guards.sources.add(SourceKind::CachedResult, s, key.get()));
    }
    Owned wrapped = Owned::steal(PyObject_GetAttrString(callable, "__wrapped__"));
    size_t changes = t.journal.size();
    Owned r = Owned::steal(wrapped ? call(t, wrapped.get(), a) : nullptr);
    if (!r) return nullptr;
    // The cache would answer with the object of the first call, and change nothing.
    bool same = is_primitive(r.get()) || PyTuple_CheckExact(r.get()) || t.is_tensor(r.get()) || !t.is_fresh(r.get());
    if (!same || t.journal.size() != changes) return t.stop("unknown-c-function", "a call of an lru_cache");
    return r.release();
}

static PyObject* dispatch(Tracer& t, PyObject* callable, Args a) {
    if (const FunctionRule* rule = function_rule(callable)) return apply_rule(t, *rule, callable, a);
    if (PyObject* inner = compiled_target(callable))
        return call(t, inner, a);  // a compiled function inside another is inlined
    if (PyFunction_Check(callable)) return call_function(t, callable, a);
    if (PyMethod_Check(callable)) {
        std::vector<PyObject*> all{PyMethod_GET_SELF(callable)};
        all.insert(all.end(), a.v, a.v + a.total());
        return call(t, PyMethod_GET_FUNCTION(callable), {all.data(), a.n + 1, a.kwnames});
    }
    if (const CFunction* f = c_function(callable)) return call_c(t, *f, callable, a);
    if (PyType_Check(callable)) {
        auto* type = reinterpret_cast<PyTypeObject*>(callable);
        static PyObject* call_name = PyUnicode_InternFromString("__call__");
        PyTypeObject* meta = Py_TYPE(callable);
        PyObject* m = meta == &PyType_Type ? nullptr : t.type_attribute(meta, call_name);
        if (m && PyFunction_Check(m)) return t.result(vectorcall(callable, a));  // the metaclass decides, in Python
        return call_type(t, type, a);
    }
    if (named(callable, "functools.partial")) return call_partial(t, callable, a);
    if (named(callable, "_json.Encoder") || named(callable, "_json.Scanner")) return call_json(t, callable, a);
    if (named(callable, "types.GenericAlias")) return call_alias(t, callable, a);
    if (named(callable, "functools._lru_cache_wrapper")) return call_cached(t, callable, a);
    if (PyWeakref_CheckRef(callable) && a.total() == 0) {
        SourceId s = t.source_of(callable);
        PyObject* target = Py_NewRef(PyWeakref_GET_OBJECT(callable));
        return s == kNoSource ? t.result(target)
                              : t.loaded(target, t.guards.sources.add(SourceKind::WeakrefTarget, s, nullptr));
    }
    if (named(callable, "staticmethod")) {
        Owned inner = Owned::steal(PyObject_GetAttrString(callable, "__func__"));
        return inner ? call(t, inner.get(), a) : nullptr;
    }
    if (named(callable, "operator.itemgetter") || named(callable, "operator.attrgetter")) {
        CFunction f;
        f.name = Py_TYPE(callable)->tp_name;
        return call_special(t, f, callable, a);
    }
    if (named(callable, "instancemethod")) return call(t, PyInstanceMethod_GET_FUNCTION(callable), a);
    if (is_python_class(Py_TYPE(callable))) {
        static PyObject* call_name = PyUnicode_InternFromString("__call__");
        PyObject* m = t.type_attribute(Py_TYPE(callable), call_name);
        const char* tn = Py_TYPE(callable)->tp_name;
        if (std::strcmp(tn, "OpOverload") == 0 || std::strcmp(tn, "OpOverloadPacket") == 0) {
            if (read_arguments(t, a) < 0) return nullptr;
            int mode = bz_mode_set(BZ_OFF);
            Owned name = Owned::steal(PyObject_Str(callable));
            const char* text = name ? PyUnicode_AsUTF8(name.get()) : "";
            bool foreign =
                std::strncmp(text, "profiler.", 9) == 0;  // its handle is an object of C++ that no graph carries
            for (Py_ssize_t i = 0; i < a.total(); ++i)
                foreign |= std::strstr(Py_TYPE(a.v[i])->tp_name, "ScriptObject") != nullptr;
            PyObject* r = foreign ? nullptr : vectorcall(callable, a);
            bz_mode_set(mode);
            return foreign ? t.stop("unknown-c-function", text) : finish_c_call(t, r);
        }
        if (m && PyFunction_Check(m)) {
            std::vector<PyObject*> all{callable};
            all.insert(all.end(), a.v, a.v + a.total());
            return call(t, m, {all.data(), a.n + 1, a.kwnames});
        }
        if (m && PyMethod_Check(m)) return call(t, m, a);
        if (m && Py_TYPE(m) == &PyWrapperDescr_Type &&
            std::strcmp(solid_base(Py_TYPE(callable))->tp_name, "functools.partial") == 0)
            return call_partial(t, callable, a);
        return t.stop("unknown-c-function", type_name(Py_TYPE(callable)) + ".__call__");
    }
    if (!Py_TYPE(callable)->tp_call) return vectorcall(callable, a);  // raises TypeError
    return t.stop("unknown-c-function", type_name(Py_TYPE(callable)) + " is called");
}

}  // namespace braze::frontend

using namespace braze::frontend;

extern "C" {

PyObject* bz_call(bz_frame*, PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    return call(t, callable,
                {args, PyVectorcall_NARGS(nargsf), kwnames && PyTuple_GET_SIZE(kwnames) ? kwnames : nullptr});
}

PyObject* bz_call_ex(bz_frame*, PyObject* callable, PyObject* args, PyObject* kwargs) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    if (t.source_of(args) != kNoSource && t.read_all(args) < 0) return nullptr;
    if (kwargs && t.source_of(kwargs) != kNoSource && t.read_all(kwargs) < 0) return nullptr;
    std::vector<Owned> values;
    std::vector<PyObject*> raw;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
        values.push_back(Owned::steal(t.result(Py_NewRef(PyTuple_GET_ITEM(args, i)))));
        if (!values.back()) return nullptr;
    }
    Owned names;
    if (kwargs && PyDict_GET_SIZE(kwargs)) {
        names = Owned::steal(PyTuple_New(PyDict_GET_SIZE(kwargs)));
        Py_ssize_t pos = 0, i = 0;
        PyObject *k, *v;
        while (PyDict_Next(kwargs, &pos, &k, &v)) {
            if (!PyUnicode_Check(k)) {
                PyErr_SetString(PyExc_TypeError, "keywords must be strings");
                return nullptr;
            }
            PyTuple_SET_ITEM(names.get(), i++, Py_NewRef(k));
            values.push_back(Owned::steal(t.result(Py_NewRef(v))));
            if (!values.back()) return nullptr;
        }
    }
    for (Owned& o : values) raw.push_back(o.get());
    return call(t, callable, {raw.data(), PyTuple_GET_SIZE(args), names.get()});
}

PyObject* bz_import_name(bz_frame* f, PyObject* name, PyObject* fromlist, PyObject* level) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    long n = PyLong_AsLong(level);
    if (n == 0) {
        Owned m = Owned::steal(PyImport_GetModule(name));
        // (of an object that is put in place of a module, importing reads attributes)
        if (!m || !PyModule_Check(m.get())) return t.stop("dynamic-import", PyUnicode_AsUTF8(name));
    }
    PyObject* locals = bz_frame_locals_mapping(f);
    int mode = bz_mode_set(BZ_OFF);
    PyObject* m = PyImport_ImportModuleLevelObject(name, bz_frame_globals(f), locals ? locals : Py_None, fromlist,
                                                   static_cast<int>(n));
    bz_mode_set(mode);
    if (m && t.source_of(m) == kNoSource) t.know(m, t.guards.sources.constant(m));
    return m;
}

PyObject* bz_import_from(PyObject* module, PyObject* name) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    PyObject* v = get_attribute(t, module, name);
    if (v || t.aborting || !PyErr_ExceptionMatches(PyExc_AttributeError)) return v;
    PyErr_Clear();
    Owned full = Owned::steal(PyUnicode_FromFormat("%s.%U", PyModule_GetName(module), name));
    PyObject* sub = full ? PyImport_GetModule(full.get()) : nullptr;
    if (!sub && !PyErr_Occurred())
        PyErr_Format(PyExc_ImportError, "cannot import name %R from '%s'", name, PyModule_GetName(module));
    return sub;
}

}  // extern "C"
