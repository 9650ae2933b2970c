// What a graph's values share and write, for passes that move or remove nodes.
#pragma once
#include <vector>

#include "core/ir/graph.h"

namespace braze::passes {

inline bool is_pure(const ir::Node& n) { return n.writes.empty() && !n.ordered; }

// Every value belongs to one memory: its storage, or, with storage -1, one of its own. Numbered densely: storages
// first, then ids.
class Memory {
  public:
    explicit Memory(const ir::Graph& g);
    int of(const ir::Value* v) const { return v->storage >= 0 ? v->storage : storages_ + v->id; }
    int count() const { return count_; }
    bool written(const ir::Value* v) const {
        return written_[static_cast<size_t>(of(v))];
    }  // by some node of the graph
    bool is_input(const ir::Value* v) const { return input_[static_cast<size_t>(of(v))]; }  // memory of a graph input
    bool is_output(const ir::Value* v) const {
        return output_[static_cast<size_t>(of(v))];
    }  // memory of a graph output

  private:
    int storages_, count_;
    std::vector<char> written_, input_, output_;
};

}  // namespace braze::passes
