// The part of a capture that deals with sizes and numbers that are symbols.
#include <ATen/ScalarOps.h>
#include <torch/csrc/utils/python_symnode.h>

#include "bridge/call.h"
#include "bridge/guards.h"
#include "bridge/pending.h"
#include "bridge/recorded_function.h"
#include "bridge/symbolic_numbers.h"
#include "bridge/symbolic_rules.h"

namespace braze::bridge {

// The sizes in `dims` become symbols. False: none of them can.
bool Tracer::make_symbolic(FakeImpl& fake, const at::Tensor& meta, int id, uint64_t dims) {
    uint64_t symbolic = 0;
    for (int64_t i = 0; i < meta.dim() && i < 64; ++i)
        if (((dims >> i) & 1) && meta.size(i) >= kLeastSymbolic) symbolic |= uint64_t{1} << i;
    if (symbolic == 0) return false;
    SymbolicMetadata m{{}, {}, Expr(meta.storage_offset())};
    for (int64_t i = 0; i < meta.dim(); ++i)
        m.sizes.push_back((symbolic >> i) & 1 ? trace_.symbols->add(meta.size(i), id, static_cast<int>(i))
                                              : Expr(meta.size(i)));
    // strides follow from the sizes as the tensor guard demands it: an axis's rule refers to one further inside
    auto rules = stride_rules(meta.sizes(), meta.strides(), symbolic);
    std::function<Expr(int)> stride = [&](int i) {
        return rules[i].from < 0 ? Expr(rules[i].constant) : m.sizes[rules[i].from] * stride(rules[i].from);
    };
    for (int64_t i = 0; i < meta.dim(); ++i) m.strides.push_back(stride(static_cast<int>(i)));
    trace_.values[fake.value()].symbolic = m;
    fake.set_symbolic(trace_.symbols, std::move(m));
    return true;
}

// torch makes numbers of the sizes that the upsample_*.vec overloads are given, or compute; the plain ones take
// symbols.
std::optional<c10::OperatorHandle> Tracer::substitute(const c10::OperatorHandle& op, torch::jit::Stack* stack) const {
    const c10::OperatorName& name = op.operator_name();
    if (name.overload_name != "vec" || name.name.find("upsample_") == std::string::npos) return std::nullopt;
    auto plain = c10::Dispatcher::singleton().findSchema({name.name, ""});
    const OperatorInfo& info = OperatorInfo::of(op);
    const std::vector<c10::IValue> args(stack->end() - static_cast<std::ptrdiff_t>(info.args.size()), stack->end());
    const c10::IValue &size = args[info.arg_index("output_size")], &factors = args[info.arg_index("scale_factors")];
    const FakeImpl* input = as_fake(args[0].toTensor());
    if (!plain || !input || size.isNone() == factors.isNone()) return std::nullopt;
    std::vector<c10::SymInt> sizes;
    if (factors.isNone()) {
        if (!has_symbols(size)) {
            if (!input->symbolic() || !size.isIntList()) return std::nullopt;
            for (int64_t n : size.toIntVector()) sizes.emplace_back(n);
        } else {
            for (const c10::IValue& v : size.toListRef())
                sizes.push_back(v.isInt() ? c10::SymInt(v.toInt()) : v.toSymInt());
        }
    } else {
        if (!input->symbolic()) return std::nullopt;
        for (double f : factors.toDoubleVector()) {
            // floor(size * f), where the product is exact
            constexpr int64_t unit = 1024;
            double units = f * unit;
            if (!(units >= 1) || f > 1024 || units != std::floor(units) ||
                sizes.size() + 2 >= input->symbolic()->sizes.size())
                return std::nullopt;
            const Expr from = trace_.symbols->resolve(input->symbolic()->sizes[sizes.size() + 2]);
            const Expr to = shapes::floordiv(from * Expr(static_cast<int64_t>(units)), Expr(unit));
            if (!trace_.symbols->decide({Relation::Lt, Expr(0), to})) return std::nullopt;
            sizes.push_back(sym_int(trace_.symbols, to));
        }
    }
    torch::jit::drop(*stack, info.args.size());
    stack->push_back(args[0]);
    stack->emplace_back(c10::SymIntArrayRef(sizes));
    if (int corners = info.arg_index("align_corners"); corners >= 0) stack->push_back(args[corners]);
    for (size_t i = 0; i < sizes.size(); ++i)
        stack->push_back(factors.isNone() ? c10::IValue() : c10::IValue(factors.toDoubleVector()[i]));
    return *plain;
}

// The ranges that mark_dynamic was given for sizes of the tensor.
void Tracer::assume_ranges(PyObject* real, const FakeImpl& fake) {
    PyObject** dict = _PyObject_GetDictPtr(real);
    PyObject* ranges = dict && *dict ? PyDict_GetItemString(*dict, "_braze_dynamic_ranges") : nullptr;
    if (!ranges || !PyDict_Check(ranges) || !fake.symbolic()) return;
    Py_ssize_t pos = 0;
    PyObject *k, *range;
    while (PyDict_Next(ranges, &pos, &k, &range)) {
        auto dim = static_cast<size_t>(PyLong_AsLong(k));
        if (!PyTuple_Check(range) || PyTuple_GET_SIZE(range) != 2 || dim >= fake.symbolic()->sizes.size()) continue;
        const Expr& size = fake.symbolic()->sizes[dim];
        PyObject *least = PyTuple_GET_ITEM(range, 0), *most = PyTuple_GET_ITEM(range, 1);
        if (PyLong_Check(least))
            trace_.symbols->assume({Relation::Le, Expr(static_cast<int64_t>(PyLong_AsLongLong(least))), size});
        if (PyLong_Check(most))
            trace_.symbols->assume({Relation::Le, size, Expr(static_cast<int64_t>(PyLong_AsLongLong(most)))});
    }
}

uint64_t Tracer::dynamic_dims(int id) const {
    if (id >= static_cast<int>(trace_.inputs.size()) || trace_.inputs[id] < 0) return 0;
    const ValueInfo& v = trace_.values[trace_.inputs[id]];
    uint64_t bits = 0;
    if (v.symbolic)
        for (size_t i = 0; i < v.symbolic->sizes.size() && i < 64; ++i)
            if (!trace_.symbols->resolve(v.symbolic->sizes[i]).is_const()) bits |= uint64_t{1} << i;
    return bits;
}

std::unique_ptr<frontend::ShapeGuard> Tracer::shape_guard() const { return make_shape_guard(*trace_.symbols); }

std::optional<frontend::Capture::SizePlace> Tracer::size_place(PyObject* symbolic_int) const {
    std::optional<Expr> e = expr_of(symbolic_int);
    if (!e) return std::nullopt;
    for (const auto& s : trace_.symbols->symbols())
        if (s.symbol == *e) return SizePlace{s.input, s.axis, s.hint};
    return std::nullopt;
}

PyObject* Tracer::symbolic_input(PyObject* number, int id) {
    if (id >= static_cast<int>(trace_.inputs.size())) trace_.inputs.resize(id + 1, -1);
    if (id >= static_cast<int>(touched_.size())) touched_.resize(id + 1, false);
    if (id >= static_cast<int>(reals_.size())) reals_.resize(id + 1, nullptr);
    reals_[id] = number;
    if (id >= static_cast<int>(trace_.numbers.size())) trace_.numbers.resize(id + 1, NumberInput::None);
    try {
        if (PyLong_CheckExact(number)) {
            int overflow = 0;
            int64_t v = PyLong_AsLongLongAndOverflow(number, &overflow);
            if (overflow || v < kLeastSymbolic || v > kMostSymbolic) return nullptr;
            trace_.numbers[id] = NumberInput::Int;
            touched_[id] = true;
            return wrap_symbolic(sym_int(trace_.symbols, trace_.symbols->add_number(v, id)));
        }
        if (!PyFloat_CheckExact(number)) return nullptr;
        c10::Storage storage(c10::make_intrusive<FakeStorage>(trace_.alias_sets++, sizeof(double)));
        trace_.written_sets.push_back(false);
        at::Tensor meta = plain_meta(storage, c10::scalarTypeToTypeMeta(at::kDouble), {}, {}, 0);
        int set = as_fake_storage(storage.unsafeGetStorageImpl())->alias_set;
        int value = add_value(ValueInfo::Input, id, 0, meta, set);
        trace_.inputs[id] = value;
        trace_.numbers[id] = NumberInput::Float;
        touched_[id] = true;
        at::Tensor fake(c10::make_intrusive<FakeImpl>(meta, c10::Device(c10::DeviceType::CPU), value, epoch_));
        FloatValue f{fake, PyFloat_AS_DOUBLE(number), {id}};
        f.node = trace_.symbols->floats().number(id, f.hint);
        return wrap_symbolic(sym_float(trace_.symbols, std::move(f)));
    } catch (python_error& e) { e.restore(); } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
    return nullptr;
}

// Meta kernels get the hints; the record keeps the SymInts.
void Tracer::hint_argument(Pending& p, c10::IValue& v) {
    if (v.isSymInt()) {
        v = trace_.symbols->hint(expr_of(v.toSymInt()));
        p.symbolic = p.record.symbolic_args = true;
    } else if (has_symbols(v)) {
        std::vector<int64_t> hints;
        for (const c10::IValue& x : v.toListRef())
            hints.push_back(x.isInt() ? x.toInt() : trace_.symbols->hint(expr_of(x.toSymInt())));
        v = hints;
        p.symbolic = p.record.symbolic_args = true;
    } else if (v.isList() && !v.isIntList() &&
               v.type()->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::SymIntType) {
        // all of them have become constants by now
        std::vector<int64_t> constants;
        for (const c10::IValue& x : v.toListRef()) constants.push_back(x.toInt());
        p.record.args.back() = v = constants;
    }
}

// When the trace is over, what has become constant is a number.
void Tracer::freeze_arguments(Trace& trace) {
    for (Record& r : trace.records) freeze(trace, r);
    for (TorchLevelOp& t : trace.torch_level) freeze(trace, t.record);
    for (const auto& f : trace.functions) f->for_each_record([&](Record& r) { freeze(trace, r); });
}

void Tracer::freeze(const Trace& trace, Record& r) {
    auto now = [&](const c10::IValue& x) {
        return x.isInt() ? Expr(x.toInt()) : trace.symbols->resolve(expr_of(x.toSymInt()));
    };
    if (!r.symbolic_args) return;
    r.symbolic_args = false;
    for (size_t i = 0; i < r.args.size(); ++i) {
        c10::IValue& v = r.args[i];
        if (v.isSymInt()) {
            Expr e = now(v);
            if (e.is_const())
                v = size_argument(r.info->args[i].form, e.value());
            else
                r.symbolic_args = true;
        } else if (has_symbols(v)) {
            auto list = v.toListRef();
            std::vector<int64_t> constants;
            for (const c10::IValue& x : list)
                if (Expr e = now(x); e.is_const()) constants.push_back(e.value());
            if (constants.size() == list.size())
                v = constants;
            else
                r.symbolic_args = true;
        }
    }
}

// The sizes of new results as expressions, or everything that the operator was given becomes constant.
void Tracer::find_symbolic_results(Pending& p, const torch::jit::Stack& stack) {
    const OperatorInfo& info = *p.record.info;
    SymbolicCall call{info, *trace_.symbols, p.record.args, {}, {}};
    for (size_t k = 0; k < p.operands.size(); ++k) {
        const FakeImpl* fake = as_fake(p.operands[k]);
        const at::Tensor& hint = fake->twin();
        SymbolicMetadata m;
        if (const SymbolicMetadata* known = fake->symbolic()) {
            m = {trace_.symbols->resolve(known->sizes), trace_.symbols->resolve(known->strides),
                 trace_.symbols->resolve(known->offset)};
        } else {
            m.sizes.assign(hint.sizes().begin(), hint.sizes().end());
            m.strides.assign(hint.strides().begin(), hint.strides().end());
            m.offset = hint.storage_offset();
        }
        call.operands.push_back({p.record.operands[k].arg, p.record.operands[k].pos, &hint, std::move(m)});
    }
    size_t first = stack.size() - p.info.returns.size();
    for (size_t k = 0; k < p.info.returns.size(); ++k) {
        const c10::IValue& v = stack[first + k];
        if (p.info.returns[k].writes && !p.info.functional) continue;
        if (v.isTensor())
            call.results.push_back(v.toTensor());
        else if (v.isTensorList())
            for (const at::Tensor& t : v.toTensorVector()) call.results.push_back(t);
    }
    if (auto results = symbolic_results(call)) {
        p.symbolic_results = std::move(*results);
        return;
    }
    for (const auto& o : call.operands) {
        for (const Expr& e : o.metadata.sizes) trace_.symbols->fix(e);
        for (const Expr& e : o.metadata.strides) trace_.symbols->fix(e);
        trace_.symbols->fix(o.metadata.offset);
    }
    for (const c10::IValue& v : p.record.args) {
        if (v.isSymInt())
            trace_.symbols->fix(expr_of(v.toSymInt()));
        else if (has_symbols(v))
            for (const c10::IValue& x : v.toListRef())
                if (x.isSymInt()) trace_.symbols->fix(expr_of(x.toSymInt()));
    }
}

void Tracer::keep_symbolic(FakeImpl& fake, int value, const SymbolicMetadata* symbolic) {
    if (!symbolic || symbolic->constant()) return;
    trace_.values[value].symbolic = *symbolic;
    fake.set_symbolic(trace_.symbols, *symbolic);
}

namespace {
// Whether a scalar tensor of float64 in a number's place gives the number's types: not where a size-less tensor takes
// part, which would be promoted, nor where no tensor is of a floating type.
bool float_can_be_tensor(const OperatorInfo& info, const c10::IValue* args) {
    bool floating = false;
    for (size_t i = 0; i < info.args.size(); ++i) {
        if (info.args[i].form == Form::TensorList) return false;
        if (info.args[i].form != Form::Tensor || !args[i].isTensor()) continue;
        const at::Tensor& t = args[i].toTensor();
        if (!t.defined() || is_wrapped_number(t)) continue;
        if (t.dim() == 0 && t.scalar_type() != at::kDouble) return false;
        floating |= at::isFloatingType(t.scalar_type());
    }
    return floating;
}
}  // namespace

// torch's parsers put a placeholder where a symbolic number meets a tensor parameter, with the number attached. A
// float's scalar tensor becomes the operand; an integer stays a number in the record. False: it is no such placeholder;
// `t` is the number then.
bool Tracer::take_symbolic_number(Pending& p, int arg, const c10::IValue* args, at::Tensor& t) {
    if (!t.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj()) return false;
    auto object = pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(t));
    if (!PyObject_HasAttrString(object.ptr(), "_wrapped_number")) return false;
    pybind11::object n = object.attr("_wrapped_number");
    if (torch::is_symint(n)) {
        auto symbol = n.cast<c10::SymInt>();
        t = at::native::wrapped_scalar_tensor(trace_.symbols->hint(expr_of(symbol)));
        if (trace_.symbols->resolve(expr_of(symbol)).is_const()) return false;
        p.record.args.emplace_back(symbol);
        p.symbolic = p.record.symbolic_args = true;
        return true;
    }
    if (!torch::is_symfloat(n)) return false;
    c10::SymFloat symbol = float_of(n.ptr());
    const FloatValue* value = float_value(symbol);
    at::Tensor operand = value ? number_operand(p.info, args, *value) : at::Tensor();
    bool converted = operand.defined() && operand.scalar_type() != at::kDouble;
    if (!value || !(converted || float_can_be_tensor(p.info, args))) {
        t = at::native::wrapped_scalar_tensor(symbol.guard_float(__FILE__, __LINE__));
        return false;
    }
    p.record.args.emplace_back();
    t = operand;
    take_operand(p, arg, -1, t);
    t = plain_meta(t.storage(), t.dtype(), t.sizes(), t.strides(), 0);
    t.unsafeGetTensorImpl()->set_wrapped_number(true);
    return true;
}

}  // namespace braze::bridge
