// Checkpointed parts of a traced program.
#include "bridge/regions.h"

#include <torch/csrc/jit/python/pybind_utils.h>

#include "bridge/capture.h"
#include "bridge/frontend_off.h"

namespace braze::bridge {

void Tracer::enter_region(PyObject* policy) {
    if (region_depth_++ > 0) return;
    region_ = ++regions_;
    policy_ = policy == Py_None ? nullptr : Py_NewRef(policy);
}

void Tracer::leave_region() {
    if (region_depth_ == 0 || --region_depth_ > 0) return;  // (an earlier trace entered it)
    region_ = 0;
    policy_ = nullptr;
}

// Outside of the mode, with the GIL.
bool Tracer::policy_keeps(const c10::OperatorHandle& op, const c10::IValue* args, size_t n) {
    if (!policy_ || in_backward_) return false;
    const FrontendOff off;
    THPObjectPtr all(PyTuple_New(static_cast<Py_ssize_t>(n) + 1));
    PyTuple_SET_ITEM(all.get(), 0, torch::detail::getTorchApiFunction(op).inc_ref().ptr());
    for (size_t k = 0; k < n; ++k)
        PyTuple_SET_ITEM(all.get(), static_cast<Py_ssize_t>(k) + 1, torch::jit::toPyObject(args[k]).release().ptr());
    THPObjectPtr answer(PyObject_Call(policy_.get(), all.get(), nullptr));
    if (answer) return PyObject_IsTrue(answer.get()) > 0;
    python_error error;
    error.persist();
    throw error;
}

PyObject* enter_region(PyObject*, PyObject* policy) {
    if (Tracer* tracer = Tracer::active()) tracer->enter_region(policy);
    Py_RETURN_NONE;
}

PyObject* leave_region(PyObject*, PyObject*) {
    if (Tracer* tracer = Tracer::active()) tracer->leave_region();
    Py_RETURN_NONE;
}

}  // namespace braze::bridge
