// The bridge without the front end, for tests: a Python callable is run under a capture by CPython itself, real tensors
// that it meets become graph inputs, and the compiled graph is run on the real values.
#include <map>
#include <string>

#include "bridge/bridge.h"
#include "frontend/cpython/api.h"
#include "frontend/segments/segment.h"
#include "frontend/support/ref.h"

using braze::frontend::Owned;
namespace fe = braze::frontend;

// No front end is linked: nothing is traced or hooked.
extern "C" int bz_mode_set(int) { return BZ_OFF; }
fe::Settings& fe::settings() {
    static auto* none = new Settings;
    return *none;
}

namespace {

struct Graph {
    PyObject_HEAD fe::CompiledGraph* compiled;
    PyObject* real_inputs;  // list; the first are the arguments
    PyObject* plan;         // the nested structure of the results, tensors as ("node"|"input", index)
    int n_outputs;
    PyObject* mutated;  // list of input ids
    PyObject* guards;   // text of the shape guard
    PyObject* dims;     // per input: bits of the sizes that are symbols
    fe::ShapeGuard* shape_guard;
};

PyObject* g_break_type = nullptr;  // GraphBreak(id, detail)

struct Session {
    std::unique_ptr<fe::Capture> capture;
    Owned inputs = Owned::steal(PyList_New(0));
    std::map<PyObject*, Owned> fakes;  // by the real tensor

    PyObject* input(PyObject* real, uint64_t dynamic) {
        auto it = fakes.find(real);
        if (it != fakes.end()) return it->second.get();
        PyObject* fake = capture->fake_input(real, static_cast<int>(PyList_GET_SIZE(inputs.get())), dynamic);
        if (!fake) return nullptr;
        PyList_Append(inputs.get(), real);
        fakes[real] = Owned::steal(fake);
        return fake;
    }
};

// Tensors in nested tuples, lists and dicts replaced by f.
template <class F>
Owned map_tensors(PyObject* o, F&& f) {
    bool sym_int = std::string(Py_TYPE(o)->tp_name) == "SymInt";
    if (fe::TensorBridge* b = braze::bridge::tensor_bridge(); sym_int || b->is_tensor(o)) return Owned::steal(f(o));
    if (PyTuple_Check(o) || PyList_Check(o)) {
        Owned fast = Owned::steal(PySequence_Fast(o, ""));
        Py_ssize_t n = PySequence_Fast_GET_SIZE(fast.get());
        Owned list = Owned::steal(PyList_New(n));
        for (Py_ssize_t i = 0; i < n; ++i) {
            Owned item = map_tensors(PySequence_Fast_GET_ITEM(fast.get(), i), f);
            if (!item) return nullptr;
            PyList_SET_ITEM(list.get(), i, item.release());
        }
        return PyTuple_Check(o) ? Owned::steal(PyList_AsTuple(list.get())) : list;
    }
    if (PyDict_Check(o)) {
        Owned dict = Owned::steal(PyDict_New());
        PyObject *key, *value;
        for (Py_ssize_t pos = 0; PyDict_Next(o, &pos, &key, &value);) {
            Owned item = map_tensors(value, f);
            if (!item || PyDict_SetItem(dict.get(), key, item.get()) < 0) return nullptr;
        }
        return dict;
    }
    return Owned::share(o);
}

void graph_dealloc(PyObject* o) {
    auto* g = reinterpret_cast<Graph*>(o);
    delete g->compiled;
    delete g->shape_guard;
    Py_XDECREF(g->dims);
    Py_XDECREF(g->real_inputs);
    Py_XDECREF(g->plan);
    Py_XDECREF(g->mutated);
    Py_XDECREF(g->guards);
    Py_TYPE(o)->tp_free(o);
}

// run(*args): the arguments replace the first inputs.
PyObject* graph_call(PyObject* self, PyObject* args, PyObject*) {
    auto* g = reinterpret_cast<Graph*>(self);
    std::vector<PyObject*> inputs;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(g->real_inputs); ++i)
        inputs.push_back(i < PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, i) : PyList_GET_ITEM(g->real_inputs, i));
    std::vector<PyObject*> outputs(g->n_outputs);
    if (!g->compiled->run(inputs.data(), static_cast<int>(inputs.size()), outputs.data(), g->n_outputs)) return nullptr;
    PyObject* list = PyList_New(g->n_outputs);
    for (int i = 0; i < g->n_outputs; ++i) PyList_SET_ITEM(list, i, outputs[i]);
    return list;
}
PyObject* graph_text(PyObject* self, PyObject*) {
    return PyUnicode_FromString(reinterpret_cast<Graph*>(self)->compiled->text().c_str());
}
PyObject* graph_counts(PyObject* self, PyObject*) {
    auto* c = reinterpret_cast<Graph*>(self)->compiled;
    return Py_BuildValue("{s:i,s:i,s:i,s:i}", "ops", c->ops(), "kernels", c->kernels(), "aten_calls", c->aten_calls(),
                         "torch_ops", c->torch_ops());
}
// check(*args) -> what fails, or ""
PyObject* graph_check(PyObject* self, PyObject* args) {
    auto* g = reinterpret_cast<Graph*>(self);
    std::vector<PyObject*> inputs;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(g->real_inputs); ++i)
        inputs.push_back(i < PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, i) : PyList_GET_ITEM(g->real_inputs, i));
    return PyUnicode_FromString(g->shape_guard->explain(inputs.data()).c_str());
}
#define MEMBER(name) \
    PyObject* graph_##name(PyObject* self, void*) { return Py_NewRef(reinterpret_cast<Graph*>(self)->name); }
