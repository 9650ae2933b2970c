// Rebuilding at run time.
#include <algorithm>

#include "frontend/effects/recipe.h"

namespace braze::frontend {

PyObject* Builder::build(RecipeId id) {
    PyObject*& slot = built_[static_cast<size_t>(id)];
    if (slot) return slot;
    PyObject* o = make(id);
    if (o && !slot) {
        slot = o;
    } else if (o && slot != o) {
        Py_DECREF(o);
    }
    return slot;
}

PyObject* Builder::make(RecipeId id) {
    const RecipeNode& n = recipes_.nodes[static_cast<size_t>(id)];
    PyObject*& slot = built_[static_cast<size_t>(id)];
    auto count = static_cast<Py_ssize_t>(n.parts.size());
    switch (n.kind) {
        case RecipeNode::Null: return nullptr;
        case RecipeNode::Const: return n.object.new_reference();
        case RecipeNode::Fetch: {
            PyObject* v = fetcher_.fetch(n.index);
            if (!v) PyErr_SetString(PyExc_SystemError, "braze: a source vanished between guard and use");
            return Py_XNewRef(v);
        }
        case RecipeNode::Output: {
            slot = Py_NewRef(outputs_[n.index]);
            if (n.parts.empty()) return slot;
            static PyObject* grad = PyUnicode_InternFromString("grad");
            PyObject* gradient = build(n.parts[0]);
            return gradient && PyObject_GenericSetAttr(slot, grad, gradient) == 0 ? slot : nullptr;
        }
        case RecipeNode::Tuple:
        case RecipeNode::StructSeq: {
            Owned tuple = Owned::steal(PyTuple_New(count));
            for (Py_ssize_t i = 0; tuple && i < count; ++i) {
                PyObject* x = build(n.parts[static_cast<size_t>(i)]);
                if (!x) return nullptr;
                PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(x));
            }
            return n.kind == RecipeNode::Tuple ? tuple.release() : PyObject_CallOneArg(n.type.get(), tuple.get());
        }
        case RecipeNode::List: {
            slot = PyList_New(0);
            for (RecipeId p : n.parts) {
                PyObject* x = build(p);
                if (!x || PyList_Append(slot, x) < 0) return nullptr;
            }
            return slot;
        }
        case RecipeNode::Dict: {
            slot = PyDict_New();
            for (size_t i = 0; i < n.parts.size(); i += 2) {
                PyObject *k = build(n.parts[i]), *x = k ? build(n.parts[i + 1]) : nullptr;
                if (!x || PyDict_SetItem(slot, k, x) < 0) return nullptr;
            }
            return slot;
        }
        case RecipeNode::Set:
        case RecipeNode::FrozenSet: {
            Owned s = Owned::steal(PySet_New(nullptr));
            for (RecipeId p : n.parts) {
                PyObject* x = build(p);
                if (!x || PySet_Add(s.get(), x) < 0) return nullptr;
            }
            return n.kind == RecipeNode::Set ? s.release() : PyFrozenSet_New(s.get());
        }
        case RecipeNode::Slice: {
            PyObject *a = build(n.parts[0]), *b = build(n.parts[1]), *c = build(n.parts[2]);
            return a && b && c ? PySlice_New(a, b, c) : nullptr;
        }
        case RecipeNode::Cell: {
            slot = PyCell_New(nullptr);
            PyObject* x = build(n.parts[0]);
            if (!x && PyErr_Occurred()) return nullptr;
            PyCell_Set(slot, x);
            return slot;
        }
        case RecipeNode::Method: {
            PyObject *f = build(n.parts[0]), *self = f ? build(n.parts[1]) : nullptr;
            return self ? PyMethod_New(f, self) : nullptr;
        }
        case RecipeNode::BoundBuiltin: {
            PyObject* self = build(n.parts[0]);
            return self ? PyCMethod_New(n.method, self, n.object.get(), nullptr) : nullptr;
        }
        case RecipeNode::BoundSlot: {
            PyObject* self = build(n.parts[0]);
            return self ? Py_TYPE(n.object.get())
                              ->tp_descr_get(n.object.get(), self, reinterpret_cast<PyObject*>(Py_TYPE(self)))
                        : nullptr;
        }
        case RecipeNode::DictView:
        case RecipeNode::DictIterator: {
            PyObject* dict = build(n.parts[0]);
            Owned view =
                Owned::steal(dict ? _PyDictView_New(dict, reinterpret_cast<PyTypeObject*>(n.type.get())) : nullptr);
            if (!view || n.kind == RecipeNode::DictView) return view.release();
            Owned it = Owned::steal(PyObject_GetIter(view.get()));
            for (int i = 0; it && i < n.index; ++i)
                if (!Owned::steal(PyIter_Next(it.get())))
                    return PyErr_SetString(PyExc_SystemError, "braze: a dict lost elements"), nullptr;
            return it.release();
        }
        case RecipeNode::Call: {
            PyObject *f = build(n.parts[0]), *a = f ? build(n.parts[1]) : nullptr;
            if (!a) return nullptr;
            const int mode = bz_mode_set(BZ_OFF);  // what makes an object is not worth a compilation
            Owned r = Owned::steal(PyObject_Call(f, a, nullptr));
            bz_mode_set(mode);
            if (!r) return nullptr;
            if (PyObject* state = build(n.parts[2])) {
                static PyObject* name = PyUnicode_InternFromString("__setstate__");
                Owned set = Owned::steal(PyObject_GetAttr(r.get(), name));
                PyObject** dp = set ? nullptr : bz_instance_dict_pointer(r.get());
                if (set) {
                    if (!Owned::steal(PyObject_CallOneArg(set.get(), state))) return nullptr;
                } else if (dp && *dp && PyDict_Check(state)) {  // as pickle does without __setstate__
                    PyErr_Clear();
                    if (PyDict_Update(*dp, state) < 0) return nullptr;
                } else {
                    return nullptr;
                }
            } else if (PyErr_Occurred()) {
                return nullptr;
            }
            return r.release();
        }
        case RecipeNode::Function: {
            PyObject* x = n.extra.get();
            slot = PyFunction_NewWithQualName(n.object.get(), PyTuple_GET_ITEM(x, 0), PyTuple_GET_ITEM(x, 2));
            if (!slot) return nullptr;
            auto* f = reinterpret_cast<PyFunctionObject*>(slot);
            PyObject** fields[] = {&f->func_defaults, &f->func_kwdefaults, &f->func_closure, &f->func_dict,
                                   &f->func_annotations};
            for (size_t i = 0; i < n.parts.size(); ++i) {
                PyObject* p = build(n.parts[i]);
                if (!p && PyErr_Occurred()) return nullptr;
                if (p) Py_XSETREF(*fields[i], Py_NewRef(p));
            }
            Py_XSETREF(f->func_name, Py_NewRef(PyTuple_GET_ITEM(x, 1)));
            Py_XSETREF(f->func_doc, Py_NewRef(PyTuple_GET_ITEM(x, 3)));
            Py_XSETREF(f->func_module, Py_NewRef(PyTuple_GET_ITEM(x, 4)));
            return slot;
        }
        case RecipeNode::Instance: return make_instance(id, n);
    }
    return nullptr;
}

