// Runs the recorded operators one by one through the full dispatcher: differentiable, and the reference for everything
// faster.
#pragma once
#include "bridge/compiled_trace.h"

namespace braze::bridge {

class Replay {
  public:
    Replay(std::shared_ptr<const Trace> trace, std::vector<TraceOutput> outputs);
    // grad: autograd sees every operator, in the grad mode that it was recorded in; else none does.
    std::vector<at::Tensor> run(c10::ArrayRef<at::Tensor> inputs, const SymbolValues& sizes, bool grad) const;

  private:
    const std::shared_ptr<const Trace> held_;
    const Trace& trace_;
    const std::vector<TraceOutput> outputs_;
    std::vector<std::vector<int>> dies_after_;  // per record: values with no later use
    std::vector<bool> copied_constants_;        // written, or visible to the caller: each run has its own
};

}  // namespace braze::bridge
