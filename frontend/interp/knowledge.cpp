// What the tracer knows about objects: sources, guards at reads, fakes for tensors.
#include <cstring>

#include "frontend/interp/tracer.h"

namespace braze::frontend {

bool is_primitive(PyObject* o) {
    return o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) ||
           PyUnicode_CheckExact(o) || PyBytes_CheckExact(o) || PyComplex_CheckExact(o) || o == Py_Ellipsis ||
           o == Py_NotImplemented || is_symbolic(o);
}

PyObject* fixed(PyObject* o) {
    if (Py_TYPE(o) == symbolic_int) return PyNumber_Long(o);
    if (Py_TYPE(o) == symbolic_float) return PyNumber_Float(o);
    return Py_NewRef(o);
}

static bool type_is_named(PyObject* o, const char* name) { return std::strcmp(Py_TYPE(o)->tp_name, name) == 0; }

static bool is_constant(PyObject* o, int depth) {
    if (depth > 64) return false;
    if (is_symbolic(o)) return false;
    if (is_primitive(o) || PyRange_Check(o)) return true;
    if (PyTuple_CheckExact(o) || type_is_named(o, "torch.Size")) {
        if (PyTuple_GET_SIZE(o) > 64) return false;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
            if (!is_constant(PyTuple_GET_ITEM(o, i), depth + 1)) return false;
        return true;
    }
    if (PySlice_Check(o)) {
        auto* s = reinterpret_cast<PySliceObject*>(o);
        auto constant = [](PyObject* x) { return is_primitive(x) && !is_symbolic(x); };
        return constant(s->start) && constant(s->stop) && constant(s->step);
    }
    if (PyFrozenSet_CheckExact(o)) {
        Owned it = Owned::steal(PyObject_GetIter(o));
        while (PyObject* x = it ? PyIter_Next(it.get()) : nullptr) {
            bool ok = is_constant(x, depth + 1);
            Py_DECREF(x);
            if (!ok) return false;
        }
        return true;
    }
    return type_is_named(o, "torch.device") || type_is_named(o, "torch.finfo") || type_is_named(o, "torch.iinfo");
}

bool is_constant_value(PyObject* o) { return is_constant(o, 0); }

static bool is_plain(PyObject* o, int depth) {
    if (depth > 64) return false;
    if (is_constant_value(o) || is_singleton(o)) return true;
    PyTypeObject* t = Py_TYPE(o);
    if (PyTuple_CheckExact(o)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
            if (!is_plain(PyTuple_GET_ITEM(o, i), depth + 1)) return false;
        return true;
    }
    // Compared and hashed by C code: of the object, or of the value it inherits from.
    PyTypeObject* base = solid_base(t);
    return !is_python_class(t) ||
           ((t->tp_richcompare == base->tp_richcompare || !t->tp_richcompare) && t->tp_hash == base->tp_hash);
}

bool is_plain_key(PyObject* o) { return is_plain(o, 0); }

bool is_python_class(PyTypeObject* t) {
    if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || (t->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)) return false;
    // C code makes heap types too, whose instances have more than attributes: with a copy of the name.
    return t->tp_name == PyUnicode_AsUTF8(reinterpret_cast<PyHeapTypeObject*>(t)->ht_name);
}

bool has_finaliser(PyTypeObject* t) {
    static PyObject* const name = PyUnicode_InternFromString("__del__");
    if (!t->tp_finalize || !is_python_class(t)) return false;
    PyObject* del = bz_type_lookup(t, name);
    return del && PyFunction_Check(del);
}

std::string type_name(PyTypeObject* t) { return t->tp_name; }

