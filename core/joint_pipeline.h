// From a joint graph, a program with its gradients, to two programs.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/autograd/partition.h"
#include "core/pipeline.h"

namespace braze {

struct TrainingPrograms {
    std::unique_ptr<runtime::Program> forward, backward;  // of the graphs of autograd::Partition
    std::vector<autograd::Saved> saved;
};
// nullopt: the joint graph has no two halves, for the reason given.
std::optional<TrainingPrograms> compile_joint(autograd::Joint joint, const PipelineOptions& options,
                                              std::string* obstacle, PipelineStats* stats = nullptr);

}  // namespace braze
