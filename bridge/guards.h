// Guards on tensors: they look at the TensorImpl, without the dispatcher.
#pragma once
#include "bridge/torch.h"
#include "frontend/bridge_api.h"

namespace braze::bridge {

// How the strides of a tensor follow from its sizes: of each axis a constant, or the extent of another axis times its
// stride.
struct StrideRule {
    int64_t constant;
    int from;  // axis; -1: the constant
};
// Only axes in `dynamic` make a difference: where none is involved, the constant.
c10::SmallVector<StrideRule, 5> stride_rules(c10::IntArrayRef sizes, c10::IntArrayRef strides, uint64_t dynamic);

std::unique_ptr<frontend::TensorGuard> make_tensor_guard(PyObject* real, uint64_t dynamic_dims,
                                                         frontend::GradientUse use);
// nullptr: a backward pass inside a graph may do this with the gradient of the tensor.
const char* gradient_obstacle(const c10::TensorImpl& t, frontend::GradientUse use);

}  // namespace braze::bridge
