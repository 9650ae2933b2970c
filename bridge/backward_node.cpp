#include "bridge/backward_node.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "core/support/error.h"

namespace braze::bridge {

using Tensors = BackwardNode::Tensors;

namespace {

at::Tensor generator_state() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    std::lock_guard lock(generator.mutex());
    return generator.get_state();
}
void set_generator_state(const at::Tensor& state) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    std::lock_guard lock(generator.mutex());
    generator.set_state(state);
}

// The random numbers that were drawn from this state on are drawn again; afterwards the generator is as before.
class SameNumbers {
  public:
    explicit SameNumbers(const at::Tensor& state) {
        if (!state.defined()) return;
        now_ = generator_state();
        set_generator_state(state);
    }
    ~SameNumbers() {
        if (now_.defined()) set_generator_state(now_);
    }

  private:
    at::Tensor now_;
};

const c10::StorageImpl* storage_of(const at::Tensor& t) { return t.storage().unsafeGetStorageImpl(); }

bool is_written(const TrainedProgram& program, int input) {
    return std::find(program.written.begin(), program.written.end(), input) != program.written.end();
}

}  // namespace

BackwardNode::BackwardNode(std::shared_ptr<const TrainingPlan> plan, c10::ArrayRef<const at::Tensor*> inputs,
                           c10::ArrayRef<int64_t> integers)
    : plan_(std::move(plan)), integers_(integers.begin(), integers.end()) {
    torch::autograd::edge_list edges;
    for (int input : plan_->program->backward.leaves)
        edges.push_back(torch::autograd::impl::gradient_edge(*inputs[input]));
    set_next_edges(std::move(edges));
    if (plan_->program->random) generator_state_ = generator_state();
    at::AutoDispatchBelowADInplaceOrView below;
    for (int i : plan_->program->written) before_.push_back(inputs[i]->clone());
}

void BackwardNode::keep(c10::ArrayRef<const at::Tensor*> inputs, std::vector<at::Tensor>& made) {
    for (int i = 0; i < plan_->program->n_inputs; ++i) {
        if (inputs[i]->defined() && !is_written(*plan_->program, i))
            inputs_.emplace_back(*inputs[i], false);
        else
            inputs_.emplace_back();
    }
    int n_outputs = 0;
    for (int k : plan_->outputs) n_outputs = std::max(n_outputs, k + 1);
    for (const auto& s : plan_->saved) {
        if (s.kind == autograd::Saved::Input) {
            values_.emplace_back();
            continue;
        }
        at::Tensor t = made[s.index];
        if (s.kind == autograd::Saved::Value && plan_->forward->may_share(s.index)) {
            // Who changes an input or an output changes this value: they share a version.
            auto share = [&](const at::Tensor& other) {
                if (!other.defined() || storage_of(other) != storage_of(t)) return;
                if (t.is_same(other)) t = t.tensor_data();
                t.unsafeGetTensorImpl()->set_version_counter(other.unsafeGetTensorImpl()->version_counter());
            };
            for (const at::Tensor* input : inputs) share(*input);
            for (int k = 0; k < n_outputs; ++k) share(made[k]);
        }
        values_.emplace_back(t, s.kind == autograd::Saved::Output);
    }
}

Tensors BackwardNode::kept_inputs() {
    Tensors all;
    for (const auto& v : inputs_) all.push_back(v.unpack());
    return all;
}

Tensors BackwardNode::kept_values() {
    Tensors all;
    for (size_t i = 0; i < plan_->saved.size(); ++i) {
        const auto& s = plan_->saved[i];
        if (s.kind != autograd::Saved::Input)
            all.push_back(values_[i].unpack(getptr()));
        else if (s.index < plan_->program->n_inputs)
            all.push_back(inputs_[s.index].unpack());
        else
            all.push_back(plan_->constants.at(s.index - plan_->program->n_inputs));
    }
    return all;
}

void BackwardNode::release_variables() {
    std::lock_guard lock(mutex_);
    for (auto& v : inputs_) v.reset_data();
    for (auto& v : values_) v.reset_data();
    before_.clear();
    released_ = true;
}

// A gradient has the sizes of its output, but any layout.
at::Tensor BackwardNode::fitting(const at::Tensor& tangent, const TrainingPlan::Tangent& wanted) const {
    c10::DimVector sizes, strides;
    for (const Size& s : wanted.sizes) sizes.push_back(s.at(symbols_.data()));
    for (const Size& s : wanted.strides) strides.push_back(s.at(symbols_.data()));
    if (!tangent.defined()) {
        at::Tensor none = at::empty_strided(sizes, strides, c10::TensorOptions().dtype(wanted.dtype));
        return none.zero_();
    }
    if (tangent.layout() == c10::kStrided && !tangent.is_neg() && !tangent.is_conj() && !tangent._is_zerotensor()) {
        BRAZE_CHECK(tangent.sizes() == sizes, "a gradient has the sizes " + c10::str(tangent.sizes()));
        bool fits = true;
        for (size_t i = 0; i < sizes.size(); ++i) fits &= sizes[i] <= 1 || tangent.stride(i) == strides[i];
        if (fits) return tangent;
    }
    at::Tensor mine = at::empty_strided(sizes, strides, c10::TensorOptions().dtype(wanted.dtype));
    return mine.copy_(tangent.layout() == c10::kStrided ? tangent : tangent.to_dense());
}

