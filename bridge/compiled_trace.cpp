#include "bridge/compiled_trace.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "bridge/backward_node.h"
#include "bridge/convert.h"
#include "bridge/execute.h"
#include "bridge/gil.h"
#include "bridge/options.h"
#include "bridge/output_views.h"
#include "bridge/replay.h"
#include "bridge/training.h"
#include "core/ir/text.h"
#include "core/support/error.h"
#include "frontend/segments/segment.h"

namespace braze::bridge {

namespace {

class CompiledTrace final : public frontend::CompiledGraph {
  public:
    CompiledTrace(Trace trace, std::vector<TraceOutput> outputs, bool needs_grad, bool in_eager,
                  std::optional<BackwardTraces> backward)
        : shared_(std::make_shared<const Trace>(std::move(trace))),
          trace_(*shared_),
          outputs_(std::move(outputs)),
          needs_grad_(needs_grad) {
        for (const TraceOutput& o : outputs_) Py_XINCREF(o.type);
        draws_ = std::any_of(trace_.records.begin(), trace_.records.end(),
                             [](const Record& r) { return r.info->random && r.ordered; });
        if (needs_grad || in_eager || !trace_.only_cpu)
            replay_ = std::make_shared<const Replay>(shared_, outputs_);
        else
            compile();
        if (needs_grad && backward) train_with(std::move(*backward));
    }
    ~CompiledTrace() override {
        Gil gil;
        for (const TraceOutput& o : outputs_) Py_XDECREF(o.type);
    }

    bool run(PyObject* const* inputs, int n_inputs, PyObject** outputs, int n_outputs) override {
        HANDLE_TH_ERRORS
        TORCH_CHECK(n_outputs == static_cast<int>(outputs_.size()), "expected ", outputs_.size(), " outputs, got ",
                    n_outputs);
        run_wrote() = false;
        std::vector<at::Tensor> results;
        Inputs given(trace_, inputs, n_inputs);
        std::optional<RandomState> random;
        if (draws_) random.emplace();
        try {
            std::shared_ptr<const TrainingPlan> plan = training_ ? training_->plan() : nullptr;
            if (plan)
                train(plan, given, results);
            else if (replay_)
                replay(given, results);
            else
                execute(given, results);
        } catch (const InternalError& e) {
            PyObject* type = frontend::settings().internal_error.get();
            PyErr_SetString(type ? type : PyExc_RuntimeError, e.what());
            return false;
        }
        use_up(results, given);
        for (size_t i = 0; i < results.size(); ++i)
            if (outputs_[i].retains_grad && results[i].grad_fn()) results[i].retain_grad();
        wrap(results, given, outputs);
        if (random) random->keep();
        return true;
        END_HANDLE_TH_ERRORS_RET(false)
    }

    // (what hooks on saved tensors did can't be undone either, and what they raise is the program's)
    bool wrote() const override { return run_wrote() || !at::SavedTensorDefaultHooks::get_tls_state().stack.empty(); }
    int ops() const override { return static_cast<int>(trace_.records.size()); }
    int torch_ops() const override { return trace_.torch_ops; }
    int kernels() const override {
        if (training_) return training_->kernels();
        return executor_ ? static_cast<int>(executor_->program().kernels.size()) : 0;
    }
    int aten_calls() const override {
        if (training_) return training_->aten_calls();
        return executor_ ? aten_calls_ : ops();
    }
    std::string text() const override { return ir::print(to_graph(trace_, outputs_).graph); }

  private:
    void train_with(BackwardTraces backward) {
        views_.emplace(trace_, outputs_);
        auto replay = views_->any() ? std::make_shared<const Replay>(shared_, views_->others()) : replay_;
        training_.emplace(shared_, views_->others(), std::move(replay), std::move(backward));
        training_->plan();
    }

