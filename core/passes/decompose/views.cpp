// Views: index maps over the operand's memory. The result shares memory where the Call's result does (the *_copy and
// unsafe_ forms do not); its strides are those that were captured.
#include "core/passes/decompose/lowering.h"
#include "core/passes/decompose/rules.h"

namespace braze::passes::decomposition::rules {

namespace {

std::vector<ir::NamedArg> dims_attribute(const std::vector<int>& dims) { return {{"dims", ir::to_exprs(dims)}}; }

void permuted(Lowering& c, const std::vector<int>& dims) {
    c.done_view(Op::Permute, c.tensor("self"), dims_attribute(dims));
}

void swapped(Lowering& c, int a, int b) {
    std::vector<int> dims(c.type().rank());
    for (int k = 0; k < static_cast<int>(dims.size()); ++k) dims[k] = k;
    if (!dims.empty()) std::swap(dims[a], dims[b]);
    permuted(c, dims);
}

// Result i is x[.., start : start + sizes * step : step, ..].
void sliced(Lowering& c, Value* x, int axis, const Expr& start, const Expr& step, int i = 0) {
    Sizes starts(x->type.rank(), Expr(0)), steps(x->type.rank(), Expr(1));
    starts[axis] = start;
    steps[axis] = step;
    c.done_view(Op::Slice, x, {{"starts", starts}, {"steps", steps}}, i);
}

// Result i is x[.., index, ..].
void selected(Lowering& c, Value* x, int axis, const Expr& index, int i = 0) {
    Sizes starts(x->type.rank(), Expr(0)), steps(x->type.rank(), Expr(1));
    starts[axis] = index;
    TensorType row = x->type;
    row.sizes[axis] = 1;
    Value* v = c.b.create(Op::Slice, {x}, {{"starts", starts}, {"steps", steps}}, row);
    if (c.is_alias(i)) ir::Builder::as_alias(v, c.call.results[i]->storage);
    c.done_view(Op::Reshape, v, {}, i);
}

// A bound of a slice: counted from the end where negative, kept within [0, size].
Expr slice_bound(Lowering& c, const Expr& bound, const Expr& size) {
    Expr b = bound;
    if (shapes::known_lt(b, 0)) {
        b = b + size;
        return shapes::known_le(0, b) ? b : shapes::max(b, 0);
    }
    c.require(shapes::known_le(0, b));
    return shapes::known_le(b, size) ? b : shapes::min(b, size);
}

Expr select_index(Lowering& c, const Expr& index, const Expr& size) {
    if (shapes::known_le(0, index)) return index;
    c.require(shapes::known_lt(index, 0));
    return index + size;
}

// Consecutive pieces along an axis, one per result.
void split_into(Lowering& c, Value* x, int axis) {
    Expr start = 0;
    for (int i = 0; i < c.results(); ++i) {
        sliced(c, x, axis, start, 1, i);
        start = start + c.sizes(i)[axis];
    }
}

}  // namespace

// Other sizes over the same elements in row-major order; the result's type says which.
void reshape(Lowering& c) { c.done_view(Op::Reshape, c.tensor("self"), {}); }

void expand(Lowering& c) { c.done_view(Op::Expand, c.tensor("self"), {}); }

void t(Lowering& c) { swapped(c, 0, c.type().rank() > 1 ? 1 : 0); }

void transpose(Lowering& c) {
    int rank = c.tensor("self")->type.rank();
    swapped(c, c.axis("dim0", rank), c.axis("dim1", rank));
}

void permute(Lowering& c) {
    int rank = c.tensor("self")->type.rank();
    std::vector<int> dims;
    for (int64_t d : c.constant_list("dims")) dims.push_back(c.wrap_axis(d, rank));
    permuted(c, dims);
}

void slice(Lowering& c) {
    Value* x = c.tensor("self");
    c.require(x->type.rank() > 0);
    int axis = c.axis("dim", x->type.rank());
    Expr start = c.given("start") ? slice_bound(c, c.integer("start"), x->type.sizes[axis]) : Expr(0);
    sliced(c, x, axis, start, c.given("step") ? c.integer("step") : Expr(1));
}

void narrow(Lowering& c) {
    Value* x = c.tensor("self");
    c.require(x->type.rank() > 0);
    int axis = c.axis("dim", x->type.rank());
    sliced(c, x, axis, slice_bound(c, c.integer("start"), x->type.sizes[axis]), 1);
}

void select(Lowering& c) {
    Value* x = c.tensor("self");
    int axis = c.axis("dim", x->type.rank());
    selected(c, x, axis, select_index(c, c.integer("index"), x->type.sizes[axis]));
}

void unbind(Lowering& c) {
    Value* x = c.tensor("self");
    int axis = c.axis("dim", x->type.rank());
    for (int i = 0; i < c.results(); ++i) selected(c, x, axis, i, i);
}

void split(Lowering& c) {
    Value* x = c.tensor("self");
    c.require(x->type.rank() > 0);
    split_into(c, x, c.axis("dim", x->type.rank()));
}

}  // namespace braze::passes::decomposition::rules
