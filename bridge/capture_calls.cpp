// The calls of the program, recorded above autograd and autocast beside the operators that they lead to.
#include <ATen/autocast_mode.h>

#include "bridge/gil.h"
#include "bridge/pending.h"

namespace braze::bridge {

Autocast Autocast::now() {
    Autocast a;
    a.enabled = at::autocast::is_autocast_enabled(at::kCPU);
    a.cache = at::autocast::is_autocast_cache_enabled();
    a.dtype = at::autocast::get_autocast_dtype(at::kCPU);
    return a;
}

// False: some argument has no value of its own (a function transform wraps it), or stands for a number that varies.
bool Tracer::take_torch_level(TorchLevelOp& t, const c10::IValue* args) const {
    Record& r = t.record;
    bool numbers_vary = !trace_.symbols->symbols().empty() || !trace_.numbers.empty();
    auto take = [&](size_t arg, int pos, const at::Tensor& x) {
        FakeImpl* fake = as_fake(x);
        if (!fake || fake->epoch() != epoch_) return false;
        r.operands.push_back({static_cast<int>(arg), pos, fake->value(), x.requires_grad()});
        return true;
    };
    for (size_t i = 0; i < r.info->args.size(); ++i) {
        const c10::IValue& v = args[i];
        Form form = r.info->args[i].form;
        if (form == Form::Tensor && v.isTensor() && v.toTensor().defined()) {
            const at::Tensor& x = v.toTensor();
            if (!as_fake(x) && is_wrapped_number(x)) {
                if (numbers_vary) return false;
                r.args.push_back(v);
                continue;
            }
            r.args.emplace_back();
            if (!take(i, -1, x)) return false;
        } else if (form == Form::TensorList) {
            r.args.emplace_back();
            int size = v.isNone() ? -1 : 0;
            if (v.isTensorList()) {
                for (const at::Tensor& x : v.toTensorVector())
                    if (!take(i, size++, x)) return false;
            } else if (v.isOptionalTensorList()) {
                for (const auto& x : v.toOptionalTensorVector()) {
                    if (x && x->defined() && !take(i, size, *x)) return false;
                    ++size;
                }
            }
            r.list_sizes.push_back(size);
        } else {
            if (v.isSymFloat() || v.isSymBool()) return false;
            r.args.push_back(form == Form::Tensor ? c10::IValue() : v);
            r.symbolic_args |= v.isSymInt() || has_symbols(v);
        }
    }
    return true;
}

int Tracer::begin_torch_op(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    using Backend = frontend::BackendChoice;
    if (options_.backend.kind != Backend::User && options_.backend.kind != Backend::Eager) return -1;
    if (open_torch_op_ >= 0) return -1;  // part of that one
    TorchLevelOp t;
    t.record.info = &OperatorInfo::of(op);
    if (t.record.info->is_lift) return -1;  // its result is a constant
    if (!take_torch_level(t, stack.data() + (stack.size() - t.record.info->args.size()))) return -1;
    t.record.grad_mode = at::GradMode::is_enabled();
    t.autocast = Autocast::now();
    {
        Gil gil;
        t.record.line = current_line();
    }
    trace_.torch_level.push_back(std::move(t));
    return open_torch_op_ = static_cast<int>(trace_.torch_level.size()) - 1;
}

void Tracer::drop_torch_op(int index) {
    open_torch_op_ = -1;
    trace_.torch_level.resize(index);
    trace_.torch_level_complete = false;  // it may have led to operators before it raised
}

void Tracer::end_torch_op(int index, const torch::jit::Stack& stack) {
    open_torch_op_ = -1;
    TorchLevelOp& t = trace_.torch_level[index];
    Record& r = t.record;
    bool tensors = false;
    auto keep = [&](const at::Tensor& x) {
        FakeImpl* fake = as_fake(x);
        r.results.push_back(fake ? fake->value() : -1);
        t.results_require_grad.push_back(fake && x.requires_grad());
    };
    const auto& returns = r.info->returns;
    for (size_t k = 0; k < returns.size(); ++k) {
        const c10::IValue& v = stack[stack.size() - returns.size() + k];
        tensors |= returns[k].tensor;
        if (v.isTensor()) {
            keep(v.toTensor());
        } else if (v.isTensorList()) {
            for (const at::Tensor& x : v.toTensorVector()) keep(x);
        }
    }
    // what answers a question about metadata is no part of the graph
    bool question = !tensors && !r.info->writes_anything && !returns.empty();
    if (question) trace_.torch_level.pop_back();
}

}  // namespace braze::bridge
