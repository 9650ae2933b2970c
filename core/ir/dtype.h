// Element types. The table is dtype.def.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace braze::ir {

enum class DType : uint8_t {
#define DTYPE(e, text, bytes, fl, in, sg, code) e,
#include "core/ir/dtype.def"
#undef DTYPE
};

std::string_view name(DType d);
std::optional<DType> dtype_named(std::string_view text);
int size_of(DType d);    // bytes; 0 for Other
bool is_float(DType d);  // f16, bf16, f32, f64
bool is_int(DType d);    // without bool
bool is_signed(DType d);
bool has_code(DType d);  // the code generator can load, compute and store it
inline bool is_half(DType d) { return d == DType::F16 || d == DType::BF16; }
// The type in which eager computes a pointwise operation on d: f32 for the half types, else d itself.
inline DType compute_type(DType d) { return is_half(d) ? DType::F32 : d; }

}  // namespace braze::ir
