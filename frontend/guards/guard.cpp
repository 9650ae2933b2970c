#include "frontend/guards/guard.h"

#include "frontend/guards/snapshot.h"
#include "frontend/source/keys.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace braze::frontend {

PyObject* set_elements(PyObject* set) {
    PyObject *list = PyList_New(0), *x;
    Py_ssize_t pos = 0;
    Py_hash_t hash;
    while (list && _PySet_NextEntry(set, &pos, &x, &hash))
        if (PyList_Append(list, x) < 0) Py_CLEAR(list);
    return list;
}

// In the order of iteration. `expected`: of Ref or Owned.
template <class T>
static bool has_elements(PyObject* set, const std::vector<T>& expected) {
    if (!PyAnySet_Check(set) || static_cast<size_t>(PySet_GET_SIZE(set)) != expected.size()) return false;
    Py_ssize_t pos = 0;
    size_t i = 0;
    PyObject* x;
    Py_hash_t hash;
    while (_PySet_NextEntry(set, &pos, &x, &hash))
        if (!same_constant(x, expected[i++].get())) return false;
    return true;
}

static bool same_contents(PyObject* a, PyObject* b);

bool same_constant(PyObject* a, PyObject* b) {
    if (a == b) return true;
    return a && b && Py_TYPE(a) == Py_TYPE(b) && same_contents(a, b);
}

// Of one type, or a plain value `b` and an instance of a subclass of its class.
static bool same_contents(PyObject* a, PyObject* b) {
    if (PyFloat_Check(a)) {
        double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
        return std::memcmp(&x, &y, sizeof x) == 0;
    }
    if (PyComplex_Check(a)) {
        Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
        return std::memcmp(&x, &y, sizeof x) == 0;
    }
    if (PyUnicode_Check(a)) return PyUnicode_GET_LENGTH(a) == PyUnicode_GET_LENGTH(b) && PyUnicode_Compare(a, b) == 0;
    if (PyTuple_Check(a)) {
        if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i)
            if (!same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
        return true;
    }
    if (PyLong_Check(a) || PyBytes_Check(a)) {  // not by what a subclass says
        Owned same = Owned::steal((PyLong_Check(a) ? PyLong_Type : PyBytes_Type).tp_richcompare(a, b, Py_EQ));
        return same.get() == Py_True;
    }
    if (PyFrozenSet_Check(a)) {
        Owned list = Owned::steal(set_elements(b));
        std::vector<Owned> expected;
        for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i)
            expected.push_back(Owned::share(PyList_GET_ITEM(list.get(), i)));
        return list && has_elements(a, expected);
    }
    // A guard runs no code of the program.
    if ((Py_TYPE(a)->tp_flags & Py_TPFLAGS_HEAPTYPE) && !(Py_TYPE(a)->tp_flags & Py_TPFLAGS_IMMUTABLETYPE))
        return false;
    int r = PyObject_RichCompareBool(a, b, Py_EQ);
    if (r < 0) PyErr_Clear();
    return r > 0;
}

bool GuardSet::add_once(GuardKind k, SourceId s, const void* what) {
    std::string key(sizeof k + sizeof s + sizeof what, '\0');
    std::memcpy(key.data(), &k, sizeof k);
    std::memcpy(key.data() + sizeof k, &s, sizeof s);
    std::memcpy(key.data() + sizeof k + sizeof s, &what, sizeof what);
    return seen_.insert(std::move(key)).second;
}

Guard& GuardSet::push(GuardKind k, SourceId s) {
    guards_.emplace_back();
    guards_.back().kind = k;
    guards_.back().source = s;
    return guards_.back();
}

