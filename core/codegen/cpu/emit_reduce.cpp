// Reductions: accumulators, how they are joined, the index reductions.
#include "core/codegen/cpu/emitter.h"
#include "core/support/error.h"

namespace braze::codegen {

using ir::Op;
using loops::Scalar;

namespace {

bool indexed(Op op) { return op == Op::ArgMax || op == Op::ArgMin; }
constexpr int64_t kNoIndex = std::numeric_limits<int64_t>::max();

}  // namespace

void Emitter::make_accumulator(int reduce, size_t s) {
    const Scalar& r = k_.scalars[static_cast<size_t>(reduce)];
    Accumulator a;
    a.scalar = reduce;
    a.arg = r.args[0];
    a.op = r.op;
    a.dtype = k_.scalars[static_cast<size_t>(a.arg)].dtype;
    a.indexed = indexed(r.op);
    bool varies = plan_.varies(reduce);
    a.lanes = !plan_.along_outer ? plan_.lanes : varies ? lanes_.count : 1;
    int parts = !plan_.along_outer ? plan_.unroll[s] : varies ? lanes_.parts : 1;
    llvm::Constant* start = ops_.identity(a.op, a.dtype);
    auto fill = [&](llvm::Constant* c, int lanes) -> V {
        if (lanes == 1) return c;
        return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(static_cast<unsigned>(lanes)), c);
    };
    auto make = [&](DType d, llvm::Constant* c, int lanes) {
        V where = slot(vector_of(d, lanes));
        b_.CreateStore(fill(c, lanes), where);
        return where;
    };
    auto* no_index = llvm::cast<llvm::Constant>(i64(kNoIndex));
    for (int u = 0; u < parts; ++u) {
        a.parts.push_back(make(a.dtype, start, a.lanes));
        if (a.indexed) a.indices.push_back(make(DType::I64, no_index, a.lanes));
    }
    if (a.op == Op::Sum && ir::is_float(a.dtype) && flush_axis_ >= 0)
        for (int u = 0; u < (plan_.along_outer ? parts : 1); ++u)
            a.totals.push_back(
                make(DType::F64, llvm::cast<llvm::Constant>(llvm::ConstantFP::get(b_.getDoubleTy(), 0.0)), a.lanes));
    if (!plan_.along_outer && a.lanes > 1 && !plan_.masked_tail) {
        a.single = make(a.dtype, start, 1);
        if (a.indexed) a.single_index = make(DType::I64, no_index, 1);
    }
    accumulators_.push_back(std::move(a));
}

void Emitter::accumulate(const Accumulator& a) {
    bool one = !plan_.along_outer && lanes_.count < a.lanes;  // the last elements of the axis
    int parts = plan_.along_outer ? static_cast<int>(a.parts.size()) : lanes_.parts;
    for (int u = 0; u < parts; ++u) {
        V where = one ? a.single : a.parts[static_cast<size_t>(u)];
        V x = plan_.along_outer && !plan_.varies(a.scalar) ? single(a.arg) : part(a.arg, u);
        V before = b_.CreateLoad(x->getType(), where);
        V after = ops_.combine(a.op, a.dtype, before, x);
        if (lanes_.mask && !plan_.along_outer) after = b_.CreateSelect(lanes_.mask, after, before);
        b_.CreateStore(after, where);
    }
}

// The row-major number of the inner point, for every lane.
llvm::Value* Emitter::reduction_index(int u, int lanes) {
    Expr flat = 0;
    for (size_t i = 0; i < k_.inner.size(); ++i)
        flat = flat * k_.inner[i] + loops::inner_axis(static_cast<int>(i), k_.inner[i]);
    if (!plan_.along_outer) return index_lanes(flat, u);
    V v = index(flat);
    return lanes == 1 ? v : b_.CreateVectorSplat(static_cast<unsigned>(lanes), v);
}

std::pair<llvm::Value*, llvm::Value*> Emitter::better(const Accumulator& a, std::pair<V, V> best, std::pair<V, V> x,
                                                      bool ordered) {
    bool real = ir::is_float(a.dtype);
    V wins = ops_.apply(a.op == Op::ArgMax ? Op::Gt : Op::Lt, a.dtype, {x.first, best.first});
    V equal = ordered ? nullptr : ops_.apply(Op::Eq, a.dtype, {x.first, best.first});
    if (real) {
        V best_nan = b_.CreateFCmpUNO(best.first, best.first);
        V x_nan = b_.CreateFCmpUNO(x.first, x.first);
        wins = b_.CreateOr(wins, b_.CreateAnd(x_nan, b_.CreateNot(best_nan)));
        if (equal) equal = b_.CreateOr(equal, b_.CreateAnd(x_nan, best_nan));
    }
    if (equal) wins = b_.CreateOr(wins, b_.CreateAnd(equal, b_.CreateICmpSLT(x.second, best.second)));
    return {b_.CreateSelect(wins, x.first, best.first), b_.CreateSelect(wins, x.second, best.second)};
}

void Emitter::accumulate_index(const Accumulator& a) {
    bool one = !plan_.along_outer && lanes_.count < a.lanes;
    int parts = plan_.along_outer ? static_cast<int>(a.parts.size()) : lanes_.parts;
    for (int u = 0; u < parts; ++u) {
        auto at = static_cast<size_t>(u);
        V where = one ? a.single : a.parts[at];
        V index_where = one ? a.single_index : a.indices[at];
        V x = plan_.along_outer && !plan_.varies(a.scalar) ? single(a.arg) : part(a.arg, u);
        V position = reduction_index(u, lanes_of(x));
        std::pair<V, V> before = {b_.CreateLoad(x->getType(), where), b_.CreateLoad(position->getType(), index_where)};
        std::pair<V, V> after = better(a, before, {x, position}, true);
        if (lanes_.mask && !plan_.along_outer) {
            after.first = b_.CreateSelect(lanes_.mask, after.first, before.first);
            after.second = b_.CreateSelect(lanes_.mask, after.second, before.second);
        }
        b_.CreateStore(after.first, where);
        b_.CreateStore(after.second, index_where);
    }
}

