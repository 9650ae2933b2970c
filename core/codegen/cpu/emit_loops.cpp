// The structure of a kernel: outer points or segments, stages, inner loops, and the ways to walk the vectorised axis.
#include <llvm/IR/Verifier.h>

#include "core/codegen/cpu/emit.h"
#include "core/codegen/cpu/emitter.h"
#include "core/support/error.h"

namespace braze::codegen {

using ir::Op;
using loops::Scalar;
using loops::ScalarKind;

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
    if (!plan_.transposed.empty() && plan_.lanes > 1) outer_tiles();
    else if (plan_.along_outer) outer_segments();
    else outer_points();
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

// ---- control flow

void Emitter::enter(Depends defines, llvm::Instruction* point, llvm::Instruction* outside, const Body& body) {
    here().point = outside;
    Level level;
    level.defines = defines;
    level.point = point;
    levels_.push_back(std::move(level));
    at_ = levels_.size() - 1;
    b_.SetInsertPoint(point);
    body();
    levels_.pop_back();
    at_ = levels_.size() - 1;
}

void Emitter::if_then(V condition, Depends defines, const Body& body) {
    llvm::Instruction* rest = here().point;
    llvm::BasicBlock* before = rest->getParent();
    llvm::BasicBlock* after = before->splitBasicBlock(rest);
    auto* inside = llvm::BasicBlock::Create(module_.getContext(), "", function_, after);
    before->getTerminator()->eraseFromParent();
    b_.SetInsertPoint(inside);
    llvm::Instruction* end = b_.CreateBr(after);
    b_.SetInsertPoint(before);
    llvm::Instruction* jump = nullptr;
    if (condition) jump = b_.CreateCondBr(condition, inside, after);
    else jump = b_.CreateBr(inside);
    enter(defines, end, jump, body);
    here().point = rest;
    b_.SetInsertPoint(rest);
}

void Emitter::loop(Depends defines, V lo, V hi, V step, bool known_nonempty, const std::function<void(V)>& body) {
    llvm::Instruction* rest = here().point;
    llvm::BasicBlock* before = rest->getParent();
    llvm::BasicBlock* after = before->splitBasicBlock(rest);
    auto* inside = llvm::BasicBlock::Create(module_.getContext(), "", function_, after);
    auto* latch = llvm::BasicBlock::Create(module_.getContext(), "", function_, after);
    before->getTerminator()->eraseFromParent();
    b_.SetInsertPoint(before);
    llvm::Instruction* jump = nullptr;
    if (known_nonempty) jump = b_.CreateBr(inside);
    else jump = b_.CreateCondBr(b_.CreateICmpSLT(lo, hi), inside, after);
    b_.SetInsertPoint(inside);
    llvm::PHINode* counter = b_.CreatePHI(b_.getInt64Ty(), 2);
    llvm::Instruction* end = b_.CreateBr(latch);
    b_.SetInsertPoint(latch);
    V next = b_.CreateNSWAdd(counter, step);
    b_.CreateCondBr(b_.CreateICmpSLT(next, hi), inside, after);
    counter->addIncoming(lo, before);
    counter->addIncoming(next, latch);
    enter(defines, end, jump, [&] { body(counter); });
    here().point = rest;
    b_.SetInsertPoint(rest);
}

void Emitter::while_loop(Depends defines, const std::function<V()>& condition, const Body& body) {
    llvm::Instruction* rest = here().point;
    llvm::BasicBlock* before = rest->getParent();
    llvm::BasicBlock* after = before->splitBasicBlock(rest);
    auto* header = llvm::BasicBlock::Create(module_.getContext(), "", function_, after);
    auto* inside = llvm::BasicBlock::Create(module_.getContext(), "", function_, after);
    before->getTerminator()->eraseFromParent();
    b_.SetInsertPoint(before);
    llvm::Instruction* jump = b_.CreateBr(header);
    b_.SetInsertPoint(inside);
    llvm::Instruction* end = b_.CreateBr(header);
    b_.SetInsertPoint(header);
    V more = condition();
    b_.CreateCondBr(more, inside, after);
    enter(defines, end, jump, body);
    here().point = rest;
    b_.SetInsertPoint(rest);
}

void Emitter::fail_if(V condition) {
    llvm::Instruction* rest = levels_[at_].point;
    llvm::BasicBlock* before = rest->getParent();
    llvm::BasicBlock* after = before->splitBasicBlock(rest);
    before->getTerminator()->eraseFromParent();
    b_.SetInsertPoint(before);
    b_.CreateCondBr(condition, fail_, after);
    b_.SetInsertPoint(rest);
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
            here().exprs[loops::outer_axis(static_cast<int>(i), k_.outer[i])] = b_.CreateLoad(b_.getInt64Ty(), slots[i]);
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

// ---- the vectorised axis

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
    auto spread = [&](V x) { return b_.CreateVectorSplat(static_cast<unsigned>(n), b_.CreateTrunc(x, b_.getInt32Ty())); };
    V clipped = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, last, i64(n));
    V mask = b_.CreateICmpSLT(lanes, spread(clipped));
    return first ? b_.CreateAnd(mask, b_.CreateICmpSGE(lanes, spread(first))) : mask;
}

void Emitter::lane_loops(Depends defines, V lo, V hi, std::optional<int64_t> count, int parts, bool one_body, int64_t chunk,
                         const Body& body) {
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
    if (one_body) main_end = hi;
    else if (count) main_end = i64(*count / step * step);
    else main_end = b_.CreateAdd(lo, b_.CreateAnd(b_.CreateSub(hi, lo), i64(-step)));
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
    while_loop(0, [&] { return b_.CreateICmpSLT(load(), hi); }, [&] {
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

// ---- stages

void Emitter::point() {
    for (size_t s = 0; s < k_.stages.size(); ++s) stage(s);
}

// A sum in f32 or f64 is kept in two levels, so that its error does not grow with the number of terms: the vectors of the first
// level take at most kFlush terms each before they are added to the second.
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
        if (a.indexed) accumulate_index(a);
        else accumulate(a);
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