bool is_singleton(PyObject* o) {
    if (PyType_Check(o) || PyModule_Check(o) || PyCode_Check(o)) return true;
    if (PyCFunction_Check(o)) {
        PyObject* self = PyCFunction_GET_SELF(o);
        return !self || PyModule_Check(self) || PyType_Check(self);
    }
    static const char* const names[] = {"method_descriptor",
                                        "wrapper_descriptor",
                                        "classmethod_descriptor",
                                        "getset_descriptor",
                                        "member_descriptor",
                                        "torch.dtype",
                                        "torch.layout",
                                        "torch.memory_format",
                                        "torch.qscheme",
                                        "instancemethod",
                                        "PyCapsule",
                                        "_thread.lock",
                                        "_thread.RLock",
                                        "re.Pattern",
                                        "types.GenericAlias",
                                        "types.UnionType",
                                        "functools._lru_cache_wrapper"};
    for (const char* n : names)
        if (type_is_named(o, n)) return true;
    // enum members: their class's metaclass is EnumType
    return std::strcmp(Py_TYPE(reinterpret_cast<PyObject*>(Py_TYPE(o)))->tp_name, "EnumType") == 0;
}

SourceId Tracer::source_of(PyObject* o) const {
    auto it = identity_.find(o);
    return it == identity_.end() ? kNoSource : it->second;
}

bool Tracer::is_iterator_from_before(PyObject* it) const {
    // It may be reached without a source, through C code.
    bool moves = PyIter_Check(it) && Py_TYPE(it)->tp_iternext == solid_base(Py_TYPE(it))->tp_iternext;
    // Made by an instruction for the await that follows.
    if (std::strncmp(Py_TYPE(it)->tp_name, "async_generator_", 16) == 0 || type_is_named(it, "coroutine_wrapper"))
        return source_of(it) != kNoSource;
    return (moves || PyCoro_CheckExact(it) || PyAsyncGen_CheckExact(it)) && !is_fresh(it);
}

void Tracer::made(PyObject* o) {
    if (PyType_Check(o)) identity_.erase(o);  // its own class statement may have met it already
    if (is_primitive(o) || source_of(o) != kNoSource) return;
    if (fresh_.emplace(o, root_event).second) kept_.push_back(Owned::share(o));
}

void Tracer::know(PyObject* o, SourceId s) {
    auto [it, inserted] = identity_.try_emplace(o, s);
    if (inserted) {
        kept_.push_back(Owned::share(o));
    } else if (it->second != s && guards.sources[it->second].kind != SourceKind::Const) {
        guards.same_object(s, it->second, true);
    } else if (it->second != s) {
        guards.is(s, o);
    }
}

void Tracer::know_guarded(PyObject* o, SourceId s) { know(o, is_plain_descriptor(o) ? s : guards.sources.constant(o)); }

namespace {
// Marks of braze.mark_dynamic and its kin, which are torch's.
struct Marks {
    uint64_t dynamic = 0, maybe_dynamic = 0, fixed = 0;
    bool address = false;

    explicit Marks(PyObject* tensor) {
        PyObject** dict = bz_instance_dict_pointer(tensor);
        if (!dict || !*dict || PyDict_GET_SIZE(*dict) == 0) return;
        dynamic = dims(*dict, "_dynamo_dynamic_indices");
        maybe_dynamic = dims(*dict, "_dynamo_weak_dynamic_indices");
        fixed = dims(*dict, "_dynamo_static_indices");
        PyObject* kind = PyDict_GetItemString(*dict, "_dynamo_static_input_type");
        address = kind && PyUnicode_Check(kind) && PyUnicode_CompareWithASCIIString(kind, "guarded") == 0;
    }

  private:
    static uint64_t dims(PyObject* dict, const char* name) {
        PyObject* set = PyDict_GetItemString(dict, name);
        if (!set || !PyAnySet_Check(set)) return 0;
        uint64_t bits = 0;
        Py_ssize_t pos = 0;
        PyObject* k;
        Py_hash_t hash;
        while (_PySet_NextEntry(set, &pos, &k, &hash)) {
            long i = PyLong_Check(k) ? PyLong_AsLong(k) : -1;
            if (i >= 0 && i < 64) bits |= uint64_t{1} << i;
        }
        PyErr_Clear();
        return bits;
    }
};
}  // namespace