void GuardSet::is(SourceId s, PyObject* object) {
    if (sources[s].kind == SourceKind::Const) return;
    if (is_plain_descriptor(object)) {
        if (!add_once(GuardKind::Descriptor, s, object)) return;
        Guard& g = push(GuardKind::Descriptor, s);
        g.expected = sources.lifetimes.depend_on(reinterpret_cast<PyObject*>(Py_TYPE(object)));
        g.fields = descriptor_fields(object);
        for (PyObject* o : g.fields.holds) sources.lifetimes.depend_on(o);
    } else if (add_once(GuardKind::Is, s, object)) {
        push(GuardKind::Is, s).expected = sources.lifetimes.depend_on(object);
    }
}

void GuardSet::type_is(SourceId s, PyTypeObject* type) {
    if (sources[s].kind == SourceKind::Const) return;
    auto* t = reinterpret_cast<PyObject*>(type);
    if (add_once(GuardKind::TypeIs, s, t)) push(GuardKind::TypeIs, s).expected = sources.lifetimes.depend_on(t);
}

void GuardSet::equals(SourceId s, PyObject* value) {
    if (value == Py_None || PyBool_Check(value) || value == Py_Ellipsis || value == Py_NotImplemented)
        return is(s, value);
    if (add_once(GuardKind::Equals, s, nullptr)) push(GuardKind::Equals, s).expected = sources.lifetimes.keep(value);
}

void GuardSet::value_is(SourceId s, PyObject* value, PyObject* plain) {
    type_is(s, Py_TYPE(value));
    if (!plain || !add_once(GuardKind::Equals, s, nullptr)) return;
    Guard& g = push(GuardKind::Equals, s);
    g.expected = sources.lifetimes.keep(plain);
    g.number = 1;
}

void GuardSet::length(SourceId s, Py_ssize_t n) {
    if (add_once(GuardKind::Length, s, nullptr)) push(GuardKind::Length, s).number = n;
}

void GuardSet::dict_keys(SourceId s, PyObject* keys) {
    if (!add_once(GuardKind::DictKeys, s, nullptr)) return;
    Guard& g = push(GuardKind::DictKeys, s);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i)
        g.elements.push_back(sources.lifetimes.depend_on(PyTuple_GET_ITEM(keys, i)));
}

void GuardSet::dict_lacks(SourceId s, PyObject* key) {
    if (add_once(GuardKind::DictLacks, s, key))
        push(GuardKind::DictLacks, s).expected = sources.lifetimes.depend_on(key);
}

void GuardSet::set_elements(SourceId s, PyObject* list) {
    if (!add_once(GuardKind::SetElements, s, nullptr)) return;
    Guard& g = push(GuardKind::SetElements, s);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i)
        g.elements.push_back(sources.lifetimes.depend_on(PyList_GET_ITEM(list, i)));
}

void GuardSet::present(SourceId s) {
    if (add_once(GuardKind::Present, s, nullptr)) push(GuardKind::Present, s);
}

void GuardSet::absent(SourceId s) {
    if (add_once(GuardKind::Absent, s, nullptr)) push(GuardKind::Absent, s);
}

void GuardSet::same_object(SourceId a, SourceId b, bool same) {
    GuardKind k = same ? GuardKind::SameObject : GuardKind::NotSameObject;
    if (a == b || !add_once(k, a, reinterpret_cast<const void*>(static_cast<intptr_t>(b)))) return;
    push(k, a).other = b;
}

void GuardSet::same_storage(std::vector<SourceId> tensors, Sharing sharing) {
    Guard& g = push(GuardKind::SameStorage, kNoSource);
    g.inputs = std::move(tensors);
    g.sharing = std::make_unique<Sharing>(std::move(sharing));
}

void GuardSet::tensor(SourceId s, std::unique_ptr<TensorGuard> t) { push(GuardKind::Tensor, s).tensor = std::move(t); }

void GuardSet::global_state(std::unique_ptr<GlobalStateGuard> g) {
    push(GuardKind::GlobalState, kNoSource).state = std::move(g);
}

void GuardSet::shapes(std::vector<SourceId> inputs, std::unique_ptr<ShapeGuard> g) {
    Guard& guard = push(GuardKind::Sizes, kNoSource);
    guard.shapes = std::move(g);
    guard.inputs = std::move(inputs);
}

