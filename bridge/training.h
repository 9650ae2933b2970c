// A program whose outputs need gradients: two compiled halves, and one gradient function for each run.
//
// The forward half runs below autograd. Its outputs get a node of the stock autograd graph, which keeps what the
// backward half reads in SavedVariables: versions are checked, buffers freed and graphs retained as for any operator.
//
// The halves are made for a backward pass from certain outputs. When one comes from others, or is itself to be
// differentiated, the node runs the recorded operators again under autograd, on the inputs that it keeps, and asks the
// engine. The next run then has halves for the backward pass that was seen.
#pragma once
#include <atomic>
#include <limits>

#include "bridge/compiled_trace.h"
#include "bridge/execute.h"
#include "bridge/joint_trace.h"
#include "bridge/replay.h"
#include "core/autograd/partition.h"

namespace braze::bridge {

// What all runs of a program have in common.
struct TrainedProgram {
    std::shared_ptr<const Trace> trace;
    std::vector<TraceOutput> outputs;
    std::shared_ptr<const Replay> replay;
    BackwardTraces backward;
    std::vector<int> written;  // inputs
    bool random = false;
    int n_inputs = 0;

    // Which backward pass is expected: an index into the joint traces; -1: none that is known.
    std::atomic<int> expected{0};
    std::atomic<int> surprises{0};
    // A backward pass came from these of the roots.
    void expect(const std::vector<bool>& roots_used);
};

// Whether what is in `some` is in `all`.
bool covers(const std::vector<bool>& all, const std::vector<bool>& some);

// The two halves for one of the joints.
struct TrainingPlan {
    struct Tangent {
        int root;
        at::ScalarType dtype;
        std::vector<Size> sizes, strides;  // as the backward program wants it
    };
    struct Gradient {
        int leaf;
        int output;  // of the backward program; -1 - k: tangent k itself
    };
    std::shared_ptr<TrainedProgram> program;
    static constexpr int kNoTensor = std::numeric_limits<int>::min();
    // Per output of the trace: an output of the forward program; -1 - k: input k (a number).
    std::vector<int> outputs;
    std::vector<char> leaves;           // the same: whether it is a leaf that needs a gradient
    std::vector<int> roots;             // per root: an output of the forward program
    std::vector<bool> used;             // per root: whether the backward pass starts there
    std::vector<at::Tensor> constants;  // graph inputs of the forward program after the caller's
    std::optional<Executor> forward, backward;
    std::vector<autograd::Saved> saved;
    std::vector<Tangent> tangents;
    std::vector<Gradient> gradients;
    int aten_calls = 0;
};

class Training {
  public:
    Training(std::shared_ptr<const Trace> trace, std::vector<TraceOutput> outputs, std::shared_ptr<const Replay> replay,
             BackwardTraces traces);
    // For the next run; made if it has not been yet. nullptr: while something watches or changes what autograd keeps
    // operator by operator, and where no backward pass is known. Needs the GIL.
    std::shared_ptr<const TrainingPlan> plan();
    // Results in the order of the trace's outputs, connected to the inputs. Needs no GIL.
    static std::vector<at::Tensor> run(const std::shared_ptr<const TrainingPlan>& plan,
                                       c10::ArrayRef<const at::Tensor*> inputs, c10::ArrayRef<int64_t> integers);
    int kernels() const;
    int aten_calls() const;

  private:
    std::shared_ptr<const TrainingPlan> make_plan(int joint) const;

    std::shared_ptr<TrainedProgram> program_;
    std::vector<std::shared_ptr<const TrainingPlan>> plans_;  // by joint, once made
};

}  // namespace braze::bridge
