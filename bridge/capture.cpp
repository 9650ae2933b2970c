#include "bridge/capture.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/ScalarOps.h>
#include <torch/csrc/utils/python_symnode.h>

#include <atomic>

#include "bridge/compiled_calls.h"
#include "bridge/compiled_trace.h"
#include "bridge/frontend_off.h"
#include "bridge/gil.h"
#include "bridge/guards.h"
#include "bridge/pending.h"
#include "bridge/symbolic_numbers.h"
#include "core/support/error.h"

namespace braze::bridge {

namespace {

thread_local Tracer* t_active = nullptr;

uint64_t next_epoch() {
    static std::atomic<uint64_t> epoch{0};
    return ++epoch;
}

void data_of_input_replaced() {
    Tracer* tracer = Tracer::active();
    if (!tracer) return;
    Gil gil;
    tracer->stop("tensor-attribute", "the data of a graph input was replaced");
}

}  // namespace

Tracer* Tracer::active() { return t_active; }

Tracer::Tracer(frontend::CaptureOptions options) : options_(std::move(options)), epoch_(next_epoch()) {
    BRAZE_CHECK(!t_active, "a capture is already active on this thread");
    set_data_replaced_handler(&data_of_input_replaced);
    trace_.grad_mode = at::GradMode::is_enabled();
    trace_.autocast = Autocast::now();
    t_active = this;
    enter();
}

Tracer::~Tracer() {
    if (!finished_ && paused_ == 0) leave();
    if (t_active == this) t_active = nullptr;
    // An autocast that surrounds the call keeps the casts of weights, of the fakes too.
    at::autocast::clear_cache();
    for (InputFake& in : input_fakes_)  // a gradient with a graph refers to its tensor
        if (auto* impl = in.fake.unsafeGetTensorImpl(); impl->grad().defined()) impl->mutable_grad().reset();
    drop_hooks();
    // A tensor whose new contents were computed from what an operator had saved of it belongs to its own graph.
    for (const auto& weak : written_fakes_)
        if (auto impl = weak.lock()) impl->set_autograd_meta(nullptr);
}

void Tracer::release_thread() {
    if (t_active == this) t_active = nullptr;
}

// Hooks of saved tensors that surround the call are for the tensors of the run, not for what stands for them.
void Tracer::enter() {
    hooks_traced_before_ = at::SavedTensorDefaultHooks::set_tracing(true);
    modes_before_ = push_capture_mode();
}
void Tracer::leave() {
    pop_capture_mode(std::move(modes_before_));
    at::SavedTensorDefaultHooks::set_tracing(hooks_traced_before_);
}
void Tracer::pause() {
    if (!finished_ && paused_++ == 0) leave();
}
void Tracer::resume() {
    if (!finished_ && --paused_ == 0) enter();
}

void Tracer::stop(const char* id, const std::string& detail) {
    TORCH_CHECK(!in_backward_, id, ": ", detail);  // the program is over: nothing to break
    stopped_ = true;
    if (options_.on_break) options_.on_break(id, detail);
    if (!PyErr_Occurred()) PyErr_Format(PyExc_RuntimeError, "%s: %s", id, detail.c_str());
    python_error error;
    error.persist();
    throw error;
}

int Tracer::add_value(ValueInfo::Kind kind, int producer, int index, const at::Tensor& meta, int alias_set) {
    ValueInfo v{kind, producer, index, meta.scalar_type(), {}, {}, meta.storage_offset(), alias_set};
    v.lazy = meta.is_conj() || meta.is_neg();
    if (v.lazy) lazy_sets_.push_back(alias_set);
    v.sizes.assign(meta.sizes().begin(), meta.sizes().end());
    v.strides.assign(meta.strides().begin(), meta.strides().end());
    trace_.values.push_back(std::move(v));
    return static_cast<int>(trace_.values.size()) - 1;
}

PyObject* Tracer::fake_input(PyObject* object, int id, uint64_t dynamic_dims) {
    try {
        std::string reason = unsupported_reason(object);
        if (!reason.empty()) {
            if (options_.on_break) options_.on_break("unsupported-tensor", reason);
            return nullptr;
        }
        const at::Tensor& real = THPVariable_Unpack(object);
        c10::InferenceMode inference(real.is_inference());
        c10::Storage& storage = input_storages_[real.storage().unsafeGetStorageImpl()];
        if (!storage.unsafeGetStorageImpl()) {
            storage = c10::Storage(c10::make_intrusive<FakeStorage>(trace_.alias_sets++, real.storage().nbytes()));
            trace_.written_sets.push_back(false);
            kept_storages_.push_back(real.storage());
        }
        at::Tensor meta = plain_meta(storage, real.dtype(), real.sizes(), real.strides(), real.storage_offset());
        if (real.is_conj()) meta.unsafeGetTensorImpl()->_set_conj(true);
        if (real.is_neg()) meta.unsafeGetTensorImpl()->_set_neg(true);
        int set = as_fake_storage(storage.unsafeGetStorageImpl())->alias_set;
        int value = add_value(ValueInfo::Input, id, 0, meta, set);
        auto impl = c10::make_intrusive<FakeImpl>(meta, real.device(), value, epoch_);
        impl->mark_input();
        trace_.only_cpu &= real.is_cpu();
        bool symbolic = options_.dynamic && make_symbolic(*impl, meta, id, dynamic_dims);
        if (symbolic) assume_ranges(object, *impl);
        at::Tensor fake(std::move(impl));
        if (real.requires_grad()) fake.unsafeGetTensorImpl()->set_requires_grad(true);
        input_fakes_.push_back({id, real.requires_grad(), fake});
        if (has_lost_graph(real)) lost_inputs_.insert(value);
        if (id >= static_cast<int>(trace_.inputs.size())) trace_.inputs.resize(id + 1, -1);
        trace_.inputs[id] = value;
        if (id >= static_cast<int>(reals_.size())) reals_.resize(id + 1, nullptr);
        reals_[id] = object;
        if (id >= static_cast<int>(touched_.size())) touched_.resize(id + 1, false);
        touched_[id] = touched_[id] || symbolic;  // its sizes are read in every run
        return wrap_like(fake, object);
    } catch (python_error& e) { e.restore(); } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
    return nullptr;
}

FakeImpl* Tracer::own_fake(const at::Tensor& t) {
    FakeImpl* fake = as_fake(t);
    if (fake && fake->epoch() != epoch_) stop("internal", "a tensor of an earlier trace was used");
    return fake;
}

bool Tracer::is_fake(PyObject* o) const {
    if (!PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(THPVariableClass))) return false;
    const at::Tensor& t = THPVariable_Unpack(o);
    FakeImpl* fake = as_fake(t);
    if (fake) return fake->epoch() == epoch_;
    // What a function transform wraps around a fake belongs to the trace as well; it has no value of its own.
    constexpr c10::DispatchKeySet wrapped({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
    return t.defined() && t.key_set().has_any(wrapped);
}

frontend::ValueRef Tracer::value_of(PyObject* o) const {
    if (!is_fake(o) || !as_fake(THPVariable_Unpack(o))) return {};
    int value = as_fake(THPVariable_Unpack(o))->value();
    const ValueInfo& info = trace_.values[value];
    if (info.kind == ValueInfo::Input) return {frontend::ValueRef::Input, info.producer};
    return {frontend::ValueRef::Node, value};
}

void Tracer::touch(PyObject* o) {
    auto ref = value_of(o);
    if (ref.kind == frontend::ValueRef::Input) touched_[ref.index] = true;
}
bool Tracer::touched(int id) const { return id < static_cast<int>(touched_.size()) && touched_[id]; }

bool Tracer::mutated_input(int id) const {
    if (id >= static_cast<int>(trace_.inputs.size()) || trace_.inputs[id] < 0) return false;
    return trace_.written_sets[trace_.values[trace_.inputs[id]].alias_set];
}

int Tracer::current_line(bool keeps) {
    if (!options_.current_line || in_backward_) return -1;
    std::string line = options_.current_line();
    const autograd::Region region{region_, keeps};
    if (last_line_index_ < 0 || line != last_line_ || region != trace_.regions.back()) {
        last_line_ = line;
        trace_.lines.push_back(std::move(line));
        trace_.regions.push_back(region);
        last_line_index_ = static_cast<int>(trace_.lines.size()) - 1;
    }
    return last_line_index_;
}

// The fake that stands for a real tensor which the program reached without the front end seeing it.
at::Tensor Tracer::resolve_real(const at::Tensor& real) {
    c10::TensorImpl* impl = real.unsafeGetTensorImpl();
    bool has_object = impl->pyobj_slot()->load_pyobj() != nullptr;
    if (!has_object && real.dim() == 0 && real.has_storage() && real.storage().use_count() == 1 &&
        real.device().is_cpu())
        return lift_constant(real);  // a scalar that C++ code made just now
    if (!has_object || in_backward_) stop("dynamic-value", "a tensor that no Python object holds was used");
    PyObject* object = THPVariable_Wrap(real);
    PyObject* fake = nullptr;
    if (options_.on_real_tensor) {
        FrontendOff off;
        ++paused_;  // the modes are off here
        fake = options_.on_real_tensor(object);
        --paused_;
    }
    Py_DECREF(object);
    if (!fake) {
        if (!PyErr_Occurred()) stop("dynamic-value", "a tensor of unknown origin was used");
        python_error error;
        error.persist();
        throw error;
    }
    return THPVariable_Unpack(fake);
}

// A tensor whose contents are part of the program: torch.tensor([1, 2]).
at::Tensor Tracer::lift_constant(const at::Tensor& real) {
    at::Tensor copy;
    {
        c10::InferenceMode normal(false);
        at::AutoDispatchBelowADInplaceOrView below;
        copy = real.clone();
    }
    auto storage = c10::make_intrusive<FakeStorage>(trace_.alias_sets++, copy.storage().nbytes());
    trace_.written_sets.push_back(false);
    at::Tensor meta =
        plain_meta(c10::Storage(storage), copy.dtype(), copy.sizes(), copy.strides(), copy.storage_offset());
    trace_.constants.push_back(copy);
    int value =
        add_value(ValueInfo::Constant, static_cast<int>(trace_.constants.size()) - 1, 0, meta, storage->alias_set);
    return at::Tensor(c10::make_intrusive<FakeImpl>(meta, copy.device(), value, epoch_));
}

void Tracer::take_operand(Pending& p, int arg, int pos, at::Tensor& t) {
    FakeImpl* fake = own_fake(t);
    if (!fake) {
        t = resolve_real(t);
        fake = own_fake(t);
        if (!fake) stop("dynamic-value", "no stand-in for a tensor");
    }
    const ValueInfo& value = trace_.values[fake->value()];
    if (value.kind == ValueInfo::Input) touched_[value.producer] = true;
    if (at::GradMode::is_enabled() && lost_inputs_.contains(fake->value()))  // eager raises
        stop("autograd", "a view of what was written since, which has lost its graph");
    if (function_run_) {
        at::Tensor& known = function_run_->operands[fake->value()];
        if (!known.defined() || t.requires_grad()) known = t;
    } else if (value.kind == ValueInfo::Undefined) {
        stop("autograd", "a tensor that the backward of an autograd.Function made is used outside");
    }
    p.record.operands.push_back({arg, pos, fake->value(), t.requires_grad() || carries_gradient(p, *fake)});
    p.operands.push_back(t);
    p.symbolic |= fake->symbolic() != nullptr;
    bool own_twin = p.info.args[arg].writes && (p.info.resizes_out || p.info.functional);
    const at::Tensor& twin = fake->twin();
    if (own_twin) {
        at::Tensor copy = plain_meta(twin.storage(), twin.dtype(), twin.sizes(), twin.strides(), twin.storage_offset());
        t = copy;
    } else {
        t = twin;
    }
}

// Whether a tensor that needs no gradient here needs one where the operators are run again under autograd: what stands
// for a lazy conjugate or negative view is made below autograd, which only sees the view.
bool Tracer::carries_gradient(const Pending& p, const FakeImpl& fake) {
    if (unseen_.empty()) return false;
    auto it = unseen_.find(fake.value());
    if (it == unseen_.end() || fake.requires_grad() || !at::GradMode::is_enabled()) return false;
    // (results of the operator that took it: autograd has set theirs, unless that operator is several)
    if (it->second == Unseen::Result && c10::isFloatingType(fake.twin().scalar_type()))
        stop("autograd", p.info.callee + " below a lazy conjugate or negative view that needs a gradient");
    return it->second == Unseen::Copy;
}

void Tracer::note_unseen(const Pending& p) {
    const Record& r = p.record;
    if (!at::GradMode::is_enabled() || r.operands.empty() || in_backward_) return;
    auto is_copy = [&](const Operand& o) {
        auto it = unseen_.find(o.value);
        return it != unseen_.end() && it->second == Unseen::Copy;
    };
    const Operand& first = r.operands[0];
    const bool copies =
        p.info.callee == "aten::clone" && first.requires_grad && trace_.values[static_cast<size_t>(first.value)].lazy;
    if (copies && function_run_) stop("autograd", "a lazy conjugate or negative view that needs a gradient");
    if (!copies && (unseen_.empty() || std::none_of(r.operands.begin(), r.operands.end(), is_copy))) return;
    for (int v : r.results) unseen_.try_emplace(v, copies ? Unseen::Copy : Unseen::Result);
}

// Replaces fakes by their twins and keeps what the record needs.
void Tracer::take_arguments(Pending& p, c10::IValue* args) {
    const OperatorInfo& info = p.info;
    Record& r = p.record;
    r.args.reserve(info.args.size());
    for (size_t i = 0; i < info.args.size(); ++i) {
        c10::IValue& v = args[i];
        Form form = info.args[i].form;
        if (form == Form::Tensor && v.isTensor()) {
            at::Tensor t = v.toTensor();
            if (t.defined() && !as_fake(t) && is_wrapped_number(t) &&
                take_symbolic_number(p, static_cast<int>(i), args, t)) {
                v = std::move(t);
                continue;
            }
            if (!t.defined() || (!as_fake(t) && is_wrapped_number(t))) {
                r.args.emplace_back(t);
                v = std::move(t);
                continue;
            }
            r.args.emplace_back();
            take_operand(p, static_cast<int>(i), -1, t);
            v = std::move(t);
        } else if (form == Form::TensorList && v.isList()) {
            int size = 0;
            auto take = [&](at::Tensor& t) {
                if (!t.defined()) return;
                if (!as_fake(t) && is_wrapped_number(t)) t = lift_constant(t);
                take_operand(p, static_cast<int>(i), size, t);
            };
            if (info.args[i].optional_elements) {
                c10::List<std::optional<at::Tensor>> list;
                for (auto& element : v.toOptionalTensorVector()) {
                    if (element) take(*element);
                    list.push_back(element);
                    ++size;
                }
                v = std::move(list);
            } else {
                c10::List<at::Tensor> list;
                for (auto& element : v.toTensorVector()) {
                    take(element);
                    list.push_back(element);
                    ++size;
                }
                v = std::move(list);
            }
            r.args.emplace_back();
            r.list_sizes.push_back(size);
        } else {
            if (v.isSymFloat() && take_symbolic_scalar(p, static_cast<int>(i), args, v)) continue;
            if (v.isSymFloat()) v = v.toSymFloat().guard_float(__FILE__, __LINE__);
            if (v.isSymBool()) v = v.toSymBool().guard_bool(__FILE__, __LINE__);
            r.args.push_back(v);
            if (form == Form::TensorList)
                r.list_sizes.push_back(-1);
            else
                hint_argument(p, v);
        }
    }
    for (const at::Tensor& t : p.operands)
        if (!t.device().is_cpu()) p.device = t.device();
    for (const at::Tensor& t : p.operands)
        if (t.device() != p.device && t.dim() > 0) stop("unsupported-tensor", "tensors of different devices");
    if (info.device_arg >= 0) {
        c10::IValue& device = args[info.device_arg];
        if (device.isDevice()) p.device = device.toDevice();
        if (!p.device.is_cpu() && !p.device.is_meta()) stop("unsupported-tensor", c10::str(p.device));
        if (device.isDevice() || p.operands.empty()) device = c10::Device(c10::DeviceType::Meta);
    }
}

bool Tracer::numbers_in_graph() const {
    using Backend = frontend::BackendChoice;
    return options_.numbers && !in_backward_ &&
           (options_.backend.kind == Backend::Kernels || options_.backend.kind == Backend::AotEager);
}

// Whether the data decides the sizes of the results, for an operator that is tagged so.
static bool data_decides_sizes(const OperatorInfo& info, const c10::IValue* args) {
    if (info.callee == "aten::_ctc_loss") return false;  // lengths are numbers here
    if (info.callee == "aten::repeat_interleave.Tensor") {
        int k = info.arg_index("output_size");
        return k < 0 || args[k].isNone();
    }
    if (info.callee == "aten::linalg_lstsq") {  // residuals, where the driver finds out about the rank
        const c10::IValue& driver = args[info.arg_index("driver")];
        return driver.isString() && driver.toStringRef() != "gels" && driver.toStringRef() != "gelsy";
    }
    return true;
}

void Tracer::refuse_data_dependence(const Pending& p, torch::jit::Stack* stack) {
    const OperatorInfo& info = p.info;
    if (info.data_value) stop("data-dependent", info.callee);
    if (!info.data_shape) return;
    if (info.is_index) {
        for (size_t k = 1; k < p.operands.size(); ++k) {
            auto type = p.operands[k].scalar_type();
            if (type == at::kBool || type == at::kByte) stop("data-dependent", info.callee + " with a mask");
        }
        return;
    }
    if (data_decides_sizes(info, stack->data() + (stack->size() - info.args.size())))
        stop("data-dependent", info.callee);
}

// Whether an operator that writes its first argument takes the others as they are: then the shape function has nothing
// to say.
static bool keeps_metadata(const OperatorInfo& info, const torch::jit::Stack& stack) {
    const c10::IValue* args = stack.data() + (stack.size() - info.args.size());
    const at::Tensor& self = args[0].toTensor();
    if (!self.is_floating_point()) return false;
    for (int64_t i = 0; i < self.dim(); ++i)
        if (self.stride(i) == 0 && self.size(i) > 1) return false;  // writing one element more than once is an error
    for (size_t i = 1; i < info.args.size(); ++i) {
        if (args[i].isComplexDouble()) return false;
        if (info.args[i].form != Form::Tensor || !args[i].isTensor()) continue;
        const at::Tensor& t = args[i].toTensor();
        if (!t.defined() || t.is_complex() || t.is_conj() || t.dim() > self.dim()) return false;
        if (info.args[i].name == "mask" && t.scalar_type() != at::kBool) return false;
        if (!is_wrapped_number(t) && t.storage().unsafeGetStorageImpl() == self.storage().unsafeGetStorageImpl())
            return false;  // they may overlap
        for (int64_t k = 1; k <= t.dim(); ++k)
            if (t.size(-k) != self.size(-k) && t.size(-k) != 1) return false;
    }
    return true;
}

// Whether operators refuse to write one of the two and read the other: both are dense and they share some of their
// memory, but not all of it in the same order.
static bool overlaps_partly(const at::Tensor& a, const at::Tensor& b) {
    if (a.storage().unsafeGetStorageImpl() != b.storage().unsafeGetStorageImpl() || !a.numel() || !b.numel())
        return false;
    if (!a.is_non_overlapping_and_dense() || !b.is_non_overlapping_and_dense()) return false;
    auto range = [](const at::Tensor& t) {
        auto begin = t.storage_offset() * static_cast<int64_t>(t.itemsize());
        return std::pair(begin, begin + static_cast<int64_t>(t.nbytes()));
    };
    auto [a0, a1] = range(a);
    auto [b0, b1] = range(b);
    if (a0 == b0 && a1 == b1) return a.strides() != b.strides();
    return a0 < b1 && b0 < a1;
}

// The Meta kernel of index_put does not look at the shapes of masks. (A call that nobody needs is dropped, so its
// errors must be known now.)
void Tracer::refuse_wrong_masks(const Pending& p) {
    if (!p.info.puts_by_index || p.operands.empty()) return;
    const at::Tensor& self = as_fake(p.operands[0])->twin();
    int64_t axis = 0;
    int next = 0;  // place in the list of indices; places in between are taken by slices
    for (size_t k = 1; k < p.operands.size(); ++k) {
        const auto& operand = p.record.operands[k];
        if (p.info.args[operand.arg].form != Form::TensorList) continue;
        axis += operand.pos - next;
        next = operand.pos + 1;
        const at::Tensor& index = as_fake(p.operands[k])->twin();
        if (index.scalar_type() != at::kBool && index.scalar_type() != at::kByte) {
            ++axis;
            continue;
        }
        for (int64_t i = 0; i < index.dim(); ++i, ++axis)
            if (axis >= self.dim() || index.size(i) != self.size(axis))
                stop("operator-error", p.info.callee + ": the shape of a mask");
    }
}

// Forward-mode formulas put such zeros for a tangent that is not there. In a graph they are ordinary ones, which these
// operators tell apart: nothing times infinity.
void Tracer::refuse_zeros_without_memory(const Pending& p) {
    for (const Operand& o : p.record.operands) {
        const ValueInfo& v = trace_.values[static_cast<size_t>(o.value)];
        if (v.kind != ValueInfo::Result ||
            trace_.records[static_cast<size_t>(v.producer)].info->callee != "aten::_efficientzerotensor")
            continue;
        bool shows = std::any_of(p.info.returns.begin(), p.info.returns.end(),
                                 [](const ReturnInfo& r) { return r.alias_arg >= 0 && !r.writes; });
        for (const char* name : {"aten::add.Tensor", "aten::sub.Tensor", "aten::mul.Tensor", "aten::div.Tensor",
                                 "aten::dot", "aten::vdot", "aten::linalg_cross"})
            shows |= p.info.callee == name;
        if (shows) stop("unsupported-op", p.info.callee + " of zeros without memory");
    }
}

// (Meta kernels compare addresses, and find none.)
void Tracer::refuse_overlap(const Pending& p) {
    const auto& operands = p.record.operands;
    if (p.info.functional || operands.size() < 2) return;
    for (size_t w = 0; w < operands.size(); ++w)
        for (size_t k = 0; p.info.args[operands[w].arg].writes && k < operands.size(); ++k)
            if (k != w && overlaps_partly(as_fake(p.operands[w])->twin(), as_fake(p.operands[k])->twin()))
                stop("operator-error", p.info.callee + ": what is written and what is read overlap in part");
}

// Meta kernels raise where the operator would, but often with another message: the operator itself is to raise, in
// eager.
void Tracer::run_meta(Pending& p, torch::jit::Stack* stack) {
    try {
        run_shape_function(p.info, stack);
    } catch (const c10::NotImplementedError&) {
        stop("unsupported-op", p.info.callee + " has no shape function");
    } catch (const c10::Error& e) {
        stop("operator-error", p.info.callee + ": " + e.what_without_backtrace());
    } catch (const std::exception&) {  // of a shape function in Python
        if (stopped_) throw;
        PyErr_Clear();
        stop("operator-error", p.info.callee);
    }
}

void Tracer::run_shape_function(const OperatorInfo& info, torch::jit::Stack* stack) {
    if (info.shape_rule) return info.shape_rule(stack);
    if ((info.in_place_unary || info.in_place_broadcast) && keeps_metadata(info, *stack))
        return torch::jit::drop(*stack, info.args.size() - 1);
    FrontendOff off;
    if (!info.structured) return info.op.callBoxed(stack);
    // The kernel for any backend runs the operator's own shape function, allocates the results and then calls the
    // out= overload; the mode meets the last two. (torch overrides most Meta kernels by Python functions.)
    struct Phase {
        bool& flag;
        explicit Phase(bool& f) : flag(f) { flag = true; }
        ~Phase() { flag = false; }
    } phase(in_structured_);
    WithMode mode;
    info.op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional, *stack);
}

void Tracer::inside_structured(const OperatorInfo& info, torch::jit::Stack* stack) {
    if (info.resizes_out) {  // the results are there, with their final metadata
        std::vector<c10::IValue> outs;
        size_t first = stack->size() - info.args.size();
        for (const ReturnInfo& r : info.returns) outs.push_back((*stack)[first + r.alias_arg]);
        torch::jit::drop(*stack, info.args.size());
        for (auto& out : outs) stack->push_back(std::move(out));
        return;
    }
    WithoutMode without;
    info.op.callBoxed(stack);
}

at::Tensor Tracer::written_result(Pending& p, const at::Tensor& meta, int operand, const SymbolicMetadata* symbolic) {
    at::Tensor& fake = p.operands[operand];
    FakeImpl* impl = as_fake(fake);
    written_fakes_.emplace_back(fake.getIntrusivePtr());
    if (fake.is_view()) written_fakes_.emplace_back(fake._base().getIntrusivePtr());
    if (p.info.functional) {
        if (impl->is_input()) stop("tensor-attribute", p.info.callee);
        int value = add_value(ValueInfo::Result, static_cast<int>(trace_.records.size()),
                              static_cast<int>(p.record.results.size()), meta, impl->alias_set());
        impl->rebind(meta, value);
        keep_symbolic(*impl, value, symbolic);
        p.record.results.push_back(value);
    } else {
        if (meta.sizes() != impl->twin().sizes()) stop("unsupported-op", p.info.callee);
        p.record.results.push_back(impl->value());
    }
    p.record.aliases.push_back(operand);
    return fake;
}

at::Tensor Tracer::take_result(Pending& p, const at::Tensor& meta, const ReturnInfo& r, int pos) {
    Record& record = p.record;
    const SymbolicMetadata* symbolic = nullptr;
    if (!p.symbolic_results.empty() && (!r.writes || p.info.functional))
        symbolic = &p.symbolic_results.at(p.next_result++);
    int producer = static_cast<int>(trace_.records.size());
    int index = static_cast<int>(record.results.size());
    if (!meta.defined()) {
        ValueInfo undefined{ValueInfo::Undefined, producer, index, at::kFloat, {}, {}, 0, -1};
        trace_.values.push_back(undefined);
        record.results.push_back(static_cast<int>(trace_.values.size()) - 1);
        record.aliases.push_back(-1);
        return meta;
    }
    if (r.writes)
        for (size_t k = 0; k < record.operands.size(); ++k)
            if (record.operands[k].arg == r.alias_arg && (record.operands[k].pos == pos || record.operands[k].pos < 0))
                return written_result(p, meta, static_cast<int>(k), symbolic);
    if (!meta.is_meta()) stop("unsupported-op", p.info.callee + " computed a real tensor");
    if (meta.layout() != c10::kStrided) stop("unsupported-tensor", c10::str("layout ", meta.layout()));
    at::Tensor twin = meta;
    c10::StorageImpl* storage = meta.storage().unsafeGetStorageImpl();
    FakeStorage* known = as_fake_storage(storage);
    int alias = -1;
    if (known) {
        for (size_t k = 0; k < p.operands.size() && alias < 0; ++k)
            if (as_fake(p.operands[k])->alias_set() == known->alias_set &&
                (r.alias_arg < 0 || r.alias_arg == record.operands[k].arg))
                alias = static_cast<int>(k);
        for (size_t k = 0; k < p.operands.size() && alias < 0; ++k)
            if (as_fake(p.operands[k])->alias_set() == known->alias_set) alias = static_cast<int>(k);
        // A twin belongs to one fake.
        for (const at::Tensor& operand : p.operands)
            if (meta.is_same(as_fake(operand)->twin()))
                twin = plain_meta(meta.storage(), meta.dtype(), meta.sizes(), meta.strides(), meta.storage_offset());
    } else {
        size_t bytes = storage->nbytes();
        auto fresh = c10::make_intrusive<FakeStorage>(trace_.alias_sets++, bytes);
        trace_.written_sets.push_back(false);
        twin = plain_meta(c10::Storage(fresh), meta.dtype(), meta.sizes(), meta.strides(), meta.storage_offset());
        if (meta.is_conj()) twin.unsafeGetTensorImpl()->_set_conj(true);
        if (meta.is_neg()) twin.unsafeGetTensorImpl()->_set_neg(true);
        known = as_fake_storage(twin.storage().unsafeGetStorageImpl());
    }
    int value = add_value(ValueInfo::Result, producer, index, twin, known->alias_set);
    record.results.push_back(value);
    record.aliases.push_back(alias);
    auto impl = c10::make_intrusive<FakeImpl>(twin, p.device, value, epoch_);
    keep_symbolic(*impl, value, symbolic);
    return at::Tensor(std::move(impl));
}

void Tracer::note_writes(Pending& p) {
    Record& r = p.record;
    auto written = [&](size_t k) {
        // memory that is also seen negated or conjugated has no place in the graph
        int set = as_fake(p.operands[k])->alias_set();
        for (int lazy : lazy_sets_)
            if (lazy == set)
                stop("unsupported-op", p.info.callee + " on memory with a lazy conjugate or negative view");
        r.writes.push_back(static_cast<int>(k));
        contents_of(*as_fake(p.operands[k]));  // as they are before the first write
        trace_.written_sets[as_fake(p.operands[k])->alias_set()] = true;
    };
    for (size_t k = 0; k < r.operands.size(); ++k) {
        int arg = r.operands[k].arg;
        bool hidden = false;
        for (const HiddenWrite& w : p.info.hidden_writes) hidden |= w.arg == arg && r.args[w.flag].toBool();
        if (hidden || (p.info.args[arg].writes && !p.info.functional)) written(k);
    }
}

// Attention without dropout takes no random numbers.
static bool draws_nothing(const Record& r) {
    for (size_t k = 0; k < r.info->args.size(); ++k)
        if (r.info->args[k].name == "dropout_p") return r.args[k].isDouble() && r.args[k].toDouble() == 0;
    return false;
}

void Tracer::record(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const OperatorInfo& info = OperatorInfo::of(op);
    if (in_structured_) return inside_structured(info, stack);
    if (info.foreach) return record_foreach(info, stack);
    if (info.composite) {  // inference mode: nothing above has decomposed it
        op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
        return;
    }
    Gil gil;
    Pending p{info};
    if (info.refused) stop("unsupported-op", info.callee);
    c10::IValue* args = stack->data() + (stack->size() - info.args.size());
    if (info.is_lift && args[0].isTensor() && !as_fake(args[0].toTensor())) {
        WithoutMode without;
        args[0] = lift_constant(args[0].toTensor());
        return;
    }
    WithoutMode without;
    const bool keeps = policy_keeps(op, args, info.args.size());
    take_arguments(p, args);
    refuse_zeros_without_memory(p);
    if (info.data_value && (read_known(p, stack) || read_item(p, stack))) return;
    if (info.data_value || info.data_shape) refuse_data_dependence(p, stack);
    refuse_wrong_masks(p);
    refuse_overlap(p);
    run_meta(p, stack);

    Record& r = p.record;
    r.info = info.functional ? &OperatorInfo::of(*info.functional) : &info;
    if (p.symbolic && !info.in_place_unary) find_symbolic_results(p, *stack);
    size_t first = stack->size() - info.returns.size();
    bool tensors = false;
    for (size_t k = 0; k < info.returns.size(); ++k) {
        const ReturnInfo& returned = info.returns[k];
        c10::IValue& v = (*stack)[first + k];
        if (!returned.tensor) continue;
        tensors = true;
        if (v.isTensor()) {
            v = take_result(p, v.toTensor(), returned, -1);
        } else if (v.isTensorList()) {
            c10::List<at::Tensor> list;
            int pos = 0;
            for (const at::Tensor& t : v.toTensorVector()) list.push_back(take_result(p, t, returned, pos++));
            v = std::move(list);
        }
    }
    note_writes(p);
    note_contents(p);
    // An operator without tensor results that writes nothing answers a question about metadata, or, if it returns
    // nothing at all, checks.
    if (!tensors && r.writes.empty() && !info.returns.empty()) return;
    note_unseen(p);
    r.grad_mode = at::GradMode::is_enabled();
    r.ordered = (info.random && !draws_nothing(r)) || info.returns.empty();
    r.line = current_line(keeps);
    trace_.only_cpu &= p.device.is_cpu();
    trace_.records.push_back(std::move(r));
    if (open_torch_op_ < 0) trace_.torch_level_complete = false;
}

// Above autograd and autocast: real tensors are replaced before autograd can tie them to the fakes.
void Tracer::torch_level(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const OperatorInfo& info = OperatorInfo::of(op);
    ++trace_.torch_ops;
    if (info.is_lift) return;
    c10::IValue* args = stack->data() + (stack->size() - info.args.size());
    if (info.own_autograd && at::GradMode::is_enabled())
        for (size_t i = 0; i < info.args.size(); ++i)
            if (args[i].isTensor() && args[i].toTensor().defined() && args[i].toTensor().requires_grad()) {
                Gil gil;
                stop("autograd", info.callee);
            }
    // what a function transform wraps comes again when it has been unwrapped
    constexpr c10::DispatchKeySet wrapped({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
    auto is_real = [&](const at::Tensor& t) {
        return t.defined() && !as_fake(t) && !is_wrapped_number(t) && !t.key_set().has_any(wrapped);
    };
    auto replace = [&](const at::Tensor& t) {
        Gil gil;
        WithoutMode without;
        return resolve_real(t);
    };
    for (size_t i = 0; i < info.args.size(); ++i) {
        c10::IValue& v = args[i];
        if (info.args[i].form == Form::Tensor && v.isTensor()) {
            if (is_real(v.toTensor())) v = replace(v.toTensor());
        } else if (info.args[i].form == Form::TensorList && v.isTensorList()) {
            auto list = v.toTensorVector();
            bool any = false;
            for (at::Tensor& t : list)
                if (is_real(t)) {
                    t = replace(t);
                    any = true;
                }
            if (any) v = c10::List<at::Tensor>(list);
        } else if (info.args[i].form == Form::TensorList && v.isOptionalTensorList()) {
            c10::List<std::optional<at::Tensor>> list;
            for (auto& t : v.toOptionalTensorVector()) list.push_back(t && is_real(*t) ? replace(*t) : t);
            v = std::move(list);
        }
    }
    if (info.writes_anything && at::GradMode::is_enabled()) refuse_differentiable_writes(info, args);
}

// Whether an input that needs a gradient may be written depends on what the guards don't see: its fake is a leaf, which
// must not be written, but the real tensor may be an operator's result, or a view of one.
void Tracer::refuse_differentiable_writes(const OperatorInfo& info, const c10::IValue* args) {
    auto check = [&](const at::Tensor& t) {
        FakeImpl* fake = t.defined() && t.requires_grad() ? as_fake(t) : nullptr;
        if (!fake || fake->epoch() != epoch_) return;
        for (const InputFake& in : input_fakes_) {
            if (!in.requires_grad || as_fake(in.fake)->alias_set() != fake->alias_set()) continue;
            Gil gil;
            stop("autograd", info.callee + " writes an argument that needs a gradient");
        }
    };
    for (size_t i = 0; i < info.args.size(); ++i) {
        if (!info.args[i].writes) continue;
        if (args[i].isTensor()) check(args[i].toTensor());
        if (args[i].isTensorList())
            for (const at::Tensor& t : args[i].toTensorVector()) check(t);
    }
}

std::unique_ptr<frontend::CompiledGraph> Tracer::finish(const std::vector<PyObject*>& outputs, int n_inputs) {
    try {
        if (!finished_ && paused_ == 0) leave();
        finished_ = true;
        release_thread();  // a backend may compile something itself
        std::vector<TraceOutput> results;
        bool needs_grad = false;
        freeze_arguments(trace_);
        if (backward_)
            for (JointTrace& joint : backward_->joints) freeze_arguments(joint.trace);
        std::vector<at::Tensor> tensors;
        for (PyObject* o : outputs) {
            if (auto e = expr_of(o)) {
                results.push_back({-1, false, nullptr, trace_.symbols->resolve(*e)});
                continue;
            }
            if (torch::is_symfloat(pybind11::handle(o))) {
                const FloatValue* f = float_value(float_of(o));
                BRAZE_CHECK(f, "an output of the graph is no number of this trace");
                results.push_back({as_fake(f->fake)->value(), false, nullptr});
                continue;
            }
            BRAZE_CHECK(is_fake(o), "an output of the graph is no tensor of this trace");
            const at::Tensor& t = THPVariable_Unpack(o);
            results.push_back({as_fake(t)->value(), t.requires_grad(), Py_TYPE(o)});
            results.back().retains_grad = t.retains_grad();
            if (auto used_up = used_up_.find(t.unsafeGetTensorImpl()); used_up != used_up_.end()) {
                results.back().used_up = used_up->second;
                continue;
            }
            tensors.push_back(t);
            if (has_lost_graph(t)) stop("autograd", "a view of what was written since, which has lost its graph");
            needs_grad |= t.requires_grad() && t.grad_fn();
        }
        // (written with what needs a gradient, whether or not the program returns anything)
        for (const InputFake& in : input_fakes_) needs_grad |= in.fake.grad_fn() && !in.requires_grad;
        std::string obstacle = autograd_obstacle(tensors);
        if (!obstacle.empty()) stop("autograd", obstacle);
        trace_.inputs.resize(n_inputs, -1);
        using Backend = frontend::BackendChoice;
        bool calls = options_.backend.kind == Backend::User || options_.backend.kind == Backend::Eager;
        for (const TraceOutput& o : results)
            if (calls && o.retains_grad) stop("autograd", "Tensor.retain_grad is no call in a graph");
        if (calls && !trace_.records.empty())
            return compile_calls(std::move(trace_), std::move(results), needs_grad, options_.backend, reals_);
        return compile_trace(std::move(trace_), std::move(results), needs_grad,
                             options_.backend.kind == Backend::AotEager, std::move(backward_));
    } catch (python_error& e) { e.restore(); } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
    return nullptr;
}

}  // namespace braze::bridge
