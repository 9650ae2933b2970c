// Convolutions stay Calls, but for those of a channel with a few weights along one axis.
#include "core/passes/decompose/rules.h"
#include "core/passes/decompose/term.h"

namespace braze::passes::decomposition::rules {

namespace {
// More weights than these are better left to a kernel that keeps them in registers.
constexpr int64_t kMaxTaps = 8;
}  // namespace

// Each channel of a sequence with its own few weights: a sum of shifted products, which becomes part of the kernels
// around it. What lies outside of the sequence adds nothing, whatever the weight.
void convolution(Lowering& c) {
    Value *x = c.tensor("input"), *weight = c.tensor("weight");
    c.require(x->type.rank() == 3 && !c.flag("transposed"));
    c.require(c.dtype() == DType::F32 || c.dtype() == DType::F64);
    c.require(x->type.dtype == c.dtype() && weight->type.dtype == c.dtype());
    const Expr channels = x->type.sizes[1], length = x->type.sizes[2], out = c.sizes()[2];
    const auto taps = weight->type.sizes[2].as_const();
    c.require(taps && *taps >= 1 && *taps <= kMaxTaps);
    c.require(c.integer("groups") == channels && weight->type.sizes[0] == channels &&
              weight->type.sizes[1] == Expr(1) && c.sizes()[1] == channels);
    const auto only = [&](std::string_view name) {
        const std::vector<int64_t> list = c.constant_list(name);
        c.require(list.size() == 1);
        return list[0];
    };
    const int64_t padding = only("padding"), dilation = only("dilation");
    c.require(only("stride") == 1);
    Value* sum = nullptr;
    for (int64_t k = 0; k < *taps; ++k) {
        Value* w = c.b.reshape(c.b.slice_axis(weight, 2, Expr(k), Expr(1)), {Expr(1), channels, Expr(1)});
        Value* product = c.b.mul(x, c.b.expand(w, x->type.sizes));
        const Expr low(padding - k * dilation);
        product = c.b.pad(product, {Expr(0), Expr(0), low}, {Expr(0), Expr(0), out - length - low}, 0.0);
        c.require(product->type.sizes == c.sizes());
        sum = sum ? c.b.add(sum, product) : product;
    }
    if (Value* bias = c.optional_tensor("bias"))
        sum = c.b.add(sum, c.b.expand(c.b.reshape(bias, {Expr(1), channels, Expr(1)}), c.sizes()));
    c.done(sum);
}

}  // namespace braze::passes::decomposition::rules
