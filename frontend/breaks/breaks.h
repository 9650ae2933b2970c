// Break reasons are data: breaks.def has one line each.
#pragma once
#include <string>
#include <vector>

namespace braze::frontend {

struct BreakInfo {
    const char *id, *title, *explanation, *hint;
};
const std::vector<BreakInfo>& break_table();
const BreakInfo* find_break(const std::string& id);  // nullptr: unknown

struct Break {
    std::string id;
    std::string detail;  // "print", "torch.Tensor.tolist"
    std::string file;    // of the innermost user frame
    int line = 0;
    std::string function;
    std::string text() const;  // "data-dependent: a value ... (if at model.py:12 in forward)"
};

}  // namespace braze::frontend
