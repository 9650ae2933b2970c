#include "bridge/dtypes.h"

#include "core/support/error.h"

namespace braze::bridge {

namespace {
struct Row {
    ir::DType core;
    at::ScalarType torch;
};
constexpr Row kRows[] = {
    {ir::DType::Bool, at::kBool},  {ir::DType::U8, at::kByte},          {ir::DType::I8, at::kChar},
    {ir::DType::I16, at::kShort},  {ir::DType::I32, at::kInt},          {ir::DType::I64, at::kLong},
    {ir::DType::U16, at::kUInt16}, {ir::DType::U32, at::kUInt32},       {ir::DType::U64, at::kUInt64},
    {ir::DType::F16, at::kHalf},   {ir::DType::BF16, at::kBFloat16},    {ir::DType::F32, at::kFloat},
    {ir::DType::F64, at::kDouble}, {ir::DType::C64, at::kComplexFloat}, {ir::DType::C128, at::kComplexDouble},
};
}  // namespace

ir::DType to_dtype(at::ScalarType t) {
    for (const Row& r : kRows)
        if (r.torch == t) return r.core;
    return ir::DType::Other;
}

at::ScalarType to_scalar_type(ir::DType d) {
    for (const Row& r : kRows)
        if (r.core == d) return r.torch;
    BRAZE_CHECK(false, "no torch dtype for " + std::string(ir::name(d)));
}

}  // namespace braze::bridge
