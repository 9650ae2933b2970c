#include "core/schedule/steps.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "core/support/error.h"

namespace braze::schedule {

using ir::Value;

const Value* memory_of(const Facts& facts, const Value* v) {
    const ValueFacts& f = facts.of(v);
    if (f.stored) return v;
    const ValueFacts& b = facts.of(f.base);
    return b.shared && !b.stored ? b.layout->root : f.base;
}

// Which steps come after `from`.
static std::vector<bool> reachable(const std::vector<std::vector<size_t>>& after, size_t from) {
    std::vector<bool> seen(after.size(), false);
    std::vector<size_t> found{from};
    for (size_t k = 0; k < found.size(); ++k)
        for (size_t t : after[found[k]])
            if (!seen[t]) seen[t] = true, found.push_back(t);
    return seen;
}

void order_steps(std::vector<Step>& steps, Homes& homes) {
    const size_t n = steps.size();
    std::unordered_map<const Value*, std::vector<size_t>> writers;
    for (size_t i = 0; i < n; ++i)
        for (const Value* v : steps[i].writes) writers[v].push_back(i);
    std::vector<std::vector<size_t>> after(n);  // steps that need step i
    std::vector<int> waits(n, 0);
    auto edge = [&](size_t first, size_t then) {
        if (first == then) return;
        after[first].push_back(then);
        ++waits[then];
    };
    size_t last_ordered = n;
    std::unordered_map<int, size_t> barrier;  // of a region
    for (size_t i = 0; i < n; ++i) {
        for (const Value* v : steps[i].reads)
            for (size_t w : writers[v]) edge(w, i);
        if (!steps[i].call) continue;
        if (!steps[i].call->writes.empty()) barrier[steps[i].region] = i;
        if (steps[i].call->ordered) {
            if (last_ordered != n) edge(last_ordered, i);
            last_ordered = i;
        }
    }
    for (size_t i = 0; i < n; ++i) {
        if (auto b = barrier.find(steps[i].region); b != barrier.end()) edge(i, b->second);
        if (auto b = barrier.find(steps[i].region - 1); b != barrier.end()) edge(b->second, i);
    }
    const auto wanted = homes.wanted_order(steps);
    for (size_t i = 0; i < n; ++i) {
        if (wanted[i].empty()) continue;
        const std::vector<bool> later = reachable(after, i);
        for (const auto& b : wanted[i]) {
            if (!later[b.step])
                edge(b.step, i);
            else if (b.source)
                homes.lose(b.source);
        }
    }
    // A step is as urgent as the first one that waits for it.
    std::vector<size_t> topological;
    std::vector<int> left = waits;
    for (size_t i = 0; i < n; ++i)
        if (left[i] == 0) topological.push_back(i);
    for (size_t k = 0; k < topological.size(); ++k)
        for (size_t t : after[topological[k]])
            if (--left[t] == 0) topological.push_back(t);
    BRAZE_CHECK(topological.size() == n, "the kernels and calls depend on each other in a circle");
    // What needs no memory and lets go of some runs as soon as what it reads is there.
    std::vector<int> ready_at(n, -1);
    for (size_t i : topological) {
        if (ready_at[i] >= 0 && homes.all_at_home(steps[i])) steps[i].position = ready_at[i];
        for (size_t t : after[i]) ready_at[t] = std::max(ready_at[t], steps[i].position);
    }
    std::vector<int> urgency(n);
    for (size_t k = n; k-- > 0;) {
        const size_t i = topological[k];
        urgency[i] = steps[i].position;
        for (size_t t : after[i]) urgency[i] = std::min(urgency[i], urgency[t]);
    }
    using Entry = std::tuple<int, int, size_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    for (size_t i = 0; i < n; ++i)
        if (waits[i] == 0) ready.emplace(urgency[i], steps[i].position, i);
    std::vector<Step> out;
    out.reserve(n);
    while (!ready.empty()) {
        const size_t i = std::get<2>(ready.top());
        ready.pop();
        for (size_t t : after[i])
            if (--waits[t] == 0) ready.emplace(urgency[t], steps[t].position, t);
        out.push_back(std::move(steps[i]));
    }
    steps = std::move(out);
}

}  // namespace braze::schedule
