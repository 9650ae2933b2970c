// How the dispatcher calls the active Tracer: a dispatch mode below autograd, implemented in C++, and a boxed fallback
// above it.
#pragma once
#include "bridge/torch.h"

namespace braze::bridge {

// Returns the stack of modes as it was. (The program may take ours off the stack: printing a tensor does.)
c10::impl::TorchDispatchModeTLS push_capture_mode();
void pop_capture_mode(c10::impl::TorchDispatchModeTLS before);

// The mode taken off while Meta kernels run.
class WithoutMode {
  public:
    WithoutMode() : mode_(c10::impl::TorchDispatchModeTLS::pop_stack()) {}
    ~WithoutMode() { c10::impl::TorchDispatchModeTLS::push_non_infra_mode_onto_stack(mode_); }
    WithoutMode(const WithoutMode&) = delete;
    WithoutMode& operator=(const WithoutMode&) = delete;

  private:
    std::shared_ptr<c10::impl::PyObject_TorchDispatchMode> mode_;
};

// The mode put back within a WithoutMode, so that nested operators come to the tracer.
class WithMode {
  public:
    WithMode();
    ~WithMode() { c10::impl::TorchDispatchModeTLS::set_state(std::move(before_)); }
    WithMode(const WithMode&) = delete;
    WithMode& operator=(const WithMode&) = delete;

  private:
    c10::impl::TorchDispatchModeTLS before_;
};

}  // namespace braze::bridge
