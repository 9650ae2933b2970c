// Sizes and strides.
#include "core/ir/builder.h"
#include "core/support/error.h"

namespace braze::ir {

std::vector<Expr> contiguous_strides(const std::vector<Expr>& sizes) {
    std::vector<Expr> strides(sizes.size());
    Expr next(1);
    for (size_t i = sizes.size(); i-- > 0;) {
        strides[i] = next;
        next = next * shapes::max(sizes[i], 1);  // eager: an axis of size 0 counts as 1
    }
    return strides;
}

bool has_zero_size(const TensorType& t) {
    for (const Expr& s : t.sizes)
        if (s == Expr(0)) return true;
    return false;
}

bool is_contiguous(const TensorType& t) {
    if (has_zero_size(t)) return true;
    Expr next(1);
    for (size_t i = t.sizes.size(); i-- > 0;) {
        if (t.sizes[i] == Expr(1)) continue;
        if (t.strides[i] != next) return false;
        next = next * shapes::max(t.sizes[i], 1);
    }
    return true;
}

bool is_dense(const TensorType& t) {
    if (is_contiguous(t)) return true;
    // Each axis in turn must start where the smaller ones end.
    size_t n = t.sizes.size(), left = 0;
    std::vector<char> done(n, 0);
    for (size_t i = 0; i < n; ++i) {
        if (t.sizes[i] == Expr(1))
            done[i] = 1;
        else
            ++left;
    }
    Expr next(1);
    while (left > 0) {
        size_t i = 0;
        while (i < n && (done[i] || t.strides[i] != next)) ++i;
        if (i == n) return false;
        done[i] = 1;
        --left;
        next = next * t.sizes[i];
    }
    return true;
}

std::optional<Sizes> view_strides(const TensorType& t, const Sizes& sizes) {
    if (t.sizes == sizes) return t.strides;
    if (t.sizes.empty()) return Sizes(sizes.size(), Expr(1));
    if (has_zero_size(t)) return contiguous_strides(sizes);
    // As at::detail::computeStride: runs of operand axes that lie evenly in memory are renumbered run by run.
    Sizes strides(sizes.size());
    size_t view = sizes.size();
    Expr base = t.strides.back(), run(1), seen(1);
    for (size_t d = t.sizes.size(); d-- > 0;) {
        run = run * t.sizes[d];
        bool ends = d == 0;
        if (!ends && t.sizes[d - 1] != Expr(1)) {
            if (!t.sizes[d - 1].is_const() && !shapes::known_ne(t.sizes[d - 1], 1)) return std::nullopt;
            ends = t.strides[d - 1] != run * base;
        }
        if (!ends) continue;
        while (view > 0 && (seen != run || sizes[view - 1] == Expr(1))) {
            if (sizes[view - 1] != Expr(1) && !shapes::known_lt(seen, run)) return std::nullopt;
            strides[view - 1] = seen * base;
            seen = seen * sizes[view - 1];
            --view;
        }
        if (seen != run) return std::nullopt;
        if (d > 0) {
            base = t.strides[d - 1];
            run = seen = Expr(1);
        }
    }
    if (view != 0) return std::nullopt;
    return strides;
}

Sizes elementwise_strides(std::span<Value* const> operands) {
    BRAZE_CHECK(!operands.empty(), "an elementwise operator needs an operand");
    for (const Value* v : operands)
        if (is_dense(v->type)) return v->type.strides;
    return contiguous_strides(operands[0]->type.sizes);
}

std::vector<Expr> to_exprs(const std::vector<int>& dims) { return {dims.begin(), dims.end()}; }

std::vector<int> to_ints(const std::vector<Expr>& dims) {
    std::vector<int> out;
    out.reserve(dims.size());
    for (const Expr& d : dims) out.push_back(static_cast<int>(d.value()));
    return out;
}

}  // namespace braze::ir
