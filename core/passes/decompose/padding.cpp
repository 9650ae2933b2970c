// Padding by elements of the tensor itself, and pooling over windows that tile it.
#include "core/passes/decompose/reduced.h"
#include "core/passes/decompose/rules.h"

namespace braze::passes::decomposition::rules {

namespace {

// x with `axis` replaced by the positions place(i - low), i being the new index along it.
template <class Place>
Value* padded(Lowering& c, Value* x, int axis, const Expr& low, const Expr& size, Place place) {
    Term i(c, c.b.iota(DType::I64, {size}, 0, -low));
    return c.b.take(x, {place(i, x->type.sizes[axis])}, {axis}, axis);
}

template <class Place>
void pad_with(Lowering& c, Place place) {
    Value* x = c.tensor("self");
    std::vector<int64_t> pad = c.constant_list("padding");
    for (int k = 0; k < static_cast<int>(pad.size() / 2); ++k) {
        int axis = x->type.rank() - 1 - k;
        c.require(axis >= 0);
        if (pad[2 * k] != 0 || pad[2 * k + 1] != 0) x = padded(c, x, axis, pad[2 * k], c.sizes()[axis], place);
    }
    c.done(x);
}

// The means over windows of kernel[k] elements that lie side by side along the last axes.
void tile_means(Lowering& c, Value* x, const std::vector<Expr>& kernel) {
    int rank = x->type.rank(), first = rank - static_cast<int>(kernel.size());
    c.require(first >= 1 && ir::is_float(c.dtype()));
    Sizes split(x->type.sizes.begin(), x->type.sizes.begin() + first);
    std::vector<int> axes;
    for (size_t k = 0; k < kernel.size(); ++k) {
        axes.push_back(static_cast<int>(split.size()) + 1);
        split.insert(split.end(), {c.sizes()[first + static_cast<int>(k)], kernel[k]});
    }
    c.done(mean_over(c, Term(c, c.b.cast(c.b.reshape(x, split), compute_dtype(c))), axes, false));
}

}  // namespace

void reflection_pad(Lowering& c) {
    pad_with(c, [](Term i, const Expr& size) {
        Value* v = i;
        Lowering& c = i.lowering();
        Term last(c, c.b.scalar_int(DType::I64, size - 1, v->type.sizes));
        return last - abs(last - abs(i));
    });
}

void replication_pad(Lowering& c) {
    pad_with(c, [](Term i, const Expr& size) {
        Value* v = i;
        Lowering& c = i.lowering();
        return minimum(maximum(i, 0), Term(c, c.b.scalar_int(DType::I64, size - 1, v->type.sizes)));
    });
}

void avg_pool(Lowering& c) {
    Value* x = c.tensor("self");
    std::vector<Expr> kernel = c.list("kernel_size"), stride = c.list("stride");
    if (stride.empty()) stride = kernel;
    c.require(stride == kernel && !c.given("divisor_override") && x->type.rank() > static_cast<int>(kernel.size()));
    for (const Expr& p : c.list("padding")) c.require(p == Expr(0));
    for (size_t k = 0; k < kernel.size(); ++k) {
        int axis = x->type.rank() - static_cast<int>(kernel.size() - k);
        Expr used = c.sizes()[axis] * kernel[k];
        // With ceil_mode the last window may reach over the edge.
        c.require(shapes::known_le(used, x->type.sizes[axis]));
        x = c.b.slice_axis(x, axis, 0, used);
    }
    tile_means(c, x, kernel);
}

void adaptive_avg_pool(Lowering& c) {
    Value* x = c.tensor("self");
    std::vector<Expr> kernel;
    int rank = x->type.rank(), first = rank - static_cast<int>(c.list("output_size").size());
    // In three dimensions the half types are summed without a wider sum.
    c.require(rank - first == 2 || !ir::is_half(c.dtype()));
    for (int axis = first; axis < rank; ++axis) {
        std::optional<int64_t> in = x->type.sizes[axis].as_const(), out = c.sizes()[axis].as_const();
        c.require(in && out && *out > 0 && *in > 0 && *in % *out == 0);
        kernel.emplace_back(*in / *out);
    }
    tile_means(c, x, kernel);
}

}  // namespace braze::passes::decomposition::rules
