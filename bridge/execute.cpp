#include "bridge/execute.h"

#include <ATen/EmptyTensor.h>

#include "core/support/error.h"

namespace braze::bridge {

using runtime::SlotKind;
using shapes::Expr;

namespace {

int64_t value_of(const Expr& e) {
    auto c = e.as_const();
    BRAZE_CHECK(c, "a symbolic size at run time: " + e.str());
    return *c;
}

c10::DimVector values_of(const std::vector<Expr>& xs) {
    c10::DimVector out;
    for (const Expr& x : xs) out.push_back(value_of(x));
    return out;
}

// A tensor over somebody's storage, without the dispatcher.
at::Tensor over_storage(const c10::Storage& storage, at::ScalarType dtype, const c10::DimVector& sizes, const c10::DimVector& strides, int64_t offset) {
    auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(dtype));
    impl->set_sizes_and_strides(sizes, strides, offset);
    return at::Tensor(std::move(impl));
}

bool is_constant(const ir::TensorType& t) {
    for (const Expr& e : t.sizes)
        if (!e.is_const()) return false;
    for (const Expr& e : t.strides)
        if (!e.is_const()) return false;
    return true;
}

}  // namespace

Executor::Executor(std::unique_ptr<runtime::Program> program, OpaquePool opaques) : program_(std::move(program)), opaques_(std::move(opaques)) {
    for (const runtime::Thunk& t : program_->thunks) {
        const auto* call = std::get_if<runtime::RunCall>(&t);
        call_of_thunk_.push_back(call ? static_cast<int>(calls_.size()) : -1);
        if (call) calls_.push_back(prepare(*call));
    }
    prepare_slots();
}

void Executor::prepare_slots() {
    persistent_.resize(program_->slots.size());
    for (size_t i = 0; i < program_->slots.size(); ++i) {
        const runtime::Slot& s = program_->slots[i];
        if (s.kind == SlotKind::Arena) persistent_[i] = s.arena_offset >= 0 && is_constant(s.type) && !s.escapes;
        if (s.kind == SlotKind::View) persistent_[i] = s.base < static_cast<int>(i) && persistent_[s.base] && is_constant(s.type) && s.offset.is_const() && !s.escapes;
    }
}

PreparedCall Executor::prepare(const runtime::RunCall& c) const {
    PreparedCall p;
    const ir::Node& n = *c.node;
    bool all_arena = !c.results.empty();
    for (int r : c.results) all_arena &= r >= 0 && (program_->slots[r].kind == SlotKind::Arena || program_->slots[r].kind == SlotKind::Fresh);
    p.info = &OperatorInfo::named(n.callee);
    if (all_arena) {
        std::string name = n.callee + (n.callee.find('.') == std::string::npos ? ".out" : "_out");
        p.info = &OperatorInfo::named(name);
        p.out = true;
    }
    p.results = c.results;
    for (size_t a = 0; a < p.info->args.size(); ++a) {
        const ArgInfo& info = p.info->args[a];
        const ir::Arg* arg = n.arg(info.name);
        if (p.out && info.writes) {
            p.stack.emplace_back();
            p.tensors.push_back({static_cast<int>(a), c.results[0]});
            continue;
        }
        if (!arg) {  // a pass made this call without it
            const auto& dflt = p.info->op.schema().arguments()[a].default_value();
            BRAZE_CHECK(dflt, n.callee + " lacks its argument " + info.name);
            p.stack.push_back(*dflt);
            continue;
        }
        if (const auto* ref = std::get_if<ir::Ref>(arg)) {
            p.stack.emplace_back();
            p.tensors.push_back({static_cast<int>(a), c.operands[ref->operand]});
        } else if (const auto* refs = std::get_if<ir::RefList>(arg)) {
            p.stack.emplace_back();
            PreparedCall::ListPatch patch{static_cast<int>(a), {}, info.optional_elements};
            for (int o : refs->operands) patch.slots.push_back(o < 0 ? -1 : c.operands[o]);
            p.lists.push_back(std::move(patch));
        } else {
            p.stack.push_back(to_ivalue(*arg, info.form, opaques_));
        }
    }
    return p;
}

