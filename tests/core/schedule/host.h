// A small host for programs: runs kernels by their code if they have any, else by the interpreter, calls by a handler,
// and poisons memory whose last use is over.
#pragma once
#include <cstring>
#include <optional>

#include "core/ir/evaluate.h"
#include "core/loops/kernel.h"
#include "core/runtime/batches.h"
#include "core/runtime/program.h"
#include "core/support/error.h"

namespace braze::testing {

class Host {
  public:
    Host(const runtime::Program& p, ir::SymbolValues symbols = {}, ir::CallHandler calls = {})
        : p_(p), symbols_(std::move(symbols)), calls_(std::move(calls)) {}

    bool failed_check = false;
    bool in_batches = false;  // the kernels of a batch last one first, without poison in the arena

    std::vector<ir::HostTensor> run(const std::vector<ir::HostTensor>& inputs) {
        arena_ = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(p_.arena_bytes), std::byte{0xab});
        slots_.assign(p_.slots.size(), std::nullopt);
        for (size_t i = 0; i < p_.slots.size(); ++i)
            if (p_.slots[i].kind == runtime::SlotKind::Input)
                slots_[i] = inputs[static_cast<size_t>(p_.slots[i].input)];
            else if (p_.slots[i].arena_offset >= 0)
                slots_[i] = in_arena(p_.slots[i]);
        for (const Expr& s : p_.symbols) numbers_.push_back(number(s));
        for (const size_t i : order()) {
            std::visit([&](const auto& x) { step(x); }, p_.thunks[i]);
            if (failed_check) return {};
        }
        std::vector<ir::HostTensor> out;
        for (int s : p_.outputs) out.push_back(slot(s));
        return out;
    }

  private:
    using Expr = shapes::Expr;

    std::vector<size_t> order() const {
        std::vector<size_t> all;
        if (in_batches)
            for (const runtime::Batch& b : runtime::batches(p_)) all.insert(all.end(), b.rbegin(), b.rend());
        else
            for (size_t i = 0; i < p_.thunks.size(); ++i) all.push_back(i);
        return all;
    }
    int64_t number(const Expr& e) const {
        auto v = e.evaluate([&](const Expr& s) { return symbols_ ? symbols_(s) : std::nullopt; });
        BRAZE_CHECK(v, "a symbol of " + e.str() + " has no value");
        return *v;
    }
    std::vector<int64_t> numbers(const std::vector<Expr>& es) const {
        std::vector<int64_t> out;
        for (const Expr& e : es) out.push_back(number(e));
        return out;
    }
    ir::HostTensor& slot(int s) {
        BRAZE_CHECK(slots_[static_cast<size_t>(s)],
                    "slot %" + std::to_string(s) + " is used before it is there or after its release");
        return *slots_[static_cast<size_t>(s)];
    }
    ir::HostTensor in_arena(const runtime::Slot& s) {
        ir::HostTensor t = ir::HostTensor::empty(s.type.dtype, numbers(s.type.sizes), numbers(s.type.strides));
        const size_t end = static_cast<size_t>(s.arena_offset) + t.bytes->size();
        BRAZE_CHECK(end <= arena_->size() && s.arena_offset % 64 == 0,
                    "an arena slot ends at byte " + std::to_string(end));
        t.bytes = arena_;
        t.offset = s.arena_offset / ir::size_of(s.type.dtype);
        return t;
    }
    ir::HostTensor allocate(const runtime::Slot& s) {
        ir::HostTensor t = ir::HostTensor::empty(s.type.dtype, numbers(s.type.sizes), numbers(s.type.strides));
        std::fill(t.bytes->begin(), t.bytes->end(), std::byte{0xcd});
        return t;
    }

