// From a graph of primitive operators and Calls to a program of kernels and calls. Nothing is compiled here.
//
//   prepare    graph to graph: VarMean becomes two passes, long reductions become two levels
//   facts      memory and time: who views whom, what has to be stored, what may be computed again elsewhere
//   fusion     units of computation are gathered into clusters, each of which becomes one kernel
//   demand     which values a cluster has to store, which ones its readers compute themselves
//   lower      a cluster as a scalar DAG with stores over its axes
//   nest       the axes become loops: split, ordered, merged, divided into outer and inner ones
//   plan       order of execution, slots, memory
#pragma once
#include "core/ir/graph.h"
#include "core/runtime/program.h"

namespace braze::schedule {

struct Options {
    int cluster_limit = 240;  // scalars in a kernel, roughly: longer chains are cut
};

// Takes the graph over (calls of the program refer to its nodes). Program::code stays empty.
runtime::Program schedule(ir::Graph graph, const Options& options = {});

}  // namespace braze::schedule
