// How the index spaces of units and clusters relate.
#pragma once
#include <optional>
#include <vector>

#include "core/schedule/axes.h"
#include "core/schedule/cluster.h"

namespace braze::schedule {

// What a unit reads: at its own index, and elsewhere.
struct Operands {
    std::vector<ir::Value*> same, other;
};

class Mapping {
  public:
    Mapping(const Units& units, const std::vector<Cluster>& clusters) : units_(units), clusters_(clusters) {}

    // The domain index of u if it were in cluster c, found from what c computes; nullopt if it cannot be there.
    std::optional<Index> index_in(const Unit& u, int c, const Operands& operands) const;
    // Everything of c that a unit at `index` with these operands goes back to is had in c at that very index (given by
    // `map`, where c's axes are about to become others).
    bool consistent(const Index& index, int c, const Operands& operands, const AxisMap& map = {}) const;
    // Does an index contain one of c's reduced axes?
    static bool runs_over_reduced(const Index& index, const Cluster& c);
    // Which of c's axes a reduction at `index` runs over; nullopt where an axis is needed on both sides.
    static std::optional<std::vector<bool>> reduced_axes(const Unit& u, const Index& index, const Cluster& c);
    // The position that an ArgMax reports counts the reduced axes row-major, which has to be the order of the loops.
    static bool keeps_order(const Unit& u, const Index& index, const std::vector<Axis>& axes,
                            const std::vector<bool>& reduced);

  private:
    const Unit& unit(int u) const { return units_.list[static_cast<size_t>(u)]; }
    std::optional<PartialIndex> known_index(const ir::Value* v, int c) const;
    static std::optional<Index> complete(const PartialIndex& index, const std::vector<Expr>& sizes, const Cluster& c);
    bool agrees(const ir::Value* v, const Index& index, int c, const AxisMap& map) const;
    bool touches(ir::Value* v, int c) const;

    const Units& units_;
    const std::vector<Cluster>& clusters_;
};

}  // namespace braze::schedule
