// Units of computation and the clusters they are gathered into. A cluster becomes one kernel.
#pragma once
#include <vector>

#include "core/schedule/facts.h"
#include "core/schedule/index.h"

namespace braze::schedule {

enum class UnitKind : uint8_t {
    Pointwise,  // a primitive operator, element by element
    Reduce,     // its domain is the operand's index space
    Part,       // one operand of a Cat, copied to its place in the result
    Keep        // a view, scalar or iota that has to be in memory
};

struct Unit {
    UnitKind kind;
    ir::Value* value;  // what it computes
    int part = -1;     // Part: which operand
    Expr part_offset;  // Part: where along the Cat's axis
    int region = 0;
    int cluster = -1;
    Index index;   // of its domain, in the cluster's axes
    int cost = 1;  // rough scalar operations per element

    const ir::Node& node() const { return *value->node; }
    const std::vector<Expr>& domain() const {
        if (kind == UnitKind::Reduce) return node().operands[0]->type.sizes;
        if (kind == UnitKind::Part) return node().operands[static_cast<size_t>(part)]->type.sizes;
        return value->type.sizes;
    }
    Index result_index() const { return kind == UnitKind::Reduce ? reduced_index(node(), index) : index; }
};

struct Axis {
    Expr symbol, extent;
    bool reduced = false;
};

struct Cluster {
    int region = 0;
    std::vector<Axis> axes;
    int next_axis = 0;  // for names
    bool reduces = false;
    bool column = false;     // the reduced axes are not the innermost ones in memory
    bool ordered = false;    // an ArgMax or ArgMin needs the reduced axes in their logical order
    std::vector<int> units;  // in program order
    int cost = 0;
    bool alive = true;
};

// The units of a graph in program order and what each value is computed by.
class Units {
  public:
    explicit Units(const Facts& facts);

    std::vector<Unit> list;
    // The unit that computes v where it is used by index; -1 for views, free values (Scalar, Iota), opaque values of
    // other origin.
    int computing(const ir::Value* v) const { return computing_[static_cast<size_t>(v->id)]; }
    // All units that have to be done before v is in memory.
    const std::vector<int>& storing(const ir::Value* v) const { return storing_[static_cast<size_t>(v->id)]; }
    // v's elements come in pieces or as a snapshot: others only ever load it.
    bool load_only(const ir::Value* v) const { return load_only_[static_cast<size_t>(v->id)]; }

    // The operands of unit u whose element at u's domain index is what u uses ...
    std::vector<ir::Value*> elementwise(const Unit& u) const;
    // ... and those read at other places.
    std::vector<ir::Value*> irregular(const Unit& u) const;
    // The value at the end of a chain of views: computed, or loaded.
    ir::Value* source(ir::Value* v) const;

  private:
    void add(UnitKind kind, ir::Value* v, const ValueFacts& f);

    std::vector<int> computing_;
    std::vector<std::vector<int>> storing_;
    std::vector<bool> load_only_;
};

// Rough cost of an operator in simple vector operations.
int cost_of(ir::Op op);

}  // namespace braze::schedule
