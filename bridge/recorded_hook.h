// Hooks on the gradients of tensors that a traced program makes.
#pragma once
#include <torch/csrc/autograd/function_hook.h>

#include "bridge/recorded_function.h"

namespace braze::bridge {

// What a recorded hook does, as a hook of a node.
class RecordedHook final : public torch::autograd::FunctionPreHook {
  public:
    // output: of the node that the hook is registered with.
    RecordedHook(c10::intrusive_ptr<RecordedNode> does, size_t output) : does_(std::move(does)), output_(output) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override;

  private:
    c10::intrusive_ptr<RecordedNode> does_;
    size_t output_;
};

// One that the program has registered in the trace that is under way.
struct ProgramHook {
    std::function<PyObject*(PyObject*)> call;  // while the program runs
    at::Tensor tensor;                         // that the trace made
    torch::autograd::Node* node = nullptr;     // its gradient function at that time
    size_t output = 0;
    bool removed = false;
    std::unique_ptr<RecordedHook> recorded;

    // What the program's function makes of the gradient.
    at::Tensor run(const at::Tensor& gradient) const;
};

// On the fakes: as long as the program runs, its function is called; then what was recorded is done, if anything was.
class TracedHook final : public torch::autograd::FunctionPreHook {
  public:
    TracedHook(std::shared_ptr<ProgramHook> hook, size_t output) : hook_(std::move(hook)), output_(output) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override;

  private:
    std::shared_ptr<ProgramHook> hook_;
    size_t output_;
};

}  // namespace braze::bridge
