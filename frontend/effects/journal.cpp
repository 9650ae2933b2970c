#include "frontend/effects/journal.h"

#include "frontend/interp/tracer.h"

namespace braze::frontend {

PyObject* dict_items(PyObject* dict) {
    if (PyODict_Check(dict)) {  // its order lives in a list of its own
        Owned items = Owned::steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyODict_Type), "items", "O", dict));
        return items ? PySequence_Tuple(items.get()) : nullptr;
    }
    Owned out = Owned::steal(PyTuple_New(PyDict_GET_SIZE(dict)));
    if (!out) return nullptr;
    Py_ssize_t pos = 0, i = 0;
    PyObject *k, *v;
    while (PyDict_Next(dict, &pos, &k, &v)) {
        PyObject* pair = PyTuple_Pack(2, k, v);
        if (!pair) return nullptr;
        PyTuple_SET_ITEM(out.get(), i++, pair);
    }
    return out.release();
}

PyObject* plain_elements(PyObject* c) {
    if (PyList_Check(c)) return PyList_GetSlice(c, 0, PyList_GET_SIZE(c));
    PyTypeObject* base = Py_TYPE(c);
    while ((base->tp_flags & Py_TPFLAGS_HEAPTYPE) && !(base->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)) base = base->tp_base;
    Owned it = Owned::steal(base->tp_iter(c));
    return it ? PySequence_List(it.get()) : nullptr;
}

int dict_assign(PyObject* dict, PyObject* pairs) {
    if (PyODict_Check(dict)) {
        Owned r = Owned::steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyODict_Type), "clear", "O", dict));
        if (!r) return -1;
    } else {
        PyDict_Clear(dict);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); ++i) {
        PyObject* p = PyTuple_GET_ITEM(pairs, i);
        if (dict_set(dict, PyTuple_GET_ITEM(p, 0), PyTuple_GET_ITEM(p, 1)) < 0) return -1;
    }
    return 0;
}

// Only what differs is taken out and put in: the order of the rest stays.
int set_assign(PyObject* set, PyObject* elements) {
    Owned wanted = Owned::steal(PySet_New(elements)), now = Owned::steal(plain_elements(set));
    if (!wanted || !now) return -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(now.get()); ++i) {
        int keep = PySet_Contains(wanted.get(), PyList_GET_ITEM(now.get(), i));
        if (keep < 0 || (!keep && PySet_Discard(set, PyList_GET_ITEM(now.get(), i)) < 0)) return -1;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(elements); ++i)
        if (PySet_Add(set, PyList_GET_ITEM(elements, i)) < 0) return -1;
    return 0;
}

// collections.deque's own methods, not a subclass's
static PyTypeObject* deque_type(PyObject* deque) {
    PyTypeObject* base = Py_TYPE(deque);
    while (base->tp_flags & Py_TPFLAGS_HEAPTYPE) base = base->tp_base;
    return base;
}

int deque_assign(PyObject* deque, PyObject* elements) {
    PyTypeObject* base = deque_type(deque);
    PySequenceMethods* m = base->tp_as_sequence;
    if (m->sq_length(deque) == PyList_GET_SIZE(elements)) {  // iterators over it go on
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(elements); ++i)
            if (m->sq_ass_item(deque, i, PyList_GET_ITEM(elements, i)) < 0) return -1;
        return 0;
    }
    Owned cleared = Owned::steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(base), "clear", "O", deque));
    if (!cleared) return -1;
    Owned filled =
        Owned::steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(base), "extend", "OO", deque, elements));
    return filled ? 0 : -1;
}

static bool is_number(PyObject* o) { return PyLong_CheckExact(o) || PyFloat_CheckExact(o); }

const Change* Journal::find(PyObject* target, Change::Kind kind) const {
    auto it = index_.find(target);
    if (it == index_.end()) return nullptr;
    for (size_t i : it->second)
        if (changes_[i].kind == kind) return &changes_[i];
    return nullptr;
}

const Change* Journal::find_key(PyObject* target, PyObject* key) const {
    auto it = index_.find(target);
    if (it == index_.end()) return nullptr;
    for (size_t i : it->second) {
        if (!changes_[i].key) continue;
        PyObject* k = changes_[i].key.get();
        if (k == key) return &changes_[i];
        if (PyUnicode_CheckExact(k) && PyUnicode_CheckExact(key) && PyUnicode_Compare(k, key) == 0) return &changes_[i];
    }
    return nullptr;
}

bool Journal::changed_key(PyObject* dict, PyObject* key) const {
    const Change* all = find(dict, Change::DictAll);
    if (!all) return find_key(dict, key) != nullptr;
    if (!all->lookup || !PyUnicode_CheckExact(key)) return true;
    // An object that is still there is the one from before. (Equal numbers may be one object by chance.)
    PyObject *was = PyDict_GetItemWithError(all->lookup.get(), key), *now = PyDict_GetItemWithError(dict, key);
    return was != now || (now && is_number(now));
}

