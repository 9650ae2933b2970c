// Inputs that are written: what the graph copies into an input at its end can be computed in the input's own memory.
#pragma once
#include <unordered_map>
#include <unordered_set>
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
    // Of a kernel all of whose results have a home: it needs no memory, so it may run as soon as it can.
    bool all_at_home(const Step& step) const;
    // Steps that a kernel has to come after, so that its results are computed in place: those that read the inputs, and
    // for a kernel whose results are all at home those that may raise. The copies are not among them.
    struct Before {
        size_t step;
        const ir::Value* source;  // what has no home if the step cannot come before; nullptr: nothing
    };
    std::vector<std::vector<Before>> wanted_order(const std::vector<Step>& steps) const;
    void lose(const ir::Value* source) { homes_.erase(source); }
    // Takes the copies out of the steps (in their final order) whose source's kernel may write the input itself: nobody
    // reads the old elements later, and the kernel reads none that it has written. The other values lose their home.
    void settle(std::vector<Step>& steps);

  private:
    struct Home {
        const ir::Value* input;
        const ir::Node* copy;
    };
    using Readers = std::unordered_map<const ir::Value*, std::vector<size_t>>;
    // By the value that holds the memory: the steps that read it, other than the copies.
    Readers readers(const std::vector<Step>& steps) const;

    const Facts* facts_ = nullptr;
    std::unordered_map<const ir::Value*, Home> homes_;  // by source
    std::unordered_set<const ir::Node*> copies_;
};

}  // namespace braze::schedule
