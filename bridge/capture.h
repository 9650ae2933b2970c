// One trace: the dispatch mode below autograd and the fallback above it that together record a Trace.
#pragma once
#include <torch/csrc/utils/object_ptr.h>

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bridge/dispatch_mode.h"
#include "bridge/fake.h"
#include "bridge/joint_trace.h"
#include "bridge/recorded_function.h"
#include "bridge/trace.h"
#include "frontend/bridge_api.h"

namespace torch::autograd {
struct PyNode;
}

namespace braze::bridge {

struct FxGraph;
struct ProgramHook;

class Tracer final : public frontend::Capture {
  public:
    explicit Tracer(frontend::CaptureOptions options);
    ~Tracer() override;

    PyObject* fake_input(PyObject* real, int id, uint64_t dynamic_dims) override;
    bool is_fake(PyObject* o) const override;
    frontend::ValueRef value_of(PyObject* fake) const override;
    void touch(PyObject* fake) override;
    bool touched(int input_id) const override;
    int op_count() const override { return static_cast<int>(trace_.records.size()); }
    bool mutated_input(int input_id) const override;
    uint64_t dynamic_dims(int input_id) const override;
    std::unique_ptr<frontend::ShapeGuard> shape_guard() const override;
    PyObject* symbolic_input(PyObject* number, int id) override;
    std::optional<SizePlace> size_place(PyObject* symbolic_int) const override;
    bool is_fixed(int input_id) const override { return trace_.symbols->is_fixed(input_id); }
    std::optional<std::vector<int>> begin_backward(const std::vector<PyObject*>& roots) override;
    bool end_function(const std::vector<PyObject*>& arguments, PyObject* result, bool once) override;
    int add_hook(PyObject* fake, std::function<PyObject*(PyObject*)> call) override;
    void remove_hook(int hook) override;
    int settle_hooks(const std::vector<PyObject*>& outputs) override;
    void pause() override;
    void resume() override;
    void trace_backward(const std::vector<PyObject*>& outputs, int n_inputs) override;
    std::unique_ptr<frontend::CompiledGraph> finish(const std::vector<PyObject*>& outputs, int n_inputs) override;

    // Ends the capture: the operators as a graph of the first n_inputs inputs. The others are attributes of the module.
    FxGraph export_operators(const std::vector<at::Tensor>& results, size_t n_inputs);