    void compile() {
        Converted converted = to_graph(trace_, outputs_);
        output_slots_ = std::move(converted.outputs);
        find_shared_outputs();
        std::vector<at::Tensor> constants;
        for (int c : converted.constants) constants.push_back(trace_.constants[c]);
        std::vector<int> mutated;
        for (size_t id = 0; id < trace_.inputs.size(); ++id) {
            int value = trace_.inputs[id];
            if (value >= 0 && trace_.written_sets[trace_.values[value].alias_set])
                mutated.push_back(static_cast<int>(id));
        }
        PipelineStats stats;
        PipelineOptions options = pipeline_options();
        std::unique_ptr<runtime::Program> program;
        {
            pybind11::gil_scoped_release no_gil;
            program = compile_graph(std::move(converted.graph), options, &stats);
        }
        aten_calls_ = stats.aten_calls;
        executor_.emplace(std::move(program), std::move(converted.opaque), std::move(constants), std::move(mutated),
                          *trace_.symbols);
    }

    // Where a run raises, eager starts over: it must draw the same numbers.
    class RandomState {
      public:
        RandomState() : generator_(at::detail::getDefaultCPUGenerator()) {
            std::lock_guard lock(generator_.mutex());
            before_ = generator_.get_state();
        }
        ~RandomState() {
            if (!before_.defined()) return;
            std::lock_guard lock(generator_.mutex());
            generator_.set_state(before_);
        }
        void keep() { before_.reset(); }

      private:
        at::Generator generator_;
        at::Tensor before_;
    };

    // The inputs of a run: tensors as they are, floats in scalar tensors, integers beside.
    struct Inputs {
        c10::SmallVector<const at::Tensor*, 16> tensors;
        c10::SmallVector<int64_t, 4> integers;  // by input id where there are any
        std::vector<at::Tensor> made;

        Inputs(const Trace& trace, PyObject* const* objects, int n) {
            static const at::Tensor none;
            if (!trace.numbers.empty()) {
                made.reserve(n);
                integers.resize(n);
            }
            for (int i = 0; i < n; ++i) {
                switch (objects[i] ? trace.number(i) : NumberInput::None) {
                    case NumberInput::None:
                        tensors.push_back(objects[i] ? &THPVariable_Unpack(objects[i]) : &none);
                        break;
                    case NumberInput::Int:
                        integers[i] = PyLong_AsLongLong(objects[i]);
                        tensors.push_back(&none);
                        break;
                    case NumberInput::Float:
                        made.push_back(at::detail::empty_strided_cpu({}, {}, at::kDouble));
                        *made.back().mutable_data_ptr<double>() = PyFloat_AsDouble(objects[i]);
                        tensors.push_back(&made.back());
                        break;
                }
            }
        }
        int64_t size(int input, int axis) const {
            return axis == SymbolTable::kItself ? integers[input] : tensors[input]->size(axis);
        }
    };

    void execute(const Inputs& inputs, std::vector<at::Tensor>& results) {
        std::vector<at::Tensor> made;
        if (executor_->long_running()) {
            pybind11::gil_scoped_release no_gil;
            executor_->run(inputs.tensors, inputs.integers, made);
        } else {
            executor_->run(inputs.tensors, inputs.integers, made);
        }
        results.reserve(outputs_.size());
        for (size_t i = 0; i < outputs_.size(); ++i) {
            if (outputs_[i].value < 0) {
                results.emplace_back();
                continue;
            }
            int k = output_slots_[i];
            results.push_back(k < 0 ? *inputs.tensors[-1 - k] : made[k]);
            if (k >= 0 && shares_memory_[i] && is_another_object(results.back(), static_cast<int>(i), inputs, made))
                results.back() = at::alias(results.back());
            if (k < 0 || outputs_[i].used_up) continue;
            if (outputs_[i].requires_grad)
                results.back().unsafeGetTensorImpl()->set_requires_grad(true);
            else if (results.back().requires_grad())  // without gradients too, a view of an input says what that says
                results.back() = results.back().detach();
        }
    }

    // Outputs in memory that an input or another output lies in, too.
    void find_shared_outputs() {
        std::vector<int> users(static_cast<size_t>(trace_.alias_sets));
        auto set_of = [&](int value) { return value < 0 ? -1 : trace_.values[value].alias_set; };
        auto use = [&](int value) {
            if (set_of(value) >= 0) ++users[static_cast<size_t>(set_of(value))];
        };
        for (int value : trace_.inputs) use(value);
        for (const TraceOutput& o : outputs_) use(o.value);
        for (const TraceOutput& o : outputs_)
            shares_memory_.push_back(set_of(o.value) >= 0 && users[static_cast<size_t>(set_of(o.value))] > 1);
    }

