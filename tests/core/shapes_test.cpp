#include "core/shapes/expr.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <thread>

#include "core/support/error.h"

namespace braze::shapes {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

Expr size(const char* name) { return Expr::symbol(name, {2, kMax}); }

TEST(Expr, ConstantsFold) {
    EXPECT_EQ(Expr(2) + Expr(3), Expr(5));
    EXPECT_EQ(floordiv(-7, 2), Expr(-4));
    EXPECT_EQ(mod(-7, 2), Expr(1));
    EXPECT_EQ(mod(7, -2), Expr(-1));
    EXPECT_EQ(min(3, 4), Expr(3));
    EXPECT_EQ(Expr(1'000'000'007), Expr(1'000'000'000) + 7);
    EXPECT_EQ(Expr().value(), 0);
    EXPECT_THROW(size("s0").value(), InternalError);
}

TEST(Expr, PolynomialsAreCanonical) {
    Expr a = size("s0"), b = size("s1");
    EXPECT_EQ((a + b) * (a - b), a * a - b * b);
    EXPECT_EQ(a * 2 + b - a, b + a);
    EXPECT_EQ((a - a), Expr(0));
    EXPECT_EQ((4 * (a + 3)).str(), "4*s0 + 12");
    EXPECT_EQ((b * a * 3 - a - 1).str(), "-s0 + 3*s0*s1 - 1");
}

TEST(Expr, SymbolsOfOtherRangesAreOtherSymbols) {
    Expr a = Expr::axis("i0", 8), b = Expr::axis("i0", 16);
    EXPECT_NE(a, b);
    EXPECT_EQ(a.str(), b.str());
    EXPECT_EQ(a, Expr::axis("i0", 8));
    EXPECT_EQ(floordiv(a, 8), Expr(0));
    EXPECT_EQ(floordiv(b, 8).str(), "i0 // 8");
}

TEST(Expr, DivisionByConstants) {
    Expr o = Expr::symbol("o0", {0, 99}), i = Expr::axis("i0", 64), s = size("s0");
    EXPECT_EQ(floordiv(o * 64 + i, 64), o);
    EXPECT_EQ(mod(o * 64 + i, 64), i);
    EXPECT_EQ(floordiv(o * 64 + i, 128), floordiv(o, 2));
    EXPECT_EQ(mod(o * 64 + i, 128), mod(o, 2) * 64 + i);
    EXPECT_EQ(floordiv(floordiv(s, 3), 5), floordiv(s, 15));
    EXPECT_EQ(mod(mod(s, 12), 4), mod(s, 4));
    EXPECT_EQ(floordiv(mod(s, 12), 4), mod(floordiv(s, 4), 3));
    EXPECT_EQ(floordiv(s, 4) * 4 + mod(s, 4), s);
    EXPECT_EQ(mod(s * 5 + 9, 4), mod(s + 1, 4));
    EXPECT_EQ(floordiv(s * 6, 4), floordiv(s * 3, 2));
}

TEST(Expr, DivisionBySymbols) {
    Expr n = size("s0"), m = size("s1");
    Expr o = Expr::axis("o0", n), i = Expr::axis("i0", m), j = Expr::axis("i1", 8);
    EXPECT_EQ(floordiv(o * m + i, m), o);
    EXPECT_EQ(mod(o * m + i, m), i);
    EXPECT_EQ(floordiv((o * m + i) * 8 + j, m * 8), o);
    EXPECT_EQ(mod((o * m + i) * 8 + j, m * 8), i * 8 + j);
    EXPECT_EQ(floordiv(o * m + i, n * m), Expr(0));
    EXPECT_EQ(floordiv(n * m, m), n);
    EXPECT_EQ(floordiv(n * (m + 1), m + 1), n);
    EXPECT_EQ(mod(n * m, n), Expr(0));
}

TEST(Expr, Comparisons) {
    Expr n = size("s0"), m = size("s1");
    EXPECT_TRUE(known_lt(1, n));
    EXPECT_TRUE(known_ne(n, 1));
    EXPECT_FALSE(known_ne(n, 2));
    EXPECT_TRUE(known_le(n, n * m));
    EXPECT_TRUE(known_lt(n, n * m));
    EXPECT_FALSE(known_le(n, m));
    EXPECT_TRUE(known_eq(n * m + n, n * (m + 1)));
    EXPECT_EQ(max(n, 1), n);
    EXPECT_EQ(min(n + 1, n), n);
    EXPECT_EQ(min(n, m).str(), "min(s0, s1)");
    EXPECT_TRUE(known_lt(Expr::axis("i0", n), n));
}

TEST(Expr, Affine) {
    Expr n = size("s0"), i = Expr::axis("i0", 64), o = Expr::axis("o0", n);
    auto r = (o * n + i * 3 * n + 7).affine_in(i);
    ASSERT_TRUE(r);
    EXPECT_EQ(r->first, n * 3);
    EXPECT_EQ(r->second, o * n + 7);
    EXPECT_FALSE((i * i).affine_in(i));
    EXPECT_FALSE(floordiv(i, 3).affine_in(i));
    EXPECT_EQ(n.affine_in(i)->first, Expr(0));
}

TEST(Expr, SubstituteAndSymbols) {
    Expr n = size("s0"), i = Expr::axis("i0", 64);
    Expr e = n * i + mod(i, 7);
    EXPECT_EQ(e.substitute([&](const Expr& s) { return s == i ? std::optional<Expr>(8) : std::nullopt; }), n * 8 + 1);
    std::vector<Expr> found;
    e.symbols(found);
    EXPECT_EQ(found.size(), 2u);
    EXPECT_FALSE(floordiv(n, i).evaluate([](const Expr&) { return 0; }));
}

TEST(Expr, ParseRejectsNonsense) {
    for (const char* text : {"", "1 +", "(1", "1)", "* 2", "min(1", "1 2", "99999999999999999999"})
        EXPECT_FALSE(Expr::parse(text)) << text;
    EXPECT_EQ(*Expr::parse("-9223372036854775808"), Expr(std::numeric_limits<int64_t>::min()));
    EXPECT_EQ(*Expr::parse("2*3 - -4"), Expr(10));
    EXPECT_EQ(*Expr::parse("-7 // 2"), Expr(-4));
}

TEST(Expr, RangesSaturate) {
    Expr n = size("s0");
    EXPECT_EQ((n * n * n).range().lo, 8);
    EXPECT_EQ((n * n * n).range().hi, kMax);
    EXPECT_EQ((n - 5).range().hi, kMax);
    EXPECT_EQ(floordiv(n, 4).range().hi, kMax);
    EXPECT_EQ((-n).range().hi, -2);
}

TEST(Expr, InterningIsThreadSafe) {
    std::vector<std::vector<Expr>> made(4);
    std::vector<std::thread> threads;
    for (auto& out : made)
        threads.emplace_back([&out] {
            for (int k = 0; k < 3000; ++k) out.push_back(Expr::symbol("u" + std::to_string(k % 50)) * (100000 + k) + k);
        });
    for (auto& t : threads) t.join();
    for (auto& out : made) EXPECT_EQ(out, made[0]);
}

// ---- random expressions against direct evaluation of the tree as it was written

struct Tree {
    ExprKind kind;
    Expr leaf;
    std::unique_ptr<Tree> a, b;
};

struct Random {
    std::mt19937 rng;
    std::vector<Expr> atoms;
    int64_t pick(int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(rng); }

