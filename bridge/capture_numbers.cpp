// The part of a capture that deals with floats of the program which the graph computes, and operators on lists.
#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_to_copy.h>
#include <ATen/ops/reshape.h>

#include <torch/csrc/utils/python_symnode.h>

#include "bridge/gil.h"
#include "bridge/pending.h"

namespace braze::bridge {

namespace {

// Operators that the trace itself adds: seen by the mode, and by nothing above it.
class OwnOperators {
    WithMode mode_;
    at::AutoDispatchBelowADInplaceOrView below_;
    c10::impl::ExcludeDispatchKeyGuard above_{c10::DispatchKey::TESTING_ONLY_GenericMode};
};

bool is_float_scalar(const at::Tensor& twin) {
    return twin.dim() == 0 && (twin.scalar_type() == at::kFloat || twin.scalar_type() == at::kDouble);
}

// The dtype that all tensors of a call have.
std::optional<at::ScalarType> one_dtype(const OperatorInfo& info, const c10::IValue* args) {
    std::optional<at::ScalarType> dtype;
    bool one = true;
    auto see = [&](const at::Tensor& t) {
        if (!t.defined() || is_wrapped_number(t)) return;
        one &= !dtype || *dtype == t.scalar_type();
        dtype = t.scalar_type();
    };
    for (size_t i = 0; i < info.args.size(); ++i) {
        if (info.args[i].form == Form::Tensor && args[i].isTensor()) see(args[i].toTensor());
        if (info.args[i].form == Form::TensorList && args[i].isTensorList())
            for (const at::Tensor& t : args[i].toTensorVector()) see(t);
    }
    return one ? dtype : std::nullopt;
}

bool is_symbolic_float(const c10::IValue& v) {
    if (v.isSymFloat()) return true;
    if (!v.isList()) return false;
    auto list = v.toListRef();
    return std::any_of(list.begin(), list.end(), [](const c10::IValue& x) { return x.isSymFloat(); });
}

}  // namespace

// Tensor.item() of a float: a number of the graph.
bool Tracer::read_item(const Pending& p, torch::jit::Stack* stack) {
    if (p.info.callee != "aten::_local_scalar_dense" || p.operands.size() != 1 || !numbers_in_graph()) return false;
    const at::Tensor& t = p.operands[0];
    FakeImpl* fake = as_fake(t);
    if (!t.device().is_cpu() || !at::isFloatingType(t.scalar_type()) || fake->symbolic() || fake->twin().numel() != 1)
        return false;
    FloatValue value;
    value.data = true;
    value.node = contents_of(*fake);
    if (value.node >= 0) value.hint = trace_.symbols->floats().value(value.node);
    {
        OwnOperators own;
        value.fake = at::_to_copy(t, at::TensorOptions().dtype(at::kDouble));
        if (t.dim() > 0) value.fake = at::reshape(value.fake, c10::IntArrayRef{});
    }
    torch::jit::drop(*stack, 1);
    // torch makes a Python object only of a node that is one.
    c10::SymFloat number = sym_float(trace_.symbols, std::move(value));
    pybind11::object node = pybind11::cast(number.toSymNodeImpl());
    stack->emplace_back(
        at::Scalar(c10::SymFloat(c10::SymNode(c10::make_intrusive<torch::impl::PythonSymNodeImpl>(std::move(node))))));
    return true;
}

// A float as an operand: in the type of the tensors that it meets, which eager converts it to.
at::Tensor Tracer::number_operand(const OperatorInfo& info, const c10::IValue* args, const FloatValue& value) {
    if (FakeImpl* fake = as_fake(value.fake)) contents_[fake->alias_set()] = value.node;
    if (one_dtype(info, args) != at::kFloat) return value.fake;
    OwnOperators own;
    return at::_to_copy(value.fake, at::TensorOptions().dtype(at::kFloat));
}

// A number among the arguments (alpha=, value=) that the graph computes becomes an operand.
bool Tracer::take_symbolic_scalar(Pending& p, int arg, const c10::IValue* args, c10::IValue& v) {
    if (p.info.args[static_cast<size_t>(arg)].form != Form::Number || !numbers_in_graph()) return false;
    if (p.info.callee.starts_with("aten::arange") || p.info.callee.starts_with("aten::range"))
        return false;  // the size of the result depends on it
    c10::SymFloat symbol = v.toSymFloat();
    const FloatValue* value = float_value(symbol);
    if (!value) return false;
    at::Tensor t = number_operand(p.info, args, *value);
    p.record.args.emplace_back();
    take_operand(p, arg, -1, t);
    v = value->data && value->node < 0 ? 0.5 : value->hint;  // for the shape function
    return true;
}

// What guards can know of the contents of a scalar.
int Tracer::contents_of(const FakeImpl& fake) {
    if (!is_float_scalar(fake.twin()) || !fake.device_custom().is_cpu()) return FloatNodes::kUnknown;
    if (auto it = contents_.find(fake.alias_set()); it != contents_.end()) return it->second;
    const ValueInfo& v = trace_.values[fake.value()];
    if (trace_.written_sets[v.alias_set] || fake.twin().storage().nbytes() != fake.twin().itemsize())
        return FloatNodes::kUnknown;
    int node = FloatNodes::kUnknown;
    const bool given = v.kind == ValueInfo::Input && static_cast<size_t>(v.producer) < reals_.size();
    if (given && trace_.number(v.producer) == NumberInput::None)
        node = trace_.symbols->floats().item(v.producer, THPVariable_Unpack(reals_[v.producer]));
    else if (v.kind == ValueInfo::Constant)
        node = trace_.symbols->floats().constant(trace_.constants[v.producer].item().toDouble());
    return contents_[fake.alias_set()] = node;
}

// Of the call's first result, where that is a scalar.
int Tracer::contents_after(const Pending& p, at::ScalarType dtype) {
    FloatNodes& floats = trace_.symbols->floats();
    const Record& r = p.record;
    auto argument = [&](const char* name) -> int {
        int i = p.info.arg_index(name);
        if (i < 0) return FloatNodes::kUnknown;
        for (size_t k = 0; k < r.operands.size(); ++k)
            if (r.operands[k].arg == i) return r.operands[k].pos < 0 ? contents_of(*as_fake(p.operands[k])) : -1;
        const c10::IValue& v = r.args[static_cast<size_t>(i)];
        if (v.isDouble() || v.isInt()) return floats.constant(v.toScalar().toDouble());
        if (v.isTensor() && v.toTensor().defined() && v.toTensor().is_floating_point())
            return floats.constant(v.toTensor().item().toDouble());
        if (v.isTensor() && v.toTensor().defined() && at::isIntegralType(v.toTensor().scalar_type(), false))
            return floats.constant(v.toTensor().item().toDouble());
        return FloatNodes::kUnknown;
    };
    auto in_dtype = [&](int node) { return dtype == at::kFloat ? floats.add(FloatNode::Single, node) : node; };
    std::string_view name = p.info.callee;
    if (!name.starts_with("aten::")) return FloatNodes::kUnknown;
    name.remove_prefix(6);
    name = name.substr(0, name.find('.'));
    if (name == "zeros" || name == "zero_") return floats.constant(0);
    if (name == "ones") return floats.constant(1);
    if (name == "full" || name == "fill_") return in_dtype(argument(name == "full" ? "fill_value" : "value"));
    if (name == "scalar_tensor") return in_dtype(argument("s"));
    if (name == "clone" || name == "_to_copy" || name == "lift_fresh_copy") return in_dtype(argument("self"));
    if (name == "copy_") return in_dtype(argument("src"));
    static constexpr std::pair<std::string_view, FloatNode::Kind> kArithmetic[] = {{"add", FloatNode::Add},
                                                                                   {"sub", FloatNode::Subtract},
                                                                                   {"mul", FloatNode::Multiply},
                                                                                   {"div", FloatNode::Divide}};
    if (name.ends_with('_')) name.remove_suffix(1);
    for (auto [known, kind] : kArithmetic) {
        if (name != known || p.info.arg_index("rounding_mode") >= 0) continue;
        int alpha = p.info.arg_index("alpha");
        if (alpha >= 0) {
            const c10::IValue& v = r.args[static_cast<size_t>(alpha)];
            if (!(v.isInt() && v.toInt() == 1) && !(v.isDouble() && v.toDouble() == 1)) return FloatNodes::kUnknown;
        }
        for (const at::Tensor& t : p.operands)
            if (t.scalar_type() != dtype) return FloatNodes::kUnknown;
        return in_dtype(floats.add(kind, in_dtype(argument("self")), in_dtype(argument("other"))));
    }
    return FloatNodes::kUnknown;
}

// After a call: what is in the scalars that it made or wrote.
void Tracer::note_contents(const Pending& p) {
    if (in_backward_ || function_run_) return;  // what is recorded apart asks for no numbers
    const Record& r = p.record;
    for (int k : r.writes) {
        const FakeImpl& fake = *as_fake(p.operands[static_cast<size_t>(k)]);
        if (!contents_.contains(fake.alias_set()) && !is_float_scalar(fake.twin())) continue;
        bool whole = k == 0 && is_float_scalar(fake.twin()) && fake.twin().storage().nbytes() == fake.twin().itemsize();
        contents_[fake.alias_set()] = whole ? contents_after(p, fake.twin().scalar_type()) : FloatNodes::kUnknown;
    }
    if (!r.writes.empty() || r.results.size() != 1 || r.aliases[0] >= 0) return;
    const ValueInfo& v = trace_.values[r.results[0]];
    if (!v.sizes.empty() || (v.dtype != at::kFloat && v.dtype != at::kDouble) || !p.device.is_cpu()) return;
    if (int node = contents_after(p, v.dtype); node >= 0) contents_[v.alias_set] = node;
}

// An operator on lists of tensors is what its kernel for the CPU does: the operator on each.
void Tracer::record_foreach(const OperatorInfo& info, torch::jit::Stack* stack) {
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard above(c10::DispatchKey::TESTING_ONLY_GenericMode);
    size_t first = stack->size() - info.args.size();
    auto begin = stack->begin() + static_cast<std::ptrdiff_t>(first);
    if (std::none_of(begin, stack->end(), is_symbolic_float))
        return info.op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
    // Those kernels would ask for the numbers.
    std::string name = info.callee.substr(std::string("aten::_foreach_").size());
    const bool scaled = name.ends_with(".List");  // the number is alpha
    name.resize(name.find('.'));
    bool in_place = name.ends_with('_');
    if (in_place) name.pop_back();
    const OperatorInfo* each = nullptr;
#define FOREACH(list, single, written) \
    if (name == list) each = &OperatorInfo::named(in_place ? written : single);
#include "bridge/foreach.def"
#undef FOREACH
    if (scaled)
        each = name == "add" || name == "sub"
                   ? &OperatorInfo::named("aten::" + name + (in_place ? "_.Tensor" : ".Tensor"))
                   : nullptr;
    if (!each) {  // (the norm of a list of tensors, by an order that is an argument of the program)
        Gil gil;
        for (auto v = begin; v != stack->end(); ++v) {
            if (v->isSymFloat())
                *v = v->toSymFloat().guard_float(__FILE__, __LINE__);
            else if (is_symbolic_float(*v))
                stop("data-dependent", info.callee + " with a number of the graph");
        }
        return info.op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
    }
    std::vector<c10::IValue> args(begin, stack->end());
    torch::jit::drop(*stack, info.args.size());
    size_t n = args[0].toTensorVector().size();
    c10::List<at::Tensor> results;
    for (size_t k = 0; k < n; ++k) {
        torch::jit::Stack call;
        for (size_t i = 0; i < args.size(); ++i) {
            if (args[i].isTensorList())
                call.emplace_back(args[i].toTensorVector().at(k));
            else if (args[i].isList())
                call.push_back(args[i].toListRef()[k]);
            else
                call.push_back(args[i]);
        }
        for (size_t i = call.size(); i < each->args.size(); ++i)
            call.push_back(each->op.schema().arguments()[i].default_value().value());
        each->op.callBoxed(&call);
        if (!in_place) results.push_back(call.back().toTensor());
    }
    if (!in_place) stack->emplace_back(std::move(results));
}

}  // namespace braze::bridge
