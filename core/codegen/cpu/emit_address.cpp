// Index expressions and pointers.
#include <algorithm>
#include <limits>

#include "core/codegen/cpu/emitter.h"
#include "core/support/error.h"

namespace braze::codegen {

using ir::Op;
using shapes::ExprKind;
using shapes::Range;

namespace {

bool is_sum(const Expr& e) { return e.kind() == ExprKind::Add; }

}  // namespace

// Rounds down. A divisor that may be 0 belongs to an empty axis; it must not trap where it is hoisted to.
llvm::Value* Emitter::divide(V a, V b, Range range_a, Range range_b, bool want_mod) {
    bool natural = range_a.lo >= 0 && range_b.lo >= 0;
    if (natural && range_b.lo < 1) b = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, b, i64(1));
    if (natural) {
        constexpr int64_t kSmall = std::numeric_limits<uint32_t>::max();
        if (range_a.hi <= kSmall && range_b.hi <= kSmall) {  // shorter divisions are faster
            V x = b_.CreateTrunc(a, b_.getInt32Ty()), y = b_.CreateTrunc(b, b_.getInt32Ty());
            return b_.CreateZExt(want_mod ? b_.CreateURem(x, y) : b_.CreateUDiv(x, y), b_.getInt64Ty());
        }
        return want_mod ? b_.CreateURem(a, b) : b_.CreateUDiv(a, b);
    }
    return ops_.apply(want_mod ? Op::Mod : Op::FloorDiv, DType::I64, {a, b});
}

llvm::Value* Emitter::index(const Expr& e) {
    if (auto c = e.as_const()) return i64(*c);
    size_t level = level_of(depends(e));
    auto found = levels_[level].exprs.find(e);
    if (found != levels_[level].exprs.end()) return found->second;
    const std::vector<Expr>& xs = e.operands();
    V result = nullptr;
    switch (e.kind()) {
        case ExprKind::Symbol: {
            int scalar = plan_.index_scalar(e);
            if (scalar >= 0) {
                result = value(scalar)[0];
                break;
            }
            auto at = std::find(k_.symbols.begin(), k_.symbols.end(), e);
            BRAZE_CHECK(at != k_.symbols.end(), "kernel " + k_.name + ": symbol " + e.str() + " has no value here");
            result = at_level(0, [&] {
                return b_.CreateLoad(
                    b_.getInt64Ty(),
                    b_.CreateConstGEP1_64(b_.getInt64Ty(), symbols_, static_cast<uint64_t>(at - k_.symbols.begin())));
            });
            break;
        }
        case ExprKind::Add:
        case ExprKind::Mul:
        case ExprKind::Min:
        case ExprKind::Max: {
            // what belongs to outer levels first, so that it is combined there
            std::vector<Expr> sorted = xs;
            std::stable_sort(sorted.begin(), sorted.end(),
                             [&](const Expr& a, const Expr& b) { return level_of(depends(a)) < level_of(depends(b)); });
            Depends seen = 0;
            for (const Expr& x : sorted) {
                V v = index(x);
                seen |= depends(x);
                if (!result) {
                    result = v;
                    continue;
                }
                result = at_level(level_of(seen), [&] {
                    switch (e.kind()) {
                        case ExprKind::Add: return b_.CreateAdd(result, v);
                        case ExprKind::Mul: return b_.CreateMul(result, v);
                        case ExprKind::Min: return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, result, v);
                        default: return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, result, v);
                    }
                });
            }
            break;
        }
        case ExprKind::FloorDiv:
        case ExprKind::Mod: {
            V a = index(xs[0]), b = index(xs[1]);
            result =
                at_level(level, [&] { return divide(a, b, xs[0].range(), xs[1].range(), e.kind() == ExprKind::Mod); });
            break;
        }
        case ExprKind::Const: break;
    }
    levels_[level].exprs[e] = result;
    return result;
}

Expr Emitter::at_part(const Expr& e, int u) const {
    if (u == 0) return e;
    Expr moved = plan_.axis + Expr(int64_t{u} * lanes_.count);
    return e.substitute([&](const Expr& x) -> std::optional<Expr> {
        if (x == plan_.axis) return moved;
        return std::nullopt;
    });
}

