// Elementwise rules. Floating point: only what holds bit for bit, for NaN, infinities and -0.0 too.
#include <cmath>

#include "core/ir/op.h"
#include "core/passes/fold/folder.h"

namespace braze::passes::folding {

namespace {

using ir::DType;

// Operators whose result is the same wherever it is computed (no libm).
bool is_exact(Op op) {
    switch (op) {
        case Op::Neg:
        case Op::Abs:
        case Op::Sqrt:
        case Op::Floor:
        case Op::Ceil:
        case Op::Round:
        case Op::Trunc:
        case Op::Relu:
        case Op::Sign:
        case Op::BitNot:
        case Op::LogicalNot:
        case Op::IsNan:
        case Op::IsInf:
        case Op::SignBit:
        case Op::Add:
        case Op::Sub:
        case Op::Mul:
        case Op::Div:
        case Op::Maximum:
        case Op::Minimum:
        case Op::Eq:
        case Op::Ne:
        case Op::Lt:
        case Op::Le:
        case Op::Gt:
        case Op::Ge:
        case Op::And:
        case Op::Or:
        case Op::Xor:
        case Op::Where: return true;
        default: return false;
    }
}

// The conversion of other floats to integers is not defined.
bool in_range(double x, DType d) {
    int bits = ir::size_of(d) * 8 - (ir::is_signed(d) ? 1 : 0);
    return x > (ir::is_signed(d) ? -std::ldexp(1.0, bits) - 1 : -1.0) && x < std::ldexp(1.0, bits);
}

bool fold_values(Node& n, Folder& f) {
    ir::Number args[3];
    for (size_t i = 0; i < n.operands.size(); ++i) {
        auto x = f.filled_with(n.operands[i]);
        if (!x) return false;
        args[i] = *x;
    }
    DType result = n.results[0]->type.dtype, d = n.operands[n.op == Op::Where ? 1 : 0]->type.dtype;
    if (!ir::has_code(d) || !ir::has_code(result)) return false;
    if (n.op == Op::Cast) {
        if (ir::is_int(result) && ir::is_float(d) && !in_range(args[0].f, result)) return false;
        return f.substitute_scalar(n, ir::cast_number(d, result, args[0]));
    }
    if (!is_exact(n.op)) return false;
    DType compute = ir::compute_type(d);
    ir::Number y = ir::apply(n.op, compute, args);
    return f.substitute_scalar(n, ir::returns_bool(n.op) ? y : ir::cast_number(compute, d, y));
}

bool is_value(const std::optional<ir::Number>& x, DType d, int64_t v) {
    if (!x) return false;
    return ir::is_float(d) ? x->f == static_cast<double>(v) : x->i == v;
}

// +0.0 or -0.0 exactly; an integer 0 counts as both.
bool is_zero(const std::optional<ir::Number>& x, DType d, bool negative) {
    if (!is_value(x, d, 0)) return false;
    return !ir::is_float(d) || std::signbit(x->f) == negative;
}

bool fold_neutral(Node& n, Folder& f) {
    Value *a = n.operands[0], *b = n.operands[1];
    DType d = a->type.dtype;
    if (!ir::has_code(d)) return false;
    auto x = f.filled_with(a), y = f.filled_with(b);
    if (!x && !y) return false;
    switch (n.op) {
        case Op::Add:  // x + -0.0 is x; -0.0 + 0.0 is 0.0
            if (is_zero(y, d, true)) return f.stand_in(n, a);
            return is_zero(x, d, true) && f.stand_in(n, b);
        case Op::Sub:  // x - 0.0 is x
            return is_zero(y, d, false) && f.stand_in(n, a);
        case Op::Mul:
            if (is_value(y, d, 1)) return f.stand_in(n, a);
            return is_value(x, d, 1) && f.stand_in(n, b);
        case Op::Div: return is_value(y, d, 1) && f.stand_in(n, a);
        case Op::Or:
        case Op::Xor:
        case Op::Shl:
        case Op::Shr: return is_zero(y, d, false) && f.stand_in(n, a);
        case Op::And: return d == DType::Bool && is_value(y, d, 1) && f.stand_in(n, a);
        default: return false;
    }
}

bool fold_involution(Node& n, Folder& f) {
    const Node& inner = *n.operands[0]->node;
    bool undoes =
        n.op == Op::Neg || n.op == Op::BitNot ||
        (n.op == Op::LogicalNot && inner.op == Op::LogicalNot && inner.operands[0]->type.dtype == DType::Bool);
    if (inner.op == n.op && undoes) return f.stand_in(n, inner.operands[0]);
    bool idempotent = n.op == Op::Abs || n.op == Op::Relu || n.op == Op::Floor || n.op == Op::Ceil ||
                      n.op == Op::Trunc || n.op == Op::Round;
    return inner.op == n.op && idempotent && f.stand_in(n, n.operands[0]);
}

int significant_bits(DType d) {  // integers up to 2**bits are exact
    switch (d) {
        case DType::Bool: return 1;
        case DType::BF16: return 8;
        case DType::F16: return 11;
        case DType::F32: return 24;
        case DType::F64: return 53;
        default: return ir::size_of(d) * 8 - (ir::is_signed(d) ? 1 : 0);
    }
}

// Every value of `from` is one of `to`, the same number.
bool lossless(DType from, DType to) {
    if (!ir::has_code(from) || !ir::has_code(to)) return false;
    if (from == to) return true;
    if (to == DType::Bool) return false;
    if (from == DType::Bool) return true;
    if (ir::is_float(from)) {
        if (!ir::is_float(to)) return false;
        return to == DType::F64 || (to == DType::F32 && ir::is_half(from));
    }
    if (ir::is_int(to) && ir::is_signed(from) && !ir::is_signed(to)) return false;
    return significant_bits(from) <= significant_bits(to);
}

bool fold_cast(Node& n, Folder& f) {
    Value* x = n.operands[0];
    DType to = n.results[0]->type.dtype;
    if (x->type.dtype == to) return f.stand_in(n, x);
    const Node& inner = *x->node;
    if (inner.op != Op::Cast) return false;
    Value* origin = inner.operands[0];
    DType from = origin->type.dtype, middle = x->type.dtype;
    if (!lossless(from, middle)) return false;
    if (from == to) return f.stand_in(n, origin);
    // Floats that are out of an integer's range convert otherwise than integers do: the middle must be of the origin's
    // family.
    bool same_family = from == DType::Bool || ir::is_float(from) == ir::is_float(middle);
    if (!same_family || !f.composable(n, inner)) return false;
    return f.substitute(n, Op::Cast, {origin}, {});
}

bool fold_where(Node& n, Folder& f) {
    if (n.operands[1] == n.operands[2]) return f.stand_in(n, n.operands[1]);
    auto c = f.filled_with(n.operands[0]);
    return c && f.stand_in(n, n.operands[c->i ? 1 : 2]);
}

}  // namespace

bool fold_elementwise(Node& n, Folder& f) {
    if (fold_values(n, f)) return true;
    switch (ir::kind(n.op)) {
        case ir::OpKind::Unary: return fold_involution(n, f);
        case ir::OpKind::Binary: return fold_neutral(n, f);
        case ir::OpKind::Cast: return fold_cast(n, f);
        default: return n.op == Op::Where && fold_where(n, f);
    }
}

}  // namespace braze::passes::folding
