// Tensors that are cut into pieces and then written piece by piece.
#pragma once
#include "core/ir/graph.h"

namespace braze::passes::functionalization {

// A split whose pieces are all that is used of the memory from then on, some of them written in place, becomes its
// copying form: every piece has memory of its own, and its writes can be made pure one by one. Returns whether there
// was one.
bool separate_pieces(ir::Graph& g);

}  // namespace braze::passes::functionalization