std::unique_ptr<Workspace> Executor::acquire() {
    {
        std::lock_guard lock(mutex_);
        if (!free_.empty()) {
            auto w = std::move(free_.back());
            free_.pop_back();
            return w;
        }
    }
    auto w = std::make_unique<Workspace>();
    w->slots.resize(program_->slots.size());
    w->pointers.resize(64);
    if (program_->arena_bytes > 0) w->arena = at::detail::empty_cpu({program_->arena_bytes}, at::kByte);
    for (size_t i = 0; i < program_->slots.size(); ++i) {
        if (!persistent_[i]) continue;
        const runtime::Slot& s = program_->slots[i];
        at::ScalarType dtype = scalar_type_of(s.type.dtype);
        if (s.kind == SlotKind::View) {
            w->slots[i] = view(static_cast<int>(i), *w);
            continue;
        }
        auto size = static_cast<int64_t>(c10::elementSize(dtype));
        BRAZE_CHECK(s.arena_offset % size == 0, "an unaligned arena slot");
        w->slots[i] = over_storage(w->arena.storage(), dtype, values_of(s.type.sizes), values_of(s.type.strides), s.arena_offset / size);
    }
    return w;
}

void Executor::release(std::unique_ptr<Workspace> w) {
    for (size_t i = 0; i < w->slots.size(); ++i)
        if (!persistent_[i]) w->slots[i].reset();
    std::lock_guard lock(mutex_);
    if (free_.size() < 4) free_.push_back(std::move(w));
}

at::Tensor Executor::view(int slot, const Workspace& w) const {
    const runtime::Slot& s = program_->slots[slot];
    const at::Tensor& base = w.slots[s.base];
    BRAZE_CHECK(base.defined(), "the base of a view is gone");
    return over_storage(base.storage(), base.scalar_type() == scalar_type_of(s.type.dtype) ? base.scalar_type() : scalar_type_of(s.type.dtype),
                        values_of(s.type.sizes), values_of(s.type.strides), base.storage_offset() + value_of(s.offset));
}

void Executor::run_kernel(const runtime::RunKernel& k, Workspace& w) const {
    const loops::Kernel& kernel = program_->kernels[k.kernel];
    if (w.pointers.size() < k.slots.size()) w.pointers.resize(k.slots.size());
    for (size_t i = 0; i < k.slots.size(); ++i) {
        at::Tensor& t = w.slots[k.slots[i]];
        if (!t.defined() && program_->slots[k.slots[i]].kind == SlotKind::View) t = view(k.slots[i], w);
        BRAZE_CHECK(t.defined(), "a kernel's buffer does not exist");
        char* p = static_cast<char*>(kernel.params[i].written ? t.mutable_data_ptr() : const_cast<void*>(t.const_data_ptr()));
        w.pointers[i] = p + value_of(k.offsets.empty() ? Expr(0) : k.offsets[i]) * static_cast<int64_t>(t.element_size());
    }
    int64_t count = value_of(k.outer_count), work = std::max<int64_t>(1, k.work.as_const().value_or(1024));
    loops::KernelFn fn = program_->code[k.kernel].fn;
    void* const* pointers = w.pointers.data();
    constexpr int64_t kGrain = 16384;  // element operations worth another thread
    int64_t grain = std::max<int64_t>(1, kGrain / work);
    int32_t failed = 0;
    if (count <= grain) {
        if (count > 0) failed = fn(pointers, nullptr, 0, count);
    } else {
        std::atomic<int32_t> any{0};
        at::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
            if (fn(pointers, nullptr, begin, end)) any = 1;
        });
        failed = any;
    }
    if (failed) TORCH_CHECK_INDEX(false, "index out of range in self");
}

