#include "frontend/module.h"

#include <cstring>

#include "frontend/bridge_api.h"
#include "frontend/cpython/api.h"
#include "frontend/interp/calls.h"
#include "frontend/interp/tracer.h"
#include "frontend/segments/compiled.h"
#include "frontend/segments/report.h"
#include "frontend/segments/segment.h"

namespace braze::frontend {

static TensorBridge* g_bridge = nullptr;
void set_tensor_bridge(TensorBridge* bridge) { g_bridge = bridge; }
TensorBridge* tensor_bridge() { return g_bridge; }

namespace {

PyObject* py_configure(PyObject*, PyObject* tables) {
    if (!PyDict_Check(tables)) {
        PyErr_SetString(PyExc_TypeError, "configure takes a dict");
        return nullptr;
    }
    Py_ssize_t pos = 0;
    PyObject *k, *v;
    if (PyObject* constants = PyDict_GetItemString(tables, "constants"))
        while (PyDict_Next(constants, &pos, &k, &v)) set_function_rule(k, {FunctionRule::Constant, Owned::share(v)});
    pos = 0;
    if (PyObject* breaks = PyDict_GetItemString(tables, "breaks"))
        while (PyDict_Next(breaks, &pos, &k, &v))
            set_function_rule(k, {FunctionRule::Break, nullptr, PyUnicode_AsUTF8(v)});
    pos = 0;
    if (PyObject* replace = PyDict_GetItemString(tables, "replace"))
        while (PyDict_Next(replace, &pos, &k, &v)) set_function_rule(k, {FunctionRule::Replace, Owned::share(v)});
    auto strings = [&](const char* name, std::vector<std::string>& out) {
        PyObject* s = PyDict_GetItemString(tables, name);
        Owned seq = Owned::steal(s ? PySequence_List(s) : nullptr);
        PyErr_Clear();
        for (Py_ssize_t i = 0; seq && i < PyList_GET_SIZE(seq.get()); ++i)
            if (const char* c = PyUnicode_AsUTF8(PyList_GET_ITEM(seq.get(), i))) out.emplace_back(c);
    };
    Settings& s = settings();
    s.run_untraced.clear();
    strings("run_untraced", s.run_untraced);
    s.run_traced.clear();
    strings("run_traced", s.run_traced);
    s.untraced_code.clear();
    if (PyObject* functions = PyDict_GetItemString(tables, "run_untraced_functions")) {
        Owned seq = Owned::steal(PySequence_List(functions));
        if (!seq) return nullptr;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(seq.get()); ++i) {
            s.untraced_code.push_back(Owned::steal(PyObject_GetAttrString(PyList_GET_ITEM(seq.get(), i), "__code__")));
            if (!s.untraced_code.back()) return nullptr;
        }
    }
    s.replaced_code.clear();
    pos = 0;
    if (PyObject* replaced = PyDict_GetItemString(tables, "replaced_code"))
        while (PyDict_Next(replaced, &pos, &k, &v)) s.replaced_code.emplace(Py_NewRef(k), Owned::share(v));
    s.stdlib_prefixes.clear();
    strings("stdlib_prefixes", s.stdlib_prefixes);
    if (s.stdlib_prefixes.empty()) {
        Owned os = Owned::steal(PyImport_ImportModule("os"));
        Owned file = Owned::steal(os ? PyObject_GetAttrString(os.get(), "__file__") : nullptr);
        if (file) {
            std::string path = PyUnicode_AsUTF8(file.get());
            s.stdlib_prefixes.push_back(path.substr(0, path.rfind('/') + 1));
        }
        PyErr_Clear();
    }
    s.peer.clear();
    strings("peer", s.peer);
    std::vector<std::string> own;
    strings("own_prefix", own);
    if (!own.empty()) s.own_prefix = own[0];
    if (PyObject* errors = PyDict_GetItemString(tables, "errors")) {
        s.graph_break_error = Owned::share(PyDict_GetItemString(errors, "graph_break"));
        s.internal_error = Owned::share(PyDict_GetItemString(errors, "internal"));
        s.limit_error = Owned::share(PyDict_GetItemString(errors, "limit"));
        s.recompile_error = Owned::share(PyDict_GetItemString(errors, "recompile"));
        s.user_error = Owned::share(PyDict_GetItemString(errors, "user"));
        s.backend_error = Owned::share(PyDict_GetItemString(errors, "backend"));
    }
    Py_RETURN_NONE;
}

PyObject* py_set_option(PyObject*, PyObject* args) {
    const char* name;
    PyObject* value;
    if (!PyArg_ParseTuple(args, "sO", &name, &value)) return nullptr;
    std::string n = name;
    Settings& s = settings();
    if (n == "strict") {
        s.strict = PyObject_IsTrue(value) > 0;
    } else if (n == "check_fakes") {
        s.check_fakes = PyObject_IsTrue(value) > 0;
        tensor_bridge()->count_fakes(s.check_fakes);
    } else if (n == "fail_at") {
        const char* stage = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
        s.fail_at = stage ? stage : "";
    } else if (n == "recompile_limit") {
        s.recompile_limit = static_cast<int>(PyLong_AsLong(value));
    } else if (n == "accumulated_recompile_limit") {
        s.accumulated_recompile_limit = static_cast<int>(PyLong_AsLong(value));
    } else if (n == "fail_on_recompile_limit_hit") {
        s.fail_on_recompile_limit = PyObject_IsTrue(value) > 0;
    } else if (n == "automatic_dynamic_shapes") {
        s.automatic_dynamic = PyObject_IsTrue(value) > 0;
    } else if (!tensor_bridge()->set_option(n, value)) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "unknown native option '%s'", name);
        return nullptr;
    }
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_NONE;
}

