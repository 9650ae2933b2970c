#include <cmath>
#include <unordered_map>

#include "core/ir/text.h"

namespace braze::ir {

namespace {

// A one-to-one renumbering that grows as pairs are met.
template <class K>
struct Bijection {
    std::unordered_map<K, K> forward, backward;
    bool match(K a, K b) {
        auto [f, f_new] = forward.emplace(a, b);
        auto [r, r_new] = backward.emplace(b, a);
        return f->second == b && r->second == a;
    }
};

struct Comparison {
    Bijection<const Value*> values;
    Bijection<int> storages;

    bool same(const std::vector<Value*>& a, const std::vector<Value*>& b) {
        if (a.size() != b.size()) return false;
        for (size_t i = 0; i < a.size(); ++i)
            if (!values.match(a[i], b[i])) return false;
        return true;
    }
    bool results(const Node& a, const Node& b) {
        if (!same(a.results, b.results)) return false;
        for (size_t i = 0; i < a.results.size(); ++i) {
            const Value &x = *a.results[i], &y = *b.results[i];
            if (x.type != y.type || (x.storage < 0) != (y.storage < 0)) return false;
            if (x.storage >= 0 && !storages.match(x.storage, y.storage)) return false;
        }
        return true;
    }
    static bool equal_args(const Node& a, const Node& b) {
        if (a.args.size() != b.args.size()) return false;
        for (size_t i = 0; i < a.args.size(); ++i)
            if (a.args[i].name != b.args[i].name || !same_arg(a.args[i].value, b.args[i].value)) return false;
        return true;
    }
    static bool same_arg(const Arg& a, const Arg& b) {
        const double *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
        if (x && y) return (*x == *y && std::signbit(*x) == std::signbit(*y)) || (*x != *x && *y != *y);
        const Opaque *o = std::get_if<Opaque>(&a), *p = std::get_if<Opaque>(&b);
        if (o && p) return o->text == p->text;
        return a == b;
    }
    bool nodes(const Node& a, const Node& b) {
        return a.op == b.op && a.callee == b.callee && same(a.operands, b.operands) && equal_args(a, b) &&
               a.writes == b.writes && a.ordered == b.ordered && a.aliases == b.aliases && results(a, b);
    }
};

}  // namespace

bool structurally_equal(const Graph& a, const Graph& b) {
    if (a.nodes.size() != b.nodes.size() || a.symbols != b.symbols) return false;
    Comparison c;
    for (size_t i = 0; i < a.nodes.size(); ++i)
        if (!c.nodes(*a.nodes[i], *b.nodes[i])) return false;
    return c.same(a.outputs, b.outputs);
}

}  // namespace braze::ir
