// The order of execution.
#pragma once
#include <vector>

#include "core/schedule/cluster.h"
#include "core/schedule/homes.h"
#include "core/schedule/nest.h"

namespace braze::schedule {

struct Step {
    const ir::Node* call = nullptr;  // a Call, or
    int cluster = -1;                // a kernel
    Nest nest;
    int region = 0, position = 0;                 // in program order; of a kernel: of the last thing it stores
    std::vector<const ir::Value*> reads, writes;  // in memory
};

// The memory that a value is read from or written to: itself, or what it is a view of.
const ir::Value* memory_of(const Facts& facts, const ir::Value* v);

// Sorts the steps by data dependence, else in program order, but so that homes can be used.
void order_steps(std::vector<Step>& steps, Homes& homes);

}  // namespace braze::schedule
