#include "frontend/effects/recipe.h"

#include <structmember.h>

#include <cstring>

#include "frontend/interp/addresses.h"
#include "frontend/interp/gradients.h"

namespace braze::frontend {

RecipeId Recipes::push(RecipeNode n) {
    nodes.push_back(std::move(n));
    return static_cast<RecipeId>(nodes.size()) - 1;
}

RecipeId Recipes::fail(PyObject* v) {
    if (failure.empty()) {
        failure = std::string("an object of type ") + Py_TYPE(v)->tp_name;
        culprit = Owned::share(v);
    }
    return -1;
}

static bool is_named(PyObject* o, const char* type) { return std::strcmp(Py_TYPE(o)->tp_name, type) == 0; }

// An alias or union of types, list[T], that is another one where T is another object.
static bool names_an_object(const Tracer& t, PyObject* v, int level = 0) {
    if (!is_named(v, "types.GenericAlias") && !is_named(v, "types.UnionType"))
        return level > 0 && !is_constant_value(v) && (!is_singleton(v) || t.is_fresh(v));
    Owned args = Owned::steal(PyObject_GetAttrString(v, "__args__"));
    if (!args || !PyTuple_Check(args.get()) || level > 64) return PyErr_Clear(), true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.get()); ++i)
        if (names_an_object(t, PyTuple_GET_ITEM(args.get(), i), level + 1)) return true;
    return false;
}

// A class that the trace made, be it `v` or its type.
static PyObject* fresh_class(const Tracer& t, PyObject* v) {
    if (PyType_Check(v) && t.is_fresh(v)) return v;
    auto* type = reinterpret_cast<PyObject*>(Py_TYPE(v));
    return t.is_fresh(type) ? type : nullptr;
}

// One object for ever, unless the trace made it: then it is one of each run's own.
static bool has_state(PyObject* v) {
    return is_named(v, "_thread.lock") || is_named(v, "_thread.RLock") || is_named(v, "functools._lru_cache_wrapper");
}

// Nothing but the program keeps it, and a segment is not to do so.
static bool belongs_to_program(const Tracer& t, PyObject* v) {
    return !t.is_fresh(v) && (PyType_Check(v) || PyModule_Check(v) || is_named(v, "functools._lru_cache_wrapper"));
}

RecipeId Recipes::record(Tracer& t, PyObject* v) {
    // Structures are followed by recursion; of cycles through what __reduce__ makes anew there is no end.
    constexpr int deepest = 300;
    struct Depth {
        int& n;
        explicit Depth(int& d) : n(d) { ++n; }
        ~Depth() { --n; }
    } depth(depth_);
    if (v && depth_ > deepest) return fail(v);
    return record_value(t, v);
}

RecipeId Recipes::record_value(Tracer& t, PyObject* v) {
    if (!v) return push({RecipeNode::Null});
    auto it = memo_.find(v);
    if (it != memo_.end()) return open_.contains(it->second) ? fail(v) : it->second;
    RecipeNode n{RecipeNode::Const};
    if (t.capture->is_fake(v)) {
        ValueRef ref = t.capture->value_of(v);
        if (ref.kind == ValueRef::NotFake) return fail(v);  // of a function transform that is still active
        if (ref.kind == ValueRef::Input) {
            n.kind = RecipeNode::Fetch;
            n.index = t.inputs[static_cast<size_t>(ref.index)].source;
        } else {
            n.kind = RecipeNode::Output;
            n.index = static_cast<int>(outputs.size());
            outputs.push_back(Owned::share(v));
            if (Owned gradient = gradient_of_result(v)) {
                RecipeId g = record(t, gradient.get());
                if (g < 0) return -1;
                n.parts = {g};
            }
        }
    } else if (is_symbolic(v)) {
        n.kind = RecipeNode::Output;
        n.index = static_cast<int>(outputs.size());
        outputs.push_back(Owned::share(v));
    } else if (PyObject* made = fresh_class(t, v)) {
        return fail(made);  // each run makes a class of its own
    } else if (SourceId s = t.source_of(v); s != kNoSource && !is_primitive(v)) {
        n.kind = RecipeNode::Fetch;
        n.index = s;
    } else if (t.is_address(v) || shows_address(v)) {
        return fail(v);
    } else if (is_primitive(v) || (is_singleton(v) && !(t.is_fresh(v) && has_state(v)) && !names_an_object(t, v)) ||
               (is_constant_value(v) && !t.is_fresh(v))) {
        if (belongs_to_program(t, v)) {
            n.kind = RecipeNode::Fetch;
            n.index = t.guards.sources.constant(v);
        } else {
            n.object = Owned::share(v);
        }
    } else if (t.is_tensor(v)) {
        return fail(v);  // a real tensor without a path
    } else {
        RecipeId id = push({RecipeNode::Null});
        memo_[v] = id;
        kept_.push_back(Owned::share(v));
        bool late = !PyList_Check(v) && !PyDict_Check(v) && !PyCell_Check(v) && !PyFunction_Check(v) &&
                    solid_base(Py_TYPE(v)) != &PyBaseObject_Type;
        if (late) open_.insert(id);
        RecipeId made = record_new(t, v, id);
        open_.erase(id);
        return made;
    }
    RecipeId id = push(std::move(n));
    memo_[v] = id;
    kept_.push_back(Owned::share(v));
    return id;
}

