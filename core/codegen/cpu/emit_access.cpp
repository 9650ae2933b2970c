// Loads and stores.
#include <llvm/IR/Intrinsics.h>

#include "core/codegen/cpu/emitter.h"
#include "core/support/error.h"

namespace braze::codegen {

using loops::Scalar;

bool Emitter::masks_natively(DType d) const {
    return target_.isa == Isa::Avx512 || (target_.isa == Isa::Avx2 && ir::size_of(d) >= 4);
}

llvm::Value* Emitter::both(V a, V b) {
    if (!a || !b) return a ? a : b;
    return b_.CreateAnd(a, b);
}

llvm::Value* Emitter::from_memory(V x, DType d) {
    return d == DType::Bool ? b_.CreateICmpNE(x, llvm::Constant::getNullValue(x->getType())) : x;
}
llvm::Value* Emitter::to_memory(V x, DType d) {
    return d == DType::Bool ? b_.CreateZExt(x, with_lanes(b_.getInt8Ty(), lanes_of(x))) : x;
}

namespace {
llvm::Align alignment(DType d) { return llvm::Align(static_cast<uint64_t>(ir::size_of(d))); }
}  // namespace

Parts Emitter::load(int scalar) {
    const Scalar& s = k_.scalars[static_cast<size_t>(scalar)];
    V otherwise =
        s.mask >= 0 ? constant(s.dtype, s.value) : llvm::Constant::getNullValue(element_type(b_.getContext(), s.dtype));
    if (!plan_.varies(scalar))
        return {load_one(s.dtype, pointer(s.param, s.address), s.mask >= 0 ? single(s.mask) : nullptr, otherwise)};
    auto tile = tiles_.find(scalar);
    if (tile != tiles_.end() && tile_row_) {
        llvm::Type* type = with_lanes(stored_as(s.dtype), lanes_.count);
        V row = b_.CreateGEP(type, tile->second, tile_row_);
        return {from_memory(b_.CreateAlignedLoad(type, row, alignment(s.dtype)), s.dtype)};
    }
    Parts out;
    for (int u = 0; u < lanes_.parts; ++u)
        out.push_back(load_part(s, u, both(lanes_.mask, s.mask >= 0 ? part(s.mask, u) : nullptr), otherwise));
    return out;
}

llvm::Value* Emitter::load_one(DType d, V pointer, V mask, V otherwise) {
    if (mask) pointer = b_.CreateSelect(mask, pointer, dummy_);
    V x = from_memory(b_.CreateAlignedLoad(stored_as(d), pointer, alignment(d)), d);
    return mask ? b_.CreateSelect(mask, x, otherwise) : x;
}

llvm::Value* Emitter::load_part(const Scalar& s, int u, V mask, V otherwise) {
    int n = lanes_.count;
    if (n == 1) return load_one(s.dtype, pointer(s.param, at_part(s.address, u)), mask, otherwise);
    if (!plan_.varies(s.address)) {
        V any = mask ? b_.CreateOrReduce(mask) : nullptr;
        V x = splat(load_one(s.dtype, pointer(s.param, s.address), any, otherwise));
        return mask ? b_.CreateSelect(mask, x, splat(otherwise)) : x;
    }
    auto form = plan_.lane_form(s.address, n, lanes_.aligned);
    if (!form) {
        V offsets = index_lanes(s.address, u);
        return gather(s.dtype, params_[static_cast<size_t>(s.param)], offsets, mask, otherwise);
    }
    V base = pointer(s.param, at_part(form->base, u));
    llvm::Type* type = stored_as(s.dtype);
    if (form->stride == Expr(1)) return load_vector(s.dtype, base, mask, otherwise);
    if (form->stride == Expr(0)) {
        V any = mask ? b_.CreateOrReduce(mask) : nullptr;
        V x = splat(load_one(s.dtype, base, any, otherwise));
        return mask ? b_.CreateSelect(mask, x, splat(otherwise)) : x;
    }
    if (form->stride == Expr(-1) && !mask) {
        V last = b_.CreateConstGEP1_64(type, base, static_cast<uint64_t>(int64_t{1} - n));
        return b_.CreateVectorReverse(load_vector(s.dtype, last, nullptr, otherwise));
    }
    if (form->stride == Expr(2) &&
        !mask) {  // every second element of two vectors, of which the second ends at the last one
        V low = load_vector(s.dtype, base, nullptr, otherwise);
        V high =
            load_vector(s.dtype, b_.CreateConstGEP1_64(type, base, static_cast<uint64_t>(n - 1)), nullptr, otherwise);
        llvm::SmallVector<int, 64> even;
        for (int l = 0; l < n; ++l) even.push_back(l < n / 2 ? 2 * l : 2 * l + 1);
        return b_.CreateShuffleVector(low, high, even);
    }
    auto step = form->stride.as_const();
    bool narrow = step && std::abs(*step) * n < 1'000'000'000;
    llvm::Type* element = narrow ? b_.getInt32Ty() : b_.getInt64Ty();
    llvm::SmallVector<llvm::Constant*, 64> multiples;
    for (int64_t l = 0; l < n; ++l)
        multiples.push_back(llvm::ConstantInt::get(element, static_cast<uint64_t>(l * step.value_or(1)), true));
    V offsets = llvm::ConstantVector::get(multiples);
    if (!step) offsets = b_.CreateMul(offsets, splat(index(form->stride)));
    return gather(s.dtype, base, offsets, mask, otherwise);
}

llvm::Value* Emitter::load_vector(DType d, V pointer, V mask, V otherwise) {
    llvm::Type* type = with_lanes(stored_as(d), lanes_.count);
    if (!mask) return from_memory(b_.CreateAlignedLoad(type, pointer, alignment(d)), d);
    if (!masks_natively(d)) {
        auto lane = [&](int l) { return b_.CreateConstGEP1_64(stored_as(d), pointer, static_cast<uint64_t>(l)); };
        return load_lanes(d, lane, mask, otherwise);
    }
    V fill = d == DType::Bool ? llvm::Constant::getNullValue(type) : splat(otherwise);
    V x = from_memory(b_.CreateMaskedLoad(type, pointer, alignment(d), mask, fill), d);
    return d == DType::Bool ? b_.CreateSelect(mask, x, splat(otherwise)) : x;
}

// One element after the other, without branches: a lane that is off reads the dummy.
llvm::Value* Emitter::load_lanes(DType d, const std::function<V(int)>& pointer_of_lane, V mask, V otherwise) {
    V x = llvm::PoisonValue::get(with_lanes(stored_as(d), lanes_.count));
    for (int l = 0; l < lanes_.count; ++l) {
        V p = pointer_of_lane(l);
        if (mask) p = b_.CreateSelect(b_.CreateExtractElement(mask, static_cast<uint64_t>(l)), p, dummy_);
        x = b_.CreateInsertElement(x, b_.CreateAlignedLoad(stored_as(d), p, alignment(d)), static_cast<uint64_t>(l));
    }
    x = from_memory(x, d);
    return mask ? b_.CreateSelect(mask, x, splat(otherwise)) : x;
}

llvm::Value* Emitter::gather(DType d, V base, V offsets, V mask, V otherwise) {
    llvm::Type* type = stored_as(d);
    if (target_.isa == Isa::Avx512 && ir::size_of(d) >= 4) {
        llvm::Type* vector = with_lanes(type, lanes_.count);
        V all = mask ? mask : llvm::Constant::getAllOnesValue(vector_of(DType::Bool, lanes_.count));
        return b_.CreateMaskedGather(vector, b_.CreateGEP(type, base, offsets), alignment(d), all, splat(otherwise));
    }
    auto lane = [&](int l) {
        return b_.CreateGEP(type, base, b_.CreateExtractElement(offsets, static_cast<uint64_t>(l)));
    };
    return load_lanes(d, lane, mask, otherwise);
}

void Emitter::store(const loops::Store& s) {
    DType d = k_.params[static_cast<size_t>(s.param)].dtype;
    llvm::Type* type = stored_as(d);
    ensure_indices(s.address);
    if (!plan_.varies(s.address) && !plan_.varies(s.scalar)) {
        b_.CreateAlignedStore(to_memory(single(s.scalar), d), pointer(s.param, s.address), alignment(d));
        return;
    }
    int n = lanes_.count;
    for (int u = 0; u < lanes_.parts; ++u) {
        V x = to_memory(part(s.scalar, u), d);
        if (n == 1) {
            b_.CreateAlignedStore(x, pointer(s.param, at_part(s.address, u)), alignment(d));
            continue;
        }
        auto form = plan_.lane_form(s.address, n, lanes_.aligned);
        if (form && form->stride == Expr(1)) {
            V p = pointer(s.param, at_part(form->base, u));
            if (lanes_.mask)
                b_.CreateMaskedStore(x, p, alignment(d), lanes_.mask);
            else
                b_.CreateAlignedStore(x, p, alignment(d));
            continue;
        }
        V base = form ? pointer(s.param, at_part(form->base, u)) : params_[static_cast<size_t>(s.param)];
        V offsets = form ? nullptr : index_lanes(s.address, u);
        V stride = form ? index(form->stride) : nullptr;
        for (int l = 0; l < n; ++l) {
            V offset = form ? b_.CreateMul(stride, i64(l)) : b_.CreateExtractElement(offsets, static_cast<uint64_t>(l));
            V p = b_.CreateGEP(type, base, offset);
            if (lanes_.mask)
                p = b_.CreateSelect(b_.CreateExtractElement(lanes_.mask, static_cast<uint64_t>(l)), p, dummy_);
            b_.CreateAlignedStore(b_.CreateExtractElement(x, static_cast<uint64_t>(l)), p, alignment(d));
        }
    }
}

}  // namespace braze::codegen
