// The backward pass of a trace.
#include <c10/util/strides.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/utils/python_symnode.h>

#include <unordered_set>

#include "bridge/autograd_graph.h"
#include "bridge/capture.h"
#include "bridge/options.h"
#include "bridge/output_views.h"
#include "bridge/pending.h"
#include "bridge/recorded_hook.h"
#include "core/ir/graph.h"

namespace braze::bridge {

using torch::autograd::Node;

std::vector<Node*> graph_behind(const std::vector<at::Tensor>& tensors) {
    std::vector<Node*> found;
    std::unordered_set<Node*> seen;
    auto visit = [&](Node* n) {
        if (n && seen.insert(n).second) found.push_back(n);
    };
    for (const at::Tensor& t : tensors) visit(t.grad_fn().get());
    for (size_t i = 0; i < found.size(); ++i)
        for (const auto& edge : found[i]->next_edges()) visit(edge.function.get());
    return found;
}

namespace {

c10::TensorImpl* leaf_of(Node* n) {
    auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(n);
    return leaf ? leaf->variable.unsafeGetTensorImpl() : nullptr;
}

// The program runs operator by operator then.
void report_obstacle(const std::string& reason) {
    PyErr_Clear();
    if (PipelineOptions options = pipeline_options(); options.dump) options.dump("no joint trace", reason);
}

// The tensors themselves where they are leaves, and the leaves of the graph behind the others.
std::vector<c10::TensorImpl*> leaves_behind(const std::vector<at::Tensor>& tensors) {
    std::vector<c10::TensorImpl*> leaves;
    for (const at::Tensor& t : tensors)
        if (t.requires_grad() && !t.grad_fn()) leaves.push_back(t.unsafeGetTensorImpl());
    for (Node* n : graph_behind(tensors))
        if (c10::TensorImpl* leaf = leaf_of(n)) leaves.push_back(leaf);
    return leaves;
}

// A view that a custom autograd.Function returned, or a view of one: torch lets nobody write it.
bool may_not_be_written(const at::Tensor& t) {
    const auto* view = torch::autograd::impl::get_view_autograd_meta(t);
    return view && view->has_bw_view() &&
           view->get_creation_meta() == torch::autograd::CreationMeta::IN_CUSTOM_FUNCTION;
}

}  // namespace

void Tracer::add_inputs_of(const c10::TensorImpl* leaf, std::vector<int>& ids) const {
    for (const InputFake& in : input_fakes_)
        if (in.fake.unsafeGetTensorImpl() == leaf) ids.push_back(in.id);
}

std::optional<std::vector<int>> Tracer::begin_backward(const std::vector<PyObject*>& roots) {
    ran_backward_ = true;
    std::vector<at::Tensor> tensors;
    for (PyObject* o : roots) tensors.push_back(THPVariable_Unpack(o));
    std::vector<int> ids;
    for (c10::TensorImpl* leaf : leaves_behind(tensors)) {
        // (of a function transform, whose graph ends at what it wraps)
        if (leaf->key_set().has(c10::DispatchKey::FuncTorchGradWrapper)) continue;
        FakeImpl* fake = as_fake(leaf);
        if (!fake || fake->epoch() != epoch_) {
            if (options_.on_break) options_.on_break("autograd", "a leaf that is no tensor of the graph");
            return std::nullopt;
        }
        add_inputs_of(leaf, ids);
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
}

// Which of these outputs have a graph that the program has used up: the engine says so. (A graph that keeps no tensors
// can be run again, in eager too.)
void Tracer::find_used_up(const std::vector<at::Tensor>& roots, int n_inputs) {
    const Trace program = trace_;
    const std::vector<bool> touched = touched_;
    for (const at::Tensor& root : roots) {
        std::vector<at::Tensor> leaves, gradients;
        std::vector<int> ids;
        for (c10::TensorImpl* leaf : leaves_behind({root})) {
            leaves.push_back(at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(leaf)));
            add_inputs_of(leaf, ids);
        }
        trace_.inputs.resize(n_inputs, -1);
        std::string error = run_engine({root}, leaves, {fake_tangent(root, n_inputs)}, gradients);
        if (error.starts_with(std::string_view(torch::autograd::ERR_BACKWARD_TWICE).substr(0, 40)))
            used_up_.emplace(root.unsafeGetTensorImpl(), std::move(ids));
        trace_ = program;
        touched_ = touched;
    }
}

bool Tracer::has_lost_graph(const at::Tensor& t) {
    if (!t.is_view()) return false;
    try {
        t.grad_fn();
    } catch (const c10::Error&) { return true; }
    return false;
}

// Why running the recorded operators again under autograd would not give the program's gradients; empty if it does.
std::string Tracer::autograd_obstacle(const std::vector<at::Tensor>& outputs) const {
    for (Node* n : graph_behind(outputs)) {
        std::string_view type = typeid(*n).name();
        if (type.find("PyNode") != type.npos || type.find("CppNode") != type.npos) return "a custom autograd.Function";
        bool hooked = !n->pre_hooks().empty() || !n->post_hooks().empty();
        for (const auto& hook : n->tensor_pre_hooks()) hooked |= !dynamic_cast<TracedHook*>(hook.get());
        if (hooked) return "a hook in the autograd graph";
    }
    return {};
}

// Whether one gradient function can stand for the whole program: nobody can tell the outputs from fresh tensors, and
// gradients flow to inputs only.
bool Tracer::one_function_suffices(const std::vector<at::Tensor>& outputs) const {
    if (!trace_.only_cpu || !autograd_obstacle(outputs).empty()) return false;
    std::unordered_set<c10::TensorImpl*> inputs;
    std::unordered_set<int> sets;
    for (const InputFake& in : input_fakes_) {
        // (written with what needs a gradient, or requires_grad_())
        if (in.fake.grad_fn() || in.fake.requires_grad() != in.requires_grad) return false;
        if (in.fake.is_inference()) return false;  // no gradient function can keep it
        inputs.insert(in.fake.unsafeGetTensorImpl());
        int set = trace_.values[trace_.inputs[in.id]].alias_set;
        if ((!sets.insert(set).second || in.requires_grad) && trace_.written_sets[set]) return false;
    }
    for (const at::Tensor& t : outputs) {
        const FakeImpl* fake = as_fake(t);
        if (fake->epoch() != epoch_ || !sets.insert(fake->alias_set()).second || may_not_be_written(t)) return false;
    }
    for (Node* n : graph_behind(outputs))
        if (c10::TensorImpl* leaf = leaf_of(n); leaf && !inputs.contains(leaf)) return false;
    std::unordered_set<int> written;
    for (const InputFake& in : input_fakes_) {
        const int set = trace_.values[trace_.inputs[in.id]].alias_set;
        if (trace_.written_sets[set]) written.insert(set);
    }
    for (const Record& r : trace_.records) {
        // (for gradients of gradients the program runs again on copies of what it wrote, which lie elsewhere)
        if (r.info->callee.starts_with("aten::as_strided"))
            for (const Operand& o : r.operands)
                if (written.contains(trace_.values[o.value].alias_set)) return false;
        for (const c10::IValue& v : r.args)
            if (v.isGenerator()) return false;
    }
    return true;
}

// A fake for the gradient of an output, with that output's layout.
at::Tensor Tracer::fake_tangent(const at::Tensor& output, int id) {
    FakeImpl* of = as_fake(output);
    const at::Tensor& like = of->twin();
    bool dense = like.is_non_overlapping_and_dense();
    c10::DimVector strides(like.strides().begin(), like.strides().end());
    if (!dense) strides = c10::contiguous_strides(like.sizes());
    auto storage = c10::make_intrusive<FakeStorage>(trace_.alias_sets++,
                                                    reach_bytes(like.sizes(), strides, 0, like.dtype().itemsize()));
    trace_.written_sets.push_back(false);
    at::Tensor meta = plain_meta(c10::Storage(storage), like.dtype(), like.sizes(), strides, 0);
    int value = add_value(ValueInfo::Input, id, 0, meta, storage->alias_set);
    trace_.inputs.resize(id + 1, -1);
    trace_.inputs[id] = value;
    touched_.resize(id + 1, false);
    auto impl = c10::make_intrusive<FakeImpl>(meta, output.device(), value, epoch_);
    if (const SymbolicMetadata* m = of->symbolic()) {
        SymbolicMetadata mine{trace_.symbols->resolve(m->sizes), trace_.symbols->resolve(m->strides), Expr(0)};
        if (!dense) mine.strides = ir::contiguous_strides(mine.sizes);
        keep_symbolic(*impl, value, &mine);
    }
    return at::Tensor(std::move(impl));
}

// Programs with more outputs than this are expected to be differentiated through all of them at once.
static constexpr size_t kMostRootsAlone = 4;

// From which outputs a backward pass may come, the likeliest first: a loss is a single number.
static std::vector<std::vector<int>> likely_roots(const std::vector<at::Tensor>& roots) {
    std::vector<std::vector<int>> choices(1);
    for (size_t k = 0; k < roots.size(); ++k) choices[0].push_back(static_cast<int>(k));
    if (roots.size() == 1 || roots.size() > kMostRootsAlone) return choices;
    size_t numbers = 0;
    for (size_t k = 0; k < roots.size(); ++k) {
        choices.push_back({static_cast<int>(k)});
        if (roots[k].dim() > 0) continue;
        ++numbers;
        std::swap(choices[0], choices.back());
    }
    if (numbers > 1)
        std::swap(choices[0],
                  *std::find_if(choices.begin(), choices.end(), [](const auto& c) { return c.size() > 1; }));
    return choices;
}

// Views of other outputs and of inputs are made behind the program. False: that can't be.
bool Tracer::take_out_views(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& roots) const {
    std::vector<int> values;
    std::vector<bool> requires_grad;
    for (const at::Tensor& t : outputs) {
        const FakeImpl* fake = as_fake(t);
        values.push_back(fake->epoch() == epoch_ ? fake->value() : -1);
        requires_grad.push_back(t.requires_grad());
    }
    const auto found = find_views(trace_, values, requires_grad);
    std::unordered_set<c10::TensorImpl*> views;
    std::vector<at::Tensor> bases;
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (!found.views[i]) continue;
        views.insert(outputs[i].unsafeGetTensorImpl());
        const int base = found.views[i]->output - static_cast<int>(outputs.size());
        if (base < 0) continue;
        bases.resize(found.bases.size());
        if (outputs[i].is_view()) bases[static_cast<size_t>(base)] = outputs[i]._base();
    }
    for (size_t k = 0; k < bases.size(); ++k) {
        const FakeImpl* fake = bases[k].defined() ? as_fake(bases[k]) : nullptr;
        if (!fake || fake->value() != found.bases[k].value) return false;
    }
    auto is_view = [&](const at::Tensor& t) { return views.contains(t.unsafeGetTensorImpl()); };
    std::erase_if(outputs, is_view);
    std::erase_if(roots, is_view);
    for (const at::Tensor& base : bases) {
        outputs.push_back(base);
        if (base.requires_grad() && base.grad_fn()) roots.push_back(base);
    }
    return true;
}

