// Results' metadata by C++ for operators whose Meta kernel is a Python function, a hundred times slower.
#pragma once
#include "bridge/torch.h"

namespace braze::bridge {

// Takes the arguments (plain meta tensors) off the stack and pushes the results, as a Meta kernel would. nullptr: no
// such rule.
using ShapeRule = void (*)(torch::jit::Stack* stack);
ShapeRule shape_rule(const std::string& callee);

}  // namespace braze::bridge
