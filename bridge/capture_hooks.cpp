// Hooks in a trace: see recorded_hook.h.
#include <torch/csrc/autograd/variable.h>

#include "bridge/autograd_graph.h"
#include "bridge/capture.h"
#include "bridge/gil.h"
#include "bridge/pending.h"
#include "bridge/recorded_hook.h"

namespace braze::bridge {

using torch::autograd::variable_list;

variable_list RecordedHook::operator()(const variable_list& gradients) {
    variable_list all = gradients;
    if (all.at(output_).defined()) all[output_] = does_->apply({all[output_]}).at(0);
    return all;
}

at::Tensor ProgramHook::run(const at::Tensor& gradient) const {
    THPObjectPtr given(THPVariable_Wrap(gradient));
    THPObjectPtr result(given ? call(given.get()) : nullptr);
    if (!result) throw python_error();
    if (result.get() == Py_None) return gradient;
    TORCH_CHECK(THPVariable_Check(result.get()), "expected Variable, but hook returned '",
                Py_TYPE(result.get())->tp_name, "'");
    const at::Tensor& changed = THPVariable_Unpack(result.get());
    TORCH_CHECK(gradient.defined(), "can't replace a None gradient with a non-None value");
    TORCH_CHECK(changed.dtype() == gradient.dtype(), "hook has changed the type of value");
    TORCH_CHECK(changed.sym_sizes() == gradient.sym_sizes(), "hook has changed the size of value");
    return changed;
}

variable_list TracedHook::operator()(const variable_list& gradients) {
    if (hook_->removed) return gradients;
    if (hook_->recorded) return (*hook_->recorded)(gradients);
    Gil gil;
    if (!hook_->call) return gradients;
    variable_list all = gradients;
    all.at(output_) = hook_->run(all.at(output_));
    return all;
}

int Tracer::add_hook(PyObject* fake, std::function<PyObject*(PyObject*)> call) {
    const at::Tensor& t = THPVariable_Unpack(fake);
    auto hook = std::make_shared<ProgramHook>();
    hook->call = std::move(call);
    if (auto node = t.grad_fn()) {
        using Backend = frontend::BackendChoice;
        if (options_.backend.kind == Backend::User || options_.backend.kind == Backend::Eager) {
            if (options_.on_break) options_.on_break("autograd", "a hook is no call in a graph");
            return -1;
        }
        hook->tensor = t;
        hook->node = node.get();
        hook->output = t.output_nr();
        node->add_tensor_pre_hook(std::make_unique<TracedHook>(hook, hook->output));
    } else {
        torch::autograd::impl::materialize_autograd_meta(t)->hooks_.push_back(std::make_unique<TracedHook>(hook, 0));
    }
    hooks_.push_back(std::move(hook));
    return static_cast<int>(hooks_.size()) - 1;
}

void Tracer::remove_hook(int hook) { hooks_.at(static_cast<size_t>(hook))->removed = true; }

// The function of a hook as a node, so that it is recorded like the backward of a custom autograd.Function.
struct HookNode final : torch::autograd::Node {
    const ProgramHook& hook;
    explicit HookNode(const ProgramHook& h) : hook(h) {}
    variable_list apply(variable_list&& gradients) override { return {hook.run(gradients.at(0))}; }
};

void Tracer::record_hook(ProgramHook& hook) {
    FakeImpl* fake = as_fake(hook.tensor);
    auto f = std::make_shared<RecordedFunction>();
    f->name = "a hook";
    f->is_hook = true;
    f->end = trace_.records.size();
    f->inputs.push_back({fake->value(), true});
    f->outputs.emplace_back().value = fake->value();
    auto node = c10::make_intrusive<HookNode>(hook);
    std::unordered_map<int, at::Tensor> read;
    f->bodies.push_back(record_body(*node, {hook.tensor}, *f, {true}, read));
    std::vector<at::Tensor> saved;
    for (const auto& [value, t] : read) {
        const bool itself = value == fake->value();
        f->saved.push_back({value, t.requires_grad(), false, itself ? 0 : -1});
        saved.push_back(itself ? hook.tensor : t);
    }
    auto does = c10::make_intrusive<RecordedNode>(f, torch::autograd::edge_list(), std::vector<at::Tensor>{hook.tensor},
                                                  saved, nullptr, nullptr);
    does->belongs_to(hook.node);
    hook.recorded = std::make_unique<RecordedHook>(std::move(does), hook.output);
    trace_.functions.push_back(std::move(f));
}

int Tracer::settle_hooks(const std::vector<PyObject*>& outputs) {
    std::vector<at::Tensor> tensors;
    for (PyObject* o : outputs)
        if (is_fake(o) && as_fake(THPVariable_Unpack(o))) tensors.push_back(THPVariable_Unpack(o));
    std::unordered_set<torch::autograd::Node*> reached;
    for (torch::autograd::Node* n : graph_behind(tensors)) reached.insert(n);
    int failed = -1;
    stopped_ = false;
    for (size_t i = 0; i < hooks_.size() && failed < 0; ++i) {
        ProgramHook& hook = *hooks_[i];
        if (hook.removed || !hook.node || !reached.contains(hook.node)) continue;
        try {
            if (hook.tensor.grad_fn().get() != hook.node) stop("autograd", "a hook on what is written later");
            record_hook(hook);
        } catch (const std::exception&) { failed = static_cast<int>(i); }
    }
    forget_hooks();
    return failed;
}

void Tracer::forget_hooks() {
    for (const auto& hook : hooks_) {
        hook->call = nullptr;
        hook->tensor.reset();
    }
}

// (what a hook reads may have been computed from the tensor that it belongs to)
void Tracer::drop_hooks() {
    forget_hooks();
    for (const auto& hook : hooks_) hook->recorded.reset();
}

}  // namespace braze::bridge
