#include "core/schedule/schedule.h"

#include "core/schedule/demand.h"
#include "core/schedule/fusion.h"
#include "core/schedule/plan.h"
#include "core/schedule/prepare.h"

namespace braze::schedule {

namespace {

Step call_step(const Facts& facts, const ir::Node* n, int region, int position) {
    Step s;
    s.call = n;
    s.region = region;
    s.position = position;
    for (const ir::Value* v : n->operands) s.reads.push_back(memory_of(facts, v));
    s.writes.assign(n->results.begin(), n->results.end());
    return s;
}

Step kernel_step(const Facts& facts, const Units& units, const Fused& fused, const std::vector<bool>& stored,
                 int cluster, const Homes& homes) {
    Step s;
    s.cluster = cluster;
    const Cluster& c = fused.clusters[static_cast<size_t>(cluster)];
    s.region = c.region;
    for (int u : c.units)
        if (stored[static_cast<size_t>(u)]) s.position = facts.of(units.list[static_cast<size_t>(u)].value).position;
    s.nest = make_nest(lower(facts, units, fused, stored, cluster), facts.graph.symbols, homes);
    for (size_t i = 0; i < s.nest.buffers.size(); ++i)
        (s.nest.kernel.params[i].written ? s.writes : s.reads).push_back(s.nest.buffers[i]);
    return s;
}

}  // namespace

runtime::Program schedule(ir::Graph graph, const Options& options) {
    prepare(graph);
    runtime::Program program;
    const Facts facts(graph);
    Units units(facts);
    const Fused fused = fuse(facts, units, options);
    const std::vector<bool> stored = decide_stores(facts, units, fused);

    Homes homes(facts);

    std::vector<Step> steps;
    int region = 0;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
        const ir::Node* n = graph.nodes[i];
        if (n->op == ir::Op::Call) steps.push_back(call_step(facts, n, region, static_cast<int>(i)));
        region += !n->writes.empty();
    }
    for (size_t c = 0; c < fused.clusters.size(); ++c) {
        const Cluster& cl = fused.clusters[c];
        bool any = false;
        for (int u : cl.units) any |= stored[static_cast<size_t>(u)];
        if (any) steps.push_back(kernel_step(facts, units, fused, stored, static_cast<int>(c), homes));
    }
    order_steps(steps, homes);
    homes.settle(steps);
    plan(facts, units, fused.clusters, std::move(steps), homes, program);
    program.graph = std::move(graph);
    return program;
}

}  // namespace braze::schedule
