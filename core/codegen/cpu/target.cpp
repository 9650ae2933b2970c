#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>

#include <array>
#include <cstdlib>

#include "core/codegen/cpu/compiler.h"
#include "core/codegen/cpu/target.h"
#include "core/support/error.h"

namespace braze::codegen {

namespace {

struct IsaInfo {
    Isa isa;
    const char* name;
    int bytes;
    std::vector<const char*> features;  // beyond those of the isa before it
};

// Baseline x86-64 has SSE2; Scalar and Sse2 differ in the width the generator uses, not in the instruction set.
const std::array<IsaInfo, 4>& isa_table() {
    static const std::array<IsaInfo, 4> table = {{
        {Isa::Scalar, "scalar", 0, {}},
        {Isa::Sse2, "sse2", 16, {}},
        {Isa::Avx2,
         "avx2",
         32,
         {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt",
          "movbe"}},
        {Isa::Avx512, "avx512", 64, {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}},
    }};
    return table;
}

const llvm::StringMap<bool>& host_features() {
    static const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
    return features;
}

bool host_has(const char* feature) {
    auto it = host_features().find(feature);
    return it != host_features().end() && it->second;
}

}  // namespace

int vector_bytes(Isa isa) { return isa_table()[static_cast<size_t>(isa)].bytes; }
const char* isa_name(Isa isa) { return isa_table()[static_cast<size_t>(isa)].name; }

std::vector<Isa> host_isas() {
    std::vector<Isa> isas;
    for (const IsaInfo& info : isa_table()) {
        bool complete = true;
        for (const char* f : info.features) complete = complete && host_has(f);
        if (!complete) break;
        isas.push_back(info.isa);
    }
    return isas;
}

CpuTarget detect_target(const std::string& forced) {
    std::string wanted = forced;
    if (wanted.empty()) {
        const char* env = std::getenv("BRAZE_ISA");
        if (env) wanted = env;
    }
    std::vector<Isa> available = host_isas();
    Isa isa = available.back();
    if (!wanted.empty()) {
        bool found = false;
        std::string names;
        for (Isa a : available) {
            names += (names.empty() ? "" : ", ") + std::string(isa_name(a));
            if (wanted == isa_name(a)) {
                isa = a;
                found = true;
            }
        }
        if (!found) throw UserError("cpu isa '" + wanted + "' is not available: this machine has " + names);
    }
    CpuTarget target;
    target.isa = isa;
    static const std::string cpu = llvm::sys::getHostCPUName().str();
    target.cpu = cpu;
    for (const IsaInfo& info : isa_table()) {
        if (info.isa > isa) break;
        for (const char* f : info.features) target.features += (target.features.empty() ? "+" : ",+") + std::string(f);
    }
    target.fma = target.f16c = isa >= Isa::Avx2;
    target.avx512_bf16 = isa == Isa::Avx512 && host_has("avx512bf16");
    return target;
}

}  // namespace braze::codegen
