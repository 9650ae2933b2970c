// Copies and rearrangements: clone, conversions, cat, pad, roll, flip, repeat, pixel shuffles, nearest upsampling.
#include <cmath>
#include <tuple>

#include "core/passes/decompose/rules.h"
#include "core/passes/decompose/term.h"

namespace braze::passes::decomposition::rules {

namespace {

// x with each axis k repeated times[k]: result sizes are sizes[k] * times[k].
Value* tiled(Lowering& c, Value* x, const Sizes& times) {
    Sizes split, wide, merged;
    for (int k = 0; k < x->type.rank(); ++k) {
        split.insert(split.end(), {Expr(1), x->type.sizes[k]});
        wide.insert(wide.end(), {times[k], x->type.sizes[k]});
        merged.push_back(times[k] * x->type.sizes[k]);
    }
    return c.b.reshape(c.b.expand(c.b.reshape(x, split), wide), merged);
}

Value* rolled(Lowering& c, Value* x, int axis, const Expr& shift) {
    Expr size = x->type.sizes[axis];
    if (size == Expr(0)) return x;
    c.require(shapes::known_lt(0, size));
    Expr tail = shapes::mod(shift, size), head = size - tail;
    if (tail == Expr(0)) return x;
    return c.b.cat({c.b.slice_axis(x, axis, head, tail), c.b.slice_axis(x, axis, 0, head)}, axis);
}

// Whether nearest upsampling from `in` to `out` elements repeats each of them out / in times. Eager computes the source
// index in f32.
bool repeats_evenly(int64_t in, int64_t out, std::optional<double> scale, bool exact) {
    if (in <= 0 || out % in != 0) return false;
    float step =
        scale && *scale > 0 ? static_cast<float>(1.0 / *scale) : static_cast<float>(in) / static_cast<float>(out);
    for (int64_t k = 0; k < out; ++k) {
        float at = exact ? (static_cast<float>(k) + 0.5F) * step : static_cast<float>(k) * step;
        if (std::min(static_cast<int64_t>(std::floor(at)), in - 1) != k / (out / in)) return false;
    }
    return true;
}

void upsampled(Lowering& c, std::initializer_list<std::string_view> scales, bool exact) {
    Value* x = c.tensor("self");
    int first = x->type.rank() - static_cast<int>(scales.size());
    c.require(first == 2);
    Sizes split(x->type.sizes.begin(), x->type.sizes.begin() + first), wide = split;
    int k = first;
    for (std::string_view name : scales) {
        std::optional<int64_t> in = x->type.sizes[k].as_const(), out = c.sizes()[k].as_const();
        std::optional<double> scale;
        if (c.given(name)) scale = c.real(name);
        c.require(in && out && repeats_evenly(*in, *out, scale, exact));
        split.insert(split.end(), {Expr(*in), Expr(1)});
        wide.insert(wide.end(), {Expr(*in), Expr(*out / *in)});
        ++k;
    }
    c.done(c.b.reshape(c.b.expand(c.b.reshape(x, split), wide), c.sizes()));
}

void replace_slice(Lowering& c, Value* x, Value* src, int axis, const Expr& start) {
    Expr size = x->type.sizes[axis], end = start + src->type.sizes[axis];
    c.require(shapes::known_le(0, start) && shapes::known_le(end, size));
    std::vector<Value*> parts;
    if (start != Expr(0)) parts.push_back(c.b.slice_axis(x, axis, 0, start));
    parts.push_back(c.b.cast(src, x->type.dtype));
    if (end != size) parts.push_back(c.b.slice_axis(x, axis, end, size - end));
    c.done(parts.size() == 1 ? parts[0] : c.b.cat(parts, axis));
}

// x with step - 1 zeros between its elements along an axis, and where its part of what begins with x at `start` begins:
// as far in front as makes that a multiple of the step, if it is known.
std::pair<Value*, Expr> spaced(Lowering& c, Value* x, int axis, const Expr& start, int64_t step) {
    const int64_t before = start.as_const().value_or(0) % step;
    Sizes low(static_cast<size_t>(x->type.rank()) + 1, Expr(0)), high = low, merged = x->type.sizes;
    low[axis + 1] = before;
    high[axis + 1] = step - 1 - before;
    merged[axis] = merged[axis] * step;
    return {c.b.reshape(c.b.pad(c.b.unsqueeze(x, axis + 1), low, high, 0.0), merged), start - before};
}

}  // namespace

void clone(Lowering& c) { c.done(c.tensor("self")); }

void to_copy(Lowering& c) {
    c.require_plain_cpu();
    c.done(c.tensor("self"));
}

// copy(self, src): src with the dtype and sizes of self.
void copy(Lowering& c) { c.done(c.tensor("src")); }

void cat(Lowering& c) {
    int axis = c.axis("dim", c.type().rank());
    std::vector<Value*> parts;
    for (Value* x : c.tensors("tensors")) {
        // An empty tensor of rank 1 goes with every rank.
        if (x->type.rank() == 1 && x->type.sizes[0] == Expr(0)) continue;
        c.require(x->type.rank() == c.type().rank());
        parts.push_back(c.b.cast(x, c.dtype()));
    }
    c.require(!parts.empty() && c.type().rank() > 0);
    c.done(parts.size() == 1 ? parts[0] : c.b.cat(parts, axis));
}

void stack(Lowering& c) {
    int axis = c.axis("dim", c.type().rank());
    std::vector<Value*> parts;
    for (Value* x : c.tensors("tensors")) parts.push_back(c.b.unsqueeze(c.b.cast(x, c.dtype()), axis));
    c.done(parts.size() == 1 ? parts[0] : c.b.cat(parts, axis));
}

void constant_pad(Lowering& c) {
    Value* x = c.tensor("self");
    std::vector<Expr> pad = c.list("pad");
    int rank = x->type.rank();
    c.require(pad.size() % 2 == 0 && static_cast<int>(pad.size() / 2) <= rank && x->type.dtype == c.dtype());
    Sizes low(rank, Expr(0)), high(rank, Expr(0));
    bool moved = false;
    for (size_t k = 0; k < pad.size() / 2; ++k) {
        low[rank - 1 - k] = pad[2 * k];
        high[rank - 1 - k] = pad[2 * k + 1];
        moved = moved || pad[2 * k] != Expr(0) || pad[2 * k + 1] != Expr(0);
    }
    if (!moved) return c.done(x);
    // The value in the operand's dtype, as a constant.
    std::optional<double> value = c.given("value") ? c.number("value").real() : 0.0;
    c.require(value.has_value());
    Value* filled = c.fill(Number(*value), c.dtype(), {});
    std::vector<ir::NamedArg> attributes = {{"low", low}, {"high", high}, {"value", *filled->node->arg("value")}};
    c.done(c.b.create(Op::Pad, {x}, std::move(attributes), c.type()));
}

void roll(Lowering& c) {
    Value* x = c.tensor("self");
    std::vector<Expr> shifts = c.list("shifts");
    std::vector<int64_t> dims = c.constant_list("dims");
    if (x->type.rank() == 0) return c.done(x);
    if (dims.empty()) {
        c.require(shifts.size() == 1);
        return c.done(c.b.reshape(rolled(c, c.b.reshape(x, {x->type.numel()}), 0, shifts[0]), c.sizes()));
    }
    c.require(dims.size() == shifts.size());
    Value* y = x;
    for (size_t k = 0; k < dims.size(); ++k) y = rolled(c, y, c.wrap_axis(dims[k], x->type.rank()), shifts[k]);
    c.done(y);
}

void flip(Lowering& c) {
    Value* x = c.tensor("self");
    std::vector<int> dims;
    for (int64_t d : c.constant_list("dims")) {
        int k = c.wrap_axis(d, x->type.rank());
        if (k < x->type.rank()) dims.push_back(k);
    }
    c.done(dims.empty() ? x : c.b.flip(x, dims));
}

void repeat(Lowering& c) {
    Value* x = c.tensor("self");
    Sizes times = c.list("repeats");
    Sizes padded(times.size() - x->type.rank(), Expr(1));
    padded.insert(padded.end(), x->type.sizes.begin(), x->type.sizes.end());
    c.done(tiled(c, c.b.reshape(x, padded), times));
}

void pixel_shuffle(Lowering& c) {
    Value* x = c.tensor("self");
    int rank = x->type.rank();
    Expr r = c.integer("upscale_factor");
    Sizes split(c.sizes().begin(), c.sizes().end() - 2);  // batch and channels of the result
    split.insert(split.end(), {r, r, x->type.sizes[rank - 2], x->type.sizes[rank - 1]});
    std::vector<int> dims;
    dims.reserve(static_cast<size_t>(rank) + 2);
    for (int k = 0; k < rank - 2; ++k) dims.push_back(k);
    dims.insert(dims.end(), {rank, rank - 2, rank + 1, rank - 1});
    c.done(c.b.reshape(c.b.permute(c.b.reshape(x, split), dims), c.sizes()));
}

void pixel_unshuffle(Lowering& c) {
    Value* x = c.tensor("self");
    int rank = x->type.rank();
    Expr r = c.integer("downscale_factor");
    Sizes split(x->type.sizes.begin(), x->type.sizes.end() - 2);
    split.insert(split.end(), {c.sizes()[rank - 2], r, c.sizes()[rank - 1], r});
    std::vector<int> dims;
    dims.reserve(static_cast<size_t>(rank) + 2);
    for (int k = 0; k < rank - 2; ++k) dims.push_back(k);
    dims.insert(dims.end(), {rank - 1, rank + 1, rank - 2, rank});
    c.done(c.b.reshape(c.b.permute(c.b.reshape(x, split), dims), c.sizes()));
}

void channel_shuffle(Lowering& c) {
    Value* x = c.tensor("self");
    c.require(x->type.rank() >= 3);
    Expr groups = c.integer("groups");
    Sizes split = {x->type.sizes[0], groups, shapes::floordiv(x->type.sizes[1], groups)};
    split.insert(split.end(), x->type.sizes.begin() + 2, x->type.sizes.end());
    c.done(c.b.reshape(c.b.transpose(c.b.reshape(x, split), 1, 2), c.sizes()));
}

void upsample_nearest1d(Lowering& c) { upsampled(c, {"scales"}, false); }
void upsample_nearest2d(Lowering& c) { upsampled(c, {"scales_h", "scales_w"}, false); }
void upsample_nearest3d(Lowering& c) { upsampled(c, {"scales_d", "scales_h", "scales_w"}, false); }
void upsample_nearest_exact1d(Lowering& c) { upsampled(c, {"scales"}, true); }
void upsample_nearest_exact2d(Lowering& c) { upsampled(c, {"scales_h", "scales_w"}, true); }
void upsample_nearest_exact3d(Lowering& c) { upsampled(c, {"scales_d", "scales_h", "scales_w"}, true); }

// The gradient of a slice or a select: grad at its place among zeros.
void slice_backward(Lowering& c) {
    Value* grad = c.tensor("grad_output");
    int rank = grad->type.rank();
    int axis = c.axis("dim", rank);
    const int64_t step = c.constant("step");
    c.require(step >= 1 && rank > 0 && grad->type.dtype == c.dtype());
    Expr size = c.sizes()[axis], start = c.integer("start");
    if (shapes::known_lt(start, 0)) start = start + size;
    c.require(shapes::known_le(0, start) && shapes::known_le(start, size));
    if (step > 1) std::tie(grad, start) = spaced(c, grad, axis, start, step);
    Sizes low(rank, Expr(0)), high(rank, Expr(0));
    low[axis] = start;
    high[axis] = size - start - grad->type.sizes[axis];
    c.done(c.b.pad(grad, low, high, 0.0));
}

void select_backward(Lowering& c) {
    Value* grad = c.tensor("grad_output");
    int rank = grad->type.rank() + 1;
    int axis = c.axis("dim", rank);
    c.require(grad->type.dtype == c.dtype());
    Expr size = c.sizes()[axis], index = c.integer("index");
    if (shapes::known_lt(index, 0)) index = index + size;
    c.require(shapes::known_le(0, index));
    Sizes low(rank, Expr(0)), high(rank, Expr(0));
    low[axis] = index;
    high[axis] = size - index - 1;
    c.done(c.b.pad(c.b.unsqueeze(grad, axis), low, high, 0.0));
}

// self with src in place of a slice of it.
void slice_scatter(Lowering& c) {
    Value* x = c.tensor("self");
    Value* src = c.tensor("src");
    c.require(c.constant("step") == 1 && x->type.rank() > 0 && src->type.rank() == x->type.rank());
    int axis = c.axis("dim", x->type.rank());
    Expr size = x->type.sizes[axis], start = c.given("start") ? c.integer("start") : Expr(0);
    if (shapes::known_lt(start, 0)) start = start + size;
    replace_slice(c, x, src, axis, start);
}

void select_scatter(Lowering& c) {
    Value* x = c.tensor("self");
    c.require(x->type.rank() > 0);
    int axis = c.axis("dim", x->type.rank());
    Expr index = c.integer("index");
    if (shapes::known_lt(index, 0)) index = index + x->type.sizes[axis];
    replace_slice(c, x, c.b.unsqueeze(c.tensor("src"), axis), axis, index);
}

}  // namespace braze::passes::decomposition::rules
