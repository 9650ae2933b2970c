// Builds nodes of the primitive operators, computing the types of their results.
//
// Operands must already agree as ops.def demands (equal dtypes and sizes): cast and broadcast are explicit.
// Layout: an elementwise result takes the strides of its first dense operand, else it is contiguous; a view has the
// strides of the view of its operand; everything else is contiguous. Use with_strides() where a Call that is being
// replaced promises other strides. Aliasing: results get storage -1 (an index map, or fresh memory when materialised).
// A node that replaces a view Call and must go on sharing memory is marked by as_alias().
#pragma once
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/ir/graph.h"

namespace braze::ir {

using Sizes = std::vector<Expr>;

class Builder {
  public:
    explicit Builder(Graph& g) : graph_(g) {}
    Graph& graph() { return graph_; }

    // Where new nodes go: before `at`, or (nullptr, the default) at the end. Inserting before a node searches for it:
    // passes that change many nodes use rewrite() below.
    void set_insertion_point(Node* at) { at_ = at; }
    void set_line(int line) { line_ = line; }
    int line() const { return line_; }

    // ---- created
    // A tensor filled with `value`, converted to the dtype; rank 0 by default.
    Value* scalar(DType dtype, double value, const Sizes& sizes = {});
    Value* scalar_int(DType dtype, const Expr& value, const Sizes& sizes = {});
    Value* scalar_bool(bool value, const Sizes& sizes = {});
    Value* iota(DType dtype, const Sizes& sizes, int axis, const Expr& start = 0, const Expr& step = 1);

    // ---- elementwise
    Value* unary(Op op, Value* x);
    Value* binary(Op op, Value* a, Value* b);
    Value* binary(Op op, Value* a, double b);  // b as a filled scalar of a's dtype and sizes
    Value* binary(Op op, double a, Value* b);
    Value* ternary(Op op, Value* a, Value* b, Value* c);
    Value* where(Value* cond, Value* a, Value* b) { return ternary(Op::Where, cond, a, b); }
    Value* cast(Value* x, DType dtype);  // x itself if it has that dtype
    Value* neg(Value* x) { return unary(Op::Neg, x); }
    Value* add(Value* a, Value* b) { return binary(Op::Add, a, b); }
    Value* sub(Value* a, Value* b) { return binary(Op::Sub, a, b); }
    Value* mul(Value* a, Value* b) { return binary(Op::Mul, a, b); }
    Value* div(Value* a, Value* b) { return binary(Op::Div, a, b); }

    // ---- views; dims and axes are non-negative
    Value* permute(Value* x, const std::vector<int>& dims);
    Value* transpose(Value* x, int a, int b);
    Value* expand(Value* x, const Sizes& sizes);  // x itself if it has these sizes
    Value* reshape(Value* x,
                   const Sizes& sizes);  // x itself if it has these sizes; the element counts are the caller's promise
    Value* unsqueeze(Value* x, int axis);  // a reshape
    Value* squeeze(Value* x, int axis);    // of size 1; a reshape
    Value* slice(Value* x, const Sizes& starts, const Sizes& steps, const Sizes& sizes);
    Value* slice_axis(Value* x, int axis, const Expr& start, const Expr& size, const Expr& step = 1);
    Value* flip(Value* x, const std::vector<int>& dims);
    Value* as_strided(Value* x, const Sizes& sizes, const Sizes& strides, const Expr& offset);

    // ---- structure and indexed loads
    Value* cat(const std::vector<Value*>& xs, int dim);
    Value* pad(Value* x, const Sizes& low, const Sizes& high, double value);
    Value* copy(Value* x, const Sizes& strides);
    Value* copy(Value* x) { return copy(x, contiguous_strides(x->type.sizes)); }
    Value* gather(Value* x, Value* index, int dim);
    Value* take(Value* x, const std::vector<Value*>& indices, const std::vector<int>& axes, int at);

    // ---- reductions. Any, All: Bool. ArgMax, ArgMin: i64. Sum and Prod of integers and Bool: `dtype`, i64 by default;
    // of half types: `dtype` may be f32. dims may be empty: then nothing is reduced (the operand elementwise).
    Value* reduce(Op op, Value* x, const std::vector<int>& dims, bool keepdim, std::optional<DType> dtype = {});
    std::pair<Value*, Value*> var_mean(Value* x, const std::vector<int>& dims, bool keepdim, double correction);

    // ---- any node
    Value* create(Op op, std::vector<Value*> operands, std::vector<NamedArg> attributes, TensorType result);
    // A Call. args refer to operands by Ref and RefList.
    Node* call(std::string callee, std::vector<Value*> operands, std::vector<NamedArg> args,
               const std::vector<TensorType>& results);

    // The same node with other operands of the same types: attributes, result types, aliases and line; results get
    // storage -1 unless they are aliases, which get their operand's.
    Node* repeat(const Node& n, std::vector<Value*> operands);

    // Changes the layout promised for a value that was just built and is no view.
    static Value* with_strides(Value* v, const Sizes& strides);
    // Makes the view `v` share memory with its operand under that storage id.
    static Value* as_alias(Value* v, int storage);

    // Within rewrite(): every later use of `from` becomes a use of `to`. Outside: Graph::replace_uses.
    void replace(Value* from, Value* to);

  private:
    friend bool rewrite(Graph& g, const std::function<bool(Node*, Builder&)>& visit);
    Node* node(Op op);
    Value* view(Op op, Value* x, std::vector<NamedArg> attributes, Sizes sizes, Sizes strides);
    Value* resolve(Value* v);

    Graph& graph_;
    Node* at_ = nullptr;
    int line_ = -1;
    bool rewriting_ = false;
    bool replaced_ = false;
    std::vector<Value*> replacement_;  // by Value::id, within rewrite()
};

// Visits every node once, in program order, its operands already replaced. Whatever `visit` builds comes before the
// node. visit returns true to drop the node (each result must have been replaced or be unused), false to keep it.
// Linear in the size of the graph. Returns whether anything was replaced or dropped.
bool rewrite(Graph& g, const std::function<bool(Node*, Builder&)>& visit);

// The strides of a view of t with other sizes, if there is one (as torch.Tensor.view); nullopt if it would have to be
// copied or if that cannot be decided.
std::optional<Sizes> view_strides(const TensorType& t, const Sizes& sizes);
// Strides of an elementwise result over these operands (see above).
Sizes elementwise_strides(std::span<Value* const> operands);

std::vector<Expr> to_exprs(const std::vector<int>& dims);
std::vector<int> to_ints(const std::vector<Expr>& dims);  // throws InternalError where one is not constant

}  // namespace braze::ir