    void step(const runtime::Allocate& t) {
        const runtime::Slot& s = p_.slots[static_cast<size_t>(t.slot)];
        BRAZE_CHECK(s.kind == runtime::SlotKind::Fresh || (s.kind == runtime::SlotKind::Arena && s.arena_offset < 0),
                    "nothing to allocate");
        slots_[static_cast<size_t>(t.slot)] = allocate(s);
    }
    void step(const runtime::MakeView& t) {
        const runtime::Slot& s = p_.slots[static_cast<size_t>(t.slot)];
        ir::HostTensor view = slot(s.base);
        view.sizes = numbers(s.type.sizes);
        view.strides = numbers(s.type.strides);
        view.offset += number(s.offset);
        slots_[static_cast<size_t>(t.slot)] = view;
    }
    void step(const runtime::Release& t) {
        const runtime::Slot& s = p_.slots[static_cast<size_t>(t.slot)];
        BRAZE_CHECK(!s.escapes && s.kind != runtime::SlotKind::Input,
                    "slot %" + std::to_string(t.slot) + " must not be released");
        auto& held = slots_[static_cast<size_t>(t.slot)];
        BRAZE_CHECK(held, "slot %" + std::to_string(t.slot) + " is released twice");
        if (s.arena_offset >= 0) {
            const size_t bytes = ir::HostTensor::empty(held->dtype, held->sizes, held->strides).bytes->size();
            if (in_batches) return;  // (another slot may already be there)
            std::memset(arena_->data() + s.arena_offset, 0xee, bytes);
        } else if (s.kind != runtime::SlotKind::View && held->bytes.use_count() == 1) {
            std::fill(held->bytes->begin(), held->bytes->end(), std::byte{0xee});
        }
        held.reset();
    }
    void step(const runtime::RunKernel& t) {
        const loops::Kernel& k = p_.kernels[static_cast<size_t>(t.kernel)];
        BRAZE_CHECK(k.symbols == p_.symbols, "a kernel takes the program's symbols");
        std::vector<void*> buffers;
        for (size_t i = 0; i < t.slots.size(); ++i) {
            ir::HostTensor& x = slot(t.slots[i]);
            const int64_t at = x.offset + number(t.offsets[i]);
            buffers.push_back(x.bytes->data() + at * ir::size_of(x.dtype));
        }
        // In pieces, last one first: outer points are independent.
        const int64_t count = number(t.outer_count), middle = count / 3;
        for (auto [begin, end] : {std::pair{middle, count}, std::pair{int64_t{0}, middle}})
            if (!p_.code.empty())
                failed_check |=
                    p_.code[static_cast<size_t>(t.kernel)].fn(buffers.data(), numbers_.data(), begin, end) != 0;
            else
                failed_check |= !loops::interpret(k, buffers.data(), numbers_.data(), begin, end);
    }
    void step(const runtime::RunCall& t) {
        const ir::Node& n = *t.node;
        std::vector<ir::HostTensor> operands, results;
        for (size_t i = 0; i < t.operands.size(); ++i) {
            operands.push_back(slot(t.operands[i]));
            BRAZE_CHECK(operands.back().sizes == numbers(n.operands[i]->type.sizes) &&
                            operands.back().strides == numbers(n.operands[i]->type.strides) &&
                            operands.back().dtype == n.operands[i]->type.dtype,
                        "operand " + std::to_string(i) + " of " + n.callee + " has another type than in the graph");
        }
        for (size_t i = 0; i < t.results.size(); ++i) {
            const runtime::Slot& s = p_.slots[static_cast<size_t>(t.results[i])];
            if (s.kind == runtime::SlotKind::Arena) {
                results.push_back(slot(t.results[i]));
                continue;
            }
            ir::HostTensor r = allocate(s);
            if (!n.aliases.empty() && n.aliases[i] >= 0) {
                const ir::HostTensor& base = operands[static_cast<size_t>(n.aliases[i])];
                r.bytes = base.bytes;
                r.offset = base.offset;
            }
            results.push_back(r);
        }
        calls_(n, operands, results);
        for (size_t i = 0; i < t.results.size(); ++i) slots_[static_cast<size_t>(t.results[i])] = results[i];
    }

    const runtime::Program& p_;
    ir::SymbolValues symbols_;
    ir::CallHandler calls_;
    std::shared_ptr<std::vector<std::byte>> arena_;
    std::vector<std::optional<ir::HostTensor>> slots_;
    std::vector<int64_t> numbers_;
};

}  // namespace braze::testing
