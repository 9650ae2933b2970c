// Gathers units into clusters: a consumer joins the cluster of a producer where both run over the same index space.
#pragma once
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/schedule/cluster.h"
#include "core/schedule/dependences.h"
#include "core/schedule/facts.h"
#include "core/schedule/schedule.h"

namespace braze::schedule {

struct Fused {
    std::vector<Cluster> clusters;  // some of them dead (merged into others)
    Dependences order;              // over items
    std::vector<int> item_of_cluster;
    std::unordered_map<const ir::Node*, int> item_of_call;
};

Fused fuse(const Facts& facts, Units& units, const Options& options);

}  // namespace braze::schedule
