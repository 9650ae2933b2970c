#include "frontend/interp/gradients.h"

#include "frontend/interp/hooks.h"
#include "frontend/segments/segment.h"

namespace braze::frontend {

static PyObject* name_of_grad() {
    static PyObject* name = PyUnicode_InternFromString("grad");
    return name;
}

// Gives the fake the gradient that the real tensor has. 0 or -1.
static int fetch_gradient(Tracer& t, int input) {
    if (t.inputs[static_cast<size_t>(input)].gradient_known) return 0;
    Owned fake = t.inputs[static_cast<size_t>(input)].fake, real = t.inputs[static_cast<size_t>(input)].real;
    SourceId source = t.inputs[static_cast<size_t>(input)].source;
    Owned value = Owned::steal(tensor_bridge()->gradient(real.get()));
    if (!value) return -1;
    SourceId s = t.guards.sources.add(SourceKind::Gradient, source, nullptr);
    value = Owned::steal(t.loaded(value.release(), s));
    if (!value || PyObject_GenericSetAttr(fake.get(), name_of_grad(), value.get()) < 0) return -1;
    GraphInput& in = t.inputs[static_cast<size_t>(input)];  // (loading it may have added an input)
    in.gradient_known = true;
    in.gradient_before = std::move(value);
    return 0;
}

static bool flag(PyObject* tensor, const char* name) {
    Owned v = Owned::steal(PyObject_GetAttrString(tensor, name));
    return v.get() == Py_True;
}

static bool has_gradient(PyObject* tensor) { return flag(tensor, "is_leaf") || flag(tensor, "retains_grad"); }

PyObject* gradient(Tracer& t, PyObject* fake) {
    int input = t.input_of_fake(fake);
    if (!has_gradient(input < 0 ? fake : t.inputs[static_cast<size_t>(input)].real.get()))  // (torch warns)
        return t.stop("autograd", ".grad of a tensor that is no leaf");
    if (input >= 0 && fetch_gradient(t, input) < 0) return nullptr;
    return t.result(PyObject_GenericGetAttr(fake, name_of_grad()));
}

int set_gradient(Tracer& t, PyObject* fake, PyObject* value) {
    Owned v = Owned::share(value);
    if (v && t.is_tensor(v.get()) && !t.capture->is_fake(v.get())) v = Owned::steal(t.fake_for(v.get(), kNoSource));
    if (value && !v) return -1;
    if (PyObject_GenericSetAttr(fake, name_of_grad(), v.get()) < 0) return -1;
    int input = t.input_of_fake(fake);
    if (input < 0) return 0;
    if (t.in_function_backward) return t.stop("autograd", "a backward that sets a gradient"), -1;
    // What was there before doesn't matter any more.
    t.inputs[static_cast<size_t>(input)].gradient_known = true;
    return 0;
}

static PyObject* argument(Args a, Py_ssize_t index, const char* name) {
    if (index < a.n) return a.v[index];
    for (Py_ssize_t i = 0; a.kwnames && i < PyTuple_GET_SIZE(a.kwnames); ++i)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(a.kwnames, i), name) == 0) return a.v[a.n + i];
    return nullptr;
}

// The fakes in a tuple; false: there is something else.
static bool fakes_in(Tracer& t, PyObject* tuple, std::vector<PyObject*>& out) {
    if (!PyTuple_Check(tuple)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
        PyObject* v = PyTuple_GET_ITEM(tuple, i);
        if (!t.capture->is_fake(v)) return false;
        out.push_back(v);
    }
    return true;
}

