// Kernels for tests, written briefly; and running them compiled and interpreted side by side.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "core/codegen/cpu/compiler.h"
#include "core/ir/op.h"
#include "core/loops/kernel.h"

namespace braze::codegen::test {

using ir::DType;
using ir::Op;
using loops::Kernel;
using loops::Level;
using loops::Scalar;
using loops::ScalarKind;
using loops::Vectorize;
using shapes::Expr;

class Build {
  public:
    Kernel k;

    Build(std::vector<Expr> outer, std::vector<Expr> inner, Vectorize v = Vectorize::InnerLast,
          std::vector<Expr> symbols = {}) {
        k.name = "k_test";
        k.outer = std::move(outer);
        k.inner = std::move(inner);
        k.symbols = std::move(symbols);
        k.vectorize = v;
        k.stages.emplace_back();
    }
    Expr o(int i) const { return loops::outer_axis(i, k.outer[static_cast<size_t>(i)]); }
    Expr i(int n) const { return loops::inner_axis(n, k.inner[static_cast<size_t>(n)]); }
    int in(DType d) { return param(d, false); }
    int out(DType d) { return param(d, true); }
    int param(DType d, bool written) {
        k.params.push_back({d, written, -1, ""});
        return static_cast<int>(k.params.size()) - 1;
    }
    int load(int p, Expr address, int mask = -1, std::variant<double, int64_t> otherwise = 0.0) {
        Scalar s = scalar(ScalarKind::Load, k.params[static_cast<size_t>(p)].dtype);
        s.param = p;
        s.address = address;
        s.mask = mask;
        if (!ir::is_float(s.dtype) && std::holds_alternative<double>(otherwise)) otherwise = int64_t{0};
        s.value = otherwise;
        s.level = loops::level_of(k, address, k.scalars.size());
        if (mask >= 0) s.level = std::max(s.level, level(mask));
        return add(s);
    }
    int constant(DType d, double v) {
        Scalar s = scalar(ScalarKind::Const, d);
        if (ir::is_float(d))
            s.value = v;
        else
            s.value = static_cast<int64_t>(v);
        s.level = Level::Uniform;
        return add(s);
    }
    int index(Expr e) {
        Scalar s = scalar(ScalarKind::Index, DType::I64);
        s.address = e;
        s.level = loops::level_of(k, e, k.scalars.size());
        return add(s);
    }
    int op(Op o, std::vector<int> args) {
        ScalarKind kind = args.size() == 1   ? ScalarKind::Unary
                          : args.size() == 2 ? ScalarKind::Binary
                                             : ScalarKind::Ternary;
        Scalar s = scalar(kind, ir::returns_bool(o) ? DType::Bool : dtype(args.back()));
        s.op = o;
        return add(with_args(s, args));
    }
    int cast(int a, DType d) { return add(with_args(scalar(ScalarKind::Cast, d), {a})); }
    int reduce(Op o, int a, int stage = 0) {
        Scalar s = scalar(ScalarKind::Reduce, o == Op::ArgMax || o == Op::ArgMin ? DType::I64 : dtype(a));
        s.op = o;
        s.args = {a};
        s.level = Level::Outer;
        s.stage = stage;
        int r = add(s);
        while (static_cast<int>(k.stages.size()) <= stage) k.stages.emplace_back();
        k.stages[static_cast<size_t>(stage)].reduces.push_back(r);
        return r;
    }
    int check(int a) {
        k.has_checks = true;
        return add(with_args(scalar(ScalarKind::Check, DType::Bool), {a}));
    }
    Expr index_of(int a, int check = -1) {
        Scalar s = scalar(ScalarKind::IndexOf, DType::I64);
        s.symbol = Expr::symbol("t" + std::to_string(k.scalars.size()));
        s = with_args(s, check < 0 ? std::vector<int>{a} : std::vector<int>{a, check});
        Expr symbol = s.symbol;
        add(s);
        return symbol;
    }
    void store(int p, Expr address, int scalar, int stage = 0) {
        while (static_cast<int>(k.stages.size()) <= stage) k.stages.emplace_back();
        Level l = std::max(level(scalar), loops::level_of(k, address, k.scalars.size()));
        k.stages[static_cast<size_t>(stage)].stores.push_back({p, address, scalar, l});
    }
    DType dtype(int s) const { return k.scalars[static_cast<size_t>(s)].dtype; }
    Level level(int s) const { return k.scalars[static_cast<size_t>(s)].level; }

  private:
    Scalar scalar(ScalarKind kind, DType d) {
        Scalar s{};
        s.kind = kind;
        s.dtype = d;
        return s;
    }
    Scalar with_args(Scalar s, std::vector<int> args) {
        s.level = Level::Uniform;
        for (int a : args) s.level = std::max(s.level, level(a));
        s.args = std::move(args);
        return s;
    }
    int add(const Scalar& s) {
        k.scalars.push_back(s);
        return static_cast<int>(k.scalars.size()) - 1;
    }
};

using Bytes = std::vector<unsigned char>;

// Random memory for n elements: floats of moderate size with a few special values, any integers.
Bytes random_elements(DType d, size_t n, uint32_t seed, bool specials = true);
Bytes elements(DType d, const std::vector<double>& values);
double element(DType d, const Bytes& bytes, size_t i);
std::string isa_text(Isa isa);

struct Outcome {
    bool ok;
    std::vector<Bytes> buffers;
};
// Each buffer ends where the memory may not be read any further.
Outcome run_compiled(const Kernel& k, Isa isa, std::vector<Bytes> buffers, const std::vector<int64_t>& symbols,
                     int64_t begin, int64_t end);
Outcome run_interpreted(const Kernel& k, std::vector<Bytes> buffers, const std::vector<int64_t>& symbols, int64_t begin,
                        int64_t end);

// Runs on every isa of the host and compares all written buffers with the interpreter: integers exactly, floats within
// `ulp` (of the param's dtype), or both NaN.
void expect_same(const Kernel& k, const std::vector<Bytes>& buffers, const std::vector<int64_t>& symbols, int64_t begin,
                 int64_t end, double ulp = 0);

}  // namespace braze::codegen::test
