// Floats whose values are known before the graph runs: computed from Python floats among the inputs, and from the
// contents of scalar CPU tensors among them (a count of steps). What the program asks about such a number is answered
// while tracing, and asked again by a guard before each run.
#pragma once
#include <string>
#include <vector>

#include "bridge/torch.h"

namespace braze::bridge {

struct FloatNode {
    enum Kind : uint8_t {
        Constant,
        Number,
        Item,
        Add,
        Subtract,
        Multiply,
        Divide,
        Power,
        Maximum,
        Minimum,
        Single
    } kind;
    int a = -1, b = -1;  // operands
    int input = -1;      // Number, Item: of the graph
    double value = 0;    // in the trace
};

struct FloatRelation {
    enum Kind : uint8_t { Eq, Ne, Lt, Le } kind;
    int a, b;
    bool answer;
};

class FloatNodes {
  public:
    static constexpr int kUnknown = -1;  // a float that only the graph knows

    int constant(double v);
    int number(int input, double v);
    // The contents of a scalar tensor.
    int item(int input, const at::Tensor& real);
    // An operand that is unknown makes the result unknown. Single: rounded to a float32.
    int add(FloatNode::Kind kind, int a, int b = kUnknown);
    double value(int node) const { return nodes_.at(static_cast<size_t>(node)).value; }
    // The answer, which is assumed from here on.
    bool ask(FloatRelation::Kind kind, int a, int b);

    bool any_question() const { return !relations_.empty(); }
    // Of the graph's inputs: the first relation that has another answer, or an empty string.
    std::string broken(PyObject* const* inputs) const;
    std::string text() const;
    // Drops what no relation needs.
    FloatNodes for_guard() const;

  private:
    int push(FloatNode n);
    std::string text(int node) const;
    static bool holds(FloatRelation::Kind kind, double a, double b);
    static double compute(FloatNode::Kind kind, double a, double b);
    std::vector<FloatNode> nodes_;
    std::vector<FloatRelation> relations_;
};

// Whether a tensor's contents can be a node: one float in ordinary memory.
bool has_float_item(const at::Tensor& t);

}  // namespace braze::bridge
