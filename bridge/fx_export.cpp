#include "bridge/fx_export.h"

#include <torch/csrc/utils/pybind.h>

#include "core/support/error.h"

namespace braze::bridge {

namespace py = pybind11;

namespace {

class Exporter {
  public:
    Exporter(const Trace& trace, const std::vector<TraceOutput>& outputs, bool needs_grad)
        : trace_(trace),
          outputs_(outputs),
          needs_grad_(needs_grad),
          fx_(py::module_::import("torch.fx")),
          torch_(py::module_::import("torch")),
          graph_(fx_.attr("Graph")()),
          known_(trace.values.size()) {}

    // Nothing: some value is not the result of any of the program's calls.
    std::optional<FxGraph> of_calls() {
        std::vector<const Record*> records;
        for (const TorchLevelOp& t : trace_.torch_level) records.push_back(&t.record);
        if (!trace_.torch_level_complete || !begin(records)) return {};
        for (const TorchLevelOp& t : trace_.torch_level) {
            switch_autocast(t.autocast);
            call(t.record, &t.results_require_grad);
        }
        switch_autocast(trace_.autocast);
        return finish();
    }

    FxGraph of_operators() {
        std::vector<const Record*> records;
        for (const Record& r : trace_.records) records.push_back(&r);
        BRAZE_CHECK(begin(records), "a value of the trace has no producer");
        switch_autocast({false, trace_.autocast.cache, trace_.autocast.dtype});  // it has acted: its casts are there
        for (const Record& r : trace_.records) call(r, nullptr);
        switch_autocast(trace_.autocast);
        return finish();
    }

    // The placeholders are the first n inputs, used or not; the others are attributes of the module.
    void hold(const std::vector<PyObject*>& reals, size_t n) {
        reals_ = &reals;
        placeholders_ = n;
    }

  private:
    struct Known {  // how a value is reached
        py::object node;
        std::vector<int> path;  // items to be taken, one within the other
        std::optional<bool> requires_grad;
    };

    // Makes the placeholders and constants. False: a value is used that nothing makes.
    bool begin(const std::vector<const Record*>& records) {
        std::vector<bool> made(trace_.values.size()), used(trace_.values.size());
        for (size_t v = 0; v < made.size(); ++v) made[v] = trace_.values[v].kind != ValueInfo::Result;
        for (const Record* r : records) {
            for (const Operand& o : r->operands) {
                if (!made[o.value]) return false;
                used[o.value] = true;
            }
            for (int v : r->results)
                if (v >= 0) made[v] = true;
        }
        for (const TraceOutput& o : outputs_)
            if (o.value >= 0) {
                if (!made[o.value]) return false;
                used[o.value] = true;
            }
        std::vector<std::pair<int, std::string>> held;
        for (size_t id = 0; id < trace_.inputs.size(); ++id) {
            int v = trace_.inputs[id];
            bool bound = id >= placeholders_.value_or(trace_.inputs.size());
            if (v < 0 || (!used[v] && (bound || !placeholders_))) continue;
            if (bound) {
                std::string name = "_tensor_held" + std::to_string(id);
                attributes_[name.c_str()] = py::reinterpret_borrow<py::object>(reals_->at(id));
                held.emplace_back(v, std::move(name));
                continue;
            }
            result_.inputs.push_back(static_cast<int>(id));
            known_[v].node = described(graph_.attr("placeholder")("arg" + std::to_string(id)), v);
        }
        for (const auto& [v, name] : held) known_[v].node = described(graph_.attr("get_attr")(name), v);
        for (const Record* r : records)
            if (r->symbolic_args)
                for (const c10::IValue& v : r->args) take_numbers(v);
        for (size_t v = 0; v < made.size(); ++v)
            if (used[v] && trace_.values[v].kind == ValueInfo::Constant) take_constant(static_cast<int>(v));
        return true;
    }

    void take_numbers(const c10::IValue& v) {
        auto take = [&](const c10::IValue& x) {
            if (!x.isSymInt()) return;
            Expr e = trace_.symbols->resolve(expr_of(x.toSymInt()));
            if (e.is_const() || numbers_.contains(e)) return;
            py::object node = graph_.attr("placeholder")("s" + std::to_string(numbers_.size()));
            node.attr("meta")["example_value"] = trace_.symbols->hint(e);
            numbers_.emplace(e, std::move(node));
            result_.numbers.push_back(e);
        };
        if (v.isSymInt()) {
            take(v);
        } else if (has_symbols(v)) {
            for (const c10::IValue& x : v.toListRef()) take(x);
        }
    }

