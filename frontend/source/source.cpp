#include "frontend/source/source.h"

#include <structmember.h>

#include <cstring>
#include <utility>

#include "frontend/bridge_api.h"
#include "frontend/cpython/api.h"
#include "frontend/guards/guard.h"
#include "frontend/source/keys.h"

namespace braze::frontend {

SourceId SourceTable::add(SourceKind kind, SourceId parent, PyObject* key, Py_ssize_t index) {
    // Strings of equal value must be one key: interned ones are one object.
    Owned k = Owned::share(key);
    if (key && PyUnicode_CheckExact(key) && kind != SourceKind::Const) {
        PyObject* s = k.release();
        PyUnicode_InternInPlace(&s);
        k = Owned::steal(s);
    }
    Key probe{kind, parent, k.get(), index};
    auto it = index_.find(probe);
    if (it != index_.end()) return it->second;
    Source s;
    s.kind = kind;
    s.parent = parent;
    s.index = index;
    if (k && PyUnicode_CheckExact(k.get())) s.hash = PyObject_Hash(k.get());
    if (k && kind == SourceKind::DictItem && is_tensor_key(k.get())) s.hash = tensor_key_hash(k.get());
    s.key = k && k.get() != key ? lifetimes.keep(k.get()) : lifetimes.depend_on(key);
    sources_.push_back(std::move(s));
    SourceId id = size() - 1;
    index_.emplace(probe, id);
    return id;
}

SourceId SourceTable::slot(SourceId parent, PyObject* descriptor) {
    auto* d = reinterpret_cast<PyMemberDescrObject*>(descriptor);
    return add(SourceKind::SlotMember, parent, reinterpret_cast<PyObject*>(d->d_common.d_type),
               reinterpret_cast<Py_ssize_t>(d->d_member));
}

SourceId SourceTable::number_call(PyObject* function, const std::vector<SourceId>& sources,
                                  PyObject* const* constants) {
    Owned key = Owned::steal(PyTuple_New(static_cast<Py_ssize_t>(sources.size()) + 1));
    if (!key) return kNoSource;
    PyTuple_SET_ITEM(key.get(), 0, Py_NewRef(function));
    SourceId parent = kNoSource;
    for (size_t i = 0; i < sources.size(); ++i) {
        PyObject* argument = sources[i] == kNoSource ? Py_NewRef(constants[i]) : Py_BuildValue("(i)", sources[i]);
        if (!argument) return kNoSource;
        PyTuple_SET_ITEM(key.get(), static_cast<Py_ssize_t>(i) + 1, argument);
        if (parent == kNoSource) parent = sources[i];
    }
    for (SourceId id = 0; id < size(); ++id)  // the same call has one source
        if ((*this)[id].kind == SourceKind::NumberCall && same_constant((*this)[id].key.get(), key.get())) return id;
    Ref kept = lifetimes.keep(key.get());
    return add(SourceKind::NumberCall, parent, kept.get());
}

static SourceId id_in(PyObject* argument) {
    return static_cast<SourceId>(PyLong_AsLong(PyTuple_GET_ITEM(argument, 0)));
}

// Only numbers, which no code of the program computes with.
PyObject* Fetcher::call_number_function(PyObject* key) {
    PyObject* arguments[kMostNumbers];
    const Py_ssize_t n = PyTuple_GET_SIZE(key) - 1;
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject*& a = arguments[i] = PyTuple_GET_ITEM(key, i + 1);
        if (!PyTuple_Check(a)) continue;
        a = fetch(id_in(a));
        if (!a || !(PyLong_CheckExact(a) || PyFloat_CheckExact(a) || PyBool_Check(a))) return nullptr;
    }
    return keep(PyObject_Vectorcall(PyTuple_GET_ITEM(key, 0), arguments, static_cast<size_t>(n), nullptr));
}

static PyMemberDef* slot_of(const Source& s) { return reinterpret_cast<PyMemberDef*>(s.index); }

void SourceTable::truncate(int n) {
    while (size() > n) {
        const Source& s = sources_.back();
        index_.erase(Key{s.kind, s.parent, s.key.get(), s.index});
        sources_.pop_back();
    }
}

SourceId SourceTable::root(SourceId id) const {
    while ((*this)[id].parent != kNoSource) id = (*this)[id].parent;
    return id;
}

