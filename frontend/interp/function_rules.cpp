// Functions with a meaning of their own in a trace: by identity, by marks on them, by what torch's compiler was told.
#include <cstring>
#include <unordered_map>

#include "frontend/interp/calls.h"
#include "frontend/segments/segment.h"

namespace braze::frontend {

static std::unordered_map<PyObject*, FunctionRule>& rules() {
    static auto* m = new std::unordered_map<PyObject*, FunctionRule>;
    return *m;
}

// A rule for a method is one for its function.
static PyObject* rule_key(PyObject* f) { return PyMethod_Check(f) ? PyMethod_GET_FUNCTION(f) : f; }

void set_function_rule(PyObject* f, FunctionRule rule) {
    f = rule_key(f);
    auto [it, fresh] = rules().insert_or_assign(f, std::move(rule));
    if (fresh) Py_INCREF(f);  // the key
}

void clear_function_rule(PyObject* f) {
    f = rule_key(f);
    if (rules().erase(f)) Py_DECREF(f);
}

const FunctionRule* function_rule(PyObject* f) {
    auto it = rules().find(f);
    if (it == rules().end()) {
        PyObject* self = bound_self(f);  // x.add is Tensor.add
        if (!self) return nullptr;
        Owned name = Owned::steal(PyUnicode_FromString(reinterpret_cast<PyCFunctionObject*>(f)->m_ml->ml_name));
        PyObject* method = name ? bz_type_lookup(Py_TYPE(self), name.get()) : nullptr;
        it = method ? rules().find(method) : rules().end();
    }
    return it == rules().end() ? nullptr : &it->second;
}

std::string qualified_name(PyObject* fn) {
    Owned q = Owned::steal(PyObject_GetAttrString(fn, "__qualname__"));
    const char* c = q && PyUnicode_Check(q.get()) ? PyUnicode_AsUTF8(q.get()) : nullptr;
    PyErr_Clear();
    return c ? c : Py_TYPE(fn)->tp_name;
}

// What may enter and leave an opaque function: the values that a graph can hold.
static bool graph_value(Tracer& t, PyObject* v, int depth = 0) {
    if (v == Py_None || PyBool_Check(v) || PyLong_CheckExact(v) || PyFloat_CheckExact(v) || PyComplex_CheckExact(v) ||
        PyUnicode_CheckExact(v) || is_symbolic(v) || t.is_tensor(v))
        return true;
    const char* name = Py_TYPE(v)->tp_name;
    for (const char* n : {"torch.dtype", "torch.device", "torch.layout", "torch.memory_format"})
        if (std::strcmp(name, n) == 0) return true;
    if (depth > 8 || !(PyTuple_Check(v) || PyList_CheckExact(v))) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); ++i)
        if (!graph_value(t, PySequence_Fast_GET_ITEM(v, i), depth + 1)) return false;
    return true;
}

static PyObject* call_opaque(Tracer& t, PyObject* fn, Args a) {
    for (Py_ssize_t i = 0; i < a.total(); ++i)
        if (!graph_value(t, a.v[i]))
            return t.stop("opaque-value", qualified_name(fn) + " is given a " + Py_TYPE(a.v[i])->tp_name);
    if (read_arguments(t, a) < 0 || (PyFunction_Check(fn) && t.use_function(fn) < 0)) return nullptr;
    int mode = bz_mode_set(BZ_OFF);
    PyObject* r = PyObject_Vectorcall(fn, a.v, static_cast<size_t>(a.n), a.kwnames);
    bz_mode_set(mode);
    if (r && !t.aborting && !graph_value(t, r)) {
        std::string what = qualified_name(fn) + " returns a " + Py_TYPE(r)->tp_name;
        Py_DECREF(r);
        return t.stop("opaque-value", what);
    }
    return finish_c_call(t, r);
}

PyObject* call_as_constant(Tracer& t, PyObject* fn, Args a) {
    for (Py_ssize_t i = 0; i < a.total(); ++i)
        if (t.is_tensor(a.v[i]) || is_symbolic(a.v[i]))
            return t.stop("constant-result", qualified_name(fn) + " is given a tensor");
    if (read_arguments(t, a) < 0) return nullptr;
    int mode = bz_mode_set(BZ_OFF);
    t.capture->pause();
    PyObject* r = PyObject_Vectorcall(fn, a.v, static_cast<size_t>(a.n), a.kwnames);
    t.capture->resume();
    bz_mode_set(mode);
    if (!r) return nullptr;
    t.guards.sources.lifetimes.keep(r);
    return t.loaded(r, t.guards.sources.constant(r));
}

// The function itself where all arguments are constants.
static bool fold(Tracer& t, PyObject* fn, Args a, PyObject** result) {
    for (Py_ssize_t i = 0; i < a.total(); ++i)
        if (!is_constant_value(a.v[i])) return false;
    int mode = bz_mode_set(BZ_OFF);
    *result = PyObject_Vectorcall(fn, a.v, static_cast<size_t>(a.n), a.kwnames);
    bz_mode_set(mode);
    if (*result) *result = finish_c_call(t, *result);
    return true;
}

