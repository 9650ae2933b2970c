#include "core/schedule/plan.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "core/schedule/arena.h"
#include "core/support/error.h"

namespace braze::schedule {

using ir::Node;
using ir::Op;
using ir::Value;
using runtime::Slot;
using runtime::SlotKind;

namespace {

constexpr size_t kNamedOps = 8;

bool has_out_variant(std::string_view callee) {
    constexpr std::string_view table[] = {
#define OUT_VARIANT(callee) callee,
#include "core/schedule/out_variants.def"
#undef OUT_VARIANT
    };
    return std::find(std::begin(table), std::end(table), callee) != std::end(table);
}

class Planner {
  public:
    Planner(const Facts& facts, const Units& units, const std::vector<Cluster>& clusters, std::vector<Step> steps,
            const Homes& homes, runtime::Program& p)
        : facts_(facts), units_(units), clusters_(clusters), steps_(std::move(steps)), homes_(homes), p_(p) {
        slot_of_.assign(static_cast<size_t>(facts.graph.id_bound()), -1);
        last_use_.assign(slot_of_.size(), -1);
    }

    void run() {
        p_.symbols = facts_.graph.symbols;
        for (size_t i = 0; i < facts_.graph.inputs.size(); ++i) {
            Slot s{SlotKind::Input, facts_.graph.inputs[i]->type};
            s.input = static_cast<int>(i);
            slot_of_[index(facts_.graph.inputs[i])] = add(std::move(s), facts_.graph.inputs[i]);
        }
        find_last_uses();
        for (size_t i = 0; i < steps_.size(); ++i) {
            now_ = static_cast<int>(i);
            if (steps_[i].call)
                call(steps_[i]);
            else
                kernel(steps_[i]);
            release_dead();
        }
        now_ = static_cast<int>(steps_.size());
        for (const Value* v : facts_.graph.outputs) {
            const int s = slot(v);
            ensure(s);
            p_.outputs.push_back(s);
        }
        p_.arena_bytes = arena_.size();
    }

  private:
    static size_t index(const Value* v) { return static_cast<size_t>(v->id); }

    int add(Slot s, const Value* holder) {
        s.escapes = holder && facts_.of(holder).escapes;
        p_.slots.push_back(std::move(s));
        ready_.push_back(false);
        owner_.push_back(holder ? facts_.of(holder).owner : nullptr);
        return static_cast<int>(p_.slots.size()) - 1;
    }

    // ---- liveness, in steps; by the value that holds the memory

    void use(const Value* v, int step) {
        int& last = last_use_[index(facts_.of(v).owner)];
        last = std::max(last, step);
    }
    void find_last_uses() {
        for (size_t i = 0; i < steps_.size(); ++i) {
            for (const Value* v : steps_[i].reads) use(v, static_cast<int>(i));
            for (const Value* v : steps_[i].writes) use(v, static_cast<int>(i));
        }
    }

    // ---- slots

    static std::optional<int64_t> bytes(const ir::TensorType& t) {
        auto n = extent(t).as_const();
        return n ? std::optional<int64_t>(*n * ir::size_of(t.dtype)) : std::nullopt;
    }

    // The slot of a value in memory or of a view of one.
    int slot(const Value* v) {
        int& s = slot_of_[index(v)];
        if (s >= 0) return s;
        const Value* memory = memory_of(facts_, v);
        if (const Value* home = homes_.of(v)) return slot_of_[index(v)] = slot(home);
        if (memory == v) return slot_of_[index(v)] = computed(v);
        const ValueFacts& f = facts_.of(v);
        Slot view{SlotKind::View, v->type};
        const int base = slot(memory);
        view.base = base;
        view.offset = memory == f.base ? f.in_base.offset : f.layout->offset;
        return slot_of_[index(v)] = add(std::move(view), v);
    }

    int computed(const Value* v) {
        BRAZE_CHECK(is_computed(*v->node) || facts_.of(v).stored || v->node->op == Op::Call,
                    "value %" + std::to_string(v->id) + " is not in memory");
        Slot s{SlotKind::Arena, v->type};
        if (v->node->op == Op::Call) {
            if (!writes_arena(v)) s.kind = SlotKind::CallResult;
        } else if (facts_.of(facts_.of(v).owner).escapes) {
            s.kind = SlotKind::Fresh;
        }
        return add(std::move(s), v);
    }

    bool writes_arena(const Value* v) const {
        const Node& n = *v->node;
        return n.results.size() == 1 && has_out_variant(n.callee) && n.writes.empty() && !facts_.of(v).escapes &&
               facts_.of(v).owner == v && ir::is_dense(v->type) && bytes(v->type).has_value();
    }

    // Memory or a view there before it is used.
    void ensure(int s) {
        if (ready_[static_cast<size_t>(s)]) return;
        ready_[static_cast<size_t>(s)] = true;
        Slot& slot = p_.slots[static_cast<size_t>(s)];
        switch (slot.kind) {
            case SlotKind::Input:
            case SlotKind::CallResult: return;
            case SlotKind::View:
                ensure(slot.base);
                p_.thunks.emplace_back(runtime::MakeView{s});
                return;
            case SlotKind::Fresh: p_.thunks.emplace_back(runtime::Allocate{s}); return;
            case SlotKind::Arena:
                if (auto n = bytes(slot.type))
                    slot.arena_offset = arena_.allocate(*n);
                else
                    p_.thunks.emplace_back(runtime::Allocate{s});
                live_.push_back(s);
                return;
        }
    }

