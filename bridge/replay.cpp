#include "bridge/replay.h"

#include "bridge/call.h"
#include "bridge/execute.h"
#include "bridge/recorded_function.h"

#include "core/support/error.h"

namespace braze::bridge {

Replay::Replay(std::shared_ptr<const Trace> held, std::vector<TraceOutput> outputs)
    : held_(std::move(held)), trace_(*held_), outputs_(std::move(outputs)) {
    const Trace& trace = trace_;
    std::vector<int> last(trace.values.size(), -1);
    for (size_t i = 0; i < trace.records.size(); ++i) {
        for (const Operand& o : trace.records[i].operands) last[o.value] = static_cast<int>(i);
        for (int v : trace.records[i].results) last[v] = std::max(last[v], static_cast<int>(i));
    }
    for (const auto& f : trace.functions) {
        auto needed = [&](int v) {
            if (v >= 0 && f->end > 0) last[v] = std::max(last[v], static_cast<int>(f->end) - 1);
        };
        for (const auto& in : f->inputs) needed(in.value);
        for (const auto& o : f->outputs) needed(o.value);
        for (const auto& x : f->saved) needed(x.value);
    }
    std::vector<bool> escaping(trace.alias_sets, false);
    for (const TraceOutput& o : outputs_) {
        if (o.value < 0) continue;
        last[o.value] = -1;
        if (trace.values[o.value].alias_set >= 0) escaping[trace.values[o.value].alias_set] = true;
    }
    dies_after_.resize(trace.records.size());
    copied_constants_.resize(trace.constants.size());
    for (size_t v = 0; v < last.size(); ++v) {
        const ValueInfo& info = trace.values[v];
        if (last[v] >= 0 && info.kind != ValueInfo::Input) dies_after_[last[v]].push_back(static_cast<int>(v));
        if (info.kind == ValueInfo::Constant)
            copied_constants_[info.producer] = escaping[info.alias_set] || trace.written_sets[info.alias_set];
    }
}

at::Tensor with_grad(const at::Tensor& t, bool wanted) {
    bool has = t.requires_grad();
    if (has == wanted) return t;
    if (has) return t.detach();
    if (!t.grad_fn()) t.unsafeGetTensorImpl()->set_requires_grad(true);
    return t;
}

// SymInts among the arguments become numbers.
static void put_sizes(const OperatorInfo& info, std::vector<c10::IValue>& stack, const SymbolValues& sizes) {
    auto value = [&](const c10::IValue& x) { return x.isInt() ? x.toInt() : sizes(expr_of(x.toSymInt())); };
    for (size_t i = 0; i < stack.size(); ++i) {
        c10::IValue& v = stack[i];
        if (v.isSymInt()) {
            v = size_argument(info.args[i].form, value(v));
        } else if (has_symbols(v)) {
            std::vector<int64_t> numbers;
            for (const c10::IValue& x : v.toListRef()) numbers.push_back(value(x));
            v = numbers;
        }
    }
}

void run_record(const Record& r, const SymbolValues* sizes, const std::function<at::Tensor(const Operand&)>& operand,
                const std::function<void(int, const at::Tensor&)>& result) {
    std::vector<c10::IValue> stack;
    push_arguments(r, stack, operand);
    if (r.symbolic_args && sizes) put_sizes(*r.info, stack, *sizes);
    r.info->op.callBoxed(&stack);
    size_t k = 0;
    for (const c10::IValue& v : stack) {
        if (v.isTensor()) {
            result(r.results.at(k++), v.toTensor());
        } else if (v.isTensorList()) {
            for (const at::Tensor& t : v.toTensorVector()) result(r.results.at(k++), t);
        }
    }
}

// The results of those autograd.Functions whose forward is over get their gradient functions.
void Replay::attach_functions(size_t& next, size_t done, std::vector<at::Tensor>& values,
                              const std::shared_ptr<const SymbolValues>& sizes) const {
    for (; next < trace_.functions.size() && trace_.functions[next]->end == done; ++next)
        RecordedFunction::attach(trace_.functions[next], [&](int v) { return values[v]; }, sizes, held_);
}

std::vector<at::Tensor> Replay::run(c10::ArrayRef<at::Tensor> inputs, const SymbolValues& sizes, bool grad) const {
    // Autocast has already acted: its casts were recorded.
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    c10::AutoGradMode outer(at::GradMode::is_enabled());
    run_wrote() = false;
    std::vector<at::Tensor> values(trace_.values.size());
    for (size_t v = 0; v < values.size(); ++v) {
        const ValueInfo& info = trace_.values[v];
        if (info.kind == ValueInfo::Input) {
            BRAZE_CHECK(info.producer < static_cast<int>(inputs.size()),
                        "missing input " + std::to_string(info.producer));
            values[v] = inputs[info.producer];
        } else if (info.kind == ValueInfo::Constant) {
            const at::Tensor& c = trace_.constants[info.producer];
            values[v] = copied_constants_[info.producer] ? c.clone() : c;
        }
    }
    const bool functions = grad && !trace_.functions.empty();
    const auto kept_sizes = functions ? std::make_shared<const SymbolValues>(sizes) : nullptr;
    size_t next_function = 0;
    if (functions) attach_functions(next_function, 0, values, kept_sizes);
    for (size_t i = 0; i < trace_.records.size(); ++i) {
        const Record& r = trace_.records[i];
        at::GradMode::set_enabled(grad && r.grad_mode);
        run_record(
            r, &sizes,
            [&](const Operand& o) { return grad ? with_grad(values[o.value], o.requires_grad) : values[o.value]; },
            [&](int value, const at::Tensor& t) {
                const ValueInfo& info = trace_.values[value];
                if (info.kind == ValueInfo::Result && info.producer == static_cast<int>(i)) values[value] = t;
            });
        if (!r.writes.empty()) run_wrote() = true;
        if (functions) attach_functions(next_function, i + 1, values, kept_sizes);
        for (int v : dies_after_[i]) values[v] = at::Tensor();
    }
    std::vector<at::Tensor> results;
    for (const TraceOutput& o : outputs_)
        results.push_back(o.value < 0 ? at::Tensor()
                          : trace_.values[o.value].kind == ValueInfo::Input
                              ? values[o.value]
                              : with_grad(values[o.value], o.requires_grad));
    return results;
}

}  // namespace braze::bridge
