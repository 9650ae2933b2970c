// Activation functions. Half types compute in f32 and round once, as eager's kernels do.
#include <cmath>
#include <numbers>

#include "core/passes/decompose/rules.h"
#include "core/passes/decompose/term.h"

namespace braze::passes::decomposition::rules {

namespace {

constexpr double kSqrt2OverPi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kGeluCubic = 0.044715;
constexpr double kSqrtHalf = std::numbers::sqrt2 / 2;

Term clamp_0_6(Term x) { return minimum(maximum(x, 0), 6); }

}  // namespace

void gelu(Lowering& c) {
    Term x = input(c, "self");
    if (c.text("approximate") == "none") return c.done(x * 0.5 * (1 + erf(x * kSqrtHalf)));
    c.require(c.text("approximate") == "tanh");
    Term inner = kSqrt2OverPi * (x + kGeluCubic * (x * x * x));
    c.done(0.5 * x * (1 + tanh(inner)));
}

void gelu_backward(Lowering& c) {
    Term dy = input(c, "grad_output"), x = input(c, "self");
    if (c.text("approximate") == "none") {
        Term cdf = 0.5 * (1 + erf(x * kSqrtHalf));
        Term pdf = (std::numbers::inv_sqrtpi * kSqrtHalf) * exp(x * x * -0.5);
        return c.done(dy * (cdf + x * pdf));
    }
    c.require(c.text("approximate") == "tanh");
    Term square = x * x;
    Term t = tanh(kSqrt2OverPi * (x + kGeluCubic * (square * x)));
    Term left = 0.5 * x;
    Term slope = kSqrt2OverPi * (1 + 3 * kGeluCubic * square);
    c.done(dy * (0.5 * (1 + t) + left * (1 - t * t) * slope));
}

void silu(Lowering& c) {
    Term x = input(c, "self");
    c.done(x / (1 + exp(-x)));
}

void silu_backward(Lowering& c) {
    Term dy = input(c, "grad_output"), x = input(c, "self");
    Term s = 1 / (1 + exp(-x));
    c.done(dy * s * (1 + x * (1 - s)));
}

void mish(Lowering& c) {
    Term x = input(c, "self");
    c.done(x * tanh(log1p(exp(x))));
}

void mish_backward(Lowering& c) {
    Term dy = input(c, "grad_output"), x = input(c, "self");
    Term s = 1 / (1 + exp(-x));
    Term t = tanh(log1p(exp(x)));
    c.done(dy * (t + x * s * (1 - t * t)));
}

void hardswish(Lowering& c) {
    Term x = input(c, "self");
    c.done(x * clamp_0_6(x + 3) / 6);
}

void hardswish_backward(Lowering& c) {
    Term dy = input(c, "grad_output"), x = input(c, "self");
    c.done(where(le(x, -3), x.like(0), where(ge(x, 3), dy, dy * (x / 3 + 0.5))));
}

void hardsigmoid(Lowering& c) {
    Term x = input(c, "self");
    c.done(clamp_0_6(x + 3) / 6);
}

void hardsigmoid_backward(Lowering& c) {
    Term dy = input(c, "grad_output"), x = input(c, "self");
    c.done(where(both(gt(x, -3), lt(x, 3)), dy * static_cast<double>(1.0F / 6.0F), 0));
}

void hardtanh_backward(Lowering& c) {
    Term dy = input(c, "grad_output"), x = input(c, "self");
    c.done(where(both(gt(x, c.real("min_val")), lt(x, c.real("max_val"))), dy, 0));
}

void leaky_relu(Lowering& c) {
    Term x = input(c, "self");
    c.done(where(gt(x, 0), x, x * c.real("negative_slope")));
}

void leaky_relu_backward(Lowering& c) {
    Term dy = input(c, "grad_output"), x = input(c, "self");
    c.done(where(gt(x, 0), dy, dy * c.real("negative_slope")));
}

void prelu(Lowering& c) {
    Term x = input(c, "self");
    c.done(where(gt(x, 0), x, x * input(c, "weight")));
}

void elu(Lowering& c) {
    Term x = input(c, "self");
    double scale = c.real("scale"), in = c.real("input_scale");
    Term coefficient(c, c.b.mul(x.like(c.real("alpha")), x.like(scale)));
    c.done(where(le(x, 0), unary(Op::Expm1, x * in) * coefficient, x * scale));
}

void elu_backward(Lowering& c) {
    Term dy = input(c, "grad_output"), y = input(c, "self_or_result");
    double scale = c.real("scale"), in = c.real("input_scale");
    Term coefficient(c, c.b.mul(y.like(c.real("alpha")), y.like(scale)));
    Term negative = c.flag("is_result") ? dy * in * (y + coefficient) : dy * in * coefficient * exp(y * in);
    c.done(where(gt(y, 0), dy * scale, negative));
}

void celu(Lowering& c) {
    // Eager: elu(self, alpha, 1, 1 / alpha), with the quotient taken in double.
    double alpha = c.real("alpha");
    c.require(alpha != 0);
    Term x = input(c, "self");
    c.done(where(le(x, 0), unary(Op::Expm1, x * (1.0 / alpha)) * alpha, x));
}

void softplus(Lowering& c) {
    Term x = input(c, "self");
    double beta = c.real("beta");
    Term scaled = x * beta;
    c.done(where(gt(scaled, c.real("threshold")), x, log1p(exp(scaled)) / beta));
}

void softplus_backward(Lowering& c) {
    Term dy = input(c, "grad_output"), x = input(c, "self");
    Term scaled = x * c.real("beta");
    Term z = exp(scaled);
    c.done(where(gt(scaled, c.real("threshold")), dy, dy * z / (z + 1)));
}

void threshold(Lowering& c) {
    Term x(c, c.tensor("self"));
    c.require(x.dtype() == c.dtype());
    Term value(c, c.fill(c.number("value"), c.dtype(), c.sizes()));
    Term compared = x.as(ir::compute_type(c.dtype()));
    c.done(where(le(compared, Term(c, c.fill(c.number("threshold"), compared.dtype(), c.sizes()))), value, x));
}

void threshold_backward(Lowering& c) {
    Term dy(c, c.to(c.tensor("grad_output"), c.dtype(), c.sizes())), x(c, c.to(c.tensor("self"), c.dtype(), c.sizes()));
    c.require(c.tensor("self")->type.dtype == c.dtype() && ir::is_float(c.dtype()));
    c.done(where(le(x.as(ir::compute_type(c.dtype())), c.real("threshold")), 0, dy));
}

void log_sigmoid(Lowering& c) {
    Term x = input(c, "self");
    Term buffer = exp(-abs(x));
    c.done(minimum(x, 0) - log1p(buffer), 0);
    c.require(c.type(1).rank() == c.type(0).rank());
    c.done(buffer, 1);
}

void log_sigmoid_backward(Lowering& c) {
    Term dy = input(c, "grad_output"), x = input(c, "self"), z = input(c, "buffer");
    Term negative = lt(x, 0);
    Term slope = where(negative, 1, x.like(0)), sign = where(negative, 1, x.like(-1));
    c.done((slope - sign * (z / (1 + z))) * dy);
}

void sigmoid_backward(Lowering& c) {
    Term dy = input(c, "grad_output"), y = input(c, "output");
    c.done(dy * (1 - y) * y);
}

void tanh_backward(Lowering& c) {
    Term dy = input(c, "grad_output"), y = input(c, "output");
    c.done(dy * (1 - y * y));
}

void hardshrink(Lowering& c) {
    Term x(c, c.tensor("self"));
    c.require(x.dtype() == c.dtype() && ir::is_float(c.dtype()));
    double l = c.real("lambd");
    c.done(where(both(ge(x, -l), le(x, l)), 0, x));
}

void softshrink(Lowering& c) {
    Term x = input(c, "self");
    double l = c.real("lambd");
    Term shrunk = where(gt(x, l), x - l, where(lt(x, -l), x + l, 0));
    c.done(where(isnan(x), x, shrunk));
}

void shrink_backward(Lowering& c, std::string_view grad) {
    Term dy(c, c.to(c.tensor(grad), c.dtype(), c.sizes())), x(c, c.to(c.tensor("self"), c.dtype(), c.sizes()));
    c.require(ir::is_float(c.dtype()));
    double l = c.real("lambd");
    c.done(where(either(lt(x, -l), gt(x, l)), dy, 0));
}

void hardshrink_backward(Lowering& c) { shrink_backward(c, "grad_out"); }
void softshrink_backward(Lowering& c) { shrink_backward(c, "grad_output"); }

void glu(Lowering& c) {
    Value* x = c.tensor("self");
    int axis = c.axis("dim", x->type.rank());
    c.require(x->type.rank() > 0);
    Expr half = c.sizes()[axis];
    DType d = compute_dtype(c);
    Term a(c, c.b.cast(c.b.slice_axis(x, axis, 0, half), d)), gate(c, c.b.cast(c.b.slice_axis(x, axis, half, half), d));
    c.done(a * (1 / (1 + exp(-gate))));
}

void glu_backward(Lowering& c) {
    Value* x = c.tensor("self");
    int axis = c.axis("dim", x->type.rank());
    c.require(x->type.rank() > 0);
    Expr half = c.tensor("grad_output")->type.sizes[axis];
    DType d = compute_dtype(c);
    Term dy(c, c.b.cast(c.tensor("grad_output"), d));
    Term a(c, c.b.cast(c.b.slice_axis(x, axis, 0, half), d)), gate(c, c.b.cast(c.b.slice_axis(x, axis, half, half), d));
    Term s = (1 / (1 + exp(-gate))).rounded(c.dtype());  // eager keeps it in the result
    Term first = s * dy, second = (1 - s) * s * dy * a;
    c.done(c.b.cat({first.as(c.dtype()), second.as(c.dtype())}, axis));
}

}  // namespace braze::passes::decomposition::rules