PyObject* Builder::make_instance(RecipeId id, const RecipeNode& n) {
    PyObject*& slot = built_[static_cast<size_t>(id)];
    auto* type = reinterpret_cast<PyTypeObject*>(n.type.get());
    auto* base = reinterpret_cast<PyTypeObject*>(n.extra.get());
    bool exception = PyType_IsSubtype(base, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
    bool tuple = base == &PyTuple_Type || base == &PyLong_Type || base == &PyFloat_Type || base == &PyComplex_Type ||
                 base == &PyUnicode_Type || base == &PyBytes_Type;  // cannot be changed: made whole
    Owned args = Owned::steal(PyTuple_New(0));
    if (tuple || exception) {  // contents belong to the constructor
        PyObject* contents = build(n.parts[1]);
        if (!contents) return nullptr;
        args = tuple ? Owned::steal(PyTuple_Pack(1, contents)) : Owned::share(contents);
    }
    slot = base->tp_new(type, args.get(), nullptr);
    if (!slot) return nullptr;
    if (base == &PyODict_Type && base->tp_init(slot, args.get(), nullptr) < 0) return nullptr;
    if (exception && base->tp_init && base->tp_init(slot, args.get(), nullptr) < 0) PyErr_Clear();
    if (!tuple && !exception) {
        PyObject* contents = build(n.parts[1]);
        if (!contents && PyErr_Occurred()) return nullptr;
        if (contents && PyList_Check(slot) && PyList_SetSlice(slot, 0, 0, contents) < 0) return nullptr;
        if (contents && PyDict_Check(slot)) {
            for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(contents); ++i) {
                PyObject* p = PyTuple_GET_ITEM(contents, i);
                if (dict_set(slot, PyTuple_GET_ITEM(p, 0), PyTuple_GET_ITEM(p, 1)) < 0) return nullptr;
            }
        }
        if (contents && PySet_Check(slot) && set_assign(slot, contents) < 0) return nullptr;
    }
    PyObject* dict = build(n.parts[0]);
    if (!dict && PyErr_Occurred()) return nullptr;
    if (dict) {
        PyObject** dp = bz_instance_dict_pointer(slot);
        if (dp && !*dp) {
            Owned made = Owned::steal(PyObject_GenericGetDict(slot, nullptr));
            dp = bz_instance_dict_pointer(slot);
        }
        if (!dp || !*dp || PyDict_Update(*dp, dict) < 0) return nullptr;
    }
    for (size_t i = 2; i < n.parts.size(); ++i) {
        PyObject* x = build(n.parts[i]);
        if (!x || PyObject_GenericSetAttr(slot, n.names[i - 2].get(), x) < 0) return nullptr;
    }
    return slot;
}