    // A tensor of the program's text. One that is written or handed out is made anew in every run.
    void take_constant(int v) {
        const ValueInfo& info = trace_.values[v];
        std::string name = "_tensor_constant" + std::to_string(info.producer);
        attributes_[name.c_str()] =
            py::reinterpret_steal<py::object>(THPVariable_Wrap(trace_.constants[info.producer]));
        known_[v].node = described(graph_.attr("get_attr")(name), v);
        bool escapes = trace_.written_sets[info.alias_set];
        for (const TraceOutput& o : outputs_)
            escapes |= o.value >= 0 && trace_.values[o.value].alias_set == info.alias_set;
        if (escapes)
            known_[v].node = described(function(operator_("aten::clone", ""), py::make_tuple(known_[v].node)), v);
        known_[v].requires_grad = false;
    }

    py::object operator_(const std::string& qualified, const std::string& overload) const {
        size_t colon = qualified.find("::");
        py::object packet =
            torch_.attr("ops").attr(qualified.substr(0, colon).c_str()).attr(qualified.substr(colon + 2).c_str());
        return packet.attr(overload.empty() ? "default" : overload.c_str());
    }

    py::object function(const py::object& target, const py::tuple& args, const py::dict& kwargs = {}) {
        return graph_.attr("call_function")(target, args, kwargs);
    }

    // With the metadata of the value it stands for.
    py::object described(py::object node, int v) const {
        const ValueInfo& info = trace_.values[v];
        if (info.kind == ValueInfo::Undefined) return node;
        at::Tensor like = at::empty_strided(info.sizes, info.strides, at::TensorOptions(at::kMeta).dtype(info.dtype));
        node.attr("meta")["example_value"] = py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(like)));
        return node;
    }

    py::object value(int v) {
        Known& k = known_[v];
        if (!k.path.empty()) {
            py::object getitem = py::module_::import("operator").attr("getitem");
            for (int i : k.path) k.node = function(getitem, py::make_tuple(k.node, i));
            k.path.clear();
            described(k.node, v);
        }
        return k.node;
    }

    // As an operand: what changes a tensor's standing towards autograd is not always an operator.
    py::object operand(const Operand& o) {
        py::object node = value(o.value);
        std::optional<bool> has = known_[o.value].requires_grad;
        bool may_have = needs_grad_ && has.value_or(true) && trace_.values[o.value].kind == ValueInfo::Result;
        if (o.requires_grad || !may_have || !at::isFloatingType(trace_.values[o.value].dtype)) return node;
        return function(operator_("aten::detach", ""), py::make_tuple(node));
    }

    py::object number(const c10::IValue& v) const {
        if (v.isInt()) return py::int_(v.toInt());
        Expr e = trace_.symbols->resolve(expr_of(v.toSymInt()));
        return e.is_const() ? py::int_(e.value()) : numbers_.at(e);
    }

    static py::object scalar(const at::Scalar& s) {
        if (s.isBoolean()) return py::bool_(s.toBool());
        if (s.isComplex()) return py::cast(s.toComplexDouble());
        return s.isFloatingPoint() ? py::object(py::float_(s.toDouble())) : py::int_(s.toLong());
    }

    py::object constant(Form form, const c10::IValue& v) const {
        if (v.isNone()) return py::none();
        if (v.isTensor() && !v.toTensor().defined()) return py::none();
        if (v.isTensor()) return scalar(v.toTensor().item());
        if (v.isInt()) {
            switch (form) {
                case Form::ScalarType: return py::cast(static_cast<at::ScalarType>(v.toInt()));
                case Form::Layout: return py::cast(static_cast<at::Layout>(v.toInt()));
                case Form::MemoryFormat: return py::cast(static_cast<at::MemoryFormat>(v.toInt()));
                default: return py::int_(v.toInt());
            }
        }
        if (v.isSymInt()) return number(v);
        if (v.isBool()) return py::bool_(v.toBool());
        if (v.isDouble()) return py::float_(v.toDouble());
        if (v.isScalar()) return scalar(v.toScalar());
        if (v.isString()) return py::str(v.toStringRef());
        if (v.isDevice()) return py::cast(v.toDevice());
        if (v.isGenerator()) return py::cast(v.toGenerator());
        BRAZE_CHECK(v.isList(), "a backend cannot be given an argument of type " + v.tagKind());
        py::list list;
        for (const c10::IValue& x : v.toListRef()) list.append(constant(Form::Other, x));
        return list;
    }

