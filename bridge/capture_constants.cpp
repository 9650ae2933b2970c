// What a trace knows of values that only its constants decide.
#include <ATen/core/LegacyTypeDispatch.h>

#include "bridge/pending.h"
#include "bridge/replay.h"

namespace braze::bridge {

// A scalar that operators make of the program's constants alone, and which nothing has written: those operators are
// run. Undefined where it isn't one.
at::Tensor Tracer::known_scalar(int value, int depth) {
    constexpr int kDeepest = 16;
    const ValueInfo& v = trace_.values[static_cast<size_t>(value)];
    if (depth > kDeepest || v.alias_set < 0 || trace_.written_sets[v.alias_set] || v.symbolic) return {};
    if (std::any_of(v.sizes.begin(), v.sizes.end(), [](int64_t n) { return n != 1; })) return {};
    if (v.kind == ValueInfo::Constant) return trace_.constants[static_cast<size_t>(v.producer)];
    if (v.kind != ValueInfo::Result) return {};
    const Record& r = trace_.records[static_cast<size_t>(v.producer)];
    if (!trace_.only_cpu || r.ordered || !r.writes.empty() || r.symbolic_args || r.info->random || r.info->data_shape)
        return {};
    for (const c10::IValue& a : r.args)
        if (a.isDevice() && !a.toDevice().is_cpu()) return {};
    std::vector<at::Tensor> operands;
    for (const Operand& o : r.operands) {
        operands.push_back(known_scalar(o.value, depth + 1));
        if (!operands.back().defined()) return {};
    }
    at::Tensor found;
    size_t next = 0;
    run_record(
        r, nullptr, [&](const Operand&) { return operands[next++]; },
        [&](int result, const at::Tensor& t) {
            if (result == value) found = t;
        });
    return found;
}

// What an operator says about such scalars is known.
bool Tracer::read_known(const Pending& p, torch::jit::Stack* stack) {
    if (p.record.operands.empty()) return false;
    c10::InferenceMode normal(false);
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    at::AutoDispatchBelowADInplaceOrView below;
    std::vector<at::Tensor> operands;
    for (const Operand& o : p.record.operands) {
        operands.push_back(known_scalar(o.value, 0));
        if (!operands.back().defined()) return false;
    }
    torch::jit::drop(*stack, p.info.args.size());
    Record r = p.record;
    r.info = &p.info;
    size_t next = 0;
    push_arguments(r, *stack, [&](const Operand&) { return operands[next++]; });
    p.info.op.callBoxed(stack);
    return true;
}

}  // namespace braze::bridge
