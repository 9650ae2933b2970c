#include "core/passes/decompose/promotion.h"

namespace braze::passes::decomposition {

using ir::DType;

namespace {

int kind_of(DType d) { return ir::is_float(d) ? 2 : ir::is_int(d) ? 1 : 0; }
bool is_wide_unsigned(DType d) { return d == DType::U16 || d == DType::U32 || d == DType::U64; }

// The lower category counts only where its kind is higher.
std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower) {
    if (!higher) return lower;
    if (!lower || kind_of(*lower) <= kind_of(*higher)) return higher;
    return *higher == DType::Bool || kind_of(*lower) == 2 ? promote(*higher, *lower) : higher;
}

}  // namespace

std::optional<DType> promote(DType a, DType b) {
    if (a == b) return a;
    if (kind_of(a) != kind_of(b)) return kind_of(a) > kind_of(b) ? a : b;
    if (ir::is_float(a)) {
        if (a == DType::F64 || b == DType::F64) return DType::F64;
        return DType::F32;  // f16 and bf16 meet in f32
    }
    if (is_wide_unsigned(a) || is_wide_unsigned(b)) return std::nullopt;
    if (ir::is_signed(a) == ir::is_signed(b)) return ir::size_of(a) > ir::size_of(b) ? a : b;
    DType other = a == DType::U8 ? b : a;
    return other == DType::I8 ? DType::I16 : other;
}

std::optional<DType> result_type(std::span<const Operand> operands) {
    std::optional<DType> with_dims, zero_dim, number;
    bool float_number = false;
    for (const Operand& o : operands) {
        if (ir::Value* v = o.tensor()) {
            std::optional<DType>& category = v->type.rank() > 0 ? with_dims : zero_dim;
            if (!category) {
                category = v->type.dtype;
            } else {
                category = promote(*category, v->type.dtype);
                if (!category) return std::nullopt;
            }
        } else if (o.number().is_float()) {
            float_number = true;
        } else if (!number || o.number().is_integer()) {
            number = o.number().is_integer() ? DType::I64 : DType::Bool;
        }
    }
    std::optional<DType> tensors = combine(with_dims, zero_dim);
    if ((with_dims || zero_dim) && !tensors) return std::nullopt;
    if (float_number) {
        if (tensors && ir::is_float(*tensors)) return tensors;
        return std::nullopt;
    }
    return combine(tensors, number);
}

}  // namespace braze::passes::decomposition
