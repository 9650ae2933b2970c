#include "core/shapes/internal.h"

namespace braze::shapes::detail {

std::strong_ordering compare(const Expr& a, const Expr& b) {
    if (a == b) return std::strong_ordering::equal;
    if (auto c = a.kind() <=> b.kind(); c != 0) return c;
    if (a.is_const()) return a.value() <=> b.value();
    if (a.is_symbol()) {
        const ExprNode &x = *a.node(), &y = *b.node();
        // s2 before s10
        if (auto c = x.name.size() <=> y.name.size(); c != 0) return c;
        if (auto c = x.name.compare(y.name); c != 0)
            return c < 0 ? std::strong_ordering::less : std::strong_ordering::greater;
        if (auto c = x.range.lo <=> y.range.lo; c != 0) return c;
        if (auto c = x.range.hi <=> y.range.hi; c != 0) return c;
        if (!x.extent || !y.extent) return (x.extent != nullptr) <=> (y.extent != nullptr);
        return compare(Expr(x.extent), Expr(y.extent));
    }
    const auto &xs = a.operands(), &ys = b.operands();
    for (size_t i = 0; i < xs.size() && i < ys.size(); ++i)
        if (auto c = compare(xs[i], ys[i]); c != 0) return c;
    return xs.size() <=> ys.size();
}

}  // namespace braze::shapes::detail
