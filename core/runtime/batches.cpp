#include "core/runtime/batches.h"

#include <algorithm>
#include <map>
#include <optional>

namespace braze::runtime {

namespace {

// A kernel with less work may run earlier, beside one that it does not follow; others stay near what they read.
constexpr int64_t kSmall = 4096;
// With more work a kernel gains nothing from company, which would only keep memory longer.
constexpr int64_t kLarge = 64 * kGrain;
// Memory that a batch may ask for earlier than one of its kernels needs it.
constexpr int64_t kEarlyBytes = int64_t{1024} * 1024;
// Pieces of a kernel start at multiples of this, so that two threads do not write the same cache line.
constexpr int64_t kPiece = 64;

// Disjoint ranges of addresses.
class Ranges {
  public:
    bool meets(int64_t from, int64_t to) const {
        auto it = ranges_.upper_bound(from);  // the first that starts later
        if (it != ranges_.end() && it->first < to) return true;
        return it != ranges_.begin() && std::prev(it)->second > from;
    }
    void add(int64_t from, int64_t to) {
        auto it = ranges_.upper_bound(from);
        if (it != ranges_.begin() && std::prev(it)->second >= from) --it;
        while (it != ranges_.end() && it->first <= to) {
            from = std::min(from, it->first);
            to = std::max(to, it->second);
            it = ranges_.erase(it);
        }
        ranges_.emplace(from, to);
    }

  private:
    std::map<int64_t, int64_t> ranges_;  // end by start
};

std::optional<int64_t> bytes(const Slot& s) {
    Expr last(0);
    for (size_t i = 0; i < s.type.sizes.size(); ++i) {
        if (s.type.sizes[i] == Expr(0)) return 0;
        last = last + (s.type.sizes[i] - Expr(1)) * s.type.strides[i];
    }
    const auto n = last.as_const();
    return n ? std::optional<int64_t>((*n + 1) * ir::size_of(s.type.dtype)) : std::nullopt;
}

class Batcher {
  public:
    explicit Batcher(const Program& p) : p_(p) {
        // Slots that are no place in the arena have addresses after it, those that share memory the same one.
        for (size_t i = 0; i < p.slots.size(); ++i) root_.push_back(i);
        std::map<int, size_t> of_storage;
        for (size_t i = 0; i < p.slots.size(); ++i) {
            const Slot& s = p.slots[i];
            if (s.kind == SlotKind::View) join(i, static_cast<size_t>(s.base));
            if (s.kind != SlotKind::Input || static_cast<size_t>(s.input) >= p.graph.inputs.size()) continue;
            const int storage = p.graph.inputs[static_cast<size_t>(s.input)]->storage;
            if (storage >= 0) join(i, of_storage.emplace(storage, i).first->second);
        }
        for (const Thunk& t : p.thunks) {
            const auto* call = std::get_if<RunCall>(&t);
            if (!call) continue;
            const std::vector<int>& aliases = call->node->aliases;
            for (size_t i = 0; i < aliases.size() && i < call->results.size(); ++i)
                if (aliases[i] >= 0)
                    join(static_cast<size_t>(call->results[i]),
                         static_cast<size_t>(call->operands[static_cast<size_t>(aliases[i])]));
        }
    }

    std::vector<Batch> run() {
        for (size_t i = 0; i < p_.thunks.size(); ++i) {
            const Thunk& t = p_.thunks[i];
            if (const auto* k = std::get_if<RunKernel>(&t))
                kernel(i, *k);
            else if (early(t))
                out_.push_back({i});
            else if (const auto* r = std::get_if<Release>(&t); r && slot(r->slot).arena_offset >= 0)
                released_.push_back(i);
            else
                alone(i);
        }
        finish();
        return std::move(out_);
    }

  private:
    struct Open {
        Batch thunks;
        Ranges touched, written;
    };
    struct Access {
        int64_t from, to;
        bool written;
    };

    const Slot& slot(int i) const { return p_.slots[static_cast<size_t>(i)]; }
    size_t root(size_t i) const {
        while (root_[i] != i) i = root_[i];
        return i;
    }
    void join(size_t i, size_t with) { root_[root(i)] = root(with); }

