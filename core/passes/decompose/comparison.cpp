// Comparisons, logic and bits, and what chooses elements by them: where, masked_fill, clamp.
#include <array>

#include "core/passes/decompose/rules.h"
#include "core/passes/decompose/term.h"

namespace braze::passes::decomposition::rules {

namespace {

Term operand_in(Lowering& c, const Operand& x, DType d) { return {c, c.to(x, d, c.sizes())}; }

bool is_tensor(const std::optional<Operand>& x) { return x && x->tensor(); }

// A bound of clamp: no number, a number or a tensor.
std::optional<Operand> bound(Lowering& c, std::string_view name) {
    if (!c.given(name)) return std::nullopt;
    return c.operand(name);
}

// Comparing with a number leaves NaN alone and -0.0 as it is; a tensor's NaN is passed on.
Term clamp_below(Lowering& c, Term x, const Operand& lo) {
    Term bound = operand_in(c, lo, x.dtype());
    if (lo.tensor() && ir::is_float(x.dtype())) return maximum(x, bound);
    return where(lt(x, bound), bound, x);
}

Term clamp_above(Lowering& c, Term x, const Operand& hi) {
    Term bound = operand_in(c, hi, x.dtype());
    if (hi.tensor() && ir::is_float(x.dtype())) return minimum(x, bound);
    return where(gt(x, bound), bound, x);
}

void clamp_between(Lowering& c, std::optional<Operand> lo, std::optional<Operand> hi) {
    c.require(c.dtype() != DType::Bool);
    DType d = c.dtype();
    for (const auto& x : {lo, hi}) {
        if (!x || x->tensor()) continue;
        std::optional<double> v = x->number().real();
        c.require(!v || *v == *v);  // a NaN bound fills
    }
    // The dtype of an in-place clamp is that of self, while it computes in the promoted one.
    DType common =
        lo && hi ? c.common_dtype({c.tensor("self"), *lo, *hi}) : c.common_dtype({c.tensor("self"), lo ? *lo : *hi});
    c.require(common == d);
    Term x = operand_in(c, c.tensor("self"), d);
    // With two tensors eager takes the lower bound first, and where they cross the upper one wins.
    if (is_tensor(lo) != is_tensor(hi) && lo && hi) c.decline();
    if (lo) x = clamp_below(c, x, *lo);
    if (hi) x = clamp_above(c, x, *hi);
    c.done(x);
}

}  // namespace

void compare(Lowering& c, ir::Op op) {
    Operand x = c.operand("self"), y = c.operand("other");
    std::array<Operand, 2> both_sides = {x, y};
    std::optional<DType> d = result_type(both_sides);
    c.require(d.has_value());
    if (*d == DType::Bool) d = DType::U8;  // compared as 0 and 1
    c.done(binary(op, operand_in(c, x, *d), operand_in(c, y, *d)));
}

// logical_and and its kin: true is whatever is not zero.
void logical(Lowering& c, ir::Op op) {
    c.done(binary(op, operand_in(c, c.operand("self"), DType::Bool), operand_in(c, c.operand("other"), DType::Bool)));
}

void logical_not(Lowering& c) { c.done(c.b.unary(Op::LogicalNot, c.tensor("self"))); }

void bitwise(Lowering& c, ir::Op op) {
    DType d = c.common_dtype({c.operand("self"), c.operand("other")});
    c.require(!ir::is_float(d));
    c.done(binary(op, operand_in(c, c.operand("self"), d), operand_in(c, c.operand("other"), d)));
}

void bitwise_not(Lowering& c) {
    Value* x = c.tensor("self");
    c.done(c.b.unary(x->type.dtype == DType::Bool ? Op::LogicalNot : Op::BitNot, x));
}

// Shifted by an amount outside the width, no bits are left but copies of the sign.
void shift(Lowering& c, ir::Op op) {
    DType d = c.common_dtype({c.operand("self"), c.operand("other")});
    c.require(ir::is_int(d));
    Term x = operand_in(c, c.operand("self"), d), n = operand_in(c, c.operand("other"), d);
    int width = 8 * ir::size_of(d);
    Term inside = lt(n, width);
    if (ir::is_signed(d)) inside = both(inside, ge(n, 0));
    Term shifted = binary(op, x, where(inside, n, 0));
    Term outside = op == Op::Shr && ir::is_signed(d) ? binary(op, x, x.like(width - 1)) : x.like(0);
    c.done(where(inside, shifted, outside));
}

void where_self(Lowering& c) {
    Value* cond = c.tensor("condition");
    c.require(cond->type.dtype == DType::Bool);
    c.done(where(operand_in(c, cond, DType::Bool), operand_in(c, c.operand("self"), c.dtype()),
                 operand_in(c, c.operand("other"), c.dtype())));
}

void masked_fill(Lowering& c) {
    Value* mask = c.tensor("mask");
    c.require(mask->type.dtype == DType::Bool && c.tensor("self")->type.dtype == c.dtype());
    Operand value = c.operand("value");
    c.require(!value.tensor() || value.tensor()->type.rank() == 0);
    c.done(where(operand_in(c, mask, DType::Bool), operand_in(c, value, c.dtype()),
                 operand_in(c, c.tensor("self"), c.dtype())));
}

void clamp(Lowering& c) { clamp_between(c, bound(c, "min"), bound(c, "max")); }
void clamp_min(Lowering& c) { clamp_between(c, c.operand("min"), std::nullopt); }
void clamp_max(Lowering& c) { clamp_between(c, std::nullopt, c.operand("max")); }

void hardtanh(Lowering& c) {
    c.require(c.tensor("self")->type.dtype == c.dtype());
    clamp_between(c, c.number("min_val"), c.number("max_val"));
}

}  // namespace braze::passes::decomposition::rules
