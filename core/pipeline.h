// From a captured graph to a program. pipeline.cpp is the list of everything that happens, in order, on one page.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/codegen/cpu/compiler.h"
#include "core/ir/graph.h"
#include "core/runtime/program.h"

namespace braze {

struct PipelineOptions {
    std::set<std::string> disabled_passes;  // names of passes.def
    bool verify = false;                    // run the verifier after every pass
    std::string isa;                        // forced vector isa, "" = the host's best
    int compile_threads = 2;
    double memory_budget = 1;  // see autograd::Joint
    bool codegen = true;       // false: every Call stays a call (backend "aten")
    std::function<void(const std::string& stage, const std::string& text)> dump;  // called after each stage when set
};

struct StageTime {
    std::string name;
    double seconds;
};
struct PipelineStats {
    std::vector<StageTime> stages;
    int kernels = 0, aten_calls = 0, nodes_in = 0, nodes_out = 0;
    codegen::CompileStats code;
};

std::unique_ptr<runtime::Program> compile_graph(ir::Graph graph, const PipelineOptions& options,
                                                PipelineStats* stats = nullptr);

}  // namespace braze
