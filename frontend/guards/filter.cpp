#include "frontend/guards/filter.h"

namespace braze::frontend {

const char* guard_kind_name(GuardKind kind) {
    static const char* const names[] = {
#define GUARD(e, text) #e,
#include "frontend/guards/guards.def"
#undef GUARD
    };
    return names[static_cast<size_t>(kind)];
}

namespace {

bool is_global(const SourceTable& sources, SourceId s) {
    for (; s != kNoSource; s = sources[s].parent)
        if (sources[s].kind == SourceKind::FunctionGlobals || sources[s].kind == SourceKind::Const) return true;
    return false;
}

bool is_module(PyObject* o) {
    static PyObject* module_class = [] {
        Owned m = Owned::steal(PyImport_ImportModule("torch.nn"));
        return m ? PyObject_GetAttrString(m.get(), "Module") : nullptr;
    }();
    return module_class && PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(module_class));
}

// The last module on the way to the value (borrowed), or nullptr.
PyObject* module_on_the_way(const SourceTable& sources, SourceId s, Fetcher& f) {
    for (; s != kNoSource; s = sources[s].parent) {
        PyObject* v = f.fetch(s);
        if (v && is_module(v)) return v;
        PyErr_Clear();
    }
    return nullptr;
}

Owned text(const std::string& s) {
    return Owned::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
}

Owned describe(const GuardSet& guards, int i, Fetcher& f, PyObject* names) {
    const Guard& g = guards.guards()[static_cast<size_t>(i)];
    PyObject *value = nullptr, *module = nullptr;
    Owned source = text(g.source == kNoSource ? "" : guards.sources.describe(g.source, names));
    if (g.source != kNoSource) {
        value = f.fetch(g.source);
        PyErr_Clear();
        module = module_on_the_way(guards.sources, g.source, f);
    }
    bool global = g.source != kNoSource && is_global(guards.sources, g.source);
    Owned description = text(guards.text(i, names));
    return Owned::steal(Py_BuildValue("(OOsOOOO)", source.get(), description.get(), guard_kind_name(g.kind),
                                      value ? value : Py_None, global ? Py_True : Py_False, module ? module : Py_None,
                                      value ? Py_True : Py_False));
}

}  // namespace

bool filter_guards(GuardSet& guards, PyObject* filter, const Roots& roots, PyObject* names,
                   const std::unordered_set<SourceId>& inputs) {
    auto n = static_cast<int>(guards.guards().size());
    Owned list = Owned::steal(PyList_New(0));
    {
        Fetcher f(guards.sources, roots);
        for (int i = 0; list && i < n; ++i) {
            Owned d = describe(guards, i, f, names);
            if (!d || PyList_Append(list.get(), d.get()) < 0) return false;
        }
    }
    Owned answer = Owned::steal(PyObject_CallOneArg(filter, list.get()));
    if (!answer) return false;
    std::vector<bool> kept(static_cast<size_t>(n), true);
    for (int i = 0; i < n && PyList_Check(answer.get()) && i < PyList_GET_SIZE(answer.get()); ++i)
        kept[static_cast<size_t>(i)] = PyList_GET_ITEM(answer.get(), i) != Py_False;
    guards.keep(kept, inputs);
    return true;
}

}  // namespace braze::frontend
