// Operators without a Meta kernel, or whose Meta kernel promises other strides than the CPU kernel gives.
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/TensorIterator.h>

#include <numeric>
#include <unordered_map>

#include "bridge/capture.h"
#include "bridge/frontend_off.h"
#include "bridge/operator_info.h"
#include "bridge/shape_rules.h"

namespace braze::bridge {

namespace {

using torch::jit::Stack;
using Arguments = const c10::IValue*;
using Results = std::vector<c10::IValue>;

// ---- SIZES
Results histogram_of_count(Arguments a) {  // (self, bins, range, weight, density)
    const at::Tensor& self = a[0].toTensor();
    int64_t bins = a[1].toInt();
    return {at::empty({bins}, self.options()), at::empty({bins + 1}, self.options())};
}
Results histogram_of_edges(Arguments a) {  // (self, bins, weight, density)
    const at::Tensor &self = a[0].toTensor(), &edges = a[1].toTensor();
    TORCH_CHECK(edges.dim() == 1 && edges.numel() > 0, "torch.histogram(): bins tensor should have one dimension");
    return {at::empty({edges.numel() - 1}, self.options()), at::empty(edges.sizes(), edges.options())};
}
Results histogramdd_edges(Arguments a) {  // (self, bins, range, weight, density)
    c10::List<at::Tensor> edges;
    for (int64_t bins : a[1].toIntVector()) edges.push_back(at::empty({bins + 1}, a[0].toTensor().options()));
    return {edges};
}
Results histogramdd_of_counts(Arguments a) {  // (self, bins, range, weight, density)
    return {at::empty(a[1].toIntVector(), a[0].toTensor().options())};
}
Results histogramdd_of_edges(Arguments a) {  // (self, bins, weight, density)
    std::vector<int64_t> sizes;
    for (const at::Tensor& edges : a[1].toTensorVector()) {
        TORCH_CHECK(edges.numel() > 0, "torch.histogramdd(): expected bins tensors with one element at least");
        sizes.push_back(edges.numel() - 1);
    }
    return {at::empty(sizes, a[0].toTensor().options())};
}
template <int N, Results (*F)(Arguments)>
void sized(Stack* s) {
    FrontendOff off;
    Results results = F(s->data() + (s->size() - N));
    torch::jit::drop(*s, N);
    for (c10::IValue& r : results) s->push_back(std::move(r));
}

// ---- LAYOUT
using Fix = at::Tensor (*)(const at::Tensor& result, Arguments arguments);

at::Tensor contiguous(const at::Tensor& t, Arguments) { return at::empty(t.sizes(), t.options()); }
// In the memory format that the first argument suggests.
at::Tensor suggested(const at::Tensor& t, Arguments a) {
    return at::empty(t.sizes(), t.options(), a[0].toTensor().suggest_memory_format());
}
// The same of a result that has the first argument's sizes.
at::Tensor suggested_of_input(const at::Tensor& t, Arguments a) {
    return t.sizes() == a[0].toTensor().sizes() ? suggested(t, a) : t;
}
// As elementwise operators lay out what they make of these.
at::Tensor elementwise_of(const at::Tensor& t, std::initializer_list<c10::IValue> operands) {
    at::TensorIteratorConfig config;
    config.check_all_same_dtype(false).check_all_same_device(false).declare_static_dtype_and_device(t.scalar_type(),
                                                                                                    at::kMeta);
    config.add_owned_output(at::Tensor());
    for (const c10::IValue& v : operands)
        if (v.isTensor()) config.add_owned_const_input(v.toTensor());
    return config.build().output();
}
at::Tensor elementwise(const at::Tensor& t, Arguments a) { return elementwise_of(t, {a[0], a[1]}); }
at::Tensor unary(const at::Tensor& t, Arguments a) { return elementwise_of(t, {a[0]}); }

void corrected(const char* callee, Fix fix, Stack* s) {
    const OperatorInfo& info = OperatorInfo::named(callee);
    std::vector<c10::IValue> arguments(s->end() - static_cast<int64_t>(info.args.size()), s->end());
    FrontendOff off;
    info.op.callBoxed(s);
    for (size_t i = s->size() - info.returns.size(); i < s->size(); ++i)
        if ((*s)[i].isTensor() && (*s)[i].toTensor().defined()) (*s)[i] = fix((*s)[i].toTensor(), arguments.data());
}

// ---- MEASURED
enum class Contents : uint8_t { Zeros, Diagonal };

// A tensor with these contents that lies in memory as `meta` does.
at::Tensor sample(const at::Tensor& meta, Contents contents) {
    at::Tensor t = at::detail::empty_strided_cpu(meta.sizes(), meta.strides(), meta.scalar_type());
    t.zero_();
    if (contents == Contents::Diagonal && t.dim() >= 2) t.diagonal(0, -2, -1).fill_(1);
    if (meta.is_conj()) t.unsafeGetTensorImpl()->_set_conj(true);
    if (meta.is_neg()) t.unsafeGetTensorImpl()->_set_neg(true);
    return t;
}
c10::IValue sample_of(const c10::IValue& v, Contents contents) {
    if (v.isTensor())
        return v.toTensor().defined() && v.toTensor().is_meta() ? c10::IValue(sample(v.toTensor(), contents)) : v;
    if (v.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& t : v.toTensorVector()) list.push_back(sample(t, contents));
        return list;
    }
    if (v.isDevice()) return c10::IValue(c10::Device(c10::kCPU));
    return v;
}
at::Tensor meta_of(const at::Tensor& t) {
    if (!t.defined()) return t;
    at::Tensor meta = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta));
    if (t.is_conj()) meta.unsafeGetTensorImpl()->_set_conj(true);
    if (t.is_neg()) meta.unsafeGetTensorImpl()->_set_neg(true);
    return meta;
}
c10::IValue meta_of(const c10::IValue& v) {
    if (v.isTensor()) return meta_of(v.toTensor());
    if (!v.isTensorList()) return v;
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : v.toTensorVector()) list.push_back(meta_of(t));
    return list;
}
void measure(const char* callee, Stack* s, Contents contents) {
    const OperatorInfo& info = OperatorInfo::named(callee);
    FrontendOff off;
    auto first = s->end() - static_cast<int64_t>(info.args.size());
    Stack real;
    for (auto it = first; it != s->end(); ++it) real.push_back(sample_of(*it, contents));
    try {
        at::AutoDispatchBelowADInplaceOrView below;
        c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
        info.op.callBoxed(&real);
    } catch (const c10::Error& e) {
        Tracer::active()->stop("unsupported-op", info.callee + ": " + e.what_without_backtrace());
    }
    s->erase(first, s->end());
    for (const c10::IValue& v : real) s->push_back(meta_of(v));
}

const std::unordered_map<std::string, ShapeRule>& rules() {
    static const std::unordered_map<std::string, ShapeRule> table = {
#define SIZES(callee, n, function) {callee, sized<n, function>},
#define LAYOUT(callee, fix) {callee, [](Stack* s) { corrected(callee, fix, s); }},
#define MEASURED(callee) {callee, [](Stack* s) { measured(callee, s); }},
#define FULL_RANK(callee) {callee, [](Stack* s) { measure(callee, s, Contents::Diagonal); }},
#include "bridge/shape_rules.def"
#undef SIZES
#undef LAYOUT
#undef MEASURED
#undef FULL_RANK
    };
    return table;
}

}  // namespace

void measured(const char* callee, Stack* s) { measure(callee, s, Contents::Zeros); }

ShapeRule layout_rule(const std::string& callee) {
    auto it = rules().find(callee);
    return it == rules().end() ? nullptr : it->second;
}

}  // namespace braze::bridge
