// Branches and loops. Each opens a level: it splits the block at the insertion point of the level around it, which
// stays valid.
#include "core/codegen/cpu/emitter.h"

namespace braze::codegen {

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
    if (condition)
        jump = b_.CreateCondBr(condition, inside, after);
    else
        jump = b_.CreateBr(inside);
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
    if (known_nonempty)
        jump = b_.CreateBr(inside);
    else
        jump = b_.CreateCondBr(b_.CreateICmpSLT(lo, hi), inside, after);
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

}  // namespace braze::codegen