    void call(const Record& r, const std::vector<bool>* results_require_grad) {
        switch_grad_mode(r.grad_mode);
        const OperatorInfo& info = *r.info;
        const auto& schema = info.op.schema();
        py::list args;
        py::dict kwargs;
        size_t next = 0, keep = 0;
        int list = 0;
        for (size_t i = 0; i < info.args.size(); ++i) {
            Form form = info.args[i].form;
            auto is_next = [&](int pos) {
                return next < r.operands.size() && r.operands[next].arg == static_cast<int>(i) &&
                       r.operands[next].pos == pos;
            };
            py::object x;
            bool by_default = false;
            if (form == Form::TensorList && r.list_sizes[list++] >= 0) {
                py::list items;
                for (int pos = 0; pos < r.list_sizes[list - 1]; ++pos)
                    items.append(is_next(pos) ? operand(r.operands[next++]) : py::none());
                x = items;
            } else if (form == Form::Tensor && is_next(-1)) {
                x = operand(r.operands[next++]);
            } else {
                x = constant(form, r.args[i]);
                const auto& fallback = schema.arguments()[i].default_value();
                by_default = fallback && !r.args[i].isTensor() && x.equal(constant(form, *fallback));
            }
            if (!schema.arguments()[i].kwarg_only()) {
                args.append(x);
                if (!by_default) keep = args.size();
            } else if (!by_default) {
                kwargs[info.args[i].name.c_str()] = x;
            }
        }
        py::tuple given(keep);
        for (size_t i = 0; i < keep; ++i) given[i] = args[i];
        py::object node = function(operator_(schema.name(), schema.overload_name()), given, kwargs);
        if (r.line >= 0) node.attr("stack_trace") = trace_.lines[r.line];
        take_results(r, node, results_require_grad);
    }

    void take_results(const Record& r, const py::object& node, const std::vector<bool>* require_grad) {
        const OperatorInfo& info = *r.info;
        size_t k = 0;
        auto take = [&](std::vector<int> path) {
            size_t at = k++;
            if (at >= r.results.size() || r.results[at] < 0) return;
            int v = r.results[at];
            known_[v] = {node, std::move(path), {}};
            if (require_grad) known_[v].requires_grad = (*require_grad)[at];
            if (known_[v].path.empty()) described(node, v);
        };
        bool many = info.returns.size() > 1;
        int lists = 0;
        for (const ReturnInfo& x : info.returns) lists += x.tensor && x.list;
        BRAZE_CHECK(lists <= 1, info.callee + " returns several lists");
        size_t single = 0;
        for (const ReturnInfo& x : info.returns) single += x.tensor && !x.list;
        for (size_t i = 0; i < info.returns.size(); ++i) {
            if (!info.returns[i].tensor) continue;
            std::vector<int> path;
            if (many) path.push_back(static_cast<int>(i));
            if (!info.returns[i].list) {
                take(path);
                continue;
            }
            for (int pos = 0, n = static_cast<int>(r.results.size() - single); pos < n; ++pos) {
                auto item = path;
                item.push_back(pos);
                take(item);
            }
        }
    }

    void switch_grad_mode(bool on) {
        if (on == grad_mode_ || !needs_grad_) return;
        function(torch_.attr("_C").attr("_set_grad_enabled"), py::make_tuple(on));
        grad_mode_ = on;
    }

    void switch_autocast(const Autocast& wanted) {
        if (wanted == autocast_) return;
        py::object mode = py::module_::import("torch.amp.autocast_mode");
        if (entered_) function(mode.attr("_exit_autocast"), py::make_tuple(entered_));
        entered_ = py::object();
        if (wanted != trace_.autocast)
            entered_ = function(mode.attr("_enter_autocast"),
                                py::make_tuple("cpu", py::cast(wanted.dtype), wanted.enabled, wanted.cache));
        autocast_ = wanted;
    }

    FxGraph finish() {
        switch_grad_mode(trace_.grad_mode);
        py::list results;
        for (size_t i = 0; i < outputs_.size(); ++i) {
            if (outputs_[i].value < 0) continue;
            results.append(value(outputs_[i].value));
            result_.outputs.push_back(static_cast<int>(i));
        }
        graph_.attr("output")(py::tuple(results));
        result_.module = fx_.attr("GraphModule")(attributes_, graph_);
        return std::move(result_);
    }

    const Trace& trace_;
    const std::vector<TraceOutput>& outputs_;
    bool needs_grad_;
    const std::vector<PyObject*>* reals_ = nullptr;
    std::optional<size_t> placeholders_;  // nothing: those that are used
    py::object fx_, torch_, graph_, entered_;
    py::dict attributes_;
    std::vector<Known> known_;  // by value
    std::unordered_map<Expr, py::object> numbers_;
    bool grad_mode_ = trace_.grad_mode;
    Autocast autocast_ = trace_.autocast;
    FxGraph result_;
};

}  // namespace

FxGraph operators_to_fx(const Trace& trace, const std::vector<TraceOutput>& outputs,
                        const std::vector<PyObject*>& reals, size_t n_inputs) {
    Exporter exporter(trace, outputs, false);
    exporter.hold(reals, n_inputs);
    return exporter.of_operators();
}

FxGraph to_fx(const Trace& trace, const std::vector<TraceOutput>& outputs, bool needs_grad) {
    if (auto calls = Exporter(trace, outputs, needs_grad).of_calls()) return std::move(*calls);
    return Exporter(trace, outputs, needs_grad).of_operators();
}

}  // namespace braze::bridge
