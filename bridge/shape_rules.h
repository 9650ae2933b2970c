// Results' metadata by C++ for operators whose Meta kernel is a Python function, a hundred times slower, is missing, or
// differs from the CPU kernel.
#pragma once
#include "bridge/torch.h"

namespace braze::bridge {

// Takes the arguments (plain meta tensors) off the stack and pushes the results, as a Meta kernel would. nullptr: no
// such rule.
using ShapeRule = void (*)(torch::jit::Stack* stack);
ShapeRule shape_rule(const std::string& callee);
// Its part in layout_rules.cpp.
ShapeRule layout_rule(const std::string& callee);
// Runs the operator's CPU kernel on zeros that lie in memory as the arguments do; then as a ShapeRule.
void measured(const char* callee, torch::jit::Stack* stack);

}  // namespace braze::bridge