void Executor::run_call(const PreparedCall& c, Workspace& w) const {
    std::vector<c10::IValue> stack(c.stack);
    auto tensor = [&](int slot) -> at::Tensor& {
        at::Tensor& t = w.slots[slot];
        if (!t.defined() && program_->slots[slot].kind == SlotKind::View) t = view(slot, w);
        return t;
    };
    for (auto [arg, slot] : c.tensors) stack[arg] = tensor(slot);
    for (const PreparedCall::ListPatch& p : c.lists) {
        if (p.optional_elements) {
            c10::List<std::optional<at::Tensor>> list;
            for (int s : p.slots) list.push_back(s < 0 ? std::nullopt : std::optional<at::Tensor>(tensor(s)));
            stack[p.arg] = std::move(list);
        } else {
            c10::List<at::Tensor> list;
            for (int s : p.slots) list.push_back(s < 0 ? at::Tensor() : tensor(s));
            stack[p.arg] = std::move(list);
        }
    }
    c.info->op.callBoxed(&stack);
    if (c.out) return;
    size_t k = 0;
    auto keep = [&](at::Tensor t) {
        if (k >= c.results.size()) return;
        int slot = c.results[k++];
        if (slot >= 0 && program_->slots[slot].kind == SlotKind::CallResult) w.slots[slot] = std::move(t);
    };
    for (c10::IValue& v : stack) {
        if (v.isTensor()) {
            keep(std::move(v).toTensor());
        } else if (v.isTensorList()) {
            for (const at::Tensor& t : v.toTensorVector()) keep(t);
        }
    }
}

std::vector<at::Tensor> Executor::run(c10::ArrayRef<at::Tensor> inputs) {
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    std::unique_ptr<Workspace> w = acquire();
    size_t next_input = 0;
    for (size_t i = 0; i < program_->slots.size(); ++i) {
        const runtime::Slot& s = program_->slots[i];
        if (s.kind != SlotKind::Input) continue;
        BRAZE_CHECK(s.input < static_cast<int>(inputs.size()), "missing input " + std::to_string(s.input));
        w->slots[i] = inputs[s.input];
        ++next_input;
    }
    for (size_t i = 0; i < program_->thunks.size(); ++i) {
        const runtime::Thunk& t = program_->thunks[i];
        switch (t.index()) {
            case 0: run_kernel(std::get<runtime::RunKernel>(t), *w); break;
            case 1: run_call(calls_[call_of_thunk_[i]], *w); break;
            case 2: {
                int s = std::get<runtime::MakeView>(t).slot;
                if (!persistent_[s]) w->slots[s] = view(s, *w);
                break;
            }
            case 3: {
                int s = std::get<runtime::Allocate>(t).slot;
                const runtime::Slot& slot = program_->slots[s];
                if (!persistent_[s])
                    w->slots[s] = at::detail::empty_strided_cpu(values_of(slot.type.sizes), values_of(slot.type.strides), scalar_type_of(slot.type.dtype));
                break;
            }
            case 4: {
                int s = std::get<runtime::Release>(t).slot;
                if (!persistent_[s]) w->slots[s].reset();
                break;
            }
        }
    }
    std::vector<at::Tensor> out;
    for (int s : program_->outputs) {
        if (!w->slots[s].defined()) w->slots[s] = view(s, *w);
        at::Tensor& t = w->slots[s];
        bool again = false;
        for (const at::Tensor& o : out) again |= o.is_same(t);
        // Persistent tensors belong to the workspace; a second handle on one value is another tensor over the same memory.
        bool internal = persistent_[s] && program_->slots[s].kind != SlotKind::Input;
        BRAZE_CHECK(!internal, "an output in the arena");
        out.push_back(again ? over_storage(t.storage(), t.scalar_type(), c10::DimVector(t.sizes()), c10::DimVector(t.strides()), t.storage_offset()) : t);
    }
    release(std::move(w));
    return out;
}

}  // namespace braze::bridge
