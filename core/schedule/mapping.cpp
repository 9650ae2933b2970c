#include "core/schedule/mapping.h"

#include <algorithm>

namespace braze::schedule {

using ir::Op;
using ir::Value;

// The index of v's elements in the axes of cluster c, if something in c computes v or what it views.
std::optional<PartialIndex> Mapping::known_index(const Value* v, int c) const {
    if (const int u = units_.computing(v); u >= 0) {
        if (unit(u).cluster != c) return std::nullopt;
        const Index i = unit(u).result_index();
        return PartialIndex(i.begin(), i.end());
    }
    if (!is_view(*v->node) || units_.load_only(v)) return std::nullopt;
    auto inner = known_index(v->node->operands[0], c);
    return inner ? result_index(*v->node, *inner) : std::nullopt;
}

// Fills the axes along which an operand is repeated with the cluster's axes that it lacks.
std::optional<Index> Mapping::complete(const PartialIndex& index, const std::vector<Expr>& sizes, const Cluster& c) {
    Index out;
    std::vector<Expr> used;
    for (const auto& e : index)
        if (e) e->symbols(used);
    std::vector<const Axis*> missing;
    for (const Axis& a : c.axes)
        if (std::find(used.begin(), used.end(), a.symbol) == used.end()) missing.push_back(&a);
    size_t next = 0;
    bool open = false;
    for (size_t i = 0; i < index.size(); ++i) {
        if (index[i]) {
            out.push_back(*index[i]);
            continue;
        }
        open = true;
        Expr flat(0), size(1);
        while (size != sizes[i] && next < missing.size()) {
            flat = flat * missing[next]->extent + missing[next]->symbol;
            size = size * missing[next]->extent;
            ++next;
        }
        if (size != sizes[i]) return std::nullopt;
        out.push_back(flat);
    }
    if (open && next != missing.size()) return std::nullopt;
    return out;
}

bool Mapping::agrees(const Value* v, const Index& index, int c, const AxisMap& map) const {
    if (const int u = units_.computing(v); u >= 0) {
        if (unit(u).cluster != c) return true;
        Index at = unit(u).result_index();
        if (map)
            for (Expr& e : at) e = e.substitute(map);
        return at == index;
    }
    if (units_.load_only(v)) {
        const auto& parts = units_.storing(v);
        return std::none_of(parts.begin(), parts.end(), [&](int p) { return unit(p).cluster == c; });
    }
    if (!is_view(*v->node)) return true;
    if (v->node->op == Op::AsStrided) {
        const int u = units_.computing(units_.source(const_cast<Value*>(v)));
        return u < 0 || unit(u).cluster != c;
    }
    return agrees(v->node->operands[0], operand_index(*v->node, index), c, map);
}

bool Mapping::touches(Value* v, int c) const {
    Value* s = units_.source(v);
    if (const int u = units_.computing(s); u >= 0) return unit(u).cluster == c;
    const auto& parts = units_.storing(s);
    return std::any_of(parts.begin(), parts.end(), [&](int p) { return unit(p).cluster == c; });
}

bool Mapping::runs_over_reduced(const Index& index, const Cluster& c) {
    std::vector<Expr> symbols;
    for (const Expr& e : index) e.symbols(symbols);
    return std::any_of(c.axes.begin(), c.axes.end(), [&](const Axis& a) {
        return a.reduced && std::find(symbols.begin(), symbols.end(), a.symbol) != symbols.end();
    });
}

std::optional<std::vector<bool>> Mapping::reduced_axes(const Unit& u, const Index& index, const Cluster& c) {
    std::vector<Expr> inside, outside;
    for (size_t i = 0; i < index.size(); ++i) index[i].symbols(is_reduced(u.node(), i) ? inside : outside);
    std::vector<bool> out;
    for (const Axis& a : c.axes) {
        const bool in = std::find(inside.begin(), inside.end(), a.symbol) != inside.end();
        if (in && std::find(outside.begin(), outside.end(), a.symbol) != outside.end()) return std::nullopt;
        out.push_back(in);
    }
    return out;
}

bool Mapping::keeps_order(const Unit& u, const Index& index, const std::vector<Axis>& axes,
                          const std::vector<bool>& reduced) {
    if (u.kind != UnitKind::Reduce || (u.node().op != Op::ArgMax && u.node().op != Op::ArgMin)) return true;
    Expr logical(0), loops(0);
    for (size_t i = 0; i < index.size(); ++i)
        if (is_reduced(u.node(), i)) logical = logical * u.domain()[i] + index[i];
    for (size_t i = 0; i < axes.size(); ++i)
        if (reduced[i]) loops = loops * axes[i].extent + axes[i].symbol;
    return logical == loops;
}

std::optional<Index> Mapping::index_in(const Unit& u, int c, const Operands& operands) const {
    std::optional<Index> index;
    for (Value* v : operands.same) {
        auto known = known_index(v, c);
        if (!known) continue;
        const bool whole = std::all_of(known->begin(), known->end(), [](const auto& e) { return e.has_value(); });
        if (index && !whole) continue;
        auto done = complete(*known, u.domain(), clusters_[static_cast<size_t>(c)]);
        if (done) index = done;
        if (done && whole) break;
    }
    return index && consistent(*index, c, operands, {}) ? index : std::nullopt;
}

bool Mapping::consistent(const Index& index, int c, const Operands& operands, const AxisMap& map) const {
    for (Value* v : operands.other)
        if (touches(v, c)) return false;
    return std::all_of(operands.same.begin(), operands.same.end(), [&](Value* v) { return agrees(v, index, c, map); });
}

}  // namespace braze::schedule
