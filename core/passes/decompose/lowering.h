// One Call that is being replaced by primitive operators: its arguments, the operators to build with, its results.
//
// A rule (see rules.h) is a function of a Lowering. It reads arguments, builds values and ends with one of the done
// functions. Wherever it finds something it does not know exactly it calls decline(), and the Call stays.
#pragma once
#include <exception>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "core/ir/builder.h"
#include "core/passes/decompose/number.h"
#include "core/passes/decompose/promotion.h"

namespace braze::passes::decomposition {

using ir::DType;
using ir::Op;
using ir::Sizes;
using ir::TensorType;
using ir::Value;
using shapes::Expr;

// Thrown by decline() and caught where the rule was called.
struct Declined : std::exception {
    const char* what() const noexcept override { return "the operator is left as a call"; }
};

class Lowering {
  public:
    Lowering(const ir::Node& call, ir::Builder& builder) : call(call), b(builder) {}

    const ir::Node& call;
    ir::Builder& b;

    [[noreturn]] void decline() const { throw Declined{}; }
    void require(bool condition) const {
        if (!condition) decline();
    }

    // ---- arguments by name; declines where one has another kind
    bool given(std::string_view name) const;  // present and not None
    Value* tensor(std::string_view name) const;
    Value* optional_tensor(std::string_view name) const;  // nullptr: None
    std::vector<Value*> tensors(std::string_view name) const;
    std::vector<Value*> optional_tensors(std::string_view name) const;
    Operand operand(std::string_view name) const;  // a tensor or a number at a tensor's place
    std::optional<Operand> optional_operand(std::string_view name) const;
    Number number(std::string_view name) const;
    std::optional<Number> optional_number(std::string_view name) const;
    double real(std::string_view name) const;
    double real_or(std::string_view name, double otherwise) const;
    int64_t constant(std::string_view name) const;  // an integer that is known
    int64_t constant_or(std::string_view name, int64_t otherwise) const;
    Expr integer(std::string_view name) const;
    bool flag(std::string_view name) const;              // absent or None: false
    std::string_view text(std::string_view name) const;  // None: ""
    std::vector<Expr> list(std::string_view name) const;
    std::vector<int64_t> constant_list(std::string_view name) const;
    // A dimension made non-negative; rank 0 counts as rank 1, as everywhere in PyTorch.
    int axis(std::string_view name, int rank) const;
    int wrap_axis(int64_t dim, int rank) const;
    // A sorted list of reduced dimensions; None or empty: all of them. An integer counts as a list of one.
    std::vector<int> axes(std::string_view name, int rank) const;

    // The arguments device, layout and pin_memory ask for an ordinary CPU tensor; anything else is eager's business.
    void require_plain_cpu() const;

    // ---- results
    const TensorType& type(int i = 0) const { return call.results[i]->type; }
    const Sizes& sizes(int i = 0) const { return type(i).sizes; }
    DType dtype(int i = 0) const { return type(i).dtype; }
    int results() const { return static_cast<int>(call.results.size()); }
    bool is_alias(int i = 0) const;

    // ---- building
    // The number in a dtype, filled; declines where the dtype cannot hold it.
    Value* fill(const Number& n, DType dtype, const Sizes& sizes);
    // Cast, then expanded to these sizes.
    Value* to(const Operand& x, DType dtype, const Sizes& sizes);
    // The dtype in which PyTorch computes a pointwise operator with these operands: their promoted type, or where that
    // is the default float dtype the (then equal) dtype of the result.
    DType common_dtype(std::initializer_list<Operand> operands) const;
    // The i-th result has the value v (cast to its dtype, expanded to its sizes). Takes over layout and storage.
    void done(Value* v, int i = 0);
    void done(std::initializer_list<Value*> values);
    // The i-th result is the view `op` of x with the recorded type; shares memory with x where the Call's result does.
    Value* view(Op op, Value* x, std::vector<ir::NamedArg> attributes, int i = 0);
    void done_view(Op op, Value* x, std::vector<ir::NamedArg> attributes, int i = 0) {
        finish(view(op, x, std::move(attributes), i), i);
    }
    void finish(Value* v, int i);  // v already is what the result must be

    // Replaces the results; to be called by the pass when the rule has returned.
    void commit();

  private:
    const ir::Arg* find(std::string_view name) const;

    std::vector<Value*> finished_ = std::vector<Value*>(call.results.size(), nullptr);
};

}  // namespace braze::passes::decomposition
