#include "core/ir/graph.h"

#include <algorithm>

#include "core/support/error.h"

namespace braze::ir {

const Arg* Node::arg(std::string_view name) const {
    for (const NamedArg& a : args)
        if (a.name == name) return &a.value;
    return nullptr;
}

Value* Graph::add_value(Node* n, TensorType type, int storage) {
    BRAZE_CHECK(type.sizes.size() == type.strides.size(), "a type needs as many strides as sizes");
    Value& v = value_pool_.emplace_back();
    v.node = n;
    v.index = static_cast<int>(n->results.size());
    v.type = std::move(type);
    v.storage = storage;
    v.id = next_id_++;
    reserve_storages(storage + 1);
    n->results.push_back(&v);
    return &v;
}

Value* Graph::add_input(TensorType type, int storage, std::string name) {
    Node& n = node_pool_.emplace_back();
    n.op = Op::Input;
    nodes.insert(nodes.begin() + static_cast<long>(inputs.size()), &n);
    Value* v = add_value(&n, std::move(type), storage);
    v->name = std::move(name);
    inputs.push_back(v);
    return v;
}

Node* Graph::add_node(Op op) {
    BRAZE_CHECK(op != Op::Input, "inputs are made by add_input");
    Node& n = node_pool_.emplace_back();
    n.op = op;
    nodes.push_back(&n);
    return &n;
}

Node* Graph::insert_before(Node* at, Op op) {
    auto place = std::find(nodes.begin(), nodes.end(), at);
    BRAZE_CHECK(place != nodes.end(), "the place to insert at is not in the graph");
    Node& n = node_pool_.emplace_back();
    n.op = op;
    nodes.insert(place, &n);
    return &n;
}

Value* Graph::add_result(Node* n, TensorType type, int storage) { return add_value(n, std::move(type), storage); }

void Graph::set_id(Value* v, int id) {
    v->id = id;
    next_id_ = std::max(next_id_, id + 1);
}

void Graph::replace_uses(Value* from, Value* to) {
    for (Node* n : nodes) std::replace(n->operands.begin(), n->operands.end(), from, to);
    std::replace(outputs.begin(), outputs.end(), from, to);
}

void Graph::erase(Node* n) {
    auto place = std::find(nodes.begin(), nodes.end(), n);
    BRAZE_CHECK(place != nodes.end(), "the node to erase is not in the graph");
    BRAZE_CHECK(n->op != Op::Input, "inputs cannot be erased");
    nodes.erase(place);
}

Graph Graph::clone() const {
    Graph g;
    std::vector<Value*> copies(static_cast<size_t>(next_id_), nullptr);
    auto copy_of = [&](const Value* v) {
        Value* c = copies[static_cast<size_t>(v->id)];
        BRAZE_CHECK(c, "value %" + std::to_string(v->id) + " is used before it is made");
        return c;
    };
    g.nodes.reserve(nodes.size());
    for (const Node* n : nodes) {
        Node& c = g.node_pool_.emplace_back(*n);
        for (Value*& v : c.operands) v = copy_of(v);
        for (Value*& v : c.results) {
            Value& r = g.value_pool_.emplace_back(*v);
            r.node = &c;
            copies[static_cast<size_t>(v->id)] = &r;
            v = &r;
        }
        g.nodes.push_back(&c);
    }
    for (const Value* v : inputs) g.inputs.push_back(copy_of(v));
    for (const Value* v : outputs) g.outputs.push_back(copy_of(v));
    g.lines = lines;
    g.symbols = symbols;
    g.next_id_ = next_id_;
    g.next_storage_ = next_storage_;
    return g;
}

}  // namespace braze::ir
