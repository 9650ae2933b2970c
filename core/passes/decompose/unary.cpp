// Pointwise functions of one operand.
#include <cmath>
#include <numbers>

#include "core/passes/decompose/rules.h"
#include "core/passes/decompose/term.h"

namespace braze::passes::decomposition::rules {

namespace {

Term self_in(Lowering& c, DType d) { return {c, c.to(c.tensor("self"), d, c.sizes())}; }

// The largest finite number of a float dtype.
double largest(DType d) {
    switch (d) {
        case DType::F16: return 65504.0;
        case DType::BF16: return 0x1.fep127;
        case DType::F32: return 0x1.fffffep127;
        default: return 0x1.fffffffffffffp1023;
    }
}

}  // namespace

// Integers and bool are computed in the result's float dtype.
void float_unary(Lowering& c, ir::Op op) {
    c.require(ir::is_float(c.dtype()));
    c.done(c.b.unary(op, self_in(c, c.dtype())));
}

// Defined for every dtype but bool.
void number_unary(Lowering& c, ir::Op op) {
    c.require(c.dtype() != DType::Bool && c.tensor("self")->type.dtype == c.dtype());
    c.done(c.b.unary(op, c.tensor("self")));
}

// floor, ceil, round, trunc: integers stay what they are.
void rounding(Lowering& c, ir::Op op) {
    Value* x = c.tensor("self");
    c.require(x->type.dtype == c.dtype() && c.dtype() != DType::Bool);
    c.done(ir::is_float(c.dtype()) ? c.b.unary(op, x) : x);
}

void round_decimals(Lowering& c) {
    c.require(c.constant("decimals") == 0);
    rounding(c, Op::Round);
}

void absolute(Lowering& c) {
    Value* x = c.tensor("self");
    c.require(x->type.dtype == c.dtype());
    bool changes = ir::is_float(c.dtype()) || (ir::is_int(c.dtype()) && ir::is_signed(c.dtype()));
    c.done(changes ? c.b.unary(Op::Abs, x) : x);
}

void sign(Lowering& c) {
    Value* x = c.tensor("self");
    c.require(x->type.dtype == c.dtype());
    c.done(c.dtype() == DType::Bool ? x : c.b.unary(Op::Sign, x));
}

void signbit(Lowering& c) {
    Term x(c, c.tensor("self"));
    if (ir::is_float(x.dtype())) return c.done(unary(Op::SignBit, x));
    c.done(ir::is_signed(x.dtype()) && x.dtype() != DType::Bool ? lt(x, 0)
                                                                : Term(c, c.b.scalar_bool(false, c.sizes())));
}

// isnan, isinf: false for integers.
void classify(Lowering& c, ir::Op op) {
    Value* x = c.tensor("self");
    c.done(ir::is_float(x->type.dtype) ? c.b.unary(op, x) : c.b.scalar_bool(false, c.sizes()));
}

void isposinf(Lowering& c) {
    Term x(c, c.tensor("self"));
    c.done(ir::is_float(x.dtype()) ? eq(x, INFINITY) : Term(c, c.b.scalar_bool(false, c.sizes())));
}

void isneginf(Lowering& c) {
    Term x(c, c.tensor("self"));
    c.done(ir::is_float(x.dtype()) ? eq(x, -INFINITY) : Term(c, c.b.scalar_bool(false, c.sizes())));
}

void relu(Lowering& c) {
    Term x(c, c.tensor("self"));
    c.require(x.dtype() == c.dtype() && x.dtype() != DType::Bool);
    c.done(ir::is_float(x.dtype()) ? unary(Op::Relu, x) : where(lt(x, 0), 0, x));
}

void frac(Lowering& c) {
    Term x = input(c, "self");
    c.done(x - trunc(x));
}

void nan_to_num(Lowering& c) {
    Value* v = c.tensor("self");
    c.require(v->type.dtype == c.dtype());
    if (!ir::is_float(c.dtype())) return c.done(v);
    Term x(c, v);
    double max = largest(c.dtype());
    Term finite =
        where(eq(x, INFINITY), c.real_or("posinf", max), where(eq(x, -INFINITY), c.real_or("neginf", -max), x));
    c.done(where(isnan(x), c.real_or("nan", 0.0), finite));
}

void logit(Lowering& c) {
    c.require(ir::is_float(c.dtype()) && !ir::is_half(c.dtype()));
    Term x = self_in(c, c.dtype());
    if (c.given("eps")) {
        double eps = c.real("eps");
        c.require(eps >= 0 && eps <= 0.5);
        // The upper bound is 1 - eps in the dtype itself.
        Value* hi = c.b.sub(x.like(1), x.like(eps));
        x = where(lt(x, eps), eps, where(gt(x, Term(c, hi)), Term(c, hi), x));
    }
    c.done(log(x / (1 - x)));
}

void sinc(Lowering& c) {
    c.require(ir::is_float(c.dtype()) && !ir::is_half(c.dtype()));
    Term x = self_in(c, c.dtype());
    Term y = x * std::numbers::pi;
    c.done(where(eq(x, 0), 1, sin(y) / y));
}

void deg2rad(Lowering& c) {
    c.require(ir::is_float(c.dtype()));
    Term x = self_in(c, c.dtype()).as(ir::compute_type(c.dtype()));
    c.done(x * (std::numbers::pi / 180.0));
}

void rad2deg(Lowering& c) {
    c.require(ir::is_float(c.dtype()));
    Term x = self_in(c, c.dtype()).as(ir::compute_type(c.dtype()));
    c.done(x * (180.0 / std::numbers::pi));
}

void angle(Lowering& c) {
    c.require(c.tensor("self")->type.dtype == c.dtype() && ir::is_float(c.dtype()));
    Term x(c, c.tensor("self"));
    c.done(where(isnan(x), x, where(lt(x, 0), std::numbers::pi, x.like(0))));
}

void entr(Lowering& c) {
    c.require(ir::is_float(c.dtype()) && !ir::is_half(c.dtype()));
    Term x = self_in(c, c.dtype());
    Term positive = where(gt(x, 0), -x * log(x), where(eq(x, 0), x.like(0), x.like(-INFINITY)));
    c.done(where(isnan(x), x, positive));
}

}  // namespace braze::passes::decomposition::rules
