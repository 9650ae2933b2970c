#include "frontend/guards/snapshot.h"

#include "frontend/cpython/api.h"

namespace braze::frontend {

Snapshot::Snapshot(const GuardSet& guards, Fetcher& f) : sources_(guards.sources) {
    auto n = static_cast<size_t>(sources_.size());
    values_ = std::make_shared<std::vector<PyObject*>>(n);
    covered_.resize(n);
    dict_covered_.resize(n);
    for (size_t i = 0; i < guards.guards().size(); ++i)
        if (!cover_guard(guards.guards()[i], f)) rest_.push_back(static_cast<int>(i));
    covered_ = {};
    dict_covered_ = {};
    seen_ = {};
}

template <class T>
static const uint64_t* word(T* const* pointer) {
    static_assert(sizeof(T*) == sizeof(uint64_t));
    return reinterpret_cast<const uint64_t*>(pointer);
}

void Snapshot::type_of(PyObject* object) {
    const uint64_t* at = word(&object->ob_type);
    if (seen_.insert(at).second) words_.push_back({at, *at});
}

void Snapshot::length_of(PyObject* list) {
    auto* at = reinterpret_cast<const uint64_t*>(&reinterpret_cast<PyVarObject*>(list)->ob_size);
    if (seen_.insert(at).second) words_.push_back({at, *at});
}

// That the value of `s` is the same object as now follows from what is recorded.
bool Snapshot::cover(SourceId id, Fetcher& f) {
    int8_t& known = covered_[static_cast<size_t>(id)];
    if (known) return known > 0;
    known = -1;
    const Source& s = sources_[id];
    PyObject* v = f.fetch(id);
    bool ok = false;
    switch (s.kind) {
        case SourceKind::Const: ok = true; break;
        case SourceKind::InstanceDict:
        case SourceKind::DictItem: ok = cover_dict(s.kind == SourceKind::DictItem ? s.parent : id, f); break;
        case SourceKind::TupleItem: ok = cover(s.parent, f); break;
        case SourceKind::ListItem: {
            PyObject* list = f.fetch(s.parent);
            ok = v && list && PyList_Check(list) && cover(s.parent, f);
            if (!ok) break;
            length_of(list);
            PyObject** items = reinterpret_cast<PyListObject*>(list)->ob_item;
            const uint64_t* place = word(&reinterpret_cast<PyListObject*>(list)->ob_item);
            if (seen_.insert(place).second) words_.push_back({place, *place});
            words_.push_back({word(&items[s.index]), reinterpret_cast<uint64_t>(v)});
            // Another object at its address would be taken for it where nothing of it is looked at.
            if (!PyObject_IS_GC(v) || PyTuple_Check(v)) kept_.push_back(Owned::share(v));
            break;
        }
        case SourceKind::TypeOf:
            ok = cover(s.parent, f);
            if (ok) type_of(f.fetch(s.parent));
            break;
        case SourceKind::TypeAttribute: {
            PyObject* t = f.fetch(s.parent);
            ok = t && PyType_Check(t) && cover(s.parent, f);
            if (!ok) break;
            auto* type = reinterpret_cast<PyTypeObject*>(t);
            unsigned version = bz_type_version(type);
            ok = version != 0;
            if (ok && seen_.insert(type).second) classes_.push_back({type, version});
            break;
        }
        default: break;
    }
    if (!ok) return false;
    covered_[static_cast<size_t>(id)] = 1;
    (*values_)[static_cast<size_t>(id)] = v;
    return true;
}

// That the dict at `id` is the same one with the same contents. (The order of an OrderedDict's can still differ.)
bool Snapshot::cover_dict(SourceId id, Fetcher& f) {
    int8_t& known = dict_covered_[static_cast<size_t>(id)];
    if (known) return known > 0;
    known = -1;
    const Source& s = sources_[id];
    PyObject* d = f.fetch(id);
    if (!d || !PyDict_Check(d)) return false;
    if (s.kind == SourceKind::InstanceDict) {
        PyObject* holder = f.fetch(s.parent);
        const Source& h = sources_[s.parent];
        // Another object at the same address has another dict, or one of another version.
        if (h.kind == SourceKind::Local || h.kind == SourceKind::Function) {
            roots_.push_back({s.parent, holder, d});
            (*values_)[static_cast<size_t>(s.parent)] = holder;
            covered_[static_cast<size_t>(s.parent)] = 1;
        } else if (cover(s.parent, f)) {
            // (Assigning to __class__ never moves the place of the dict.)
            words_.push_back({word(bz_instance_dict_pointer(holder)), reinterpret_cast<uint64_t>(d)});
        } else {
            return false;
        }
    } else if (!cover(id, f)) {
        return false;
    }
    const uint64_t* version = bz_dict_version_pointer(d);
    if (seen_.insert(version).second) words_.push_back({version, *version});
    dict_covered_[static_cast<size_t>(id)] = 1;
    return true;
}

bool Snapshot::cover_guard(const Guard& g, Fetcher& f) {
    switch (g.kind) {
        case GuardKind::Is:
        case GuardKind::Descriptor:
        case GuardKind::Equals:  // what is compared by value cannot be changed
        case GuardKind::Present: return cover(g.source, f);
        case GuardKind::Absent: {
            const Source& s = sources_[g.source];
            return s.kind == SourceKind::DictItem && cover_dict(s.parent, f);
        }
        case GuardKind::TypeIs: {
            if (!cover(g.source, f)) return false;
            type_of(f.fetch(g.source));
            return true;
        }
        case GuardKind::DictKeys: {
            PyObject* d = f.fetch(g.source);
            return d && !PyODict_Check(d) && cover_dict(g.source, f);
        }
        case GuardKind::DictLacks: return cover_dict(g.source, f);
        case GuardKind::Length: {
            PyObject* v = f.fetch(g.source);
            if (PyList_Check(v)) {
                if (!cover(g.source, f)) return false;
                length_of(v);
                return true;
            }
            return PyTuple_Check(v) ? cover(g.source, f) : PyDict_Check(v) && cover_dict(g.source, f);
        }
        case GuardKind::SameObject:
        case GuardKind::NotSameObject: return cover(g.source, f) && cover(g.other, f);
        default: return false;
    }
}

bool Snapshot::unchanged(Fetcher& f) const {
    for (const Root& r : roots_) {
        if (f.fetch(r.source) != r.object) return false;
        PyObject** d = bz_instance_dict_pointer(r.object);
        if (!d || *d != r.dict) return false;
    }
    for (const Word& w : words_)
        if (*w.at != w.expected) return false;
    for (const Class& c : classes_)
        if (bz_type_version(c.type) != c.version) return false;
    f.know(values_);
    return true;
}

}  // namespace braze::frontend
