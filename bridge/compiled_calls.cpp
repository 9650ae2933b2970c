#include "bridge/compiled_calls.h"

#include "bridge/backward_node.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/utils/pybind.h>

#include "bridge/frontend_off.h"
#include "bridge/fx_export.h"
#include "bridge/gil.h"
#include "core/support/error.h"

namespace braze::bridge {

namespace py = pybind11;

namespace {

class CompiledCalls final : public frontend::CompiledGraph {
  public:
    CompiledCalls(Trace trace, std::vector<TraceOutput> outputs, bool needs_grad,
                  const frontend::BackendChoice& backend, const std::vector<PyObject*>& reals)
        : trace_(std::move(trace)), outputs_(std::move(outputs)), needs_grad_(needs_grad) {
        writes_ = backend.kind == frontend::BackendChoice::User;
        for (int v : trace_.inputs) writes_ |= v >= 0 && trace_.written_sets[trace_.values[v].alias_set];
        FrontendOff off;
        graph_ = to_fx(trace_, outputs_, needs_grad);
        text_ = py::cast<std::string>(py::str(graph_.module.attr("graph")));
        if (backend.kind == frontend::BackendChoice::Eager) {
            compiled_ = graph_.module.attr("forward");
            return;
        }
        py::list examples;
        for (int id : graph_.inputs) examples.append(example(reals, id));
        for (const Expr& e : graph_.numbers) examples.append(trace_.symbols->hint(e));
        int line = trace_.records.front().line;
        compiled_ = py::reinterpret_borrow<py::object>(backend.compiler)(graph_.module, examples,
                                                                         line < 0 ? "?" : trace_.lines[line]);
    }
    ~CompiledCalls() override {
        Gil gil;
        compiled_ = py::object();
        graph_.module = py::object();
    }

    bool run(PyObject* const* inputs, int, PyObject** outputs, int n_outputs) override {
        HANDLE_TH_ERRORS
        FrontendOff off;
        auto size = [&](int id, int axis) {
            return axis == SymbolTable::kItself ? PyLong_AsLongLong(inputs[id])
                                                : THPVariable_Unpack(inputs[id]).size(axis);
        };
        const SymbolValues sizes(*trace_.symbols, size);
        py::tuple args(graph_.inputs.size() + graph_.numbers.size());
        size_t n = 0;
        for (int id : graph_.inputs) args[n++] = input(inputs[id], id);
        for (const Expr& e : graph_.numbers) args[n++] = py::int_(sizes(e));
        // (what a backward pass inside has used up needs none; leaves may be written then)
        c10::AutoGradMode grad(needs_grad_ && c10::GradMode::is_enabled());
        PyObject* returned = PyObject_Call(compiled_.ptr(), args.ptr(), nullptr);
        if (!returned) return false;
        auto results = py::reinterpret_steal<py::object>(returned);
        TORCH_CHECK(
            PyTuple_Check(returned) && PyTuple_GET_SIZE(returned) == static_cast<Py_ssize_t>(graph_.outputs.size()),
            "a graph must return a tuple of ", graph_.outputs.size(), " values");
        for (int i = 0; i < n_outputs; ++i)
            if (outputs_[i].value < 0) outputs[i] = PyLong_FromLongLong(sizes(outputs_[i].size));
        for (size_t k = 0; k < graph_.outputs.size(); ++k) {
            int i = graph_.outputs[k];
            PyObject* r = PyTuple_GET_ITEM(returned, static_cast<Py_ssize_t>(k));
            TORCH_CHECK(THPVariable_Check(r), "a graph returns tensors, not ", Py_TYPE(r)->tp_name);
            outputs[i] = output(r, outputs_[i], inputs);
        }
        return true;
        END_HANDLE_TH_ERRORS_RET(false)
    }

    bool wrote() const override { return writes_ || !at::SavedTensorDefaultHooks::get_tls_state().stack.empty(); }
    int ops() const override { return static_cast<int>(trace_.records.size()); }
    int torch_ops() const override { return trace_.torch_ops; }
    int kernels() const override { return 0; }
    int aten_calls() const override { return ops(); }
    std::string text() const override { return text_; }

  private:
    // A float of the program is a scalar tensor in the graph.
    py::object input(PyObject* o, int id) const {
        if (trace_.number(id) != NumberInput::Float) return py::reinterpret_borrow<py::object>(o);
        at::Tensor t = at::scalar_tensor(PyFloat_AsDouble(o), at::TensorOptions(at::kDouble));
        t.unsafeGetTensorImpl()->set_wrapped_number(true);
        return py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(t)));
    }
    py::object example(const std::vector<PyObject*>& reals, int id) const { return input(reals.at(id), id); }

    static PyObject* output(PyObject* r, const TraceOutput& wanted, PyObject* const* inputs) {
        const at::Tensor& t = THPVariable_Unpack(r);
        if (!wanted.type) return PyFloat_FromDouble(t.item<double>());
        if (wanted.used_up)
            return THPVariable_Wrap(with_used_up_graph(t, wanted.used_up->size(), [&](size_t k) -> const at::Tensor& {
                return THPVariable_Unpack(inputs[(*wanted.used_up)[k]]);
            }));
        if (!t.requires_grad() || wanted.requires_grad) return Py_NewRef(r);
        return THPVariable_Wrap(t.detach());
    }

    Trace trace_;
    std::vector<TraceOutput> outputs_;
    bool needs_grad_;
    bool writes_;  // or may write: nothing is known of what a user's backend makes
    FxGraph graph_;
    py::object compiled_;
    std::string text_;
};

}  // namespace

std::unique_ptr<frontend::CompiledGraph> compile_calls(Trace trace, std::vector<TraceOutput> outputs, bool needs_grad,
                                                       const frontend::BackendChoice& backend,
                                                       const std::vector<PyObject*>& reals) {
    try {
        return std::make_unique<CompiledCalls>(std::move(trace), std::move(outputs), needs_grad, backend, reals);
    } catch (py::error_already_set& e) {
        e.restore();
        return nullptr;
    }
}

}  // namespace braze::bridge
