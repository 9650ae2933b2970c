// Outputs that are views of another output or of an input.
//
// One gradient function cannot have outputs that share memory. So such a view is made by the operators that made it in
// the program, behind the compiled program and under autograd: it gets eager's gradient function and knows its base.
#pragma once
#include <functional>

#include "bridge/compiled_trace.h"

namespace braze::bridge {

struct OutputView {
    int output = -1, input = -1;  // what it is a view of: one of the two
    std::vector<int> records;     // in order
};

// For each of the outputs (-1: none that counts): whether it can be made from another or from an input. A base may be a
// view itself. requires_grad: of the outputs.
std::vector<std::optional<OutputView>> find_views(const Trace& trace, const std::vector<int>& outputs,
                                                  const std::vector<bool>& requires_grad);

// Takes the views out of the outputs of a program and makes them after its run.
class OutputViews {
  public:
    OutputViews(const Trace& trace, const std::vector<TraceOutput>& outputs);
    // Those that the program itself has to make.
    const std::vector<TraceOutput>& others() const { return others_; }
    bool any() const { return !views_.empty(); }
    // All outputs, from the others' results.
    std::vector<at::Tensor> complete(std::vector<at::Tensor> results, c10::ArrayRef<const at::Tensor*> inputs,
                                     const SymbolValues& sizes) const;

  private:
    const Trace& trace_;
    std::vector<TraceOutput> others_;
    std::vector<int> places_;                        // of the others among all
    std::vector<std::pair<int, OutputView>> views_;  // by place, bases first
};

}  // namespace braze::bridge
