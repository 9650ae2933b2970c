// Softmax and the normalisations, and their gradients. All compute in f32 for the half types and round at the end.
#include <cmath>

#include "core/passes/decompose/reduced.h"
#include "core/passes/decompose/rules.h"

namespace braze::passes::decomposition::rules {

namespace {

std::vector<int> softmax_axes(Lowering& c, const Value* x) {
    if (x->type.rank() == 0) return {};
    return {c.axis("dim", x->type.rank())};
}

// exp(x - max) and its sum, over the axes.
struct Exponentials {
    Term shifted, values, total;
};
Exponentials exponentials(Lowering& c, Term x, const std::vector<int>& axes) {
    const Sizes sizes = static_cast<Value*>(x)->type.sizes;
    for (int k : axes) c.require(shapes::known_lt(0, sizes[k]));
    Term top(c, c.b.reduce(Op::Max, x, axes, true));
    Term shifted = x - spread(c, top, sizes);
    Term values = exp(shifted);
    return {shifted, values, spread(c, sum_over(c, values, axes, true), sizes)};
}

std::vector<int> last_axes(int rank, size_t count) {
    std::vector<int> axes;
    for (int k = rank - static_cast<int>(count); k < rank; ++k) axes.push_back(k);
    return axes;
}

// A per-channel vector (axis 1 of x) over the sizes of x.
Value* per_channel(Lowering& c, Value* v, const Sizes& sizes) {
    Sizes column(sizes.size(), Expr(1));
    column[1] = v->type.sizes[0];
    return c.b.expand(c.b.reshape(v, column), sizes);
}

Term optional_vector(Lowering& c, std::string_view name, DType d, const Sizes& sizes, double otherwise) {
    if (Value* v = c.optional_tensor(name)) return {c, c.b.cast(v, d)};
    return {c, c.b.scalar(d, otherwise, sizes)};
}

Value* inverse_root(Lowering& c, Value* var, double eps) { return reciprocal(sqrt(Term(c, var) + eps)); }

void batch_norm_with(Lowering& c, std::string_view mean_name, std::string_view var_name) {
    Value* v = c.tensor("input");
    DType d = compute_dtype(c);
    const Sizes& sizes = v->type.sizes;
    c.require(v->type.rank() >= 2);
    Sizes channels = {sizes[1]};
    Term mean(c, c.b.cast(c.tensor(mean_name), d));
    Term scale = optional_vector(c, "weight", d, channels, 1) *
                 Term(c, inverse_root(c, c.b.cast(c.tensor(var_name), d), c.real("eps")));
    Term shift = optional_vector(c, "bias", d, channels, 0) - mean * scale;
    Term x(c, c.b.cast(v, d));
    c.done(fma(x, Term(c, per_channel(c, scale, sizes)), Term(c, per_channel(c, shift, sizes))), 0);
    // In inference the saved statistics are empty.
    for (int i = 1; i < c.results(); ++i) {
        c.require(c.type(i).numel() == Expr(0));
        c.done(c.fill(0, c.dtype(i), c.sizes(i)), i);
    }
}

}  // namespace

void softmax(Lowering& c) {
    Value* x = c.tensor("self");
    c.require(!c.flag("half_to_float"));
    Exponentials e = exponentials(c, Term(c, c.b.cast(x, compute_dtype(c))), softmax_axes(c, x));
    c.done(e.values / e.total);
}

void log_softmax(Lowering& c) {
    Value* x = c.tensor("self");
    c.require(!c.flag("half_to_float"));
    std::vector<int> axes = softmax_axes(c, x);
    Exponentials e = exponentials(c, Term(c, c.b.cast(x, compute_dtype(c))), axes);
    // Along the last axis eager keeps the sums, and then their logarithms, in the dtype of the tensor.
    bool kept = axes.empty() || axes[0] == x->type.rank() - 1;
    Term logs = kept ? log(e.total.rounded(c.dtype())).rounded(c.dtype()) : log(e.total);
    c.done(e.shifted - logs);
}

// Rows that are minus infinity throughout become zero.
void safe_softmax(Lowering& c) {
    Value* v = c.tensor("self");
    Term x(c, c.b.cast(c.b.cast(v, c.dtype()), compute_dtype(c)));
    std::vector<int> axes = softmax_axes(c, v);
    Exponentials e = exponentials(c, x, axes);
    Term masked(c, c.b.reduce(Op::All, eq(x, -INFINITY), axes, true));
    c.done(where(spread(c, masked, v->type.sizes), 0, e.values / e.total));
}

void softmax_backward(Lowering& c) {
    Value* y = c.tensor("output");
    c.require(y->type.sizes == c.tensor("grad_output")->type.sizes);
    std::vector<int> axes = softmax_axes(c, y);
    Term grad(c, c.b.cast(c.tensor("grad_output"), compute_dtype(c))), out(c, c.b.cast(y, compute_dtype(c)));
    Term product = grad * out;
    c.done(product - out * spread(c, sum_over(c, product, axes, true), y->type.sizes));
}

void log_softmax_backward(Lowering& c) {
    Value* y = c.tensor("output");
    c.require(y->type.sizes == c.tensor("grad_output")->type.sizes);
    std::vector<int> axes = softmax_axes(c, y);
    Term grad(c, c.b.cast(c.tensor("grad_output"), compute_dtype(c))), out(c, c.b.cast(y, compute_dtype(c)));
    c.done(grad - exp(out) * spread(c, sum_over(c, grad, axes, true), y->type.sizes));
}

void layer_norm(Lowering& c) {
    Value* v = c.tensor("input");
    DType d = compute_dtype(c);
    const Sizes& sizes = v->type.sizes;
    std::vector<int> axes = last_axes(v->type.rank(), c.list("normalized_shape").size());
    for (int k : axes) c.require(shapes::known_lt(0, sizes[k]));
    Term x(c, c.b.cast(v, d));
    auto [var, mean] = c.b.var_mean(x, axes, true, 0.0);
    Term rstd(c, inverse_root(c, var, c.real("eps")));
    Term y = (x - spread(c, Term(c, mean), sizes)) * spread(c, rstd, sizes);
    if (Value* w = c.optional_tensor("weight")) y = y * Term(c, c.to(w, d, sizes));
    if (Value* bias = c.optional_tensor("bias")) y = y + Term(c, c.to(bias, d, sizes));
    c.done({y, mean, rstd});
}

void layer_norm_backward(Lowering& c) {
    const auto* mask = c.call.get<std::vector<bool>>("output_mask");
    c.require(mask && *mask == std::vector<bool>({true, true, true}) && c.given("weight") && c.given("bias"));
    Value* v = c.tensor("input");
    DType d = compute_dtype(c);
    const Sizes& sizes = v->type.sizes;
    int rank = v->type.rank();
    std::vector<int> inner = last_axes(rank, c.list("normalized_shape").size()), outer;
    for (int k : inner) c.require(shapes::known_lt(0, sizes[k]));
    // (of one element the gradient is zero, and eager's what its rounding makes of that)
    c.require(shapes::known_ne(count(v, inner), 1));
    for (int k = 0; k < inner.front(); ++k) outer.push_back(k);
    Term dy(c, c.b.cast(c.tensor("grad_out"), d)), x(c, c.b.cast(v, d));
    Term mean(c, c.to(c.tensor("mean"), d, sizes)), rstd(c, c.to(c.tensor("rstd"), d, sizes));
    Term normal = (x - mean) * rstd;
    Term scaled = dy * Term(c, c.to(c.tensor("weight"), d, sizes));
    Term a = spread(c, mean_over(c, scaled, inner, true), sizes);
    Term b = spread(c, mean_over(c, scaled * normal, inner, true), sizes);
    c.done((scaled - a - normal * b) * rstd, 0);
    c.done(outer.empty() ? dy * normal : sum_over(c, dy * normal, outer, false), 1);
    c.done(outer.empty() ? dy : sum_over(c, dy, outer, false), 2);
}

void rms_norm(Lowering& c) {
    Value* v = c.tensor("input");
    DType d = compute_dtype(c);
    const Sizes& sizes = v->type.sizes;
    std::vector<int> axes = last_axes(v->type.rank(), c.list("normalized_shape").size());
    c.require(c.given("eps") && !ir::is_half(c.dtype()));
    Term x(c, c.b.cast(v, d));
    Term rstd = rsqrt(mean_over(c, x * x, axes, true) + c.real("eps"));
    Term y = x * spread(c, rstd, sizes);
    if (Value* w = c.optional_tensor("weight")) y = y * Term(c, c.to(w, d, sizes));
    c.done({y, rstd});
}

void group_norm(Lowering& c) {
    Value* v = c.tensor("input");
    DType d = compute_dtype(c);
    const Sizes& sizes = v->type.sizes;
    Expr groups = c.integer("group");
    c.require(v->type.rank() >= 2);
    Sizes split = {sizes[0], groups, shapes::floordiv(sizes[1], groups)};
    split.insert(split.end(), sizes.begin() + 2, sizes.end());
    std::vector<int> axes = last_axes(static_cast<int>(split.size()), split.size() - 2);
    for (int k : axes) c.require(shapes::known_lt(0, split[k]));
    Term x(c, c.b.reshape(c.b.cast(v, d), split));
    auto [var, mean] = c.b.var_mean(x, axes, true, 0.0);
    Term rstd(c, inverse_root(c, var, c.real("eps")));
    Term y(c, c.b.reshape((x - spread(c, Term(c, mean), split)) * spread(c, rstd, split), sizes));
    if (Value* w = c.optional_tensor("weight")) y = y * Term(c, c.b.cast(per_channel(c, w, sizes), d));
    if (Value* bias = c.optional_tensor("bias")) y = y + Term(c, c.b.cast(per_channel(c, bias, sizes), d));
    c.done(y, 0);
    c.done(c.b.reshape(mean, c.sizes(1)), 1);
    c.done(c.b.reshape(rstd, c.sizes(2)), 2);
}

// The statistics of the batch itself, none of which are kept: instance norm.
void batch_norm_of_batch(Lowering& c) {
    c.require(c.flag("training") && !ir::is_half(c.dtype()));
    Value* v = c.tensor("input");
    DType d = compute_dtype(c);
    const Sizes& sizes = v->type.sizes;
    std::vector<int> axes;
    for (int k = 0; k < v->type.rank(); ++k) {
        if (k != 1) axes.push_back(k);
    }
    c.require(v->type.rank() >= 2 && shapes::known_lt(0, count(v, axes)));
    auto [var, mean] = c.b.var_mean(c.b.cast(v, d), axes, false, 0.0);
    Term rstd(c, inverse_root(c, var, c.real("eps")));
    Term scale = optional_vector(c, "weight", d, {sizes[1]}, 1) * rstd;
    Term shift = optional_vector(c, "bias", d, {sizes[1]}, 0);
    Term centred = Term(c, c.b.cast(v, d)) - Term(c, per_channel(c, mean, sizes));
    c.done(fma(centred, Term(c, per_channel(c, scale, sizes)), Term(c, per_channel(c, shift, sizes))), 0);
    c.done(mean, 1);
    c.done(rstd, 2);
}

void batch_norm(Lowering& c) {
    c.require(!c.flag("training"));
    batch_norm_with(c, "running_mean", "running_var");
}

void group_norm_backward(Lowering& c) {
    const auto* mask = c.call.get<std::vector<bool>>("output_mask");
    c.require(mask && *mask == std::vector<bool>({true, true, true}) && c.given("weight") && !ir::is_half(c.dtype()));
    Value* v = c.tensor("input");
    DType d = compute_dtype(c);
    const Sizes& sizes = v->type.sizes;
    Expr groups = c.integer("group");
    c.require(v->type.rank() >= 2 && c.tensor("grad_out")->type.sizes == sizes);
    Sizes split = {sizes[0], groups, shapes::floordiv(sizes[1], groups)}, kept = {sizes[0], groups};
    split.insert(split.end(), sizes.begin() + 2, sizes.end());
    kept.resize(split.size(), Expr(1));
    std::vector<int> inner = last_axes(static_cast<int>(split.size()), split.size() - 2), outer;
    for (int k = 0; k < v->type.rank(); ++k) {
        if (k != 1) outer.push_back(k);
    }
    for (int k : inner) c.require(shapes::known_lt(0, split[k]));
    auto by_group = [&](std::string_view name) {
        return spread(c, Term(c, c.b.reshape(c.b.cast(c.tensor(name), d), kept)), split);
    };
    Term rstd = by_group("rstd");
    Term normal = (Term(c, c.b.reshape(c.b.cast(v, d), split)) - by_group("mean")) * rstd;
    Term dy(c, c.b.cast(c.tensor("grad_out"), d));
    Term scaled(c, c.b.reshape(dy * Term(c, c.b.cast(per_channel(c, c.tensor("weight"), sizes), d)), split));
    Term a = spread(c, mean_over(c, scaled, inner, true), split),
         b = spread(c, mean_over(c, scaled * normal, inner, true), split);
    c.done(c.b.reshape((scaled - a - normal * b) * rstd, sizes), 0);
    c.done(sum_over(c, dy * Term(c, c.b.reshape(normal, sizes)), outer, false), 1);
    c.done(sum_over(c, dy, outer, false), 2);
}

void batch_norm_backward(Lowering& c) {
    const auto* mask = c.call.get<std::vector<bool>>("output_mask");
    c.require(mask && *mask == std::vector<bool>({true, true, true}) && c.given("weight"));
    Value* v = c.tensor("input");
    DType d = compute_dtype(c);
    const Sizes& sizes = v->type.sizes;
    std::vector<int> axes;
    for (int k = 0; k < v->type.rank(); ++k) {
        if (k != 1) axes.push_back(k);
    }
    c.require(v->type.rank() >= 2 && shapes::known_lt(0, count(v, axes)) && c.tensor("grad_out")->type.sizes == sizes);
    bool train = c.flag("train");
    Term mean(c, c.b.cast(c.tensor(train ? "save_mean" : "running_mean"), d));
    Term rstd(c, train ? c.b.cast(c.tensor("save_invstd"), d)
                       : inverse_root(c, c.b.cast(c.tensor("running_var"), d), c.real("eps")));
    Term dy(c, c.b.cast(c.tensor("grad_out"), d));
    Term centred = Term(c, c.b.cast(v, d)) - Term(c, per_channel(c, mean, sizes));
    Term total = sum_over(c, dy, axes, false), dot = sum_over(c, centred * dy, axes, false);
    Term scale = Term(c, c.b.cast(c.tensor("weight"), d)) * rstd;
    Term dx = dy;
    if (train) {
        Term n(c, c.fill(Number(count(v, axes)), d, {sizes[1]}));
        dx = dy - Term(c, per_channel(c, total / n, sizes)) -
             centred * Term(c, per_channel(c, dot * rstd * rstd / n, sizes));
    }
    c.done(dx * Term(c, per_channel(c, scale, sizes)), 0);
    c.done(dot * rstd, 1);
    c.done(total, 2);
}

void batch_norm_inference(Lowering& c) { batch_norm_with(c, "running_mean", "running_var"); }

}  // namespace braze::passes::decomposition::rules