// A place that holds nothing at the end: whether there was something at the start is an assumption. Otherwise what is
// there is put there, even where it is what was there: another run may start with something else.
static bool needs_effect(Tracer& t, const Change& c, PyObject* now) {
    if (now) return true;
    SourceId s = t.source_of(c.holder ? c.holder.get() : c.target.get());
    if (s == kNoSource) return static_cast<bool>(c.old);
    SourceTable& sources = t.guards.sources;
    if (c.kind == Change::Slot) {
        PyObject* member = _PyType_Lookup(Py_TYPE(c.target.get()), c.key.get());
        if (!member || Py_TYPE(member) != &PyMemberDescr_Type) return true;
        SourceId slot = sources.slot(s, member);
        c.old ? t.guards.present(slot) : t.guards.absent(slot);
    } else {
        SourceId d = c.holder ? sources.add(SourceKind::InstanceDict, s, nullptr) : s;
        if (c.old) {
            t.guards.present(sources.add(SourceKind::DictItem, d, c.key.get()));
        } else {
            t.guards.dict_lacks(d, c.key.get());
        }
    }
    return static_cast<bool>(c.old);
}

static void set_target(Tracer& t, Effect& e, PyObject* o) {
    e.target = t.source_of(o);
    e.object = e.target == kNoSource ? t.guards.sources.lifetimes.depend_on(o) : Ref();
}

// The changed keys of a dict from which something was deleted: what is new, or there again, goes to the end in order.
static bool record_moved_keys(Tracer& t, Recipes& r, PyObject* dict, std::vector<Effect>& out) {
    std::vector<const Change*> changes;
    for (const Change& c : t.journal.changes())
        if (c.kind == Change::DictKey && c.target.get() == dict) changes.push_back(&c);
    auto emit = [&](const Change& c, PyObject* now) {
        Effect e{};
        bool attribute = static_cast<bool>(c.holder);
        set_target(t, e, attribute ? c.holder.get() : c.target.get());
        e.key = c.key;
        e.kind = now ? (attribute ? Effect::SetAttr : Effect::SetKey) : (attribute ? Effect::DelAttr : Effect::DelKey);
        if (now && (e.value = r.record(t, now)) < 0) return false;
        out.push_back(std::move(e));
        return true;
    };
    for (const Change* c : changes) {
        PyObject* now = dict_get(dict, c->key.get());
        if (now ? c->old && c->moved : needs_effect(t, *c, nullptr)) emit(*c, nullptr);
    }
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict, &at, &key, &value)) {
        for (const Change* c : changes) {
            bool text = PyUnicode_CheckExact(key) && PyUnicode_CheckExact(c->key.get());
            if (key != c->key.get() && !(text && PyUnicode_Compare(key, c->key.get()) == 0)) continue;
            if (!emit(*c, value)) return false;
        }
    }
    return true;
}

