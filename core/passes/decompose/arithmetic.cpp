// Arithmetic of two and three operands: add, sub, mul, div and its roundings, remainders, powers, lerp, addcmul.
#include <cmath>

#include "core/passes/decompose/rules.h"
#include "core/passes/decompose/term.h"

namespace braze::passes::decomposition::rules {

namespace {

Term operand_in(Lowering& c, std::string_view name, DType d) { return {c, c.to(c.operand(name), d, c.sizes())}; }

bool is_one(const Operand& x) { return !x.tensor() && x.number().real() == 1.0; }

// x + alpha * y in dtype d (half types: alpha is rounded to d, the sum is rounded once).
Value* add_scaled(Lowering& c, Value* x, Value* y, const std::optional<Operand>& alpha, bool subtract) {
    DType d = x->type.dtype;
    const bool one = !alpha || is_one(*alpha);
    if (d == DType::Bool) {
        c.require(!subtract && one);
        return c.b.binary(Op::Or, x, y);
    }
    if (one) return c.b.binary(subtract ? Op::Sub : Op::Add, x, y);
    c.require(!alpha->tensor() || alpha->tensor()->type.dtype == d);
    Value* scale = c.to(*alpha, d, c.sizes());
    if (!ir::is_float(d)) return c.b.binary(subtract ? Op::Sub : Op::Add, x, c.b.mul(y, scale));
    DType compute = ir::compute_type(d);
    Term s = Term(c, scale).as(compute);
    return fma(subtract ? -s : s, Term(c, y).as(compute), Term(c, x).as(compute)).as(d);
}

void add_or_sub(Lowering& c, std::string_view left, std::string_view right, bool subtract) {
    DType d = c.common_dtype({c.operand(left), c.operand(right)});
    c.done(add_scaled(c, operand_in(c, left, d), operand_in(c, right, d), c.optional_operand("alpha"), subtract));
}

// How many elements an operand has, as far as it matters whether it is one: nullopt where that is unknown.
std::optional<bool> has_one_element(const Operand& x) {
    if (!x.tensor()) return true;
    Expr n = x.tensor()->type.numel();
    if (n.as_const()) return n.value() == 1;
    if (shapes::known_ne(n, 1)) return false;
    return std::nullopt;
}

// mul and div of half types take a one-element right operand in f32, not rounded to the half type.
Term right_operand(Lowering& c, DType d) {
    Operand x = c.operand("other");
    if (!ir::is_half(d)) return {c, c.to(x, d, c.sizes())};
    if (x.tensor() && x.tensor()->type.dtype == d) return {c, c.to(x, DType::F32, c.sizes())};
    std::optional<bool> one = has_one_element(x);
    c.require(one.has_value());
    if (*one) return {c, c.to(x, DType::F32, c.sizes())};
    return Term(c, c.to(x, d, c.sizes())).as(DType::F32);
}

// The known nonzero divisor of an integer division: eager raises for zero, and the most negative number divided by -1
// must not trap.
int64_t integer_divisor(Lowering& c) {
    Operand x = c.operand("other");
    c.require(!x.tensor());
    std::optional<int64_t> v = x.number().integer();
    c.require(v && *v != 0 && !x.number().is_float());
    return *v;
}

void divide_integers(Lowering& c, Op op, DType d) {
    Term x = operand_in(c, "self", d);
    int64_t divisor = integer_divisor(c);
    Value* y = c.fill(Number(Expr(divisor)), d, c.sizes());
    c.done(divisor == -1 ? -x : binary(op, x, Term(c, y)));
}

void remainder_of_integers(Lowering& c, Op op, DType d) {
    Term x = operand_in(c, "self", d);
    int64_t divisor = integer_divisor(c);
    Value* y = c.fill(Number(Expr(divisor)), d, c.sizes());
    c.done(divisor == -1 ? x.like(0) : binary(op, x, Term(c, y)));
}

void floor_division(Lowering& c) {
    DType d = c.common_dtype({c.operand("self"), c.operand("other")});
    c.require(d != DType::Bool);
    if (ir::is_int(d)) return divide_integers(c, Op::FloorDiv, d);
    // With a tensor on the right the half types round every step.
    c.require(!ir::is_half(d) || has_one_element(c.operand("other")) == true);
    Term x = operand_in(c, "self", d).as(ir::compute_type(d));
    c.done(binary(Op::FloorDiv, x, right_operand(c, d)).as(d));
}

void remainder_like(Lowering& c, Op op) {
    DType d = c.common_dtype({c.operand("self"), c.operand("other")});
    c.require(d != DType::Bool);
    if (ir::is_int(d)) return remainder_of_integers(c, op, d);
    c.done(binary(op, operand_in(c, "self", d), operand_in(c, "other", d)));
}

Term integer_power(Term x, int64_t n) {
    if (n == 1) return x;
    Term half = integer_power(x, n / 2);
    return n % 2 ? half * half * x : half * half;
}

Term float_power(Lowering& c, Term x, double n, DType d) {
    // bf16 rounds each product, f16 only the result.
    auto step = [&](Term t) { return d == DType::BF16 ? t.rounded(d) : t; };
    Term y = x.as(ir::compute_type(d));
    if (std::abs(n) == 0.5 && d == DType::F16) return binary(Op::Pow, x, x.like(n));
    if (n == 0.5) return sqrt(y);
    if (n == 2) return y * y;
    if (n == 3) return step(y * y) * y;
    if (n == -0.5) return rsqrt(y);
    if (n == -1) return reciprocal(y);
    if (n == -2) return reciprocal(step(y * y));
    return binary(Op::Pow, x, x.like(n));
}

}  // namespace

void add(Lowering& c) { add_or_sub(c, "self", "other", false); }
void sub(Lowering& c) { add_or_sub(c, "self", "other", true); }
void rsub(Lowering& c) { add_or_sub(c, "other", "self", true); }

void mul(Lowering& c) {
    DType d = c.common_dtype({c.operand("self"), c.operand("other")});
    Term x = operand_in(c, "self", d);
    if (d == DType::Bool) return c.done(both(x, operand_in(c, "other", d)));
    c.done((x.as(ir::compute_type(d)) * right_operand(c, d)).as(d));
}

void div(Lowering& c) {
    DType d = c.common_dtype({c.operand("self"), c.operand("other")});
    if (!ir::is_float(d)) d = c.dtype();  // the default float dtype
    c.require(ir::is_float(d));
    c.done((operand_in(c, "self", d).as(ir::compute_type(d)) / right_operand(c, d)).as(d));
}

void div_mode(Lowering& c) {
    std::string_view mode = c.text("rounding_mode");
    if (mode.empty()) return div(c);
    if (mode == "floor") return floor_division(c);
    c.require(mode == "trunc");
    DType d = c.common_dtype({c.operand("self"), c.operand("other")});
    c.require(d != DType::Bool);
    if (ir::is_int(d)) return divide_integers(c, Op::TruncDiv, d);
    Term quotient = operand_in(c, "self", d).as(ir::compute_type(d)) / right_operand(c, d);
    // bf16 and f16 tensors on the right round the quotient before it is truncated.
    c.require(!ir::is_half(d) || has_one_element(c.operand("other")) == true);
    c.done(trunc(quotient).as(d));
}

void floor_divide(Lowering& c) { floor_division(c); }
void remainder(Lowering& c) { remainder_like(c, Op::Mod); }
void fmod(Lowering& c) { remainder_like(c, Op::Fmod); }

void pow_scalar(Lowering& c) {
    DType d = c.common_dtype({c.tensor("self"), c.number("exponent")});
    Term x(c, c.to(c.tensor("self"), d, c.sizes()));
    std::optional<double> n = c.number("exponent").real();
    c.require(n.has_value());
    if (*n == 0) return c.done(x.like(1));
    if (*n == 1) return c.done(x);
    if (ir::is_float(d)) return c.done(float_power(c, x, *n, d).as(d));
    c.require(ir::is_int(d) && c.number("exponent").integer() && *n > 0 && *n <= 64);
    c.done(integer_power(x, static_cast<int64_t>(*n)));
}

void pow_tensor(Lowering& c) {
    DType d = c.common_dtype({c.operand("self"), c.operand("exponent")});
    c.require(ir::is_float(d));
    c.done(binary(Op::Pow, operand_in(c, "self", d), operand_in(c, "exponent", d)));
}

void pow_of_scalar(Lowering& c) {
    DType d = c.common_dtype({c.number("self"), c.tensor("exponent")});
    if (c.number("self").real() == 1.0) return c.done(c.fill(Number(1), d, c.sizes()));
    c.require(ir::is_float(d));
    c.done(binary(Op::Pow, operand_in(c, "self", d), operand_in(c, "exponent", d)));
}

// Two operands computed in their common float dtype.
void binary_float(Lowering& c, Op op) {
    DType d = c.common_dtype({c.operand("self"), c.operand("other")});
    if (!ir::is_float(d)) d = c.dtype();
    c.require(ir::is_float(d));
    c.done(binary(op, operand_in(c, "self", d), operand_in(c, "other", d)));
}

// maximum, minimum and fmax, fmin, which differ in NaN only.
void extremum(Lowering& c, Op op) {
    DType d = c.common_dtype({c.operand("self"), c.operand("other")});
    bool max = op == Op::Maximum || op == Op::Fmax;
    if (d == DType::Bool) {
        op = max ? Op::Or : Op::And;
    } else if (!ir::is_float(d)) {
        op = max ? Op::Maximum : Op::Minimum;
    }
    c.done(binary(op, operand_in(c, "self", d), operand_in(c, "other", d)));
}

// The argument `value`, a number (which the graph may compute), times y.
static Term scaled_by_value(Lowering& c, Term y) {
    Operand value = c.operand("value");
    DType d = y.dtype();
    c.require(!value.tensor() || value.tensor()->type.dtype == d);
    return is_one(value) ? y : Term(c, c.to(value, d, c.sizes())) * y;
}

void addcmul(Lowering& c) {
    DType d = c.common_dtype({c.tensor("self"), c.tensor("tensor1"), c.tensor("tensor2")});
    c.require(d != DType::Bool);
    DType compute = ir::compute_type(d);
    Term x = operand_in(c, "self", d).as(compute), y = operand_in(c, "tensor1", d).as(compute),
         z = operand_in(c, "tensor2", d).as(compute);
    y = scaled_by_value(c, y);
    // (the compiler of eager's kernel contracts it)
    c.done((ir::is_float(compute) ? fma(y, z, x) : x + y * z).as(d));
}

void addcdiv(Lowering& c) {
    DType d = c.common_dtype({c.tensor("self"), c.tensor("tensor1"), c.tensor("tensor2")});
    c.require(ir::is_float(d));
    DType compute = ir::compute_type(d);
    Term x = operand_in(c, "self", d).as(compute), y = operand_in(c, "tensor1", d).as(compute),
         z = operand_in(c, "tensor2", d).as(compute);
    y = scaled_by_value(c, y);
    c.done((x + y / z).as(d));
}

// Exact at both ends, as eager's: from the nearer one.
void lerp(Lowering& c) {
    Term x = input(c, "self"), y = input(c, "end"), w = input(c, "weight");
    c.require(c.tensor("self")->type.dtype == c.dtype() && c.tensor("end")->type.dtype == c.dtype());
    Term d = y - x;
    c.done(where(lt(abs(w), 0.5), fma(w, d, x), fma(w - 1, d, y)));
}

void xlogy(Lowering& c) {
    DType d = c.common_dtype({c.operand("self"), c.operand("other")});
    if (!ir::is_float(d)) d = c.dtype();
    c.require(ir::is_float(d));
    Term x = operand_in(c, "self", d), y = operand_in(c, "other", d);
    c.done(where(isnan(y), y, where(eq(x, 0), x.like(0), x * log(y))));
}

void xlog1py(Lowering& c) {
    DType d = c.common_dtype({c.operand("self"), c.operand("other")});
    if (!ir::is_float(d)) d = c.dtype();
    c.require(ir::is_float(d));
    Term x = operand_in(c, "self", d), y = operand_in(c, "other", d);
    c.done(where(isnan(y), y, where(eq(x, 0), x.like(0), x * log1p(y))));
}

void logaddexp(Lowering& c) {
    Term x = input_rounded(c, "self"), y = input_rounded(c, "other");
    Term infinite = both(eq(x, y), unary(Op::IsInf, x));
    c.done(where(infinite, x, maximum(x, y) + log1p(exp(-abs(x - y)))));
}

void logaddexp2(Lowering& c) {
    Term x = input_rounded(c, "self"), y = input_rounded(c, "other");
    Term infinite = both(eq(x, y), unary(Op::IsInf, x));
    c.done(where(infinite, x, maximum(x, y) + log1p(exp2(-abs(x - y))) * (1 / std::log(2.0))));
}

void heaviside(Lowering& c) {
    c.require(c.tensor("self")->type.dtype == c.dtype() && c.tensor("values")->type.dtype == c.dtype() &&
              c.dtype() != DType::Bool);
    Term x = operand_in(c, "self", c.dtype()), y = operand_in(c, "values", c.dtype());
    c.done(where(eq(x, 0), y, gt(x, 0).as(c.dtype())));
}

}  // namespace braze::passes::decomposition::rules
