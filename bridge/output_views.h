// Outputs that are views of another output, of an input, or of one tensor that the program does not return (chunks).
//
// One gradient function cannot have outputs that share memory. So such a view is made by the operators that made it in
// the program, behind the compiled program and under autograd: it gets eager's gradient function and knows its base.
// A base that the program does not return is an output of the compiled program all the same.
#pragma once
#include <functional>

#include "bridge/compiled_trace.h"

namespace braze::bridge {

struct OutputView {
    struct Step {
        int record;
        int result;  // of the record's
    };
    int output = -1, input = -1;  // what it is a view of: one of the two. An output behind the last is a base
    std::vector<Step> steps;      // in order
};

struct FoundViews {
    std::vector<std::optional<OutputView>> views;  // by output
    struct Base {
        int value;
        bool requires_grad;
    };
    std::vector<Base> bases;  // that are no outputs
};

// For each of the outputs (-1: none that counts): whether it can be made from another or from an input. A base may be a
// view itself. requires_grad: of the outputs.
FoundViews find_views(const Trace& trace, const std::vector<int>& outputs, const std::vector<bool>& requires_grad);

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
    size_t n_outputs_;
    std::vector<int> places_;                        // of the others among all, bases behind
    std::vector<std::pair<int, OutputView>> views_;  // by place, bases first
};

}  // namespace braze::bridge
