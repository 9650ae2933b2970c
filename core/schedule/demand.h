// Which values clusters store for others. What is not stored is computed again by those who need it.
#pragma once
#include <vector>

#include "core/schedule/cluster.h"
#include "core/schedule/fusion.h"

namespace braze::schedule {

// Per unit: its value is written to memory by its cluster.
std::vector<bool> decide_stores(const Facts& facts, const Units& units, const Fused& fused);

}  // namespace braze::schedule