PyObject* py_set_logger(PyObject*, PyObject* callable) {
    set_logger(callable);
    Py_RETURN_NONE;
}

PyObject* py_reset(PyObject*, PyObject*) {
    reset_units();
    statistics() = {};
    Py_RETURN_NONE;
}

PyObject* py_stats(PyObject*, PyObject*) {
    Statistics& s = statistics();
    return Py_BuildValue("{s:l,s:l,s:l,s:l,s:l,s:{s:d,s:d}}", "graphs", s.graphs, "graph_breaks", s.graph_breaks,
                         "recompiles", s.recompiles, "kernels", s.kernels, "aten_calls", s.aten_calls, "seconds",
                         "trace", s.trace_seconds, "compile", s.compile_seconds);
}

PyObject* py_compilations(PyObject*, PyObject*) { return PyLong_FromLong(statistics().graphs); }

PyObject* py_is_tracing(PyObject*, PyObject*) { return PyBool_FromLong(Tracer::current() != nullptr); }

PyObject* py_break_reasons(PyObject*, PyObject*) {
    Owned list = Owned::steal(PyList_New(0));
    for (const BreakInfo& b : break_table()) {
        Owned d = Owned::steal(Py_BuildValue("{s:s,s:s,s:s,s:s}", "id", b.id, "title", b.title, "explanation",
                                             b.explanation, "hint", b.hint));
        if (!d || PyList_Append(list.get(), d.get()) < 0) return nullptr;
    }
    return list.release();
}

PyObject* py_measure_guards(PyObject*, PyObject* on) {
    return PyBool_FromLong(std::exchange(measure_guards(), PyObject_IsTrue(on) > 0));
}

PyObject* py_explain(PyObject*, PyObject* o) { return explain_compiled(o); }

struct RuleName {
    const char* name;
    FunctionRule::Kind kind;
    const char* break_id;
    bool folds;
};
constexpr RuleName kRuleNames[] = {{"constant", FunctionRule::Constant, "", false},
                                   {"graph_break", FunctionRule::Break, "requested", false},
                                   {"control", FunctionRule::Break, "compiler-control", false},
                                   {"disallow", FunctionRule::Break, "disallowed", false},
                                   {"forbid", FunctionRule::Forbid, "", false},
                                   {"replace", FunctionRule::Replace, "", false},
                                   {"replace_or_fold", FunctionRule::Replace, "", true},
                                   {"opaque", FunctionRule::Opaque, "", false},
                                   {"nonstrict", FunctionRule::NonStrict, "", false}};

