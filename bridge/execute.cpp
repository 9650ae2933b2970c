#include "bridge/execute.h"

#include <ATen/EmptyTensor.h>

#include "bridge/dtypes.h"
#include "core/runtime/batches.h"
#include "core/support/error.h"

namespace braze::bridge {

using runtime::kGrain;
using runtime::Program;
using runtime::Slot;
using runtime::SlotKind;

namespace {
constexpr int64_t kLongRun = 200000;  // element operations during which the GIL is given away
constexpr size_t kArenaAlignment = 64;
}  // namespace

struct Executor::SlotPlan {
    SlotKind kind;
    bool in_arena = false;  // at a place that is known before the run
    bool defined = true;    // false: no tensor is ever there
    bool escapes = false;
    bool layout_matters = false;  // kernels and views rely on the strides
    int root = -1;                // the slot whose memory it uses
    Size offset;                  // from the root's first element, in elements
    std::vector<Size> sizes, strides;
    bool constant = true;  // sizes, strides and offset
    c10::DimVector fixed_sizes, fixed_strides;
    at::ScalarType dtype = at::kFloat;
    int64_t item = 4;
    int input = -1;
    int64_t arena_offset = -1;
    int base = -1;
    Size base_offset;
};

struct Executor::Kernel {
    struct Param {
        int index, root;
        int64_t item;
        Size root_offset, offset;
    };
    loops::KernelFn fn;
    int first_buffer;  // into Context::buffers
    int n_buffers;
    std::vector<Param> params;  // those to be set in each run
    std::vector<Param> arena;   // those that a context sets once
    Size outer_count, work;
};

struct Executor::Call {
    PreparedCall prepared;
    std::vector<int> operands, results;
    bool into_results;
    bool tracked_view;  // its result is a view that the caller gets: eager's view tracking has to see it
};

struct Executor::Step {
    enum Kind : uint8_t { Kernels, Call, Allocate, Release } kind;
    int index;      // Kernels: the first one
    int count = 1;  // of kernels, which are independent of each other
    bool writes_input = false;
    bool constant = true;  // what they do
};
// How threads share the kernels of a step.
struct Executor::Shares {
    int threads = 0;
    std::vector<std::vector<runtime::Share>> by_thread;
};

struct Executor::Context {
    at::DataPtr arena;
    std::vector<at::Tensor> tensors;  // per slot; arena slots and their views stay, others are there during a run
    std::vector<char*> pointers;      // per slot that is a root
    std::vector<void*> buffers;
    std::vector<int64_t> symbols;
    std::vector<c10::IValue> stack;
    std::vector<Shares> shares;  // by step
};

bool& run_wrote() {
    static thread_local bool wrote = false;
    return wrote;
}

Executor::Executor(std::unique_ptr<Program> program, std::vector<c10::IValue> opaque, std::vector<at::Tensor> constants,
                   std::vector<int> mutated, const SymbolTable& symbols)
    : program_(std::move(program)),
      opaque_(std::move(opaque)),
      constants_(std::move(constants)),
      mutated_(std::move(mutated)) {
    find_symbols(symbols);
    plan_slots();
    plan_steps();
    find_last_uses();
}

Executor::~Executor() { delete cached_.load(); }

void Executor::find_symbols(const SymbolTable& table) {
    for (const shapes::Expr& e : program_->symbols) {
        std::pair<int, int> source{-1, -1};
        for (const auto& s : table.symbols())
            if (s.symbol == e) source = {s.input, s.axis};
        BRAZE_CHECK(source.first >= 0, "the size symbol " + e.str() + " is no size of an input");
        symbol_source_.push_back(source);
    }
}

void Executor::plan_slots() {
    const auto& symbols = program_->symbols;
    for (size_t i = 0; i < program_->slots.size(); ++i) {
        const Slot& s = program_->slots[i];
        SlotPlan p;
        p.kind = s.kind;
        p.input = s.input;
        p.escapes = s.escapes;
        p.arena_offset = s.arena_offset;
        p.root = static_cast<int>(i);
        p.defined = s.type.dtype != ir::DType::Other;
        if (p.defined) {
            p.dtype = to_scalar_type(s.type.dtype);
            p.item = ir::size_of(s.type.dtype);
        }
        for (const auto& e : s.type.sizes) p.sizes.emplace_back(e, symbols);
        for (const auto& e : s.type.strides) p.strides.emplace_back(e, symbols);
        if (s.kind == SlotKind::View) {
            p.base = s.base;
            p.base_offset = Size(s.offset, symbols);
            shapes::Expr total = s.offset;
            int root = s.base;
            while (program_->slots[root].kind == SlotKind::View) {
                total = total + program_->slots[root].offset;
                root = program_->slots[root].base;
            }
            p.root = root;
            p.offset = Size(total, symbols);
            if (s.escapes) p.escapes = true;
        }
        p.constant = p.offset.constant();
        for (size_t k = 0; k < p.sizes.size(); ++k) p.constant &= p.sizes[k].constant() && p.strides[k].constant();
        if (p.constant)
            for (size_t k = 0; k < p.sizes.size(); ++k) {
                p.fixed_sizes.push_back(p.sizes[k].at(nullptr));
                p.fixed_strides.push_back(p.strides[k].at(nullptr));
            }
        p.in_arena = s.kind == SlotKind::Arena && s.arena_offset >= 0 && p.constant;
        slots_.push_back(std::move(p));
    }
    for (const SlotPlan& p : slots_)
        if (p.base >= 0) slots_[p.base].layout_matters = true;
}

void Executor::plan_steps() {
    const auto is_input = [&](int slot) { return slots_[slots_.at(slot).root].kind == SlotKind::Input; };
    int buffers = 0;
    for (const runtime::Batch& batch : runtime::batches(*program_)) {
        const runtime::Thunk& first = program_->thunks[batch[0]];
        if (std::holds_alternative<runtime::RunKernel>(first)) {
            Step step{Step::Kernels, static_cast<int>(kernels_.size()), static_cast<int>(batch.size())};
            for (size_t i : batch) {
                const auto& k = std::get<runtime::RunKernel>(program_->thunks[i]);
                for (const loops::Stage& stage : program_->kernels.at(k.kernel).stages)
                    for (const loops::Store& store : stage.stores)
                        step.writes_input |= is_input(k.slots.at(store.param));
                plan_kernel(k, buffers);
                const Kernel& kernel = kernels_.back();
                step.constant &= kernel.outer_count.constant() && kernel.work.constant();
            }
            steps_.push_back(step);
        } else if (const auto* c = std::get_if<runtime::RunCall>(&first)) {
            bool into = !c->results.empty() && out_variant(c->node->callee) != nullptr;
            for (int r : c->results)
                into &= slots_.at(r).kind == SlotKind::Arena || slots_.at(r).kind == SlotKind::Fresh;
            bool tracked = false;
            for (size_t i = 0; i < c->node->aliases.size() && i < c->results.size(); ++i)
                tracked |= c->node->aliases[i] >= 0 && slots_.at(c->results[i]).escapes;
            Step step{Step::Call, static_cast<int>(calls_.size())};
            for (int w : c->node->writes) step.writes_input |= is_input(c->operands.at(w));
            calls_.push_back(
                {PreparedCall(*c->node, opaque_, program_->symbols, into), c->operands, c->results, into, tracked});
            steps_.push_back(step);
        } else if (const auto* a = std::get_if<runtime::Allocate>(&first)) {
            if (!slots_.at(a->slot).in_arena) steps_.push_back({Step::Allocate, a->slot});
        } else if (const auto* r = std::get_if<runtime::Release>(&first)) {
            if (!slots_.at(r->slot).in_arena) steps_.push_back({Step::Release, r->slot});
        }
    }
    int64_t work = calls_.empty() ? 0 : kLongRun;
    for (const Kernel& k : kernels_)
        work +=
            k.outer_count.constant() && k.work.constant() ? k.outer_count.at(nullptr) * k.work.at(nullptr) : kLongRun;
    long_running_ = work >= kLongRun;
    for (size_t i = 0; i < slots_.size(); ++i)
        if (!slots_[slots_[i].root].in_arena || !slots_[i].constant) transient_.push_back(static_cast<int>(i));
    for (int slot : program_->outputs)
        BRAZE_CHECK(!slots_.at(slots_.at(slot).root).in_arena,
                    "slot " + std::to_string(slot) + " is handed out but lies in the arena");
}

// buffers: of the kernels before, and then with this one's.
void Executor::plan_kernel(const runtime::RunKernel& k, int& buffers) {
    const auto& symbols = program_->symbols;
    Kernel kernel;
    kernel.fn = program_->code.at(k.kernel).fn;
    kernel.first_buffer = buffers;
    kernel.n_buffers = static_cast<int>(k.slots.size());
    buffers += kernel.n_buffers;
    kernel.outer_count = Size(k.outer_count, symbols);
    kernel.work = Size(k.work, symbols);
    for (size_t i = 0; i < k.slots.size(); ++i) {
        const SlotPlan& slot = slots_.at(k.slots[i]);
        slots_[k.slots[i]].layout_matters = true;
        slots_[slot.root].layout_matters = true;
        Kernel::Param p{static_cast<int>(i), slot.root, slot.item, slot.offset, Size(k.offsets[i], symbols)};
        bool once = slots_[slot.root].in_arena && p.root_offset.constant() && p.offset.constant();
        (once ? kernel.arena : kernel.params).push_back(std::move(p));
    }
    kernels_.push_back(std::move(kernel));
}

void Executor::find_last_uses() {
    std::vector<int> last(slots_.size(), -1);
    for (size_t i = 0; i < steps_.size(); ++i) {
        const Step& s = steps_[i];
        const auto use = [&](int slot) { last[slots_[slot].root] = static_cast<int>(i); };
        if (s.kind == Step::Kernels)
            for (int k = s.index; k < s.index + s.count; ++k)
                for (const Kernel::Param& p : kernels_[k].params) use(p.root);
        if (s.kind == Step::Call) {
            for (int slot : calls_[s.index].operands) use(slot);
            for (int slot : calls_[s.index].results) use(slot);
        }
    }
    for (int slot : program_->outputs) last[slots_[slot].root] = -1;
    last_uses_.resize(steps_.size());
    for (size_t slot = 0; slot < slots_.size(); ++slot)
        if (slots_[slot].kind == SlotKind::Input && last[slot] >= 0)
            last_uses_[last[slot]].push_back(static_cast<int>(slot));
}

namespace {
at::Tensor over_memory(char* data, size_t bytes, at::ScalarType dtype, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides) {
    auto storage = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)),
        at::DataPtr(data, c10::Device(c10::DeviceType::CPU)), nullptr, false);
    auto impl = c10::make_intrusive<c10::TensorImpl>(
        c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(dtype));
    impl->set_sizes_and_strides(sizes, strides);
    return at::Tensor(std::move(impl));
}
// A view that nobody outside sees: no dispatcher, no view tracking.
at::Tensor plain_view(const at::Tensor& base, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset) {
    auto impl = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base.storage()),
                                                     base.key_set(), base.dtype());
    impl->set_sizes_and_strides(sizes, strides, base.storage_offset() + offset);
    return at::Tensor(std::move(impl));
}
}  // namespace

