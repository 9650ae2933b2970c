#include "core/schedule/axes.h"

namespace braze::schedule {

using shapes::ExprKind;

bool has_division(const Expr& e) {
    if (e.kind() == ExprKind::FloorDiv || e.kind() == ExprKind::Mod) return true;
    for (const Expr& x : e.operands())
        if (has_division(x)) return true;
    return false;
}

std::optional<AxisSplit> find_split(const Expr& e, const std::vector<Axis>& axes) {
    for (const Expr& x : e.operands())
        if (auto s = find_split(x, axes)) return s;
    if (e.kind() != ExprKind::FloorDiv && e.kind() != ExprKind::Mod) return std::nullopt;
    const Expr &p = e.operands()[0], &d = e.operands()[1];
    for (size_t i = 0; i < axes.size(); ++i) {
        auto affine = p.affine_in(axes[i].symbol);
        if (!affine || affine->first == Expr(0)) continue;
        const Expr& extent = axes[i].extent;
        const Expr inner = shapes::floordiv(d, affine->first);
        if (inner * affine->first != d || inner == Expr(1) || inner == extent) continue;
        if (inner.range().lo < 2 || shapes::mod(extent, inner) != Expr(0)) continue;
        return AxisSplit{i, inner};
    }
    return std::nullopt;
}

AxisMap apply_split(std::vector<Axis>& axes, const AxisSplit& split, int& next_name) {
    const Axis old = axes[split.axis];
    const Expr outer_extent = shapes::floordiv(old.extent, split.inner);
    Axis outer{Expr::axis("x" + std::to_string(next_name), outer_extent), outer_extent, old.reduced};
    Axis inner{Expr::axis("x" + std::to_string(next_name + 1), split.inner), split.inner, old.reduced};
    next_name += 2;
    axes[split.axis] = outer;
    axes.insert(axes.begin() + static_cast<long>(split.axis) + 1, inner);
    return [symbol = old.symbol, e = outer.symbol * split.inner + inner.symbol](const Expr& s) -> std::optional<Expr> {
        return s == symbol ? std::optional<Expr>(e) : std::nullopt;
    };
}

}  // namespace braze::schedule