// Of a transform (vmap over the engine, is_grads_batched): it has no memory of its own, and operators know what it is.
static bool is_wrapper(const at::Tensor& t) {
    static constexpr c10::DispatchKeySet keys(
        {c10::DispatchKey::Batched, c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
    return t.unsafeGetTensorImpl()->is_python_dispatch() || t.key_set().has_any(keys);
}

Tensors BackwardNode::apply(Tensors&& tangents) {
    std::vector<bool> used;
    bool plain = !at::GradMode::is_enabled() && !at::autocast::is_autocast_enabled(at::kCPU);
    for (const at::Tensor& t : tangents) {
        used.push_back(t.defined());
        plain &= !t.defined() || (t.is_cpu() && !is_wrapper(t));
    }
    const bool expected = used == plan_->used;
    if (!expected) plan_->program->expect(used);
    Tensors gradients;
    bool done = plain && covers(plan_->used, used);
    if (done) {
        gradients = run(tangents);
        done = expected || drop_unreached(tangents, gradients);
    }
    if (!done) gradients = differentiate(tangents);
    for (size_t i = 0; i < gradients.size(); ++i)
        if (!task_should_compute_output(i)) gradients[i].reset();
    return gradients;
}

// Zeros stood for the tangents that are not there. Where all went well they added nothing, and gradients that come from
// them alone are none. False: a zero may have met an infinity.
bool BackwardNode::drop_unreached(const Tensors& tangents, Tensors& gradients) const {
    const auto& reach = plan_->program->backward.reach;
    for (size_t leaf = 0; leaf < gradients.size(); ++leaf) {
        bool reached = false;
        for (size_t k = 0; k < tangents.size(); ++k) reached |= tangents[k].defined() && reach[k][leaf];
        if (!reached) gradients[leaf].reset();
        if (gradients[leaf].defined() && !at::isfinite(gradients[leaf]).all().item<bool>()) return false;
    }
    return true;
}

Tensors BackwardNode::run(Tensors& tangents) {
    Tensors kept;
    {
        std::lock_guard lock(mutex_);
        kept = kept_values();
        if (last_)
            for (auto& v : values_) v.reset_data();
    }
    // Whoever accumulates gradients takes them over: none may lie in memory that is still used.
    // (weak references, so that no new memory gets the address of what went meanwhile)
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> taken;
    for (const auto& g : plan_->gradients) {
        if (g.output < 0 || !plan_->backward->may_share(g.output)) continue;
        for (const at::Tensor& k : kept) taken.push_back(k.storage().getWeakStorageImpl());
        break;
    }
    at::AutoDispatchBelowADInplaceOrView below;
    for (const auto& wanted : plan_->tangents) kept.push_back(fitting(tangents[wanted.root], wanted));
    std::vector<at::Tensor> made;
    plan_->backward->run_with(symbols_, std::move(kept), made);

    std::vector<char> own(made.size(), 0);
    Tensors gradients(plan_->program->backward.leaves.size());
    for (const auto& g : plan_->gradients) {
        if (!task_should_compute_output(g.leaf)) continue;
        if (g.output < 0) {
            gradients[g.leaf] = tangents[plan_->tangents[-1 - g.output].root];
            continue;
        }
        at::Tensor& t = made[g.output];
        if (!own[g.output] && plan_->backward->may_share(g.output)) {
            if (std::any_of(taken.begin(), taken.end(),
                            [&](const auto& other) { return other._unsafe_get_target() == storage_of(t); }))
                t = t.clone();
            taken.push_back(t.storage().getWeakStorageImpl());
        }
        own[g.output] = 1;
        gradients[g.leaf] = t;
    }
    return gradients;
}

Tensors BackwardNode::differentiate(Tensors& tangents) {
    TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
    Tensors inputs;
    {
        std::lock_guard lock(mutex_);
        inputs = kept_inputs();
    }
    const bool create_graph = at::GradMode::is_enabled();
    at::AutoGradMode grad_mode(true);
    for (size_t i = 0; i < before_.size(); ++i) inputs[plan_->program->written[i]] = before_[i].clone();
    Tensors sources;  // other tensors than the inputs, so that the engine stops there
    for (int input : plan_->program->backward.leaves) {
        inputs[input] = at::alias(inputs[input]);
        sources.push_back(inputs[input]);
    }
    const SymbolValues sizes(*plan_->program->trace->symbols, [&](int input, int axis) {
        return axis == SymbolTable::kItself ? integers_[input] : inputs[input].size(axis);
    });
    std::vector<at::Tensor> outputs;
    {
        SameNumbers same(generator_state_);
        c10::impl::ExcludeDispatchKeyGuard forward_is_not_mapped(c10::DispatchKey::VmapMode);
        outputs = plan_->program->replay->run(inputs, sizes, true);
    }
    Tensors roots, given;
    for (size_t k = 0; k < tangents.size(); ++k) {
        if (!tangents[k].defined()) continue;
        for (size_t i = 0; i < outputs.size(); ++i)
            if (plan_->outputs[i] == plan_->roots[k]) {
                roots.push_back(outputs[i]);
                given.push_back(tangents[k]);
                break;
            }
    }
    if (roots.empty()) return Tensors(sources.size());
    return torch::autograd::grad(roots, sources, given, create_graph, create_graph, true);
}

at::Tensor with_used_up_graph(at::Tensor result, size_t n, const std::function<const at::Tensor&(size_t)>& leaf) {
    if (result.requires_grad()) result = result.detach();  // it was made under autograd
    torch::autograd::edge_list edges;
    for (size_t i = 0; i < n; ++i) edges.push_back(torch::autograd::impl::gradient_edge(leaf(i)));
    torch::autograd::set_history(result, c10::make_intrusive<UsedUpNode>(std::move(edges)));
    return result;
}

}  // namespace braze::bridge
