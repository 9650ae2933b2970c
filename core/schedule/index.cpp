#include "core/schedule/index.h"

#include <algorithm>

#include "core/ir/builder.h"
#include "core/support/error.h"

namespace braze::schedule {

using ir::Op;

namespace {
constexpr int64_t kTypicalSize = 64;

// Runs of axes [a, a_end) and [b, b_end) with equally many elements.
struct Group {
    size_t a, a_end, b, b_end;
};

std::vector<Group> groups(const std::vector<Expr>& from, const std::vector<Expr>& to) {
    std::vector<Group> out;
    size_t i = 0, j = 0;
    while (i < from.size() || j < to.size()) {
        if (i < from.size() && from[i] == Expr(1)) {
            ++i;
            continue;
        }
        if (j < to.size() && to[j] == Expr(1)) {
            ++j;
            continue;
        }
        BRAZE_CHECK(i < from.size() && j < to.size(), "reshape between different numbers of elements");
        Group g{i, i + 1, j, j + 1};
        Expr x = from[i], y = to[j];
        while (x != y) {
            // grow the smaller side; where that is not known, take everything that is left
            if (shapes::known_lt(x, y) && g.a_end < from.size())
                x = x * from[g.a_end++];
            else if (shapes::known_lt(y, x) && g.b_end < to.size())
                y = y * to[g.b_end++];
            else {
                g.a_end = from.size();
                g.b_end = to.size();
                break;
            }
        }
        out.push_back(g);
        i = g.a_end;
        j = g.b_end;
    }
    return out;
}

// out[b..b_end) from index[a..a_end).
void renumber_group(const Group& g, const std::vector<Expr>& from, const std::vector<Expr>& to, const Index& index,
                    Index& out) {
    Expr flat(0);
    for (size_t i = g.a; i < g.a_end; ++i) flat = i == g.a ? index[i] : flat * from[i] + index[i];
    for (size_t j = g.b_end; j-- > g.b;) {
        if (to[j] == Expr(1)) continue;
        out[j] = j == g.b ? flat : shapes::mod(flat, to[j]);
        if (j > g.b) flat = shapes::floordiv(flat, to[j]);
    }
}

const std::vector<Expr>& list(const ir::Node& n, std::string_view name) {
    const auto* xs = n.get<std::vector<Expr>>(name);
    BRAZE_CHECK(xs, std::string(ir::name(n.op)) + " without the attribute " + std::string(name));
    return *xs;
}

}  // namespace

int64_t hint(const Expr& e) {
    if (auto c = e.as_const()) return *c;
    auto v = e.evaluate([](const Expr& s) -> std::optional<int64_t> {
        const shapes::Range r = s.range();
        return std::clamp(kTypicalSize, r.lo, std::max(r.lo, r.hi));
    });
    return v.value_or(kTypicalSize);
}

Index renumber(const std::vector<Expr>& from, const std::vector<Expr>& to, const Index& index) {
    if (from == to) return index;
    Index out(to.size(), Expr(0));
    for (const Group& g : groups(from, to)) renumber_group(g, from, to, index, out);
    return out;
}

Index operand_index(const ir::Node& view, const Index& index) {
    const auto& from = view.results[0]->type.sizes;
    const auto& to = view.operands[0]->type.sizes;
    switch (view.op) {
        case Op::Permute: {
            const std::vector<int> dims = ir::to_ints(list(view, "dims"));
            Index out(to.size());
            for (size_t i = 0; i < dims.size(); ++i) out[static_cast<size_t>(dims[i])] = index[i];
            return out;
        }
        case Op::Expand: {
            const size_t added = from.size() - to.size();
            Index out(to.size());
            for (size_t i = 0; i < to.size(); ++i) out[i] = to[i] == Expr(1) ? Expr(0) : index[i + added];
            return out;
        }
        case Op::Reshape: return renumber(from, to, index);
        case Op::Slice: {
            const auto &starts = list(view, "starts"), &steps = list(view, "steps");
            Index out(to.size());
            for (size_t i = 0; i < to.size(); ++i) out[i] = starts[i] + index[i] * steps[i];
            return out;
        }
        case Op::Flip: {
            Index out = index;
            for (int d : ir::to_ints(list(view, "dims"))) {
                const size_t i = static_cast<size_t>(d);
                out[i] = to[i] - Expr(1) - out[i];
            }
            return out;
        }
        default: throw InternalError("no index map of " + std::string(ir::name(view.op)));
    }
}

std::optional<PartialIndex> result_index(const ir::Node& view, const PartialIndex& index) {
    const auto& from = view.operands[0]->type.sizes;
    const auto& to = view.results[0]->type.sizes;
    switch (view.op) {
        case Op::Permute: {
            const std::vector<int> dims = ir::to_ints(list(view, "dims"));
            PartialIndex out(to.size());
            for (size_t i = 0; i < dims.size(); ++i) out[i] = index[static_cast<size_t>(dims[i])];
            return out;
        }
        case Op::Expand: {
            const size_t added = to.size() - from.size();
            PartialIndex out(to.size());
            for (size_t i = 0; i < to.size(); ++i) {
                if (to[i] == Expr(1))
                    out[i] = Expr(0);
                else if (i >= added && from[i - added] == to[i])
                    out[i] = index[i - added];
            }
            return out;
        }
        case Op::Reshape: {
            PartialIndex out(to.size(), Expr(0));
            for (const Group& g : groups(from, to)) {
                bool open = false;
                for (size_t i = g.a; i < g.a_end; ++i) open |= from[i] != Expr(1) && !index[i];
                if (open) {  // a repeated axis may only be carried over whole
                    size_t a = 0, b = 0;
                    for (size_t i = g.a; i < g.a_end; ++i) a += from[i] != Expr(1);
                    for (size_t j = g.b; j < g.b_end; ++j) b += to[j] != Expr(1);
                    if (a != 1 || b != 1) return std::nullopt;
                    for (size_t j = g.b; j < g.b_end; ++j)
                        if (to[j] != Expr(1)) out[j] = std::nullopt;
                    continue;
                }
                Index in(from.size()), o(to.size());
                for (size_t i = g.a; i < g.a_end; ++i) in[i] = index[i].value_or(Expr(0));
                renumber_group(g, from, to, in, o);
                for (size_t j = g.b; j < g.b_end; ++j) out[j] = o[j];
            }
            return out;
        }
        case Op::Slice: {
            if (from != to) return std::nullopt;
            for (const Expr& s : list(view, "starts"))
                if (s != Expr(0)) return std::nullopt;
            for (const Expr& s : list(view, "steps"))
                if (s != Expr(1)) return std::nullopt;
            return index;
        }
        default: return std::nullopt;
    }
}

bool is_reduced(const ir::Node& reduce, size_t axis) {
    const auto& dims = list(reduce, "dims");
    return std::find(dims.begin(), dims.end(), Expr(static_cast<int64_t>(axis))) != dims.end();
}

std::optional<size_t> innermost_axis(const ir::TensorType& t) {
    std::optional<size_t> inner;
    int64_t best = 0;
    for (size_t i = 0; i < t.sizes.size(); ++i) {
        const int64_t stride = hint(t.strides[i]);
        if (t.sizes[i] == Expr(1) || stride == 0 || (inner && stride >= best)) continue;
        best = stride;
        inner = i;
    }
    return inner;
}

bool reduces_columns(const ir::Node& reduce) {
    auto inner = innermost_axis(reduce.operands[0]->type);
    return inner && !is_reduced(reduce, *inner);
}

Index reduced_index(const ir::Node& reduce, const Index& index) {
    const bool* keep = reduce.get<bool>("keepdim");
    Index out;
    for (size_t i = 0; i < index.size(); ++i) {
        if (!is_reduced(reduce, i))
            out.push_back(index[i]);
        else if (keep && *keep)
            out.emplace_back(0);
    }
    return out;
}

Expr dot(const Index& index, const std::vector<Expr>& strides) {
    std::vector<Expr> terms;
    terms.reserve(index.size());
    for (size_t i = 0; i < index.size(); ++i) terms.push_back(index[i] * strides[i]);
    return shapes::sum(terms);
}

}  // namespace braze::schedule
