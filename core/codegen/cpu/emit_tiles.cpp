// Kernels with transposed loads: x[i, o] where i runs over the lanes and o is the last outer axis. Going through it
// lane by lane would touch another cache line for every element. Instead, for a block of outer points and one vector of
// the axis, the elements are loaded along o, transposed, and kept on the stack as one vector for each outer point.
#include "core/codegen/cpu/emitter.h"

namespace braze::codegen {

void Emitter::outer_tiles() {
    segments([&](V first, V last) { tile_rows(first, last); });
}

void Emitter::tile_rows(V first, V last) {
    int n = plan_.lanes;
    size_t row_axis = k_.outer.size() - 1;
    Expr row = loops::outer_axis(static_cast<int>(row_axis), k_.outer[row_axis]);
    for (int scalar : plan_.transposed) {
        llvm::Type* vector = with_lanes(stored_as(k_.scalars[static_cast<size_t>(scalar)].dtype), n);
        tiles_[scalar] = slot(llvm::ArrayType::get(vector, static_cast<uint64_t>(n)));
    }
    loop(outer_bit(row_axis), first, last, i64(n), true, [&](V start) {
        here().exprs[row] = start;
        V rows = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateSub(last, start), i64(n));
        V extent = index(plan_.extent);
        lane_loops(inner_bit(0) | kStage, i64(0), extent, plan_.extent.as_const(), 1, plan_.one_body[0], 0, [&] {
            bool tiled = lanes_.count == n;
            if (tiled) {
                V columns = lanes_.mask ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin,
                                                                   b_.CreateSub(extent, lanes_.index), i64(n))
                                        : i64(n);
                V full = b_.CreateICmpEQ(rows, i64(n));
                if (lanes_.mask) full = b_.CreateAnd(full, b_.CreateICmpEQ(columns, i64(n)));
                V partial = b_.CreateNot(full);
                if_then(full, 0, [&] {
                    for (int scalar : plan_.transposed) transpose_tile(scalar);
                });
                if_then(partial, 0, [&] {
                    for (int scalar : plan_.transposed) fill_tile(scalar, rows, columns);
                });
            }
            loop(outer_bit(row_axis) | kPoint, i64(0), rows, i64(1), true, [&](V t) {
                here().exprs[row] = b_.CreateAdd(start, t);
                tile_row_ = tiled ? t : nullptr;
                inner_body(0);
                tile_row_ = nullptr;
            });
        });
    });
}

// Element by element, for the blocks at the edges.
void Emitter::fill_tile(int scalar, V rows, V columns) {
    const loops::Scalar& s = k_.scalars[static_cast<size_t>(scalar)];
    llvm::Type* type = stored_as(s.dtype);
    V base = pointer(s.param, s.address);
    V stride = index(s.address.affine_in(plan_.axis)->first);
    V tile = tiles_[scalar];
    loop(0, i64(0), columns, i64(1), true, [&](V c) {
        V from = b_.CreateGEP(type, base, b_.CreateMul(c, stride));
        V to = b_.CreateGEP(type, tile, c);
        loop(0, i64(0), rows, i64(1), true, [&](V r) {
            V x = b_.CreateLoad(type, b_.CreateGEP(type, from, r));
            b_.CreateStore(x, b_.CreateGEP(type, to, b_.CreateMul(r, i64(plan_.lanes))));
        });
    });
}

// A full block: log2(n) rounds, each of which exchanges the off-diagonal quarters of blocks of size 2d.
void Emitter::transpose_tile(int scalar) {
    const loops::Scalar& s = k_.scalars[static_cast<size_t>(scalar)];
    int n = plan_.lanes;
    llvm::Type* type = stored_as(s.dtype);
    llvm::Type* vector = with_lanes(type, n);
    llvm::Align align(static_cast<uint64_t>(ir::size_of(s.dtype)));
    V base = pointer(s.param, s.address);
    V stride = index(s.address.affine_in(plan_.axis)->first);
    Parts rows;
    for (int r = 0; r < n; ++r)
        rows.push_back(b_.CreateAlignedLoad(vector, b_.CreateGEP(type, base, b_.CreateMul(stride, i64(r))), align));
    for (int d = n / 2; d > 0; d /= 2) {
        auto in_upper = [d](int e) { return e / d % 2 == 0; };
        llvm::SmallVector<int, 16> upper, lower;
        for (int e = 0; e < n; ++e) {
            upper.push_back(in_upper(e) ? e : n + e - d);
            lower.push_back(in_upper(e) ? e + d : n + e);
        }
        for (int r = 0; r < n; ++r) {
            if (!in_upper(r)) continue;
            V& a = rows[static_cast<size_t>(r)];
            V& b = rows[static_cast<size_t>(r) + static_cast<size_t>(d)];
            V first = b_.CreateShuffleVector(a, b, upper);
            b = b_.CreateShuffleVector(a, b, lower);
            a = first;
        }
    }
    for (int r = 0; r < n; ++r)
        b_.CreateAlignedStore(rows[static_cast<size_t>(r)],
                              b_.CreateConstGEP1_64(vector, tiles_[scalar], static_cast<uint64_t>(r)), align);
}

}  // namespace braze::codegen