    // A view of all of a tensor is a tensor of its own in the program, but may have become that tensor in the graph.
    bool is_another_object(const at::Tensor& t, int i, const Inputs& inputs,
                           const std::vector<at::Tensor>& made) const {
        for (const at::Tensor* input : inputs.tensors)
            if (input && t.is_same(*input)) return true;
        for (int j = 0; j < i; ++j)
            if (output_slots_[j] >= 0 && output_slots_[j] != output_slots_[i] && t.is_same(made[output_slots_[j]]))
                return true;
        return false;
    }

    void train(const std::shared_ptr<const TrainingPlan>& plan, const Inputs& inputs,
               std::vector<at::Tensor>& results) const {
        std::optional<pybind11::gil_scoped_release> no_gil;
        if (plan->forward->long_running()) no_gil.emplace();
        results = Training::run(plan, inputs.tensors, inputs.integers);
        if (!views_->any()) return;
        const SymbolValues sizes(*trace_.symbols, [&](int input, int axis) { return inputs.size(input, axis); });
        results = views_->complete(std::move(results), inputs.tensors, sizes);
    }

    void replay(const Inputs& inputs, std::vector<at::Tensor>& results) {
        std::vector<at::Tensor> tensors;
        for (const at::Tensor* t : inputs.tensors) tensors.push_back(*t);
        const SymbolValues sizes(*trace_.symbols, [&](int input, int axis) { return inputs.size(input, axis); });
        pybind11::gil_scoped_release no_gil;
        results = replay_->run(tensors, sizes, needs_grad_);
    }

    void use_up(std::vector<at::Tensor>& results, const Inputs& inputs) const {
        for (size_t i = 0; i < results.size(); ++i) {
            if (!outputs_[i].used_up) continue;
            const std::vector<int>& leaves = *outputs_[i].used_up;
            results[i] = with_used_up_graph(std::move(results[i]), leaves.size(),
                                            [&](size_t k) -> const at::Tensor& { return *inputs.tensors[leaves[k]]; });
        }
    }

    void wrap(const std::vector<at::Tensor>& results, const Inputs& inputs, PyObject** outputs) const {
        for (size_t i = 0; i < results.size(); ++i) {
            PyTypeObject* type = outputs_[i].type;
            if (outputs_[i].value < 0) {
                SymbolValues sizes(*trace_.symbols, [&](int input, int axis) { return inputs.size(input, axis); });
                outputs[i] = PyLong_FromLongLong(sizes(outputs_[i].size));
            } else if (!type) {
                outputs[i] = PyFloat_FromDouble(*results[i].const_data_ptr<double>());
            } else {
                bool plain = type == reinterpret_cast<PyTypeObject*>(THPVariableClass);
                bool known = results[i].unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() != nullptr;
                outputs[i] = plain || known ? THPVariable_Wrap(results[i]) : THPVariable_Wrap(results[i], type);
            }
            if (!outputs[i]) {
                for (size_t k = 0; k < i; ++k) Py_CLEAR(outputs[k]);
                throw python_error();
            }
        }
    }

    const std::shared_ptr<const Trace> shared_;
    const Trace& trace_;
    std::vector<TraceOutput> outputs_;
    bool needs_grad_;
    std::shared_ptr<const Replay> replay_;
    std::optional<OutputViews> views_;
    std::optional<Training> training_;  // of the other outputs, in replay_'s place wherever it has a plan
    std::optional<Executor> executor_;
    std::vector<int> output_slots_;    // as Converted::outputs
    std::vector<bool> shares_memory_;  // by output
    int aten_calls_ = 0;
    bool draws_ = false;  // random numbers
};

}  // namespace

std::unique_ptr<frontend::CompiledGraph> compile_trace(Trace trace, std::vector<TraceOutput> outputs, bool needs_grad,
                                                       bool in_eager, std::optional<BackwardTraces> backward) {
    return std::make_unique<CompiledTrace>(std::move(trace), std::move(outputs), needs_grad, in_eager,
                                           std::move(backward));
}

}  // namespace braze::bridge
