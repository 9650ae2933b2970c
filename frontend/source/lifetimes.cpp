#include "frontend/source/lifetimes.h"

namespace braze::frontend {

namespace {

using Flag = std::shared_ptr<bool>;
constexpr const char* kFlagName = "braze.lifetimes";

void drop_flag(PyObject* capsule) { delete static_cast<Flag*>(PyCapsule_GetPointer(capsule, kFlagName)); }

// Called with the weak reference of an object that dies. It may come after the segment: the capsule owns the flag.
PyObject* one_has_died(PyObject* capsule, PyObject*) {
    if (auto* flag = static_cast<Flag*>(PyCapsule_GetPointer(capsule, kFlagName))) **flag = true;
    Py_RETURN_NONE;
}

PyMethodDef g_callback = {"an_object_of_a_segment_has_died", one_has_died, METH_O, nullptr};

Owned make_callback(const Flag& flag) {
    Owned capsule = Owned::steal(PyCapsule_New(new Flag(flag), kFlagName, drop_flag));
    return Owned::steal(capsule ? PyCFunction_New(&g_callback, capsule.get()) : nullptr);
}

bool lives_for_ever(PyObject* o) {
    return o == Py_None || PyBool_Check(o) || o == Py_Ellipsis || o == Py_NotImplemented ||
           (PyType_Check(o) && !(reinterpret_cast<PyTypeObject*>(o)->tp_flags & Py_TPFLAGS_HEAPTYPE));
}

}  // namespace

Ref Lifetimes::depend_on(PyObject* o) {
    if (o && !lives_for_ever(o) && seen_.insert(o).second) {
        // (a frozenset is compared by its elements: another one is as good)
        bool weak = PyType_SUPPORTS_WEAKREFS(Py_TYPE(o)) && !PyFrozenSet_CheckExact(o);
        (weak ? watched_ : kept_).push_back(Owned::share(o));
    }
    return Ref(o);
}

Ref Lifetimes::keep(PyObject* o) {
    if (o && !lives_for_ever(o) && own_.insert(o).second) kept_.push_back(Owned::share(o));
    return Ref(o);
}

void Lifetimes::settle() {
    std::vector<Owned> objects = std::move(watched_);
    watched_.clear();
    seen_ = {};
    own_ = {};
    if (objects.empty()) return;
    SavedError saved;
    over_ = std::make_shared<bool>(false);
    Owned callback = make_callback(over_);
    for (Owned& o : objects) {
        Owned weak = Owned::steal(callback ? PyWeakref_NewRef(o.get(), callback.get()) : nullptr);
        PyErr_Clear();
        (weak ? watched_ : kept_).push_back(std::move(weak ? weak : o));
    }
    // (what only the trace held dies here)
}

}  // namespace braze::frontend
