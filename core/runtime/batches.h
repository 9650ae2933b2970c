// Which kernels of a program may run at the same time, and how threads share them.
//
// Starting threads and waiting for them costs about as much as a kernel over some thousand elements. A step of an
// optimizer has a kernel or two for each of hundreds of parameters: kernels that follow each other and are independent
// are one batch, which starts the threads once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/runtime/program.h"

namespace braze::runtime {

// Element operations that are worth a thread.
constexpr int64_t kGrain = 32768;

// Indices into Program::thunks. One, or several kernels none of which touches memory that another one writes.
using Batch = std::vector<size_t>;
// Every thunk once, in an order that computes the same. Releases of slots of the arena come too late: nothing happens
// there when a program runs.
std::vector<Batch> batches(const Program& program);

// A kernel of a batch: its outer points, and the element operations of each.
struct Amount {
    int64_t count = 0, work = 1;
};
struct Share {  // outer points of the batch's kernel `kernel`
    size_t kernel;
    int64_t begin, end;
};
// By thread, of at most `threads`: about the same work for each; every point is in one share.
std::vector<std::vector<Share>> share_out(const std::vector<Amount>& kernels, int threads);

}  // namespace braze::runtime
