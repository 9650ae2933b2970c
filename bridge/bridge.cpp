#include "bridge/bridge.h"

#include "bridge/capture.h"
#include "bridge/guards.h"
#include "bridge/living_fakes.h"
#include "bridge/options.h"
#include "bridge/state.h"
#include "bridge/symbolic_numbers.h"

namespace braze::bridge {

namespace {

struct Bridge final : frontend::TensorBridge {
    // Not THPVariable_Check: isinstance() asks the object for its __class__, which may run Python.
    bool is_tensor(PyObject* o) const override {
        return PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(THPVariableClass));
    }
    PyTypeObject* symbolic_int_class() const override { return bridge::symbolic_int_class(); }
    PyTypeObject* symbolic_float_class() const override { return bridge::symbolic_float_class(); }
    PyObject* with_own_numbers(PyObject* o) const override { return bridge::with_own_numbers(o); }
    // None where a dispatch mode of the program wants to see each operator: a graph would hide them.
    std::unique_ptr<frontend::Capture> begin_capture(frontend::CaptureOptions options) override {
        if (c10::impl::TorchDispatchModeTLS::stack_len() > 0) return nullptr;
        return std::make_unique<Tracer>(std::move(options));
    }
    std::unique_ptr<frontend::TensorGuard> tensor_guard(PyObject* real, uint64_t dynamic_dims,
                                                        frontend::GradientUse use) override {
        return make_tensor_guard(real, dynamic_dims, use);
    }
    PyObject* gradient(PyObject* tensor) const override { return THPVariable_Wrap(THPVariable_Unpack(tensor).grad()); }
    std::string gradient_obstacle(PyObject* real, frontend::GradientUse use) const override {
        const char* obstacle = bridge::gradient_obstacle(*THPVariable_Unpack(real).unsafeGetTensorImpl(), use);
        return obstacle ? obstacle : "";
    }
    Py_ssize_t size_of(PyObject* tensor, Py_ssize_t axis) const override {
        const at::Tensor& t = THPVariable_Unpack(tensor);
        return axis >= 0 && axis < t.dim() ? static_cast<Py_ssize_t>(t.size(axis)) : -1;
    }
    PyObject* extremum(PyObject* a, PyObject* b, bool max) const override { return bridge::extremum(a, b, max); }
    const void* storage(PyObject* tensor) const override {
        const at::Tensor& t = THPVariable_Unpack(tensor);
        return t.defined() && t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr;
    }
    std::unique_ptr<frontend::GlobalStateGuard> state_guard() override { return make_state_guard(); }
    std::unique_ptr<frontend::StateDelta> state_delta(const frontend::GlobalStateGuard& before) override {
        return make_state_delta(before);
    }
    void restore_state(const frontend::GlobalStateGuard& to) override { bridge::restore_state(to); }
    void count_fakes(bool on) override { bridge::watch_fakes(on); }
    std::string living_fakes() override { return bridge::living_fakes(); }
    bool set_option(const std::string& name, PyObject* value) override { return set_pipeline_option(name, value); }
};

}  // namespace

bool init() { return init_symbolic_numbers(); }

frontend::TensorBridge* tensor_bridge() {
    static Bridge bridge;
    return &bridge;
}

}  // namespace braze::bridge
