#include "core/autograd/sides.h"

#include <algorithm>

#include "core/ir/text.h"

namespace braze::autograd {

using ir::Node;
using ir::Value;

Sides::Sides(const Joint& joint)
    : joint_(joint), g_(joint.graph), memory_(g_), last_write_(static_cast<size_t>(memory_.count()), -1) {
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
        const Node& n = *g_.nodes[i];
        positions_[&n] = static_cast<int>(i);
        for (int w : n.writes)
            last_write_[static_cast<size_t>(memory_.of(n.operands[static_cast<size_t>(w)]))] = static_cast<int>(i);
    }
    find_dependent();
    find_required();
    obstacle_ = find_obstacle();
}

void Sides::find_dependent() {
    dependent_.assign(g_.nodes.size(), 0);
    backward_memory_.assign(static_cast<size_t>(memory_.count()), 0);
    for (int k = 0; k < joint_.n_tangents; ++k)
        dependent_[static_cast<size_t>(
            position(*g_.inputs[static_cast<size_t>(joint_.first_tangent) + static_cast<size_t>(k)]->node))] = 1;
    // (what makes memory that a dependent node writes comes before that node: hence more than one round)
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < g_.nodes.size(); ++i) {
            const Node& n = *g_.nodes[i];
            auto in_backward = [&](const Value* v) {
                return dependent(v) || backward_memory_[static_cast<size_t>(memory_.of(v))];
            };
            if (!dependent_[i]) {
                if (!std::any_of(n.operands.begin(), n.operands.end(), in_backward) &&
                    !std::any_of(n.results.begin(), n.results.end(), in_backward))
                    continue;
                dependent_[i] = 1;
                changed = true;
            }
            for (int w : n.writes) {
                char& mark = backward_memory_[static_cast<size_t>(memory_.of(n.operands[static_cast<size_t>(w)]))];
                changed |= !mark;
                mark = 1;
            }
        }
    }
}

void Sides::find_required() {
    required_.assign(g_.nodes.size(), 0);
    for (int k = 0; k < joint_.n_outputs; ++k)
        required_[static_cast<size_t>(position(*g_.outputs[static_cast<size_t>(k)]->node))] = 1;
    for (size_t i = g_.nodes.size(); i-- > 0;) {
        const Node& n = *g_.nodes[i];
        if (!dependent_[i] && (!passes::is_pure(n) || (n.op == ir::Op::Call && n.results.empty()))) required_[i] = 1;
        if (!required_[i]) continue;
        for (const Value* v : n.operands) required_[static_cast<size_t>(position(*v->node))] = 1;
    }
}

std::string Sides::find_obstacle() const {
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
        const Node& n = *g_.nodes[i];
        if (!dependent_[i]) continue;
        const bool tangent = n.op == ir::Op::Input;
        if (required_[i]) return "the program needs a value of the backward pass: " + ir::print(n);
        if (n.ordered || (n.op == ir::Op::Call && n.results.empty()))
            return "the backward pass has an effect: " + ir::print(n);
        for (const Value* v : n.results)
            if (!tangent && memory_.is_input(v) && memory_.written(v))
                return "the backward pass writes an input: " + ir::print(n);
        for (const Value* v : n.operands) {
            const bool writes = backward_memory_[static_cast<size_t>(memory_.of(v))];
            if (writes && memory_.is_input(v)) return "the backward pass writes an input: " + ir::print(n);
            if (!dependent(v) && last_write(v) > static_cast<int>(i))
                return "the backward pass reads what is written later: " + ir::print(n);
        }
    }
    for (int k = 0; k < joint_.n_outputs; ++k)
        if (backward_memory_[static_cast<size_t>(memory_.of(g_.outputs[static_cast<size_t>(k)]))])
            return "the backward pass writes an output";
    return {};
}

}  // namespace braze::autograd
