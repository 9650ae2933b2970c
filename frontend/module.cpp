#include "frontend/module.h"

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
        while (PyDict_Next(constants, &pos, &k, &v)) set_function_rule(k, {Owned::share(v), ""});
    pos = 0;
    if (PyObject* breaks = PyDict_GetItemString(tables, "breaks"))
        while (PyDict_Next(breaks, &pos, &k, &v)) set_function_rule(k, {nullptr, PyUnicode_AsUTF8(v)});
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
    s.untraced_code.clear();
    if (PyObject* functions = PyDict_GetItemString(tables, "run_untraced_functions")) {
        Owned seq = Owned::steal(PySequence_List(functions));
        if (!seq) return nullptr;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(seq.get()); ++i) {
            s.untraced_code.push_back(Owned::steal(PyObject_GetAttrString(PyList_GET_ITEM(seq.get(), i), "__code__")));
            if (!s.untraced_code.back()) return nullptr;
        }
    }
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
    if (PyObject* errors = PyDict_GetItemString(tables, "errors")) {
        s.graph_break_error = Owned::share(PyDict_GetItemString(errors, "graph_break"));
        s.internal_error = Owned::share(PyDict_GetItemString(errors, "internal"));
        s.limit_error = Owned::share(PyDict_GetItemString(errors, "limit"));
        s.user_error = Owned::share(PyDict_GetItemString(errors, "user"));
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
    } else if (n == "fail_at") {
        const char* stage = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
        s.fail_at = stage ? stage : "";
    } else if (n == "recompile_limit") {
        s.recompile_limit = static_cast<int>(PyLong_AsLong(value));
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

PyObject* py_explain(PyObject*, PyObject* o) { return explain_compiled(o); }

PyObject* py_disable_code(PyObject*, PyObject* args, PyObject* kwargs) {
    static const char* names[] = {"fn", "recursive", nullptr};
    PyObject* fn;
    int recursive = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p", const_cast<char**>(names), &fn, &recursive)) return nullptr;
    set_function_rule(fn, {nullptr, "disabled"});
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {{"configure", py_configure, METH_O, "once, at import: the tables of _tables.py"},
                         {"set_option", py_set_option, METH_VARARGS, "set_option(name, value)"},
                         {"set_logger", py_set_logger, METH_O, "logger(kind, message, data), or None"},
                         {"reset", py_reset, METH_NOARGS, "forgets everything that was compiled, and the counters"},
                         {"stats", py_stats, METH_NOARGS, "the counters"},
                         {"compilations", py_compilations, METH_NOARGS, "graphs compiled so far"},
                         {"is_tracing", py_is_tracing, METH_NOARGS, "this thread traces a function now"},
                         {"explain", py_explain, METH_O, "what was compiled for a CompiledFunction"},
                         {"disable_code", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(py_disable_code)),
                          METH_VARARGS | METH_KEYWORDS, "the function is never traced"},
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
