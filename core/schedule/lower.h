// A cluster as a scalar DAG with stores, over the cluster's own axes.
#pragma once
#include <string>
#include <vector>

#include "core/loops/kernel.h"
#include "core/schedule/cluster.h"
#include "core/schedule/fusion.h"

namespace braze::schedule {

struct Draft {
    struct Store {
        int buffer;
        Expr address;
        int scalar;
    };
    std::vector<Axis> axes;
    int next_axis = 0;
    bool reduces = false;
    bool ordered = false;
    std::vector<loops::Scalar> scalars;  // Load::param is an index into buffers; levels and stages are not set
    std::vector<ir::Value*> buffers;     // values in memory, each with its type's strides
    std::vector<Store> stores;
};

Draft lower(const Facts& facts, const Units& units, const Fused& fused, const std::vector<bool>& stored, int cluster);

}  // namespace braze::schedule
