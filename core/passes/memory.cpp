#include "core/passes/memory.h"

namespace braze::passes {

Memory::Memory(const ir::Graph& g) : storages_(g.storage_bound()), count_(g.storage_bound() + g.id_bound()) {
    size_t n = static_cast<size_t>(count_);
    written_.assign(n, 0);
    input_.assign(n, 0);
    output_.assign(n, 0);
    for (const ir::Value* v : g.inputs) input_[static_cast<size_t>(of(v))] = 1;
    for (const ir::Value* v : g.outputs) output_[static_cast<size_t>(of(v))] = 1;
    for (const ir::Node* node : g.nodes)
        for (int w : node->writes) written_[static_cast<size_t>(of(node->operands[static_cast<size_t>(w)]))] = 1;
}

}  // namespace braze::passes