static std::string text_of(PyObject* o, bool repr) {
    if (!o) return "";
    // (the program's own classes could print anything, and do anything)
    if (PyType_HasFeature(Py_TYPE(o), Py_TPFLAGS_HEAPTYPE) && !PyType_Check(o))
        return std::string("a ") + Py_TYPE(o)->tp_name;
    SavedError saved;
    Owned s = Owned::steal(repr ? PyObject_Repr(o) : PyObject_Str(o));
    const char* c = s ? PyUnicode_AsUTF8(s.get()) : nullptr;
    if (!c) {
        PyErr_Clear();
        return Py_TYPE(o)->tp_name;
    }
    return c;
}

std::string SourceTable::describe(SourceId id, PyObject* local_names) const {
    static const char* formats[] = {
#define SOURCE(e, format) format,
#include "frontend/source/sources.def"
#undef SOURCE
    };
    if (id == kNoSource) return "?";
    const Source& s = (*this)[id];
    if (s.kind == SourceKind::Const) {
        if (PyType_Check(s.key.get())) return reinterpret_cast<PyTypeObject*>(s.key.get())->tp_name;
        if (PyModule_Check(s.key.get())) return text_of(s.key.get(), true);
        if (PyDict_Check(s.key.get())) {  // a module's globals
            PyObject* name = PyDict_GetItemString(s.key.get(), "__name__");
            return "G(" + text_of(name, false) + ")";
        }
        if (PyFunction_Check(s.key.get()))
            return text_of(reinterpret_cast<PyFunctionObject*>(s.key.get())->func_qualname, false);
        return std::string("<") + Py_TYPE(s.key.get())->tp_name + ">";
    }
    if (s.kind == SourceKind::NumberCall) {
        PyObject* key = s.key.get();
        Owned name = Owned::steal(PyObject_GetAttrString(PyTuple_GET_ITEM(key, 0), "__name__"));
        std::string out = text_of(name.get(), false) + "(";
        for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(key); ++i) {
            PyObject* a = PyTuple_GET_ITEM(key, i);
            out += i > 1 ? ", " : "";
            out += PyTuple_Check(a) ? describe(id_in(a), local_names) : text_of(a, true);
        }
        return out + ")";
    }
    bool bare = s.kind == SourceKind::Attribute || s.kind == SourceKind::TypeAttribute;
    std::string out, format = formats[static_cast<int>(s.kind)];
    for (size_t i = 0; i < format.size(); ++i) {
        if (format[i] != '{') {
            out += format[i];
            continue;
        }
        switch (format[i + 1]) {
            case 'p': out += describe(s.parent, local_names); break;
            case 'k': out += s.kind == SourceKind::SlotMember ? slot_of(s)->name : text_of(s.key.get(), !bare); break;
            case 'i': out += std::to_string(s.index); break;
            case 'n':
                if (local_names && s.index < PyTuple_GET_SIZE(local_names)) {
                    out += text_of(PyTuple_GET_ITEM(local_names, s.index), true);
                } else {
                    out += "stack " + std::to_string(s.index);
                }
                break;
        }
        i += 2;
    }
    return out;
}

static thread_local std::vector<PyObject*> g_spare;

Fetcher::Fetcher(const SourceTable& table, const Roots& roots) : table_(table), roots_(roots) {
    auto n = static_cast<size_t>(table.size());
    if (n <= std::size(small_)) {
        values_ = small_;
    } else {
        // Large models are checked at each call: the space is kept. (Fetchers nest: an inner one finds none.)
        if (g_spare.size() < n) g_spare.resize(n);
        large_ = std::exchange(g_spare, {});
        values_ = large_.data();
    }
    std::memset(values_, 0, n * sizeof *values_);
}

Fetcher::~Fetcher() {
    if (large_.size() > g_spare.size()) g_spare = std::move(large_);
    for (PyObject* o : kept_) Py_DECREF(o);
}

PyObject* Fetcher::keep(PyObject* owned) {
    if (owned) {
        kept_.push_back(owned);
    } else {
        PyErr_Clear();
    }
    return owned;
}