RecipeId Recipes::items(Tracer& t, RecipeId id, RecipeNode::Kind kind, PyObject* seq) {
    std::vector<RecipeId> parts;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(seq); ++i) {
        RecipeId p = record(t, PySequence_Fast_GET_ITEM(seq, i));
        if (p < 0) return -1;
        parts.push_back(p);
    }
    nodes[static_cast<size_t>(id)].kind = kind;
    nodes[static_cast<size_t>(id)].parts = std::move(parts);
    return id;
}

// The type of the view that `v` is, or iterates over.
static PyTypeObject* view_type(PyObject* v) {
    PyTypeObject* type = Py_TYPE(v);
    for (PyTypeObject* view : {&PyDictKeys_Type, &PyDictValues_Type, &PyDictItems_Type})
        if (type == view) return view;
    return type == &PyDictIterKey_Type     ? &PyDictKeys_Type
           : type == &PyDictIterValue_Type ? &PyDictValues_Type
           : type == &PyDictIterItem_Type  ? &PyDictItems_Type
                                           : nullptr;
}

static bool is_struct_sequence(PyObject* v) {
    return PyTuple_Check(v) && !PyTuple_CheckExact(v) &&
           PyObject_HasAttrString(reinterpret_cast<PyObject*>(Py_TYPE(v)), "n_sequence_fields");
}