PyObject* apply_rule(Tracer& t, const FunctionRule& rule, PyObject* callable, Args a) {
    Owned value = rule.value;  // the rule may change meanwhile
    t.guards.sources.lifetimes.keep(value.get());
    if (value && t.source_of(value.get()) == kNoSource && !is_primitive(value.get()))
        t.know(value.get(), t.guards.sources.constant(value.get()));
    switch (rule.kind) {
        case FunctionRule::Constant: return value.new_reference();
        case FunctionRule::Forbid: return t.stop("forbidden", qualified_name(callable));
        case FunctionRule::Break: {
            if (rule.break_id != "requested") return t.stop(rule.break_id.c_str(), qualified_name(callable));
            if (t.non_strict > 0) Py_RETURN_NONE;
            const char* said = a.total() == 1 && PyUnicode_Check(a.v[0]) ? PyUnicode_AsUTF8(a.v[0]) : nullptr;
            return t.stop("requested", said ? said : "");
        }
        case FunctionRule::Replace: {
            PyObject* r;
            if (rule.folds && fold(t, callable, a, &r)) return r;
            if (PyObject* self = bound_self(callable)) {
                std::vector<PyObject*> all{self};
                all.insert(all.end(), a.v, a.v + a.total());
                return call(t, value.get(), {all.data(), a.n + 1, a.kwnames});
            }
            return call(t, value.get(), a);
        }
        case FunctionRule::Opaque: return call_opaque(t, callable, a);
        case FunctionRule::NonStrict: {
            t.non_strict++;
            PyObject* r = call(t, value.get(), a);
            t.non_strict--;
            return r;
        }
    }
    return nullptr;
}

// A set of ids in torch's compiler, if the program has loaded it and the set was made: borrowed, or nullptr.
static PyObject* torch_ids(const char* name) {
    if (settings().peer.size() < 3) return nullptr;
    Owned key = Owned::steal(PyUnicode_FromString(settings().peer[2].c_str()));
    Owned rules = Owned::steal(PyImport_GetModule(key.get()));
    PyObject* ids = rules ? PyDict_GetItemString(PyModule_GetDict(rules.get()), name) : nullptr;
    PyObject** dict = ids ? bz_instance_dict_pointer(ids) : nullptr;
    PyObject* set = dict && *dict ? PyDict_GetItemString(*dict, "function_ids") : nullptr;
    PyErr_Clear();
    return set && PyAnySet_Check(set) ? set : nullptr;
}

static bool in_torch_ids(const char* name, PyObject* fn) {
    PyObject* set = torch_ids(name);
    if (!set) return false;
    Owned id = Owned::steal(PyLong_FromVoidPtr(fn));
    return PySet_Contains(set, id.get()) > 0;
}

// A function of torch's own compiler. (Nothing imports it: the program did.)
static bool belongs_to_torchs_compiler(PyObject* fn, const char** name) {
    auto* f = reinterpret_cast<PyFunctionObject*>(fn);
    const char* m = f->func_module && PyUnicode_Check(f->func_module) ? PyUnicode_AsUTF8(f->func_module) : nullptr;
    if (!m) return PyErr_Clear(), false;
    const std::vector<std::string>& peer = settings().peer;
    if (peer.size() < 2 || std::strncmp(m, peer[0].c_str(), peer[0].size()) != 0 || peer[1] == m) return false;
    *name = PyUnicode_AsUTF8(f->func_name);
    return *name != nullptr;
}

bool call_marked(Tracer& t, PyObject* fn, Args a, PyObject** result) {
    PyObject* dict = reinterpret_cast<PyFunctionObject*>(fn)->func_dict;
    auto marked = [&](const char* mark) { return dict && PyDict_GetItemString(dict, mark) == Py_True; };
    *result = nullptr;
    for (auto [mark, why] : {std::pair{"_torchdynamo_disable", "_torchdynamo_disable_msg"},
                             std::pair{"_braze_disable", "_braze_disable_reason"}}) {
        if (!marked(mark)) continue;
        PyObject* reason = PyDict_GetItemString(dict, why);
        const char* text = reason && PyUnicode_Check(reason) ? PyUnicode_AsUTF8(reason) : nullptr;
        t.stop("disabled", qualified_name(fn) + (text ? std::string(": ") + text : ""));
        return true;
    }
    if (marked("_dynamo_forbidden")) return t.stop("forbidden", qualified_name(fn)), true;
    if (marked("_dynamo_marked_constant")) return *result = call_as_constant(t, fn, a), true;
    const char* name = nullptr;
    if (belongs_to_torchs_compiler(fn, &name)) {
        FunctionRule rule;
        rule.break_id = std::strcmp(name, "graph_break") == 0 || std::strcmp(name, "skip_frame") == 0 ||
                                std::strcmp(name, "step_unsupported") == 0
                            ? "requested"
                            : "compiler-control";
        return *result = apply_rule(t, rule, fn, a), true;
    }
    if (in_torch_ids("_disallowed_callable_ids", fn)) return t.stop("disallowed", qualified_name(fn)), true;
    if (in_torch_ids("_allowed_callable_ids", fn)) return *result = call_opaque(t, fn, a), true;
    return false;
}

}  // namespace braze::frontend
