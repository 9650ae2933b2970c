#include "core/codegen/cpu/machine.h"

#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassManager.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Mem2Reg.h>
#include <llvm/Transforms/Utils/SimplifyCFGOptions.h>

#include <mutex>
#include <vector>

#include "core/support/error.h"

namespace braze::codegen {

namespace {

// Options of LLVM that have no other interface. (Ours is a private copy of LLVM.)
void set_flag(const char* name, bool value) {
    auto& options = llvm::cl::getRegisteredOptions();
    auto it = options.find(name);
    BRAZE_CHECK(it != options.end(), std::string("LLVM has no option ") + name);
    static_cast<llvm::cl::opt<bool>*>(it->second)->setValue(value);
}

// LLVM's registries are filled when the first kernel is compiled, not when the library is loaded.
void initialise_llvm() {
    static std::once_flag once;
    std::call_once(once, [] {
        llvm::InitializeNativeTarget();
        llvm::InitializeNativeTargetAsmPrinter();
        set_flag("disable-lsr", true);  // a fifth of the compile time; the emitter's addresses are reduced already
        // Constants stay memory operands of the instructions: in registers, polynomials would exhaust them.
        set_flag("disable-machine-licm", true);
    });
}

struct Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<Machine>> idle;
};
Pool& pool() {
    static Pool* p = new Pool;  // never destroyed: workers may still run at exit
    return *p;
}

constexpr size_t kMaxIdle = 16;

void give_back(Machine* m) {
    std::unique_ptr<Machine> owned(m);
    Pool& p = pool();
    std::lock_guard lock(p.mutex);
    if (p.idle.size() < kMaxIdle) p.idle.push_back(std::move(owned));
}

bool same(const CpuTarget& a, const CpuTarget& b) {
    return a.isa == b.isa && a.cpu == b.cpu && a.features == b.features;
}

}  // namespace

// The generator vectorises, hoists and unrolls by itself; what is left for LLVM is to make registers of the
// accumulators, to merge blocks and equal values.
struct Machine::Optimiser {
    explicit Optimiser(llvm::TargetMachine* machine) : builder(machine) {
        builder.registerFunctionAnalyses(functions);
        builder.registerModuleAnalyses(modules);
        builder.registerCGSCCAnalyses(components);
        builder.registerLoopAnalyses(loops);
        builder.crossRegisterProxies(loops, functions, components, modules);
        passes.addPass(llvm::SimplifyCFGPass());
        passes.addPass(llvm::PromotePass());
        passes.addPass(llvm::EarlyCSEPass());
    }
    void run(llvm::Module& module) {
        for (llvm::Function& f : module)
            if (!f.isDeclaration()) passes.run(f, functions);
        loops.clear();
        functions.clear();
        components.clear();
        modules.clear();
    }

    llvm::PassBuilder builder;
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager components;
    llvm::ModuleAnalysisManager modules;
    llvm::FunctionPassManager passes;
};

// The passes to machine code. Making them takes longer than a small kernel takes in them, so they are kept; each run
// begins and ends with an empty context and an empty buffer.
struct Machine::Emission {
    explicit Emission(llvm::TargetMachine& machine) : stream(bytes) {
        llvm::MCContext* context = nullptr;
        BRAZE_CHECK(!machine.addPassesToEmitMC(passes, context, stream), "LLVM cannot emit machine code");
    }

    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream;
    llvm::legacy::PassManager passes;
};

Machine::Machine(const CpuTarget& target) : target_(target) {
    initialise_llvm();
    std::string error;
    llvm::Triple triple(llvm::sys::getProcessTriple());
    const llvm::Target* t = llvm::TargetRegistry::lookupTarget(triple, error);
    BRAZE_CHECK(t, "no LLVM target for " + triple.str() + ": " + error);
    llvm::TargetOptions options;
    options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // a*b+c is fused only where the kernel says Fma
    machine_.reset(t->createTargetMachine(triple, "x86-64", target.features, options, llvm::Reloc::PIC_,
                                          llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, /*JIT=*/true));
    BRAZE_CHECK(machine_, "LLVM cannot make a machine for " + triple.str());
}

void Machine::prepare(llvm::Module& module) const {
    module.setDataLayout(machine_->createDataLayout());
    module.setTargetTriple(machine_->getTargetTriple());
}

Machine::~Machine() = default;

void Machine::optimise(llvm::Module& module) {
    if (!optimiser_) optimiser_ = std::make_unique<Optimiser>(machine_.get());
    optimiser_->run(module);
}

llvm::SmallVector<char, 0> Machine::object_code(llvm::Module& module) {
    if (!emission_) emission_ = std::make_unique<Emission>(*machine_);
    emission_->passes.run(module);
    llvm::SmallVector<char, 0> bytes(emission_->bytes.begin(), emission_->bytes.end());
    emission_->bytes.clear();
    return bytes;
}

std::string Machine::assembly(llvm::Module& module) {
    llvm::SmallVector<char, 0> text;
    llvm::raw_svector_ostream stream(text);
    llvm::legacy::PassManager passes;
    BRAZE_CHECK(!machine_->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile),
                "LLVM cannot emit assembly");
    passes.run(module);
    return std::string(text.data(), text.size());
}

MachineHandle borrow_machine(const CpuTarget& target) {
    Pool& p = pool();
    {
        std::lock_guard lock(p.mutex);
        for (size_t i = 0; i < p.idle.size(); ++i) {
            if (!same(p.idle[i]->target(), target)) continue;
            Machine* m = p.idle[i].release();
            p.idle.erase(p.idle.begin() + static_cast<std::ptrdiff_t>(i));
            return {m, give_back};
        }
    }
    return {new Machine(target), give_back};
}

}  // namespace braze::codegen
