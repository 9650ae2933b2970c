// From kernels to machine code in this process, by LLVM and JITLink. Thread-safe. The only LLVM-free header of
// codegen/cpu.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/loops/kernel.h"

namespace braze::codegen {

enum class Isa : uint8_t { Scalar, Sse2, Avx2, Avx512 };  // vector width in bytes: element size, 16, 32, 64

struct CpuTarget {
    Isa isa;               // what to generate for; never more than the host has
    std::string cpu;       // LLVM's name of the host
    std::string features;  // LLVM's feature string, limited to the isa
    bool fma = false, f16c = false, avx512_bf16 = false;
};
// The host's best, or less where asked for (BRAZE_ISA or the option cpu.isa: "scalar", "sse2", "avx2", "avx512").
// A forced isa the host lacks is a UserError that lists what it has.
CpuTarget detect_target(const std::string& forced = {});
std::vector<Isa> host_isas();

struct CompiledKernel {  // stays valid as long as one shared_ptr to it lives
    loops::KernelFn fn = nullptr;
    std::shared_ptr<void> code;  // owner of the machine code
};

struct CompileStats {
    int kernels = 0, unique = 0, cached = 0;
    double seconds_ir = 0, seconds_opt = 0, seconds_code = 0;
};

// Compiles a batch; identical kernels (loops::canonical) once in the process's lifetime while anybody holds the code.
// Uses up to `threads` threads of its own for the batch. dump, if set, receives the LLVM IR (optimised) and the
// assembly of each.
std::vector<CompiledKernel> compile(const std::vector<loops::Kernel>& kernels, const CpuTarget& target, int threads,
                                    CompileStats* stats = nullptr,
                                    std::vector<std::pair<std::string, std::string>>* dump = nullptr);

// Functions that compiled code may call by name, beside those that dlsym finds in the process (SLEEF's vector
// functions, for one, if the host has loaded a library with them). Later registrations of a name win. Thread-safe.
void register_symbols(std::vector<std::pair<std::string, void*>> symbols);

}  // namespace braze::codegen
