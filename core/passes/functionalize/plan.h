// Which storages of a graph can do without in-place calls, and how the values of each hang together.
#pragma once
#include <unordered_set>
#include <vector>

#include "core/ir/graph.h"

namespace braze::passes::functionalization {

// Describes the graph as it was when the plan was made; later values are not covered.
class Plan {
  public:
    explicit Plan(const ir::Graph& g);

    bool any() const { return !rewritten_.empty(); }
    // Writes to v's storage become pure, from some point of the program on.
    bool covers(const ir::Value* v) const { return storage(v) >= 0; }
    int storage(const ir::Value* v) const {  // -1: not covered
        return static_cast<size_t>(v->id) < origins_.size() ? origins_[static_cast<size_t>(v->id)].storage : -1;
    }
    struct Origin {
        int storage = -1;
        ir::Value* parent = nullptr;  // what v is a view of, or is; nullptr: v is its storage's base
        bool same_tensor = false;     // v is its parent, written
    };
    const Origin& origin(const ir::Value* v) const { return origins_[static_cast<size_t>(v->id)]; }
    bool rewrites(const ir::Node& n) const { return rewritten_.contains(&n); }

  private:
    struct Storage {
        const ir::Value* base = nullptr;
        const ir::Value* root = nullptr;  // what is used from here on: the base, or a view that was written
        bool bad = false;
        std::vector<const ir::Value*> values;
        std::vector<const ir::Node*> pure;  // writes with a pure form after the last one without
    };
    void look_at(const ir::Node& n);
    void look_at_write(const ir::Node& n);
    bool can_be_root(const ir::Value* v, const Storage& s) const;

    std::vector<Storage> storages_;
    std::vector<Origin> origins_;  // by value id
    std::vector<int> last_use_;    // by value id: position of a node
    int position_ = 0;
    std::unordered_set<const ir::Node*> rewritten_;
};

}  // namespace braze::passes::functionalization