MEMBER(plan)
MEMBER(real_inputs)
MEMBER(mutated)
MEMBER(guards)
MEMBER(dims)
#undef MEMBER
PyMethodDef graph_methods[] = {{"text", graph_text, METH_NOARGS, nullptr},
                               {"counts", graph_counts, METH_NOARGS, nullptr},
                               {"check", graph_check, METH_VARARGS, nullptr},
                               {}};
PyGetSetDef graph_getset[] = {{"plan", graph_plan},     {"inputs", graph_real_inputs}, {"mutated", graph_mutated},
                              {"guards", graph_guards}, {"dims", graph_dims},          {}};
PyTypeObject graph_type = {PyVarObject_HEAD_INIT(nullptr, 0) "braze_bridge_test.Graph"};

// capture(fn, args, dynamic=(bits per tensor argument,)) -> Graph
PyObject* capture(PyObject*, PyObject* args) {
    PyObject *fn, *arguments, *dynamic = nullptr;
    if (!PyArg_ParseTuple(args, "OO!|O!", &fn, &PyTuple_Type, &arguments, &PyTuple_Type, &dynamic)) return nullptr;
    Session s;
    fe::CaptureOptions options;
    options.dynamic = dynamic != nullptr;
    options.numbers = false;  // the values of a capture are tensors here
    options.on_real_tensor = [&](PyObject* real) { return s.input(real, 0); };
    options.on_break = [](const char* id, const std::string& detail) {
        Owned value = Owned::steal(Py_BuildValue("(ss)", id, detail.c_str()));
        PyErr_SetObject(g_break_type, value.get());
    };
    s.capture = braze::bridge::tensor_bridge()->begin_capture(options);
    int k = 0;
    Owned fake_args = map_tensors(arguments, [&](PyObject* t) -> PyObject* {
        uint64_t bits =
            dynamic && k < PyTuple_GET_SIZE(dynamic) ? PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(dynamic, k)) : 0;
        ++k;
        return Py_XNewRef(s.input(t, bits));
    });
    if (!fake_args) return nullptr;
    Owned result = Owned::steal(PyObject_CallObject(fn, fake_args.get()));
    if (!result) {
        fe::SavedError keep;
        s.capture.reset();
        return nullptr;
    }
    std::vector<PyObject*> outputs;
    std::vector<Owned> kept;
    Owned plan = map_tensors(result.get(), [&](PyObject* t) -> PyObject* {
        fe::TensorBridge* bridge = braze::bridge::tensor_bridge();
        if (!bridge->is_tensor(t)) {
            Owned number = Owned::steal(bridge->with_own_numbers(Py_NewRef(t)));
            if (!number || Py_TYPE(number.get()) != bridge->symbolic_int_class()) return number.release();
            outputs.push_back(number.get());
            kept.push_back(std::move(number));
            return Py_BuildValue("(si)", "node", static_cast<int>(outputs.size()) - 1);
        }
        auto ref = s.capture->value_of(t);
        if (ref.kind == fe::ValueRef::NotFake) return Py_NewRef(t);
        if (ref.kind == fe::ValueRef::Input) return Py_BuildValue("(si)", "input", ref.index);
        outputs.push_back(t);
        kept.push_back(Owned::share(t));
        return Py_BuildValue("(si)", "node", static_cast<int>(outputs.size()) - 1);
    });
    if (!plan) return nullptr;
    Owned mutated = Owned::steal(PyList_New(0));
    int n_inputs = static_cast<int>(PyList_GET_SIZE(s.inputs.get()));
    s.capture->trace_backward(outputs, n_inputs);
    for (int i = 0; i < n_inputs; ++i)
        if (s.capture->mutated_input(i)) PyList_Append(mutated.get(), Owned::steal(PyLong_FromLong(i)).get());
    Owned dims = Owned::steal(PyList_New(0));
    for (int i = 0; i < n_inputs; ++i) {
        Owned bits = Owned::steal(PyLong_FromUnsignedLongLong(s.capture->dynamic_dims(i)));
        PyList_Append(dims.get(), bits.get());
    }
    auto shape_guard = s.capture->shape_guard();
    Owned guards = Owned::steal(PyUnicode_FromString(shape_guard->text().c_str()));
    auto compiled = s.capture->finish(outputs, n_inputs);
    if (!compiled) return nullptr;
    auto* g = PyObject_New(Graph, &graph_type);
    g->compiled = compiled.release();
    g->real_inputs = s.inputs.release();
    g->plan = plan.release();
    g->n_outputs = static_cast<int>(outputs.size());
    g->mutated = mutated.release();
    g->guards = guards.release();
    g->dims = dims.release();
    g->shape_guard = shape_guard.release();
    return reinterpret_cast<PyObject*>(g);
}

