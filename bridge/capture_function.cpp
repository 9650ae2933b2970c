// Custom autograd.Functions in a trace: see recorded_function.h.
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/python_function.h>

#include <algorithm>
#include <cstring>

#include "bridge/capture.h"
#include "bridge/pending.h"
#include "bridge/recorded_function.h"

namespace braze::bridge {

namespace {

using torch::autograd::Node;
using torch::autograd::PyNode;

bool is_py_node(Node* n) { return n && std::string_view(typeid(*n).name()).find("PyNode") != std::string_view::npos; }

// Of arguments that are no tensors of the trace. (To print a number that torch has wrapped would be an operator.)
bool same_argument(const c10::IValue& a, const c10::IValue& b) {
    if (!a.isTensor() || !b.isTensor()) return a.isTensor() == b.isTensor() && c10::str(a) == c10::str(b);
    const at::Tensor &x = a.toTensor(), &y = b.toTensor();
    if (!x.defined() || !y.defined()) return x.defined() == y.defined();
    return x.dtype() == y.dtype() && x.numel() == 1 && y.numel() == 1 &&
           std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.dtype().itemsize()) == 0;
}

// Whether the same operators were recorded, in the two modes that a backward pass may run in. Each run has numbered the
// values that it met first.
bool same_bodies(const RecordedFunction::Body& a, int first_a, const RecordedFunction::Body& b, int first_b) {
    std::unordered_map<int, int> known;
    auto same = [&](int x, int y) {
        if (x < first_a || y < first_b) return x == y;
        return known.try_emplace(x, y).first->second == y;
    };
    if (a.tangents.size() != b.tangents.size() || a.gradients.size() != b.gradients.size() ||
        a.records.size() != b.records.size())
        return false;
    for (size_t i = 0; i < a.tangents.size(); ++i)
        if (!same(a.tangents[i], b.tangents[i])) return false;
    for (size_t i = 0; i < a.records.size(); ++i) {
        const Record &r = a.records[i], &s = b.records[i];
        if (r.info != s.info || r.args.size() != s.args.size() || r.operands.size() != s.operands.size() ||
            r.results.size() != s.results.size())
            return false;
        for (size_t k = 0; k < r.args.size(); ++k)
            if (!same_argument(r.args[k], s.args[k])) return false;
        for (size_t k = 0; k < r.operands.size(); ++k)
            if (!same(r.operands[k].value, s.operands[k].value)) return false;
        for (size_t k = 0; k < r.results.size(); ++k)
            if (!same(r.results[k], s.results[k])) return false;
    }
    for (size_t i = 0; i < a.gradients.size(); ++i)
        if (!same(a.gradients[i], b.gradients[i])) return false;
    return true;
}

}  // namespace

// A contiguous fake (or in the other format) with the sizes of an output, and no place in the program.
at::Tensor Tracer::fake_gradient(const at::Tensor& output, at::MemoryFormat format) {
    at::Tensor fake;
    {
        c10::AutoGradMode off(false);
        fake = at::empty_symint(output.sym_sizes(), output.options().memory_format(format));
    }
    trace_.records.pop_back();
    return fake;
}