void Tracer::trace_backward(const std::vector<PyObject*>& outputs, int n_inputs) {
    backward_.reset();
    used_up_.clear();
    std::vector<at::Tensor> tensors, roots;
    std::unordered_set<c10::TensorImpl*> seen;
    for (PyObject* o : outputs) {
        if (!is_fake(o) || !as_fake(THPVariable_Unpack(o))) continue;  // a number
        const at::Tensor& t = THPVariable_Unpack(o);
        if (!seen.insert(t.unsafeGetTensorImpl()).second) continue;
        if (has_lost_graph(t)) return;  // finish() says so
        tensors.push_back(t);
        if (t.requires_grad() && t.grad_fn()) roots.push_back(t);
    }
    if (ran_backward_) {
        find_used_up(roots, n_inputs);
        auto used_up = [&](const at::Tensor& t) { return used_up_.contains(t.unsafeGetTensorImpl()); };
        std::erase_if(roots, used_up);
        std::erase_if(tensors, used_up);
    }
    if (options_.backend.kind != frontend::BackendChoice::Kernels) return;  // replayed under eager's autograd
    // (one that keeps its gradient wants all of it, also what flows inside the program)
    for (const at::Tensor& t : roots)
        if (t.retains_grad()) return;
    if (!take_out_views(tensors, roots) || roots.empty() || !one_function_suffices(tensors)) return;
    BackwardTraces found;
    for (const at::Tensor& t : roots) found.roots.push_back(as_fake(t)->value());
    auto reached_from = [](const std::vector<at::Tensor>& some) {
        const std::vector<c10::TensorImpl*> found = leaves_behind(some);
        return std::unordered_set<c10::TensorImpl*>(found.begin(), found.end());
    };
    const auto reached = reached_from(roots);
    std::vector<at::Tensor> leaves;
    for (const InputFake& in : input_fakes_)
        if (reached.contains(in.fake.unsafeGetTensorImpl())) {
            leaves.push_back(in.fake);
            found.leaves.push_back(in.id);
        }
    for (const at::Tensor& root : roots) {
        const auto behind = reached_from({root});
        found.reach.emplace_back();
        for (const at::Tensor& leaf : leaves) found.reach.back().push_back(behind.contains(leaf.unsafeGetTensorImpl()));
    }
    const Trace program = trace_;
    const std::vector<bool> touched = touched_;
    for (const std::vector<int>& choice : likely_roots(roots)) {
        std::optional<JointTrace> joint;
        try {
            joint = record_backward(roots, choice, leaves, n_inputs);
        } catch (const std::exception& e) { report_obstacle(e.what()); }
        trace_ = program;
        touched_ = touched;
        if (!joint) continue;
        if (choice.size() == 1) {  // (an operator may have no gradient for an operand)
            found.reach[choice[0]].assign(leaves.size(), 0);
            for (const auto& g : joint->gradients) found.reach[choice[0]][g.leaf] = 1;
        }
        found.joints.push_back(std::move(*joint));
    }
    if (!found.joints.empty()) backward_ = std::move(found);
}