bool record_effects(Tracer& t, Recipes& r, std::vector<Effect>& out) {
    for (const Change& c : t.journal.changes()) {
        PyObject* target = c.target.get();
        PyObject* changed = c.holder ? c.holder.get() : target;
        if (t.is_fresh(changed) && t.source_of(changed) == kNoSource)
            continue;  // a class before its statement was over
        Effect e{};
        set_target(t, e, c.kind == Change::DictKey ? changed : target);
        e.key = c.key;
        auto value = [&](PyObject* v) {
            e.value = r.record(t, v);
            return e.value >= 0;
        };
        bool attribute = false;
        switch (c.kind) {
            case Change::DictOrder:
                if (!record_moved_keys(t, r, target, out)) return false;
                continue;
            case Change::DictKey: {
                if (t.journal.deletes_from(target)) continue;
                attribute = static_cast<bool>(c.holder);
                PyObject* now = dict_get(target, c.key.get());
                if (!needs_effect(t, c, now)) continue;
                e.kind = now ? (attribute ? Effect::SetAttr : Effect::SetKey)
                             : (attribute ? Effect::DelAttr : Effect::DelKey);
                if (now && !value(now)) return false;
                break;
            }
            case Change::Slot: {
                Owned now = Owned::steal(PyObject_GenericGetAttr(target, c.key.get()));
                PyErr_Clear();
                if (!needs_effect(t, c, now.get())) continue;
                e.kind = now ? Effect::SetAttr : Effect::DelAttr;
                if (now && !value(now.get())) return false;
                break;
            }
            case Change::TypeAttr: {
                PyObject* now = PyDict_GetItemWithError(reinterpret_cast<PyTypeObject*>(target)->tp_dict, c.key.get());
                if (!now && !c.old) return false;
                e.kind = Effect::TypeAttr;
                if (!value(now)) return false;
                break;
            }
            case Change::DictAll: {
                Owned pairs = Owned::steal(dict_items(target));
                e.kind = Effect::DictContents;
                t.made(pairs.get());
                if (!value(pairs.get())) return false;
                break;
            }
            case Change::ListAppends: {
                bool superseded = false;
                for (const Change& d : t.journal.changes())
                    superseded |= d.kind == Change::ListAll && d.target.get() == target;
                if (superseded || PyList_GET_SIZE(target) == c.length) continue;
                Owned tail = Owned::steal(PyList_GetSlice(target, c.length, PyList_GET_SIZE(target)));
                e.kind = Effect::ListExtend;
                if (!value(tail.get())) return false;
                break;
            }
            case Change::ListAll:
            case Change::SetAll:
            case Change::DequeAll: {
                Owned all = Owned::steal(plain_elements(target));
                if (!all) return false;
                e.kind = c.kind == Change::ListAll  ? Effect::ListContents
                         : c.kind == Change::SetAll ? Effect::SetContents
                                                    : Effect::DequeContents;
                if (!value(all.get())) return false;
                break;
            }
            case Change::Cell:
                e.kind = Effect::CellContents;
                if (!value(PyCell_GET(target))) return false;
                break;
        }
        out.push_back(std::move(e));
    }
    return true;
}

void Needs::add(const Recipes& r, const std::vector<Effect>& effects) {
    for (const RecipeNode& n : r.nodes) {
        if (n.kind == RecipeNode::Fetch) sources.push_back(n.index);
        if (n.type) objects.push_back(n.type);
    }
    for (const Effect& e : effects) {
        if (e.target != kNoSource) sources.push_back(e.target);
        if (e.object) objects.push_back(e.object);
    }
    std::sort(sources.begin(), sources.end());
    sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
}

int make_calls(const std::vector<Effect>& effects, Builder& b) {
    for (const Effect& e : effects)
        if (e.kind == Effect::Call && !b.build(e.value)) return -1;
    return 0;
}

int apply_effects(const std::vector<Effect>& effects, Builder& b, Fetcher& f) {
    // Everything is built and found before the first change: a change must not alter what another one reads.
    std::vector<Owned> targets;
    for (const Effect& e : effects) {
        PyObject* t = e.target == kNoSource ? e.object.get() : f.fetch(e.target);
        if (!t && e.kind != Effect::Call) {
            PyErr_SetString(PyExc_SystemError, "braze: the target of a side effect vanished");
            return -1;
        }
        targets.push_back(Owned::share(t));
        if (e.value >= 0 && !b.build(e.value) && PyErr_Occurred()) return -1;
    }
    for (size_t i = 0; i < effects.size(); ++i) {
        const Effect& e = effects[i];
        PyObject *t = targets[i].get(), *v = e.value >= 0 ? b.build(e.value) : nullptr;
        int err = 0;
        switch (e.kind) {
            case Effect::SetAttr: err = PyObject_GenericSetAttr(t, e.key.get(), v); break;
            case Effect::DelAttr: err = PyObject_GenericSetAttr(t, e.key.get(), nullptr); break;
            case Effect::SetKey: err = dict_set(t, e.key.get(), v); break;
            case Effect::DelKey: err = dict_delete(t, e.key.get()); break;
            case Effect::DictContents: err = dict_assign(t, v); break;
            case Effect::ListExtend: err = PyList_SetSlice(t, PyList_GET_SIZE(t), PyList_GET_SIZE(t), v); break;
            case Effect::ListContents: err = PyList_SetSlice(t, 0, PyList_GET_SIZE(t), v); break;
            case Effect::SetContents: err = set_assign(t, v); break;
            case Effect::DequeContents: err = deque_assign(t, v); break;
            case Effect::CellContents: err = PyCell_Set(t, v); break;
            case Effect::Call: break;
            case Effect::TypeAttr: err = PyType_Type.tp_setattro(t, e.key.get(), v); break;
        }
        if (err < 0) return -1;
    }
    return 0;
}

}  // namespace braze::frontend
