// A capture as a torch.fx.GraphModule of the program's calls, run by whatever a backend makes of it.
#pragma once
#include "bridge/compiled_trace.h"

namespace braze::bridge {

// reals: the inputs of the call that was traced, by id (borrowed). Needs the GIL.
std::unique_ptr<frontend::CompiledGraph> compile_calls(Trace trace, std::vector<TraceOutput> outputs, bool needs_grad,
                                                       const frontend::BackendChoice& backend,
                                                       const std::vector<PyObject*>& reals);

}  // namespace braze::bridge
