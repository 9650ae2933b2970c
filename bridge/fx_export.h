// A trace as a torch.fx.GraphModule, for other people's backends. Imports torch.fx, which nothing else here does.
#pragma once
#include <pybind11/pybind11.h>

#include "bridge/compiled_trace.h"

namespace braze::bridge {

struct FxGraph {
    pybind11::object module;
    // What its placeholders are, in order: inputs by id, then numbers that depend on their sizes.
    std::vector<int> inputs;
    std::vector<Expr> numbers;
    std::vector<int> outputs;  // which of the trace's outputs it returns, in order
};

// Of the program's calls, where every operator belongs to one; else of the operators below autograd.
FxGraph to_fx(const Trace& trace, const std::vector<TraceOutput>& outputs, bool needs_grad);

// Of the operators below autograd, whose placeholders are the first n_inputs inputs, used or not.
FxGraph operators_to_fx(const Trace& trace, const std::vector<TraceOutput>& outputs,
                        const std::vector<PyObject*>& reals, size_t n_inputs);

}  // namespace braze::bridge
