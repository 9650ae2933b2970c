// Minimum cuts of a flow network: Dinic's algorithm.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace braze::autograd {

class FlowNetwork {
  public:
    static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 8;

    explicit FlowNetwork(int nodes) : edges_of_(static_cast<size_t>(nodes)) {}
    // capacity: at most kUnlimited, which no cut may cross.
    void add_edge(int from, int to, int64_t capacity);
    // Per node: whether it is on the source's side. Of several minimum cuts the one nearest the sink. nullopt: every
    // cut crosses an unlimited edge. To be called once.
    std::optional<std::vector<char>> cut(int source, int sink);

  private:
    struct Edge {
        int to;
        int64_t left;  // capacity that remains
    };
    static size_t reverse(int edge) { return static_cast<size_t>(edge % 2 == 0 ? edge + 1 : edge - 1); }
    bool find_levels(int source, int sink);
    // The flow of one path of ascending levels; 0: there is none.
    int64_t push(int source, int sink);

    std::vector<Edge> edges_;  // 2 k and 2 k + 1: an edge and its reverse
    std::vector<std::vector<int>> edges_of_;
    std::vector<int> level_;
    std::vector<size_t> next_;
    std::vector<int> path_;
};

}  // namespace braze::autograd
