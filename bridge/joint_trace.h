// A program and, recorded behind it, its backward pass.
//
// The capture records below autograd, which meanwhile builds its graph on the fakes. When the program is over, the
// stock engine runs that graph on fake tangents, and the operators of the backward pass join the same trace.
#pragma once
#include "bridge/trace.h"

namespace braze::bridge {

// The backward pass from some of the outputs. Which ones matters: a gradient of zero is not the same as none (0 * inf).
struct JointTrace {
    struct Tangent {
        int value;  // an input of the trace, after the program's own
        int root;   // index into BackwardTraces::roots
    };
    struct Gradient {
        int leaf;  // index into BackwardTraces::leaves
        int value;
    };
    Trace trace;
    std::vector<Tangent> tangents;
    std::vector<Gradient> gradients;
    std::vector<bool> kept_sets;  // by alias set: eager's graph keeps a tensor of that memory
};

struct BackwardTraces {
    std::vector<int> roots;                // values: the outputs that have a gradient function
    std::vector<int> leaves;               // inputs that a gradient from any of them reaches
    std::vector<std::vector<char>> reach;  // by root and leaf: whether a gradient gets from the one to the other
    std::vector<JointTrace> joints;        // the likeliest first
};

}  // namespace braze::bridge
