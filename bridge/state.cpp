#include "bridge/state.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/DefaultDtype.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <sstream>

namespace braze::bridge {

namespace {

// torch.set_default_dtype keeps the default tensor type in step.
void set_default_dtype(at::ScalarType type) {
    auto torch = pybind11::module_::import("torch");
    auto dtype = pybind11::reinterpret_borrow<pybind11::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(type)));
    torch.attr("set_default_dtype")(dtype);
}

void set_matmul_precision(at::Float32MatmulPrecision p) {
    using P = at::Float32MatmulPrecision;
    at::globalContext().setFloat32MatmulPrecision(p == P::HIGHEST ? "highest" : p == P::HIGH ? "high" : "medium");
}

struct StateRow {
    const char* title;
    int64_t (*read)();
    void (*write)(int64_t);
};
const StateRow kRows[] = {
#define STATE(name, title, read, write) {title, [] { return static_cast<int64_t>(read); }, [](int64_t v) { write; }},
#include "bridge/state.def"
#undef STATE
};
constexpr size_t kCount = sizeof(kRows) / sizeof(kRows[0]);
using Mode = std::shared_ptr<c10::SafePyObject>;

int autocast_nesting() {
    at::autocast::increment_nesting();
    return at::autocast::decrement_nesting();
}
void set_autocast_nesting(int wanted) {
    int now = autocast_nesting();
    for (; now < wanted; ++now) at::autocast::increment_nesting();
    for (; now > wanted; --now) at::autocast::decrement_nesting();
    if (wanted == 0) at::autocast::clear_cache();
}

std::vector<Mode> function_modes() {
    std::vector<Mode> modes;
    for (int64_t i = 0; i < at::impl::PythonTorchFunctionTLS::stack_len(); ++i)
        modes.push_back(at::impl::PythonTorchFunctionTLS::get_stack_at(i));
    return modes;
}
PyObject* object_of(const Mode& m) { return m->ptr(c10::impl::getGlobalPyInterpreter()); }
// The same mode, or two torch.device contexts of one device.
bool same_mode(const Mode& a, const Mode& b) {
    PyObject *x = object_of(a), *y = object_of(b);
    if (x == y) return true;
    if (Py_TYPE(x) != Py_TYPE(y) || std::string_view(Py_TYPE(x)->tp_name) != "DeviceContext") return false;
    PyObject* p = PyObject_GetAttrString(x, "device");
    PyObject* q = PyObject_GetAttrString(y, "device");
    bool same = p && q && PyObject_RichCompareBool(p, q, Py_EQ) == 1;
    Py_XDECREF(p);
    Py_XDECREF(q);
    PyErr_Clear();
    return same;
}
void set_function_modes(const std::vector<Mode>& wanted) {
    while (at::impl::PythonTorchFunctionTLS::stack_len() > 0) at::impl::PythonTorchFunctionTLS::pop_stack();
    for (const Mode& m : wanted) at::impl::PythonTorchFunctionTLS::push_onto_stack(m);
}

struct Guard final : frontend::GlobalStateGuard {
    std::array<int64_t, kCount> values;
    int nesting = autocast_nesting();
    std::vector<Mode> modes = function_modes();
    bool inference = c10::InferenceMode::is_enabled();
    bool transformed = functorch_active();
    int64_t dispatch_modes = c10::impl::TorchDispatchModeTLS::stack_len();
    bool saved_tensor_hooks = has_saved_tensor_hooks();
    // to restore, not to compare
    size_t transforms = transform_depth();
    bool dual_level = in_dual_level();
    c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    c10::AutogradState autograd = c10::AutogradState::get_tls_state();

    Guard() {
        for (size_t i = 0; i < kCount; ++i) values[i] = kRows[i].read();
    }
    static bool functorch_active() {
        return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
    }
    static size_t transform_depth() {
        // (functorch's C++ headers need one that torch does not ship)
        return functorch_active() ? functorch().attr("get_dynamic_layer_stack_depth")().cast<size_t>() : 0;
    }
    static pybind11::object functorch() { return pybind11::module_::import("torch._C").attr("_functorch"); }
    static bool in_dual_level() { return torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr; }
    static bool has_saved_tensor_hooks() { return !at::SavedTensorDefaultHooks::get_tls_state().stack.empty(); }

