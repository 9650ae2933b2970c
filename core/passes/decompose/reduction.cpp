// Reductions over some or all dimensions.
#include <cmath>

#include "core/passes/decompose/reduced.h"
#include "core/passes/decompose/rules.h"

namespace braze::passes::decomposition::rules {

namespace {

// Where a reduction over nothing has no value eager raises; such a graph is not captured, but the size may be unknown.
void require_not_empty(Lowering& c, const Value* x, const std::vector<int>& axes) {
    for (int k : axes) c.require(shapes::known_lt(0, x->type.sizes[k]));
}

void summed(Lowering& c, Op op) {
    Value* x = c.tensor("self");
    c.require(c.dtype() != DType::Bool);
    // An explicit wider dtype is that of the operand before it is summed.
    c.done(c.b.reduce(op, c.b.cast(x, c.dtype()), c.axes("dim", x->type.rank()), c.flag("keepdim"), c.dtype()));
}

// The largest or smallest value over the axes.
Value* extreme(Lowering& c, Op op, Value* x, const std::vector<int>& axes, bool keepdim) {
    require_not_empty(c, x, axes);
    if (x->type.dtype == DType::Bool) op = op == Op::Max ? Op::Any : Op::All;
    return c.b.reduce(op, x, axes, keepdim);
}

Value* extreme_index(Lowering& c, Op op, Value* x, const std::vector<int>& axes, bool keepdim) {
    require_not_empty(c, x, axes);
    return c.b.reduce(op, x->type.dtype == DType::Bool ? c.b.cast(x, DType::U8) : x, axes, keepdim);
}

void variance(Lowering& c, bool root, bool with_mean) {
    Value* x = c.tensor("self");
    std::vector<int> axes = c.axes("dim", x->type.rank());
    double correction = c.real_or("correction", 1.0);
    // With too few elements the result is NaN or infinite: left to eager.
    Expr n = count(x, axes);
    c.require(n.as_const() ? static_cast<double>(n.value()) > correction
                           : n.range().lo > 0 && static_cast<double>(n.range().lo) > correction);
    auto [var, mean] = c.b.var_mean(c.b.cast(x, compute_dtype(c)), axes, c.flag("keepdim"), correction);
    c.done(root ? sqrt(Term(c, var)) : Term(c, var), 0);
    if (with_mean) c.done(mean, 1);
}

void norm(Lowering& c, std::string_view order) {
    Value* v = c.tensor("self");
    std::vector<int> axes = c.axes("dim", v->type.rank());
    bool keepdim = c.flag("keepdim");
    double p = c.real_or(order, 2.0);
    Term x(c, c.b.cast(v, compute_dtype(c)));
    // The dtype of the sum is that of the result; a narrowing one is rare and eager's.
    c.require(ir::size_of(v->type.dtype) <= ir::size_of(c.dtype()) && ir::is_float(v->type.dtype));
    if (p == 2) return c.done(sqrt(Term(c, c.b.reduce(Op::Sum, x * x, axes, keepdim))));
    if (p == 1) return c.done(c.b.reduce(Op::Sum, abs(x), axes, keepdim));
    if (p == 0) return c.done(c.b.reduce(Op::Sum, ne(x, 0).as(x.dtype()), axes, keepdim));
    if (std::isinf(p)) {
        require_not_empty(c, v, axes);
        return c.done(c.b.reduce(p > 0 ? Op::Max : Op::Min, abs(x), axes, keepdim));
    }
    Term y = abs(x);
    Term total(c, c.b.reduce(Op::Sum, binary(Op::Pow, y, y.like(p)), axes, keepdim));
    c.done(binary(Op::Pow, total, total.like(1 / p)));
}

}  // namespace

void sum(Lowering& c) { summed(c, Op::Sum); }
void prod(Lowering& c) { summed(c, Op::Prod); }

void nansum(Lowering& c) {
    Term x(c, c.tensor("self"));
    if (!ir::is_float(x.dtype())) return summed(c, Op::Sum);
    Value* zeroed = c.b.cast(where(isnan(x), 0, x), c.dtype());
    c.done(c.b.reduce(Op::Sum, zeroed, c.axes("dim", c.tensor("self")->type.rank()), c.flag("keepdim"), c.dtype()));
}

// Half types are summed and divided in f32.
void mean(Lowering& c) {
    Value* x = c.tensor("self");
    std::vector<int> axes = c.axes("dim", x->type.rank());
    c.done(mean_over(c, Term(c, c.b.cast(x, compute_dtype(c))), axes, c.flag("keepdim")));
}

void count_nonzero(Lowering& c) {
    Value* x = c.tensor("self");
    Value* ones = c.b.cast(c.b.cast(x, DType::Bool), DType::I64);
    c.done(c.b.reduce(Op::Sum, ones, c.axes("dim", x->type.rank()), false));
}

// any, all: Bool in between; of u8 the result is u8.
void truth(Lowering& c, ir::Op op) {
    Value* x = c.tensor("self");
    c.done(c.b.reduce(op, c.b.cast(x, DType::Bool), c.axes("dim", x->type.rank()), c.flag("keepdim")));
}

void extremes(Lowering& c, ir::Op op) {
    Value* x = c.tensor("self");
    c.done(extreme(c, op, x, c.axes("dim", x->type.rank()), c.flag("keepdim")));
}

// Values and the places of the first of them.
void extremes_and_places(Lowering& c, ir::Op op) {
    Value* x = c.tensor("self");
    std::vector<int> axes = c.axes("dim", x->type.rank());
    c.done(extreme(c, op, x, axes, c.flag("keepdim")), 0);
    c.done(extreme_index(c, op == Op::Max ? Op::ArgMax : Op::ArgMin, x, axes, c.flag("keepdim")), 1);
}

void aminmax(Lowering& c) {
    Value* x = c.tensor("self");
    std::vector<int> axes = c.axes("dim", x->type.rank());
    c.done(extreme(c, Op::Min, x, axes, c.flag("keepdim")), 0);
    c.done(extreme(c, Op::Max, x, axes, c.flag("keepdim")), 1);
}

void places(Lowering& c, ir::Op op) {
    Value* x = c.tensor("self");
    c.done(extreme_index(c, op, x, c.axes("dim", x->type.rank()), c.flag("keepdim")));
}

void var(Lowering& c) { variance(c, false, false); }
void std_deviation(Lowering& c) { variance(c, true, false); }
void var_mean(Lowering& c) { variance(c, false, true); }
void std_mean(Lowering& c) { variance(c, true, true); }

void vector_norm(Lowering& c) { norm(c, "ord"); }
void norm_p(Lowering& c) { norm(c, "p"); }

void logsumexp(Lowering& c) {
    Value* v = c.tensor("self");
    std::vector<int> axes = c.axes("dim", v->type.rank());
    require_not_empty(c, v, axes);
    Term x(c, c.b.cast(v, compute_dtype(c)));
    Term top(c, c.b.reduce(Op::Max, x, axes, true));
    top = where(eq(abs(top), INFINITY), 0, top);
    Term total(c, c.b.reduce(Op::Sum, exp(x - spread(c, top, v->type.sizes)), axes, c.flag("keepdim")));
    Term shift(c, c.b.reshape(top, static_cast<Value*>(total)->type.sizes));
    c.done(log(total) + shift);
}

}  // namespace braze::passes::decomposition::rules
