#include "bridge/training.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "bridge/backward_node.h"
#include "bridge/convert.h"
#include "bridge/dtypes.h"
#include "bridge/options.h"
#include "core/joint_pipeline.h"
#include "core/support/error.h"

namespace braze::bridge {

namespace {

// So often a backward pass may come from other outputs than expected before all runs are prepared for all outputs.
constexpr int kMostSurprises = 4;

// The program's outputs, then the gradients, as outputs of the joint trace.
std::vector<TraceOutput> joint_outputs(const std::vector<TraceOutput>& outputs, const JointTrace& joint) {
    std::vector<TraceOutput> all = outputs;
    for (const auto& g : joint.gradients) all.push_back({g.value, false, nullptr});
    return all;
}

bool kept(const JointTrace& joint, int value) {
    int set = joint.trace.values[value].alias_set;
    return set >= 0 && joint.kept_sets[set];
}

std::vector<bool> used_roots(const JointTrace& joint, size_t roots) {
    std::vector<bool> used(roots, false);
    for (const auto& t : joint.tangents) used[t.root] = true;
    return used;
}

}  // namespace

bool covers(const std::vector<bool>& all, const std::vector<bool>& some) {
    for (size_t i = 0; i < some.size(); ++i)
        if (some[i] && !all[i]) return false;
    return true;
}

void TrainedProgram::expect(const std::vector<bool>& roots_used) {
    int exact = -1, cover = -1;
    size_t most = 0;
    for (size_t k = 0; k < backward.joints.size(); ++k) {
        const std::vector<bool> used = used_roots(backward.joints[k], backward.roots.size());
        if (used == roots_used) exact = static_cast<int>(k);
        if (backward.joints[k].tangents.size() > most && covers(used, roots_used)) {
            cover = static_cast<int>(k);
            most = backward.joints[k].tangents.size();
        }
    }
    expected = exact >= 0 && ++surprises <= kMostSurprises ? exact : cover;
}

Training::Training(std::shared_ptr<const Trace> trace, std::vector<TraceOutput> outputs,
                   std::shared_ptr<const Replay> replay, BackwardTraces traces)
    : program_(std::make_shared<TrainedProgram>()), plans_(traces.joints.size()) {
    TrainedProgram& p = *program_;
    p.trace = std::move(trace);
    p.outputs = std::move(outputs);
    p.replay = std::move(replay);
    p.backward = std::move(traces);
    p.n_inputs = static_cast<int>(p.trace->inputs.size());
    for (const Record& r : p.trace->records) p.random |= r.info->random && r.ordered;
    for (int i = 0; i < p.n_inputs; ++i) {
        int value = p.trace->inputs[i];
        if (value >= 0 && p.trace->written_sets[p.trace->values[value].alias_set]) p.written.push_back(i);
    }
}

std::shared_ptr<const TrainingPlan> Training::plan() {
    if (torch::autograd::AnomalyMode::is_enabled() || !at::SavedTensorDefaultHooks::get_tls_state().stack.empty())
        return nullptr;
    int wanted = program_->expected;
    if (wanted < 0) return nullptr;
    if (!plans_[wanted]) {
        auto made = make_plan(wanted);
        if (!made) program_->expected = -1;
        plans_[wanted] = std::move(made);
    }
    return plans_[wanted];
}

// nullptr: the joint trace does not fall into two halves.
std::shared_ptr<const TrainingPlan> Training::make_plan(int index) const {
    const TrainedProgram& program = *program_;
    const JointTrace& joint = program.backward.joints[index];
    auto plan = std::make_shared<TrainingPlan>();
    plan->program = program_;
    plan->used = used_roots(joint, program.backward.roots.size());

    Converted converted = to_graph(joint.trace, joint_outputs(program.outputs, joint));
    for (int c : converted.constants) plan->constants.push_back(joint.trace.constants[c]);
    autograd::Joint graph;
    graph.first_tangent = program.n_inputs;
    graph.n_tangents = static_cast<int>(joint.tangents.size());
    graph.keeps_input.assign(converted.graph.inputs.size(), 1);
    for (int i = 0; i < program.n_inputs; ++i)
        graph.keeps_input[i] = program.trace->inputs[i] < 0 || kept(joint, program.trace->inputs[i]);
    plan->roots.resize(program.backward.roots.size(), -1);
    for (size_t i = 0; i < program.outputs.size(); ++i) {
        const TraceOutput& o = program.outputs[i];
        int k = o.value < 0 ? TrainingPlan::kNoTensor : converted.outputs[i];
        BRAZE_CHECK(k >= 0 || !o.type || o.value < 0, "an output that needs a gradient function is an input");
        plan->outputs.push_back(k);
        auto root = std::find(program.backward.roots.begin(), program.backward.roots.end(), o.value);
        plan->leaves.push_back(o.requires_grad && !o.used_up && root == program.backward.roots.end());
        if (k < 0) continue;
        if (root != program.backward.roots.end()) plan->roots[root - program.backward.roots.begin()] = k;
        graph.n_outputs = std::max(graph.n_outputs, k + 1);
        graph.keeps_output.resize(graph.n_outputs, 0);
        graph.keeps_output[k] = kept(joint, o.value);
    }
    for (const auto& t : joint.tangents) plan->tangents.push_back({t.root, joint.trace.values[t.value].dtype, {}, {}});
    for (size_t i = 0; i < joint.gradients.size(); ++i) {
        int k = converted.outputs[program.outputs.size() + i];
        if (k >= 0 && k < graph.n_outputs) return nullptr;  // the gradient is the output
        plan->gradients.push_back({joint.gradients[i].leaf, k < 0 ? k + program.n_inputs : k - graph.n_outputs});
    }
    graph.graph = std::move(converted.graph);
    graph.regions = joint.trace.regions;

    std::string obstacle;
    PipelineStats stats;
    PipelineOptions options = pipeline_options();
    graph.memory_budget = options.memory_budget;
    std::optional<TrainingPrograms> programs;
    {
        pybind11::gil_scoped_release no_gil;
        programs = compile_joint(std::move(graph), options, &obstacle, &stats);
    }
    if (!programs) {
        if (options.dump) options.dump("no partition", obstacle);
        return nullptr;
    }
    plan->aten_calls = stats.aten_calls;
    plan->saved = std::move(programs->saved);
    BRAZE_CHECK(programs->forward->symbols == programs->backward->symbols, "the halves have other symbols");
    const ir::Graph& backward = programs->backward->graph;
    for (size_t k = 0; k < plan->tangents.size(); ++k) {
        const ir::TensorType& type = backward.inputs.at(plan->saved.size() + k)->type;
        for (const auto& e : type.sizes) plan->tangents[k].sizes.emplace_back(e, programs->backward->symbols);
        for (const auto& e : type.strides) plan->tangents[k].strides.emplace_back(e, programs->backward->symbols);
    }
    plan->forward.emplace(std::move(programs->forward), converted.opaque, plan->constants, program.written,
                          *program.trace->symbols);
    plan->backward.emplace(std::move(programs->backward), std::move(converted.opaque), std::vector<at::Tensor>(),
                           std::vector<int>(), *program.trace->symbols);
    return plan;
}

int Training::kernels() const {
    size_t n = 0;
    for (const auto& p : plans_)
        if (p) n += p->forward->program().kernels.size() + p->backward->program().kernels.size();
    return static_cast<int>(n);
}
int Training::aten_calls() const {
    int n = 0;
    for (const auto& p : plans_)
        if (p) n += p->aten_calls;
    return n;
}

std::vector<at::Tensor> Training::run(const std::shared_ptr<const TrainingPlan>& plan,
                                      c10::ArrayRef<const at::Tensor*> inputs, c10::ArrayRef<int64_t> integers) {
    auto node = c10::make_intrusive<BackwardNode>(plan, inputs, integers);
    node->set_symbols(plan->forward->symbols_of(inputs, integers));
    std::vector<at::Tensor> made;
    {
        at::AutoDispatchBelowADInplaceOrView below;
        at::AutoGradMode no_grad(false);
        plan->forward->run(inputs, integers, made);
    }
    for (int root : plan->roots) {
        at::Tensor& output = made[root];
        BRAZE_CHECK(!output.requires_grad(), "an output has a gradient function already");
        torch::autograd::set_history(output, node);
    }
    node->keep(inputs, made);
    std::vector<at::Tensor> results;
    for (size_t i = 0; i < plan->outputs.size(); ++i) {
        const int k = plan->outputs[i];
        results.push_back(k >= 0 ? made[k] : k == TrainingPlan::kNoTensor ? at::Tensor() : *inputs[-1 - k]);
        if (plan->leaves[i]) results.back().unsafeGetTensorImpl()->set_requires_grad(true);
    }
    return results;
}

}  // namespace braze::bridge