RecipeId Recipes::record_new(Tracer& t, PyObject* v, RecipeId id) {
    auto node = [&]() -> RecipeNode& { return nodes[static_cast<size_t>(id)]; };
    if (PyTuple_CheckExact(v)) return items(t, id, RecipeNode::Tuple, v);
    if (PyList_CheckExact(v)) return items(t, id, RecipeNode::List, v);
    if (PyDict_CheckExact(v)) {
        std::vector<RecipeId> parts;
        Py_ssize_t pos = 0;
        PyObject *k, *x;
        while (PyDict_Next(v, &pos, &k, &x)) {
            if (!is_symbolic(k) && !is_plain_key(k)) return fail(v);  // its __hash__ would run again
            RecipeId a = record(t, k), b = a < 0 ? -1 : record(t, x);
            if (b < 0) return -1;
            parts.push_back(a);
            parts.push_back(b);
        }
        node().kind = RecipeNode::Dict;
        node().parts = std::move(parts);
        return id;
    }
    if (PySet_CheckExact(v) || PyFrozenSet_CheckExact(v)) {
        Owned list = Owned::steal(plain_elements(v));
        for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i)
            if (PyObject* x = PyList_GET_ITEM(list.get(), i); !is_symbolic(x) && !is_plain_key(x)) return fail(v);
        return list ? items(t, id, PySet_CheckExact(v) ? RecipeNode::Set : RecipeNode::FrozenSet, list.get()) : -1;
    }
    if (PySlice_Check(v)) {
        auto* s = reinterpret_cast<PySliceObject*>(v);
        Owned parts = Owned::steal(PyTuple_Pack(3, s->start, s->stop, s->step));
        return items(t, id, RecipeNode::Slice, parts.get());
    }
    if (is_constant_value(v)) {
        node().kind = RecipeNode::Const;
        node().object = Owned::share(v);
        return id;
    }
    if (PyFunction_Check(v)) return record_function(t, v, id);
    if (PyCell_Check(v)) {
        RecipeId c = record(t, PyCell_GET(v));
        if (c < 0) return -1;
        node().kind = RecipeNode::Cell;
        node().parts = {c};
        return id;
    }
    if (PyMethod_Check(v)) {
        RecipeId f = record(t, PyMethod_GET_FUNCTION(v)), self = f < 0 ? -1 : record(t, PyMethod_GET_SELF(v));
        if (self < 0) return -1;
        node().kind = RecipeNode::Method;
        node().parts = {f, self};
        return id;
    }
    if (PyCFunction_Check(v)) {
        auto* f = reinterpret_cast<PyCFunctionObject*>(v);
        RecipeId self = record(t, f->m_self);
        if (self < 0) return -1;
        node().kind = RecipeNode::BoundBuiltin;
        if (f->m_ml->ml_flags & METH_METHOD) return fail(v);
        node().object = Owned::share(f->m_module);
        node().method = f->m_ml;
        node().parts = {self};
        return id;
    }
    if (Py_TYPE(v) == &_PyMethodWrapper_Type) {  // not by its name: super().__setattr__ is not self.__setattr__
        Owned cls = Owned::steal(PyObject_GetAttrString(v, "__objclass__")),
              name = Owned::steal(PyObject_GetAttrString(v, "__name__")),
              self = Owned::steal(PyObject_GetAttrString(v, "__self__"));
        if (!cls || !name || !self) return PyErr_Clear(), fail(v);
        PyObject* slot = PyDict_GetItemWithError(reinterpret_cast<PyTypeObject*>(cls.get())->tp_dict, name.get());
        RecipeId s = slot ? record(t, self.get()) : fail(v);
        if (s < 0) return -1;
        node().kind = RecipeNode::BoundSlot;
        node().object = Owned::share(slot);
        node().parts = {s};
        return id;
    }
    if (is_named(v, "types.GenericAlias")) return record_alias(t, v, id);
    if (view_type(v)) return record_dict_view(t, v, id);
    if (is_struct_sequence(v)) {
        node().type = t.guards.sources.lifetimes.depend_on(reinterpret_cast<PyObject*>(Py_TYPE(v)));
        Owned list = Owned::steal(PySequence_List(v));
        return items(t, id, RecipeNode::StructSeq, list.get());
    }
    for (const Hook& h : t.hooks)
        if (h.handle.get() == v) {
            if (h.removed || h.input < 0) return fail(v);
            return record_call(t, v, PyTuple_GET_ITEM(h.registered.get(), 0), PyTuple_GET_ITEM(h.registered.get(), 1));
        }
    // C code found it somewhere: it is not the trace's, and there is no path to it.
    if (is_python_class(Py_TYPE(v)) && !t.is_fresh(v)) return fail(v);
    if (is_python_class(Py_TYPE(v)) || std::strncmp(Py_TYPE(v)->tp_name, "collections.", 12) == 0 ||
        PyType_IsSubtype(Py_TYPE(v), reinterpret_cast<PyTypeObject*>(PyExc_BaseException)))
        return record_instance(t, v, id);
    return record_reduce(t, v, id);
}

