// Scalars of the kernel as LLVM values.
#include <algorithm>

#include "core/codegen/cpu/emitter.h"
#include "core/ir/op.h"
#include "core/support/error.h"

namespace braze::codegen {

using loops::Scalar;
using loops::ScalarKind;

size_t Emitter::level_of(Depends d) const {
    if (d & kPinned) return at_;
    for (size_t l = levels_.size(); l-- > 1;)
        if (levels_[l].defines & d) return l;
    return 0;
}

const Parts& Emitter::value(int scalar) {
    const Scalar& s = k_.scalars[static_cast<size_t>(scalar)];
    size_t level = level_of(plan_.depends(scalar));
    auto found = levels_[level].scalars.find(scalar);
    if (found != levels_[level].scalars.end()) return found->second;
    BRAZE_CHECK(s.kind != ScalarKind::Reduce, "kernel " + k_.name + " uses a reduction before its stage");
    // operands first: they may belong to outer levels
    for (int a : s.args) value(a);
    if (s.mask >= 0) value(s.mask);
    ensure_indices(s.address);
    Parts parts = at_level(level, [&] { return compute(scalar); });
    return levels_[level].scalars[scalar] = std::move(parts);
}

void Emitter::ensure_indices(const Expr& e) {
    std::vector<Expr> symbols;
    e.symbols(symbols);
    for (const Expr& x : symbols) {
        int i = plan_.index_scalar(x);
        if (i >= 0) value(i);
    }
}

llvm::Value* Emitter::single(int scalar) {
    const Parts& parts = value(scalar);
    BRAZE_CHECK(parts.size() == 1, "a value that varies over the lanes is used as one that does not");
    return parts[0];
}

llvm::Value* Emitter::splat(V x) {
    if (lanes_.count == 1 || x->getType()->isVectorTy()) return x;
    return b_.CreateVectorSplat(static_cast<unsigned>(lanes_.count), x);
}

llvm::Value* Emitter::part(int scalar, int u) {
    const Parts& parts = value(scalar);
    if (plan_.varies(scalar)) return parts[static_cast<size_t>(u)];
    if (lanes_.count == 1) return parts[0];
    size_t level = level_of(plan_.depends(scalar));
    V& spread = levels_[level].splats[{parts[0], lanes_.count}];
    if (!spread) spread = at_level(level, [&] { return splat(parts[0]); });
    return spread;
}

llvm::Constant* Emitter::constant(DType d, const std::variant<double, int64_t>& v) {
    llvm::Type* type = element_type(b_.getContext(), d);
    if (ir::is_half(d)) {
        llvm::APFloat x(std::holds_alternative<double>(v) ? std::get<double>(v)
                                                          : static_cast<double>(std::get<int64_t>(v)));
        bool lost = false;
        x.convert(llvm::APFloat::IEEEsingle(), llvm::APFloat::rmNearestTiesToEven, &lost);  // as eager: by way of f32
        x.convert(d == DType::BF16 ? llvm::APFloat::BFloat() : llvm::APFloat::IEEEhalf(),
                  llvm::APFloat::rmNearestTiesToEven, &lost);
        return llvm::ConstantInt::get(type, x.bitcastToAPInt());
    }
    if (ir::is_float(d)) {
        double x = std::holds_alternative<double>(v) ? std::get<double>(v) : static_cast<double>(std::get<int64_t>(v));
        return llvm::ConstantFP::get(type, d == DType::F32 ? static_cast<double>(static_cast<float>(x)) : x);
    }
    int64_t n = std::holds_alternative<int64_t>(v) ? std::get<int64_t>(v) : static_cast<int64_t>(std::get<double>(v));
    if (d == DType::Bool) return llvm::ConstantInt::getBool(b_.getContext(), n != 0);
    return llvm::ConstantInt::get(type,
                                  llvm::APInt(type->getScalarSizeInBits(), static_cast<uint64_t>(n), false, true));
}

Parts Emitter::compute(int scalar) {
    const Scalar& s = k_.scalars[static_cast<size_t>(scalar)];
    bool varying = plan_.varies(scalar);
    switch (s.kind) {
        case ScalarKind::Const: return {constant(s.dtype, s.value)};
        case ScalarKind::Index: {
            if (!varying) return {index(s.address)};
            Parts out;
            for (int u = 0; u < lanes_.parts; ++u) out.push_back(index_lanes(s.address, u));
            return out;
        }
        case ScalarKind::Load: return load(scalar);
        case ScalarKind::IndexOf: return value(s.args[0]);
        case ScalarKind::Check: check(scalar); return value(s.args[0]);
        case ScalarKind::Reduce: break;
        default: return elementwise(scalar);
    }
    throw InternalError("kernel " + k_.name + ": a reduction is not computed where it is used");
}

// An index as 32-bit lanes, if its value and all its parts fit: half the work of the 64-bit one. nullptr: they do not.
llvm::Value* Emitter::short_index(int scalar, int u) {
    const Scalar& s = k_.scalars[static_cast<size_t>(scalar)];
    if (lanes_.count == 1) return nullptr;
    llvm::Type* i32 = b_.getInt32Ty();
    if (s.kind == ScalarKind::Const && s.dtype == DType::I64) {
        int64_t v = std::get<int64_t>(s.value);
        if (v != static_cast<int32_t>(v)) return nullptr;
        return llvm::ConstantInt::getSigned(with_lanes(i32, lanes_.count), v);
    }
    if (s.kind != ScalarKind::Index || !fits_int32(s.address)) return nullptr;
    if (plan_.varies(scalar)) return index_lanes_as(s.address, u, i32);
    return splat(b_.CreateTrunc(single(scalar), i32));
}

Parts Emitter::elementwise(int scalar) {
    const Scalar& s = k_.scalars[static_cast<size_t>(scalar)];
    DType operand = k_.scalars[static_cast<size_t>(s.args.back())].dtype;
    bool varying = plan_.varies(scalar);
    Parts out;
    for (int u = 0; u < (varying ? lanes_.parts : 1); ++u) {
        Parts args;
        if (varying && operand == DType::I64 && (ir::returns_bool(s.op) || ir::is_float(s.dtype))) {
            for (int a : s.args) args.push_back(short_index(a, u));
            if (std::find(args.begin(), args.end(), nullptr) == args.end()) {
                if (s.kind == ScalarKind::Cast)
                    out.push_back(ops_.cast(args[0], DType::I32, s.dtype));
                else
                    out.push_back(ops_.apply(s.op, DType::I32, args));
                continue;
            }
            args.clear();
        }
        for (int a : s.args) args.push_back(varying ? part(a, u) : single(a));
        if (s.kind == ScalarKind::Cast)
            out.push_back(ops_.cast(args[0], operand, s.dtype));
        else
            out.push_back(ops_.apply(s.op, operand, args));
    }
    return out;
}

void Emitter::check(int scalar) {
    int condition = k_.scalars[static_cast<size_t>(scalar)].args[0];
    V failed = nullptr;
    for (V ok : value(condition)) {
        V bad = b_.CreateNot(ok);
        if (plan_.varies(condition) && lanes_.mask) bad = b_.CreateAnd(bad, lanes_.mask);
        failed = failed ? b_.CreateOr(failed, bad) : bad;
    }
    if (failed->getType()->isVectorTy()) failed = b_.CreateOrReduce(failed);
    fail_if(failed);
}

}  // namespace braze::codegen
