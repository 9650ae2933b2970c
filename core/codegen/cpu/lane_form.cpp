// How an address runs along the lanes.
#include <cstdlib>
#include <limits>
#include <numeric>

#include "core/codegen/cpu/plan.h"

namespace braze::codegen {

using shapes::ExprKind;

bool fits_int32(const Expr& e) {
    shapes::Range r = e.range();
    if (r.lo < std::numeric_limits<int32_t>::min() || r.hi > std::numeric_limits<int32_t>::max()) return false;
    for (const Expr& x : e.operands())
        if (!fits_int32(x)) return false;
    return true;
}

constexpr int64_t kLarge = 1'000'000'000;  // products of larger divisors are not followed

// A number that divides the expression's value for sure (0: the value is 0).
int64_t Plan::divisor(const Expr& e, int lanes, bool aligned) const {
    switch (e.kind()) {
        case ExprKind::Const: return std::abs(e.value());
        case ExprKind::Symbol: return e == axis && aligned ? lanes : 1;
        case ExprKind::Add: {
            int64_t g = 0;
            for (const Expr& x : e.operands()) g = std::gcd(g, divisor(x, lanes, aligned));
            return g;
        }
        case ExprKind::Mul: {
            int64_t p = 1;
            for (const Expr& x : e.operands()) {
                int64_t d = divisor(x, lanes, aligned);
                if (d == 0) return 0;
                p = p > kLarge || d > kLarge ? std::max(p, d) : p * d;
            }
            return p;
        }
        case ExprKind::FloorDiv: {
            auto by = e.operands()[1].as_const();
            int64_t d = divisor(e.operands()[0], lanes, aligned);
            return by && *by > 0 && d % *by == 0 ? d / *by : 1;
        }
        case ExprKind::Mod:
            return std::gcd(divisor(e.operands()[0], lanes, aligned), divisor(e.operands()[1], lanes, aligned));
        default: return 1;
    }
}

std::optional<LaneForm> Plan::lane_form(const Expr& e, int lanes, bool aligned) const {
    if (!varies(e)) return LaneForm{e, 0};
    switch (e.kind()) {
        case ExprKind::Symbol: return e == axis ? std::optional(LaneForm{e, 1}) : std::nullopt;
        case ExprKind::Add: {
            Expr stride = 0;
            for (const Expr& x : e.operands()) {
                auto form = lane_form(x, lanes, aligned);
                if (!form) return std::nullopt;
                stride = stride + form->stride;
            }
            return LaneForm{e, stride};
        }
        case ExprKind::Mul: {
            Expr stride = 0, factor = 1;
            for (const Expr& x : e.operands()) {
                auto form = lane_form(x, lanes, aligned);
                if (!form) return std::nullopt;
                if (form->stride == Expr(0))
                    factor = factor * x;
                else if (stride == Expr(0))
                    stride = form->stride;
                else
                    return std::nullopt;
            }
            if (stride == Expr(0)) return LaneForm{e, 0};
            if (varies(factor)) return std::nullopt;
            return LaneForm{e, stride * factor};
        }
        case ExprKind::FloorDiv:
        case ExprKind::Mod: {
            // Does the quotient stay the same over the lanes? The remainder of lane 0 is a multiple of g.
            auto form = lane_form(e.operands()[0], lanes, aligned);
            auto by = e.operands()[1].as_const();
            if (!form || !by || *by <= 0) return std::nullopt;
            auto stride = form->stride.as_const();
            if (!stride || *stride < 0) return std::nullopt;
            int64_t g = std::gcd(*by, divisor(e.operands()[0], lanes, aligned));
            if (*stride != 0 && (lanes - 1) * *stride >= g) return std::nullopt;
            return LaneForm{e, e.kind() == ExprKind::Mod ? *stride : 0};
        }
        default: return std::nullopt;
    }
}

}  // namespace braze::codegen