void GuardSet::distinct(std::vector<SourceId> sources) {
    push(GuardKind::Distinct, kNoSource).inputs = std::move(sources);
}

static std::vector<PyObject*> fetch_all(const std::vector<SourceId>& sources, Fetcher& f) {
    std::vector<PyObject*> out;
    for (SourceId s : sources) out.push_back(f.fetch(s));
    return out;
}

static Py_ssize_t length_of(PyObject* v) {
    if (PyList_Check(v)) return PyList_GET_SIZE(v);
    if (PyTuple_Check(v)) return PyTuple_GET_SIZE(v);
    if (PyDict_Check(v)) return PyDict_GET_SIZE(v);
    if (PyAnySet_Check(v)) return PySet_GET_SIZE(v);
    PySequenceMethods* m = Py_TYPE(v)->tp_as_sequence;  // deque
    return m && m->sq_length ? m->sq_length(v) : -1;
}

bool GuardSet::holds(const Guard& g, Fetcher& f) const {
    if (g.kind == GuardKind::GlobalState) return g.state->check();
    if (g.kind == GuardKind::Sizes) return g.shapes->check(fetch_all(g.inputs, f).data());
    if (g.kind == GuardKind::Distinct) {
        std::vector<PyObject*> objects = fetch_all(g.inputs, f);
        std::sort(objects.begin(), objects.end());
        return std::adjacent_find(objects.begin(), objects.end()) == objects.end();
    }
    if (g.kind == GuardKind::SameStorage) return !g.sharing->conflict(fetch_all(g.inputs, f));
    PyObject* v = f.fetch(g.source);
    if (!v) {
        PyErr_Clear();
        return g.kind == GuardKind::Absent || g.kind == GuardKind::DictLacks;
    }
    switch (g.kind) {
        case GuardKind::Is: return v == g.expected.get();
        case GuardKind::Descriptor:
            return reinterpret_cast<PyObject*>(Py_TYPE(v)) == g.expected.get() && descriptor_fields(v) == g.fields;
        case GuardKind::TypeIs: return reinterpret_cast<PyObject*>(Py_TYPE(v)) == g.expected.get();
        case GuardKind::Equals:
            if (g.number == 0) return same_constant(v, g.expected.get());
            return PyObject_TypeCheck(v, Py_TYPE(g.expected.get())) && same_contents(v, g.expected.get());
        case GuardKind::Length: return length_of(v) == g.number;
        case GuardKind::DictKeys: {
            if (!PyDict_Check(v) || static_cast<size_t>(PyDict_GET_SIZE(v)) != g.elements.size()) return false;
            if (PyODict_CheckExact(v) || PyODict_Check(v)) {
                Owned keys = Owned::steal(PySequence_List(v));
                if (!keys) return PyErr_Clear(), false;
                for (size_t i = 0; i < g.elements.size(); ++i)
                    if (!same_constant(PyList_GET_ITEM(keys.get(), static_cast<Py_ssize_t>(i)), g.elements[i].get()))
                        return false;
                return true;
            }
            Py_ssize_t pos = 0;
            size_t i = 0;
            PyObject *k, *item;
            while (PyDict_Next(v, &pos, &k, &item))
                if (!same_constant(k, g.elements[i++].get())) return false;
            return true;
        }
        case GuardKind::DictLacks: {
            if (!PyDict_Check(v)) return false;
            if (dict_get(v, g.expected.get())) return false;
            if (!PyErr_Occurred()) return true;
            PyErr_Clear();
            return false;
        }
        case GuardKind::SetElements: return has_elements(v, g.elements);
        case GuardKind::Present: return true;
        case GuardKind::Absent: return false;
        case GuardKind::Tensor: return g.tensor->check(v);
        case GuardKind::SameObject: return v == f.fetch(g.other);
        case GuardKind::NotSameObject: return v != f.fetch(g.other);
        case GuardKind::SameStorage:
        case GuardKind::GlobalState:
        case GuardKind::Distinct:
        case GuardKind::Sizes: break;
    }
    return false;
}

