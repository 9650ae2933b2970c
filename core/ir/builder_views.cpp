// Builder: views, structure and indexed loads.
#include <algorithm>

#include "core/ir/builder.h"
#include "core/ir/op.h"
#include "core/support/error.h"

namespace braze::ir {

namespace {

void check_axis(const Value* x, int axis) {
    BRAZE_CHECK(axis >= 0 && axis < x->type.rank(),
                "axis " + std::to_string(axis) + " of a tensor with " + std::to_string(x->type.rank()) + " axes");
}

}  // namespace

Value* Builder::view(Op op, Value* x, std::vector<NamedArg> attributes, Sizes sizes, Sizes strides) {
    return create(op, {x}, std::move(attributes), {x->type.dtype, std::move(sizes), std::move(strides)});
}

Value* Builder::permute(Value* x, const std::vector<int>& dims) {
    BRAZE_CHECK(static_cast<int>(dims.size()) == x->type.rank(), "permute: as many dims as axes are needed");
    Sizes sizes, strides;
    for (int d : dims) {
        check_axis(x, d);
        sizes.push_back(x->type.sizes[static_cast<size_t>(d)]);
        strides.push_back(x->type.strides[static_cast<size_t>(d)]);
    }
    return view(Op::Permute, x, {{"dims", to_exprs(dims)}}, sizes, strides);
}

Value* Builder::transpose(Value* x, int a, int b) {
    std::vector<int> dims(x->type.sizes.size());
    for (size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<int>(i);
    check_axis(x, a);
    check_axis(x, b);
    std::swap(dims[static_cast<size_t>(a)], dims[static_cast<size_t>(b)]);
    return permute(x, dims);
}

Value* Builder::expand(Value* x, const Sizes& sizes) {
    if (x->type.sizes == sizes) return x;
    size_t n = sizes.size(), own = x->type.sizes.size();
    BRAZE_CHECK(n >= own, "expand: fewer axes than the operand has");
    Sizes strides(n);
    for (size_t i = n; i-- > 0;) {
        bool added = i + own < n;
        Expr size = added ? Expr(1) : x->type.sizes[i + own - n];
        if (!added)
            strides[i] = x->type.strides[i + own - n];
        else
            strides[i] = i + 1 < n ? sizes[i + 1] * strides[i + 1] : Expr(1);
        if (size == sizes[i]) continue;
        BRAZE_CHECK(size == Expr(1), "expand: axis of size " + size.str() + " to " + sizes[i].str());
        strides[i] = Expr(0);
    }
    return view(Op::Expand, x, {}, sizes, strides);
}

Value* Builder::reshape(Value* x, const Sizes& sizes) {
    if (x->type.sizes == sizes) return x;
    return view(Op::Reshape, x, {}, sizes, view_strides(x->type, sizes).value_or(contiguous_strides(sizes)));
}

Value* Builder::unsqueeze(Value* x, int axis) {
    Sizes sizes = x->type.sizes;
    BRAZE_CHECK(axis >= 0 && axis <= x->type.rank(), "unsqueeze: axis out of range");
    sizes.insert(sizes.begin() + axis, Expr(1));
    return reshape(x, sizes);
}

Value* Builder::squeeze(Value* x, int axis) {
    Sizes sizes = x->type.sizes;
    check_axis(x, axis);
    BRAZE_CHECK(sizes[static_cast<size_t>(axis)] == Expr(1), "squeeze: the axis is not of size 1");
    sizes.erase(sizes.begin() + axis);
    return reshape(x, sizes);
}

Value* Builder::slice(Value* x, const Sizes& starts, const Sizes& steps, const Sizes& sizes) {
    size_t n = x->type.sizes.size();
    BRAZE_CHECK(starts.size() == n && steps.size() == n && sizes.size() == n,
                "slice: starts, steps and sizes are per axis");
    Sizes strides(n);
    for (size_t i = 0; i < n; ++i) strides[i] = x->type.strides[i] * steps[i];
    return view(Op::Slice, x, {{"starts", starts}, {"steps", steps}}, sizes, strides);
}

Value* Builder::slice_axis(Value* x, int axis, const Expr& start, const Expr& size, const Expr& step) {
    check_axis(x, axis);
    size_t n = x->type.sizes.size(), a = static_cast<size_t>(axis);
    Sizes starts(n, Expr(0)), steps(n, Expr(1)), sizes = x->type.sizes;
    starts[a] = start;
    steps[a] = step;
    sizes[a] = size;
    return slice(x, starts, steps, sizes);
}

Value* Builder::flip(Value* x, const std::vector<int>& dims) {
    for (int d : dims) check_axis(x, d);
    return view(Op::Flip, x, {{"dims", to_exprs(dims)}}, x->type.sizes, contiguous_strides(x->type.sizes));
}

Value* Builder::as_strided(Value* x, const Sizes& sizes, const Sizes& strides, const Expr& offset) {
    return view(Op::AsStrided, x, {{"offset", offset}}, sizes, strides);
}

Value* Builder::cat(const std::vector<Value*>& xs, int dim) {
    BRAZE_CHECK(!xs.empty(), "cat: no operands");
    check_axis(xs[0], dim);
    size_t d = static_cast<size_t>(dim);
    Sizes sizes = xs[0]->type.sizes;
    sizes[d] = Expr(0);
    for (const Value* x : xs) {
        BRAZE_CHECK(x->type.dtype == xs[0]->type.dtype && x->type.rank() == xs[0]->type.rank(),
                    "cat: operands differ in dtype or number of axes");
        for (size_t i = 0; i < sizes.size(); ++i)
            BRAZE_CHECK(i == d || x->type.sizes[i] == sizes[i], "cat: operands differ in size along another axis");
        sizes[d] = sizes[d] + x->type.sizes[d];
    }
    return create(Op::Cat, xs, {{"dim", Expr(dim)}}, {xs[0]->type.dtype, sizes, contiguous_strides(sizes)});
}

Value* Builder::pad(Value* x, const Sizes& low, const Sizes& high, double value) {
    size_t n = x->type.sizes.size();
    BRAZE_CHECK(low.size() == n && high.size() == n, "pad: low and high are per axis");
    Sizes sizes(n);
    for (size_t i = 0; i < n; ++i) sizes[i] = x->type.sizes[i] + low[i] + high[i];
    DType d = x->type.dtype;
    Arg fill = value;
    if (d == DType::Bool)
        fill = value != 0;
    else if (!is_float(d))
        fill = Expr(static_cast<int64_t>(value));
    return create(Op::Pad, {x}, {{"low", low}, {"high", high}, {"value", fill}}, {d, sizes, contiguous_strides(sizes)});
}

Value* Builder::copy(Value* x, const Sizes& strides) {
    return create(Op::Copy, {x}, {}, {x->type.dtype, x->type.sizes, strides});
}

Value* Builder::gather(Value* x, Value* index, int dim) {
    check_axis(x, dim);
    const Sizes& sizes = index->type.sizes;
    BRAZE_CHECK(sizes.size() == x->type.sizes.size(), "gather: the index has another number of axes");
    return create(Op::Gather, {x, index}, {{"dim", Expr(dim)}}, {x->type.dtype, sizes, contiguous_strides(sizes)});
}

Value* Builder::take(Value* x, const std::vector<Value*>& indices, const std::vector<int>& axes, int at) {
    BRAZE_CHECK(!indices.empty() && indices.size() == axes.size(), "take: one index per axis is needed");
    Sizes sizes;
    for (int i = 0; i < x->type.rank(); ++i)
        if (std::find(axes.begin(), axes.end(), i) == axes.end())
            sizes.push_back(x->type.sizes[static_cast<size_t>(i)]);
    BRAZE_CHECK(at >= 0 && static_cast<size_t>(at) <= sizes.size(), "take: `at` is out of range");
    const Sizes& index_sizes = indices[0]->type.sizes;
    sizes.insert(sizes.begin() + at, index_sizes.begin(), index_sizes.end());
    std::vector<Value*> operands{x};
    operands.insert(operands.end(), indices.begin(), indices.end());
    return create(Op::Take, std::move(operands), {{"axes", to_exprs(axes)}, {"at", Expr(at)}},
                  {x->type.dtype, sizes, contiguous_strides(sizes)});
}

}  // namespace braze::ir
