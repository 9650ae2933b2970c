#include "core/schedule/scalars.h"

#include <bit>

#include "core/ir/number.h"
#include "core/ir/op.h"
#include "core/support/error.h"

namespace braze::schedule {

using ir::DType;
using ir::Op;
using loops::Scalar;
using loops::ScalarKind;

namespace {

constexpr size_t kMaxScalars = 20000;  // far beyond what the cluster limit allows: a runaway, not a program

uint64_t bits(const Scalar& s) {
    if (const int64_t* i = std::get_if<int64_t>(&s.value)) return static_cast<uint64_t>(*i);
    return std::bit_cast<uint64_t>(std::get<double>(s.value)) + 0x9e3779b97f4a7c15;
}

size_t hash(const Scalar& s) {
    size_t h = static_cast<size_t>(s.kind) * 31 + static_cast<size_t>(s.dtype);
    auto mix = [&](size_t x) { h = (h ^ x) * 0x9e3779b97f4a7c15 + (h >> 29U); };
    mix(static_cast<size_t>(s.op));
    for (int a : s.args) mix(static_cast<size_t>(a));
    mix(static_cast<size_t>(s.param) + 1);
    mix(s.address.hash());
    mix(static_cast<size_t>(s.mask) + 1);
    mix(bits(s));
    return h;
}

bool same(const Scalar& a, const Scalar& b) {
    return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.args == b.args && a.param == b.param &&
           a.address == b.address && a.mask == b.mask && bits(a) == bits(b);
}

}  // namespace

int Scalars::add(Scalar s) {
    const size_t h = hash(s);
    for (auto [it, end] = known_.equal_range(h); it != end; ++it)
        if (same(list[static_cast<size_t>(it->second)], s)) return it->second;
    if (list.size() >= kMaxScalars)
        throw LimitError("a kernel would need more than " + std::to_string(kMaxScalars) + " scalars");
    list.push_back(std::move(s));
    known_.emplace(h, static_cast<int>(list.size()) - 1);
    return static_cast<int>(list.size()) - 1;
}

int Scalars::constant(DType d, double value) {
    Scalar s{ScalarKind::Const, d};
    if (ir::is_float(d))
        s.value = ir::cast_number(DType::F64, d, {.f = value}).f;
    else
        s.value = ir::cast_number(DType::F64, d, {.f = value}).i;
    return add(std::move(s));
}

int Scalars::constant_int(DType d, int64_t value) {
    Scalar s{ScalarKind::Const, d};
    if (ir::is_float(d))
        s.value = ir::cast_number(DType::I64, d, {.i = value}).f;
    else
        s.value = ir::cast_number(DType::I64, d, {.i = value}).i;
    return add(std::move(s));
}

int Scalars::index(const Expr& e) {
    if (auto c = e.as_const()) return constant_int(DType::I64, *c);
    Scalar s{ScalarKind::Index, DType::I64};
    s.address = e;
    return add(std::move(s));
}

int Scalars::load(int buffer, DType d, const Expr& address, int mask) {
    Scalar s{ScalarKind::Load, d};
    s.param = buffer;
    s.address = address;
    s.mask = mask;
    if (!ir::is_float(d)) s.value = int64_t{0};
    return add(std::move(s));
}

int Scalars::raw(Op op, DType d, std::vector<int> args) {
    Scalar s{ScalarKind::Unary, d};
    if (args.size() == 2) s.kind = ScalarKind::Binary;
    if (args.size() == 3) s.kind = ScalarKind::Ternary;
    s.op = op;
    s.args = std::move(args);
    return add(std::move(s));
}

int Scalars::apply(Op op, DType d, std::vector<int> args) {
    for (int& a : args) a = widened(a);
    if (op == Op::Where) return cast(where(args[0], args[1], args[2]), d);
    const DType computed = ir::returns_bool(op) ? DType::Bool : dtype(args[0]);
    return cast(raw(op, computed, std::move(args)), d);
}

int Scalars::cast(int s, DType to) {
    const DType from = dtype(s);
    if (from == to) return s;
    const Scalar& x = list[static_cast<size_t>(s)];
    if (x.kind == ScalarKind::Const) {
        ir::Number n;
        if (const int64_t* i = std::get_if<int64_t>(&x.value))
            n.i = *i;
        else
            n.f = std::get<double>(x.value);
        const ir::Number y = ir::cast_number(from, to, n);
        return ir::is_float(to) ? constant(to, y.f) : constant_int(to, y.i);
    }
    // The half types are only ever converted to and from f32, as eager does.
    if (ir::is_half(from) && to != DType::F32) return cast(cast(s, DType::F32), to);
    if (ir::is_half(to) && from != DType::F32) return cast(cast(s, DType::F32), to);
    if (ir::is_half(to) && x.kind == ScalarKind::Cast && dtype(x.args[0]) == to) return x.args[0];  // up and down again
    Scalar c{ScalarKind::Cast, to};
    c.args = {s};
    return add(std::move(c));
}

int Scalars::reduce(Op op, DType accumulate, int arg) {
    Scalar s{ScalarKind::Reduce, op == Op::ArgMax || op == Op::ArgMin ? DType::I64 : accumulate};
    s.op = op;
    s.args = {cast(arg, accumulate)};
    return add(std::move(s));
}

int Scalars::both(int a, int b) {
    if (a < 0 || a == b) return b;
    return b < 0 ? a : raw(Op::And, DType::Bool, {a, b});
}

int Scalars::where(int cond, int a, int b) {
    if (a == b || cond < 0) return a;
    // A load under this very mask already has b's value elsewhere.
    const Scalar &x = list[static_cast<size_t>(a)], &y = list[static_cast<size_t>(b)];
    if (x.kind == ScalarKind::Load && x.mask == cond && y.kind == ScalarKind::Const && bits(x) == bits(y) &&
        x.dtype == y.dtype)
        return a;
    const DType d = dtype(a);
    return cast(raw(Op::Where, ir::compute_type(d), {cond, widened(a), widened(b)}), d);
}

Expr Scalars::indirect(int i, const Expr& size, int mask, bool wrap) {
    const int n = index(size), zero = constant_int(DType::I64, 0);
    if (wrap) {
        const int negative = raw(Op::Lt, DType::Bool, {i, zero});
        i = where(negative, raw(Op::Add, DType::I64, {i, n}), i);
    }
    int inside = both(raw(Op::Ge, DType::Bool, {i, zero}), raw(Op::Lt, DType::Bool, {i, n}));
    if (mask >= 0) inside = raw(Op::Or, DType::Bool, {raw(Op::LogicalNot, DType::Bool, {mask}), inside});
    Scalar check{ScalarKind::Check, DType::Bool};
    check.args = {inside};
    Scalar s{ScalarKind::IndexOf, DType::I64};
    s.args = {i, add(std::move(check))};
    const size_t before = list.size();
    s.symbol = Expr::axis("t" + std::to_string(symbols_), size);
    const int at = add(std::move(s));
    if (list.size() != before) ++symbols_;
    return list[static_cast<size_t>(at)].symbol;
}

}  // namespace braze::schedule
