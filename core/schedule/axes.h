// Splitting a loop axis so that divisions of it disappear.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "core/schedule/cluster.h"

namespace braze::schedule {

struct AxisSplit {
    size_t axis;  // in the list of axes
    Expr inner;   // axis = outer * inner + rest
};

// A split that lets a division in `e` by a multiple of a factor of an axis' extent be simplified.
std::optional<AxisSplit> find_split(const Expr& e, const std::vector<Axis>& axes);
// Replaces the axis by two (adjacent, the new inner one second); the map to be applied to every expression over it.
using AxisMap = std::function<std::optional<Expr>(const Expr&)>;
AxisMap apply_split(std::vector<Axis>& axes, const AxisSplit& split, int& next_name);
bool has_division(const Expr& e);

}  // namespace braze::schedule