Change& Journal::record(Change::Kind kind, PyObject* target) {
    changes_.emplace_back();
    Change& c = changes_.back();
    c.kind = kind;
    c.target = Owned::share(target);
    index_[target].push_back(changes_.size() - 1);
    return c;
}

void Journal::withdraw(size_t size) {
    if (changes_.size() != size + 1) return;
    std::vector<size_t>& records = index_[changes_.back().target.get()];
    records.pop_back();
    if (records.empty()) index_.erase(changes_.back().target.get());
    changes_.pop_back();
}

// The old value may go when the change is made, but the journal keeps it: code that runs then would run too late.
int Journal::before_drop(PyObject* old) {
    if (!old || !has_finaliser(old)) return 0;
    if (Tracer* t = Tracer::current()) t->stop("finaliser", type_name(Py_TYPE(old)));
    return -1;
}

// The elements of a list or tuple; of the tuple of a dict's items, the pairs'.
int Journal::before_drop_all(PyObject* old) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(old); ++i) {
        PyObject* o = PySequence_Fast_GET_ITEM(old, i);
        if (before_drop(o) < 0) return -1;
        if (PyTuple_Check(old) && PyTuple_CheckExact(o) && before_drop_all(o) < 0) return -1;
    }
    return 0;
}

int Journal::before_dict_key(PyObject* dict, PyObject* key, bool deletes, PyObject* holder) {
    if (find(dict, Change::DictAll)) return 0;
    // Only strings and tensors make a record that can be looked up without user code.
    if (PyODict_Check(dict) || !(PyUnicode_CheckExact(key) || is_tensor_key(key))) return before_dict(dict);
    if (deletes && !deletes_from(dict)) {  // putting it back would move the key to the end
        Owned items = Owned::steal(dict_items(dict));
        if (!items) return -1;
        record(Change::DictOrder, dict).old = std::move(items);
    }
    if (const Change* known = find_key(dict, key)) {
        const_cast<Change*>(known)->moved |= deletes;
        return 0;
    }
    PyObject* old = dict_get(dict, key);
    if ((!old && PyErr_Occurred()) || before_drop(old) < 0) return -1;
    Change& c = record(Change::DictKey, dict);
    c.key = Owned::share(key);
    c.old = Owned::share(old);
    c.holder = Owned::share(holder);
    c.moved = deletes;
    return 0;
}

// The items before the trace, where single keys may have been changed already: new keys stand at the end and are left
// out. Once a key was deleted, from the items before that.
Owned Journal::original_items(PyObject* dict) const {
    const Change* order = find(dict, Change::DictOrder);
    Owned now = order ? order->old : Owned::steal(dict_items(dict));
    if (!now || !index_.contains(dict)) return now;
    Owned out = Owned::steal(PyList_New(0));
    for (Py_ssize_t i = 0; out && i < PyTuple_GET_SIZE(now.get()); ++i) {
        PyObject* pair = PyTuple_GET_ITEM(now.get(), i);
        const Change* c = find_key(dict, PyTuple_GET_ITEM(pair, 0));
        if (c && order && c > order) c = nullptr;
        if (c && !c->old) continue;
        Owned item = c ? Owned::steal(PyTuple_Pack(2, PyTuple_GET_ITEM(pair, 0), c->old.get())) : Owned::share(pair);
        if (!item || PyList_Append(out.get(), item.get()) < 0) return nullptr;
    }
    return out ? Owned::steal(PyList_AsTuple(out.get())) : nullptr;
}

int Journal::before_dict(PyObject* dict) {
    if (find(dict, Change::DictAll)) return 0;
    Owned items = original_items(dict);
    if (!items || before_drop_all(items.get()) < 0) return -1;
    Owned lookup = Owned::steal(PyDict_New());
    for (Py_ssize_t i = 0; lookup && i < PyTuple_GET_SIZE(items.get()); ++i) {
        PyObject* pair = PyTuple_GET_ITEM(items.get(), i);
        if (PyUnicode_CheckExact(PyTuple_GET_ITEM(pair, 0)) &&
            PyDict_SetItem(lookup.get(), PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1)) < 0)
            return -1;
    }
    Change& c = record(Change::DictAll, dict);
    c.old = std::move(items);
    c.lookup = std::move(lookup);
    return 0;
}

int Journal::before_list_append(PyObject* list) {
    if (find(list, Change::ListAll) || find(list, Change::ListAppends)) return 0;
    record(Change::ListAppends, list).length = PyList_GET_SIZE(list);
    return 0;
}

int Journal::before_list(PyObject* list) {
    if (find(list, Change::ListAll)) return 0;
    const Change* appended = find(list, Change::ListAppends);
    Owned copy = Owned::steal(PyList_GetSlice(list, 0, appended ? appended->length : PyList_GET_SIZE(list)));
    if (!copy || before_drop_all(copy.get()) < 0) return -1;
    record(Change::ListAll, list).old = std::move(copy);
    return 0;
}

