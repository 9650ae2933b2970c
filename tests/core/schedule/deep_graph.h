// Random graphs for the scheduler.
#pragma once
#include <random>

#include "core/ir/builder.h"

namespace braze::testing {

using ir::Builder;
using ir::DType;
using ir::Op;
using ir::Sizes;
using ir::Value;

// Deep graphs over few shapes, so that much of it fuses: pointwise, broadcasts, reductions and normalisations, axes
// split, merged and permuted, pieces cut out and put together, indexed loads, calls that write.
class DeepGraph {
  public:
    DeepGraph(unsigned seed, bool symbolic) : rng_(seed) {
        if (symbolic) {
            s0_ = shapes::Expr::symbol("s0", {2, 1 << 20});
            g_.symbols = {s0_};
        }
    }

    ir::Graph make(int nodes) {
        Builder b(g_);
        const Sizes shapes[] = {{s0_, 4, 6}, {s0_, 24}, {24}, {s0_ * 4, 6}, {s0_, 2, 2, 6}, {6}, {4, 1}};
        for (const auto& s : shapes)
            values_.push_back(g_.add_input({DType::F32, s, ir::contiguous_strides(s)}, g_.fresh_storage()));
        values_.push_back(g_.add_input({DType::F32, {s0_, 4, 6}, {24, 1, 4}}, g_.fresh_storage()));
        values_.push_back(g_.add_input({DType::BF16, {s0_, 24}, {24, 1}}));
        index_ = g_.add_input({DType::I64, {5}, {1}});  // elements 0 and 1
        for (int i = 0; i < nodes; ++i) grow(b);
        for (int i = 0; i < 4; ++i) g_.outputs.push_back(any());
        return std::move(g_);
    }

    ir::SymbolValues symbols() const {
        return [s = s0_](const shapes::Expr& e) -> std::optional<int64_t> {
            return e == s ? std::optional<int64_t>(3) : std::nullopt;
        };
    }

  private:
    int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }
    Value* any() {  // rather a late one
        const int n = static_cast<int>(values_.size());
        return values_[static_cast<size_t>(pick(0, 3) ? pick(std::max(0, n - 8), n - 1) : pick(0, n - 1))];
    }
    Value* floating() {
        Value* x = any();
        while (!ir::is_float(x->type.dtype)) x = any();
        return x;
    }
    Value* like(Builder& b, Value* x) {  // same dtype and sizes, by expanding if need be
        for (int i = 0; i < 20; ++i) {
            Value* y = any();
            if (y->type.dtype != x->type.dtype || y->type.rank() > x->type.rank()) continue;
            bool fits = true;
            const size_t added = x->type.sizes.size() - y->type.sizes.size();
            for (size_t d = 0; d < y->type.sizes.size(); ++d)
                fits &= y->type.sizes[d] == x->type.sizes[d + added] || y->type.sizes[d] == shapes::Expr(1);
            if (fits) return b.expand(y, x->type.sizes);
        }
        return x;
    }
    void add(Value* v) { values_.push_back(v); }

