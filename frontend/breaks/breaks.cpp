#include "frontend/breaks/breaks.h"

namespace braze::frontend {

const std::vector<BreakInfo>& break_table() {
    static const std::vector<BreakInfo> table = {
#define BREAK(id, title, explanation, hint) {id, title, explanation, hint},
#include "frontend/breaks/breaks.def"
#undef BREAK
    };
    return table;
}

const BreakInfo* find_break(const std::string& id) {
    for (const BreakInfo& b : break_table())
        if (id == b.id) return &b;
    return nullptr;
}

std::string Break::text() const {
    const BreakInfo* info = find_break(id);
    std::string out = id;
    if (info) out += std::string(": ") + info->title;
    if (!detail.empty()) out += " (" + detail + ")";
    if (!file.empty()) out += " at " + file + ":" + std::to_string(line) + " in " + function;
    if (info && *info->explanation) out += std::string("; ") + info->explanation;
    if (info && *info->hint) out += std::string("; hint: ") + info->hint;
    return out;
}

}  // namespace braze::frontend
