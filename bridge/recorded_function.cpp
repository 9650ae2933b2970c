#include "bridge/recorded_function.h"

#include <torch/csrc/autograd/functions/basic_ops.h>

#include "bridge/recorded_hook.h"
#include "bridge/replay.h"

namespace braze::bridge {

using torch::autograd::SavedVariable;

RecordedNode::RecordedNode(std::shared_ptr<const RecordedFunction> f, torch::autograd::edge_list edges,
                           const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& saved,
                           std::shared_ptr<const SymbolValues> sizes, std::shared_ptr<const void> keeps)
    : Node(std::move(edges)), function_(std::move(f)), sizes_(std::move(sizes)), keeps_(std::move(keeps)) {
    for (const at::Tensor& t : outputs) {
        if (t.defined())
            add_input_metadata(t);
        else
            add_input_metadata(Node::undefined_input());
    }
    for (size_t i = 0; i < saved.size(); ++i) {
        const RecordedFunction::Saved& s = function_->saved[i];
        // (kept as it is, an output would keep itself alive)
        bool checked = s.checked || s.output >= 0;
        if (checked)
            checked_.emplace_back(saved[i], s.output >= 0);
        else
            checked_.emplace_back();
        plain_.push_back(checked ? at::Tensor() : saved[i]);
    }
}

void RecordedNode::own(const std::vector<at::Tensor>& outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
        const RecordedFunction::Output& o = function_->outputs[i];
        if (!outputs[i].defined() || o.value < 0) continue;
        torch::autograd::impl::set_gradient_edge(outputs[i], {getptr(), static_cast<uint32_t>(i)});
        if (!o.view) continue;
        auto* meta = torch::autograd::impl::get_view_autograd_meta(outputs[i]);
        if (meta && meta->has_bw_view()) meta->set_creation_meta(*o.view);
    }
}

void RecordedFunction::for_each_record(const std::function<void(Record&)>& visit) {
    for (Body& body : bodies) {
        for (Record& r : body.records) visit(r);
        for (const auto& f : body.functions) f->for_each_record(visit);
    }
}

void RecordedFunction::attach(const std::shared_ptr<const RecordedFunction>& f,
                              const std::function<at::Tensor(int)>& get, std::shared_ptr<const SymbolValues> sizes,
                              std::shared_ptr<const void> keeps, bool as_recorded) {
    torch::autograd::edge_list edges;
    bool any = false;
    for (const Input& in : f->inputs) {
        edges.emplace_back();
        const at::Tensor t = in.requires_grad ? get(in.value) : at::Tensor();
        if (!t.defined() || !(as_recorded || t.requires_grad())) continue;
        edges.back() = torch::autograd::impl::gradient_edge(with_grad(t, true));
        any = true;
    }
    if (!any) return;
    std::vector<at::Tensor> outputs, saved;
    for (const Output& o : f->outputs) outputs.push_back(o.value < 0 ? at::Tensor() : get(o.value));
    for (const Saved& s : f->saved) {
        if (s.output >= 0)
            saved.push_back(outputs[s.output]);
        else
            saved.push_back(as_recorded ? with_grad(get(s.value), s.requires_grad) : get(s.value));
    }
    if (f->is_hook) edges.clear();
    auto node =
        c10::make_intrusive<RecordedNode>(f, std::move(edges), outputs, saved, std::move(sizes), std::move(keeps));
    if (!f->is_hook) return node->own(outputs);
    auto owner = outputs[0].grad_fn();
    if (!owner) return;
    node->belongs_to(owner.get());
    owner->add_tensor_pre_hook(std::make_unique<RecordedHook>(std::move(node), outputs[0].output_nr()));
}

void RecordedNode::release_variables() {
    std::lock_guard lock(mutex_);
    for (SavedVariable& v : checked_) v.reset_data();
}

const RecordedFunction::Body* RecordedNode::body_for(const Tensors& tangents) const {
    if (function_->materialize) return &function_->bodies.at(0);
    for (const RecordedFunction::Body& body : function_->bodies) {
        bool same = true;
        for (size_t i = 0; i < body.given.size(); ++i)
            if (function_->outputs[i].value >= 0)
                same &= body.given[i] == (i < tangents.size() && tangents[i].defined());
        if (same) return &body;
    }
    return nullptr;  // none of the gradients is there
}

RecordedNode::Tensors RecordedNode::run(const Tensors& tangents) {
    const RecordedFunction& f = *function_;
    if (!f.error.empty()) throw std::runtime_error(f.error);
    const RecordedFunction::Body* body = body_for(tangents);
    if (!body) return Tensors(f.inputs.size());
    std::unordered_map<int, at::Tensor> values;
    {
        std::lock_guard lock(mutex_);
        for (size_t i = 0; i < f.saved.size(); ++i)
            values[f.saved[i].value] = plain_[i].defined() ? plain_[i] : checked_[i].unpack(owner_->getptr());
    }
    // (in a trace a constant becomes one of it)
    for (const auto& [value, t] : body->constants) values[value] = sizes_ ? t : at::lift_fresh(t);
    for (size_t i = 0; i < f.outputs.size(); ++i) {
        if (body->tangents[i] < 0) continue;
        at::Tensor t = i < tangents.size() ? tangents[i] : at::Tensor();
        if (!t.defined()) t = input_metadata(i).zeros_like();
        values[body->tangents[i]] = t.contiguous(f.outputs[i].layout);
    }
    const bool grad = at::GradMode::is_enabled();
    c10::AutoGradMode mode(grad);
    size_t next = 0;
    auto attach = [&](size_t done) {
        for (; next < body->functions.size() && body->functions[next]->end == done; ++next)
            if (grad)
                RecordedFunction::attach(
                    body->functions[next], [&](int v) { return values.at(v); }, sizes_, keeps_, false);
    };
    attach(0);
    for (size_t i = 0; i < body->records.size(); ++i) {
        const Record& r = body->records[i];
        at::GradMode::set_enabled(grad && r.grad_mode);
        run_record(
            r, sizes_.get(),
            [&](const Operand& o) {
                const at::Tensor& t = values.at(o.value);
                return t.requires_grad() && !o.requires_grad ? t.detach() : t;  // (.data is no operator)
            },
            [&](int value, const at::Tensor& t) { values.try_emplace(value, t); });
        attach(i + 1);
    }
    Tensors gradients;
    for (int g : body->gradients) gradients.push_back(g < 0 ? at::Tensor() : values.at(g));
    return gradients;
}

RecordedNode::Tensors RecordedNode::apply(Tensors&& tangents) {
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    bool differentiable = false;
    for (const at::Tensor& t : tangents) differentiable |= t.defined() && t.requires_grad();
    if (!function_->once || !at::GradMode::is_enabled() || !differentiable) return run(tangents);
    Tensors gradients;
    {
        c10::AutoGradMode off(false);
        gradients = run(tangents);
    }
    // As once_differentiable does it.
    std::vector<size_t> places;
    Tensors given;
    for (size_t i = 0; i < gradients.size(); ++i) {
        if (!gradients[i].defined()) continue;
        places.push_back(i);
        given.push_back(gradients[i].detach());
        given.back().set_requires_grad(true);
    }
    auto error = c10::make_intrusive<torch::autograd::DelayedError>(
        "trying to differentiate twice a function that was marked with @once_differentiable",
        static_cast<int64_t>(given.size()));
    Tensors marked = error->apply(std::move(given));
    for (size_t i = 0; i < places.size(); ++i) gradients[places[i]] = marked[i];
    return gradients;
}

}  // namespace braze::bridge