    void grow(Builder& b) {
        Value* x = floating();
        const int rank = x->type.rank();
        const auto axis = [&] { return pick(0, rank - 1); };
        const auto small = [&] { return shapes::known_le(x->type.numel(), shapes::Expr(400) * s0_); };
        switch (pick(0, 17)) {
            case 0:
            case 1: {
                static constexpr Op ops[] = {Op::Neg, Op::Tanh, Op::Sigmoid, Op::Relu, Op::Sin, Op::Abs};
                return add(b.unary(ops[pick(0, 5)], x));
            }
            case 2:
            case 3:
            case 4: {
                static constexpr Op ops[] = {Op::Add, Op::Sub, Op::Mul, Op::Maximum};
                return add(b.binary(ops[pick(0, 3)], x, like(b, x)));
            }
            case 5: {  // softmax or normalisation
                if (rank == 0) return;
                const int d = axis();
                if (pick(0, 1)) {
                    auto [var, mean] = b.var_mean(x, {d}, true, pick(0, 1));
                    Value* r = b.unary(Op::Rsqrt, b.binary(Op::Add, var, 0.1));
                    return add(b.mul(b.sub(x, b.expand(mean, x->type.sizes)), b.expand(r, x->type.sizes)));
                }
                Value* e = b.unary(Op::Exp, b.sub(x, b.expand(b.reduce(Op::Max, x, {d}, true), x->type.sizes)));
                return add(b.div(e, b.expand(b.reduce(Op::Sum, e, {d}, true), x->type.sizes)));
            }
            case 6: {
                if (rank == 0) return;
                static constexpr Op ops[] = {Op::Sum, Op::Max, Op::Min};
                std::vector<int> dims{axis()};
                if (const int other = axis(); other != dims[0] && pick(0, 1)) dims.push_back(other);
                return add(b.reduce(ops[pick(0, 2)], x, dims, pick(0, 1)));
            }
            case 7: {
                std::vector<int> order(static_cast<size_t>(rank));
                for (int i = 0; i < rank; ++i) order[static_cast<size_t>(i)] = i;
                std::shuffle(order.begin(), order.end(), rng_);
                return add(alias(b, b.permute(x, order)));
            }
            case 8:
            case 9: {  // split or merge axes
                Sizes sizes = x->type.sizes;
                if (rank >= 2 && pick(0, 1)) {
                    const int d = pick(0, rank - 2);
                    sizes[static_cast<size_t>(d)] = sizes[static_cast<size_t>(d)] * sizes[static_cast<size_t>(d) + 1];
                    sizes.erase(sizes.begin() + d + 1);
                } else if (rank >= 1 && rank < 5) {
                    const size_t d = static_cast<size_t>(axis());
                    if (shapes::mod(sizes[d], 2) != shapes::Expr(0) || sizes[d] == shapes::Expr(2)) return;
                    sizes[d] = shapes::floordiv(sizes[d], 2);
                    sizes.insert(sizes.begin() + static_cast<long>(d) + pick(0, 1), 2);
                } else {
                    return;
                }
                return add(alias(b, b.reshape(x, sizes)));
            }
            case 10: {
                if (rank == 0) return;
                const int d = axis();
                auto n = x->type.sizes[static_cast<size_t>(d)].as_const();
                if (!n || *n < 2) return;
                const int start = pick(0, 1), step = pick(1, 2);
                return add(alias(b, b.slice_axis(x, d, start, (*n - start + step - 1) / step, step)));
            }
            case 11: {
                if (rank == 0 || !small()) return;
                const int d = axis();
                std::vector<Value*> parts{x, like(b, x)};
                if (pick(0, 2) == 0) parts.insert(parts.end(), {like(b, x), x, like(b, x)});
                return add(b.cat(parts, d));
            }
            case 12: {
                if (rank == 0 || !small()) return;
                Sizes low(static_cast<size_t>(rank), shapes::Expr(0)), high = low;
                const size_t d = static_cast<size_t>(axis());
                low[d] = pick(0, 2);
                high[d] = pick(0, 1);
                return add(b.pad(x, low, high, pick(0, 1) ? 0.0 : -1.5));
            }
            case 13: {
                if (rank == 0 || !shapes::known_le(shapes::Expr(2), x->type.sizes[0])) return;
                return add(b.take(x, {index_}, {0}, 0));
            }
            case 14: {
                static constexpr DType types[] = {DType::F32, DType::BF16, DType::F64};
                return add(b.cast(x, types[pick(0, 2)]));
            }
            case 15: {
                // of inputs, whose values are exact: a comparison of computed ones may go either way
                for (size_t i = 0; i < 9; ++i) {
                    Value* y = values_[(i + static_cast<size_t>(x->type.rank())) % 9];
                    if (y->type.sizes == x->type.sizes) return add(b.where(b.binary(Op::Lt, y, 0.5), x, like(b, x)));
                }
                return add(b.where(b.unary(Op::IsNan, x), like(b, x), x));
            }
            case 16: {
                if (!ir::is_dense(x->type)) return;
                const char* names[] = {"test::id", "test::scale"};
                return add(b.call(names[pick(0, 1)], {x}, {{"self", ir::Ref{0}}}, {x->type})->results[0]);
            }
            case 17: {  // a write into memory that some values share
                if (!ir::is_dense(x->type) || x->storage < 0 || pick(0, 2)) return;
                ir::Node* n =
                    b.call("test::add_", {x, like(b, x)}, {{"self", ir::Ref{0}}, {"other", ir::Ref{1}}}, {x->type});
                if (n->operands[1]->storage == x->storage) n->operands[1] = b.copy(n->operands[1]);
                std::swap(g_.nodes.back(), g_.nodes[g_.nodes.size() - 2]);  // the copy goes first
                if (g_.nodes.back() != n) std::swap(g_.nodes.back(), g_.nodes[g_.nodes.size() - 2]);
                n->writes = {0};
                n->aliases = {0};
                n->results[0]->storage = x->storage;
                return add(n->results[0]);
            }
        }
    }

    // Some views share memory by the program's meaning, where their operand has a storage to share.
    Value* alias(Builder& b, Value* v) {
        (void)b;
        Value* x = v->node->operands.empty() ? nullptr : v->node->operands[0];
        if (!x || !is_view(v) || !pick(0, 1)) return v;
        if (v->node->op == Op::Reshape && !ir::view_strides(x->type, v->type.sizes)) return v;
        if (x->storage < 0) {
            if (is_view(x) || x->node->op == Op::Call || x->node->op == Op::Input) return v;
            x->storage = g_.fresh_storage();
        }
        return Builder::as_alias(v, x->storage);
    }
    static bool is_view(const Value* v) { return ir::kind(v->node->op) == ir::OpKind::View; }

    std::mt19937 rng_;
    ir::Graph g_;
    shapes::Expr s0_{3};
    std::vector<Value*> values_;
    Value* index_ = nullptr;
};

}  // namespace braze::testing
