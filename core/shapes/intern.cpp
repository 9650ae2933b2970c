// One node per distinct expression. Constants near 0 lie in a table; the rest is found in hash tables, sharded so that
// threads seldom wait for each other.
#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "core/shapes/internal.h"
#include "core/support/error.h"

namespace braze::shapes {

namespace {

constexpr int64_t kTableLo = -64, kTableHi = 1024;
constexpr size_t kShards = 16;

size_t mix(size_t h, size_t v) {
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6u) + (h >> 2u);
    return h * 0xff51afd7ed558ccdull;
}

size_t hash_of(const ExprNode& n) {
    size_t h = mix(static_cast<size_t>(n.kind), static_cast<size_t>(n.value));
    for (const Expr& e : n.operands) h = mix(h, e.hash());
    if (n.kind == ExprKind::Symbol) {
        h = mix(h, std::hash<std::string>()(n.name));
        h = mix(mix(h, static_cast<size_t>(n.range.lo)), static_cast<size_t>(n.range.hi));
        if (n.extent) h = mix(h, n.extent->hash);
    }
    return h ^ (h >> 29u);
}

bool same(const ExprNode& a, const ExprNode& b) {
    if (a.kind != b.kind || a.value != b.value || a.operands != b.operands) return false;
    return a.kind != ExprKind::Symbol || (a.name == b.name && a.range == b.range && a.extent == b.extent);
}

struct Shard {
    struct Hash {
        size_t operator()(const ExprNode* n) const { return n->hash; }
    };
    struct Equal {
        bool operator()(const ExprNode* a, const ExprNode* b) const { return same(*a, *b); }
    };
    std::mutex mutex;
    std::deque<ExprNode> nodes;
    std::unordered_set<const ExprNode*, Hash, Equal> set;
};

struct Interner {
    std::array<Shard, kShards> shards;
    std::mutex names_mutex;
    std::unordered_map<std::string, const ExprNode*> first_names;
    std::vector<ExprNode> constants;

    Interner() : constants(static_cast<size_t>(kTableHi - kTableLo)) {
        for (int64_t v = kTableLo; v < kTableHi; ++v) constants[static_cast<size_t>(v - kTableLo)] = constant(v);
    }
    static ExprNode constant(int64_t v) {
        ExprNode n{.kind = ExprKind::Const, .value = v, .range = {v, v}};
        n.hash = hash_of(n);
        return n;
    }
    const ExprNode* find(ExprNode&& n) {
        Shard& shard = shards[(n.hash >> 7u) % kShards];
        std::lock_guard lock(shard.mutex);
        auto it = shard.set.find(&n);
        if (it != shard.set.end()) return *it;
        shard.nodes.push_back(std::move(n));
        const ExprNode* made = &shard.nodes.back();
        shard.set.insert(made);
        return made;
    }
};

Interner& interner() {
    static Interner& instance = *new Interner;  // never destroyed: expressions may outlive static destruction
    return instance;
}

}  // namespace

Expr::Expr(int64_t value) {
    Interner& in = interner();
    if (value >= kTableLo && value < kTableHi) {
        node_ = &in.constants[static_cast<size_t>(value - kTableLo)];
        return;
    }
    struct Recent {
        int64_t value = 0;
        const ExprNode* node = nullptr;
    };
    // Spares the lock for the constants of one graph. On the heap: the extension's thread-local block is static
    // (initial-exec), and the loader has little room for those.
    thread_local std::unique_ptr<std::array<Recent, 256>> recent;
    if (!recent) recent = std::make_unique<std::array<Recent, 256>>();
    Recent& r = (*recent)[(static_cast<uint64_t>(value) * 0x9e3779b97f4a7c15ull) >> 56u];
    if (!r.node || r.value != value) r = {value, in.find(Interner::constant(value))};
    node_ = r.node;
}

namespace {
Expr intern_symbol(const std::string& name, Range range, const ExprNode* extent) {
    ExprNode n{
        .kind = ExprKind::Symbol, .symbolic_axis = extent != nullptr, .range = range, .name = name, .extent = extent};
    n.hash = hash_of(n);
    Interner& in = interner();
    const ExprNode* made = in.find(std::move(n));
    std::lock_guard lock(in.names_mutex);
    in.first_names.emplace(name, made);
    return Expr(made);
}
}  // namespace

Expr Expr::symbol(const std::string& name, Range range) {
    BRAZE_CHECK(!name.empty(), "a symbol needs a name");
    BRAZE_CHECK(range.lo <= range.hi, "empty range of symbol " + name);
    return intern_symbol(name, range, nullptr);
}

Expr Expr::axis(const std::string& name, const Expr& extent) {
    int64_t hi = extent.range().hi;
    if (hi != detail::kMax) hi = hi > 0 ? hi - 1 : 0;  // an axis of extent 0 has no values: any range is right
    return intern_symbol(name, {0, hi}, extent.is_const() ? nullptr : extent.node());
}

namespace detail {

Expr intern(ExprKind kind, std::vector<Expr> operands) {
    ExprNode n{.kind = kind, .range = {}, .operands = std::move(operands)};
    for (const Expr& e : n.operands) n.symbolic_axis |= e.node()->symbolic_axis;
    n.range = compound_range(kind, n.operands);
    n.hash = hash_of(n);
    return Expr(interner().find(std::move(n)));
}

std::optional<Expr> first_symbol(const std::string& name) {
    Interner& in = interner();
    std::lock_guard lock(in.names_mutex);
    auto it = in.first_names.find(name);
    if (it == in.first_names.end()) return std::nullopt;
    return Expr(it->second);
}

}  // namespace detail
}  // namespace braze::shapes
