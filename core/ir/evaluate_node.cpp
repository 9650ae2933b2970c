#include "core/ir/evaluate_node.h"

#include <algorithm>

#include "core/ir/op.h"
#include "core/ir/text.h"
#include "core/support/error.h"

namespace braze::ir {

namespace {

// Calls f(index) for every index of the sizes, row-major.
template <class F>
void each_index(const std::vector<int64_t>& sizes, F f) {
    std::vector<int64_t> index(sizes.size(), 0);
    for (int64_t s : sizes)
        if (s == 0) return;
    while (true) {
        f(index);
        size_t i = sizes.size();
        while (i > 0 && ++index[i - 1] == sizes[i - 1]) index[--i] = 0;
        if (i == 0) return;
    }
}

void store(HostTensor& t, const std::vector<int64_t>& index, ir::Number x) {
    ir::store_number(t.dtype, t.bytes->data(), t.element(index), x);
}

}  // namespace

NodeEvaluator::Index NodeEvaluator::integers(const char* name) const {
    Index out;
    for (const Expr& e : *n_.get<std::vector<Expr>>(name)) out.push_back(number_(e));
    return out;
}

ir::Number NodeEvaluator::fill_value(DType dtype) const {
    if (const double* v = n_.get<double>("value")) return ir::cast_number(DType::F64, dtype, {.f = *v});
    if (const bool* v = n_.get<bool>("value")) return ir::cast_number(DType::Bool, dtype, {.i = *v});
    return ir::cast_number(DType::I64, dtype, {.i = integer("value")});
}

ir::Number NodeEvaluator::load(size_t operand, const Index& index) const {
    const HostTensor& x = xs_[operand];
    return ir::load_number(x.dtype, x.bytes->data(), x.element(index));
}

ir::Number NodeEvaluator::elementwise(const Index& index) const {
    DType result = n_.results[0]->type.dtype;
    if (n_.op == Op::Cast) return ir::cast_number(xs_[0].dtype, result, load(0, index));
    DType d = xs_[n_.op == Op::Where ? 1 : 0].dtype, compute = compute_type(d);
    Number args[3];
    for (size_t i = 0; i < xs_.size(); ++i) args[i] = load(i, index);
    Number y = ir::apply(n_.op, compute, args);
    return returns_bool(n_.op) ? y : ir::cast_number(compute, d, y);
}

NodeEvaluator::Index NodeEvaluator::viewed(const HostTensor& result, const Index& index) const {
    const Index& sizes = xs_[0].sizes;
    Index at(sizes.size());
    switch (n_.op) {
        case Op::Permute: {
            Index dims = integers("dims");
            for (size_t i = 0; i < dims.size(); ++i) at[static_cast<size_t>(dims[i])] = index[i];
            return at;
        }
        case Op::Expand:
            for (size_t i = 0; i < sizes.size(); ++i)
                at[i] = sizes[i] == 1 ? 0 : index[i + index.size() - sizes.size()];
            return at;
        case Op::Reshape: {
            int64_t row_major = 0;
            for (size_t i = 0; i < index.size(); ++i) row_major = row_major * result.sizes[i] + index[i];
            for (size_t i = sizes.size(); i-- > 0;) {
                at[i] = row_major % sizes[i];
                row_major /= sizes[i];
            }
            return at;
        }
        case Op::Slice: {
            Index starts = integers("starts"), steps = integers("steps");
            for (size_t i = 0; i < sizes.size(); ++i) at[i] = starts[i] + steps[i] * index[i];
            return at;
        }
        case Op::Flip: {
            at = index;
            for (int64_t d : integers("dims"))
                at[static_cast<size_t>(d)] = sizes[static_cast<size_t>(d)] - 1 - index[static_cast<size_t>(d)];
            return at;
        }
        default: return index;  // Copy
    }
}

ir::Number NodeEvaluator::taken(const Index& index) const {
    const Index& sizes = xs_[0].sizes;
    auto wrapped = [&](int64_t i, size_t axis) {
        int64_t j = i < 0 ? i + sizes[axis] : i;
        BRAZE_CHECK(j >= 0 && j < sizes[axis], "index " + std::to_string(i) + " is out of range: " + print(n_));
        return j;
    };
    Index at = index;
    if (n_.op == Op::Gather) {
        size_t dim = static_cast<size_t>(integer("dim"));
        at[dim] = wrapped(load(1, index).i, dim);
        return load(0, at);
    }
    Index axes = integers("axes");
    size_t first = static_cast<size_t>(integer("at")), n = xs_[1].sizes.size();
    Index inner(index.begin() + static_cast<long>(first), index.begin() + static_cast<long>(first + n));
    at.assign(sizes.size(), 0);
    size_t next = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
        auto place = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i));
        if (place != axes.end()) {
            at[i] = wrapped(load(1 + static_cast<size_t>(place - axes.begin()), inner).i, i);
        } else {
            at[i] = index[next < first ? next : next + n];
            ++next;
        }
    }
    return load(0, at);
}

