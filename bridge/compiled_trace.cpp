#include "bridge/compiled_trace.h"

#include <sstream>

#include "bridge/gil.h"
#include "bridge/execute.h"
#include "bridge/options.h"
#include "bridge/replay.h"

namespace braze::bridge {

namespace {

class CompiledTrace final : public frontend::CompiledGraph {
  public:
    CompiledTrace(Trace trace, std::vector<TraceOutput> outputs, bool needs_grad)
        : trace_(std::move(trace)), outputs_(std::move(outputs)), needs_grad_(needs_grad), replay_(trace_, outputs_) {
        for (const TraceOutput& o : outputs_) Py_INCREF(o.type);
        if (!needs_grad_) compile();
    }
    ~CompiledTrace() override {
        Gil gil;
        for (const TraceOutput& o : outputs_) Py_DECREF(o.type);
    }

    bool run(PyObject* const* inputs, int n_inputs, PyObject** outputs, int n_outputs) override {
        HANDLE_TH_ERRORS
        std::vector<at::Tensor> tensors(n_inputs);
        for (int i = 0; i < n_inputs; ++i)
            if (inputs[i]) tensors[i] = THPVariable_Unpack(inputs[i]);
        std::vector<at::Tensor> results;
        {
            pybind11::gil_scoped_release no_gil;
            results = executor_ ? execute(tensors) : replay_.run(tensors, needs_grad_);
        }
        TORCH_CHECK(n_outputs == static_cast<int>(results.size()), "expected ", results.size(), " outputs, got ", n_outputs);
        wrap(results, outputs);
        return true;
        END_HANDLE_TH_ERRORS_RET(false)
    }

    int ops() const override { return static_cast<int>(trace_.records.size()); }
    int torch_ops() const override { return trace_.torch_ops; }
    int kernels() const override { return stats_.kernels; }
    int aten_calls() const override { return executor_ ? stats_.aten_calls : ops(); }
    std::string text() const override {
        std::ostringstream out;
        for (size_t i = 0; i < trace_.records.size(); ++i) {
            const Record& r = trace_.records[i];
            for (size_t k = 0; k < r.results.size(); ++k) out << (k ? ", " : "") << '%' << r.results[k];
            out << (r.results.empty() ? "" : " = ") << r.info->callee << '(';
            for (size_t k = 0; k < r.operands.size(); ++k) out << (k ? ", " : "") << '%' << r.operands[k].value;
            out << ")\n";
        }
        return out.str();
    }

  private:
    void compile() {
        Converted c = convert(trace_, outputs_);
        constants_ = std::move(c.constant_inputs);
        std::vector<bool> escaping(trace_.alias_sets, false);
        for (const TraceOutput& o : outputs_)
            if (trace_.values[o.value].alias_set >= 0) escaping[trace_.values[o.value].alias_set] = true;
        for (const ValueInfo& v : trace_.values) {
            if (v.kind == ValueInfo::Constant) copied_.push_back(escaping[v.alias_set] || trace_.written_sets[v.alias_set]);
            if (v.kind == ValueInfo::Input && trace_.written_sets[v.alias_set]) written_inputs_.push_back(v.producer);
        }
        executor_ = std::make_unique<Executor>(compile_graph(std::move(c.graph), pipeline_options(), &stats_), std::move(c.opaques));
    }

    std::vector<at::Tensor> execute(std::vector<at::Tensor>& tensors) {
        tensors.resize(trace_.inputs.size());
        for (size_t i = 0; i < constants_.size(); ++i) {
            const at::Tensor& t = trace_.constants[constants_[i]];
            tensors.push_back(copied_[i] ? t.clone() : t);
        }
        std::vector<at::Tensor> results = executor_->run(tensors);
        for (int i : written_inputs_)  // as the in-place operators would have done above
            if (!tensors[i].is_inference()) tensors[i].unsafeGetTensorImpl()->bump_version();
        for (size_t i = 0; i < results.size(); ++i)
            if (trace_.values[outputs_[i].value].kind != ValueInfo::Input && results[i].is_same(input_of(tensors, results[i]))) results[i] = results[i].alias();
        return results;
    }
    static at::Tensor input_of(const std::vector<at::Tensor>& tensors, const at::Tensor& t) {
        for (const at::Tensor& x : tensors)
            if (x.is_same(t)) return x;
        return {};
    }

    void wrap(const std::vector<at::Tensor>& results, PyObject** outputs) const {
        for (size_t i = 0; i < results.size(); ++i) {
            PyTypeObject* type = outputs_[i].type;
            bool plain = type == reinterpret_cast<PyTypeObject*>(THPVariableClass);
            bool known = results[i].unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() != nullptr;
            outputs[i] = plain || known ? THPVariable_Wrap(results[i]) : THPVariable_Wrap(results[i], type);
            if (!outputs[i]) {
                for (size_t k = 0; k < i; ++k) Py_CLEAR(outputs[k]);
                throw python_error();
            }
        }
    }

    Trace trace_;
    std::vector<TraceOutput> outputs_;
    bool needs_grad_;
    Replay replay_;
    PipelineStats stats_;
    std::unique_ptr<Executor> executor_;
    std::vector<int> constants_;        // extra inputs, by index into Trace::constants
    std::vector<bool> copied_;          // of those: written, or visible to the caller
    std::vector<int> written_inputs_;
};

}  // namespace

std::unique_ptr<frontend::CompiledGraph> compile_trace(Trace trace, std::vector<TraceOutput> outputs, bool needs_grad) {
    return std::make_unique<CompiledTrace>(std::move(trace), std::move(outputs), needs_grad);
}

}  // namespace braze::bridge