    // ---- steps

    void kernel(Step& step) {
        runtime::RunKernel run;
        Nest& nest = step.nest;
        take_in_place(nest);
        for (size_t i = 0; i < nest.buffers.size(); ++i) {
            const int s = slot(nest.buffers[i]);
            ensure(s);
            run.slots.push_back(s);
        }
        run.offsets = std::move(nest.offsets);
        run.outer_count = nest.outer_count;
        run.work = nest.work;
        run.origin = origin(step);
        auto [it, fresh] = kernels_.emplace(std::move(nest.text), static_cast<int>(p_.kernels.size()));
        if (fresh) p_.kernels.push_back(std::move(nest.kernel));
        run.kernel = it->second;
        p_.thunks.emplace_back(std::move(run));
    }

    // A result may take over the memory of an operand that dies here.
    void take_in_place(const Nest& nest) {
        for (size_t w = 0; w < nest.kernel.params.size(); ++w) {
            const int r = nest.kernel.params[w].inplace_of;
            if (r < 0) continue;
            const Value *from = nest.buffers[static_cast<size_t>(r)], *to = nest.buffers[w];
            const int a = slot(from), b = slot(to);
            Slot &source = p_.slots[static_cast<size_t>(a)], &target = p_.slots[static_cast<size_t>(b)];
            if (source.kind != SlotKind::Arena || target.kind != SlotKind::Arena || ready_[static_cast<size_t>(b)])
                continue;
            if (source.arena_offset < 0 || facts_.of(from).owner != from) continue;
            if (last_use_[index(from)] != now_ || bytes(source.type) != bytes(target.type)) continue;
            if (std::find(live_.begin(), live_.end(), a) == live_.end()) continue;
            const auto shares = [&](const Value* v) { return v != from && facts_.of(v).owner == from; };
            if (std::any_of(nest.buffers.begin(), nest.buffers.end(), shares)) continue;
            std::erase(live_, a);
            target.arena_offset = source.arena_offset;
            ready_[static_cast<size_t>(b)] = true;
            live_.push_back(b);
        }
    }

    void call(const Step& step) {
        runtime::RunCall run;
        run.node = step.call;
        for (const Value* v : step.call->operands) {
            const int s = slot(v);
            ensure(s);
            mark_used(s);
            run.operands.push_back(s);
        }
        for (const Value* v : step.call->results) {
            const int s = slot(v);
            ensure(s);
            if (p_.slots[static_cast<size_t>(s)].kind == SlotKind::CallResult) live_.push_back(s);
            mark_used(s);
            run.results.push_back(s);
        }
        run.origin = origin(step);
        p_.thunks.emplace_back(std::move(run));
    }
    void mark_used(int s) {
        const Slot& slot = p_.slots[static_cast<size_t>(s)];
        if (slot.kind == SlotKind::View && std::find(live_.begin(), live_.end(), s) == live_.end()) live_.push_back(s);
    }

    // Everything whose memory nobody needs any more. Views go with the memory that they show.
    void release_dead() {
        std::vector<int> kept;
        for (int s : live_) {
            const Slot& slot = p_.slots[static_cast<size_t>(s)];
            const Value* owner = owner_[static_cast<size_t>(s)];
            if (slot.escapes || facts_.of(owner).escapes || last_use_[index(owner)] > now_) {
                kept.push_back(s);
                continue;
            }
            p_.thunks.emplace_back(runtime::Release{s});
            if (slot.arena_offset >= 0) arena_.release(slot.arena_offset, *bytes(slot.type));
        }
        live_ = std::move(kept);
    }

    // ---- texts

    int origin(const Step& step) {
        std::string text;
        int line = -1;
        if (step.call) {
            text = step.call->callee;
            line = step.call->line;
        } else {
            std::vector<std::string_view> ops;
            bool more = false;
            for (int u : clusters_[static_cast<size_t>(step.cluster)].units) {
                const Node& n = units_.list[static_cast<size_t>(u)].node();
                if (n.line >= 0) line = n.line;
                const std::string_view op = ir::name(n.op);
                if (std::find(ops.begin(), ops.end(), op) != ops.end()) continue;
                if (ops.size() < kNamedOps)
                    ops.push_back(op);
                else
                    more = true;
            }
            for (std::string_view op : ops) text += (text.empty() ? "" : ", ") + std::string(op);
            if (more) text += ", ...";
        }
        if (line >= 0 && line < static_cast<int>(facts_.graph.lines.size()))
            text += " (" + facts_.graph.lines[static_cast<size_t>(line)] + ")";
        p_.origins.push_back(std::move(text));
        return static_cast<int>(p_.origins.size()) - 1;
    }

    const Facts& facts_;
    const Units& units_;
    const std::vector<Cluster>& clusters_;
    std::vector<Step> steps_;
    const Homes& homes_;
    runtime::Program& p_;
    std::vector<int> slot_of_, last_use_;  // by value id
    std::vector<const Value*> owner_;      // by slot
    std::vector<bool> ready_;
    std::vector<int> live_;  // slots to be released
    std::unordered_map<std::string, int> kernels_;
    Arena arena_;
    int now_ = 0;
};

}  // namespace

void plan(const Facts& facts, const Units& units, const std::vector<Cluster>& clusters, std::vector<Step> steps,
          const Homes& homes, runtime::Program& program) {
    Planner(facts, units, clusters, std::move(steps), homes, program).run();
}

}  // namespace braze::schedule
