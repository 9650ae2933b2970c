#include "core/autograd/min_cut.h"

#include <algorithm>

namespace braze::autograd {

void FlowNetwork::add_edge(int from, int to, int64_t capacity) {
    edges_of_[static_cast<size_t>(from)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({to, std::min(capacity, kUnlimited)});
    edges_of_[static_cast<size_t>(to)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({from, 0});
}

bool FlowNetwork::find_levels(int source, int sink) {
    level_.assign(edges_of_.size(), -1);
    level_[static_cast<size_t>(source)] = 0;
    std::vector<int> queue{source};
    for (size_t i = 0; i < queue.size(); ++i) {
        const auto at = static_cast<size_t>(queue[i]);
        for (int e : edges_of_[at]) {
            const Edge& edge = edges_[static_cast<size_t>(e)];
            if (edge.left == 0 || level_[static_cast<size_t>(edge.to)] >= 0) continue;
            level_[static_cast<size_t>(edge.to)] = level_[at] + 1;
            queue.push_back(edge.to);
        }
    }
    return level_[static_cast<size_t>(sink)] >= 0;
}

int64_t FlowNetwork::push(int source, int sink) {
    path_.clear();
    int at = source;
    while (at != sink) {
        const auto node = static_cast<size_t>(at);
        bool advanced = false;
        for (size_t& k = next_[node]; k < edges_of_[node].size(); ++k) {
            const int e = edges_of_[node][k];
            const Edge& edge = edges_[static_cast<size_t>(e)];
            if (edge.left == 0 || level_[static_cast<size_t>(edge.to)] != level_[node] + 1) continue;
            path_.push_back(e);
            at = edge.to;
            advanced = true;
            break;
        }
        if (advanced) continue;
        if (path_.empty()) return 0;
        at = edges_[reverse(path_.back())].to;  // a dead end
        path_.pop_back();
        ++next_[static_cast<size_t>(at)];
    }
    int64_t flow = kUnlimited;
    for (int e : path_) flow = std::min(flow, edges_[static_cast<size_t>(e)].left);
    if (flow == kUnlimited) return flow;
    for (int e : path_) {
        int64_t& left = edges_[static_cast<size_t>(e)].left;
        int64_t& back = edges_[reverse(e)].left;
        if (left != kUnlimited) left -= flow;
        if (back != kUnlimited) back += flow;
    }
    return flow;
}

std::optional<std::vector<char>> FlowNetwork::cut(int source, int sink) {
    while (find_levels(source, sink)) {
        next_.assign(edges_of_.size(), 0);
        while (const int64_t flow = push(source, sink))
            if (flow == kUnlimited) return std::nullopt;
    }
    // What can still reach the sink is on its side.
    std::vector<char> source_side(edges_of_.size(), 1);
    source_side[static_cast<size_t>(sink)] = 0;
    std::vector<int> queue{sink};
    for (size_t i = 0; i < queue.size(); ++i) {
        for (int e : edges_of_[static_cast<size_t>(queue[i])]) {
            const int from = edges_[static_cast<size_t>(e)].to;
            if (edges_[reverse(e)].left == 0 || !source_side[static_cast<size_t>(from)]) continue;
            source_side[static_cast<size_t>(from)] = 0;
            queue.push_back(from);
        }
    }
    return source_side;
}

}  // namespace braze::autograd
