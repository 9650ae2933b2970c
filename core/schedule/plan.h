// From ordered steps to a program: slots, memory, thunks.
#pragma once
#include <vector>

#include "core/runtime/program.h"
#include "core/schedule/steps.h"

namespace braze::schedule {

// Values with a home are computed there. Fills in everything but Program::graph and Program::code.
void plan(const Facts& facts, const Units& units, const std::vector<Cluster>& clusters, std::vector<Step> steps,
          const Homes& homes, runtime::Program& program);

}  // namespace braze::schedule