RecipeId Recipes::record_alias(Tracer& t, PyObject* v, RecipeId id) {
    Owned origin = Owned::steal(PyObject_GetAttrString(v, "__origin__")),
          args = Owned::steal(PyObject_GetAttrString(v, "__args__")),
          unpacked = Owned::steal(PyObject_GetAttrString(v, "__unpacked__"));
    if (!origin || !args || unpacked.get() != Py_False) return PyErr_Clear(), fail(v);
    Owned both = Owned::steal(PyTuple_Pack(2, origin.get(), args.get()));
    kept_.push_back(both);
    RecipeNode node{RecipeNode::Call};
    RecipeId callee = record(t, reinterpret_cast<PyObject*>(Py_TYPE(v)));
    RecipeId arguments = callee < 0 ? -1 : record(t, both.get());
    RecipeId state = arguments < 0 ? -1 : record(t, nullptr);
    if (state < 0) return -1;
    node.parts = {callee, arguments, state};
    nodes[static_cast<size_t>(id)] = std::move(node);
    return id;
}

// Views of a dict, and their iterators, which are views of which some elements have been taken. (__reduce__ would make
// an iterator of a list.)
RecipeId Recipes::record_dict_view(Tracer& t, PyObject* v, RecipeId id) {
    PyTypeObject* view = view_type(v);
    PyObject* dict = nullptr;  // both visit it first
    Py_TYPE(v)->tp_traverse(
        v,
        [](PyObject* part, void* found) {
            *static_cast<PyObject**>(found) = part;
            return 1;
        },
        &dict);
    // One that is used up has none. What the trace changed is changed back when this is made.
    if (!dict || !PyDict_CheckExact(dict) || t.journal.changed(dict)) return fail(v);
    RecipeNode node{view == Py_TYPE(v) ? RecipeNode::DictView : RecipeNode::DictIterator};
    node.type = t.guards.sources.lifetimes.depend_on(reinterpret_cast<PyObject*>(view));
    if (node.kind == RecipeNode::DictIterator) {
        Py_ssize_t left = PyObject_LengthHint(v, -1);
        // (no more: or the trace changed the dict since the iterator was made)
        if (left < 0 || (left == 0 && t.source_of(dict) == kNoSource)) return PyErr_Clear(), fail(v);
        node.index = static_cast<int>(PyDict_GET_SIZE(dict) - left);
        if (t.source_of(dict) != kNoSource && t.read_elements(dict) < 0) return -1;
    }
    auto known = memo_.find(dict);
    if (known != memo_.end() && nodes[static_cast<size_t>(known->second)].kind == RecipeNode::Null) return fail(v);
    RecipeId part = record(t, dict);
    if (part < 0) return -1;
    node.parts = {part};
    nodes[static_cast<size_t>(id)] = std::move(node);
    return id;
}

RecipeId Recipes::record_function(Tracer& t, PyObject* v, RecipeId id) {
    auto* f = reinterpret_cast<PyFunctionObject*>(v);
    if (!t.is_fresh(v)) {  // from before, reached through C: one object for ever
        nodes[static_cast<size_t>(id)].kind = RecipeNode::Fetch;
        nodes[static_cast<size_t>(id)].index = t.guards.sources.constant(v);
        return id;
    }
    RecipeNode n{RecipeNode::Function};
    n.object = Owned::share(f->func_code);
    n.extra =
        Owned::steal(PyTuple_Pack(5, f->func_globals, f->func_name, f->func_qualname,
                                  f->func_doc ? f->func_doc : Py_None, f->func_module ? f->func_module : Py_None));
    PyObject* parts[] = {f->func_defaults, f->func_kwdefaults, f->func_closure, f->func_dict, f->func_annotations};
    for (PyObject* p : parts) {
        RecipeId r = -1;
        bool annotations = p == f->func_annotations && p && !PyTuple_CheckExact(p);  // (a tuple until it is asked for)
        if (p && (p == f->func_dict || p == f->func_closure || annotations)) {
            // made by the interpreter together with the function
            auto known = memo_.find(p);
            if (known == memo_.end()) {
                RecipeId fresh = push({RecipeNode::Null});
                memo_[p] = fresh;
                r = record_new(t, p, fresh);
            } else {
                r = open_.contains(known->second) ? fail(v) : known->second;
            }
        } else {
            r = record(t, p);
        }
        if (r < 0) return -1;
        n.parts.push_back(r);
    }
    nodes[static_cast<size_t>(id)] = std::move(n);
    return id;
}

