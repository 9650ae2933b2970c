// Tensors made from numbers: fills, ranges, identity and triangles.
#include <cmath>

#include "core/passes/decompose/rules.h"
#include "core/passes/decompose/term.h"

namespace braze::passes::decomposition::rules {

namespace {

void filled(Lowering& c, const Operand& value) {
    c.require_plain_cpu();
    if (Value* v = value.tensor()) {  // a number that the graph computes
        c.require(ir::is_float(c.dtype()) && ir::is_float(v->type.dtype));
        return c.done(c.to(v, c.dtype(), c.sizes()));
    }
    const Number& n = value.number();
    // A fraction filled into integers is truncated.
    if (n.is_float() && ir::is_int(c.dtype())) {
        c.require(std::abs(*n.real()) < 9007199254740992.0);
        return c.done(c.fill(Number(std::trunc(*n.real())), c.dtype(), c.sizes()));
    }
    c.done(c.fill(n, c.dtype(), c.sizes()));
}

// start, start + step, ...: exact in every dtype that can hold the numbers.
void range(Lowering& c, const Number& start, const Number& step) {
    c.require(c.dtype() != DType::Bool);
    c.require_plain_cpu();
    std::optional<Expr> first = start.expr(), delta = step.expr();
    c.require(first && delta);
    if (ir::is_int(c.dtype())) {
        c.require(!start.is_float() && !step.is_float());
    } else {
        // Eager computes start + step * i in a wider type and rounds; whole numbers are exact while they are small.
        Expr last = *first + *delta * c.sizes()[0];
        double limit = c.dtype() == DType::F64   ? 0x1p53
                       : c.dtype() == DType::F32 ? 0x1p24
                       : c.dtype() == DType::F16 ? 0x1p11
                                                 : 0x1p8;
        for (const Expr& e : {*first, last}) {
            c.require(e.as_const() && std::abs(static_cast<double>(e.value())) <= limit);
        }
    }
    c.done(c.b.iota(DType::I64, c.sizes(), 0, *first, *delta));
}

// Column minus row, over the last two axes.
Term diagonal_number(Lowering& c, const Sizes& sizes) {
    int rank = static_cast<int>(sizes.size());
    return Term(c, c.b.iota(DType::I64, sizes, rank - 1)) - Term(c, c.b.iota(DType::I64, sizes, rank - 2));
}

Term diagonal_offset(Lowering& c, const Sizes& sizes) {
    return {c, c.b.scalar_int(DType::I64, c.integer("diagonal"), sizes)};
}

}  // namespace

void zeros(Lowering& c) { filled(c, Number(0)); }
void ones(Lowering& c) { filled(c, Number(1)); }
void full(Lowering& c) { filled(c, c.operand("fill_value")); }
void fill(Lowering& c) {
    if (!c.operand("value").tensor()) return filled(c, c.number("value"));
    c.require(c.tensor("value")->type.rank() == 0);
    c.done(c.tensor("value"));
}
void scalar_tensor(Lowering& c) { filled(c, c.operand("s")); }

void arange(Lowering& c) { range(c, 0, 1); }
void arange_start(Lowering& c) { range(c, c.number("start"), 1); }
void arange_step(Lowering& c) { range(c, c.number("start"), c.given("step") ? c.number("step") : Number(1)); }

void eye(Lowering& c) {
    c.require_plain_cpu();
    c.done(eq(diagonal_number(c, c.sizes()), 0));
}

void tril(Lowering& c) {
    Term x(c, c.tensor("self"));
    c.done(where(le(diagonal_number(c, c.sizes()), diagonal_offset(c, c.sizes())), x, 0));
}

void triu(Lowering& c) {
    Term x(c, c.tensor("self"));
    c.done(where(ge(diagonal_number(c, c.sizes()), diagonal_offset(c, c.sizes())), x, 0));
}

}  // namespace braze::passes::decomposition::rules
