// The structure of a kernel: outer points or segments, stages, inner loops.
#include "core/codegen/cpu/emit.h"
#include "core/codegen/cpu/emitter.h"
#include "core/support/error.h"

namespace braze::codegen {

using ir::Op;
using loops::Scalar;

void emit_kernel(const loops::Kernel& kernel, const std::string& name, const CpuTarget& target, llvm::Module& module) {
    Emitter(kernel, target, module, name).run();
}

Emitter::Emitter(const loops::Kernel& kernel, const CpuTarget& target, llvm::Module& module, const std::string& name)
    : k_(kernel), target_(target), plan_(kernel, target), module_(module), b_(module.getContext()), ops_(b_, target) {
    llvm::Type* pointer = b_.getPtrTy();
    auto* type = llvm::FunctionType::get(b_.getInt32Ty(), {pointer, pointer, b_.getInt64Ty(), b_.getInt64Ty()}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
    function_->setDoesNotThrow();
    function_->addFnAttr("tune-cpu", target.cpu);
    if (target.isa == Isa::Avx512) function_->addFnAttr("prefer-vector-width", "512");
    levels_.reserve(4 * kMaxAxes);
}

void Emitter::run() {
    prologue();
    if (!plan_.transposed.empty() && plan_.lanes > 1)
        outer_tiles();
    else if (plan_.along_outer)
        outer_segments();
    else
        outer_points();
}

void Emitter::prologue() {
    llvm::LLVMContext& c = module_.getContext();
    auto* entry = llvm::BasicBlock::Create(c, "entry", function_);
    auto* start = llvm::BasicBlock::Create(c, "start", function_);
    auto* done = llvm::BasicBlock::Create(c, "done", function_);
    fail_ = llvm::BasicBlock::Create(c, "fail", function_);
    b_.SetInsertPoint(fail_);
    b_.CreateRet(b_.getInt32(1));
    b_.SetInsertPoint(done);
    b_.CreateRet(b_.getInt32(0));
    b_.SetInsertPoint(entry);
    V buffers = function_->getArg(0);
    symbols_ = function_->getArg(1);
    begin_ = function_->getArg(2);
    end_ = function_->getArg(3);
    dummy_ = slot(b_.getInt64Ty());
    b_.CreateStore(i64(0), dummy_);
    b_.CreateCondBr(b_.CreateICmpSLT(begin_, end_), start, done);
    b_.SetInsertPoint(start);
    levels_.push_back({});
    levels_[0].point = b_.CreateBr(done);
    b_.SetInsertPoint(levels_[0].point);
    for (size_t i = 0; i < k_.params.size(); ++i)
        params_.push_back(b_.CreateLoad(b_.getPtrTy(), b_.CreateConstGEP1_64(b_.getPtrTy(), buffers, i)));
}

// ---- outer axes

llvm::SmallVector<llvm::Value*, 4> Emitter::delinearise(V flat) {
    llvm::SmallVector<V, 4> slots(k_.outer.size());
    for (size_t i = k_.outer.size(); i-- > 0;) {
        slots[i] = slot(b_.getInt64Ty());
        if (i == 0) {
            b_.CreateStore(flat, slots[i]);
            break;
        }
        V extent = index(k_.outer[i]);  // not 0: there is an outer point
        b_.CreateStore(b_.CreateURem(flat, extent), slots[i]);
        flat = b_.CreateUDiv(flat, extent);
    }
    return slots;
}

// The next point of the first `axes` axes.
void Emitter::advance(const llvm::SmallVectorImpl<V>& slots, size_t axes) {
    V carry = b_.getTrue();
    for (size_t i = axes; i-- > 0;) {
        V next = b_.CreateAdd(b_.CreateLoad(b_.getInt64Ty(), slots[i]), b_.CreateZExt(carry, b_.getInt64Ty()));
        carry = b_.CreateICmpEQ(next, index(k_.outer[i]));
        b_.CreateStore(b_.CreateSelect(carry, i64(0), next), slots[i]);
    }
}

void Emitter::outer_points() {
    size_t m = k_.outer.size();
    Depends defines = kPoint;
    for (size_t i = 0; i < m; ++i) defines |= outer_bit(i);
    if (m == 0) {
        if_then(nullptr, defines, [&] { point(); });
        return;
    }
    llvm::SmallVector<V, 4> slots;
    if (m > 1) slots = delinearise(begin_);
    loop(defines, begin_, end_, i64(1), true, [&](V flat) {
        for (size_t i = 0; i < m; ++i) {
            Expr axis = loops::outer_axis(static_cast<int>(i), k_.outer[i]);
            here().exprs[axis] = m == 1 ? flat : b_.CreateLoad(b_.getInt64Ty(), slots[i]);
        }
        point();
        if (m > 1) advance(slots, m);
    });
}

void Emitter::outer_segments() {
    Depends defines = kPoint | outer_bit(k_.outer.size() - 1);
    segments([&](V first, V last) {
        lane_loops(defines, first, last, std::nullopt, plan_.point_unroll, plan_.point_one_body, 0, [&] { point(); });
    });
}

// The range of outer points as pieces of rows along the last outer axis.
void Emitter::segments(const std::function<void(V first, V last)>& body) {
    size_t m = k_.outer.size();
    if (m == 1) return body(begin_, end_);
    Depends defines = 0;
    for (size_t i = 0; i + 1 < m; ++i) defines |= outer_bit(i);
    llvm::SmallVector<V, 4> slots = delinearise(begin_);
    V position = slot(b_.getInt64Ty());
    b_.CreateStore(begin_, position);
    auto more = [&] { return b_.CreateICmpSLT(b_.CreateLoad(b_.getInt64Ty(), position), end_); };
    while_loop(defines, more, [&] {
        for (size_t i = 0; i + 1 < m; ++i)
            here().exprs[loops::outer_axis(static_cast<int>(i), k_.outer[i])] =
                b_.CreateLoad(b_.getInt64Ty(), slots[i]);
        V flat = b_.CreateLoad(b_.getInt64Ty(), position);
        V first = b_.CreateLoad(b_.getInt64Ty(), slots[m - 1]);
        V run = b_.CreateSub(index(k_.outer[m - 1]), first);
        run = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, run, b_.CreateSub(end_, flat));
        body(first, b_.CreateAdd(first, run));
        b_.CreateStore(b_.CreateAdd(flat, run), position);
        b_.CreateStore(i64(0), slots[m - 1]);
        advance(slots, m - 1);
    });
}

// ---- stages

void Emitter::point() {
    for (size_t s = 0; s < k_.stages.size(); ++s) stage(s);
}

// A sum in f32 or f64 is kept in two levels, so that its error does not grow with the number of terms: the vectors of
// the first level take at most kFlush terms each before they are added to the second.
void Emitter::choose_flush(size_t s) {
    constexpr int64_t kFlush = 64;
    flush_axis_ = -1;
    flush_steps_ = 0;
    bool sums = false;
    for (int r : k_.stages[s].reduces) {
        const Scalar& x = k_.scalars[static_cast<size_t>(r)];
        sums = sums || (x.op == Op::Sum && ir::is_float(x.dtype));
    }
    if (!sums) return;
    int64_t terms = 1;
    for (size_t i = k_.inner.size(); i-- > 0;) {
        bool lanes = !plan_.along_outer && i + 1 == k_.inner.size();
        int64_t step = lanes ? int64_t{plan_.lanes} * plan_.unroll[s] : 1;
        std::optional<int64_t> extent = upper_bound(k_.inner[i]);
        if (extent && *extent / step + 1 <= kFlush / terms) {
            terms *= std::max<int64_t>(1, (*extent + step - 1) / step);
            continue;
        }
        flush_axis_ = static_cast<int>(i);
        flush_steps_ = std::max<int64_t>(1, kFlush / terms);
        return;
    }
}

void Emitter::stage(size_t s) {
    accumulators_.clear();
    choose_flush(s);
    for (int r : k_.stages[s].reduces) make_accumulator(r, s);
    if (!k_.inner.empty() && !(k_.stages[s].reduces.empty() && k_.stages[s].stores.empty())) {
        V nonempty = nullptr;
        for (const Expr& e : k_.inner) {
            if (e.range().lo >= 1) continue;
            V positive = b_.CreateICmpSGT(index(e), i64(0));
            nonempty = nonempty ? b_.CreateAnd(nonempty, positive) : positive;
        }
        if_then(nonempty, kStage, [&] { inner_loops(s, 0); });
    }
    std::vector<Accumulator> finished;
    finished.swap(accumulators_);
    for (const Accumulator& a : finished) here().scalars[a.scalar] = finish(a);
    store_outer(s);
}

void Emitter::inner_loops(size_t s, size_t axis) {
    if (axis == k_.inner.size()) return inner_body(s);
    const Expr& extent = k_.inner[axis];
    V hi = index(extent);
    bool flushes = flush_axis_ == static_cast<int>(axis);
    if (!plan_.along_outer && axis + 1 == k_.inner.size()) {
        lane_loops(inner_bit(axis), i64(0), hi, extent.as_const(), plan_.unroll[s], plan_.one_body[s],
                   flushes ? flush_steps_ : 0, [&] { inner_body(s); });
        return;
    }
    Expr symbol = loops::inner_axis(static_cast<int>(axis), extent);
    auto walk = [&](V from, V to) {
        loop(inner_bit(axis), from, to, i64(1), true, [&](V i) {
            here().exprs[symbol] = i;
            inner_loops(s, axis + 1);
        });
    };
    if (!flushes) return walk(i64(0), hi);
    loop(0, i64(0), hi, i64(flush_steps_), true, [&](V c) {
        walk(c, b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateAdd(c, i64(flush_steps_)), hi));
        for (const Accumulator& a : accumulators_) flush(a);
    });
}

void Emitter::inner_body(size_t s) {
    const loops::Stage& st = k_.stages[s];
    for (const Accumulator& a : accumulators_) {
        if (a.indexed)
            accumulate_index(a);
        else
            accumulate(a);
    }
    for (const loops::Store& x : st.stores)
        if (x.level == loops::Level::Inner) value(x.scalar);
    for (const loops::Store& x : st.stores)
        if (x.level == loops::Level::Inner) store(x);
}

void Emitter::store_outer(size_t s) {
    for (const loops::Store& x : k_.stages[s].stores)
        if (x.level != loops::Level::Inner) value(x.scalar);
    for (const loops::Store& x : k_.stages[s].stores)
        if (x.level != loops::Level::Inner) store(x);
}

}  // namespace braze::codegen
