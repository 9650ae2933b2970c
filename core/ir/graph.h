// The graph IR: SSA over tensors.
//
// A Graph is a list of nodes in program order; each node has operands (Values), arguments (constants), and results
// (Values). Two families of nodes:
//   * Op::Call: one call of a dispatcher operator, exactly as it was captured ("aten::add.Tensor"), all of its schema's
//     arguments in order. The runtime can always execute it. Passes replace those they know by
//   * primitive operators (ops.def): pure functions with elementwise, reduction or structural meaning, for which there
//     is a loop-nest semantics.
//
// Semantics:
//   * A Value has one type (dtype, sizes, strides). The sizes are part of the meaning; the strides say how the value is
//     laid out in memory if it is materialised, and a materialised result must have exactly these strides when it is a
//     graph output or an operand of a Call (eager's strides are observable).
//   * Primitive operators are pure. A Call is pure unless `writes` is not empty or `ordered` is set.
//   * Aliasing: values with the same `storage` (>= 0) share memory. Graph inputs that alias each other carry the same
//     storage id. A node that writes changes every value of that storage from this program point on.
//     storage == -1: fresh memory shared with nobody.
//   * `ordered` calls (random numbers, effects) keep their relative order.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/ir/dtype.h"
#include "core/shapes/expr.h"

namespace braze::ir {

using shapes::Expr;

enum class Op : uint16_t {
#define OP(e, text, kind, arity) e,
#include "core/ir/ops.def"
#undef OP
};
enum class OpKind : uint8_t {
    Call,
    Input,
    Constant,
    Unary,
    Binary,
    Ternary,
    Cast,
    Create,
    View,
    Structure,
    Index,
    Reduce
};
std::string_view name(Op op);
OpKind kind(Op op);

struct TensorType {
    DType dtype = DType::F32;
    std::vector<Expr> sizes;
    std::vector<Expr> strides;  // elements; same length as sizes
    bool operator==(const TensorType&) const = default;
    int rank() const { return static_cast<int>(sizes.size()); }
    Expr numel() const { return shapes::product(sizes); }
};
std::vector<Expr> contiguous_strides(const std::vector<Expr>& sizes);
bool is_contiguous(const TensorType& t);
// No two indices share memory and there are no holes, in some order of the axes (0- and 1-sized axes ignored).
bool is_dense(const TensorType& t);
bool has_zero_size(const TensorType& t);  // a size is the constant 0

struct Node;

struct Value {
    Node* node = nullptr;  // producer; Input nodes for graph inputs
    int index = 0;         // which result of it
    TensorType type;
    int storage = -1;
    int id = 0;        // printed as %id; unique in the graph
    std::string name;  // optional, for readers
};

// One argument of a Call or an attribute of a primitive operator.
struct Ref {
    int operand;
    bool operator==(const Ref&) const = default;
};  // index into Node::operands
struct RefList {
    std::vector<int> operands;
    bool operator==(const RefList&) const = default;
};  // -1: None in a list of optional tensors
struct Opaque {
    int index;
    std::string text;
    bool operator==(const Opaque&) const = default;
};  // device, layout, memory format, generator, ...:
    // kept by the bridge; equal text means equal value
struct None {
    bool operator==(const None&) const = default;
};
using Arg = std::variant<None, Ref, RefList, bool, Expr, double, std::string, DType, std::vector<Expr>,
                         std::vector<double>, std::vector<bool>, Opaque>;
struct NamedArg {
    std::string name;
    Arg value;
};

struct Node {
    Op op;
    std::string callee;            // Call: "aten::add.Tensor" (overload "" -> "aten::relu")
    std::vector<Value*> operands;  // tensors, in the order in which they occur in args
    std::vector<NamedArg> args;    // Call: whole schema in order; primitives: attributes, sorted as ops.def documents
    std::vector<Value*> results;   // owned by the graph
    std::vector<int> writes;       // Call: operand indices whose storage is written
    bool ordered = false;          // Call: random or otherwise ordered effect
    std::vector<int> aliases;  // per result: operand index it is a view of (shares storage with) or -1; empty: all -1
    int line = -1;             // index into Graph::lines (where the user wrote it), -1 unknown
    const Arg* arg(std::string_view name) const;
    template <class T>
    const T* get(std::string_view name) const {
        const Arg* a = arg(name);
        return a ? std::get_if<T>(a) : nullptr;
    }
};

class Graph {
  public:
    Graph() = default;
    Graph(Graph&&) noexcept = default;
    Graph& operator=(Graph&&) noexcept = default;

    std::vector<Node*> nodes;        // program order; Input nodes first
    std::vector<Value*> inputs;      // results of the Input nodes
    std::vector<Value*> outputs;     // may repeat, may be inputs
    std::vector<std::string> lines;  // "file.py:12 in forward"
    std::vector<Expr> symbols;       // size symbols in the order in which the runtime passes them

    Value* add_input(TensorType type, int storage = -1, std::string name = {});
    Node* add_node(Op op);                 // appended, no results yet
    Node* insert_before(Node* at, Op op);  // placed before `at`
    Value* add_result(Node* n, TensorType type, int storage = -1);
    void replace_uses(Value* from,
                      Value* to);  // in operands and outputs; looks at every node (see rewrite() in builder.h)
    void erase(Node* n);           // no uses of its results may remain; searches for it
    int fresh_storage() { return next_storage_++; }
    void reserve_storages(int n) { next_storage_ = n > next_storage_ ? n : next_storage_; }
    int storage_bound() const { return next_storage_; }  // greater than every storage id
    int id_bound() const { return next_id_; }            // greater than every Value::id: for arrays indexed by it
    void set_id(Value* v, int id);                       // for readers of text: `id` must be free
    Graph clone() const;                                 // same ids; names and lines too

  private:
    Value* add_value(Node* n, TensorType type, int storage);
    std::deque<Node> node_pool_;  // erased nodes stay until the graph goes
    std::deque<Value> value_pool_;
    int next_id_ = 0;
    int next_storage_ = 0;
};

}  // namespace braze::ir
