// Queries and rewriting of expressions.
#include "core/shapes/expr.h"

#include <algorithm>

#include "core/shapes/internal.h"
#include "core/support/error.h"

namespace braze::shapes {

using namespace detail;

int64_t Expr::value() const {
    BRAZE_CHECK(is_const(), "not a constant: " + str());
    return node_->value;
}

const std::string& Expr::name() const {
    BRAZE_CHECK(is_symbol(), "not a symbol: " + str());
    return node_->name;
}

bool Expr::contains(const Expr& symbol) const {
    if (*this == symbol) return true;
    return std::any_of(operands().begin(), operands().end(), [&](const Expr& e) { return e.contains(symbol); });
}

void Expr::symbols(std::vector<Expr>& out) const {
    if (is_symbol() && std::find(out.begin(), out.end(), *this) == out.end()) out.push_back(*this);
    for (const Expr& e : operands()) e.symbols(out);
}

namespace {

Expr rebuild(ExprKind kind, const std::vector<Expr>& xs) {
    switch (kind) {
        case ExprKind::Add: return make_sum(xs);
        case ExprKind::Mul: return make_product(xs);
        case ExprKind::FloorDiv: return floordiv(xs[0], xs[1]);
        case ExprKind::Mod: return mod(xs[0], xs[1]);
        case ExprKind::Min:
        case ExprKind::Max: {
            Expr e = xs[0];
            for (size_t i = 1; i < xs.size(); ++i) e = kind == ExprKind::Min ? min(e, xs[i]) : max(e, xs[i]);
            return e;
        }
        case ExprKind::Const:
        case ExprKind::Symbol: break;
    }
    fail_internal(__FILE__, __LINE__, "not a compound expression");
}

}  // namespace

Expr Expr::substitute(const std::function<std::optional<Expr>(const Expr&)>& f) const {
    if (is_const()) return *this;
    if (is_symbol()) return f(*this).value_or(*this);
    std::vector<Expr> xs;
    xs.reserve(operands().size());
    bool changed = false;
    for (const Expr& e : operands()) {
        xs.push_back(e.substitute(f));
        changed |= xs.back() != e;
    }
    return changed ? rebuild(kind(), xs) : *this;
}

std::optional<int64_t> Expr::evaluate(const std::function<std::optional<int64_t>(const Expr&)>& f) const {
    if (is_const()) return node_->value;
    if (is_symbol()) return f(*this);
    std::optional<int64_t> acc;
    for (const Expr& e : operands()) {
        std::optional<int64_t> v = e.evaluate(f);
        if (!v) return std::nullopt;
        if (!acc) {
            acc = v;
            continue;
        }
        switch (kind()) {
            case ExprKind::Add: acc = wrap_add(*acc, *v); break;
            case ExprKind::Mul: acc = wrap_mul(*acc, *v); break;
            case ExprKind::FloorDiv:
            case ExprKind::Mod:
                if (*v == 0) return std::nullopt;
                if (*v == -1)
                    acc = kind() == ExprKind::Mod ? 0 : wrap_mul(*acc, -1);
                else
                    acc = kind() == ExprKind::Mod ? floor_mod(*acc, *v) : floor_div(*acc, *v);
                break;
            case ExprKind::Min: acc = std::min(*acc, *v); break;
            case ExprKind::Max: acc = std::max(*acc, *v); break;
            case ExprKind::Const:
            case ExprKind::Symbol: break;
        }
    }
    return acc;
}

std::optional<std::pair<Expr, Expr>> Expr::affine_in(const Expr& symbol) const {
    if (*this == symbol) return std::pair{Expr(1), Expr(0)};
    if (!contains(symbol)) return std::pair{Expr(0), *this};
    std::vector<Expr> a, b;
    for (const Expr& term : kind() == ExprKind::Add ? operands() : std::vector<Expr>{*this}) {
        if (!term.contains(symbol)) {
            b.push_back(term);
            continue;
        }
        std::vector<Expr> factors = factors_of(term);
        auto it = std::find(factors.begin(), factors.end(), symbol);
        if (it == factors.end()) return std::nullopt;
        factors.erase(it);
        Expr rest = make_product(factors);
        if (rest.contains(symbol)) return std::nullopt;
        a.push_back(rest);
    }
    return std::pair{make_sum(a), make_sum(b)};
}

}  // namespace braze::shapes