int Journal::before_set(PyObject* set) {
    if (find(set, Change::SetAll)) return 0;
    Owned copy = Owned::steal(plain_elements(set));
    if (!copy || before_drop_all(copy.get()) < 0) return -1;
    Owned table = Owned::steal(bz_set_duplicate(set));
    if (!table) return -1;
    Change& c = record(Change::SetAll, set);
    c.old = std::move(copy);
    c.lookup = std::move(table);
    return 0;
}

int Journal::before_deque(PyObject* deque) {
    if (find(deque, Change::DequeAll)) return 0;
    Owned copy = Owned::steal(plain_elements(deque));
    if (!copy || before_drop_all(copy.get()) < 0) return -1;
    record(Change::DequeAll, deque).old = std::move(copy);
    return 0;
}

int Journal::before_cell(PyObject* cell) {
    if (find(cell, Change::Cell)) return 0;
    if (before_drop(PyCell_GET(cell)) < 0) return -1;
    record(Change::Cell, cell).old = Owned::share(PyCell_GET(cell));
    return 0;
}

int Journal::before_slot(PyObject* object, PyObject* name) {
    if (find_key(object, name)) return 0;
    Owned old = Owned::steal(PyObject_GenericGetAttr(object, name));
    if (!old) PyErr_Clear();
    if (before_drop(old.get()) < 0) return -1;
    Change& c = record(Change::Slot, object);
    c.key = Owned::share(name);
    c.old = std::move(old);
    return 0;
}

int Journal::before_type_attribute(PyObject* type, PyObject* name) {
    if (find_key(type, name)) return 0;
    PyObject* old = PyDict_GetItemWithError(reinterpret_cast<PyTypeObject*>(type)->tp_dict, name);
    if (before_drop(old) < 0) return -1;
    Change& c = record(Change::TypeAttr, type);
    c.key = Owned::share(name);
    c.old = Owned::share(old);
    return 0;
}

// By the base type's own C code.
static int set_element(PyObject* container, PyObject* key, Py_ssize_t index, PyObject* value) {
    if (key) return dict_set(container, key, value);
    if (PyList_Check(container)) return PyList_SetItem(container, index, Py_NewRef(value));
    return deque_type(container)->tp_as_sequence->sq_ass_item(container, index, value);
}

int Journal::put_stand_in(PyObject* container, PyObject* key, Py_ssize_t index, PyObject* symbol) {
    Owned old = key ? Owned::share(dict_get(container, key))
                : PyList_Check(container)
                    ? Owned::share(PyList_GetItem(container, index))
                    : Owned::steal(deque_type(container)->tp_as_sequence->sq_item(container, index));
    if (!old) return -1;
    stand_ins_.push_back({Owned::share(container), Owned::share(key), std::move(old), index});
    return set_element(container, key, index, symbol);
}

Owned Journal::original(PyObject* target) const {
    if (const Change* c = find(target, Change::DictAll)) return c->old;
    if (const Change* c = find(target, Change::ListAll)) return c->old;
    if (const Change* c = find(target, Change::SetAll)) return c->old;
    if (const Change* c = find(target, Change::DequeAll)) return c->old;
    if (const Change* c = find(target, Change::ListAppends)) return Owned::steal(PyList_GetSlice(target, 0, c->length));
    if (PyDict_Check(target) && index_.contains(target)) return original_items(target);
    return nullptr;
}

void Journal::undo() {
    SavedError saved;
    for (size_t i = changes_.size(); i-- > 0;) {
        Change& c = changes_[i];
        PyObject* t = c.target.get();
        int err = 0;
        switch (c.kind) {
            case Change::DictKey:
                err = c.old ? dict_set(t, c.key.get(), c.old.get()) : dict_delete(t, c.key.get());
                break;
            case Change::DictAll:
            case Change::DictOrder: err = dict_assign(t, c.old.get()); break;
            case Change::ListAppends:
                if (PyList_GET_SIZE(t) > c.length) err = PyList_SetSlice(t, c.length, PyList_GET_SIZE(t), nullptr);
                break;
            case Change::ListAll: err = PyList_SetSlice(t, 0, PyList_GET_SIZE(t), c.old.get()); break;
            case Change::SetAll: bz_set_exchange(t, c.lookup.get()); break;
            case Change::DequeAll: err = deque_assign(t, c.old.get()); break;
            case Change::Cell: err = PyCell_Set(t, c.old.get()); break;
            case Change::Slot: err = PyObject_GenericSetAttr(t, c.key.get(), c.old.get()); break;
            case Change::TypeAttr: err = PyType_Type.tp_setattro(t, c.key.get(), c.old.get()); break;
        }
        if (err < 0) PyErr_Clear();  // deleting what a later change already removed
    }
    changes_.clear();
    index_.clear();
    for (size_t i = stand_ins_.size(); i-- > 0;) {
        StandIn& s = stand_ins_[i];
        if (set_element(s.container.get(), s.key.get(), s.index, s.old.get()) < 0) PyErr_Clear();
    }
    stand_ins_.clear();
}

}  // namespace braze::frontend