bool& measure_guards() {
    static bool on = false;
    return on;
}

bool GuardSet::holds_measured(const Guard& g, Fetcher& f) const {
    auto start = std::chrono::steady_clock::now();
    bool r = holds(g, f);
    g.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    g.checks++;
    return r;
}

// Where objects change at every call, making snapshots is not worth it.
constexpr int kMostSnapshots = 16;

GuardSet::GuardSet() = default;
GuardSet::GuardSet(GuardSet&&) noexcept = default;
GuardSet& GuardSet::operator=(GuardSet&&) noexcept = default;
GuardSet::~GuardSet() = default;

int GuardSet::check(Fetcher& f) const {
    if (snapshot_ && snapshot_->unchanged(f)) {
        for (int i : snapshot_->rest())
            if (!holds(guards_[static_cast<size_t>(i)], f)) [[unlikely]]
                return i;
        return -1;
    }
    const bool measured = measure_guards();
    for (size_t i = 0; i < guards_.size(); ++i)
        if (!(measured ? holds_measured(guards_[i], f) : holds(guards_[i], f))) [[unlikely]]
            return static_cast<int>(i);
    if (snapshots_++ < kMostSnapshots) snapshot_ = std::make_unique<Snapshot>(*this, f);
    return -1;
}

void GuardSet::keep(const std::vector<bool>& kept, const std::unordered_set<SourceId>& inputs) {
    std::vector<Guard> all = std::move(guards_);
    guards_.clear();
    for (size_t i = 0; i < all.size(); ++i) {
        GuardKind k = all[i].kind;
        bool memory = k == GuardKind::Sizes ||
                      ((k == GuardKind::Tensor || k == GuardKind::TypeIs) && inputs.contains(all[i].source));
        if (kept[i])
            guards_.push_back(std::move(all[i]));
        else if (memory)
            assumptions_.push_back(std::move(all[i]));
    }
}

std::optional<std::string> GuardSet::broken_assumption(Fetcher& f) const {
    for (const Guard& g : assumptions_)
        if (!holds(g, f)) return explain(g, f, nullptr);
    return {};
}

// A tuple, torch.Size too, of numbers and strings.
static bool is_plain_tuple(PyObject* o) {
    if (!PyTuple_Check(o)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) {
        PyObject* x = PyTuple_GET_ITEM(o, i);
        bool simple = x == Py_None || PyLong_Check(x) || PyFloat_CheckExact(x) || PyUnicode_CheckExact(x);
        if (!simple && !(PyTuple_Check(x) && is_plain_tuple(x))) return false;
    }
    return true;
}

// Of what the program's own code would print, the kind: explaining runs none of it.
static std::string repr(PyObject* o) {
    if (!o) return "nothing";
    bool own = PyType_HasFeature(Py_TYPE(o), Py_TPFLAGS_HEAPTYPE);
    if (own && PyType_Check(o)) return std::string("<class '") + reinterpret_cast<PyTypeObject*>(o)->tp_name + "'>";
    if (own || PyTuple_Check(o) || PyList_Check(o) || PyDict_Check(o) || PyAnySet_Check(o)) {
        if (own || !is_plain_tuple(o)) return std::string("a ") + Py_TYPE(o)->tp_name;
    }
    SavedError saved;
    Owned s = Owned::steal(PyObject_Repr(o));
    const char* c = s ? PyUnicode_AsUTF8(s.get()) : nullptr;
    std::string out = c ? c : Py_TYPE(o)->tp_name;
    PyErr_Clear();
    return out.size() > 120 ? out.substr(0, 117) + "..." : out;
}

