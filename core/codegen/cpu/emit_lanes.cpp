// The ways to walk the vectorised axis: full vectors, and a rest that is masked or goes element by element.
#include "core/codegen/cpu/emitter.h"

namespace braze::codegen {

void Emitter::in_lanes(Lanes lanes, const Body& body) {
    Lanes before = lanes_;
    lanes_ = lanes;
    lanes_.active = true;
    here().exprs[plan_.axis] = lanes.index;
    body();
    lanes_ = before;
}

llvm::Value* Emitter::tail_mask(V first, V last) {
    int n = plan_.lanes;
    if (target_.isa == Isa::Avx512) {  // a mask register is a number
        llvm::Type* bits = b_.getIntNTy(static_cast<unsigned>(n));
        V count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, last, i64(n));
        V mask = b_.CreateLShr(i64(-1), b_.CreateSub(i64(64), count));
        if (first) mask = b_.CreateAnd(mask, b_.CreateShl(i64(-1), first));
        return b_.CreateBitCast(b_.CreateTrunc(mask, bits), vector_of(DType::Bool, n));
    }
    llvm::SmallVector<llvm::Constant*, 16> iota;
    for (int i = 0; i < n; ++i) iota.push_back(b_.getInt32(static_cast<uint32_t>(i)));
    V lanes = llvm::ConstantVector::get(iota);
    auto spread = [&](V x) {
        return b_.CreateVectorSplat(static_cast<unsigned>(n), b_.CreateTrunc(x, b_.getInt32Ty()));
    };
    V clipped = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, last, i64(n));
    V mask = b_.CreateICmpSLT(lanes, spread(clipped));
    return first ? b_.CreateAnd(mask, b_.CreateICmpSGE(lanes, spread(first))) : mask;
}

void Emitter::lane_loops(Depends defines, V lo, V hi, std::optional<int64_t> count, int parts, bool one_body,
                         int64_t chunk, const Body& body) {
    int lanes = plan_.lanes;
    if (plan_.along_outer && plan_.aligned) return aligned_lane_loop(defines, lo, hi, parts, one_body, body);
    if (count && *count % lanes == 0) one_body = false;  // there is no rest
    auto walk = [&](V from, V to, int lane_count, int part_count, bool nonempty, bool masked) {
        loop(defines, from, to, i64(int64_t{lane_count} * part_count), nonempty, [&](V i) {
            Lanes shape{lane_count, part_count, nullptr, i, true, !plan_.along_outer};
            if (masked) shape.mask = tail_mask(nullptr, b_.CreateSub(to, i));
            in_lanes(shape, body);
        });
    };
    int64_t step = int64_t{lanes} * parts;
    auto flush_all = [&] {
        for (const Accumulator& a : accumulators_) flush(a);
    };
    V main_end;
    if (one_body)
        main_end = hi;
    else if (count)
        main_end = i64(*count / step * step);
    else
        main_end = b_.CreateAdd(lo, b_.CreateAnd(b_.CreateSub(hi, lo), i64(-step)));
    if (one_body || !count || *count >= step) {
        if (chunk > 0) {
            loop(0, lo, main_end, i64(chunk * step), count.has_value(), [&](V c) {
                V to = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateAdd(c, i64(chunk * step)), main_end);
                walk(c, to, lanes, parts, true, one_body);
                flush_all();
            });
        } else {
            walk(lo, main_end, lanes, parts, count.has_value(), one_body);
        }
    }
    if (one_body) return;
    int64_t rest = count ? *count % step : -1;
    if (rest == 0 || step == 1) return;
    if (plan_.masked_tail) return walk(main_end, hi, lanes, 1, count.has_value(), true);
    if (lanes == 1) return walk(main_end, hi, 1, 1, count.has_value(), false);
    if (parts > 1 && (!count || rest >= lanes)) {
        V vector_end = count ? static_cast<V>(i64(*count / lanes * lanes))
                             : b_.CreateAdd(main_end, b_.CreateAnd(b_.CreateSub(hi, main_end), i64(-lanes)));
        walk(main_end, vector_end, lanes, 1, count.has_value(), false);
        main_end = vector_end;
    }
    if (!count || rest % lanes != 0) walk(main_end, hi, 1, 1, count.has_value(), false);
}

// Vectors start at multiples of the lanes: one at either end may be partly filled.
void Emitter::aligned_lane_loop(Depends defines, V lo, V hi, int parts, bool one_body, const Body& body) {
    int lanes = plan_.lanes;
    V position = slot(b_.getInt64Ty());
    b_.CreateStore(lo, position);
    auto load = [&] { return b_.CreateLoad(b_.getInt64Ty(), position); };
    while_loop(
        0, [&] { return b_.CreateICmpSLT(load(), hi); },
        [&] {
            V x = load();
            V start = b_.CreateAnd(x, i64(-lanes));
            auto masked = [&] {
                V mask = tail_mask(b_.CreateSub(x, start), b_.CreateSub(hi, start));
                in_lanes({lanes, 1, mask, start, true, true}, body);
                b_.CreateStore(b_.CreateAdd(start, i64(lanes)), position);
            };
            if (one_body) return if_then(nullptr, defines, masked);
            V after = b_.CreateAdd(x, i64(int64_t{lanes} * parts));
            V whole = b_.CreateAnd(b_.CreateICmpEQ(x, start), b_.CreateICmpSLE(after, hi));
            V partial = b_.CreateNot(whole);
            if_then(whole, defines, [&] {
                in_lanes({lanes, parts, nullptr, x, true, true}, body);
                b_.CreateStore(after, position);
            });
            if_then(partial, defines, [&] {
                if (plan_.masked_tail) {
                    masked();
                } else {
                    in_lanes({1, 1, nullptr, x, true, true}, body);
                    b_.CreateStore(b_.CreateAdd(x, i64(1)), position);
                }
            });
        });
}

}  // namespace braze::codegen
