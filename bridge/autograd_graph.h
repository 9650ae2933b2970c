// The stock autograd graph.
#pragma once
#include <torch/csrc/autograd/node.h>

#include <vector>

#include "bridge/torch.h"

namespace braze::bridge {

// Every node of the graph behind these.
std::vector<torch::autograd::Node*> graph_behind(const std::vector<at::Tensor>& tensors);

}  // namespace braze::bridge
