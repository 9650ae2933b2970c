// From one kernel to one LLVM function.
#pragma once
#include <llvm/IR/Module.h>

#include "core/codegen/cpu/compiler.h"

namespace braze::codegen {

void emit_kernel(const loops::Kernel& kernel, const std::string& name, const CpuTarget& target, llvm::Module& module);

}  // namespace braze::codegen
