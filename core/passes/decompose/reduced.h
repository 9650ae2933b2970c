// What reductions and normalisations share.
#pragma once
#include "core/passes/decompose/term.h"

namespace braze::passes::decomposition {

// How many elements a reduction over these axes takes in.
inline Expr count(const Value* x, const std::vector<int>& axes) {
    Expr n = 1;
    for (int k : axes) n = n * x->type.sizes[k];
    return n;
}

inline Term sum_over(Lowering& c, Term x, const std::vector<int>& axes, bool keepdim) {
    return {c, c.b.reduce(Op::Sum, x, axes, keepdim)};
}

inline Term mean_over(Lowering& c, Term x, const std::vector<int>& axes, bool keepdim) {
    Term total = sum_over(c, x, axes, keepdim);
    Value* n = c.fill(Number(count(x, axes)), total.dtype(), static_cast<Value*>(total)->type.sizes);
    return total / Term(c, n);
}

// A result with its reduced axes kept, repeated over them.
inline Term spread(Lowering& c, Term kept, const Sizes& sizes) { return {c, c.b.expand(kept, sizes)}; }

}  // namespace braze::passes::decomposition