// Types of C code that __reduce__ makes again, exactly, out of what it names.
static bool reduces_exactly(PyTypeObject* t) {
    static const char* const names[] = {"list_iterator",
                                        "tuple_iterator",
                                        "str_iterator",
                                        "str_ascii_iterator",
                                        "bytes_iterator",
                                        "range_iterator",
                                        "longrange_iterator",
                                        "list_reverseiterator",
                                        "reversed",
                                        "enumerate",
                                        "zip",
                                        "map",
                                        "filter",
                                        "functools.partial",
                                        "operator.itemgetter",
                                        "operator.attrgetter",
                                        "operator.methodcaller",
                                        "types.SimpleNamespace",
                                        "decimal.Decimal",
                                        "itertools.count",
                                        "itertools.repeat",
                                        "itertools.chain",
                                        "itertools.islice",
                                        "itertools.starmap",
                                        "itertools.zip_longest",
                                        "torch.Size",
                                        "builtin_function_or_method"};
    for (const char* n : names)
        if (std::strcmp(t->tp_name, n) == 0) return true;
    return std::strncmp(t->tp_name, "datetime.", 9) == 0 || std::strncmp(t->tp_name, "torch.", 6) == 0;
}

RecipeId Recipes::record_instance(Tracer& t, PyObject* v, RecipeId id) {
    PyTypeObject* type = Py_TYPE(v);
    PyTypeObject* base = solid_base(type);
    bool exception = PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
    Owned value = plain_value(v, base);
    bool known = value || base == &PyBaseObject_Type || base == &PyList_Type || base == &PyDict_Type ||
                 base == &PyTuple_Type || base == &PySet_Type || base == &PyODict_Type || exception;
    if (!known) return record_reduce(t, v, id);
    if (exception) {  // it was raised: the frames in its traceback are not those of a real run
        Owned traceback = Owned::steal(PyException_GetTraceback(v));
        if (traceback) return fail(v);
    }
    RecipeNode n{RecipeNode::Instance};
    n.type = t.guards.sources.lifetimes.depend_on(reinterpret_cast<PyObject*>(type));
    n.extra = Owned::share(reinterpret_cast<PyObject*>(base));
    PyObject** dp = bz_instance_dict_pointer(v);
    RecipeId dict = push({RecipeNode::Null});
    if (dp && *dp) {
        if (*dp == v || ++depth_ > 300) return fail(v);
        // The new instance has a dict of its own: nothing else may hold this one.
        if (memo_.contains(*dp)) return fail(v);
        memo_[*dp] = dict;
        open_.insert(dict);
        RecipeId made = record_new(t, *dp, dict);
        --depth_;
        if (made < 0) return -1;
    }
    RecipeId contents = -1;
    if (value) {
        contents = record(t, value.get());
    } else if (base == &PyList_Type) {
        Owned l = Owned::steal(PyList_GetSlice(v, 0, PyList_GET_SIZE(v)));
        contents = record_new(t, l.get(), push({RecipeNode::Null}));
    } else if (base == &PyTuple_Type) {
        Owned l = Owned::steal(PyTuple_GetSlice(v, 0, PyTuple_GET_SIZE(v)));
        Owned exact = Owned::steal(PySequence_Tuple(l.get()));
        Owned list = Owned::steal(PyList_New(0));
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(v); ++i) PyList_Append(list.get(), PyTuple_GET_ITEM(v, i));
        contents = items(t, push({RecipeNode::Null}), RecipeNode::Tuple, list.get());
    } else if (base == &PySet_Type) {
        Owned l = Owned::steal(plain_elements(v));
        contents = record_new(t, l.get(), push({RecipeNode::Null}));
    } else if (PyDict_Check(v)) {
        Owned pairs = Owned::steal(dict_items(v));
        contents = record_new(t, pairs.get(), push({RecipeNode::Null}));
    } else if (exception) {
        Owned args = Owned::steal(PyObject_GetAttrString(v, "args"));
        contents = record_new(t, args.get(), push({RecipeNode::Null}));
    } else {
        contents = push({RecipeNode::Null});
    }
    if (contents < 0) return -1;
    n.parts = {dict, contents};
    // __slots__ along the MRO
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
        auto* k = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
        if (!is_python_class(k) && !exception) continue;
        Py_ssize_t pos = 0;
        PyObject *name, *d;
        while (PyDict_Next(k->tp_dict, &pos, &name, &d)) {
            if (Py_TYPE(d) != &PyMemberDescr_Type) continue;
            if (reinterpret_cast<PyMemberDescrObject*>(d)->d_member->flags & READONLY) continue;
            Owned x = Owned::steal(Py_TYPE(d)->tp_descr_get(d, v, reinterpret_cast<PyObject*>(type)));
            if (!x) {
                PyErr_Clear();
                continue;
            }
            RecipeId r = record(t, x.get());
            if (r < 0) return -1;
            n.names.push_back(Owned::share(name));
            n.parts.push_back(r);
        }
    }
    for (const char* name : {"__cause__", "__context__"}) {  // the former sets __suppress_context__
        Owned x = Owned::steal(exception ? PyObject_GetAttrString(v, name) : nullptr);
        if (!x || x.get() == Py_None) continue;
        RecipeId r = record(t, x.get());
        if (r < 0) return -1;
        n.names.push_back(Owned::steal(PyUnicode_InternFromString(name)));
        n.parts.push_back(r);
    }
    nodes[static_cast<size_t>(id)] = std::move(n);
    return id;
}