PyObject* Tracer::fake_for(PyObject* real, SourceId s) {
    auto it = input_of_.find(real);
    if (it != input_of_.end()) {
        if (s != kNoSource) know(real, s);
        return inputs[static_cast<size_t>(it->second)].fake.new_reference();
    }
    if (s == kNoSource) s = source_of(real);
    if (s == kNoSource) return stop("dynamic-value", "a tensor without a path");
    int id = static_cast<int>(inputs.size());
    const Marks marks(real);
    uint64_t dims = (dims_of(s) & ~marks.fixed) | marks.dynamic | marks.maybe_dynamic;
    symbols_ |= dims != 0;
    PyObject* fake = capture->fake_input(real, id, dims);
    if (!fake) return aborting ? nullptr : stop("unsupported-tensor", Py_TYPE(real)->tp_name);
    know(real, s);
    guards.type_is(s, Py_TYPE(real));
    if (marks.address) guards.is(s, real);
    inputs.push_back({s, Owned::share(real), Owned::steal(fake), false, marks.dynamic});
    input_of_.emplace(real, id);
    fake_inputs_.emplace(fake, id);
    Py_INCREF(fake);
    return fake;
}

PyObject* Tracer::loaded(PyObject* v, SourceId s) {
    if (!v) return nullptr;
    if (PyObject* symbols = stand_in(v, s)) {
        Py_DECREF(v);
        return symbols;
    }
    if (PyErr_Occurred()) return Py_DECREF(v), nullptr;
    if (is_tensor(v)) {
        if (capture->is_fake(v)) return v;
        PyObject* fake = fake_for(v, s);
        Py_DECREF(v);
        return fake;
    }
    if (note(v, s) < 0) {
        Py_DECREF(v);
        return nullptr;
    }
    return v;
}

int Tracer::note(PyObject* v, SourceId s) {
    if (s == kNoSource || is_symbolic(v)) return 0;
    if (is_fresh(v)) return 0;  // of a class whose statement is not over
    if (is_primitive(v)) {
        guards.equals(s, v);
        return 0;
    }
    if (is_tensor(v)) {
        if (!capture->is_fake(v)) {
            know(v, s);
            guards.type_is(s, Py_TYPE(v));
        }
        return 0;
    }
    if (guards.sources[s].kind == SourceKind::Const) {
        identity_.try_emplace(v, s);
        return 0;
    }
    auto known = identity_.find(v);
    if (known != identity_.end() && known->second == s) return 0;
    if (is_singleton(v)) {
        guards.is(s, v);
        if (known == identity_.end()) know_guarded(v, s);
        return 0;
    }
    if (is_constant_value(v)) {
        guards.equals(s, v);
        know(v, s);
        return 0;
    }
    guards.type_is(s, Py_TYPE(v));
    know(v, s);
    if (PyFunction_Check(v)) {
        SourceId code = guards.sources.add(SourceKind::FunctionCode, s, nullptr);
        guards.is(code, reinterpret_cast<PyFunctionObject*>(v)->func_code);
    } else if (PyMethod_Check(v)) {
        if (note(PyMethod_GET_SELF(v), guards.sources.add(SourceKind::MethodSelf, s, nullptr)) < 0) return -1;
        return note(PyMethod_GET_FUNCTION(v), guards.sources.add(SourceKind::MethodFunction, s, nullptr));
    }
    return 0;
}

PyObject* Tracer::result(PyObject* v) {
    if (!v) return nullptr;
    if (aborting) {
        Py_DECREF(v);
        return nullptr;
    }
    if (!is_primitive(v) && is_tensor(v) && !capture->is_fake(v)) {
        PyObject* fake = fake_for(v, kNoSource);
        Py_DECREF(v);
        return fake;
    }
    bool number = Py_TYPE(v) == symbolic_float->tp_base;  // of Tensor.item
    return symbols_ || number ? tensor_bridge()->with_own_numbers(v) : v;
}

