// A trace as a graph of Calls.
//
// Graph inputs: the caller's inputs in the order of their ids, then the trace's constants that remain tensors. Text of
// Opaque arguments: "cpu", "strided", "contiguous_format", "channels_last", "preserve_format", ...
#pragma once
#include "bridge/compiled_trace.h"
#include "core/ir/graph.h"

namespace braze::bridge {

struct Converted {
    ir::Graph graph;
    std::vector<c10::IValue> opaque;  // by Opaque::index
    std::vector<int> constants;       // indices into Trace::constants: graph inputs after the caller's
    std::vector<int> outputs;         // per output of the trace: index into graph.outputs, or -1 - k: input k itself
};

Converted to_graph(const Trace& trace, const std::vector<TraceOutput>& outputs);

}  // namespace braze::bridge