// Iterators, partials and other C objects say themselves how to make them.
RecipeId Recipes::record_reduce(Tracer& t, PyObject* v, RecipeId id) {
    if (PyGen_Check(v) || PyCoro_CheckExact(v) || Py_TYPE(v) == &PySuper_Type) return fail(v);
    if (Py_TYPE(v)->tp_getattro != PyObject_GenericGetAttr || !reduces_exactly(Py_TYPE(v))) return fail(v);
    Owned r = Owned::steal(PyObject_CallMethod(v, "__reduce__", nullptr));
    if (!r || !PyTuple_Check(r.get()) || PyTuple_GET_SIZE(r.get()) < 2) {
        PyErr_Clear();
        return fail(v);
    }
    Py_ssize_t n = PyTuple_GET_SIZE(r.get());
    for (Py_ssize_t i = 3; i < n; ++i)
        if (PyTuple_GET_ITEM(r.get(), i) != Py_None) return fail(v);
    kept_.push_back(r);
    RecipeNode node{RecipeNode::Call};
    // The tuple and what __reduce__ made for it are new; what they hold is not.
    RecipeId callee = record(t, PyTuple_GET_ITEM(r.get(), 0));
    RecipeId args = callee < 0 ? -1 : record(t, PyTuple_GET_ITEM(r.get(), 1));
    RecipeId state =
        args < 0 ? -1
                 : record(t, n > 2 && PyTuple_GET_ITEM(r.get(), 2) != Py_None ? PyTuple_GET_ITEM(r.get(), 2) : nullptr);
    if (state < 0) return -1;
    node.parts = {callee, args, state};
    nodes[static_cast<size_t>(id)] = std::move(node);
    return id;
}

RecipeId Recipes::record_call(Tracer& t, PyObject* v, PyObject* function, PyObject* arguments) {
    RecipeId id = memo_.contains(v) ? memo_[v] : push({RecipeNode::Null});
    memo_[v] = id;
    RecipeNode node{RecipeNode::Call};
    RecipeId callee = record(t, function);
    RecipeId args = callee < 0 ? -1 : record(t, arguments);
    RecipeId state = args < 0 ? -1 : record(t, nullptr);
    if (state < 0) return -1;
    node.parts = {callee, args, state};
    nodes[static_cast<size_t>(id)] = std::move(node);
    return id;
}

void Recipes::forget_trace() {
    memo_.clear();
    kept_.clear();
    outputs.clear();
    culprit = Owned();
}

}  // namespace braze::frontend
