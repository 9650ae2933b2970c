// Loads at computed places: index, index_select, embedding, gather, take. Where eager rejects negative indices, they
// are mapped to one that is out of range as well, so that the check of the range finds them.
#include <limits>

#include "core/passes/decompose/rules.h"
#include "core/passes/decompose/term.h"

namespace braze::passes::decomposition::rules {

namespace {

Term as_index(Lowering& c, Value* v) {
    c.require(v->type.dtype == DType::I64 || v->type.dtype == DType::I32);
    return {c, c.b.cast(v, DType::I64)};
}

Term non_negative_index(Lowering& c, Value* v) {
    Term i = as_index(c, v);
    Value* outside = c.b.scalar_int(DType::I64, std::numeric_limits<int64_t>::max(), v->type.sizes);
    return where(lt(i, 0), Term(c, outside), i);
}

Sizes broadcast(Lowering& c, const std::vector<Value*>& xs) {
    Sizes out;
    for (const Value* x : xs) {
        const Sizes& s = x->type.sizes;
        if (s.size() > out.size()) out.insert(out.begin(), s.size() - out.size(), Expr(1));
        for (size_t k = 0; k < s.size(); ++k) {
            Expr& size = out[out.size() - s.size() + k];
            if (size == Expr(1)) size = s[k];
            c.require(s[k] == size || s[k] == Expr(1));
        }
    }
    return out;
}

}  // namespace

void index(Lowering& c) {
    Value* x = c.tensor("self");
    std::vector<Value*> given = c.optional_tensors("indices"), indices;
    std::vector<int> axes;
    for (int k = 0; k < static_cast<int>(given.size()); ++k) {
        if (!given[k]) continue;
        axes.push_back(k);
        indices.push_back(as_index(c, given[k]));
    }
    c.require(!axes.empty());
    Sizes sizes = broadcast(c, indices);
    for (Value*& i : indices) i = c.b.expand(i, sizes);
    bool adjacent = axes.back() - axes.front() + 1 == static_cast<int>(axes.size());
    c.done(c.b.take(x, indices, axes, adjacent ? axes.front() : 0));
}

void index_select(Lowering& c) {
    Value* x = c.tensor("self");
    Value* i = c.tensor("index");
    c.require(x->type.rank() > 0 && i->type.rank() == 1);
    int axis = c.axis("dim", x->type.rank());
    c.done(c.b.take(x, {non_negative_index(c, i)}, {axis}, axis));
}

void embedding(Lowering& c) {
    Value* table = c.tensor("weight");
    c.require(table->type.rank() == 2);
    c.done(c.b.take(table, {non_negative_index(c, c.tensor("indices"))}, {0}, 0));
}

void gather(Lowering& c) {
    Value* x = c.tensor("self");
    Value* i = c.tensor("index");
    c.require(x->type.rank() > 0 && i->type.rank() == x->type.rank() && !c.flag("sparse_grad"));
    c.done(c.b.gather(x, non_negative_index(c, i), c.axis("dim", x->type.rank())));
}

// take(self, index): index into the flattened tensor.
void take(Lowering& c) {
    Value* x = c.tensor("self");
    c.done(c.b.take(c.b.reshape(x, {x->type.numel()}), {as_index(c, c.tensor("index"))}, {0}, 0));
}

}  // namespace braze::passes::decomposition::rules