    bool check() const override {
        for (size_t i = 0; i < kCount; ++i)
            if (kRows[i].read() != values[i]) return false;
        if (inference != c10::InferenceMode::is_enabled() ||
            dispatch_modes != c10::impl::TorchDispatchModeTLS::stack_len() || transformed != functorch_active() ||
            saved_tensor_hooks != has_saved_tensor_hooks())
            return false;
        int64_t depth = at::impl::PythonTorchFunctionTLS::stack_len();
        if (depth != static_cast<int64_t>(modes.size())) return false;
        for (int64_t i = 0; i < depth; ++i)
            if (!same_mode(modes[i], at::impl::PythonTorchFunctionTLS::get_stack_at(i))) return false;
        return true;
    }

    std::string explain() const override {
        std::ostringstream out;
        auto differs = [&](const char* what, auto expected, auto got) {
            if (expected != got)
                out << (out.tellp() > 0 ? "; " : "") << what << ": expected " << expected << ", got " << got;
        };
        for (size_t i = 0; i < kCount; ++i) differs(kRows[i].title, values[i], kRows[i].read());
        differs("inference mode", inference, c10::InferenceMode::is_enabled());
        differs("functorch transform", transformed, functorch_active());
        differs("number of dispatch modes", dispatch_modes, c10::impl::TorchDispatchModeTLS::stack_len());
        differs("saved tensor hooks", saved_tensor_hooks, has_saved_tensor_hooks());
        differs("number of torch function modes", static_cast<int64_t>(modes.size()),
                at::impl::PythonTorchFunctionTLS::stack_len());
        if (out.tellp() == 0 && !check()) return "another torch function mode";
        return out.str();
    }
};

struct Delta final : frontend::StateDelta {
    std::vector<std::pair<size_t, int64_t>> values;
    int nesting = 0;
    bool modes_change = false;
    std::vector<Mode> modes;
    std::string reason;

    void apply() const override {
        for (auto [i, v] : values) kRows[i].write(v);
        if (nesting != 0) set_autocast_nesting(autocast_nesting() + nesting);
        if (modes_change) set_function_modes(modes);
    }
    std::string obstacle() const override { return reason; }
};

}  // namespace

std::unique_ptr<frontend::GlobalStateGuard> make_state_guard() { return std::make_unique<Guard>(); }

std::unique_ptr<frontend::StateDelta> make_state_delta(const frontend::GlobalStateGuard& before) {
    const auto& old = static_cast<const Guard&>(before);
    Guard now;
    if (old.check() && old.nesting == now.nesting && old.transforms == now.transforms &&
        old.dual_level == now.dual_level)
        return nullptr;
    auto delta = std::make_unique<Delta>();
    for (size_t i = 0; i < kCount; ++i)
        if (now.values[i] != old.values[i]) delta->values.emplace_back(i, now.values[i]);
    delta->nesting = now.nesting - old.nesting;
    delta->modes_change = now.modes != old.modes;
    delta->modes = now.modes;
    if (now.inference != old.inference) delta->reason = "inference mode";
    if (now.transforms != old.transforms) delta->reason = "functorch transform";
    if (now.dual_level != old.dual_level) delta->reason = "forward-mode differentiation";
    if (now.dispatch_modes != old.dispatch_modes) delta->reason = "dispatch mode";
    if (now.saved_tensor_hooks != old.saved_tensor_hooks) delta->reason = "saved tensor hooks";
    return delta;
}

void restore_state(const frontend::GlobalStateGuard& to) {
    const auto& old = static_cast<const Guard&>(to);
    if (old.inference != c10::InferenceMode::is_enabled()) {
        c10::AutogradState::set_tls_state(old.autograd);
        c10::impl::_force_tls_local_dispatch_key_set(old.keys);
    }
    // (transforms of torch.func that a trace entered and has not left)
    if (Guard::transform_depth() > old.transforms)
        Guard::functorch().attr("pop_dynamic_layer_stack_and_undo_to_depth")(old.transforms);
    if (Guard::in_dual_level() && !old.dual_level) torch::autograd::ForwardADLevel::release_idx(0);
    for (size_t i = 0; i < kCount; ++i)
        if (kRows[i].read() != old.values[i]) kRows[i].write(old.values[i]);
    if (old.nesting != autocast_nesting()) set_autocast_nesting(old.nesting);
    if (old.modes != function_modes()) set_function_modes(old.modes);
}

}  // namespace braze::bridge
