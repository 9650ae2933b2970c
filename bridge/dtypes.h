// Element types on both sides.
#pragma once
#include "bridge/torch.h"
#include "core/ir/dtype.h"

namespace braze::bridge {

ir::DType to_dtype(at::ScalarType t);        // Other where the IR has none
at::ScalarType to_scalar_type(ir::DType d);  // throws InternalError for Other

}  // namespace braze::bridge
