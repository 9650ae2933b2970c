#include "bridge/shape_rules.h"

#include <ATen/ExpandUtils.h>
#include <ATen/NativeFunctions.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/TypeProperties.h>

#include <cmath>
#include <unordered_map>

namespace braze::bridge {

namespace {

using torch::jit::Stack;

at::ScalarType meta_type(const c10::IValue& dtype, std::optional<at::ScalarType> fallback = {}) {
    return dtype.isNone() ? fallback.value_or(c10::get_default_dtype_as_scalartype()) : dtype.toScalarType();
}
at::TensorOptions meta_options(const c10::IValue& dtype, std::optional<at::ScalarType> fallback = {}) {
    return at::TensorOptions().dtype(meta_type(dtype, fallback)).device(at::kMeta);
}
// Without the dispatcher, which has a Python function for it.
at::Tensor empty_like(const at::Tensor& t, at::ScalarType dtype, std::optional<at::MemoryFormat> format = {}) {
    return at::native::empty_like(t, dtype, std::nullopt, std::nullopt, std::nullopt, format);
}

// f(arguments) -> result, with the arguments as they lie on the stack.
template <int N, class F>
void rule(Stack* stack, F&& f) {
    c10::IValue* args = stack->data() + (stack->size() - N);
    c10::IValue result = f(args);
    torch::jit::drop(*stack, N);
    stack->push_back(std::move(result));
}

// What TensorIterator makes of one operand: a dense tensor's strides may say otherwise along axes of size 1.
at::Tensor elementwise_like(const at::Tensor& t, at::ScalarType dtype) {
    for (auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
        if (t.is_contiguous(format)) return at::empty(t.sizes(), t.options().dtype(dtype), format);
    return empty_like(t, dtype);
}
void like_first(Stack* stack) {
    rule<1>(stack, [](c10::IValue* a) {
        const at::Tensor& t = a[0].toTensor();
        return elementwise_like(t, t.scalar_type());
    });
}
void bool_like_first(Stack* stack) {
    rule<1>(stack, [](c10::IValue* a) { return elementwise_like(a[0].toTensor(), at::kBool); });
}
void abs_rule(Stack* stack) {
    rule<1>(stack, [](c10::IValue* a) {
        const at::Tensor& t = a[0].toTensor();
        return elementwise_like(t, c10::toRealValueType(t.scalar_type()));
    });
}

at::Tensor broadcast(std::initializer_list<at::Tensor> inputs, at::ScalarType dtype) {
    at::TensorIteratorConfig config;
    config.check_all_same_dtype(false).check_all_same_device(false).declare_static_dtype_and_device(dtype, at::kMeta);
    config.add_owned_output(at::Tensor());
    for (const at::Tensor& t : inputs) config.add_owned_const_input(t);
    return config.build().output();
}
void where_rule(Stack* stack) {
    rule<3>(stack, [](c10::IValue* a) {
        at::Tensor condition = a[0].toTensor(), x = a[1].toTensor(), y = a[2].toTensor();
        return broadcast({condition, x, y}, at::result_type(x, y));
    });
}
void logical_rule(Stack* stack) {
    rule<2>(stack, [](c10::IValue* a) { return broadcast({a[0].toTensor(), a[1].toTensor()}, at::kBool); });
}
void masked_fill_rule(Stack* stack) {
    rule<3>(stack, [](c10::IValue* a) {
        at::Tensor self = a[0].toTensor(), mask = a[1].toTensor();
        return at::empty(at::infer_size(self.sizes(), mask.sizes()), self.options());
    });
}

void filled(Stack* stack) {  // (size, dtype, layout, device, pin_memory)
    rule<5>(stack, [](c10::IValue* a) { return at::empty(a[0].toIntVector(), meta_options(a[1])); });
}
void full_rule(Stack* stack) {  // (size, fill_value, dtype, layout, device, pin_memory)
    rule<6>(stack, [](c10::IValue* a) {
        at::Scalar value = a[1].toScalar();
        at::ScalarType type = value.isFloatingPoint() ? c10::get_default_dtype_as_scalartype()
                              : value.isBoolean()     ? at::kBool
                              : value.isComplex()     ? c10::toComplexType(c10::get_default_dtype_as_scalartype())
                                                      : at::kLong;
        return at::empty(a[0].toIntVector(), meta_options(a[2], type));
    });
}
void filled_like(Stack* stack) {  // (self, dtype, layout, device, pin_memory, memory_format)
    rule<6>(stack, [](c10::IValue* a) {
        const at::Tensor& self = a[0].toTensor();
        return empty_like(self, meta_type(a[1], self.scalar_type()), a[5].toOptional<at::MemoryFormat>());
    });
}
void new_filled(Stack* stack) {  // (self, size, dtype, layout, device, pin_memory)
    rule<6>(stack, [](c10::IValue* a) {
        return at::empty(a[1].toIntVector(), meta_options(a[2], a[0].toTensor().scalar_type()));
    });
}
void scalar_tensor_rule(Stack* stack) {  // (s, dtype, layout, device, pin_memory)
    rule<5>(stack, [](c10::IValue* a) { return at::empty({}, meta_options(a[1])); });
}
template <int N>
void written_first(Stack* stack) {  // in place, without a change of metadata
    torch::jit::drop(*stack, N - 1);
}

void unsafe_view_rule(Stack* stack) {
    rule<2>(stack, [](c10::IValue* a) { return a[0].toTensor().view(a[1].toIntVector()); });
}
void embedding_rule(Stack* stack) {  // (weight, indices, padding_idx, scale_grad_by_freq, sparse)
    rule<5>(stack, [](c10::IValue* a) {
        const at::Tensor &weight = a[0].toTensor(), &indices = a[1].toTensor();
        TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
        TORCH_CHECK(indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
                    "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int");
        auto sizes = indices.sizes().vec();
        sizes.push_back(weight.size(1));
        return at::empty(sizes, weight.options());
    });
}

void push_all(Stack* stack, size_t n_args, std::initializer_list<at::Tensor> results) {
    torch::jit::drop(*stack, n_args);
    for (const at::Tensor& t : results) stack->push_back(t);
}
c10::IValue* arguments(Stack* stack, size_t n) { return stack->data() + (stack->size() - n); }
void stack_rule(Stack* stack) {
    auto tensors = arguments(stack, 2)[0].toTensorVector();
    TORCH_CHECK(!tensors.empty(), "stack expects a non-empty TensorList");
    bool contiguous = true;
    for (const at::Tensor& t : tensors) {
        TORCH_CHECK(t.sizes() == tensors[0].sizes(), "stack expects each tensor to be equal size, but got ",
                    tensors[0].sizes(), " at entry 0 and ", t.sizes());
        contiguous &= t.is_contiguous() && t.suggest_memory_format() == at::MemoryFormat::Contiguous;
    }
    if (!contiguous) return measured("aten::stack", stack);
    auto sizes = tensors[0].sizes().vec();
    int64_t dim = at::maybe_wrap_dim(arguments(stack, 2)[1].toInt(), tensors[0].dim() + 1);
    sizes.insert(sizes.begin() + dim, static_cast<int64_t>(tensors.size()));
    push_all(stack, 2, {at::empty(sizes, tensors[0].options().dtype(at::native::result_type(tensors)))});
}

void hardtanh_rule(Stack* stack) {  // (self, min_val, max_val)
    rule<3>(stack, [](c10::IValue* a) { return at::native::empty_like(a[0].toTensor()); });
}
void arange_rule(Stack* stack, const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                 c10::IValue* options, size_t n_args) {
    bool integral = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
    at::ScalarType type = meta_type(options[0], integral ? at::kLong : c10::get_default_dtype_as_scalartype());
    double span =
        at::isIntegralType(type, false)
            ? std::ceil(static_cast<double>(end.toLong() - start.toLong()) / static_cast<double>(step.toLong()))
            : std::ceil((end.toDouble() - start.toDouble()) / step.toDouble());
    TORCH_CHECK(span >= 0, "upper bound and lower bound inconsistent with step sign");
    push_all(stack, n_args,
             {at::empty({static_cast<int64_t>(span)}, at::TensorOptions().dtype(type).device(at::kMeta))});
}
void arange(Stack* stack) {
    auto a = arguments(stack, 5);
    arange_rule(stack, 0, a[0].toScalar(), 1, a + 1, 5);
}
void arange_start(Stack* stack) {
    auto a = arguments(stack, 6);
    arange_rule(stack, a[0].toScalar(), a[1].toScalar(), 1, a + 2, 6);
}
void arange_step(Stack* stack) {
    auto a = arguments(stack, 7);
    arange_rule(stack, a[0].toScalar(), a[1].toScalar(), a[2].toScalar(), a + 3, 7);
}

// The type in which normalisation keeps its statistics: float where half inputs meet float parameters.
at::ScalarType statistics_type(const at::Tensor& input, const c10::IValue& parameter) {
    bool mixed = at::isReducedFloatingType(input.scalar_type()) && parameter.isTensor() &&
                 parameter.toTensor().defined() && parameter.toTensor().scalar_type() == at::kFloat;
    return mixed ? at::kFloat : input.scalar_type();
}
void layer_norm_rule(Stack* stack) {  // (input, normalized_shape, weight, bias, eps)
    auto a = arguments(stack, 5);
    at::Tensor x = a[0].toTensor();
    auto shape = a[1].toIntVector();
    TORCH_CHECK(!shape.empty() && x.dim() >= static_cast<int64_t>(shape.size()) &&
                    x.sizes().slice(x.dim() - shape.size()) == shape,
                "Given normalized_shape=", shape, ", expected input with shape [*, ...], but got input of size",
                x.sizes());
    for (int k : {2, 3})
        TORCH_CHECK(!a[k].isTensor() || !a[k].toTensor().defined() || a[k].toTensor().sizes() == shape,
                    "Expected weight and bias to be of the same shape as normalized_shape");
    auto outer = x.sizes().vec();
    std::fill(outer.end() - shape.size(), outer.end(), 1);
    auto options = x.options().dtype(statistics_type(x, a[2].isTensor() ? a[2] : a[3]));
    push_all(stack, 5, {at::empty(x.sizes(), x.options()), at::empty(outer, options), at::empty(outer, options)});
}
void batch_norm_rule(Stack* stack) {  // (input, weight, bias, running_mean, running_var, training, momentum, eps)
    auto a = arguments(stack, 8);
    at::Tensor x = a[0].toTensor();
    TORCH_CHECK(x.dim() >= 2, "batch_norm expects an input of rank 2 at least");
    for (int k : {1, 2, 3, 4})
        TORCH_CHECK(!a[k].isTensor() || !a[k].toTensor().defined() || a[k].toTensor().numel() == x.size(1),
                    "batch_norm expects a parameter with ", x.size(1), " elements");
    bool training = a[5].toBool();
    auto options = x.options().dtype(statistics_type(x, a[1].isTensor() ? a[1] : a[3]));
    int64_t n = training ? x.size(1) : 0;
    auto format = x.is_contiguous() ? at::MemoryFormat::Contiguous : x.suggest_memory_format();
    push_all(stack, 8, {at::empty(x.sizes(), x.options(), format), at::empty({n}, options), at::empty({n}, options)});
}
void attention_rule(Stack* stack) {  // (query, key, value, dropout_p, is_causal, attn_mask, scale)
    auto a = arguments(stack, 7);
    at::Tensor q = a[0].toTensor();
    auto type = at::toOpMathType(q.scalar_type());
    auto logsumexp = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(type)).transpose(1, 2);
    push_all(stack, 7, {at::native::empty_like(q), logsumexp});
}
// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
void convolution_rule(Stack* stack) {
    auto a = arguments(stack, 9);
    at::Tensor x = a[0].toTensor(), w = a[1].toTensor();
    auto stride = a[3].toIntVector(), padding = a[4].toIntVector(), dilation = a[5].toIntVector(),
         output_padding = a[7].toIntVector();
    bool transposed = a[6].toBool();
    int64_t groups = a[8].toInt(), spatial = x.dim() - 2;
    TORCH_CHECK(spatial >= 1 && w.dim() == x.dim() && groups > 0,
                "convolution: expected input and weight of equal rank");
    TORCH_CHECK(x.scalar_type() == w.scalar_type(), "convolution: input and weight differ in dtype");
    TORCH_CHECK(x.size(1) == (transposed ? w.size(0) : w.size(1) * groups), "convolution: expected input to have ",
                transposed ? w.size(0) : w.size(1) * groups, " channels, but got ", x.size(1));
    int64_t out_channels = transposed ? w.size(1) * groups : w.size(0);
    TORCH_CHECK(!a[2].isTensor() || !a[2].toTensor().defined() || a[2].toTensor().numel() == out_channels,
                "convolution: expected a bias with ", out_channels, " elements");
    std::vector<int64_t> sizes{x.size(0), out_channels};
    auto at_axis = [](const std::vector<int64_t>& v, int64_t i) { return v.size() == 1 ? v[0] : v.at(i); };
    for (int64_t i = 0; i < spatial; ++i) {
        int64_t reach = at_axis(dilation, i) * (w.size(i + 2) - 1), pad = 2 * at_axis(padding, i), n = x.size(i + 2);
        int64_t size = transposed ? (n - 1) * at_axis(stride, i) - pad + reach + at_axis(output_padding, i) + 1
                                  : (n + pad - reach - 1) / at_axis(stride, i) + 1;
        TORCH_CHECK(size > 0 && (transposed || n + pad > reach), "convolution: the kernel is larger than the input");
        sizes.push_back(size);
    }
    auto format = at::MemoryFormat::Contiguous;
    auto last = spatial == 2 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
    if (spatial >= 2 && (x.suggest_memory_format() == last || w.suggest_memory_format() == last)) format = last;
    // (which library does it decides)
    if (spatial != 2 && !(x.is_contiguous() && w.is_contiguous())) return measured("aten::convolution", stack);
    push_all(stack, 9, {at::empty(sizes, x.options(), format)});
}

const std::unordered_map<std::string, ShapeRule>& rules() {
    static const std::unordered_map<std::string, ShapeRule> table = {
        {"aten::relu", like_first},
        {"aten::isnan", bool_like_first},
        {"aten::logical_not", bool_like_first},
        {"aten::logical_and", logical_rule},
        {"aten::logical_or", logical_rule},
        {"aten::logical_xor", logical_rule},
        {"aten::abs", abs_rule},
        {"aten::where.self", where_rule},
        {"aten::masked_fill.Scalar", masked_fill_rule},
        {"aten::masked_fill.Tensor", masked_fill_rule},
        {"aten::zeros", filled},
        {"aten::ones", filled},
        {"aten::full", full_rule},
        {"aten::zeros_like", filled_like},
        {"aten::ones_like", filled_like},
        {"aten::new_zeros", new_filled},
        {"aten::new_ones", new_filled},
        {"aten::scalar_tensor", scalar_tensor_rule},
        {"aten::zero_", written_first<1>},
        {"aten::fill_.Scalar", written_first<2>},
        {"aten::_unsafe_view", unsafe_view_rule},
        {"aten::stack", stack_rule},
        {"aten::embedding", embedding_rule},
        {"aten::hardtanh", hardtanh_rule},
        {"aten::arange", arange},
        {"aten::arange.start", arange_start},
        {"aten::arange.start_step", arange_step},
        {"aten::native_layer_norm", layer_norm_rule},
        {"aten::native_batch_norm", batch_norm_rule},
        {"aten::_scaled_dot_product_flash_attention_for_cpu", attention_rule},
        {"aten::convolution", convolution_rule},
    };
    return table;
}

}  // namespace

ShapeRule shape_rule(const std::string& callee) {
    auto it = rules().find(callee);
    return it == rules().end() ? layout_rule(callee) : it->second;
}

}  // namespace braze::bridge