    // Called by the dispatcher while this trace is active on this thread.
    void record(const c10::OperatorHandle& op, torch::jit::Stack* stack);
    void torch_level(const c10::OperatorHandle& op, torch::jit::Stack* stack);
    // Another operator, with its arguments on the stack, to be called instead: one that takes sizes which are symbols.
    std::optional<c10::OperatorHandle> substitute(const c10::OperatorHandle& op, torch::jit::Stack* stack) const;
    // The call of a program around what it leads to: the index for end_torch_op, or -1 where it isn't kept.
    int begin_torch_op(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
    void end_torch_op(int index, const torch::jit::Stack& stack);
    void drop_torch_op(int index);
    // Reports the reason and leaves by an exception. Needs the GIL.
    [[noreturn]] void stop(const char* id, const std::string& detail);

    static Tracer* active();
    // A view that was made without gradients, or with others at once, and whose base has been written: torch raises
    // where its gradient function is asked for.
    static bool has_lost_graph(const at::Tensor& t);

    // A checkpointed part of the program begins. policy: (operator, arguments...) -> whether its results are kept;
    // None: nothing is. Parts inside others are one with them.
    void enter_region(PyObject* policy);
    void leave_region();

  private:
    struct Pending;  // an operator while it is being recorded

    FakeImpl* own_fake(const at::Tensor& t);
    at::Tensor resolve_real(const at::Tensor& real);
    at::Tensor lift_constant(const at::Tensor& real);
    void take_operand(Pending& p, int arg, int pos, at::Tensor& t);
    bool carries_gradient(const Pending& p, const FakeImpl& fake);
    void note_unseen(const Pending& p);
    void take_arguments(Pending& p, c10::IValue* args);
    // Whether floats that only a run knows can be in the graph.
    bool numbers_in_graph() const;
    bool read_item(const Pending& p, torch::jit::Stack* stack);
    at::Tensor number_operand(const OperatorInfo& info, const c10::IValue* args, const FloatValue& value);
    bool take_symbolic_scalar(Pending& p, int arg, const c10::IValue* args, c10::IValue& v);
    int contents_of(const FakeImpl& fake);
    int contents_after(const Pending& p, at::ScalarType dtype);
    void note_contents(const Pending& p);
    void record_foreach(const OperatorInfo& info, torch::jit::Stack* stack);
    at::Tensor known_scalar(int value, int depth);
    bool read_known(const Pending& p, torch::jit::Stack* stack);
    void refuse_data_dependence(const Pending& p, torch::jit::Stack* stack);
    void refuse_wrong_masks(const Pending& p);
    void refuse_differentiable_writes(const OperatorInfo& info, const c10::IValue* args);
    void refuse_overlap(const Pending& p);
    void refuse_zeros_without_memory(const Pending& p);
    void run_meta(Pending& p, torch::jit::Stack* stack);
    void run_shape_function(const OperatorInfo& info, torch::jit::Stack* stack);
    void inside_structured(const OperatorInfo& info, torch::jit::Stack* stack);
    void find_symbolic_results(Pending& p, const torch::jit::Stack& stack);
    at::Tensor take_result(Pending& p, const at::Tensor& meta, const ReturnInfo& r, int pos);
    at::Tensor written_result(Pending& p, const at::Tensor& meta, int operand, const SymbolicMetadata* symbolic);
    void keep_symbolic(FakeImpl& fake, int value, const SymbolicMetadata* symbolic);
    bool make_symbolic(FakeImpl& fake, const at::Tensor& meta, int id, uint64_t dims);
    void assume_ranges(PyObject* real, const FakeImpl& fake);
    void hint_argument(Pending& p, c10::IValue& v);
    bool take_symbolic_number(Pending& p, int arg, const c10::IValue* args, at::Tensor& t);
    static void freeze_arguments(Trace& trace);
    static void freeze(const Trace& trace, Record& r);
    bool take_torch_level(TorchLevelOp& t, const c10::IValue* args) const;
    void note_writes(Pending& p);
    int add_value(ValueInfo::Kind kind, int producer, int index, const at::Tensor& meta, int alias_set);
    int current_line(bool keeps = false);
    bool policy_keeps(const c10::OperatorHandle& op, const c10::IValue* args, size_t n);
    void enter();
    void leave();
    void release_thread();
    std::string autograd_obstacle(const std::vector<at::Tensor>& outputs) const;
    bool take_out_views(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& roots) const;
    bool one_function_suffices(const std::vector<at::Tensor>& outputs) const;
    at::Tensor fake_tangent(const at::Tensor& output, int id);
    std::optional<JointTrace> record_backward(const std::vector<at::Tensor>& all, const std::vector<int>& roots,
                                              const std::vector<at::Tensor>& leaves, int n_inputs);
    // The error that it raises, or an empty string.
    std::string run_engine(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& leaves,
                           const std::vector<at::Tensor>& tangents, std::vector<at::Tensor>& gradients);
    struct BackwardRun {  // of a custom autograd.Function
        int first_value = 0;
        size_t first_record = 0;
        RecordedFunction::Body body;
        std::unordered_map<int, at::Tensor> operands;  // by value
        std::unordered_set<int> made;                  // values
    };
    at::Tensor fake_gradient(const at::Tensor& output, at::MemoryFormat format);
    BackwardRun run_function(torch::autograd::Node& node, const std::vector<at::Tensor>& outputs,
                             const RecordedFunction& f, const std::vector<bool>& given, bool grad);
    RecordedFunction::Body record_body(torch::autograd::Node& node, const std::vector<at::Tensor>& outputs,
                                       const RecordedFunction& f, const std::vector<bool>& given,
                                       std::unordered_map<int, at::Tensor>& read);
    void record_function(torch::autograd::PyNode& node, const std::vector<PyObject*>& arguments,
                         const std::vector<at::Tensor>& outputs, bool once);
    void record_hook(ProgramHook& hook);
    void forget_hooks();
    void drop_hooks();
    void add_inputs_of(const c10::TensorImpl* leaf, std::vector<int>& ids) const;
    void find_used_up(const std::vector<at::Tensor>& roots, int n_inputs);

    struct InputFake {
        int id;
        bool requires_grad;  // when the program began
        at::Tensor fake;
    };

    frontend::CaptureOptions options_;
    Trace trace_;
    std::optional<BackwardTraces> backward_;  // where it could be recorded
    std::vector<InputFake> input_fakes_;
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> written_fakes_;
    std::unordered_set<int> lost_inputs_;  // values of views that have lost their graph
    bool ran_backward_ = false;            // by the program
    // Outputs whose graph a backward pass of the program has freed, with the inputs that are its leaves.
    std::unordered_map<c10::TensorImpl*, std::vector<int>> used_up_;
    std::vector<std::shared_ptr<ProgramHook>> hooks_;
    BackwardRun* function_run_ = nullptr;  // while a backward is recorded apart
    const uint64_t epoch_;
    c10::impl::TorchDispatchModeTLS modes_before_;
    bool hooks_traced_before_ = false;
    int paused_ = 0;
    bool finished_ = false;
    bool stopped_ = false;  // at a break
    bool in_structured_ = false;
    bool in_backward_ = false;
    std::unordered_map<c10::StorageImpl*, c10::Storage> input_storages_;  // by the real storage
    std::vector<c10::Storage> kept_storages_;                             // real ones, so that addresses stay unique
    std::unordered_map<int, int> contents_;  // of scalars, by alias set: nodes of FloatNodes
    std::vector<bool> touched_;              // by input id
    int open_torch_op_ = -1;
    enum class Unseen : uint8_t { Copy, Result };
    std::unordered_map<int, Unseen> unseen_;  // copies of lazy views below autograd, and what is made of them
    std::vector<int> lazy_sets_;              // alias sets with a value that is conjugated or negated when it is read
    std::vector<PyObject*> reals_;            // by input id; the front end holds them
    int regions_ = 0, region_ = 0, region_depth_ = 0;
    THPObjectPtr policy_;
    std::string last_line_;
    int last_line_index_ = -1;
};

}  // namespace braze::bridge
