#include "core/autograd/partition.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "core/autograd/min_cut.h"
#include "core/autograd/sides.h"
#include "core/ir/op.h"
#include "core/support/error.h"

namespace braze::autograd {

namespace {

using ir::Node;
using ir::Op;
using ir::OpKind;
using ir::Value;

// What a size symbol counts for when costs are compared.
constexpr int64_t kTypicalSize = 64;
// How much more a value counts that a checkpointed region should not keep, and the bytes from which on all are equal.
constexpr int64_t kCheckpointed = 4096, kLargest = 1'099'511'627'776;

int64_t bytes_of(const Value* v) {
    auto count = v->type.numel().evaluate([](const ir::Expr&) -> std::optional<int64_t> { return kTypicalSize; });
    return std::max<int64_t>(count.value_or(1'073'741'824), 1) * std::max<int64_t>(ir::size_of(v->type.dtype), 1);
}

// A view whose place does not depend on where its operand lies in memory.
bool is_view(const Node& n) {
    if (kind(n.op) == OpKind::View) return n.op != Op::AsStrided && n.op != Op::Flip;
    return n.op == Op::Call && passes::is_pure(n) && n.operands.size() == 1 && !n.aliases.empty() &&
           !n.callee.starts_with("aten::as_strided") &&
           std::all_of(n.aliases.begin(), n.aliases.end(), [](int a) { return a == 0; });
}

bool is_cheap(const Node& n) {
    if (is_view(n) || ir::is_elementwise(n.op)) return true;
    const OpKind k = kind(n.op);
    return k == OpKind::Constant || k == OpKind::Create || n.op == Op::Pad || n.op == Op::Flip;
}

// Copies nodes of a graph into another one.
class Extract {
  public:
    Extract(const ir::Graph& from, ir::Graph& to) : to_(to), values_(static_cast<size_t>(from.id_bound())) {
        to_.lines = from.lines;
        to_.symbols = from.symbols;
        to_.reserve_storages(from.storage_bound());
    }
    void input(const Value* v, int storage) { place(v) = to_.add_input(v->type, storage, v->name); }
    // renew: what is no view gets memory of its own. (A value that is computed again does not share the kept one's.)
    void node(const Node& n, bool renew) {
        Node* copy = to_.add_node(n.op);
        copy->callee = n.callee;
        copy->args = n.args;
        copy->writes = n.writes;
        copy->ordered = n.ordered;
        copy->aliases = n.aliases;
        copy->line = n.line;
        for (const Value* v : n.operands) copy->operands.push_back(at(v));
        for (size_t i = 0; i < n.results.size(); ++i) {
            const Value* v = n.results[i];
            int storage = v->storage;
            if (renew && storage >= 0) {
                int viewed = i < n.aliases.size() ? n.aliases[i] : -1;
                if (kind(n.op) == OpKind::View && n.operands[0]->storage == storage) viewed = 0;
                storage = viewed < 0 ? to_.fresh_storage() : copy->operands[static_cast<size_t>(viewed)]->storage;
            }
            place(v) = to_.add_result(copy, v->type, storage);
            place(v)->name = v->name;
        }
    }
    Value* at(const Value* v) const {
        Value* copy = values_[static_cast<size_t>(v->id)];
        BRAZE_CHECK(copy, "%" + std::to_string(v->id) + " is on the other side of the partition");
        return copy;
    }

  private:
    Value*& place(const Value* v) { return values_[static_cast<size_t>(v->id)]; }
    ir::Graph& to_;
    std::vector<Value*> values_;  // by id in the source
};

class Partitioner {
  public:
    explicit Partitioner(const Joint& joint) : joint_(joint), g_(joint.graph), sides_(joint) {
        size_t n = static_cast<size_t>(g_.id_bound());
        input_.assign(n, -1);
        output_.assign(n, -1);
        saved_.assign(n, 0);
        needed_.assign(n, 0);
        uses_.assign(n, 0);
        called_.assign(n, 0);
        called_back_.assign(n, 0);
        for (size_t i = 0; i < g_.inputs.size(); ++i) input_[id(g_.inputs[i])] = static_cast<int>(i);
        for (int i = joint.n_outputs; i-- > 0;) output_[id(g_.outputs[static_cast<size_t>(i)])] = i;
    }

    std::optional<Partition> run(std::string* obstacle) {
        *obstacle = sides_.obstacle();
        if (!obstacle->empty()) return std::nullopt;
        look_at_memory();
        look_at_uses();
        find_boundaries();
        if (!choose_within_budget()) {
            *obstacle = "what the backward pass needs cannot be kept";
            return std::nullopt;
        }
        Partition p;
        build_forward(p);
        build_backward(p);
        return p;
    }

  private:
    static size_t id(const Value* v) { return static_cast<size_t>(v->id); }
    bool is_tangent(int input) const {
        return input >= joint_.first_tangent && input < joint_.first_tangent + joint_.n_tangents;
    }

    // Memory that someone else can see and that eager does not keep, or that the program writes: only a copy of it can
    // be kept.
    void look_at_memory() {
        shared_.assign(static_cast<size_t>(sides_.memory().count()), 0);
        for (size_t i = 0; i < g_.inputs.size(); ++i) {
            const Value* v = g_.inputs[i];
            if (!joint_.keeps_input[i] || sides_.last_write(v) >= 0) mark_shared(v);
        }
        for (int k = 0; k < joint_.n_outputs; ++k)
            if (!joint_.keeps_output[static_cast<size_t>(k)]) mark_shared(g_.outputs[static_cast<size_t>(k)]);
    }
    void mark_shared(const Value* v) { shared_[static_cast<size_t>(sides_.memory().of(v))] = 1; }
    bool needs_copy(const Value* v) const { return shared_[static_cast<size_t>(sides_.memory().of(v))] != 0; }

    void look_at_uses() {
        for (const Node* n : g_.nodes) {
            const bool dependent = sides_.dependent(*n);
            for (const Value* v : n->operands) {
                if (sides_.required(*n)) ++uses_[id(v)];
                if (n->op != Op::Call || is_view(*n)) continue;
                for (const Value* base = v;; base = base->node->operands[0]) {
                    (dependent ? called_back_ : called_)[id(base)] = 1;
                    if (!is_view(*base->node)) break;
                }
            }
            if (dependent)
                for (const Value* v : n->operands) needed_[id(v)] = 1;
        }
        for (size_t k = static_cast<size_t>(joint_.n_outputs); k < g_.outputs.size(); ++k)
            needed_[id(g_.outputs[k])] = 1;
    }

    Region region(const Node& n) const {
        return n.line >= 0 && static_cast<size_t>(n.line) < joint_.regions.size()
                   ? joint_.regions[static_cast<size_t>(n.line)]
                   : Region{};
    }

    // Which values of a region others use: there its recomputation begins or ends.
    void find_boundaries() {
        boundary_.assign(static_cast<size_t>(g_.id_bound()), 0);
        for (const Node* n : g_.nodes) {
            if (sides_.dependent(*n)) continue;
            for (const Value* v : n->operands)
                if (region(*v->node).id != region(*n).id && n->line >= 0) boundary_[id(v)] = 1;
        }
        for (int k = 0; k < joint_.n_outputs; ++k) boundary_[id(g_.outputs[static_cast<size_t>(k)])] = 1;
    }
    // Computed in a region that is to run again.
    bool is_checkpointed(const Node& n) const {
        const Region r = region(n);
        return r.id > 0 && !r.keeps &&
               std::none_of(n.results.begin(), n.results.end(), [&](const Value* v) { return boundary_[id(v)]; });
    }

    // Whether the forward graph stores v in any case.
    bool is_stored(const Value* v) const {
        const Node& n = *v->node;
        if (is_view(n) || !sides_.required(n)) return false;
        return n.op == Op::Call || kind(n.op) == OpKind::Reduce || called_[id(v)] || output_[id(v)] >= 0 ||
               uses_[id(v)] > 1;
    }

    bool can_run_again(const Node& n) const {
        if (n.op == Op::Input || !passes::is_pure(n)) return false;
        const int position = sides_.position(n);
        for (const Value* v : n.operands)
            if (sides_.last_write(v) > position) return false;
        for (const Value* v : n.results)
            if (sides_.last_write(v) >= 0) return false;
        if (!sides_.required(n)) return true;  // it would not run a second time
        if (is_view(n)) return true;
        if (region(n).id > 0) return is_checkpointed(n);
        if (chosen_.contains(&n)) return true;
        if (!is_cheap(n)) return false;
        // what is stored for a call here and there is better kept
        return std::none_of(n.results.begin(), n.results.end(),
                            [&](const Value* v) { return called_[id(v)] && called_back_[id(v)]; });
    }

    int64_t cost(const Value* v) const {
        if (v->type.dtype == ir::DType::Other) return FlowNetwork::kUnlimited;
        const bool copy = needs_copy(v);
        if (copy && !ir::is_dense(v->type)) return FlowNetwork::kUnlimited;
        if (v->node->op == Op::Input && !copy) return 1;  // it is there anyway
        int64_t bytes = bytes_of(v);
        // (not unlimited: what a region draws at random has to be kept)
        if (is_checkpointed(*v->node)) bytes = std::min(bytes, kLargest) * kCheckpointed;
        if (is_view(*v->node)) return 2 * std::max(bytes, bytes_of(v->node->operands[0]));
        return copy || !is_stored(v) ? 2 * bytes : bytes;
    }

    // What the forward graph keeps for the backward one beyond what is there anyway.
    int64_t kept_bytes() const {
        int64_t total = 0;
        for (const Node* n : g_.nodes)
            for (const Value* v : n->results)
                if (saved_[id(v)] && (needs_copy(v) || (input_[id(v)] < 0 && output_[id(v)] < 0))) total += bytes_of(v);
        return total;
    }

    // Work per byte that need not be kept if the node runs again.
    static double price(const Node& n) {
        double work = 0, bytes = 0;
        for (const Value* v : n.results) bytes += static_cast<double>(bytes_of(v));
        for (const Value* v : n.operands) work += static_cast<double>(bytes_of(v));
        if (n.op == Op::Call && n.operands.size() >= 2) {  // a product: rows times columns times what is summed
            double product = 1;
            for (const Value* v : n.operands) product *= static_cast<double>(bytes_of(v));
            work += std::sqrt(product * bytes);
        }
        return work / std::max(bytes, 1.0);
    }

    bool choose_within_budget() {
        if (!choose()) return false;
        if (joint_.memory_budget >= 1) return true;
        const int64_t most = kept_bytes();
        std::vector<const Node*> dear;  // what could run again, but for the time it takes
        for (const Node* n : g_.nodes)
            if (n->op != Op::Input && !sides_.dependent(*n) && sides_.required(*n) && passes::is_pure(*n) &&
                !region(*n).keeps && !can_run_again(*n))
                dear.push_back(n);
        std::stable_sort(dear.begin(), dear.end(), [](const Node* a, const Node* b) { return price(*a) < price(*b); });
        const auto with = [&](size_t count) {
            chosen_ = {dear.begin(), dear.begin() + static_cast<std::ptrdiff_t>(count)};
            BRAZE_CHECK(choose(), "what can run again more often cannot be cut");
            return kept_bytes();
        };
        const int64_t least = with(dear.size());
        const auto allowed = least + static_cast<int64_t>(joint_.memory_budget * static_cast<double>(most - least));
        size_t low = 0, high = dear.size();  // high is enough
        while (low < high) {
            const size_t middle = (low + high) / 2;
            if (with(middle) <= allowed)
                high = middle;
            else
                low = middle + 1;
        }
        with(high);
        return true;
    }

    bool choose() {
        const int source = 2 * g_.id_bound(), sink = source + 1;
        FlowNetwork network(sink + 1);
        for (const Node* n : g_.nodes) {
            if (sides_.dependent(*n)) continue;
            const bool again = can_run_again(*n);
            for (const Value* v : n->results) {
                network.add_edge(2 * v->id, 2 * v->id + 1, cost(v));
                if (!again) network.add_edge(source, 2 * v->id, FlowNetwork::kUnlimited);
                if (needed_[id(v)]) network.add_edge(2 * v->id + 1, sink, FlowNetwork::kUnlimited);
                for (const Value* operand : n->operands)
                    network.add_edge(2 * operand->id + 1, 2 * v->id, FlowNetwork::kUnlimited);
            }
        }
        auto source_side = network.cut(source, sink);
        if (!source_side) return false;
        for (const Node* n : g_.nodes) {
            if (sides_.dependent(*n)) continue;
            for (const Value* v : n->results)
                saved_[id(v)] = (*source_side)[2 * id(v)] && !(*source_side)[2 * id(v) + 1];
        }
        return true;
    }

    void build_forward(Partition& p) {
        std::vector<char> wanted(static_cast<size_t>(g_.id_bound()), 0);
        std::vector<const Value*> saved;
        for (const Node* n : g_.nodes)
            for (const Value* v : n->results)
                if (saved_[id(v)]) {
                    saved.push_back(v);
                    wanted[id(v)] = 1;
                }
        std::vector<const Node*> nodes;
        for (size_t i = g_.nodes.size(); i-- > 0;) {
            const Node& n = *g_.nodes[i];
            if (n.op == Op::Input) continue;
            bool runs = sides_.required(n);
            for (const Value* v : n.results) runs |= wanted[id(v)] != 0;
            if (!runs) continue;
            nodes.push_back(&n);
            for (const Value* v : n.operands) wanted[id(v)] = 1;
        }
        Extract forward(g_, p.forward);
        for (size_t i = 0; i < g_.inputs.size(); ++i)
            if (!is_tangent(static_cast<int>(i))) forward.input(g_.inputs[i], g_.inputs[i]->storage);
        for (size_t i = nodes.size(); i-- > 0;) forward.node(*nodes[i], false);
        for (int k = 0; k < joint_.n_outputs; ++k)
            p.forward.outputs.push_back(forward.at(g_.outputs[static_cast<size_t>(k)]));
        for (const Value* v : saved) {
            if (!needs_copy(v) && input_[id(v)] >= 0) {
                p.saved.push_back({Saved::Input, input_[id(v)]});
                continue;
            }
            if (!needs_copy(v) && output_[id(v)] >= 0) {
                p.saved.push_back({Saved::Output, output_[id(v)]});
                continue;
            }
            Value* kept = forward.at(v);
            if (needs_copy(v)) {
                Node* copy = p.forward.add_node(Op::Copy);
                copy->operands = {kept};
                kept = p.forward.add_result(copy, v->type);
            }
            p.saved.push_back({Saved::Value, static_cast<int>(p.forward.outputs.size())});
            p.forward.outputs.push_back(kept);
        }
        for (Saved& s : p.saved)  // without the tangents
            if (s.kind == Saved::Input && s.index >= joint_.first_tangent) s.index -= joint_.n_tangents;
    }

    void build_backward(Partition& p) {
        std::vector<char> wanted(static_cast<size_t>(g_.id_bound()), 0);
        for (size_t k = static_cast<size_t>(joint_.n_outputs); k < g_.outputs.size(); ++k)
            wanted[id(g_.outputs[k])] = 1;
        std::vector<const Node*> nodes;
        for (size_t i = g_.nodes.size(); i-- > 0;) {
            const Node& n = *g_.nodes[i];
            if (n.op == Op::Input) continue;
            bool runs = sides_.dependent(n);
            for (const Value* v : n.results) runs |= wanted[id(v)] && !saved_[id(v)];
            if (!runs) continue;
            nodes.push_back(&n);
            for (const Value* v : n.operands) wanted[id(v)] = 1;
        }
        Extract backward(g_, p.backward);
        for (const Node* n : g_.nodes)
            for (const Value* v : n->results)
                if (saved_[id(v)]) {
                    const bool own = needs_copy(v) && v->storage >= 0;
                    backward.input(v, own ? p.backward.fresh_storage() : v->storage);
                }
        for (int k = 0; k < joint_.n_tangents; ++k) {
            const Value* v = g_.inputs[static_cast<size_t>(joint_.first_tangent) + static_cast<size_t>(k)];
            backward.input(v, v->storage);
        }
        std::unordered_set<const Node*> waiting(nodes.begin(), nodes.end());
        // The node, after what it uses: its operands first, without recursion.
        const auto place = [&](const Node* wanted) {
            std::vector<const Node*> stack = {wanted};
            while (!stack.empty()) {
                const Node* n = stack.back();
                const size_t height = stack.size();
                if (waiting.contains(n))
                    for (size_t k = n->operands.size(); k-- > 0;)
                        if (const Value* v = n->operands[k]; !saved_[id(v)] && waiting.contains(v->node))
                            stack.push_back(v->node);
                if (stack.size() > height) continue;
                stack.pop_back();
                if (waiting.erase(n)) backward.node(*n, true);
            }
        };
        for (size_t i = nodes.size(); i-- > 0;)
            if (sides_.dependent(*nodes[i])) place(nodes[i]);
        for (size_t i = nodes.size(); i-- > 0;) place(nodes[i]);
        for (size_t k = static_cast<size_t>(joint_.n_outputs); k < g_.outputs.size(); ++k)
            p.backward.outputs.push_back(backward.at(g_.outputs[k]));
    }

    const Joint& joint_;
    const ir::Graph& g_;
    const Sides sides_;
    // by value id
    std::vector<int> input_, output_;
    std::vector<char> saved_;
    std::vector<char> needed_;                // dependent nodes use it, or it is a gradient
    std::vector<int> uses_;                   // by nodes of the forward graph
    std::vector<char> called_, called_back_;  // calls of the forward graph and dependent ones see it, or a view of it
    std::vector<char> boundary_;              // of a region
    std::vector<char> shared_;                // by memory
    std::unordered_set<const Node*> chosen_;  // to run again for the budget
};

}  // namespace

std::optional<Partition> partition(const Joint& joint, std::string* obstacle) {
    return Partitioner(joint).run(obstacle);
}

}  // namespace braze::autograd
