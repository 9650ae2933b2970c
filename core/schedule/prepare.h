// Rewriting of the graph for the scheduler's sake.
#pragma once
#include "core/ir/graph.h"

namespace braze::schedule {

// VarMean becomes sums (two passes). A reduction of many elements to few becomes two levels, so that it runs in
// parallel and stays accurate. AsStrided of memory whose place in its storage is unknown becomes a Call. What is
// written to several inputs becomes a value for each.
void prepare(ir::Graph& g);

}  // namespace braze::schedule
