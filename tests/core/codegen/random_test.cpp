// Random kernels against the interpreter: axes, strides, divided and indirect addresses, masks, stages, both
// directions.
#include <numeric>

#include "tests/core/codegen/builder.h"

namespace braze::codegen::test {

namespace {

class Random {
  public:
    explicit Random(uint32_t seed) : rng_(seed) {}
    int below(int n) { return static_cast<int>(rng_() % static_cast<uint32_t>(n)); }
    bool one_in(int n) { return below(n) == 0; }
    template <class T>
    const T& of(const std::vector<T>& xs) {
        return xs[static_cast<size_t>(below(static_cast<int>(xs.size())))];
    }

  private:
    std::mt19937 rng_;
};

class RandomKernel {
  public:
    explicit RandomKernel(uint32_t seed) : r_(seed), seed_(seed), b_({}, {}) {
        b_.k.outer = axes(1 + r_.below(3));
        b_.k.inner = axes(r_.below(3));
        b_.k.symbols = symbols_;
        b_.k.vectorize = r_.one_in(2) ? Vectorize::InnerLast : Vectorize::OuterLast;
        for (size_t i = 0; i < b_.k.outer.size(); ++i) outer_.push_back(b_.o(static_cast<int>(i)));
        for (size_t i = 0; i < b_.k.inner.size(); ++i) inner_.push_back(b_.i(static_cast<int>(i)));
        if (inner_.empty()) b_.k.vectorize = Vectorize::OuterLast;
        int stages = inner_.empty() ? 1 : 1 + r_.below(3);
        for (int s = 0; s < stages; ++s) {
            int x = expression(3);
            if (s + 1 < stages) {
                const std::vector<Op> floats = {Op::Max, Op::Min, Op::Sum},
                                      ints = {Op::Max, Op::Min, Op::Sum, Op::ArgMax, Op::ArgMin, Op::Prod};
                DType d = b_.dtype(x);
                Op op = r_.of(d == DType::Bool ? std::vector<Op>{Op::Any, Op::All} : ir::is_float(d) ? floats : ints);
                if (op == Op::Sum && ir::is_float(d)) x = cast(cast(x, DType::I32), d);  // exact in any order
                x = b_.reduce(op, x, s);
                known_.push_back(x);
                store(x, s, outer_);
            } else {
                std::vector<Expr> all = outer_;
                all.insert(all.end(), inner_.begin(), inner_.end());
                store(x, s, all);
                if (r_.one_in(2))
                    store(cast(x, r_.of<DType>({DType::F32, DType::I64, DType::U8, DType::Bool})), s, all);
            }
        }
    }

    void expect() {
        SCOPED_TRACE("seed " + std::to_string(seed_));
        int64_t points = 1;
        for (const Expr& e : b_.k.outer) points *= size(e);
        std::vector<int64_t> values;
        for (const Expr& s : symbols_) values.push_back(size(s));
        int64_t begin = r_.one_in(2) ? 0 : r_.below(static_cast<int>(points)),
                end = r_.one_in(2) ? points : begin + r_.below(static_cast<int>(points - begin) + 1);
        std::vector<Bytes> buffers;
        for (size_t p = 0; p < b_.k.params.size(); ++p) {
            if (!indices_[p].empty())
                buffers.push_back(elements(DType::I64, indices_[p]));
            else
                buffers.push_back(random_elements(b_.k.params[p].dtype, static_cast<size_t>(sizes_[p]),
                                                  seed_ + static_cast<uint32_t>(p), false));
        }
        expect_same(b_.k, buffers, values, begin, end);
    }

  private:
    std::vector<Expr> axes(int n) {
        std::vector<Expr> out;
        for (int i = 0; i < n; ++i) {
            int extent = r_.one_in(3) ? 1 + r_.below(70) : 1 + r_.below(9);
            if (r_.one_in(3)) {
                Expr s = Expr::symbol("s" + std::to_string(symbols_.size()), {0, 1 << 20});
                symbols_.push_back(s);
                symbol_sizes_.push_back(extent);
                out.push_back(s);
            } else {
                out.push_back(Expr(extent));
            }
        }
        return out;
    }
    int64_t size(const Expr& e) const {
        return *e.evaluate([&](const Expr& s) -> std::optional<int64_t> {
            for (size_t i = 0; i < symbols_.size(); ++i)
                if (symbols_[i] == s) return symbol_sizes_[i];
            return std::nullopt;
        });
    }
    // An upper bound of an address that grows with every axis.
    int64_t last(const Expr& address) const {
        auto value = address.evaluate([&](const Expr& s) -> std::optional<int64_t> {
            for (size_t i = 0; i < outer_.size(); ++i)
                if (outer_[i] == s) return size(b_.k.outer[i]) - 1;
            for (size_t i = 0; i < inner_.size(); ++i)
                if (inner_[i] == s) return size(b_.k.inner[i]) - 1;
            return size(s);
        });
        return *value;
    }
    std::vector<Expr> some_axes() {
        std::vector<Expr> out;
        for (const auto* list : {&outer_, &inner_})
            for (const Expr& x : *list)
                if (!r_.one_in(3)) out.push_back(x);
        for (size_t i = out.size(); i > 1; --i)
            if (r_.one_in(2)) std::swap(out[i - 1], out[static_cast<size_t>(r_.below(static_cast<int>(i)))]);
        return out;
    }
    Expr extent(const Expr& axis) const {
        for (size_t i = 0; i < outer_.size(); ++i)
            if (outer_[i] == axis) return b_.k.outer[i];
        for (size_t i = 0; i < inner_.size(); ++i)
            if (inner_[i] == axis) return b_.k.inner[i];
        return 1;
    }
    Expr row_major(const std::vector<Expr>& axes) const {
        Expr e = 0;
        for (const Expr& x : axes) e = e * extent(x) + x;
        return e;
    }
    int new_param(DType d, int64_t size, bool written = false) {
        int p = b_.param(d, written);
        sizes_.push_back(size);
        indices_.emplace_back();
        return p;
    }