static Owned as_tuple(const std::vector<Ref>& elements) {
    Owned tuple = Owned::steal(PyTuple_New(static_cast<Py_ssize_t>(elements.size())));
    for (size_t i = 0; tuple && i < elements.size(); ++i)
        PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Py_NewRef(elements[i].get()));
    return tuple;
}

std::string GuardSet::text(int i, PyObject* names) const { return text(guards_[static_cast<size_t>(i)], names); }

std::string GuardSet::explain(int i, Fetcher& f, PyObject* names) const {
    return explain(guards_[static_cast<size_t>(i)], f, names);
}

std::string GuardSet::text(const Guard& g, PyObject* names) const {
    std::string s = g.source == kNoSource ? "" : sources.describe(g.source, names);
    switch (g.kind) {
        case GuardKind::Is: return s + " is " + repr(g.expected.get());
        case GuardKind::Descriptor:
            return s + " is the same " + reinterpret_cast<PyTypeObject*>(g.expected.get())->tp_name;
        case GuardKind::TypeIs:
            return "type(" + s + ") is " + reinterpret_cast<PyTypeObject*>(g.expected.get())->tp_name;
        case GuardKind::Equals: return s + " == " + repr(g.expected.get());
        case GuardKind::Length: return "len(" + s + ") == " + std::to_string(g.number);
        case GuardKind::DictKeys: return "keys of " + s + " are " + repr(as_tuple(g.elements).get());
        case GuardKind::DictLacks: return repr(g.expected.get()) + " not in " + s;
        case GuardKind::SetElements: return "elements of " + s + " are " + repr(as_tuple(g.elements).get());
        case GuardKind::Present: return s + " exists";
        case GuardKind::Absent: return s + " does not exist";
        case GuardKind::Tensor: return s + ": " + g.tensor->text();
        case GuardKind::SameObject: return s + " is " + sources.describe(g.other, names);
        case GuardKind::NotSameObject: return s + " is not " + sources.describe(g.other, names);
        case GuardKind::SameStorage:
            return std::to_string(g.inputs.size()) + " tensors share memory, or do not, as they did";
        case GuardKind::GlobalState: return "torch's global state";
        case GuardKind::Distinct: return std::to_string(g.inputs.size()) + " objects are different ones";
        case GuardKind::Sizes: return g.shapes->text();
    }
    return s;
}

std::string GuardSet::explain(const Guard& g, Fetcher& f, PyObject* names) const {
    if (g.kind == GuardKind::GlobalState) return g.state->explain();
    if (g.kind == GuardKind::Distinct) return text(g, names) + ": no longer true";
    if (g.kind == GuardKind::Sizes) return g.shapes->explain(fetch_all(g.inputs, f).data());
    if (g.kind == GuardKind::SameStorage) {
        auto pair = g.sharing->conflict(fetch_all(g.inputs, f));
        if (!pair) return text(g, names);
        bool same = g.sharing->group[pair->first] == g.sharing->group[pair->second];
        return sources.describe(g.inputs[pair->first], names) + (same ? " shares no" : " shares") + " memory with " +
               sources.describe(g.inputs[pair->second], names) + ": it did" + (same ? "" : " not");
    }
    PyObject* v = f.fetch(g.source);
    std::string s = sources.describe(g.source, names);
    if (g.kind == GuardKind::Tensor) return s + ": " + (v ? g.tensor->explain(v) : "it no longer exists");
    if (g.kind == GuardKind::TypeIs && v)
        return s + ": expected type " + reinterpret_cast<PyTypeObject*>(g.expected.get())->tp_name + ", got " +
               Py_TYPE(v)->tp_name;
    if (g.kind == GuardKind::Length && v)
        return s + ": expected length " + std::to_string(g.number) + ", got " + std::to_string(length_of(v));
    if (g.kind == GuardKind::Equals || g.kind == GuardKind::Is)
        return s + ": expected " + repr(g.expected.get()) + ", got " + repr(v);
    return text(g, names) + ": no longer true";
}

}  // namespace braze::frontend
