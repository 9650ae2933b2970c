// Between a captured trace and the core's graph, and back from a Call's arguments to a dispatcher stack.
#pragma once
#include "bridge/compiled_trace.h"
#include "core/ir/graph.h"

namespace braze::bridge {

// Values that only PyTorch understands (device, layout, memory format, generator, complex numbers): ir::Opaque::index counts here.
using OpaquePool = std::vector<c10::IValue>;

ir::DType dtype_of(at::ScalarType t);
at::ScalarType scalar_type_of(ir::DType d);

struct Converted {
    ir::Graph graph;
    OpaquePool opaques;
    std::vector<int> constant_inputs;  // graph inputs after the caller's: indices into Trace::constants
};
// Graph inputs 0..n-1 are the caller's (Trace::inputs), then the constants. Every operator becomes a Call with its whole schema.
Converted convert(const Trace& trace, const std::vector<TraceOutput>& outputs);

// An argument of a Call as the dispatcher wants it; tensors are left undefined (None) for the caller to fill in.
c10::IValue to_ivalue(const ir::Arg& arg, Form form, const OpaquePool& opaques);

}  // namespace braze::bridge
