// One worker's LLVM state: a target machine that optimises modules and turns them into object code. Not thread-safe;
// workers borrow machines from a pool, so that the costly set-up happens once per concurrent worker.
#pragma once
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>

#include "core/codegen/cpu/compiler.h"

namespace braze::codegen {

class Machine {
  public:
    explicit Machine(const CpuTarget& target);
    ~Machine();

    const CpuTarget& target() const { return target_; }
    void prepare(llvm::Module& module) const;  // data layout and triple
    void optimise(llvm::Module& module);
    llvm::SmallVector<char, 0> object_code(llvm::Module& module);
    std::string assembly(llvm::Module& module);

  private:
    struct Optimiser;
    struct Emission;

    CpuTarget target_;
    std::unique_ptr<llvm::TargetMachine> machine_;
    std::unique_ptr<Optimiser> optimiser_;  // made when they are first used
    std::unique_ptr<Emission> emission_;
};

// A machine of the pool for that target; goes back to it when the handle dies.
using MachineHandle = std::unique_ptr<Machine, void (*)(Machine*)>;
MachineHandle borrow_machine(const CpuTarget& target);

}  // namespace braze::codegen
