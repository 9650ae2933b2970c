#include "core/ir/dtype.h"

#include <array>

namespace braze::ir {

namespace {
struct Row {
    std::string_view text;
    int bytes;
    bool is_float, is_int, is_signed, has_code;
};
constexpr std::array kTable = {
#define DTYPE(e, text, bytes, fl, in, sg, code) Row{text, bytes, fl, in, sg, code},
#include "core/ir/dtype.def"
#undef DTYPE
};
const Row& row(DType d) { return kTable[static_cast<size_t>(d)]; }
}  // namespace

std::string_view name(DType d) { return row(d).text; }
int size_of(DType d) { return row(d).bytes; }
bool is_float(DType d) { return row(d).is_float; }
bool is_int(DType d) { return row(d).is_int; }
bool is_signed(DType d) { return row(d).is_signed; }
bool has_code(DType d) { return row(d).has_code; }

std::optional<DType> dtype_named(std::string_view text) {
    for (size_t i = 0; i < kTable.size(); ++i)
        if (kTable[i].text == text) return static_cast<DType>(i);
    return std::nullopt;
}

}  // namespace braze::ir