    std::unique_ptr<Tree> tree(int depth) {
        auto t = std::make_unique<Tree>();
        if (depth == 0 || pick(0, 5) == 0) {
            t->kind = ExprKind::Const;
            static constexpr int64_t constants[] = {-8, -3, -1, 0, 1, 2, 3, 4, 5, 8, 12, 16, 64};
            t->leaf = pick(0, 2) == 0 ? Expr(constants[pick(0, 12)])
                                      : atoms[static_cast<size_t>(pick(0, static_cast<int64_t>(atoms.size()) - 1))];
            return t;
        }
        static constexpr ExprKind kinds[] = {ExprKind::Add, ExprKind::Add,      ExprKind::Add,      ExprKind::Mul,
                                             ExprKind::Mul, ExprKind::FloorDiv, ExprKind::FloorDiv, ExprKind::Mod,
                                             ExprKind::Mod, ExprKind::Min,      ExprKind::Max};
        t->kind = kinds[pick(0, 10)];
        t->a = tree(depth - 1);
        t->b = tree(depth - 1);
        return t;
    }
};

Expr build(const Tree& t) {
    if (!t.a) return t.leaf;
    Expr a = build(*t.a), b = build(*t.b);
    switch (t.kind) {
        case ExprKind::Add: return a + b;
        case ExprKind::Mul: return a * b;
        case ExprKind::FloorDiv: return floordiv(a, b);
        case ExprKind::Mod: return mod(a, b);
        case ExprKind::Min: return min(a, b);
        default: return max(a, b);
    }
}

using Values = std::map<const ExprNode*, int64_t>;

std::optional<__int128> direct(const Tree& t, const Values& v) {
    if (!t.a) return t.leaf.is_const() ? t.leaf.value() : v.at(t.leaf.node());
    auto a = direct(*t.a, v), b = direct(*t.b, v);
    if (!a || !b) return std::nullopt;
    constexpr __int128 limit = static_cast<__int128>(1) << 60;
    if (*a > limit || *a < -limit || *b > limit || *b < -limit) return std::nullopt;
    __int128 q = 0;
    if (t.kind == ExprKind::FloorDiv || t.kind == ExprKind::Mod) {
        if (*b == 0) return std::nullopt;
        q = *a / *b;
        if (*a % *b != 0 && (*a < 0) != (*b < 0)) --q;
    }
    switch (t.kind) {
        case ExprKind::Add: return *a + *b;
        case ExprKind::Mul: return *a * *b;
        case ExprKind::FloorDiv: return q;
        case ExprKind::Mod: return *a - q * *b;
        case ExprKind::Min: return *a < *b ? *a : *b;
        default: return *a > *b ? *a : *b;
    }
}

TEST(Expr, RandomExpressionsKeepTheirValue) {
    Random r{std::mt19937(7), {}};
    Expr n = size("s0"), m = Expr::symbol("s1", {0, kMax}), bounded = Expr::symbol("b0", {-3, 9}),
         free = Expr::symbol("t0");
    Expr o = Expr::axis("o0", n), i = Expr::axis("i0", 8), j = Expr::axis("i1", 64), k = Expr::axis("i2", n * 2);
    r.atoms = {n, m, bounded, free, o, i, j, k};
    std::map<std::string, Expr> names;
    for (const Expr& a : r.atoms) names.emplace(a.name(), a);
    int checked = 0;
    for (int round = 0; round < 20000; ++round) {
        auto tree = r.tree(static_cast<int>(r.pick(1, 4)));
        Expr e = build(*tree);
        auto parsed = Expr::parse(e.str(), [&](const std::string& s) { return std::optional<Expr>(names.at(s)); });
        ASSERT_TRUE(parsed) << e.str();
        EXPECT_EQ(*parsed, e) << e.str() << " became " << parsed->str();
        for (int sample = 0; sample < 8; ++sample) {
            Values v;
            v[n.node()] = r.pick(2, 12);
            v[m.node()] = r.pick(0, 9);
            v[bounded.node()] = r.pick(-3, 9);
            v[free.node()] = r.pick(-50, 50);
            v[o.node()] = r.pick(0, v[n.node()] - 1);
            v[i.node()] = r.pick(0, 7);
            v[j.node()] = r.pick(0, 63);
            v[k.node()] = r.pick(0, 2 * v[n.node()] - 1);
            auto want = direct(*tree, v);
            if (!want) continue;
            auto lookup = [&](const Expr& s) -> std::optional<int64_t> { return v.at(s.node()); };
            auto got = e.evaluate(lookup);
            ASSERT_TRUE(got) << e.str();
            ASSERT_EQ(*got, static_cast<int64_t>(*want)) << e.str();
            ASSERT_LE(e.range().lo, *got) << e.str();
            ASSERT_GE(e.range().hi, *got) << e.str();
            if (auto affine = e.affine_in(i)) {
                ASSERT_EQ(*(affine->first * i + affine->second).evaluate(lookup), *got);
            }
            ++checked;
        }
    }
    EXPECT_GT(checked, 50000);
}

TEST(Expr, RandomComparisonsAreRight) {
    Random r{std::mt19937(11), {}};
    Expr n = size("s0"), m = size("s1"), o = Expr::axis("o0", n), i = Expr::axis("i0", m),
         b = Expr::symbol("b0", {-3, 9});
    r.atoms = {n, m, o, i, b};
    int decided = 0;
    for (int round = 0; round < 5000; ++round) {
        auto x = r.tree(3), y = r.tree(3);
        Expr ex = build(*x), ey = build(*y);
        bool le = known_le(ex, ey), lt = known_lt(ex, ey), eq = known_eq(ex, ey), ne = known_ne(ex, ey);
        decided += le || lt || eq || ne;
        for (int sample = 0; sample < 10; ++sample) {
            Values v;
            v[n.node()] = r.pick(2, 6);
            v[m.node()] = r.pick(2, 6);
            v[o.node()] = r.pick(0, v[n.node()] - 1);
            v[i.node()] = r.pick(0, v[m.node()] - 1);
            v[b.node()] = r.pick(-3, 9);
            auto vx = direct(*x, v), vy = direct(*y, v);
            if (!vx || !vy) continue;
            if (le) { ASSERT_LE(*vx, *vy); }
            if (lt) { ASSERT_LT(*vx, *vy); }
            if (eq) { ASSERT_EQ(*vx, *vy); }
            if (ne) { ASSERT_NE(*vx, *vy); }
        }
    }
    EXPECT_GT(decided, 500);
}

}  // namespace
}  // namespace braze::shapes