llvm::Value* Emitter::sum_of_parts(const Accumulator& a) {
    llvm::Type* type = vector_of(a.dtype, a.lanes);
    Parts xs;
    for (V p : a.parts) xs.push_back(b_.CreateLoad(type, p));
    BRAZE_CHECK(!xs.empty(), "a reduction without accumulators");
    while (xs.size() > 1) {
        Parts next;
        for (size_t i = 0; i + 1 < xs.size(); i += 2) next.push_back(ops_.combine(a.op, a.dtype, xs[i], xs[i + 1]));
        if (xs.size() % 2) next.push_back(xs.back());
        xs = next;
    }
    return xs[0];
}

void Emitter::flush(const Accumulator& a) {
    if (a.totals.empty()) return;
    llvm::Type* wide = vector_of(DType::F64, a.lanes);
    llvm::Type* type = vector_of(a.dtype, a.lanes);
    auto add = [&](V total, V x) {
        b_.CreateStore(b_.CreateFAdd(b_.CreateLoad(wide, total), ops_.cast(x, a.dtype, DType::F64)), total);
    };
    if (plan_.along_outer) {
        for (size_t u = 0; u < a.parts.size(); ++u) add(a.totals[u], b_.CreateLoad(type, a.parts[u]));
    } else {
        add(a.totals[0], sum_of_parts(a));
    }
    for (V p : a.parts) b_.CreateStore(llvm::Constant::getNullValue(type), p);
}

llvm::Value* Emitter::horizontal(Op op, DType d, V x) {
    for (int n = lanes_of(x); n > 1; n /= 2) {
        llvm::SmallVector<int, 32> low, high;
        for (int i = 0; i < n / 2; ++i) {
            low.push_back(i);
            high.push_back(i + n / 2);
        }
        if (n == 2)
            return ops_.combine(op, d, b_.CreateExtractElement(x, uint64_t{0}),
                                b_.CreateExtractElement(x, uint64_t{1}));
        x = ops_.combine(op, d, b_.CreateShuffleVector(x, low), b_.CreateShuffleVector(x, high));
    }
    return x;
}

Parts Emitter::finish(const Accumulator& a) {
    if (a.indexed && !plan_.along_outer) return {finish_index(a)};
    Parts out;
    if (plan_.along_outer) {
        for (size_t u = 0; u < a.parts.size(); ++u) {
            if (a.indexed) {  // kNoIndex: all elements equal the start value, the first wins
                V x = b_.CreateLoad(vector_of(DType::I64, a.lanes), a.indices[u]);
                V none = b_.CreateICmpEQ(x, llvm::ConstantInt::get(x->getType(), static_cast<uint64_t>(kNoIndex)));
                out.push_back(b_.CreateSelect(none, llvm::Constant::getNullValue(x->getType()), x));
                continue;
            }
            V x = b_.CreateLoad(vector_of(a.dtype, a.lanes), a.parts[u]);
            if (!a.totals.empty()) {
                V total = b_.CreateLoad(vector_of(DType::F64, a.lanes), a.totals[u]);
                x = ops_.cast(b_.CreateFAdd(total, ops_.cast(x, a.dtype, DType::F64)), DType::F64, a.dtype);
            }
            out.push_back(x);
        }
        return out;
    }
    V x = sum_of_parts(a);
    DType d = a.dtype;
    if (!a.totals.empty()) {
        d = DType::F64;
        x = b_.CreateFAdd(b_.CreateLoad(vector_of(d, a.lanes), a.totals[0]), ops_.cast(x, a.dtype, d));
    }
    x = horizontal(a.op, d, x);
    if (a.single) x = ops_.combine(a.op, d, x, ops_.cast(b_.CreateLoad(vector_of(a.dtype, 1), a.single), a.dtype, d));
    return {ops_.cast(x, d, a.dtype)};
}

llvm::Value* Emitter::finish_index(const Accumulator& a) {
    using Pair = std::pair<V, V>;
    llvm::Type* type = vector_of(a.dtype, a.lanes);
    llvm::Type* index_type = vector_of(DType::I64, a.lanes);
    Pair best;
    for (size_t u = 0; u < a.parts.size(); ++u) {
        Pair x = {b_.CreateLoad(type, a.parts[u]), b_.CreateLoad(index_type, a.indices[u])};
        best = u == 0 ? x : better(a, best, x, false);
    }
    for (int n = a.lanes; n > 1; n /= 2) {
        llvm::SmallVector<int, 32> low, high;
        for (int i = 0; i < n / 2; ++i) {
            low.push_back(i);
            high.push_back(i + n / 2);
        }
        Pair l = {b_.CreateShuffleVector(best.first, low), b_.CreateShuffleVector(best.second, low)};
        Pair h = {b_.CreateShuffleVector(best.first, high), b_.CreateShuffleVector(best.second, high)};
        best = better(a, l, h, false);
    }
    if (a.lanes > 1)
        best = {b_.CreateExtractElement(best.first, uint64_t{0}), b_.CreateExtractElement(best.second, uint64_t{0})};
    if (a.single) {
        Pair x = {b_.CreateLoad(vector_of(a.dtype, 1), a.single), b_.CreateLoad(b_.getInt64Ty(), a.single_index)};
        best = better(a, best, x, false);
    }
    V none = b_.CreateICmpEQ(best.second, i64(kNoIndex));
    return b_.CreateSelect(none, i64(0), best.second);
}

}  // namespace braze::codegen
