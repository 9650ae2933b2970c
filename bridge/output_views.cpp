#include "bridge/output_views.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>

#include "bridge/recorded_function.h"
#include "bridge/replay.h"

namespace braze::bridge {

namespace {

bool is_detach(const Record& r) { return r.info->callee == "aten::detach"; }

// What autograd thinks of the view must follow from the operators alone: no detach_() and the like between them. (A
// view that is made without gradients of what needs one is a special thing.)
bool follows(const Trace& trace, const std::vector<OutputView::Step>& steps, bool requires_grad) {
    bool state = trace.records[steps.front().record].operands[0].requires_grad;
    for (const auto& step : steps) {
        const Record& r = trace.records[step.record];
        if (r.operands[0].requires_grad != state || (state && !r.grad_mode)) return false;
        const at::ScalarType dtype = trace.values[r.results[step.result]].dtype;
        state = state && !is_detach(r) && (at::isFloatingType(dtype) || at::isComplexType(dtype));
    }
    return state == requires_grad;
}

// Which of the record's results the value is, if the record makes views of its one operand and does nothing else.
std::optional<int> view_result(const Record& r, int value) {
    if (!r.writes.empty() || r.operands.size() != 1) return std::nullopt;
    // (it looks at the whole storage, of which the base may have been a part)
    if (r.info->callee.starts_with("aten::as_strided")) return std::nullopt;
    std::optional<int> found;
    for (size_t k = 0; k < r.results.size(); ++k) {
        if (r.aliases[k] != 0) return std::nullopt;
        if (r.results[k] == value) found = static_cast<int>(k);
    }
    return found;
}

// hidden: where no other output is what it is a view of, a tensor that the program made may be: its value.
std::optional<OutputView> view_of(const Trace& trace, int value, bool requires_grad, const std::vector<int>& outputs,
                                  int* hidden) {
    OutputView view;
    if (value < 0) return std::nullopt;
    const int set = trace.values[value].alias_set;
    if (set < 0 || trace.written_sets[set]) return std::nullopt;
    // (its gradient is not that of the operators)
    auto of_function = [&](int v) {
        for (const auto& f : trace.functions)
            for (const auto& o : f->outputs)
                if (o.value == v) return true;
        return false;
    };
    for (int v = value;;) {
        const ValueInfo& info = trace.values[v];
        if (v != value) {
            auto base = std::find(outputs.begin(), outputs.end(), v);
            if (base != outputs.end()) view.output = static_cast<int>(base - outputs.begin());
            if (view.output < 0 && info.kind == ValueInfo::Input) view.input = info.producer;
            if (view.output >= 0 || view.input >= 0) break;
        }
        if (info.kind != ValueInfo::Result) return std::nullopt;
        const Record& r = trace.records[info.producer];
        if (hidden && v != value && r.aliases[info.index] < 0) {
            *hidden = v;
            break;
        }
        const auto result = view_result(r, v);
        if (!result || of_function(v)) return std::nullopt;
        view.steps.push_back({info.producer, *result});
        v = r.operands[0].value;
    }
    std::reverse(view.steps.begin(), view.steps.end());
    if (!follows(trace, view.steps, requires_grad)) return std::nullopt;
    return view;
}

}  // namespace

FoundViews find_views(const Trace& trace, const std::vector<int>& outputs, const std::vector<bool>& requires_grad) {
    FoundViews found;
    for (size_t i = 0; i < outputs.size(); ++i) {
        const bool repeated = std::find(outputs.begin(), outputs.begin() + i, outputs[i]) != outputs.begin() + i;
        found.views.push_back(repeated ? std::nullopt : view_of(trace, outputs[i], requires_grad[i], outputs, nullptr));
    }
    // What is left and shares memory with others that are left.
    std::unordered_map<int, int> users;
    auto set_of = [&](size_t i) { return outputs[i] < 0 || found.views[i] ? -1 : trace.values[outputs[i]].alias_set; };
    for (size_t i = 0; i < outputs.size(); ++i)
        if (set_of(i) >= 0) ++users[set_of(i)];
    for (size_t i = 0; i < outputs.size(); ++i) {
        const int set = set_of(i);
        if (set < 0 || users[set] < 2) continue;
        int base = -1;
        auto view = view_of(trace, outputs[i], requires_grad[i], outputs, &base);
        if (!view || base < 0) continue;
        auto same = [&](const FoundViews::Base& b) { return b.value == base; };
        auto known = std::find_if(found.bases.begin(), found.bases.end(), same);
        view->output = static_cast<int>(outputs.size() + (known - found.bases.begin()));
        if (known == found.bases.end())
            found.bases.push_back({base, trace.records[view->steps.front().record].operands[0].requires_grad});
        found.views[i] = std::move(view);
    }
    return found;
}

OutputViews::OutputViews(const Trace& trace, const std::vector<TraceOutput>& outputs)
    : trace_(trace), n_outputs_(outputs.size()) {
    std::vector<int> values;
    std::vector<bool> requires_grad;
    for (const TraceOutput& o : outputs) {
        values.push_back(o.type && !o.used_up ? o.value : -1);
        requires_grad.push_back(o.requires_grad);
    }
    auto found = find_views(trace, values, requires_grad);
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (found.views[i]) {
            views_.emplace_back(static_cast<int>(i), std::move(*found.views[i]));
        } else {
            places_.push_back(static_cast<int>(i));
            others_.push_back(outputs[i]);
        }
    }
    for (const auto& base : found.bases) {
        places_.push_back(static_cast<int>(others_.size() + views_.size()));
        others_.push_back({base.value, base.requires_grad, reinterpret_cast<PyTypeObject*>(THPVariableClass)});
    }
    // (what a view is made from has a smaller number)
    std::sort(views_.begin(), views_.end(),
              [&](const auto& a, const auto& b) { return values[a.first] < values[b.first]; });
}

std::vector<at::Tensor> OutputViews::complete(std::vector<at::Tensor> results, c10::ArrayRef<const at::Tensor*> inputs,
                                              const SymbolValues& sizes) const {
    std::vector<at::Tensor> all(places_.size() + views_.size());
    for (size_t i = 0; i < places_.size(); ++i) all[places_[i]] = std::move(results[i]);
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    c10::AutoGradMode outer(at::GradMode::is_enabled());
    std::map<std::pair<int, c10::TensorImpl*>, std::vector<at::Tensor>> several;  // results of one call
    for (const auto& [place, view] : views_) {
        at::Tensor t = view.output >= 0 ? all[view.output] : *inputs[view.input];
        for (const auto& step : view.steps) {
            const Record& r = trace_.records[step.record];
            std::vector<at::Tensor> results;
            auto& made = r.results.size() > 1 ? several[{step.record, t.unsafeGetTensorImpl()}] : results;
            at::GradMode::set_enabled(r.grad_mode);
            if (made.empty())
                run_record(
                    r, &sizes, [&](const Operand&) { return t; },
                    [&](int, const at::Tensor& result) { made.push_back(result); });
            t = made.at(step.result);
        }
        all[place] = std::move(t);
    }
    all.resize(n_outputs_);
    return all;
}

}  // namespace braze::bridge
