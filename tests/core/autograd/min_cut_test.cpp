#include "core/autograd/min_cut.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <tuple>

namespace braze::autograd {
namespace {

using Edges = std::vector<std::tuple<int, int, int64_t>>;

std::optional<std::vector<char>> cut(int nodes, const Edges& edges) {
    FlowNetwork network(nodes);
    for (auto [from, to, capacity] : edges) network.add_edge(from, to, capacity);
    return network.cut(0, nodes - 1);
}
int64_t weight(const std::vector<char>& side, const Edges& edges) {
    int64_t sum = 0;
    for (auto [from, to, capacity] : edges)
        if (side[static_cast<size_t>(from)] && !side[static_cast<size_t>(to)]) sum += capacity;
    return sum;
}

TEST(MinCut, TakesTheNarrowestPlace) {
    EXPECT_EQ(cut(4, {{0, 1, 5}, {1, 2, 2}, {2, 3, 4}}), std::vector<char>({1, 1, 0, 0}));
}

TEST(MinCut, OfEqualOnesTheOneNearestTheSink) {
    EXPECT_EQ(cut(4, {{0, 1, 3}, {1, 2, 3}, {2, 3, 3}}), std::vector<char>({1, 1, 1, 0}));
}

TEST(MinCut, UnlimitedEdgesAreNotCut) {
    constexpr int64_t no = FlowNetwork::kUnlimited;
    EXPECT_EQ(cut(4, {{0, 1, no}, {1, 2, 7}, {2, 3, no}}), std::vector<char>({1, 1, 0, 0}));
    EXPECT_FALSE(cut(3, {{0, 1, no}, {1, 2, no}, {0, 2, 1}}));
}

TEST(MinCut, NothingFlows) { EXPECT_EQ(cut(3, {{0, 1, 4}}), std::vector<char>({1, 1, 0})); }

TEST(MinCut, AgainstAllCuts) {
    std::mt19937 rng(5);
    auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    for (int round = 0; round < 300; ++round) {
        const int nodes = pick(2, 8);
        Edges edges;
        for (int k = pick(1, 20); k-- > 0;) edges.emplace_back(pick(0, nodes - 1), pick(0, nodes - 1), pick(0, 9));
        auto found = cut(nodes, edges);
        ASSERT_TRUE(found && (*found)[0] && !found->back());
        int64_t least = std::numeric_limits<int64_t>::max();
        for (int bits = 0; bits < 1 << nodes; ++bits) {
            std::vector<char> side;
            for (int k = 0; k < nodes; ++k) side.push_back(static_cast<char>((bits >> k) & 1));
            if (side[0] && !side.back()) least = std::min(least, weight(side, edges));
        }
        ASSERT_EQ(weight(*found, edges), least) << "round " << round;
    }
}

}  // namespace
}  // namespace braze::autograd