// The engine runs on the fakes: the operators of the backward pass join the trace, hooks and functions in Python are
// traced as they are called, and gradients are accumulated in the fakes of the leaves.
PyObject* run_backward(Tracer& t, PyObject* engine_method, Args a) {
    PyObject *tensors = argument(a, 1, "tensors"), *inputs = argument(a, 5, "inputs"),
             *accumulate = argument(a, 7, "accumulate_grad");
    std::vector<PyObject*> roots, targets;
    if (!tensors || read_arguments(t, a, 1) < 0) return tensors ? nullptr : t.stop("autograd", "run_backward()");
    if (!fakes_in(t, tensors, roots) || (inputs && inputs != Py_None && !fakes_in(t, inputs, targets)))
        return t.stop("autograd", "a gradient edge");
    const GradientUse use =
        !accumulate || PyObject_IsTrue(accumulate) ? GradientUse::Accumulated : GradientUse::Captured;
    for (PyObject* root : roots)
        if (use == GradientUse::Accumulated && t.capture->value_of(root).kind == ValueRef::NotFake)
            return t.stop("autograd", "backward() inside a function transform");
    std::optional<std::vector<int>> leaves = t.capture->begin_backward(roots);
    if (!leaves) return nullptr;
    if (!targets.empty()) {
        leaves->clear();
        for (PyObject* fake : targets)
            if (int i = t.input_of_fake(fake); i >= 0) leaves->push_back(i);
    }
    for (int i : *leaves) {
        GraphInput& in = t.inputs[static_cast<size_t>(i)];
        std::string obstacle = tensor_bridge()->gradient_obstacle(in.real.get(), use);
        if (use == GradientUse::Accumulated && has_post_hook(t, i)) obstacle = "a hook that sees what it changes";
        if (!obstacle.empty()) return t.stop("autograd", obstacle);
        if (use == GradientUse::Accumulated && t.in_function_backward)
            return t.stop("autograd", "a backward that sets a gradient");
        in.gradient_use = std::max(in.gradient_use, use);
        t.touch(in.fake.get());
        if (use == GradientUse::Accumulated && fetch_gradient(t, i) < 0) return nullptr;
    }
    Py_ssize_t bound = bound_self(engine_method) ? 1 : 0;
    return finish_c_call(t,
                         PyObject_Vectorcall(engine_method, a.v + bound, static_cast<size_t>(a.n - bound), a.kwnames));
}

// Is the backward wrapped by once_differentiable?
static bool differentiable_once(PyObject* cls) {
    Owned backward = Owned::steal(PyObject_GetAttrString(cls, "backward"));
    if (!backward || !PyFunction_Check(backward.get())) return PyErr_Clear(), false;
    auto* code = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(backward.get())->func_code);
    return PyUnicode_CompareWithASCIIString(code->co_qualname, "once_differentiable.<locals>.wrapper") == 0;
}

// The forward runs as Python under the trace, and so does the backward, where a gradient may be wanted: what it does
// is recorded for later. It must not have effects, since later it isn't run.
PyObject* apply_function(Tracer& t, PyObject* apply, Args a) {
    PyObject* cls = PyCFunction_Check(apply) ? PyCFunction_GET_SELF(apply) : nullptr;
    if (!cls || !PyType_Check(cls)) return t.stop("autograd", "autograd.Function.apply");
    for (const char* name : {"forward", "backward", "vjp", "setup_context"}) {
        Owned n = Owned::steal(PyUnicode_InternFromString(name));
        t.type_attribute(reinterpret_cast<PyTypeObject*>(cls), n.get());
    }
    if (read_arguments(t, a) < 0) return nullptr;
    Owned r = Owned::steal(finish_c_call(t, PyObject_Vectorcall(apply, a.v, static_cast<size_t>(a.n), a.kwnames)));
    if (!r || t.aborting) return nullptr;
    const size_t changes = t.journal.size();
    const bool was = std::exchange(t.in_function_backward, true);
    const bool ended = t.capture->end_function({a.v, a.v + a.n}, r.get(), differentiable_once(cls));
    t.in_function_backward = was;
    if (t.aborting) return nullptr;
    std::string name = type_name(reinterpret_cast<PyTypeObject*>(cls));
    if (!ended) {
        std::string error = take_error();
        return t.stop("autograd", "the backward of " + name + " raises " + error.substr(0, error.find('\n')));
    }
    if (t.journal.size() != changes) return t.stop("autograd", "the backward of " + name + " has effects");
    return r.release();
}

Owned gradient_of_result(PyObject* fake) {
    if (!has_gradient(fake)) return nullptr;
    Owned now = Owned::steal(PyObject_GenericGetAttr(fake, name_of_grad()));
    if (!now) PyErr_Clear();
    return now.get() == Py_None ? Owned() : now;
}

bool record_gradients(Tracer& t, Recipes& r, std::vector<Effect>& out) {
    for (size_t i = 0; i < t.inputs.size(); ++i) {
        GraphInput& in = t.inputs[i];
        if (!in.gradient_known) continue;
        Owned now = Owned::steal(PyObject_GenericGetAttr(in.fake.get(), name_of_grad()));
        if (!now) return PyErr_Clear(), false;
        if (now.get() == in.gradient_before.get()) continue;
        Effect e{Effect::SetAttr};
        e.target = in.source;
        e.key = Owned::share(name_of_grad());
        e.value = r.record(t, now.get());
        if (e.value < 0) return false;
        out.push_back(std::move(e));
    }
    return true;
}

}  // namespace braze::frontend
