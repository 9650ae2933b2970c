// The invariants of graphs: definition before use, operand counts, attributes and types as ops.def says.
#pragma once
#include "core/ir/graph.h"

namespace braze::ir {

void verify(const Graph& g);  // throws InternalError with the offending node's text

}  // namespace braze::ir
