// Offsets for buffers that live at different times in one block of memory.
#pragma once
#include <cstdint>
#include <map>

namespace braze::schedule {

class Arena {
  public:
    static constexpr int64_t kAlignment = 64;
    int64_t allocate(int64_t bytes);              // the smallest hole that is large enough, else at the end
    void release(int64_t offset, int64_t bytes);  // as allocated
    int64_t size() const { return high_; }        // the most that was ever needed

  private:
    static int64_t rounded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
    std::map<int64_t, int64_t> holes_;  // offset -> bytes; never adjacent, none at the end
    int64_t end_ = 0, high_ = 0;
};

}  // namespace braze::schedule
