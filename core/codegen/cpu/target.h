// What a vector isa means to the generator.
#pragma once
#include "core/codegen/cpu/compiler.h"

namespace braze::codegen {

int vector_bytes(Isa isa);      // 0 for Scalar: one element at a time
const char* isa_name(Isa isa);  // as in BRAZE_ISA

}  // namespace braze::codegen
