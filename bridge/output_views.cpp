#include "bridge/output_views.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "bridge/recorded_function.h"
#include "bridge/replay.h"

namespace braze::bridge {

namespace {

bool is_detach(const Record& r) { return r.info->callee == "aten::detach"; }

// What autograd thinks of the view must follow from the operators alone: no detach_() and the like between them. (A
// view that is made without gradients of what needs one is a special thing.)
bool follows(const Trace& trace, const std::vector<int>& records, bool requires_grad) {
    bool state = trace.records[records.front()].operands[0].requires_grad;
    for (int i : records) {
        const Record& r = trace.records[i];
        if (r.operands[0].requires_grad != state || (state && !r.grad_mode)) return false;
        const at::ScalarType dtype = trace.values[r.results[0]].dtype;
        state = state && !is_detach(r) && (at::isFloatingType(dtype) || at::isComplexType(dtype));
    }
    return state == requires_grad;
}

std::optional<OutputView> view_of(const Trace& trace, int value, bool requires_grad, const std::vector<int>& outputs) {
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
        if (info.kind != ValueInfo::Result || of_function(v)) return std::nullopt;
        const Record& r = trace.records[info.producer];
        if (r.results.size() != 1 || r.results[0] != v || r.aliases[0] != 0 || !r.writes.empty() ||
            r.operands.size() != 1)
            return std::nullopt;
        // (it looks at the whole storage, of which the base may have been a part)
        if (r.info->callee.starts_with("aten::as_strided")) return std::nullopt;
        view.records.push_back(info.producer);
        v = r.operands[0].value;
    }
    std::reverse(view.records.begin(), view.records.end());
    if (!follows(trace, view.records, requires_grad)) return std::nullopt;
    return view;
}

}  // namespace

std::vector<std::optional<OutputView>> find_views(const Trace& trace, const std::vector<int>& outputs,
                                                  const std::vector<bool>& requires_grad) {
    std::vector<std::optional<OutputView>> found;
    for (size_t i = 0; i < outputs.size(); ++i) {
        const bool repeated = std::find(outputs.begin(), outputs.begin() + i, outputs[i]) != outputs.begin() + i;
        found.push_back(repeated ? std::nullopt : view_of(trace, outputs[i], requires_grad[i], outputs));
    }
    return found;
}

OutputViews::OutputViews(const Trace& trace, const std::vector<TraceOutput>& outputs) : trace_(trace) {
    std::vector<int> values;
    std::vector<bool> requires_grad;
    for (const TraceOutput& o : outputs) {
        values.push_back(o.type && !o.used_up ? o.value : -1);
        requires_grad.push_back(o.requires_grad);
    }
    auto found = find_views(trace, values, requires_grad);
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (found[i]) {
            views_.emplace_back(static_cast<int>(i), std::move(*found[i]));
        } else {
            places_.push_back(static_cast<int>(i));
            others_.push_back(outputs[i]);
        }
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
    for (const auto& [place, view] : views_) {
        at::Tensor t = view.output >= 0 ? all[view.output] : *inputs[view.input];
        for (int i : view.records) {
            at::GradMode::set_enabled(trace_.records[i].grad_mode);
            run_record(
                trace_.records[i], &sizes, [&](const Operand&) { return t; },
                [&](int, const at::Tensor& result) { t = result; });
        }
        all[place] = std::move(t);
    }
    return all;
}

}  // namespace braze::bridge