PyObject* py_set_rule(PyObject*, PyObject* args) {
    PyObject *fn, *value = Py_None;
    const char* kind;
    if (!PyArg_ParseTuple(args, "Oz|O", &fn, &kind, &value)) return nullptr;
    if (!kind) {
        clear_function_rule(fn);
        Py_RETURN_NONE;
    }
    for (const RuleName& r : kRuleNames)
        if (std::strcmp(r.name, kind) == 0) {
            set_function_rule(fn, {r.kind, Owned::share(value), r.break_id, r.folds});
            Py_RETURN_NONE;
        }
    PyErr_Format(PyExc_ValueError, "unknown rule '%s'", kind);
    return nullptr;
}

constexpr const char* kStances[] = {"default",           "force_eager",        "eager_on_recompile",
                                    "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile"};

PyObject* py_set_stance(PyObject*, PyObject* args) {
    const char* name;
    PyObject* backend;
    if (!PyArg_ParseTuple(args, "sO", &name, &backend)) return nullptr;
    for (size_t i = 0; i < std::size(kStances); ++i)
        if (std::strcmp(kStances[i], name) == 0) {
            set_stance(static_cast<Stance>(i));
            force_backend(backend);
            Py_RETURN_NONE;
        }
    PyErr_Format(PyExc_ValueError, "unknown stance '%s'", name);
    return nullptr;
}

PyObject* py_call_without_compiling(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
    if (n < 1) {
        PyErr_SetString(PyExc_TypeError, "a callable is expected");
        return nullptr;
    }
    UseOnlyCompiled guard;
    return PyObject_Vectorcall(args[0], args + 1, static_cast<size_t>(n - 1), kwnames);
}

PyObject* py_error_on_graph_break(PyObject*, PyObject* flag) {
    int on = PyObject_IsTrue(flag);
    return on < 0 ? nullptr : PyBool_FromLong(std::exchange(error_on_break(), on != 0));
}

// (what these do in a trace is all that they do)
PyObject* py_outside_trace(PyObject*, PyObject*) {
    PyErr_SetString(PyExc_RuntimeError, "this is for traced code");
    return nullptr;
}

PyObject* py_constant(PyObject*, PyObject* number) { return Py_NewRef(number); }

template <class F>
PyCFunction method(F f) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

PyMethodDef methods[] = {{"configure", py_configure, METH_O, "once, at import: the tables of _tables.py"},
                         {"set_option", py_set_option, METH_VARARGS, "set_option(name, value)"},
                         {"set_logger", py_set_logger, METH_O, "logger(kind, message, data), or None"},
                         {"reset", py_reset, METH_NOARGS, "forgets everything that was compiled, and the counters"},
                         {"stats", py_stats, METH_NOARGS, "the counters"},
                         {"compilations", py_compilations, METH_NOARGS, "graphs compiled so far"},
                         {"is_tracing", py_is_tracing, METH_NOARGS, "this thread traces a function now"},
                         {"break_reasons", py_break_reasons, METH_NOARGS, "why graphs end: the table"},
                         {"measure_guards", py_measure_guards, METH_O,
                          "whether checks of guards are counted and timed; returns what it was"},
                         {"explain", py_explain, METH_O, "what was compiled for a CompiledFunction"},
                         {"set_rule", py_set_rule, METH_VARARGS, "what a call of the function means in a trace"},
                         {"set_stance", py_set_stance, METH_VARARGS, "set_stance(name, forced backend or None)"},
                         {"call_without_compiling", method(py_call_without_compiling), METH_FASTCALL | METH_KEYWORDS,
                          "calls a callable; what is compiled is used, nothing else is compiled"},
                         {"add_hook", py_outside_trace, METH_VARARGS,
                          "add_hook(handle, (function, arguments), tensor, hook, post): of traced code"},
                         {"remove_hook", py_outside_trace, METH_O, "remove_hook(handle): of traced code"},
                         {"constant", py_constant, METH_O, "the number, which is a constant of the trace from here on"},
                         {"error_on_graph_break", py_error_on_graph_break, METH_O,
                          "sets whether a graph break is an error on this thread; returns what it was"},
                         {nullptr, nullptr, 0, nullptr}};

}  // namespace

}  // namespace braze::frontend

int braze_frontend_init(PyObject* module) {
    using namespace braze::frontend;
    if (bz_cpython_init() < 0 || tracer_init() < 0 || compiled_init(module) < 0) return -1;
    if (const char* missing = bz_check_opcodes()) {
        PyErr_Format(PyExc_ImportError, "braze: %s", missing);
        return -1;
    }
    return PyModule_AddFunctions(module, methods);
}
