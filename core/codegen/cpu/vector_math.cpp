#include "core/codegen/cpu/vector_math.h"

#include <llvm/IR/Module.h>

#include <algorithm>

#include "core/codegen/cpu/elementwise.h"
#include "core/codegen/cpu/symbols.h"
#include "core/support/error.h"

namespace braze::codegen {

using ir::Op;

namespace {

struct MathFunction {
    const char* c;         // C function for f64; f32 has the suffix f
    const char* sleef;     // "" for none
    const char* accuracy;  // SLEEF's suffix
};

const MathFunction* find_function(Op op) {
    switch (op) {
#define MATH(op, function, sleef, accuracy, arity)                      \
    case Op::op: {                                                      \
        static constexpr MathFunction f = {#function, sleef, accuracy}; \
        return &f;                                                      \
    }
#include "core/codegen/cpu/math_functions.def"
#undef MATH
        default: return nullptr;
    }
}

llvm::FunctionCallee declare(llvm::Module& m, const std::string& name, llvm::FunctionType* type, bool pure) {
    llvm::FunctionCallee callee = m.getOrInsertFunction(name, type);
    auto* f = llvm::cast<llvm::Function>(callee.getCallee());
    f->setDoesNotThrow();
    f->setWillReturn();
    if (pure) f->setDoesNotAccessMemory();
    return callee;
}

}  // namespace

bool VectorMath::inlined(Op op, const CpuTarget& target) {
    switch (op) {
        case Op::Exp:
        case Op::Exp2:
        case Op::Expm1:
        case Op::Log:
        case Op::Log2:
        case Op::Log10:
        case Op::Log1p:
        case Op::Tanh:
        case Op::Sigmoid:
        case Op::Erf:
        case Op::Fmod: return true;
        case Op::Sin:
        case Op::Cos: return target.fma;  // the reduction relies on it
        default: return false;
    }
}

llvm::Value* VectorMath::unary(Op op, V x) {
    if (op == Op::Sigmoid) {
        V one = constant(x, 1.0);
        return b_.CreateFDiv(one, b_.CreateFAdd(one, unary(Op::Exp, b_.CreateFNeg(x))));
    }
    if (!x->getType()->getScalarType()->isFloatTy() || !inlined(op, target_)) return call(op, {x});
    switch (op) {
        case Op::Exp: return exp(x);
        case Op::Exp2: return exp2(x);
        case Op::Expm1: return expm1(x);
        case Op::Log: return log(x);
        case Op::Log2: return log2(x);
        case Op::Log10: return log10(x);
        case Op::Log1p: return log1p(x);
        case Op::Tanh: return tanh(x);
        case Op::Erf: return erf(x);
        case Op::Sin: return sin_cos(x, false);
        case Op::Cos: return sin_cos(x, true);
        default: return call(op, {x});
    }
}

llvm::Value* VectorMath::binary(Op op, V x, V y) {
    if (op == Op::Fmod && x->getType()->getScalarType()->isFloatTy()) return fmod(x, y);
    return call(op, {x, y});
}

llvm::Value* VectorMath::call(Op op, llvm::ArrayRef<V> args) {
    const MathFunction* f = find_function(op);
    BRAZE_CHECK(f, "operator " + std::string(ir::name(op)) + " has no math function");
    llvm::Type* type = args[0]->getType();
    bool single = type->getScalarType()->isFloatTy();
    std::string suffix = single ? "f" : "";
    if (!type->isVectorTy()) {
        llvm::SmallVector<llvm::Type*, 2> types(args.size(), type);
        auto callee = declare(*b_.GetInsertBlock()->getModule(), f->c + suffix,
                              llvm::FunctionType::get(type, types, false), true);
        return b_.CreateCall(callee, args);
    }
    if (*f->sleef && target_.isa >= Isa::Avx2) {
        bool wide = target_.isa == Isa::Avx512;
        unsigned width = (wide ? 64 : 32) / (single ? 4 : 8);
        std::string symbol = std::string("Sleef_") + f->sleef + (single ? "f" : "d") + std::to_string(width) + "_" +
                             f->accuracy + (wide ? "avx512f" : "avx2");
        if (resolve_symbol(symbol)) return call_sleef(symbol, width, args);
    }
    return call_lanes(std::string("braze_lanes_") + f->c + suffix, args);
}

// The function takes vectors of `width` lanes: cut longer ones up, fill shorter ones with their first lane.
llvm::Value* VectorMath::call_sleef(const std::string& symbol, unsigned width, llvm::ArrayRef<V> args) {
    auto lanes = static_cast<unsigned>(lanes_of(args[0]));
    llvm::Type* part = with_lanes(args[0]->getType()->getScalarType(), static_cast<int>(width));
    llvm::SmallVector<llvm::Type*, 2> types(args.size(), part);
    auto callee = declare(*b_.GetInsertBlock()->getModule(), symbol, llvm::FunctionType::get(part, types, false), true);
    llvm::SmallVector<V, 8> results;
    for (unsigned at = 0; at < lanes; at += width) {
        llvm::SmallVector<int, 16> pick(width);
        for (unsigned i = 0; i < width; ++i) pick[i] = static_cast<int>(at + i < lanes ? at + i : at);
        llvm::SmallVector<V, 2> parts;
        for (V a : args) parts.push_back(lanes == width ? a : b_.CreateShuffleVector(a, pick));
        results.push_back(b_.CreateCall(callee, parts));
    }
    while (results.size() > 1) {
        llvm::SmallVector<V, 8> joined;
        for (size_t i = 0; i + 1 < results.size(); i += 2) {
            llvm::SmallVector<int, 32> all(2 * static_cast<size_t>(lanes_of(results[i])));
            for (size_t k = 0; k < all.size(); ++k) all[k] = static_cast<int>(k);
            joined.push_back(b_.CreateShuffleVector(results[i], results[i + 1], all));
        }
        results = joined;
    }
    if (lanes >= width) return results[0];
    llvm::SmallVector<int, 16> head(lanes);
    for (unsigned i = 0; i < lanes; ++i) head[i] = static_cast<int>(i);
    return b_.CreateShuffleVector(results[0], head);
}

llvm::Value* VectorMath::stack_slot(llvm::Type* type) {
    llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
    llvm::IRBuilder<> at(&entry, entry.begin());
    llvm::AllocaInst* slot = at.CreateAlloca(type);
    slot->setAlignment(llvm::Align(type->isVectorTy() ? 64 : 16));
    return slot;
}

llvm::Value* VectorMath::call_lanes(const std::string& name, llvm::ArrayRef<V> args) {
    llvm::Type* type = args[0]->getType();
    llvm::SmallVector<llvm::Type*, 3> types(args.size(), b_.getPtrTy());
    types.push_back(b_.getInt64Ty());
    auto callee =
        declare(*b_.GetInsertBlock()->getModule(), name, llvm::FunctionType::get(b_.getVoidTy(), types, false), false);
    llvm::SmallVector<V, 3> operands;
    for (V a : args) {
        V slot = stack_slot(type);
        b_.CreateStore(a, slot);
        operands.push_back(slot);
    }
    V result = operands[0];
    operands.push_back(b_.getInt64(static_cast<uint64_t>(lanes_of(args[0]))));
    b_.CreateCall(callee, operands);
    return b_.CreateLoad(type, result);
}

}  // namespace braze::codegen
