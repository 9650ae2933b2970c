// What the scheduler has to know about a graph before it decides anything: memory (who views whom, what has to be
// stored with exact strides, what is handed out) and time (regions between writes, values that may be computed at
// another time).
#pragma once
#include <optional>
#include <vector>

#include "core/ir/graph.h"
#include "core/schedule/index.h"

namespace braze::schedule {

// A value as a strided window into the memory of `root` (not a view itself).
struct Layout {
    ir::Value* root;
    Expr offset;  // elements, from root's first element
    std::vector<Expr> strides;
};

struct ValueFacts {
    int position = -1;   // of its node in the graph
    int region = 0;      // number of writing Calls before its node
    bool alias = false;  // a view that shares memory with its operand by the meaning of the program
    bool stable =
        true;  // its elements are the same whenever they are read or computed: no Call writes what it comes from
    ir::Value* base = nullptr;  // through alias views: whose memory it is by the meaning of the program
    Layout in_base;             // where in it
    std::optional<Layout>
        layout;            // where its elements can be loaded from, seen through all views; root is no view, or opaque
    bool stored = false;   // has to be in memory of its own, with its type's strides
    bool shared = false;   // a base that is a view all the same (no alias): in memory as a window of layout->root
    bool opaque = false;   // is loaded by everyone, never computed where it is used: inputs, results of Calls, ...
    bool escapes = false;  // its memory is handed out
    ir::Value* owner = nullptr;  // the value that holds the memory it lives in, seen through view Calls as well
    int uses = 0;
};

class Facts {
  public:
    explicit Facts(ir::Graph& g);

    ir::Graph& graph;
    ValueFacts& of(const ir::Value* v) { return values_[static_cast<size_t>(v->id)]; }
    const ValueFacts& of(const ir::Value* v) const { return values_[static_cast<size_t>(v->id)]; }
    int regions() const { return regions_; }

  private:
    void describe(ir::Node* n, int position);
    void find_layouts();
    void find_owners();
    void find_unstable();
    void require_outputs();
    void require_call_operands();
    void require_across_regions();
    void reach(ir::Value* v, int region);

    std::vector<ValueFacts> values_;
    int regions_ = 1;
};

bool is_view(const ir::Node& n);      // an index map
bool is_computed(const ir::Node& n);  // a primitive operator with elements of its own (no view, no input, no Call)
bool is_alias(const ir::Node& view);  // it shares memory with its operand by the meaning of the program
bool is_empty(const ir::Value* v);    // has certainly no elements
// The Layout of a view of something laid out as `operand`, if it is a strided window.
std::optional<Layout> view_layout(const ir::Node& view, const Layout& operand);
// Elements of memory that a tensor spans.
Expr extent(const ir::TensorType& t);

}  // namespace braze::schedule
