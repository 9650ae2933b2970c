// Normalisation by the statistics of a batch, which are also written into running ones.
#pragma once
#include "core/ir/graph.h"

namespace braze::passes::functionalization {

// Such a call becomes the pure one that keeps no running statistics, and one aten::copy_ for each of them. Returns
// whether there was one.
bool separate_statistics(ir::Graph& g);

}  // namespace braze::passes::functionalization
