// Graph passes: a pass has a name (passes.def), changes a Graph in place and says whether it changed anything.
#pragma once
#include <string_view>

#include "core/ir/graph.h"
#include "core/pipeline.h"

namespace braze::passes {

struct Context {
    const PipelineOptions& options;
    PipelineStats* stats;
};
using PassFn = bool (*)(ir::Graph&, Context&);
struct Pass {
    std::string_view name;
    std::string_view summary;
    PassFn run;
};

#define PASS(id, text, summary) bool id(ir::Graph& g, Context& c);
#include "core/passes/passes.def"
#undef PASS

// Times, dumps, verifies; skips a disabled pass.
bool run_pass(const Pass& pass, ir::Graph& g, Context& c);
const Pass* find_pass(std::string_view name);

}  // namespace braze::passes