int Tracer::use_callee(PyObject* fn, PyObject* first) {
    if (!fn || is_fresh(fn) || used_.contains(fn)) return 0;
    PyObject* name = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(fn)->func_code)->co_name;
    if (source_of(fn) == kNoSource && first && bz_type_lookup(Py_TYPE(first), name) == fn)
        type_attribute(Py_TYPE(first), name);
    if (source_of(fn) == kNoSource) know(fn, guards.sources.constant(fn));
    return use_function(fn);
}

int Tracer::use_function(PyObject* fn) {
    auto* f = reinterpret_cast<PyFunctionObject*>(fn);
    SourceId s = source_of(fn);
    if (s == kNoSource || !used_.insert(fn).second) return 0;
    SourceTable& t = guards.sources;
    if (f->func_defaults) {
        SourceId d = t.add(SourceKind::FunctionDefaults, s, nullptr);
        guards.length(d, PyTuple_GET_SIZE(f->func_defaults));
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(f->func_defaults); ++i)
            if (note(PyTuple_GET_ITEM(f->func_defaults, i), t.add(SourceKind::TupleItem, d, nullptr, i)) < 0) return -1;
    }
    if (f->func_kwdefaults) {
        SourceId d = t.add(SourceKind::FunctionKwDefaults, s, nullptr);
        Py_ssize_t pos = 0;
        PyObject *k, *v;
        while (PyDict_Next(f->func_kwdefaults, &pos, &k, &v))
            if (note(v, t.add(SourceKind::DictItem, d, k)) < 0) return -1;
    }
    for (Py_ssize_t i = 0; f->func_closure && i < PyTuple_GET_SIZE(f->func_closure); ++i)
        know(PyTuple_GET_ITEM(f->func_closure, i), t.add(SourceKind::FunctionClosure, s, nullptr, i));
    return 0;
}

SourceId Tracer::type_source(PyTypeObject* t) {
    auto* o = reinterpret_cast<PyObject*>(t);
    SourceId s = guards.sources.constant(o);
    if (!is_fresh(o)) identity_.try_emplace(o, s);
    return s;
}

// Of a class that the trace made: assumptions are about the classes from before that it inherits from.
PyObject* Tracer::inherited_attribute(PyTypeObject* t, PyObject* name) {
    for (Py_ssize_t i = 0; t->tp_mro && i < PyTuple_GET_SIZE(t->tp_mro); ++i) {
        auto* k = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(t->tp_mro, i));
        auto* o = reinterpret_cast<PyObject*>(k);
        PyObject* v = PyDict_GetItemWithError(k->tp_dict, name);
        if (!is_fresh(o) && !(k->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) && !journal.changed_slot(o, name)) {
            SourceId s = guards.sources.add(SourceKind::ClassDictItem, type_source(k), name);
            if (!v) {
                guards.absent(s);
            } else if (!PyFunction_Check(v) && Py_TYPE(v)->tp_descr_get) {
                guards.is(s, v);
            } else {
                note(v, s);
            }
        }
        if (v) return v;
    }
    return nullptr;
}

PyObject* Tracer::type_attribute(PyTypeObject* t, PyObject* name) {
    if (is_fresh(t)) return inherited_attribute(t, name);
    PyObject* v = bz_type_lookup(t, name);
    if (t->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) return v;
    if (journal.changed_slot(reinterpret_cast<PyObject*>(t), name)) return v;
    SourceId s = guards.sources.add(SourceKind::TypeAttribute, type_source(t), name);
    if (!v) {
        guards.absent(s);
        return nullptr;
    }
    if (is_primitive(v)) return v;  // guarded by whoever uses the value
    if (PyFunction_Check(v)) {      // by its code: a function defined again is the same program
        note(v, s);
        return v;
    }
    // Descriptors count by identity; other values are guarded when they are read.
    if (Py_TYPE(v)->tp_descr_get || is_singleton(v)) {
        guards.is(s, v);
        if (source_of(v) == kNoSource) know_guarded(v, s);
    }
    return v;
}

}  // namespace braze::frontend