    // Can it happen before the kernels that are waiting?
    bool early(const Thunk& t) const {
        if (std::holds_alternative<MakeView>(t)) return true;
        const auto* a = std::get_if<Allocate>(&t);
        if (!a) return false;
        if (open_.empty()) return true;
        const auto n = bytes(slot(a->slot));
        return n && *n <= kEarlyBytes;
    }

    void kernel(size_t i, const RunKernel& k) {
        const auto count = k.outer_count.as_const(), work = k.work.as_const();
        const bool known = count && work;
        // (what an index out of range ends has written nothing that others see)
        if (p_.kernels[static_cast<size_t>(k.kernel)].has_checks || (known && *count * *work > kLarge)) return alone(i);
        const std::vector<Access> accesses = accesses_of(k);
        size_t place = open_.size();
        while (place > 0 && !follows(accesses, open_[place - 1])) --place;
        if (place < open_.size() && !(known && *count * *work <= kSmall)) place = open_.size() - 1;
        if (place == open_.size()) open_.emplace_back();
        Open& batch = open_[place];
        batch.thunks.push_back(i);
        for (const Access& a : accesses) {
            batch.touched.add(a.from, a.to);
            if (a.written) batch.written.add(a.from, a.to);
        }
    }

    static bool follows(const std::vector<Access>& accesses, const Open& batch) {
        return std::any_of(accesses.begin(), accesses.end(), [&](const Access& a) {
            return (a.written ? batch.touched : batch.written).meets(a.from, a.to);
        });
    }

    std::vector<Access> accesses_of(const RunKernel& k) const {
        const std::vector<loops::Param>& params = p_.kernels[static_cast<size_t>(k.kernel)].params;
        std::vector<Access> found;
        for (size_t i = 0; i < k.slots.size(); ++i) {
            const size_t r = root(static_cast<size_t>(k.slots[i]));
            const Slot& s = p_.slots[r];
            const auto n = s.arena_offset >= 0 ? bytes(s) : std::nullopt;
            const int64_t from = n ? s.arena_offset : p_.arena_bytes + static_cast<int64_t>(r);
            found.push_back({from, from + n.value_or(1), params[i].written});
        }
        return found;
    }

    void alone(size_t i) {
        finish();
        out_.push_back({i});
    }
    void finish() {
        for (Open& b : open_) out_.push_back(std::move(b.thunks));
        for (size_t i : released_) out_.push_back({i});
        open_.clear();
        released_.clear();
    }

    const Program& p_;
    std::vector<size_t> root_;  // by slot: one that lies in the same memory, or itself
    std::vector<Open> open_;    // in the order in which they will run
    std::vector<size_t> released_;
    std::vector<Batch> out_;
};

}  // namespace

std::vector<Batch> batches(const Program& program) { return Batcher(program).run(); }

std::vector<std::vector<Share>> share_out(const std::vector<Amount>& kernels, int threads) {
    int64_t total = 0, small = 0;
    for (const Amount& a : kernels) total += std::max<int64_t>(a.count, 0) * a.work;
    threads = static_cast<int>(std::clamp<int64_t>((total + kGrain - 1) / kGrain, 1, std::max(threads, 1)));
    const auto is_large = [&](const Amount& a) { return a.count * a.work >= threads * kGrain; };
    for (const Amount& a : kernels)
        if (!is_large(a)) small += std::max<int64_t>(a.count, 0) * a.work;
    // The work of a kernel is estimated: a large one is shared by all threads, so that an error meets all of them. The
    // others are laid end to end and cut where a thread has its part.
    std::vector<std::vector<Share>> shares(static_cast<size_t>(threads));
    int64_t before = 0;  // of the small ones
    for (size_t k = 0; k < kernels.size(); ++k) {
        const Amount& a = kernels[k];
        const bool large = is_large(a);
        const int64_t piece = a.count >= 16 * threads * kPiece ? kPiece : 1;
        int64_t begin = 0;
        for (int t = 0; t < threads && begin < a.count; ++t) {
            int64_t end = large ? a.count * (t + 1) / threads : (small * (t + 1) / threads - before) / a.work;
            end = std::clamp((end + piece / 2) / piece * piece, begin, a.count);
            if (t + 1 == threads) end = a.count;
            if (begin < end) shares[static_cast<size_t>(t)].push_back({k, begin, end});
            begin = end;
        }
        if (!large) before += std::max<int64_t>(a.count, 0) * a.work;
    }
    return shares;
}

}  // namespace braze::runtime
