#include "frontend/guards/snapshot.h"

#include "frontend/cpython/api.h"

namespace braze::frontend {

Snapshot::Snapshot(const GuardSet& guards, Fetcher& f) : sources_(guards.sources) {
    auto n = static_cast<size_t>(sources_.size());
    values_.resize(n);
    covered_.resize(n);
    dict_covered_.resize(n);
    for (size_t i = 0; i < guards.guards().size(); ++i)
        if (!cover_guard(guards.guards()[i], f)) rest_.push_back(static_cast<int>(i));
    covered_ = {};
    dict_covered_ = {};
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
        case SourceKind::TypeOf:
            ok = cover(s.parent, f);
            if (ok) types_.push_back({f.fetch(s.parent), reinterpret_cast<PyTypeObject*>(v)});
            break;
        case SourceKind::TypeAttribute: {
            PyObject* t = f.fetch(s.parent);
            ok = t && PyType_Check(t) && cover(s.parent, f);
            if (!ok) break;
            auto* type = reinterpret_cast<PyTypeObject*>(t);
            unsigned version = bz_type_version(type);
            ok = version != 0;
            if (ok && (classes_.empty() || classes_.back().type != type)) classes_.push_back({type, version});
            break;
        }
        default: break;
    }
    if (!ok) return false;
    covered_[static_cast<size_t>(id)] = 1;
    values_[static_cast<size_t>(id)] = v;
    return true;
}

// That the dict at `id` is the same one with the same contents.
bool Snapshot::cover_dict(SourceId id, Fetcher& f) {
    int8_t& known = dict_covered_[static_cast<size_t>(id)];
    if (known) return known > 0;
    known = -1;
    const Source& s = sources_[id];
    PyObject* d = f.fetch(id);
    if (!d || !PyDict_CheckExact(d)) return false;
    if (s.kind == SourceKind::InstanceDict) {
        PyObject* holder = f.fetch(s.parent);
        const Source& h = sources_[s.parent];
        // Another object at the same address has another dict, or one of another version.
        if (h.kind == SourceKind::Local || h.kind == SourceKind::Function) {
            roots_.push_back({s.parent, holder});
            values_[static_cast<size_t>(s.parent)] = holder;
            covered_[static_cast<size_t>(s.parent)] = 1;
        } else if (!cover(s.parent, f)) {
            return false;
        }
        dicts_.push_back({holder, d, bz_dict_version(d)});
    } else {
        if (!cover(id, f)) return false;
        dicts_.push_back({nullptr, d, bz_dict_version(d)});
    }
    dict_covered_[static_cast<size_t>(id)] = 1;
    return true;
}

bool Snapshot::cover_guard(const Guard& g, Fetcher& f) {
    switch (g.kind) {
        case GuardKind::Is:
        case GuardKind::Equals:  // what is compared by value cannot be changed
        case GuardKind::Present: return cover(g.source, f);
        case GuardKind::Absent: {
            const Source& s = sources_[g.source];
            return s.kind == SourceKind::DictItem && cover_dict(s.parent, f);
        }
        case GuardKind::TypeIs: {
            if (!cover(g.source, f)) return false;
            PyObject* v = f.fetch(g.source);
            types_.push_back({v, Py_TYPE(v)});
            return true;
        }
        case GuardKind::DictKeys:
        case GuardKind::DictLacks: return cover_dict(g.source, f);
        case GuardKind::Length: {
            PyObject* v = f.fetch(g.source);
            return PyTuple_Check(v) ? cover(g.source, f) : PyDict_Check(v) && cover_dict(g.source, f);
        }
        case GuardKind::SameObject:
        case GuardKind::NotSameObject: return cover(g.source, f) && cover(g.other, f);
        default: return false;
    }
}

bool Snapshot::unchanged(Fetcher& f) const {
    for (const Root& r : roots_)
        if (f.fetch(r.source) != r.object) return false;
    for (const Dict& d : dicts_) {
        if (d.holder) {
            PyObject** p = bz_instance_dict_pointer(d.holder);
            if (!p || *p != d.dict) return false;
        }
        if (bz_dict_version(d.dict) != d.version) return false;
    }
    for (const Type& t : types_)
        if (Py_TYPE(t.object) != t.type) return false;
    for (const Class& c : classes_)
        if (bz_type_version(c.type) != c.version) return false;
    f.know(values_);
    return true;
}

}  // namespace braze::frontend