    // Floats are first brought into the range of every integer type.
    int cast(int x, DType to) {
        DType d = b_.dtype(x);
        if (ir::is_float(d) && ir::is_int(to)) {
            x = b_.op(Op::Fmin, {x, b_.constant(d, 100)});
            x = b_.op(Op::Fmax, {x, b_.constant(d, ir::is_signed(to) ? -100 : 0)});
        }
        return b_.cast(x, to);
    }

    int load() {
        DType d = r_.of<DType>({DType::F32, DType::F32, DType::F32, DType::F64, DType::BF16, DType::F16, DType::I32,
                                DType::I64, DType::I8, DType::U8, DType::Bool});
        Expr a = row_major(some_axes());
        int64_t most = last(a);
        if (r_.one_in(6)) a = a * Expr(1 + r_.below(3)) + Expr(r_.below(5)), most = last(a);
        if (r_.one_in(8)) {
            int by = 1 + r_.below(20);
            bool quotient = r_.one_in(2);
            a = quotient ? floordiv(a, Expr(by)) : mod(a, Expr(by));
            most = quotient ? most / by : by - 1;
        }
        if (r_.one_in(8)) {  // through a table of indices
            int table = new_param(DType::I64, most + 1);
            int rows = 1 + r_.below(30);
            for (int64_t i = 0; i <= most; ++i) indices_[static_cast<size_t>(table)].push_back(r_.below(rows));
            int i = b_.load(table, a);
            int c = b_.check(b_.op(Op::Lt, {i, b_.constant(DType::I64, rows)}));
            a = b_.index_of(i, c);
            most = rows - 1;
        }
        int mask = -1;
        if (r_.one_in(6)) {  // only a part of the axes' space lies inside of the param
            int64_t limit = r_.below(static_cast<int>(std::min<int64_t>(most, 1000)) + 1);
            mask =
                b_.op(Op::Lt, {b_.index(row_major(some_axes())), b_.constant(DType::I64, static_cast<double>(limit))});
            int inside = b_.op(Op::Le, {b_.index(a), b_.constant(DType::I64, static_cast<double>(limit))});
            mask = b_.op(Op::And, {mask, inside});
            most = limit;
        }
        int x =
            b_.load(new_param(d, most + 1), a, mask,
                    ir::is_float(d) ? std::variant<double, int64_t>(1.5) : std::variant<double, int64_t>(int64_t{1}));
        return ir::is_half(d) ? b_.cast(x, DType::F32) : x;
    }

    int expression(int depth) {
        if (depth == 0 || r_.one_in(5)) {
            if (!known_.empty() && r_.one_in(3)) return r_.of(known_);
            if (r_.one_in(6)) return b_.index(row_major(some_axes()));
            return load();
        }
        int x = expression(depth - 1);
        DType d = b_.dtype(x);
        if (r_.one_in(5)) return cast(x, r_.of<DType>({DType::F32, DType::I64, DType::I32, DType::Bool}));
        if (r_.one_in(4)) {
            if (d == DType::Bool) return b_.op(Op::LogicalNot, {x});
            return b_.op(r_.of<Op>({Op::Neg, Op::Abs, Op::Relu, Op::Sign}), {x});
        }
        int y = cast(expression(depth - 1), d);
        if (r_.one_in(6)) {
            int c = cast(expression(depth - 1), DType::Bool);
            return b_.op(Op::Where, {c, x, y});
        }
        if (d == DType::Bool) return b_.op(r_.of<Op>({Op::And, Op::Or, Op::Xor, Op::Eq}), {x, y});
        return b_.op(r_.of<Op>({Op::Add, Op::Sub, Op::Maximum, Op::Minimum, Op::Lt, Op::Ne}), {x, y});
    }

    void store(int x, int stage, const std::vector<Expr>& axes) {
        Expr a = row_major(axes);
        b_.store(new_param(b_.dtype(x), last(a) + 1, true), a, x, stage);
    }

    Random r_;
    uint32_t seed_;
    std::vector<Expr> symbols_;
    std::vector<int64_t> symbol_sizes_;
    Build b_;
    std::vector<Expr> outer_, inner_;
    std::vector<int64_t> sizes_;                // of the params, in elements
    std::vector<std::vector<double>> indices_;  // of the params that are tables of indices
    std::vector<int> known_;                    // finished reductions
};

}  // namespace

TEST(CodegenRandom, Kernels) {
    const char* count = std::getenv("BRAZE_RANDOM_KERNELS");
    const char* first = std::getenv("BRAZE_RANDOM_SEED");
    uint32_t seed = first ? static_cast<uint32_t>(std::stoul(first)) : 1;
    for (int i = 0; i < (count ? std::stoi(count) : 60); ++i) {
        RandomKernel(seed + static_cast<uint32_t>(i)).expect();
        if (HasFatalFailure()) return;
    }
}

}  // namespace braze::codegen::test