// nullopt: something stands in the way.
std::optional<JointTrace> Tracer::record_backward(const std::vector<at::Tensor>& all, const std::vector<int>& roots,
                                                  const std::vector<at::Tensor>& leaves, int n_inputs) {
    std::vector<at::Tensor> from, tangents, gradients;
    JointTrace joint;
    const size_t program_records = trace_.records.size();
    const int program_sets = trace_.alias_sets;
    trace_.inputs.resize(n_inputs, -1);
    for (int root : roots) {
        from.push_back(all[root]);
        tangents.push_back(fake_tangent(all[root], n_inputs + static_cast<int>(tangents.size())));
        joint.tangents.push_back({as_fake(tangents.back())->value(), root});
    }
    if (std::string error = run_engine(from, leaves, tangents, gradients); !error.empty()) {
        report_obstacle(error);
        return std::nullopt;
    }
    joint.trace = std::move(trace_);
    joint.kept_sets.resize(joint.trace.alias_sets, false);
    for (size_t i = program_records; i < joint.trace.records.size(); ++i) {
        const Record& r = joint.trace.records[i];
        if (r.ordered) return std::nullopt;  // random numbers
        for (int w : r.writes)
            if (joint.trace.values[r.operands[w].value].alias_set < program_sets) return std::nullopt;
        for (const Operand& o : r.operands) {
            int set = joint.trace.values[o.value].alias_set;
            if (set >= 0) joint.kept_sets[set] = true;
        }
    }
    for (size_t i = 0; i < leaves.size(); ++i) {
        if (!gradients[i].defined()) continue;
        FakeImpl* fake = as_fake(gradients[i]);
        if (!fake || fake->epoch() != epoch_) return std::nullopt;
        const ValueInfo& v = joint.trace.values[fake->value()];
        if (v.lazy || (v.kind == ValueInfo::Input && v.producer < n_inputs)) return std::nullopt;
        joint.gradients.push_back({static_cast<int>(i), fake->value()});
    }
    if (joint.gradients.empty()) return std::nullopt;
    return joint;
}

// After an error the engine keeps the tasks that were still to be done, and their tensors, until this thread's next
// run.
static void drop_unfinished_tasks() {
    pybind11::gil_scoped_release no_gil;
    c10::AutoGradMode grad(true);
    at::Tensor x = at::zeros({}, at::TensorOptions(at::kFloat)).set_requires_grad(true);
    torch::autograd::grad({x.clone()}, {x});
}

std::string Tracer::run_engine(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& leaves,
                               const std::vector<at::Tensor>& tangents, std::vector<at::Tensor>& gradients) {
    if (paused_ > 0) enter();
    in_backward_ = true;
    std::string error;
    auto take = [&](const std::exception& e) {
        error = e.what();
        if (error.empty()) error = "an error without words";
    };
    try {
        pybind11::gil_scoped_release no_gil;
        c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
        gradients = torch::autograd::grad(roots, leaves, tangents, true, false, true);
    } catch (python_error& e) {
        e.persist();
        take(e);
    } catch (const std::exception& e) { take(e); }
    PyErr_Clear();
    in_backward_ = false;
    if (paused_ > 0) leave();
    if (!error.empty() && paused_ > 0) drop_unfinished_tasks();
    return error;
}

}  // namespace braze::bridge
