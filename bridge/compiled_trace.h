// What a finished capture becomes.
#pragma once
#include "bridge/joint_trace.h"
#include "frontend/bridge_api.h"

namespace braze::bridge {

struct TraceOutput {
    int value;  // -1: a number, `size`
    bool requires_grad;
    PyTypeObject* type;  // the class of the tensor that the caller gets; nullptr: a number
    Expr size{};
    // Its graph was freed by a backward pass of the program: it gets a gradient function that says so, with edges to
    // these inputs.
    std::optional<std::vector<int>> used_up{};
    bool retains_grad = false;
};

// needs_grad: some output has a gradient function, so a run must leave one too. in_eager: no kernels. backward: the
// trace with its backward passes, where those could be recorded. Needs the GIL.
std::unique_ptr<frontend::CompiledGraph> compile_trace(Trace trace, std::vector<TraceOutput> outputs, bool needs_grad,
                                                       bool in_eager, std::optional<BackwardTraces> backward);

}  // namespace braze::bridge
