// Everything that happens between a captured graph and a program, in order, on one page.
#include "core/pipeline.h"

#include <algorithm>
#include <chrono>

#include "core/ir/text.h"
#include "core/ir/verify.h"
#include "core/joint_pipeline.h"
#include "core/passes/pass.h"
#include "core/schedule/schedule.h"
#include "core/support/error.h"

namespace braze {

namespace {

// The passes, in the order in which they run. Those that make others' leftovers disappear run again after decompose.
constexpr std::string_view kOrder[] = {"functionalize", "fold", "cse", "dce", "decompose",
                                       "layout",        "fold", "cse", "dce"};

class Clock {
  public:
    Clock(std::string name, PipelineStats* stats)
        : name_(std::move(name)), stats_(stats), begin_(std::chrono::steady_clock::now()) {}
    ~Clock() {
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
        if (stats_) stats_->stages.push_back({name_, spent.count()});
    }

  private:
    std::string name_;
    PipelineStats* stats_;
    std::chrono::steady_clock::time_point begin_;
};

void run_passes(ir::Graph& graph, const PipelineOptions& options, PipelineStats* stats) {
    passes::Context context{options, stats};
    for (std::string_view name : kOrder) {
        // Without code generation every Call stays what it is.
        if (!options.codegen && name == "decompose") break;
        const passes::Pass* pass = passes::find_pass(name);
        BRAZE_CHECK(pass, "no pass is called " + std::string(name));
        passes::run_pass(*pass, graph, context);
    }
}

void generate_code(runtime::Program& program, const PipelineOptions& options, PipelineStats* stats) {
    if (program.kernels.empty()) return;
    Clock clock("codegen", stats);
    std::vector<std::pair<std::string, std::string>> texts;
    program.code = codegen::compile(program.kernels, codegen::detect_target(options.isa), options.compile_threads,
                                    stats ? &stats->code : nullptr, options.dump ? &texts : nullptr);
    for (const auto& [ir, assembly] : texts) {
        options.dump("llvm", ir);
        options.dump("assembly", assembly);
    }
}

void capture(const ir::Graph& graph, const PipelineOptions& options, PipelineStats* stats) {
    if (stats) stats->nodes_in = static_cast<int>(graph.nodes.size());
    if (options.dump) options.dump("captured", ir::print(graph));
    if (options.verify) ir::verify(graph);
}

// From a graph after all passes on.
std::unique_ptr<runtime::Program> make_program(ir::Graph graph, const PipelineOptions& options, PipelineStats* stats) {
    if (stats) stats->nodes_out += static_cast<int>(graph.nodes.size());
    auto program = std::make_unique<runtime::Program>();
    {
        Clock clock("schedule", stats);
        *program = schedule::schedule(std::move(graph));
    }
    if (options.dump) options.dump("program", program->dump());
    if (options.verify)
        for (const loops::Kernel& k : program->kernels) loops::verify(k);

    generate_code(*program, options, stats);

    if (stats) {
        stats->kernels += static_cast<int>(program->kernels.size());
        stats->aten_calls +=
            static_cast<int>(std::count_if(program->thunks.begin(), program->thunks.end(), [](const runtime::Thunk& t) {
                return std::holds_alternative<runtime::RunCall>(t);
            }));
    }
    return program;
}

}  // namespace

std::unique_ptr<runtime::Program> compile_graph(ir::Graph graph, const PipelineOptions& options, PipelineStats* stats) {
    capture(graph, options, stats);
    run_passes(graph, options, stats);
    return make_program(std::move(graph), options, stats);
}

std::optional<TrainingPrograms> compile_joint(autograd::Joint joint, const PipelineOptions& options,
                                              std::string* obstacle, PipelineStats* stats) {
    capture(joint.graph, options, stats);
    run_passes(joint.graph, options, stats);
    std::optional<autograd::Partition> halves;
    {
        Clock clock("partition", stats);
        halves = autograd::partition(joint, obstacle);
    }
    if (!halves) return std::nullopt;
    for (const auto& [name, graph] :
         {std::pair("forward", &halves->forward), std::pair("backward", &halves->backward)}) {
        if (options.dump) options.dump(name, ir::print(*graph));
        if (options.verify) ir::verify(*graph);
    }
    TrainingPrograms programs;
    programs.forward = make_program(std::move(halves->forward), options, stats);
    programs.backward = make_program(std::move(halves->backward), options, stats);
    programs.saved = std::move(halves->saved);
    return programs;
}

}  // namespace braze
