#include "bridge/options.h"

#include <mutex>
#include <thread>

#include "bridge/gil.h"
#include "core/passes/pass.h"
#include "core/support/error.h"

namespace braze::bridge {

namespace {

constexpr const char* kPassNames = ""
#define PASS(id, text, summary) text " "
#include "core/passes/passes.def"
#undef PASS
    ;

std::mutex g_mutex;
PipelineOptions& stored() {
    static auto* o = new PipelineOptions;  // holds a Python callable: never destroyed after the interpreter
    return *o;
}

// The Python callable stays alive as long as the function object does; it is only called with the GIL.
std::function<void(const std::string&, const std::string&)> dump_function(PyObject* callable) {
    if (callable == Py_None) return {};
    Py_INCREF(callable);
    std::shared_ptr<PyObject> held(callable, [](PyObject* o) {
        Gil gil;
        Py_DECREF(o);
    });
    return [held](const std::string& stage, const std::string& text) {
        Gil gil;
        PyObject* body = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
        PyObject* r = body ? PyObject_CallFunction(held.get(), "sN", stage.c_str(), body) : nullptr;
        if (!r) PyErr_WriteUnraisable(held.get());
        Py_XDECREF(r);
    };
}

}  // namespace

PipelineOptions pipeline_options() {
    std::lock_guard lock(g_mutex);
    return stored();
}

bool set_pipeline_option(const std::string& name, PyObject* value) {
    std::lock_guard lock(g_mutex);
    PipelineOptions& o = stored();
    if (name == "isa") {
        const char* text = PyUnicode_AsUTF8(value);
        if (!text) return false;
        try {
            if (*text) codegen::detect_target(text);  // names what this host has if it lacks this one
            o.isa = text;
        } catch (const Error& e) {
            PyErr_SetString(PyExc_ValueError, e.what());
            return false;
        }
    } else if (name == "activation_memory_budget") {
        o.memory_budget = PyFloat_AsDouble(value);
    } else if (name == "threads") {
        long n = PyLong_AsLong(value);
        if (n <= 0) n = static_cast<long>(std::thread::hardware_concurrency());
        o.compile_threads = static_cast<int>(n > 0 ? n : 1);
    } else if (name == "verify") {
        o.verify = PyObject_IsTrue(value) > 0;
    } else if (name == "dump") {
        o.dump = dump_function(value);
    } else if (name == "disabled_passes") {
        PyObject* list = PySequence_List(value);
        o.disabled_passes.clear();
        for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); ++i)
            if (const char* pass = PyUnicode_AsUTF8(PyList_GET_ITEM(list, i))) {
                if (!passes::find_pass(pass))
                    PyErr_Format(PyExc_ValueError, "no pass is called '%s'; passes: %s", pass, kPassNames);
                o.disabled_passes.insert(pass);
            }
        Py_XDECREF(list);
    } else {
        return false;
    }
    return !PyErr_Occurred();
}

}  // namespace braze::bridge
