// The journal of a trace: objects that existed before are changed for real while tracing, so that every reader (Python
// or C) sees the change; each target's old state is kept, all changes are undone when the trace ends, and their net
// effect is replayed at run time.
#pragma once
#include <unordered_map>
#include <vector>

#include "frontend/source/keys.h"
#include "frontend/support/ref.h"

namespace braze::frontend {

struct Change {
    enum Kind : uint8_t {
        DictKey,      // one key of a dict (a namespace or an attribute dict): `key`, old value or nothing
        DictAll,      // a whole dict or subclass: old items in order
        DictOrder,    // a key of the dict is deleted: old items in order, only to put them back
        ListAppends,  // a list that only grew: `length` is the old one
        ListAll,
        SetAll,
        DequeAll,
        Cell,     // old contents
        Slot,     // an attribute set through the type's own C setter: `key` is its name
        TypeAttr  // an attribute of a class
    } kind;
    Owned target;
    Owned holder;  // DictKey of an attribute dict: the object itself
    Owned key;
    Owned old;     // value, or a tuple/list of the old contents
    Owned lookup;  // DictAll: the old values of the string keys; SetAll: a set with the old table
    Py_ssize_t length = 0;
    bool moved = false;  // DictKey: was deleted, so that it stands at the end if it is there again
};

class Journal {
  public:
    // Each is called before the change; at most one record a target (and key). 0, or -1 with an exception.
    int before_dict_key(PyObject* dict, PyObject* key, bool deletes, PyObject* holder);
    int before_dict(PyObject* dict);
    int before_list_append(PyObject* list);
    int before_list(PyObject* list);
    int before_set(PyObject* set);
    int before_deque(PyObject* deque);
    int before_cell(PyObject* cell);
    int before_slot(PyObject* object, PyObject* name);
    int before_type_attribute(PyObject* type, PyObject* name);

    // A number in a list, dict (under `key`) or deque (at `index`) gives way to a symbol until the trace ends. No
    // change: what is there stands for what was there. 0 or -1.
    int put_stand_in(PyObject* container, PyObject* key, Py_ssize_t index, PyObject* symbol);

    // The change that the record at `size` announced did not happen: it raised.
    void withdraw(size_t size);

    const std::vector<Change>& changes() const { return changes_; }
    size_t size() const { return changes_.size(); }
    // Was anything of this container (or this key of this dict) changed by the trace?
    bool changed(PyObject* target) const { return index_.contains(target); }
    bool changed_key(PyObject* dict, PyObject* key) const;
    bool changed_whole(PyObject* target) const {
        return find(target, Change::DictAll) || find(target, Change::ListAll) || find(target, Change::DequeAll);
    }
    bool deletes_from(PyObject* dict) const { return find(dict, Change::DictOrder) != nullptr; }
    bool changed_slot(PyObject* object, PyObject* name) const { return find_key(object, name) != nullptr; }
    // Old contents of a changed list, set or deque (a list) or dict (tuple of (key, value) pairs); nothing if
    // unchanged.
    Owned original(PyObject* target) const;
    // Puts everything back, last change first.
    void undo();

  private:
    Owned original_items(PyObject* dict) const;
    const Change* find(PyObject* target, Change::Kind kind) const;
    const Change* find_key(PyObject* target, PyObject* key) const;
    Change& record(Change::Kind kind, PyObject* target);
    int before_drop(PyObject* old);
    int before_drop_all(PyObject* old);
    struct StandIn {
        Owned container, key, old;
        Py_ssize_t index;
    };
    std::vector<StandIn> stand_ins_;
    std::vector<Change> changes_;
    std::unordered_map<PyObject*, std::vector<size_t>> index_;
};

// The dict's items in order as a tuple of pairs; by the base type's own C code.
PyObject* dict_items(PyObject* dict);
// The elements of a list, tuple, set or deque as a list, by the base type's own C code. New reference.
PyObject* plain_elements(PyObject* container);
// Replaces the contents by base-class C code, never the user's overrides. 0 or -1.
int dict_assign(PyObject* dict, PyObject* pairs);
int set_assign(PyObject* set, PyObject* elements);
int deque_assign(PyObject* deque, PyObject* elements);

}  // namespace braze::frontend
