#include "core/codegen/cpu/plan.h"

#include <algorithm>
#include <limits>

#include "core/codegen/cpu/target.h"
#include "core/codegen/cpu/vector_math.h"
#include "core/support/error.h"

namespace braze::codegen {

using ir::DType;
using ir::Op;
using loops::Level;
using loops::Scalar;
using loops::ScalarKind;

std::optional<int64_t> upper_bound(const Expr& e) {
    int64_t hi = e.range().hi;
    if (hi == std::numeric_limits<int64_t>::max()) return std::nullopt;
    return hi;
}

Plan::Plan(const loops::Kernel& kernel, const CpuTarget& target) : k_(kernel), target_(target) {
    BRAZE_CHECK(k_.outer.size() <= kMaxAxes && k_.inner.size() <= kMaxAxes, "kernel " + k_.name + " has too many axes");
    for (size_t i = 0; i < k_.outer.size(); ++i) {
        outer_.push_back(loops::outer_axis(static_cast<int>(i), k_.outer[i]));
        symbol_depends_[outer_.back()] = outer_bit(i);
    }
    for (size_t i = 0; i < k_.inner.size(); ++i) {
        inner_.push_back(loops::inner_axis(static_cast<int>(i), k_.inner[i]));
        symbol_depends_[inner_.back()] = inner_bit(i);
    }
    find_depends();
    choose_axis();
    find_transposed();
    choose_lanes();
    widen();
    choose_tail();
    choose_unroll();
}

Depends Plan::depends(const Expr& e) const {
    std::vector<Expr> symbols;
    e.symbols(symbols);
    Depends d = 0;
    for (const Expr& s : symbols) {
        auto it = symbol_depends_.find(s);
        if (it != symbol_depends_.end()) d |= it->second;
    }
    return d;
}

int Plan::index_scalar(const Expr& symbol) const {
    auto it = index_of_.find(symbol);
    return it == index_of_.end() ? -1 : it->second;
}

void Plan::find_depends() {
    constexpr Depends outer_bits = kPoint - 1;
    for (size_t i = 0; i < k_.scalars.size(); ++i) {
        const Scalar& s = k_.scalars[i];
        Depends d = depends(s.address);
        for (int a : s.args) d |= depends_[static_cast<size_t>(a)];
        if (s.mask >= 0) d |= depends_[static_cast<size_t>(s.mask)];
        if (s.kind == ScalarKind::Load) {
            if (s.level == Level::Inner) d |= kStage;
            if (k_.params[static_cast<size_t>(s.param)].written) d |= kPinned;
        }
        if (s.kind == ScalarKind::Reduce) d = (d & outer_bits) | kPoint;
        depends_.push_back(d);
        if (s.kind == ScalarKind::IndexOf) {
            symbol_depends_[s.symbol] = d;
            index_of_[s.symbol] = static_cast<int>(i);
        }
    }
}

void Plan::choose_axis() {
    along_outer = k_.vectorize == loops::Vectorize::OuterLast || k_.inner.empty();
    if (along_outer && k_.outer.empty()) along_outer = false;
    has_axis = along_outer ? !k_.outer.empty() : !k_.inner.empty();
    if (!has_axis) return;
    axis = along_outer ? outer_.back() : inner_.back();
    extent = along_outer ? k_.outer.back() : k_.inner.back();
    axis_bit = along_outer ? outer_bit(k_.outer.size() - 1) : inner_bit(k_.inner.size() - 1);
}

// By the widest type that is computed in. 64-bit integers count only where there is no 32-bit work beside them: next to
// floats they are indices, and take several registers.
void Plan::choose_lanes() {
    int bytes = vector_bytes(target_.isa);
    unroll.assign(k_.stages.size(), 1);
    if (!has_axis || bytes == 0) return;
    int widest = 1;
    bool long_integers = false;
    for (size_t i = 0; i < k_.scalars.size(); ++i) {
        const Scalar& s = k_.scalars[i];
        if (!varies(static_cast<int>(i)) && s.kind != ScalarKind::Reduce) continue;
        if (s.kind == ScalarKind::Index || s.kind == ScalarKind::IndexOf || s.kind == ScalarKind::Check) continue;
        if (s.kind == ScalarKind::Reduce && (s.op == Op::ArgMax || s.op == Op::ArgMin)) {
            widest = std::max(widest, 4);  // its indices are long
            continue;
        }
        if (s.dtype == DType::I64 || s.dtype == DType::U64)
            long_integers = true;
        else
            widest = std::max(widest, ir::size_of(s.dtype));
    }
    if (long_integers && widest < 4) widest = 8;
    lanes = std::max(1, bytes / widest);
    if (!transposed.empty()) lanes = std::min(lanes, 16);
    // a short axis takes a shorter vector
    if (std::optional<int64_t> hi = upper_bound(extent)) {
        bool masks = target_.isa == Isa::Avx512;
        while (lanes > 1 && (masks ? lanes / 2 >= *hi : lanes > *hi)) lanes /= 2;
    }
}

void Plan::find_transposed() {
    if (along_outer || !has_axis || k_.inner.size() != 1 || k_.outer.empty() || k_.stages.size() != 1) return;
    if (vector_bytes(target_.isa) == 0) return;
    if (upper_bound(extent).value_or(64) < 8 || upper_bound(k_.outer.back()).value_or(64) < 8) return;
    for (const loops::Store& s : k_.stages[0].stores)
        if (s.level != Level::Inner) return;
    for (const Scalar& s : k_.scalars)
        if (s.kind == ScalarKind::Reduce) return;
    const Expr& row = outer_.back();
    for (size_t i = 0; i < k_.scalars.size(); ++i) {
        const Scalar& s = k_.scalars[i];
        if (s.kind != ScalarKind::Load || s.mask >= 0 || k_.params[static_cast<size_t>(s.param)].written) continue;
        auto across = s.address.affine_in(axis), along = s.address.affine_in(row);
        if (!across || !along || along->first != Expr(1) || varies(across->first) || varies(across->second)) continue;
        auto stride = across->first.as_const();
        if (stride && std::abs(*stride) < 4) continue;
        if ((depends(across->first) & outer_bit(k_.outer.size() - 1)) == 0) transposed.push_back(static_cast<int>(i));
    }
}

double Plan::cost(int scalar) const {
    const Scalar& s = k_.scalars[static_cast<size_t>(scalar)];
    if (!varies(scalar) && s.kind != ScalarKind::Reduce) return 0.1;
    switch (s.kind) {
        case ScalarKind::Const: return 0;
        case ScalarKind::Load: {
            if (!varies(s.address)) return 1;
            auto form = lane_form(s.address, lanes, true);
            return form && (form->stride == Expr(1) || form->stride == Expr(0)) ? 1 : 12;
        }
        case ScalarKind::Cast: return ir::is_half(s.dtype) ? 4 : 1;
        case ScalarKind::Index:
        case ScalarKind::IndexOf: return 2;
        case ScalarKind::Check: return 4;
        case ScalarKind::Reduce: return s.op == Op::ArgMax || s.op == Op::ArgMin ? 6 : 0;
        default: break;
    }
    switch (s.op) {
        case Op::Div:
        case Op::Sqrt:
        case Op::Reciprocal: return 3;
        case Op::Exp:
        case Op::Exp2: return 12;
        case Op::Sigmoid:
        case Op::Log: return 16;
        default: break;
    }
    if (VectorMath::inlined(s.op, target_)) return 24;
    if (ir::kind(s.op) == ir::OpKind::Unary && s.op >= Op::Exp && s.op <= Op::Erfc && s.op != Op::Rsqrt) return 30;
    return 1.5;
}

// Of everything a stage evaluates for one vector, in instructions.
double Plan::stage_cost(size_t st) const {
    std::vector<bool> seen(k_.scalars.size());
    std::vector<int> work;
    auto reach = [&](int i) {
        if (i >= 0 && !seen[static_cast<size_t>(i)]) {
            seen[static_cast<size_t>(i)] = true;
            work.push_back(i);
        }
    };
    auto reach_symbols = [&](const Expr& e) {
        std::vector<Expr> symbols;
        e.symbols(symbols);
        for (const Expr& x : symbols) reach(index_scalar(x));
    };
    double total = 0;
    for (int r : k_.stages[st].reduces) {
        total += cost(r);
        reach(k_.scalars[static_cast<size_t>(r)].args[0]);
    }
    for (const loops::Store& x : k_.stages[st].stores) {
        if (x.level != Level::Inner && !along_outer) continue;
        reach(x.scalar);
        reach_symbols(x.address);
    }
    while (!work.empty()) {
        int i = work.back();
        work.pop_back();
        const Scalar& s = k_.scalars[static_cast<size_t>(i)];
        total += cost(i);
        if (s.kind != ScalarKind::Reduce)
            for (int a : s.args) reach(a);
        reach(s.mask);
        reach_symbols(s.address);
    }
    return total;
}

// A long body is one chain of dependent instructions. Vectors of two registers are two chains side by side, without the
// cost of a second copy until the last steps of compilation.
void Plan::widen() {
    if (!has_axis || lanes < 4 || lanes > 32 || !transposed.empty()) return;
    double chain = 0;
    for (size_t i = 0; i < k_.scalars.size(); ++i) {
        const Scalar& s = k_.scalars[i];
        if (s.kind == ScalarKind::Unary && s.dtype == DType::F32 && VectorMath::inlined(s.op, target_))
            chain += cost(static_cast<int>(i));
        if (s.kind == ScalarKind::Load && cost(static_cast<int>(i)) > 1) return;  // element by element
    }
    if (chain < 20) return;
    int wide = 2 * lanes;
    if (upper_bound(extent).value_or(2 * wide) < 2 * wide) return;
    if (auto n = extent.as_const(); n && !along_outer && *n % lanes == 0 && *n % wide != 0) return;
    auto keeps_form = [&](const Expr& e) { return !lane_form(e, lanes, true) || lane_form(e, wide, true); };
    for (const Scalar& s : k_.scalars)
        if (s.kind == ScalarKind::Load && !keeps_form(s.address)) return;
    for (const loops::Stage& st : k_.stages)
        for (const loops::Store& x : st.stores)
            if (!keeps_form(x.address)) return;
    lanes = wide;
}

// Enough accumulators to hide their latency. Other bodies overlap by themselves, and every copy costs compile time.
void Plan::choose_unroll() {
    one_body.assign(k_.stages.size(), false);
    if (!has_axis || lanes == 1) return;
    double sum = 0, long_body = target_.isa == Isa::Avx512 ? 6 : 16;  // where the mask hardly counts
    for (size_t st = 0; st < k_.stages.size(); ++st) {
        double total = stage_cost(st);
        sum += total;
        bool reduces = !k_.stages[st].reduces.empty();
        int u = 1;
        if (reduces)
            u = along_outer && total <= 4 ? 8 /* long pieces of a row at a time */
                : total <= 8              ? 4
                : total <= 16             ? 2
                                          : 1;
        if (std::optional<int64_t> hi = upper_bound(extent))
            while (u > 1 && int64_t{u} * lanes > *hi) u /= 2;
        unroll[st] = u;
        one_body[st] = u == 1 && masked_tail && total > long_body;
    }
    point_unroll = *std::min_element(unroll.begin(), unroll.end());
    point_one_body = point_unroll == 1 && masked_tail && sum > long_body;
}

void Plan::choose_tail() {
    bool native = target_.isa == Isa::Avx512 || target_.isa == Isa::Avx2;
    bool strided_store = false;
    auto visit = [&](DType d, const Expr& address, bool value_varies, bool is_store) {
        if (!varies(address) && !value_varies) return;
        if (target_.isa == Isa::Avx2 && ir::size_of(d) < 4) native = false;
        auto form = lane_form(address, lanes, true);
        if (!form || form->stride != Expr(1)) strided_store = strided_store || is_store;
        if (along_outer && lanes > 1 && form && !lane_form(address, lanes, false)) aligned = true;
    };
    for (size_t i = 0; i < k_.scalars.size(); ++i) {
        const Scalar& s = k_.scalars[i];
        if (s.kind == ScalarKind::Load) visit(s.dtype, s.address, varies(static_cast<int>(i)), false);
    }
    for (const loops::Stage& st : k_.stages)
        for (const loops::Store& x : st.stores)
            visit(k_.params[static_cast<size_t>(x.param)].dtype, x.address, varies(x.scalar), true);
    masked_tail = lanes > 1 && native && (target_.isa == Isa::Avx512 || !strided_store);
}

}  // namespace braze::codegen
