// A joint graph, the program and its gradients, becomes two: a forward one, whose further outputs are kept, and a
// backward one, which starts from what was kept.
//
// What depends on a tangent runs in the backward graph. All else could run in either; a minimum cut decides what is
// kept, by what that costs (bytes, and whether the value is stored anyway), against computing again what is cheap:
// elementwise operators and views. Never computed again are random numbers and other effects, and what read memory that
// was written later; reductions and calls only in checkpointed regions, whose values are not kept if that can be
// avoided, but for those that others use, and within a memory budget: then those run again that save the most memory
// for their work, as many as the budget asks for.
//
// In the backward graph, what is computed again comes right before its first use, so that it does not wait in memory.
//
// What eager keeps can be kept as it is: if it is changed before the backward pass, both report an error. An input or
// output that eager does not keep may be changed by anyone, so that a copy is kept instead.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/autograd/region.h"
#include "core/ir/graph.h"

namespace braze::autograd {

struct Joint {
    ir::Graph graph;
    int first_tangent = 0, n_tangents = 0;  // among the graph's inputs
    int n_outputs = 0;                      // the first outputs are the program's, the others are gradients
    std::vector<char> keeps_input;          // per graph input: eager keeps it for its own backward pass
    std::vector<char> keeps_output;         // the same per output of the program
    std::vector<Region> regions;            // by line of the graph; may be shorter
    // How much may be kept, between the least (0) and what costs no time (1).
    double memory_budget = 1;
};

struct Saved {
    enum Kind : uint8_t { Input, Output, Value } kind;
    int index;  // Input: a graph input of both graphs but for the tangents. Output: of the program. Value: an output of
                // `forward`
    bool operator==(const Saved&) const = default;
};

struct Partition {
    ir::Graph forward;   // inputs: all but the tangents; outputs: the program's, then kept values
    ir::Graph backward;  // inputs: `saved`, then the tangents; outputs: the gradients
    std::vector<Saved> saved;
};

// nullopt: it cannot be cut in two, for the reason given (the gradients need random numbers, or write memory of the
// program ...).
std::optional<Partition> partition(const Joint& joint, std::string* obstacle);

}  // namespace braze::autograd
