// Inputs that are written: what the graph copies into an input at its end can be computed in the input's own memory.
#pragma once
#include <unordered_map>
#include <vector>

#include "core/schedule/facts.h"

namespace braze::schedule {

struct Step;

class Homes {
  public:
    Homes() = default;
    // The copies that nothing but time and the kernels' loops can forbid.
    explicit Homes(const Facts& facts);

    // The input that a value is copied to, or nullptr.
    const ir::Value* of(const ir::Value* source) const {
        auto it = homes_.find(source);
        return it == homes_.end() ? nullptr : it->second.input;
    }
    // Takes the copies out of the steps (in their final order) whose source's kernel may write the input itself: nobody
    // reads the old elements later, and the kernel reads none that it has written. The other values lose their home.
    void settle(std::vector<Step>& steps);

  private:
    struct Home {
        const ir::Value* input;
        const ir::Node* copy;
    };
    std::unordered_map<const ir::Value*, Home> homes_;  // by source
};

}  // namespace braze::schedule
