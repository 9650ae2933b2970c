#include "core/schedule/arena.h"

#include <algorithm>
#include <iterator>

namespace braze::schedule {

int64_t Arena::allocate(int64_t bytes) {
    bytes = rounded(bytes);
    if (bytes == 0) return 0;
    auto best = holes_.end();
    for (auto it = holes_.begin(); it != holes_.end(); ++it)
        if (it->second >= bytes && (best == holes_.end() || it->second < best->second)) best = it;
    if (best == holes_.end()) {
        const int64_t at = end_;
        end_ += bytes;
        high_ = std::max(high_, end_);
        return at;
    }
    const auto [at, size] = *best;
    holes_.erase(best);
    if (size > bytes) holes_[at + bytes] = size - bytes;
    return at;
}

void Arena::release(int64_t offset, int64_t bytes) {
    bytes = rounded(bytes);
    if (bytes == 0) return;
    auto it = holes_.emplace(offset, bytes).first;
    if (auto next = std::next(it); next != holes_.end() && offset + bytes == next->first) {
        it->second += next->second;
        holes_.erase(next);
    }
    if (it != holes_.begin()) {
        auto before = std::prev(it);
        if (before->first + before->second == it->first) {
            before->second += it->second;
            holes_.erase(it);
            it = before;
        }
    }
    if (it->first + it->second == end_) {
        end_ = it->first;
        holes_.erase(it);
    }
}

}  // namespace braze::schedule
