#include "core/codegen/cpu/link.h"

#include <llvm/ExecutionEngine/JITLink/JITLink.h>
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/SymbolStringPool.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/MemoryBuffer.h>

#include <unordered_map>

#include "core/codegen/cpu/symbols.h"
#include "core/support/error.h"

namespace braze::codegen {

namespace {

namespace jl = llvm::jitlink;
namespace orc = llvm::orc;

jl::InProcessMemoryManager& memory_manager() {
    // Never destroyed: code may be freed after static destructors have run.
    static jl::InProcessMemoryManager* manager = llvm::cantFail(jl::InProcessMemoryManager::Create()).release();
    return *manager;
}

class Code : public LinkedCode {
  public:
    ~Code() override {
        if (!allocation) return;
        if (llvm::Error e = memory_manager().deallocate(std::move(allocation))) llvm::consumeError(std::move(e));
    }
    void* symbol(const std::string& name) const override {
        auto it = symbols.find(name);
        return it == symbols.end() ? nullptr : it->second;
    }

    jl::JITLinkMemoryManager::FinalizedAlloc allocation;
    std::unordered_map<std::string, void*> symbols;
    std::string error;
};

class Context : public jl::JITLinkContext {
  public:
    explicit Context(Code& code) : JITLinkContext(nullptr), code_(code) {}

    jl::JITLinkMemoryManager& getMemoryManager() override { return memory_manager(); }
    void notifyFailed(llvm::Error e) override { code_.error = llvm::toString(std::move(e)); }

    void lookup(const LookupMap& wanted, std::unique_ptr<jl::JITLinkAsyncLookupContinuation> done) override {
        jl::AsyncLookupResult found;
        for (const auto& [name, flags] : wanted) {
            void* where = resolve_symbol((*name).str());
            if (!where && flags == jl::SymbolLookupFlags::RequiredSymbol) {
                done->run(
                    llvm::createStringError("compiled code calls '" + (*name).str() + "', which the process lacks"));
                return;
            }
            found[name] = {orc::ExecutorAddr::fromPtr(where), llvm::JITSymbolFlags::Exported};
        }
        done->run(std::move(found));
    }

    llvm::Error notifyResolved(jl::LinkGraph& graph) override {
        for (jl::Symbol* s : graph.defined_symbols())
            if (s->hasName() && s->getScope() == jl::Scope::Default)
                code_.symbols[(*s->getName()).str()] = s->getAddress().toPtr<void*>();
        return llvm::Error::success();
    }
    void notifyFinalized(jl::JITLinkMemoryManager::FinalizedAlloc a) override { code_.allocation = std::move(a); }

  private:
    Code& code_;
};

}  // namespace

std::shared_ptr<LinkedCode> link_object(const llvm::SmallVectorImpl<char>& object) {
    auto names = std::make_shared<orc::SymbolStringPool>();
    auto graph = jl::createLinkGraphFromObject(
        llvm::MemoryBufferRef(llvm::StringRef(object.data(), object.size()), "kernels"), names);
    if (!graph) throw InternalError("cannot read generated object code: " + llvm::toString(graph.takeError()));
    auto code = std::make_shared<Code>();
    jl::link(std::move(*graph), std::make_unique<Context>(*code));  // synchronous: our lookups answer at once
    if (!code->error.empty()) throw InternalError("cannot link generated code: " + code->error);
    return code;
}

}  // namespace braze::codegen