// The operators of one run of the Python backward, which leave the trace again.
Tracer::BackwardRun Tracer::run_function(Node& node, const std::vector<at::Tensor>& outputs, const RecordedFunction& f,
                                         const std::vector<bool>& given, bool grad) {
    BackwardRun run;
    RecordedFunction::Body& body = run.body;
    body.given = given;
    run.first_value = static_cast<int>(trace_.values.size());
    const size_t first = trace_.records.size(), calls = trace_.torch_level.size();
    run.first_record = first;
    const int sets = trace_.alias_sets, torch_ops = trace_.torch_ops;
    const bool complete = trace_.torch_level_complete;
    const std::vector<bool> written = trace_.written_sets;
    torch::autograd::variable_list tangents(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
        body.tangents.push_back(-1);
        if (f.outputs[i].value < 0 || !given[i]) continue;
        tangents[i] = fake_gradient(outputs[i], f.outputs[i].layout);
        body.tangents.back() = as_fake(tangents[i])->value();
        // (no leaf: it may be written)
        if (grad)
            torch::autograd::impl::set_gradient_edge(
                tangents[i], {c10::make_intrusive<torch::autograd::Error>("a gradient of a trace"), 0});
    }
    struct Reset {
        BackwardRun*& p;
        BackwardRun* outer;
        ~Reset() { p = outer; }
    } reset{function_run_, std::exchange(function_run_, &run)};
    c10::AutoGradMode mode(grad);
    torch::autograd::variable_list gradients = node(std::move(tangents));
    for (const at::Tensor& g : gradients) {
        FakeImpl* fake = g.defined() ? as_fake(g) : nullptr;
        if (g.defined() && (!fake || fake->epoch() != epoch_)) stop("autograd", f.name + " returns a constant");
        body.gradients.push_back(fake ? fake->value() : -1);
        if (fake) run.operands.try_emplace(fake->value(), g);
    }
    body.gradients.resize(f.inputs.size(), -1);
    for (int set = 0; set < sets; ++set)
        if (written[set] != trace_.written_sets[set])
            stop("autograd", f.name + " writes a tensor that it did not make");
    body.records.assign(std::make_move_iterator(trace_.records.begin() + static_cast<std::ptrdiff_t>(first)),
                        std::make_move_iterator(trace_.records.end()));
    trace_.records.resize(first);
    trace_.torch_level.resize(calls);
    trace_.torch_ops = torch_ops;
    trace_.torch_level_complete = complete;
    // Nothing of it may be used in the trace itself.
    for (size_t v = static_cast<size_t>(run.first_value); v < trace_.values.size(); ++v) {
        ValueInfo& info = trace_.values[v];
        if (info.kind == ValueInfo::Input) continue;
        if (info.kind == ValueInfo::Constant)
            body.constants.emplace(static_cast<int>(v), trace_.constants[info.producer]);
        else
            run.made.insert(static_cast<int>(v));
        info.kind = ValueInfo::Undefined;
        info.alias_set = -1;
    }
    return run;
}

// read: what it reads that it did not make, by value.
RecordedFunction::Body Tracer::record_body(Node& node, const std::vector<at::Tensor>& outputs,
                                           const RecordedFunction& f, const std::vector<bool>& given,
                                           std::unordered_map<int, at::Tensor>& read) {
    BackwardRun run = run_function(node, outputs, f, given, false);
    if (!f.once) {
        BackwardRun again = run_function(node, outputs, f, given, true);
        if (!same_bodies(run.body, run.first_value, again.body, again.first_value))
            stop("autograd", f.name + ": what its backward does depends on the grad mode");
        run = std::move(again);
    }
    for (const auto& [value, t] : run.operands)
        if (!run.made.contains(value) && !run.body.constants.contains(value)) read.try_emplace(value, t);
    return std::move(run.body);
}

// The choices of outputs whose gradients may be there, for a backward that tells them apart.
static std::vector<std::vector<bool>> choices(const std::vector<bool>& differentiable) {
    std::vector<std::vector<bool>> found(1, std::vector<bool>(differentiable.size(), false));
    for (size_t i = 0; i < differentiable.size(); ++i) {
        if (!differentiable[i]) continue;
        const size_t n = found.size();
        for (size_t k = 0; k < n; ++k) {
            found.push_back(found[k]);
            found.back()[i] = true;
        }
    }
    found.erase(found.begin());
    return found;
}

bool Tracer::end_function(const std::vector<PyObject*>& arguments, PyObject* result, bool once) {
    try {
        std::vector<PyObject*> results{result};
        if (PyTuple_Check(result)) {
            results.clear();
            for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); ++i) results.push_back(PyTuple_GET_ITEM(result, i));
        }
        std::vector<at::Tensor> outputs;
        c10::intrusive_ptr<Node> node;
        for (PyObject* o : results) {
            outputs.push_back(is_fake(o) ? THPVariable_Unpack(o) : at::Tensor());
            if (!outputs.back().defined()) continue;
            if (!node && is_py_node(outputs.back().grad_fn().get())) node = outputs.back().grad_fn();
        }
        if (!node) return true;  // nothing to differentiate
        record_function(static_cast<PyNode&>(*node), arguments, outputs, once);
        return true;
    } catch (python_error& e) { e.restore(); } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
    return false;
}

