// Runs the recorded operators one by one through the full dispatcher: differentiable, and the reference for everything
// faster.
#pragma once
#include <functional>

#include "bridge/compiled_trace.h"

namespace braze::bridge {

// The tensor with the standing towards autograd that its fake had. (What changes it is not always an operator: detach_,
// requires_grad_, .data.)
at::Tensor with_grad(const at::Tensor& t, bool wanted);

// Calls the operator; result(value, tensor) is told each of its results. sizes: of a run; nullptr: in a trace.
void run_record(const Record& r, const SymbolValues* sizes, const std::function<at::Tensor(const Operand&)>& operand,
                const std::function<void(int, const at::Tensor&)>& result);

class Replay {
  public:
    Replay(std::shared_ptr<const Trace> trace, std::vector<TraceOutput> outputs);
    // grad: autograd sees every operator, in the grad mode that it was recorded in; else none does.
    std::vector<at::Tensor> run(c10::ArrayRef<at::Tensor> inputs, const SymbolValues& sizes, bool grad) const;

  private:
    void attach_functions(size_t& next, size_t done, std::vector<at::Tensor>& values,
                          const std::shared_ptr<const SymbolValues>& sizes) const;

    const std::shared_ptr<const Trace> held_;
    const Trace& trace_;
    const std::vector<TraceOutput> outputs_;
    std::vector<std::vector<int>> dies_after_;  // per record: values with no later use
    std::vector<bool> copied_constants_;        // written, or visible to the caller: each run has its own
};

}  // namespace braze::bridge
