// Formulas over values: Term is a Value with arithmetic operators. Both sides have the same dtype and sizes; a number
// takes those of the other side.
#pragma once
#include "core/passes/decompose/lowering.h"

namespace braze::passes::decomposition {

class Term {
  public:
    Term(Lowering& c, Value* v) : c_(&c), v_(v) {}
    operator Value*() const { return v_; }  // NOLINT(google-explicit-constructor)
    Lowering& lowering() const { return *c_; }
    DType dtype() const { return v_->type.dtype; }
    Term like(double x) const { return {*c_, c_->fill(Number(x), dtype(), v_->type.sizes)}; }
    Term as(DType d) const { return {*c_, c_->b.cast(v_, d)}; }
    // Rounded to a dtype and back, where eager keeps an intermediate result in the dtype of the operands.
    Term rounded(DType d) const { return as(d).as(dtype()); }

  private:
    Lowering* c_;
    Value* v_;
};

inline Term unary(Op op, Term x) { return {x.lowering(), x.lowering().b.unary(op, x)}; }
inline Term binary(Op op, Term a, Term b) { return {a.lowering(), a.lowering().b.binary(op, a, b)}; }

#define BRAZE_TERM_BINARY(name, op)                                             \
    inline Term name(Term a, Term b) { return binary(Op::op, a, b); }           \
    inline Term name(Term a, double b) { return binary(Op::op, a, a.like(b)); } \
    inline Term name(double a, Term b) { return binary(Op::op, b.like(a), b); }
BRAZE_TERM_BINARY(operator+, Add)
BRAZE_TERM_BINARY(operator-, Sub)
BRAZE_TERM_BINARY(operator*, Mul)
BRAZE_TERM_BINARY(operator/, Div)
BRAZE_TERM_BINARY(eq, Eq)
BRAZE_TERM_BINARY(ne, Ne)
BRAZE_TERM_BINARY(lt, Lt)
BRAZE_TERM_BINARY(le, Le)
BRAZE_TERM_BINARY(gt, Gt)
BRAZE_TERM_BINARY(ge, Ge)
BRAZE_TERM_BINARY(maximum, Maximum)
BRAZE_TERM_BINARY(minimum, Minimum)
#undef BRAZE_TERM_BINARY

inline Term both(Term a, Term b) { return binary(Op::And, a, b); }
inline Term either(Term a, Term b) { return binary(Op::Or, a, b); }
inline Term operator-(Term x) { return unary(Op::Neg, x); }
inline Term abs(Term x) { return unary(Op::Abs, x); }
inline Term exp(Term x) { return unary(Op::Exp, x); }
inline Term exp2(Term x) { return unary(Op::Exp2, x); }
inline Term log(Term x) { return unary(Op::Log, x); }
inline Term log1p(Term x) { return unary(Op::Log1p, x); }
inline Term sqrt(Term x) { return unary(Op::Sqrt, x); }
inline Term rsqrt(Term x) { return unary(Op::Rsqrt, x); }
inline Term reciprocal(Term x) { return unary(Op::Reciprocal, x); }
inline Term sin(Term x) { return unary(Op::Sin, x); }
inline Term tanh(Term x) { return unary(Op::Tanh, x); }
inline Term erf(Term x) { return unary(Op::Erf, x); }
inline Term sigmoid(Term x) { return unary(Op::Sigmoid, x); }
inline Term trunc(Term x) { return unary(Op::Trunc, x); }
inline Term isnan(Term x) { return unary(Op::IsNan, x); }

inline Term where(Term cond, Term a, Term b) { return {a.lowering(), a.lowering().b.where(cond, a, b)}; }
inline Term where(Term cond, Term a, double b) { return where(cond, a, a.like(b)); }
inline Term where(Term cond, double a, Term b) { return where(cond, b.like(a), b); }
// a * b + c
inline Term fma(Term a, Term b, Term c) { return {a.lowering(), a.lowering().b.ternary(Op::Fma, a, b, c)}; }

// The dtype in which eager computes a float operator whose result has this dtype: f32 for the half types. Declines for
// others.
inline DType compute_dtype(const Lowering& c) {
    c.require(ir::is_float(c.dtype()));
    return ir::compute_type(c.dtype());
}
// An operand of a pointwise float operator, in the compute dtype and with the sizes of the result.
// A tensor must have the result's dtype: kernels of several steps do not promote uniformly.
inline Term input(Lowering& c, std::string_view name) {
    Operand x = c.operand(name);
    c.require(!x.tensor() || x.tensor()->type.dtype == c.dtype());
    return {c, c.to(x, compute_dtype(c), c.sizes())};
}
// The same for an operand that is rounded to the result's dtype first, as where a wrapped number stands for a tensor.
inline Term input_rounded(Lowering& c, std::string_view name) {
    compute_dtype(c);
    return Term(c, c.to(c.operand(name), c.dtype(), c.sizes())).as(ir::compute_type(c.dtype()));
}

}  // namespace braze::passes::decomposition