std::unique_ptr<Executor::Context> Executor::make_context() const {
    // Its tensors are ordinary ones, also where the first call happens to be in inference mode.
    c10::InferenceMode normal(false);
    auto c = std::make_unique<Context>();
    c->tensors.resize(slots_.size());
    c->pointers.resize(slots_.size(), nullptr);
    c->symbols.resize(program_->symbols.size());
    c->shares.resize(steps_.size());
    if (program_->arena_bytes > 0)
        c->arena = c10::GetAllocator(c10::DeviceType::CPU)->allocate(program_->arena_bytes + kArenaAlignment);
    auto address = reinterpret_cast<uintptr_t>(c->arena.get());
    char* start = reinterpret_cast<char*>((address + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment);
    for (size_t i = 0; i < slots_.size(); ++i) {
        const SlotPlan& p = slots_[i];
        if (!p.in_arena) continue;
        c->pointers[i] = start + p.arena_offset;
        size_t bytes = at::detail::computeStorageNbytes(p.fixed_sizes, p.fixed_strides, p.item);
        c->tensors[i] = over_memory(c->pointers[i], bytes, p.dtype, p.fixed_sizes, p.fixed_strides);
    }
    for (size_t i = 0; i < slots_.size(); ++i) {
        const SlotPlan& p = slots_[i];
        if (p.base >= 0 && p.constant && slots_[p.root].in_arena)
            c->tensors[i] = plain_view(c->tensors[p.root], p.fixed_sizes, p.fixed_strides, p.offset.at(nullptr));
    }
    size_t buffers = 0;
    for (const Kernel& k : kernels_) buffers += k.n_buffers;
    c->buffers.resize(buffers);
    for (const Kernel& k : kernels_)
        for (const Kernel::Param& p : k.arena)
            c->buffers[k.first_buffer + p.index] =
                c->pointers[p.root] + (p.root_offset.at(nullptr) + p.offset.at(nullptr)) * p.item;
    return c;
}

// A context for the length of a run.
struct Executor::Lease {
    explicit Lease(const Executor& owner) : owner(owner), context(owner.cached_.exchange(nullptr)) {
        if (context) return;
        {
            std::lock_guard lock(owner.mutex_);
            if (!owner.spare_.empty()) {
                context = owner.spare_.back().release();
                owner.spare_.pop_back();
            }
        }
        if (!context) context = owner.make_context().release();
    }
    ~Lease() {
        for (int i : owner.transient_) context->tensors[i].reset();
        context->stack.clear();
        Context* other = owner.cached_.exchange(context);
        if (!other) return;
        std::lock_guard lock(owner.mutex_);
        owner.spare_.emplace_back(other);
    }
    const Executor& owner;
    Context* context;
};

class Executor::Run {
  public:
    // The context has the values of the symbols.
    Run(const Executor& e, Context& c, c10::ArrayRef<const at::Tensor*> inputs,
        const c10::impl::LocalDispatchKeySet& outside)
        : e_(e), c_(c), inputs_(inputs), outside_(outside), symbols_(c.symbols.data()) {
        for (size_t i = 0; i < e.slots_.size(); ++i) {
            const SlotPlan& p = e.slots_[i];
            if (p.kind == SlotKind::Input && p.defined) c.pointers[i] = data_of(input(p));
        }
    }

    // owned: the inputs, which go as soon as they can; nullptr: they stay.
    void steps(std::vector<at::Tensor>* owned) {
        run_wrote() = false;
        for (size_t i = 0; i < e_.steps_.size(); ++i) {
            const Step& s = e_.steps_[i];
            // (an operator that raises has checked before it writes)
            if (s.writes_input && s.kind == Step::Kernels) run_wrote() = true;
            switch (s.kind) {
                case Step::Kernels:
                    if (s.count == 1)
                        kernel(e_.kernels_[s.index]);
                    else
                        kernels(s, c_.shares[i]);
                    break;
                case Step::Call: call(e_.calls_[s.index]); break;
                case Step::Allocate: allocate(s.index); break;
                case Step::Release: c_.tensors[s.index].reset(); break;
            }
            if (s.writes_input) run_wrote() = true;
            if (!owned) continue;
            for (int slot : e_.last_uses_[i]) {
                c_.tensors[slot].reset();
                const auto k = static_cast<size_t>(e_.slots_[slot].input);
                if (k < owned->size()) (*owned)[k].reset();
            }
        }
    }

    // What the caller gets.
    at::Tensor output(int slot) {
        const SlotPlan& p = e_.slots_[slot];
        if (p.base < 0) return tensor(slot);
        // Through the dispatcher: eager's views know their base and share its version.
        at::Tensor base = output(p.base);
        c10::impl::ForceDispatchKeyGuard guard(outside_);
        if (at::GradMode::is_enabled() && base.requires_grad()) base = base.detach();
        return base.as_strided(sizes(p), strides(p), base.storage_offset() + p.base_offset.at(symbols_));
    }

  private:
    bool inputs_need_grad() const {
        return std::any_of(inputs_.begin(), inputs_.end(), [](const at::Tensor* t) { return t->requires_grad(); });
    }
    const at::Tensor& input(const SlotPlan& p) const {
        size_t k = static_cast<size_t>(p.input);
        return k < inputs_.size() ? *inputs_[k] : e_.constants_[k - inputs_.size()];
    }
    static char* data_of(const at::Tensor& t) { return static_cast<char*>(t.unsafeGetTensorImpl()->mutable_data()); }

    c10::IntArrayRef sizes(const SlotPlan& p) {
        if (p.constant) return p.fixed_sizes;
        scratch_sizes_.clear();
        for (const Size& s : p.sizes) scratch_sizes_.push_back(s.at(symbols_));
        return scratch_sizes_;
    }
    c10::IntArrayRef strides(const SlotPlan& p) {
        if (p.constant) return p.fixed_strides;
        scratch_strides_.clear();
        for (const Size& s : p.strides) scratch_strides_.push_back(s.at(symbols_));
        return scratch_strides_;
    }
    const at::Tensor& tensor(int slot) {
        at::Tensor& t = c_.tensors[slot];
        if (t.defined()) return t;
        const SlotPlan& p = e_.slots_[slot];
        if (p.kind == SlotKind::Input) return t = input(p);
        BRAZE_CHECK(p.base >= 0, "slot " + std::to_string(slot) + " of the program is used before it is made");
        const at::Tensor& base = tensor(p.base);
        return t = plain_view(base, sizes(p), strides(p), p.base_offset.at(symbols_));
    }

    void allocate(int slot) {
        const SlotPlan& p = e_.slots_[slot];
        c_.tensors[slot] = at::detail::empty_strided_cpu(sizes(p), strides(p), p.dtype);
        c_.pointers[slot] = data_of(c_.tensors[slot]);
    }

    void** buffers(const Kernel& k) {
        void** buffers = c_.buffers.data() + k.first_buffer;
        for (const Kernel::Param& p : k.params)
            buffers[p.index] = c_.pointers[p.root] + (p.root_offset.at(symbols_) + p.offset.at(symbols_)) * p.item;
        return buffers;
    }
    runtime::Amount amount(const Kernel& k) const {
        return {k.outer_count.at(symbols_), std::max<int64_t>(k.work.at(symbols_), 1)};
    }

    void kernel(const Kernel& k) {
        void** const given = buffers(k);
        const auto [count, work] = amount(k);
        if (count <= 0) return;
        const int64_t grain = std::max<int64_t>(kGrain / work, 1);
        std::atomic<int32_t> failed{0};
        const auto run = [&](int64_t begin, int64_t end) {
            if (k.fn(given, symbols_, begin, end) != 0) failed.store(1, std::memory_order_relaxed);
        };
        if (count <= grain)
            run(0, count);
        else
            at::parallel_for(0, count, grain, run);
        TORCH_CHECK_INDEX(failed.load() == 0, "index out of range in self");
    }

    // None of them checks an index.
    void kernels(const Step& step, Shares& shares) {
        const Kernel* const first = e_.kernels_.data() + step.index;
        for (int i = 0; i < step.count; ++i) buffers(first[i]);
        const int threads = at::in_parallel_region() ? 1 : at::get_num_threads();
        if (!step.constant || shares.threads != threads) {
            std::vector<runtime::Amount> amounts;
            for (int i = 0; i < step.count; ++i) amounts.push_back(amount(first[i]));
            shares = {threads, runtime::share_out(amounts, threads)};
        }
        const auto run = [&](int64_t begin, int64_t end) {
            for (int64_t t = begin; t < end; ++t)
                for (const runtime::Share& s : shares.by_thread[static_cast<size_t>(t)])
                    first[s.kernel].fn(c_.buffers.data() + first[s.kernel].first_buffer, symbols_, s.begin, s.end);
        };
        const auto n = static_cast<int64_t>(shares.by_thread.size());
        if (n == 1)
            run(0, 1);
        else
            at::parallel_for(0, n, 1, run);
    }

    void keep_result(int slot, const at::Tensor& t) {
        const SlotPlan& p = e_.slots_[slot];
        if (!t.defined() || !p.defined) return;
        at::Tensor kept = t;
        if (p.layout_matters) {
            BRAZE_CHECK(t.sizes() == sizes(p) && t.scalar_type() == p.dtype,
                        "an operator's result has sizes " + c10::str(t.sizes()) + ", expected " + c10::str(sizes(p)));
            // (its shape function promised another layout, or kernels cannot see its lazy negation or lack of memory)
            if (t.is_neg() || t.is_conj() || t._is_zerotensor() || !same_layout(t, strides(p))) {
                kept = at::detail::empty_strided_cpu(sizes(p), strides(p), p.dtype);
                kept.copy_(t);
            }
            c_.pointers[slot] = data_of(kept);
        }
        c_.tensors[slot] = std::move(kept);
    }
    static bool same_layout(const at::Tensor& t, c10::IntArrayRef strides) {
        for (int64_t i = 0; i < t.dim(); ++i)
            if (t.size(i) > 1 && t.stride(i) != strides[i]) return false;
        return true;
    }

    void call(const Call& c) {
        std::vector<c10::IValue>& stack = c_.stack;
        stack.clear();
        c.prepared.push(
            stack, symbols_, [&](int k) { return tensor(c.operands[k]); }, [&](int k) { return tensor(c.results[k]); });
        if (c.tracked_view) {
            c10::impl::ForceDispatchKeyGuard guard(outside_);
            // (only a program whose outputs need no gradient comes here)
            c10::AutoGradMode mode(at::GradMode::is_enabled() && !inputs_need_grad());
            c.prepared.call(&stack);
        } else {
            c.prepared.call(&stack);
        }
        if (!c.into_results) {
            size_t k = 0;
            for (const c10::IValue& v : stack) {
                if (v.isTensor()) {
                    if (k < c.results.size()) keep_result(c.results[k], v.toTensor());
                    ++k;
                } else if (v.isTensorList()) {
                    for (const at::Tensor& t : v.toTensorVector()) {
                        if (k < c.results.size()) keep_result(c.results[k], t);
                        ++k;
                    }
                }
            }
        }
        stack.clear();
    }

    const Executor& e_;
    Context& c_;
    c10::ArrayRef<const at::Tensor*> inputs_;
    const c10::impl::LocalDispatchKeySet& outside_;
    const int64_t* symbols_;
    c10::DimVector scratch_sizes_, scratch_strides_;
};

void Executor::read_symbols(c10::ArrayRef<const at::Tensor*> inputs, c10::ArrayRef<int64_t> integers,
                            int64_t* values) const {
    for (size_t i = 0; i < symbol_source_.size(); ++i) {
        auto [input, axis] = symbol_source_[i];
        values[i] = axis == SymbolTable::kItself ? integers[input] : inputs[input]->size(axis);
    }
}

std::vector<int64_t> Executor::symbols_of(c10::ArrayRef<const at::Tensor*> inputs,
                                          c10::ArrayRef<int64_t> integers) const {
    std::vector<int64_t> values(symbol_source_.size());
    read_symbols(inputs, integers, values.data());
    return values;
}

bool Executor::may_share(int output) const {
    int root = slots_.at(program_->outputs.at(output)).root;
    if (slots_[root].kind != SlotKind::Fresh) return true;
    for (size_t i = 0; i < program_->outputs.size(); ++i)
        if (static_cast<int>(i) != output && slots_.at(program_->outputs[i]).root == root) return true;
    return false;
}

void Executor::run(c10::ArrayRef<const at::Tensor*> inputs, c10::ArrayRef<int64_t> integers,
                   std::vector<at::Tensor>& outputs) const {
    Lease lease(*this);
    read_symbols(inputs, integers, lease.context->symbols.data());
    run_in(*lease.context, inputs, nullptr, outputs);
}

void Executor::run_with(c10::ArrayRef<int64_t> symbols, std::vector<at::Tensor> inputs,
                        std::vector<at::Tensor>& outputs) const {
    Lease lease(*this);
    std::copy(symbols.begin(), symbols.end(), lease.context->symbols.begin());
    std::vector<const at::Tensor*> places;
    for (const at::Tensor& t : inputs) places.push_back(&t);
    run_in(*lease.context, places, &inputs, outputs);
}

void Executor::run_in(Context& context, c10::ArrayRef<const at::Tensor*> inputs, std::vector<at::Tensor>* owned,
                      std::vector<at::Tensor>& outputs) const {
    c10::impl::LocalDispatchKeySet outside = c10::impl::tls_local_dispatch_key_set();
    outside.excluded_ = outside.excluded_ | c10::autocast_dispatch_keyset;
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                             c10::autocast_dispatch_keyset);
    Run run(*this, context, inputs, outside);
    run.steps(owned);
    outputs.clear();
    for (int slot : program_->outputs) outputs.push_back(run.output(slot));
    for (int i : mutated_)
        if (!inputs[i]->is_inference()) inputs[i]->unsafeGetTensorImpl()->bump_version();
}

}  // namespace braze::bridge
