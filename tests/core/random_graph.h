// Random graphs of primitive operators, for round trips and for passes against the reference evaluator.
#pragma once
#include <random>

#include "core/ir/builder.h"

namespace braze::testing {

class RandomGraph {
  public:
    explicit RandomGraph(unsigned seed) : rng_(seed) {}

    ir::Graph make(int nodes) {
        ir::Graph g;
        ir::Builder b(g);
        g.lines = {"model.py:1 in forward", "a \"quoted\" line"};
        ir::Sizes shapes[] = {{2, 3}, {4}, {2, 1, 3}, {3, 2}};
        for (const auto& s : shapes) values_.push_back(g.add_input({ir::DType::F32, s, ir::contiguous_strides(s)}));
        values_.push_back(g.add_input({ir::DType::F32, {3, 4}, {1, 3}}, -1, "x"));
        values_.push_back(g.add_input({ir::DType::I64, {2, 3}, {3, 1}}));
        values_.push_back(g.add_input({ir::DType::Bool, {2, 3}, {3, 1}}));
        for (int i = 0; i < nodes; ++i) {
            b.set_line(pick(-1, 1));
            grow(b);
        }
        for (int i = 0; i < 3; ++i) g.outputs.push_back(any());
        values_.clear();
        return g;
    }

  private:
    using Value = ir::Value;
    using DType = ir::DType;
    using Op = ir::Op;

    int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }
    Value* any() { return values_[static_cast<size_t>(pick(0, static_cast<int>(values_.size()) - 1))]; }
    Value* like(Value* x) {  // same dtype and sizes
        for (int i = 0; i < 8; ++i) {
            Value* y = any();
            if (y->type.dtype == x->type.dtype && y->type.sizes == x->type.sizes) return y;
        }
        return x;
    }
    std::vector<int> order(int n) {
        std::vector<int> out(static_cast<size_t>(n));
        for (int i = 0; i < n; ++i) out[static_cast<size_t>(i)] = i;
        std::shuffle(out.begin(), out.end(), rng_);
        return out;
    }

    void grow(ir::Builder& b) {
        Value* x = any();
        DType d = x->type.dtype;
        int rank = x->type.rank();
        switch (pick(0, 13)) {
            case 0: {
                static constexpr Op ops[] = {Op::Neg, Op::Abs, Op::Relu, Op::Sign};
                static constexpr Op floats[] = {Op::Neg,   Op::Exp,   Op::Tanh, Op::Sigmoid,
                                                Op::Floor, Op::IsNan, Op::Relu};
                if (d == DType::Bool)
                    values_.push_back(b.unary(Op::LogicalNot, x));
                else
                    values_.push_back(b.unary(ir::is_float(d) ? floats[pick(0, 6)] : ops[pick(0, 3)], x));
                break;
            }
            case 1:
            case 2: {
                static constexpr Op ops[] = {Op::Add, Op::Sub, Op::Mul, Op::Maximum, Op::Minimum, Op::Lt, Op::Eq};
                static constexpr Op logic[] = {Op::And, Op::Or, Op::Xor, Op::Eq};
                values_.push_back(b.binary(d == DType::Bool ? logic[pick(0, 3)] : ops[pick(0, 6)], x, like(x)));
                break;
            }
            case 3: {
                static constexpr double numbers[] = {0.0, -0.0, 1.0, 2.0, -1.0};
                static constexpr Op ops[] = {Op::Add, Op::Sub, Op::Mul, Op::Maximum};
                if (d == DType::Bool) break;
                double v = numbers[pick(0, 4)];
                Op op = ops[pick(0, 3)];
                values_.push_back(pick(0, 1) ? b.binary(op, x, v) : b.binary(op, v, x));
                break;
            }
            case 4: {
                static constexpr DType types[] = {DType::F32,  DType::F64, DType::I64, DType::Bool,
                                                  DType::BF16, DType::F16, DType::I32};
                values_.push_back(b.cast(x, types[pick(0, 6)]));
                break;
            }
            case 5: values_.push_back(b.permute(x, order(rank))); break;
            case 6:
                if (rank < 4) values_.push_back(b.unsqueeze(x, pick(0, rank)));
                break;
            case 7: {
                ir::Sizes sizes = x->type.sizes;
                for (auto& s : sizes)
                    if (s == ir::Expr(1) && pick(0, 1)) s = pick(1, 3);
                if (rank < 4 && pick(0, 1)) sizes.insert(sizes.begin(), pick(1, 2));
                values_.push_back(b.expand(x, sizes));
                break;
            }
            case 8: {
                ir::Sizes sizes{x->type.numel()};
                if (pick(0, 1) && rank >= 2) {
                    sizes = x->type.sizes;
                    sizes[0] = sizes[0] * sizes[1];
                    sizes.erase(sizes.begin() + 1);
                }
                values_.push_back(b.reshape(x, sizes));
                break;
            }
            case 9: {
                if (rank == 0) break;
                int axis = pick(0, rank - 1);
                int64_t size = x->type.sizes[static_cast<size_t>(axis)].value();
                int start = pick(0, static_cast<int>(size) - 1), step = pick(1, 2);
                values_.push_back(b.slice_axis(x, axis, start, (size - start + step - 1) / step, step));
                break;
            }
            case 10: {
                if (rank == 0) break;
                static constexpr Op ops[] = {Op::Sum, Op::Max, Op::Min, Op::ArgMax};
                std::vector<int> dims = order(rank);
                dims.resize(static_cast<size_t>(pick(1, rank)));
                if (d == DType::Bool)
                    values_.push_back(b.reduce(Op::Any, x, dims, pick(0, 1)));
                else
                    values_.push_back(b.reduce(ops[pick(0, 3)], x, dims, pick(0, 1)));
                break;
            }
            case 11:
                if (rank > 0 && rank < 4 && x->type.numel().value() < 200)
                    values_.push_back(b.cat({x, like(x)}, pick(0, rank - 1)));
                break;
            case 12: values_.push_back(pick(0, 1) ? b.copy(x) : b.flip(x, {})); break;
            case 13: {
                Value *c = nullptr, *y = like(x);
                for (Value* v : values_)
                    if (v->type.dtype == DType::Bool && v->type.sizes == x->type.sizes) c = v;
                if (c) values_.push_back(b.where(c, x, y));
                break;
            }
        }
    }

    std::mt19937 rng_;
    std::vector<Value*> values_;
};

}  // namespace braze::testing
