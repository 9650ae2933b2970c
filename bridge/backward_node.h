// The gradient function of one run of a compiled program.
#pragma once
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <functional>

#include "bridge/training.h"

namespace braze::bridge {

class BackwardNode final : public torch::autograd::Node {
  public:
    using Tensors = torch::autograd::variable_list;

    // Before the program runs: what it overwrites.
    BackwardNode(std::shared_ptr<const TrainingPlan> plan, c10::ArrayRef<const at::Tensor*> inputs,
                 c10::ArrayRef<int64_t> integers);
    // After it has run: made are the outputs of the forward program, of which those with a gradient have this node.
    void keep(c10::ArrayRef<const at::Tensor*> inputs, std::vector<at::Tensor>& made);
    void set_symbols(std::vector<int64_t> symbols) { symbols_ = std::move(symbols); }

    Tensors apply(Tensors&& tangents) override;
    void will_release_variables() override { last_ = true; }
    void release_variables() override;
    std::string name() const override { return "BrazeBackward"; }

  private:
    Tensors run(Tensors& tangents);
    Tensors differentiate(Tensors& tangents);
    bool drop_unreached(const Tensors& tangents, Tensors& gradients) const;
    Tensors kept_values();
    Tensors kept_inputs();
    at::Tensor fitting(const at::Tensor& tangent, const TrainingPlan::Tangent& wanted) const;

    std::shared_ptr<const TrainingPlan> plan_;
    std::vector<torch::autograd::SavedVariable> inputs_;  // by input; not those that are written
    std::vector<torch::autograd::SavedVariable> values_;  // by TrainingPlan::saved; not inputs
    std::vector<at::Tensor> before_;                      // copies of the written inputs
    std::vector<int64_t> integers_, symbols_;
    at::Tensor generator_state_;  // before the run, where the program draws random numbers
    bool last_ = false;           // nothing is needed after the next backward pass
    bool released_ = false;
};

// The gradient function of a result whose graph the program itself has used up.
class UsedUpNode final : public torch::autograd::Node {
  public:
    using Node::Node;
    torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
        TORCH_CHECK(false, torch::autograd::ERR_BACKWARD_TWICE);
    }
    std::string name() const override { return "BrazeBackward"; }
};
// The result with that gradient function; leaf(i): the i-th of n inputs.
at::Tensor with_used_up_graph(at::Tensor result, size_t n, const std::function<const at::Tensor&(size_t)>& leaf);

}  // namespace braze::bridge