// ---- guards
template <class T>
PyObject* capsule(std::unique_ptr<T> p, const char* name) {
    if (!p) Py_RETURN_NONE;
    return PyCapsule_New(p.release(), name,
                         [](PyObject* c) { delete static_cast<T*>(PyCapsule_GetPointer(c, PyCapsule_GetName(c))); });
}
template <class T>
T* from_capsule(PyObject* c) {
    return static_cast<T*>(PyCapsule_GetPointer(c, PyCapsule_GetName(c)));
}
PyObject* tensor_guard(PyObject*, PyObject* args) {
    PyObject* t;
    unsigned long long bits = 0;
    if (!PyArg_ParseTuple(args, "O|K", &t, &bits)) return nullptr;
    return capsule(braze::bridge::tensor_bridge()->tensor_guard(t, bits), "tensor_guard");
}
PyObject* check_tensor(PyObject*, PyObject* args) {
    PyObject *g, *t;
    if (!PyArg_ParseTuple(args, "OO", &g, &t)) return nullptr;
    auto* guard = from_capsule<fe::TensorGuard>(g);
    return Py_BuildValue("(Oss K)", guard->check(t) ? Py_True : Py_False, guard->explain(t).c_str(),
                         guard->text().c_str(), static_cast<unsigned long long>(guard->changed_dims(t)));
}
PyObject* state_guard(PyObject*, PyObject*) {
    return capsule(braze::bridge::tensor_bridge()->state_guard(), "state_guard");
}
PyObject* check_state(PyObject*, PyObject* g) {
    auto* guard = from_capsule<fe::GlobalStateGuard>(g);
    return Py_BuildValue("(Os)", guard->check() ? Py_True : Py_False, guard->explain().c_str());
}
PyObject* state_delta(PyObject*, PyObject* g) {
    return capsule(braze::bridge::tensor_bridge()->state_delta(*from_capsule<fe::GlobalStateGuard>(g)), "state_delta");
}
PyObject* apply_delta(PyObject*, PyObject* d) {
    auto* delta = from_capsule<fe::StateDelta>(d);
    delta->apply();
    return PyUnicode_FromString(delta->obstacle().c_str());
}
PyObject* restore_state(PyObject*, PyObject* g) {
    braze::bridge::tensor_bridge()->restore_state(*from_capsule<fe::GlobalStateGuard>(g));
    Py_RETURN_NONE;
}

PyObject* set_option(PyObject*, PyObject* args) {
    const char* name;
    PyObject* value;
    if (!PyArg_ParseTuple(args, "sO", &name, &value)) return nullptr;
    if (!braze::bridge::tensor_bridge()->set_option(name, value)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, name);
        return nullptr;
    }
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"capture", capture, METH_VARARGS, nullptr},           {"tensor_guard", tensor_guard, METH_VARARGS, nullptr},
    {"check_tensor", check_tensor, METH_VARARGS, nullptr}, {"state_guard", state_guard, METH_NOARGS, nullptr},
    {"check_state", check_state, METH_O, nullptr},         {"state_delta", state_delta, METH_O, nullptr},
    {"apply_delta", apply_delta, METH_O, nullptr},         {"restore_state", restore_state, METH_O, nullptr},
    {"set_option", set_option, METH_VARARGS, nullptr},     {}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "braze_bridge_test", nullptr, -1, methods};

}  // namespace

extern "C" PyMODINIT_FUNC __attribute__((visibility("default"))) PyInit_braze_bridge_test() {
    graph_type.tp_basicsize = sizeof(Graph);
    graph_type.tp_dealloc = graph_dealloc;
    graph_type.tp_call = graph_call;
    graph_type.tp_methods = graph_methods;
    graph_type.tp_getset = graph_getset;
    graph_type.tp_flags = Py_TPFLAGS_DEFAULT;
    if (PyType_Ready(&graph_type) < 0) return nullptr;
    if (!braze::bridge::init()) return nullptr;
    PyObject* module = PyModule_Create(&definition);
    if (!module) return nullptr;
    g_break_type = PyErr_NewException("braze_bridge_test.GraphBreak", PyExc_BaseException, nullptr);
    PyModule_AddObjectRef(module, "GraphBreak", g_break_type);
    return module;
}