llvm::Value* Emitter::index_lanes(const Expr& e, int u) {
    if (lanes_.count == 1) return index(at_part(e, u));
    llvm::Type* i64s = with_lanes(b_.getInt64Ty(), lanes_.count);
    bool narrow = fits_int32(e) && !plan_.lane_form(e, lanes_.count, lanes_.aligned);
    V v = index_lanes_as(e, u, narrow ? b_.getInt32Ty() : b_.getInt64Ty());
    return narrow ? b_.CreateSExt(v, i64s) : v;
}

llvm::Value* Emitter::index_lanes_as(const Expr& e, int u, llvm::Type* element) {
    int n = lanes_.count;
    auto convert = [&](V v) { return b_.CreateTruncOrBitCast(v, element); };
    if (auto form = plan_.lane_form(e, n, lanes_.aligned)) {
        V base = b_.CreateVectorSplat(static_cast<unsigned>(n), convert(index(at_part(form->base, u))));
        if (form->stride == Expr(0)) return base;
        llvm::SmallVector<llvm::Constant*, 64> iota;
        for (int l = 0; l < n; ++l) iota.push_back(llvm::ConstantInt::get(element, static_cast<uint64_t>(l)));
        V steps = llvm::ConstantVector::get(iota);
        if (form->stride != Expr(1))
            steps = b_.CreateMul(steps, b_.CreateVectorSplat(static_cast<unsigned>(n), convert(index(form->stride))));
        return b_.CreateAdd(base, steps);
    }
    const std::vector<Expr>& xs = e.operands();
    if (e.is_symbol()) {
        int scalar = plan_.index_scalar(e);
        BRAZE_CHECK(scalar >= 0, "kernel " + k_.name + ": symbol " + e.str() + " has no lanes");
        return b_.CreateTrunc(part(scalar, u), with_lanes(element, n));
    }
    bool natural = xs[0].range().lo >= 0 && xs[1].range().lo >= 0;
    bool narrow = element->isIntegerTy(32);
    DType type = natural ? (narrow ? DType::U32 : DType::U64) : (narrow ? DType::I32 : DType::I64);
    V result = index_lanes_as(xs[0], u, element);
    for (size_t i = 1; i < xs.size(); ++i) {
        V x = index_lanes_as(xs[i], u, element);
        switch (e.kind()) {
            case ExprKind::Add: result = b_.CreateAdd(result, x); break;
            case ExprKind::Mul: result = b_.CreateMul(result, x); break;
            case ExprKind::Min: result = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, result, x); break;
            case ExprKind::Max: result = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, result, x); break;
            case ExprKind::FloorDiv: result = ops_.apply(Op::FloorDiv, type, {result, x}); break;
            default: result = ops_.apply(Op::Mod, type, {result, x}); break;
        }
    }
    return result;
}

// Built up level by level: what does not change in a loop is added to the pointer outside of it. A constant comes last,
// where it becomes part of the instruction.
llvm::Value* Emitter::pointer(int param, const Expr& address) {
    std::vector<Expr> terms = is_sum(address) ? address.operands() : std::vector<Expr>{address};
    int64_t fixed = 0;
    std::erase_if(terms, [&](const Expr& x) {
        if (auto c = x.as_const()) fixed += *c;
        return x.is_const();
    });
    std::stable_sort(terms.begin(), terms.end(),
                     [&](const Expr& a, const Expr& b) { return level_of(depends(a)) < level_of(depends(b)); });
    llvm::Type* type = stored_as(k_.params[static_cast<size_t>(param)].dtype);
    V p = params_[static_cast<size_t>(param)];
    Expr sum = 0;
    for (size_t i = 0; i < terms.size();) {
        size_t level = level_of(depends(terms[i]));
        Expr group = 0;
        for (; i < terms.size() && level_of(depends(terms[i])) == level; ++i) group = group + terms[i];
        sum = sum + group;
        auto& known = levels_[level].pointers[sum];
        auto found = std::find_if(known.begin(), known.end(), [&](const auto& x) { return x.first == param; });
        if (found != known.end()) {
            p = found->second;
            continue;
        }
        V offset = index(group);
        p = at_level(level, [&] { return b_.CreateGEP(type, p, offset); });
        known.push_back({param, p});
    }
    return fixed == 0 ? p : b_.CreateConstGEP1_64(type, p, static_cast<uint64_t>(fixed));
}

}  // namespace braze::codegen
