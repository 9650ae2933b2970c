#include "bridge/dispatch_mode.h"

#include "bridge/capture.h"

namespace braze::bridge {

namespace {

// The interpreter of our mode: its dispatch() is the tracer. The rest is asked of Python tensor subclasses only, and a
// fake is none.
struct CaptureInterpreter final : c10::impl::PyInterpreterVTable {
    [[noreturn]] static void unused(const char* what) {
        TORCH_CHECK(false, what, " is not available while a program is being traced");
    }
    std::string name() const override { return "braze capture"; }
    void incref(PyObject*) const override {}
    void decref(PyObject*) const override {}
    bool try_incref(const c10::impl::PyObjectSlot&) const override { return false; }
    size_t refcnt(PyObject*) const override { return 1; }
    c10::intrusive_ptr<c10::TensorImpl> detach(const c10::TensorImpl*) const override { unused(__func__); }
    void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack) const override {
        Tracer* tracer = Tracer::active();
        TORCH_CHECK(tracer, "the capture mode is active without a trace");
        tracer->record(op, stack);
    }
    // Kernels that are Python functions are found through the topmost mode.
    static const c10::impl::PyInterpreter& real() { return *c10::impl::getGlobalPyInterpreter(); }
    void reportErrorCallback(PyObject* callback, c10::DispatchKey key) const override {
        real()->reportErrorCallback(callback, key);
    }
    void python_op_registration_trampoline(const c10::OperatorHandle& op, c10::DispatchKey key,
                                           c10::DispatchKeySet keys, torch::jit::Stack* stack, bool with_keyset,
                                           bool with_op) const override {
        real()->python_op_registration_trampoline(op, key, keys, stack, with_keyset, with_op);
    }
    void throw_abstract_impl_not_imported_error(std::string op, const char* module,
                                                const char* context) const override {
        real()->throw_abstract_impl_not_imported_error(std::move(op), module, context);
    }
    void python_dispatcher(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                           torch::jit::Stack* stack) const override {
        real()->python_dispatcher(op, keys, stack);
    }
    bool is_contiguous(const c10::TensorImpl*, at::MemoryFormat) const override { unused(__func__); }
    c10::SymBool sym_is_contiguous(const c10::TensorImpl*, at::MemoryFormat) const override { unused(__func__); }
    bool is_strides_like(const c10::TensorImpl*, at::MemoryFormat) const override { unused(__func__); }
    bool is_non_overlapping_and_dense(const c10::TensorImpl*) const override { unused(__func__); }
    c10::Device device(const c10::TensorImpl*) const override { unused(__func__); }
    int64_t dim(const c10::TensorImpl*) const override { unused(__func__); }
    c10::IntArrayRef strides(const c10::TensorImpl*) const override { unused(__func__); }
    c10::IntArrayRef sizes(const c10::TensorImpl*) const override { unused(__func__); }
    c10::SymIntArrayRef sym_sizes(const c10::TensorImpl*) const override { unused(__func__); }
    c10::Layout layout(const c10::TensorImpl*) const override { unused(__func__); }
    int64_t numel(const c10::TensorImpl*) const override { unused(__func__); }
    c10::SymInt sym_numel(const c10::TensorImpl*) const override { unused(__func__); }
    c10::SymIntArrayRef sym_strides(const c10::TensorImpl*) const override { unused(__func__); }
    c10::SymInt sym_storage_offset(const c10::TensorImpl*) const override { unused(__func__); }
    void trace_gpu_event_creation(c10::DeviceType, uintptr_t) const override {}
    void trace_gpu_event_deletion(c10::DeviceType, uintptr_t) const override {}
    void trace_gpu_event_record(c10::DeviceType, uintptr_t, uintptr_t) const override {}
    void trace_gpu_event_wait(c10::DeviceType, uintptr_t, uintptr_t) const override {}
    void trace_gpu_memory_allocation(c10::DeviceType, uintptr_t) const override {}
    void trace_gpu_memory_deallocation(c10::DeviceType, uintptr_t) const override {}
    void trace_gpu_stream_creation(c10::DeviceType, uintptr_t) const override {}
    void trace_gpu_device_synchronization(c10::DeviceType) const override {}
    void trace_gpu_stream_synchronization(c10::DeviceType, uintptr_t) const override {}
    void trace_gpu_event_synchronization(c10::DeviceType, uintptr_t) const override {}
    void reset_backward_hooks(const c10::TensorImpl*) const override {}
};

c10::impl::PyInterpreter* interpreter() {
    static CaptureInterpreter table;
    static c10::impl::PyInterpreter self(&table);
    return &self;
}

constexpr auto kAbove = c10::DispatchKey::TESTING_ONLY_GenericMode;

void above_autograd(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    c10::impl::ExcludeDispatchKeyGuard once(kAbove);
    // torch.tensor and the like hide their inner steps from dispatch modes
    bool hidden = c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python);
    Tracer* tracer = hidden ? nullptr : Tracer::active();
    int index = -1;
    if (tracer) {
        tracer->torch_level(op, stack);
        if (auto other = tracer->substitute(op, stack)) return above_autograd(*other, {}, stack);
        index = tracer->begin_torch_op(op, *stack);
    }
    if (index < 0) return op.callBoxed(stack);
    try {
        op.callBoxed(stack);
    } catch (...) {
        tracer->drop_torch_op(index);
        throw;
    }
    tracer->end_torch_op(index, *stack);
}

}  // namespace

WithMode::WithMode() : before_(c10::impl::TorchDispatchModeTLS::get_state()) {
    static const auto mode = std::make_shared<c10::impl::PyObject_TorchDispatchMode>(nullptr, interpreter());
    c10::impl::TorchDispatchModeTLS::push_non_infra_mode_onto_stack(mode);
}

c10::impl::TorchDispatchModeTLS push_capture_mode() {
    c10::impl::TorchDispatchModeTLS before = c10::impl::TorchDispatchModeTLS::get_state();
    c10::impl::TorchDispatchModeTLS::push_non_infra_mode_onto_stack(
        std::make_shared<c10::impl::PyObject_TorchDispatchMode>(nullptr, interpreter()));
    c10::impl::tls_set_dispatch_key_included(kAbove, true);
    return before;
}

void pop_capture_mode(c10::impl::TorchDispatchModeTLS before) {
    c10::impl::tls_set_dispatch_key_included(kAbove, false);
    c10::impl::TorchDispatchModeTLS::set_state(std::move(before));
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&above_autograd>());
}

}  // namespace braze::bridge
