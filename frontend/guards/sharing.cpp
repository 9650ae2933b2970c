#include "frontend/guards/sharing.h"

#include <cstdint>

#include "frontend/bridge_api.h"

namespace braze::frontend {

std::optional<std::pair<size_t, size_t>> Sharing::conflict(const std::vector<PyObject*>& tensors) const {
    constexpr size_t kNone = SIZE_MAX;
    // A table of the storages met so far, with the first tensor of each; the first tensor of each group.
    struct Entry {
        const void* storage;
        size_t tensor;
    };
    size_t size = 16;
    while (size < 2 * tensors.size()) size *= 2;
    static thread_local std::vector<Entry> spare_table;
    static thread_local std::vector<size_t> spare_first;
    std::vector<Entry>& table = spare_table;  // (looked up in the thread's storage once)
    std::vector<size_t>& first = spare_first;
    const TensorBridge& bridge = *tensor_bridge();
    table.assign(size, {nullptr, 0});
    first.assign(written.size(), kNone);
    for (size_t i = 0; i < tensors.size(); ++i) {
        const void* storage = tensors[i] ? bridge.storage(tensors[i]) : nullptr;
        if (!storage) continue;
        auto g = static_cast<size_t>(group[i]);
        size_t at = (reinterpret_cast<uintptr_t>(storage) >> 4) * 0x9E3779B97F4A7C15ULL >> 20 & (size - 1);
        while (table[at].storage && table[at].storage != storage) at = (at + 1) & (size - 1);
        if (first[g] == kNone) {
            first[g] = i;
        } else if (table[at].storage != storage || group[table[at].tensor] != group[i]) {
            return std::pair(first[g], i);
        }
        if (!table[at].storage) {
            table[at] = {storage, i};
        } else if (auto other = static_cast<size_t>(group[table[at].tensor]); other != g) {
            if (written[g] || written[other]) return std::pair(table[at].tensor, i);
        }
    }
    return std::nullopt;
}

}  // namespace braze::frontend