// What a library's operator without a derivative raises in its backward: nothing can be recorded, and nothing has to
// be.
static std::string no_derivative() {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    std::string text;
    if (type == PyExc_RuntimeError && value) {
        THPObjectPtr said(PyObject_Str(value));
        const char* c = said ? PyUnicode_AsUTF8(said) : nullptr;
        if (c && std::strncmp(c, "Trying to backward through ", 27) == 0) text = c;
        PyErr_Clear();
    }
    if (text.empty()) {
        PyErr_Restore(type, value, traceback);
        return text;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return text;
}

// Backwards that tell apart which gradients are there are recorded for each choice among so many outputs.
static constexpr size_t kMostChosen = 4;

void Tracer::record_function(PyNode& node, const std::vector<PyObject*>& arguments,
                             const std::vector<at::Tensor>& outputs, bool once) {
    auto* context = reinterpret_cast<THPFunction*>(node.pyobj());
    auto f = std::make_shared<RecordedFunction>();
    f->name = node.name();
    if (options_.backend.kind == frontend::BackendChoice::User ||
        options_.backend.kind == frontend::BackendChoice::Eager)
        stop("autograd", f->name + ": an autograd.Function is no call in a graph");
    f->end = trace_.records.size() - (function_run_ ? function_run_->first_record : 0);
    f->once = once;
    f->materialize = context->materialize_grads;

    std::unordered_set<c10::TensorImpl*> given;
    for (PyObject* o : arguments) {
        if (!PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(THPVariableClass))) continue;
        FakeImpl* fake = is_fake(o) ? as_fake(THPVariable_Unpack(o)) : nullptr;
        if (!fake) stop("autograd", f->name + " is given a tensor that is not of the graph");
        size_t i = f->inputs.size();
        f->inputs.push_back({fake->value(), i < node.num_outputs() && node.next_edge(i).is_valid()});
        given.insert(fake);
        if (function_run_) function_run_->operands.try_emplace(fake->value(), THPVariable_Unpack(o));
    }
    if (f->inputs.size() != node.num_outputs()) stop("autograd", f->name + ": unexpected arguments");
    std::vector<bool> differentiable(outputs.size(), false);
    for (size_t i = 0; i < outputs.size(); ++i) {
        f->outputs.emplace_back();
        const at::Tensor& t = outputs[i];
        if (!t.defined() || t.grad_fn().get() != &node) continue;
        FakeImpl* fake = as_fake(t);
        if (t.output_nr() != i || !fake) stop("autograd", f->name + " returns a tensor twice");
        // (what is written into a part of a tensor belongs to the gradient function of the whole)
        if (t.is_view() && given.contains(fake)) stop("autograd", f->name + " changes a view");
        RecordedFunction::Output& o = f->outputs.back();
        o.value = fake->value();
        if (t.dim() == 4 && !t.is_contiguous() && t.is_contiguous(at::MemoryFormat::ChannelsLast))
            o.layout = at::MemoryFormat::ChannelsLast;
        auto* view = torch::autograd::impl::get_view_autograd_meta(t);
        if (view && view->has_bw_view()) o.view = view->get_creation_meta();
        differentiable[i] = true;
    }
    std::vector<std::vector<bool>> wanted{differentiable};
    if (!f->materialize) {
        if (static_cast<size_t>(std::count(differentiable.begin(), differentiable.end(), true)) > kMostChosen)
            stop("autograd", f->name + " does not materialize gradients");
        wanted = choices(differentiable);
    }
    std::unordered_map<int, at::Tensor> read;
    try {
        for (const std::vector<bool>& choice : wanted)
            f->bodies.push_back(record_body(node, outputs, *f, choice, read));
    } catch (python_error& e) {
        e.restore();
        f->error = no_derivative();
        if (f->error.empty()) throw python_error();
        f->bodies.clear();
        read.clear();
    }

    // What it reads that it did not make.
    std::unordered_set<int> checked;
    for (const auto& v : context->saved_variables) {
        at::Tensor t = v.unpack(node.getptr());
        if (t.defined() && as_fake(t)) checked.insert(as_fake(t)->value());
    }
    std::vector<at::Tensor> saved;
    for (const auto& [value, t] : read) {
        int output = -1;
        for (size_t i = 0; i < f->outputs.size(); ++i)
            if (f->outputs[i].value == value) output = static_cast<int>(i);
        f->saved.push_back({value, t.requires_grad(), checked.contains(value), output});
        saved.push_back(output < 0 ? t : outputs[static_cast<size_t>(output)]);
        if (function_run_) function_run_->operands.try_emplace(value, t);
    }
    auto recorded = c10::make_intrusive<RecordedNode>(f, node.next_edges(), outputs, saved, nullptr, nullptr);
    recorded->own(outputs);
    (function_run_ ? function_run_->body.functions : trace_.functions).push_back(std::move(f));
}

}  // namespace braze::bridge