PyObject* Fetcher::compute(SourceId id) {
    const Source& s = table_[id];
    PyObject* p = nullptr;
    if (s.parent != kNoSource && !(p = fetch(s.parent))) return nullptr;
    switch (s.kind) {
        case SourceKind::Local: return s.index < roots_.n_locals ? roots_.locals[s.index] : nullptr;
        case SourceKind::Function: return roots_.function;
        case SourceKind::Const: return s.key.get();
        case SourceKind::DictItem:
            if (!PyDict_Check(p)) return nullptr;
            if (s.hash != -1) return bz_dict_get_known_hash(p, s.key.get(), s.hash);
            if (PyObject* v = PyDict_GetItemWithError(p, s.key.get())) return v;
            PyErr_Clear();
            return nullptr;
        case SourceKind::InstanceDict: {
            PyObject** d = bz_instance_dict_pointer(p);
            return d ? *d : nullptr;
        }
        case SourceKind::ListItem:
            return PyList_Check(p) && s.index < PyList_GET_SIZE(p) ? PyList_GET_ITEM(p, s.index) : nullptr;
        case SourceKind::TupleItem:
            return PyTuple_Check(p) && s.index < PyTuple_GET_SIZE(p) ? PyTuple_GET_ITEM(p, s.index) : nullptr;
        case SourceKind::DequeItem: {
            PyTypeObject* base = Py_TYPE(p);
            while ((base->tp_flags & Py_TPFLAGS_HEAPTYPE) && !(base->tp_flags & Py_TPFLAGS_IMMUTABLETYPE))
                base = base->tp_base;
            PySequenceMethods* m = base->tp_as_sequence;
            return m && m->sq_item ? keep(m->sq_item(p, s.index)) : nullptr;
        }
        case SourceKind::CellContents: return PyCell_Check(p) ? PyCell_GET(p) : nullptr;
        case SourceKind::SlotMember:
            if (!PyObject_TypeCheck(p, reinterpret_cast<PyTypeObject*>(s.key.get()))) return nullptr;
            return keep(PyMember_GetOne(reinterpret_cast<char*>(p), slot_of(s)));
        case SourceKind::ClassNamespace: return PyType_Check(p) ? reinterpret_cast<PyTypeObject*>(p)->tp_dict : nullptr;
        case SourceKind::Attribute: return keep(PyObject_GetAttr(p, s.key.get()));
        case SourceKind::Gradient: return tensor_bridge()->is_tensor(p) ? keep(tensor_bridge()->gradient(p)) : nullptr;
        case SourceKind::TypeOf: return reinterpret_cast<PyObject*>(Py_TYPE(p));
        case SourceKind::TypeAttribute:
            return PyType_Check(p) ? bz_type_lookup(reinterpret_cast<PyTypeObject*>(p), s.key.get()) : nullptr;
        case SourceKind::ClassDictItem: {
            if (!PyType_Check(p)) return nullptr;
            PyObject* d = reinterpret_cast<PyTypeObject*>(p)->tp_dict;
            return d ? bz_dict_get_known_hash(d, s.key.get(), s.hash) : nullptr;
        }
        case SourceKind::MethodSelf: return PyMethod_Check(p) ? PyMethod_GET_SELF(p) : nullptr;
        case SourceKind::TensorSize: {
            Py_ssize_t size = tensor_bridge()->is_tensor(p) ? tensor_bridge()->size_of(p, s.index) : -1;
            return size < 0 ? nullptr : keep(PyLong_FromSsize_t(size));
        }
        case SourceKind::NumberCall: return call_number_function(s.key.get());
        case SourceKind::WeakrefTarget: return PyWeakref_Check(p) ? PyWeakref_GET_OBJECT(p) : nullptr;
        case SourceKind::WeakrefOf: return keep(PyWeakref_NewRef(p, nullptr));
        case SourceKind::CachedResult:
            return std::strcmp(Py_TYPE(p)->tp_name, "functools._lru_cache_wrapper") == 0 ? bz_lru_result(p, s.key.get())
                                                                                         : nullptr;
        case SourceKind::MethodFunction: return PyMethod_Check(p) ? PyMethod_GET_FUNCTION(p) : nullptr;
        default: break;
    }
    if (!PyFunction_Check(p)) return nullptr;
    auto* f = reinterpret_cast<PyFunctionObject*>(p);
    switch (s.kind) {
        case SourceKind::FunctionCode: return f->func_code;
        case SourceKind::FunctionClosure:
            return f->func_closure && s.index < PyTuple_GET_SIZE(f->func_closure)
                       ? PyTuple_GET_ITEM(f->func_closure, s.index)
                       : nullptr;
        case SourceKind::FunctionDefaults: return f->func_defaults ? f->func_defaults : Py_None;
        case SourceKind::FunctionKwDefaults: return f->func_kwdefaults ? f->func_kwdefaults : Py_None;
        case SourceKind::FunctionGlobals: return f->func_globals;
        default: return nullptr;
    }
}

}  // namespace braze::frontend
