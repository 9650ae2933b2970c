// Which nodes of a joint graph belong where, before anything is chosen.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "core/autograd/partition.h"
#include "core/passes/memory.h"

namespace braze::autograd {

class Sides {
  public:
    explicit Sides(const Joint& joint);

    // Why there are no two sides, or an empty string.
    const std::string& obstacle() const { return obstacle_; }
    int position(const ir::Node& n) const { return positions_.at(&n); }
    // It needs a tangent, or memory that such nodes write: it runs in the backward graph.
    bool dependent(const ir::Node& n) const { return dependent_[static_cast<size_t>(position(n))] != 0; }
    bool dependent(const ir::Value* v) const { return dependent(*v->node); }
    // The program's outputs or effects need it: it runs in the forward graph.
    bool required(const ir::Node& n) const { return required_[static_cast<size_t>(position(n))] != 0; }
    // Where in the graph v's memory is written last; -1: nowhere.
    int last_write(const ir::Value* v) const { return last_write_[static_cast<size_t>(memory_.of(v))]; }
    const passes::Memory& memory() const { return memory_; }

  private:
    void find_dependent();
    void find_required();
    std::string find_obstacle() const;

    const Joint& joint_;
    const ir::Graph& g_;
    passes::Memory memory_;
    std::unordered_map<const ir::Node*, int> positions_;
    std::vector<int> last_write_;             // by memory: a position
    std::vector<char> dependent_, required_;  // by position
    std::vector<char> backward_memory_;       // by memory: dependent nodes write it
    std::string obstacle_;
};

}  // namespace braze::autograd
