// Losses and their gradients. `reduction` is 0: none, 1: mean, 2: sum.
#include <cmath>
#include <limits>

#include "core/passes/decompose/reduced.h"
#include "core/passes/decompose/rules.h"

namespace braze::passes::decomposition::rules {

namespace {

enum Reduction : int64_t { None = 0, Mean = 1, Sum = 2 };

std::vector<int> all_axes(const Value* x) {
    std::vector<int> axes(x->type.rank());
    for (int k = 0; k < x->type.rank(); ++k) axes[k] = k;
    return axes;
}

// An argument of a loss in its compute dtype, over the common sizes of prediction and target.
struct LossInputs {
    Term x, y;
};
LossInputs inputs(Lowering& c) {
    Value* x = c.tensor("self");
    Value* y = c.tensor("target");
    // Half types round in between in ways that differ from loss to loss.
    c.require(!ir::is_half(c.dtype()) && x->type.dtype == c.dtype() && y->type.dtype == c.dtype());
    c.require(x->type.sizes == y->type.sizes);
    return {Term(c, x), Term(c, y)};
}

void reduced(Lowering& c, Term loss) {
    int64_t how = c.constant("reduction");
    if (how == None) return c.done(loss);
    c.require(how == Mean || how == Sum);
    std::vector<int> axes = all_axes(loss);
    c.done(how == Mean ? mean_over(c, loss, axes, false) : sum_over(c, loss, axes, false));
}

// The factor a mean brings into the gradient.
double mean_factor(Lowering& c) {
    if (c.constant("reduction") != Mean) return 1;
    std::optional<int64_t> n = c.tensor("self")->type.numel().as_const();
    c.require(n && *n > 0);
    return 1.0 / static_cast<double>(*n);
}

Term incoming_gradient(Lowering& c) {
    c.require(c.tensor("grad_output")->type.dtype == c.dtype());
    return {c, c.to(c.tensor("grad_output"), c.dtype(), c.sizes())};
}

}  // namespace

void mse_loss(Lowering& c) {
    auto [x, y] = inputs(c);
    Term d = x - y;
    reduced(c, d * d);
}

void mse_loss_backward(Lowering& c) {
    auto [x, y] = inputs(c);
    c.done((2.0 * mean_factor(c)) * (x - y) * incoming_gradient(c));
}

void smooth_l1_loss(Lowering& c) {
    auto [x, y] = inputs(c);
    double beta = c.real("beta");
    Term z = abs(x - y);
    if (beta == 0) return reduced(c, z);
    reduced(c, where(lt(z, beta), 0.5 * z * z / beta, z - 0.5 * beta));
}

void smooth_l1_loss_backward(Lowering& c) {
    auto [x, y] = inputs(c);
    double beta = c.real("beta");
    c.require(beta > 0);
    Term d = x - y, g = mean_factor(c) * incoming_gradient(c);
    c.done(where(le(d, -beta), -g, where(ge(d, beta), g, d * g / beta)));
}

void huber_loss_backward(Lowering& c) {
    auto [x, y] = inputs(c);
    double delta = c.real("delta");
    Term d = x - y, g = mean_factor(c) * incoming_gradient(c);
    c.done(where(le(d, -delta), -g * delta, where(ge(d, delta), g * delta, d * g)));
}

void huber_loss(Lowering& c) {
    auto [x, y] = inputs(c);
    double delta = c.real("delta");
    Term z = abs(x - y);
    reduced(c, where(lt(z, delta), 0.5 * z * z, delta * (z - 0.5 * delta)));
}

void soft_margin_loss(Lowering& c) {
    auto [x, y] = inputs(c);
    reduced(c, log1p(exp(-y * x)));
}

void cross_entropy_of_logits(Lowering& c) {
    auto [x, y] = inputs(c);
    c.require(c.dtype() != DType::Bool);
    const Sizes& sizes = static_cast<Value*>(x)->type.sizes;
    Term log_sigmoid = minimum(x, 0) - log1p(exp(-abs(x)));
    Term loss = (1 - y) * x;
    if (Value* w = c.optional_tensor("pos_weight")) {
        Term factor = (Term(c, c.to(w, c.dtype(), sizes)) - 1) * y + 1;
        loss = loss - factor * log_sigmoid;
    } else {
        loss = loss - log_sigmoid;
    }
    if (Value* w = c.optional_tensor("weight")) loss = loss * Term(c, c.to(w, c.dtype(), sizes));
    reduced(c, loss);
}

// Eager raises for targets outside the classes; a loaded index is checked in the same way.
void nll_loss(Lowering& c) {
    Value* x = c.tensor("self");
    Value* target = c.tensor("target");
    c.require(ir::is_float(c.dtype()) && !ir::is_half(c.dtype()) && x->type.rank() == 2 && target->type.rank() == 1 &&
              target->type.dtype == DType::I64);
    const Sizes& rows = target->type.sizes;
    Term t(c, target);
    Term ignored = eq(t, Term(c, c.b.scalar_int(DType::I64, c.integer("ignore_index"), rows)));
    Value* outside = c.b.scalar_int(DType::I64, std::numeric_limits<int64_t>::max(), rows);
    Term place = where(ignored, 0, where(lt(t, 0), Term(c, outside), t));
    Value* column = c.b.unsqueeze(place, 1);
    Term picked(c, c.b.reshape(c.b.gather(x, column, 1), rows));
    Value* given = c.optional_tensor("weight");
    Term weight = given ? Term(c, c.b.take(given, {place}, {0}, 0)) : picked.like(1);
    weight = where(ignored, 0, weight);
    Term loss = where(ignored, 0, -picked * weight);
    if (c.constant("reduction") == None) {
        c.done(loss, 0);
        return c.done(c.fill(0, c.dtype(1), c.sizes(1)), 1);
    }
    Term total = sum_over(c, loss, {0}, false), weights = sum_over(c, weight, {0}, false);
    c.done(c.constant("reduction") == Mean ? total / weights : total, 0);
    c.done(weights, 1);
}

// The gradient is minus the weight at the target's place of each row, zero elsewhere.
void nll_loss_backward(Lowering& c) {
    Value* target = c.tensor("target");
    Value* grad = c.tensor("grad_output");
    const Sizes& sizes = c.sizes();
    c.require(ir::is_float(c.dtype()) && !ir::is_half(c.dtype()) && c.type().rank() == 2 && target->type.rank() == 1 &&
              target->type.dtype == DType::I64 && grad->type.dtype == c.dtype());
    auto by_row = [&](Value* v) { return Term(c, c.b.expand(c.b.unsqueeze(v, 1), sizes)); };
    Term t(c, target);
    Term ignored = eq(t, Term(c, c.b.scalar_int(DType::I64, c.integer("ignore_index"), target->type.sizes)));
    Term place = eq(by_row(target), Term(c, c.b.iota(DType::I64, sizes, 1)));
    Term g = grad->type.rank() == 0 ? Term(c, c.b.expand(grad, sizes)) : by_row(grad);
    // The weight of the target is that of the column where it is placed.
    if (Value* w = c.optional_tensor("weight")) g = g * Term(c, c.b.expand(c.b.cast(w, c.dtype()), sizes));
    if (c.constant("reduction") == Mean) g = g / Term(c, c.b.expand(c.tensor("total_weight"), sizes));
    c.done(where(both(place, unary(Op::LogicalNot, by_row(ignored))), -g, 0));
}

}  // namespace braze::passes::decomposition::rules
