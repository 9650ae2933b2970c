// Custom autograd.Functions of a program.
//
// When one is applied in a trace, its forward runs as Python on the fakes and its operators join the trace. Its
// backward then runs at once, on fake gradients, and its operators are recorded apart. From there on a node that does
// those operators again stands in the place of the Python one: on fakes, so that they join the trace wherever autograd
// comes to them, and on real tensors, where the program is replayed.
#pragma once
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>

#include "bridge/trace.h"

namespace braze::bridge {

struct RecordedFunction {
    struct Input {
        int value;
        bool requires_grad;
    };
    struct Output {
        int value = -1;                                          // -1: no tensor, or not differentiable
        at::MemoryFormat layout = at::MemoryFormat::Contiguous;  // that its gradient is brought into
        // What autograd knows of a view that a Function returned.
        std::optional<torch::autograd::CreationMeta> view{};
    };
    // What the backward reads of the program.
    struct Saved {
        int value;
        bool requires_grad;
        bool checked;  // by save_for_backward: the tensor must not be changed until then
        int output;    // the output that it is, or -1
    };
    // What the backward does where the gradients of certain outputs are there.
    struct Body {
        std::vector<bool> given;    // by output
        std::vector<int> tangents;  // the values that stand for them; -1: none
        std::vector<Record> records;
        std::unordered_map<int, at::Tensor> constants;
        std::vector<int> gradients;                                // values, by input; -1: none
        std::vector<std::shared_ptr<RecordedFunction>> functions;  // that it applies, `end` among its records
    };
    std::string name;
    size_t end = 0;               // of its forward in the trace's records
    std::vector<Input> inputs;    // the tensors among the arguments
    std::vector<Output> outputs;  // by result
    std::vector<Saved> saved;
    std::vector<Body> bodies;
    bool materialize = true;  // a missing gradient of an output is zero: there is one body
    bool once = false;        // the gradients cannot be differentiated
    bool is_hook = false;     // on the gradient of its output: it belongs to the node that is there
    std::string error;        // that the backward raises: there is no body

    void for_each_record(const std::function<void(Record&)>& visit);
    // Ties the outputs of a run to the inputs. get: the tensor of a value. keeps: what `sizes` refers to. as_recorded:
    // the inputs' standing towards autograd is that of the trace, whatever happened to the tensors.
    static void attach(const std::shared_ptr<const RecordedFunction>& f, const std::function<at::Tensor(int)>& get,
                       std::shared_ptr<const SymbolValues> sizes, std::shared_ptr<const void> keeps,
                       bool as_recorded = true);
};

class RecordedNode final : public torch::autograd::Node {
  public:
    using Tensors = torch::autograd::variable_list;

    // outputs: by result. saved: as the function's. sizes: of a run; nullptr: in a trace.
    RecordedNode(std::shared_ptr<const RecordedFunction> f, torch::autograd::edge_list edges,
                 const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& saved,
                 std::shared_ptr<const SymbolValues> sizes, std::shared_ptr<const void> keeps);
    // The outputs get this gradient function.
    void own(const std::vector<at::Tensor>& outputs);

    // Of a hook: the node whose outputs the kept ones are.
    void belongs_to(Node* node) { owner_ = node; }

    Tensors apply(Tensors&& tangents) override;
    void release_variables() override;
    std::string name() const override { return function_->name; }

  private:
    const RecordedFunction::Body* body_for(const Tensors& tangents) const;
    Tensors run(const Tensors& tangents);

    std::shared_ptr<const RecordedFunction> function_;
    std::vector<torch::autograd::SavedVariable> checked_;  // by RecordedFunction::saved
    std::vector<at::Tensor> plain_;                        // the same
    std::shared_ptr<const SymbolValues> sizes_;
    std::shared_ptr<const void> keeps_;
    Node* owner_ = this;
};

}  // namespace braze::bridge