ir::Number NodeEvaluator::element(const HostTensor& result, const Index& index) {
    switch (kind(n_.op)) {
        case OpKind::Unary:
        case OpKind::Binary:
        case OpKind::Ternary:
        case OpKind::Cast: return elementwise(index);
        case OpKind::Constant: return fill_value(result.dtype);
        case OpKind::Create:
            return ir::cast_number(
                DType::I64, result.dtype,
                {.i = integer("start") + integer("step") * index[static_cast<size_t>(integer("axis"))]});
        case OpKind::Index: return taken(index);
        default: break;
    }
    if (n_.op == Op::AsStrided) {
        int64_t at = integer("offset");
        for (size_t i = 0; i < index.size(); ++i) at += index[i] * result.strides[i];
        return ir::load_number(result.dtype, xs_[0].bytes->data(), at);
    }
    if (n_.op == Op::Cat) {
        size_t dim = static_cast<size_t>(integer("dim")), k = 0;
        Index at = index;
        while (at[dim] >= xs_[k].sizes[dim]) at[dim] -= xs_[k++].sizes[dim];
        return load(k, at);
    }
    if (n_.op == Op::Pad) {
        Index at = index, low = integers("low");
        for (size_t i = 0; i < at.size(); ++i) {
            at[i] -= low[i];
            if (at[i] < 0 || at[i] >= xs_[0].sizes[i]) return fill_value(result.dtype);
        }
        return load(0, at);
    }
    return load(0, viewed(result, index));
}

void NodeEvaluator::reduce(std::vector<HostTensor>& results) {
    Index dims = integers("dims"), outer = xs_[0].sizes, inner(outer.size(), 1);
    bool keepdim = *n_.get<bool>("keepdim");
    for (int64_t d : dims) {
        inner[static_cast<size_t>(d)] = outer[static_cast<size_t>(d)];
        outer[static_cast<size_t>(d)] = 1;
    }
    auto reduced = [&](size_t i) { return std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) != dims.end(); };
    DType x = xs_[0].dtype, r = results[0].dtype;
    // What is accumulated in: sums of integers in the result's dtype, half types in f32.
    DType acc = is_float(x) ? compute_type(x) : (n_.op == Op::Sum || n_.op == Op::Prod) ? r : x;
    each_index(outer, [&](const Index& base) {
        Index out;
        for (size_t i = 0; i < base.size(); ++i)
            if (!reduced(i) || keepdim) out.push_back(base[i]);
        auto each_inner = [&](auto f) {
            int64_t count = 0;
            each_index(inner, [&](const Index& part) {
                Index at = base;
                for (size_t i = 0; i < at.size(); ++i) at[i] += part[i];
                f(load(0, at), count++);
            });
            return count;
        };
        if (n_.op == Op::VarMean) {
            long double sum = 0, squares = 0;
            int64_t count = each_inner([&](Number v, int64_t) { sum += v.f; });
            long double mean = sum / static_cast<long double>(count);
            each_inner([&](Number v, int64_t) { squares += (v.f - mean) * (v.f - mean); });
            long double divisor =
                std::max<long double>(0, static_cast<long double>(count) - *n_.get<double>("correction"));
            store(results[0], out, ir::cast_number(DType::F64, r, {.f = static_cast<double>(squares / divisor)}));
            store(results[1], out, ir::cast_number(DType::F64, r, {.f = static_cast<double>(mean)}));
            return;
        }
        ir::Accumulator a(n_.op, acc);
        each_inner([&](Number v, int64_t i) { a.add(ir::cast_number(x, acc, v), i); });
        bool index = n_.op == Op::ArgMax || n_.op == Op::ArgMin;
        store(results[0], out, index ? a.result() : ir::cast_number(acc, r, a.result()));
    });
}

void NodeEvaluator::fill(std::vector<HostTensor>& results) {
    if (kind(n_.op) == OpKind::Reduce) return reduce(results);
    each_index(results[0].sizes, [&](const Index& index) { store(results[0], index, element(results[0], index)); });
}

HostTensor NodeEvaluator::shared_view(const HostTensor& type) {
    HostTensor t = type;
    t.bytes = xs_[0].bytes;
    t.offset = xs_[0].offset;
    if (n_.op == Op::AsStrided) t.offset = integer("offset");
    if (n_.op == Op::Slice) {
        Index starts = integers("starts");
        for (size_t i = 0; i < starts.size(); ++i) t.offset += starts[i] * xs_[0].strides[i];
    }
    return t;
}

}  // namespace braze::ir
