// The rules of kernel.h, checked.
#include <algorithm>

#include "core/ir/op.h"
#include "core/loops/kernel.h"
#include "core/support/error.h"

namespace braze::loops {
namespace {

using ir::Op;

class Verifier {
  public:
    explicit Verifier(const Kernel& k) : k_(k) {}

    void run() {
        for (size_t i = 0; i < k_.outer.size(); ++i) axes_.push_back(outer_axis(static_cast<int>(i), k_.outer[i]));
        for (size_t i = 0; i < k_.inner.size(); ++i) axes_.push_back(inner_axis(static_cast<int>(i), k_.inner[i]));
        where_ = "extents";
        for (const Expr& e : k_.outer) extent(e);
        for (const Expr& e : k_.inner) extent(e);
        if (k_.vectorize == Vectorize::InnerLast) need(!k_.inner.empty(), "InnerLast needs an inner axis");
        params();
        for (size_t i = 0; i < k_.scalars.size(); ++i) {
            where_ = "scalar %" + std::to_string(i);
            scalar(i);
        }
        stages();
        const bool checks = std::any_of(k_.scalars.begin(), k_.scalars.end(),
                                        [](const Scalar& s) { return s.kind == ScalarKind::Check; });
        where_ = "has_checks";
        need(checks == k_.has_checks, "expected " + std::string(checks ? "true" : "false"));
    }

  private:
    void need(bool ok, const std::string& what) const {
        if (!ok) throw InternalError("kernel " + k_.name + ", " + where_ + ": " + what);
    }

    void extent(const Expr& e) const {
        std::vector<Expr> symbols;
        e.symbols(symbols);
        for (const Expr& s : symbols)
            need(std::find(k_.symbols.begin(), k_.symbols.end(), s) != k_.symbols.end(),
                 "unknown size symbol " + s.str());
    }

    // Every symbol is an axis, a size symbol or an indirect index made before.
    void expression(const Expr& e, size_t scalars) const {
        std::vector<Expr> symbols;
        e.symbols(symbols);
        for (const Expr& s : symbols) {
            bool known = std::find(axes_.begin(), axes_.end(), s) != axes_.end() ||
                         std::find(k_.symbols.begin(), k_.symbols.end(), s) != k_.symbols.end();
            for (size_t i = 0; i < scalars && !known; ++i)
                known = k_.scalars[i].kind == ScalarKind::IndexOf && k_.scalars[i].symbol == s;
            need(known, "unknown symbol " + s.str() + " in " + e.str());
        }
    }

    void params() {
        for (size_t i = 0; i < k_.params.size(); ++i) {
            where_ = "param p" + std::to_string(i);
            const Param& p = k_.params[i];
            need(ir::has_code(p.dtype), "dtype " + std::string(ir::name(p.dtype)) + " has no code");
            if (p.inplace_of < 0) continue;
            need(p.written, "inplace_of of a param that is not written");
            need(p.inplace_of < static_cast<int>(k_.params.size()) && !k_.params[p.inplace_of].written,
                 "inplace_of must be a read param");
            need(ir::size_of(p.dtype) == ir::size_of(k_.params[p.inplace_of].dtype),
                 "in-place with another element size");
        }
    }

    void scalar(size_t i) {
        const Scalar& s = k_.scalars[i];
        Level level = Level::Uniform;
        for (int a : s.args) {
            need(a >= 0 && a < static_cast<int>(i), "operand %" + std::to_string(a) + " is not defined before");
            level = std::max(level, k_.scalars[a].level);
        }
        auto args = [&](size_t n) {
            need(s.args.size() == n,
                 "expected " + std::to_string(n) + " operands, got " + std::to_string(s.args.size()));
        };
        auto dtype_of = [&](size_t n) { return k_.scalars[s.args[n]].dtype; };
        auto computes = [&](DType d) {
            need(ir::has_code(d) && !ir::is_half(d), "computes in " + std::string(ir::name(d)));
        };
        need(ir::has_code(s.dtype), "dtype " + std::string(ir::name(s.dtype)) + " has no code");
        switch (s.kind) {
            case ScalarKind::Const:
                args(0);
                need(std::holds_alternative<double>(s.value) == ir::is_float(s.dtype), "value of the wrong kind");
                break;
            case ScalarKind::Index:
                args(0);
                need(s.dtype == DType::I64, "an index is i64");
                expression(s.address, i);
                level = level_of(k_, s.address, i);
                break;
            case ScalarKind::Load:
                args(0);
                need(s.param >= 0 && s.param < static_cast<int>(k_.params.size()), "no such param");
                need(k_.params[s.param].dtype == s.dtype, "dtype differs from the param's");
                expression(s.address, i);
                level = level_of(k_, s.address, i);
                if (s.mask >= 0) {
                    need(s.mask < static_cast<int>(i) && k_.scalars[s.mask].dtype == DType::Bool,
                         "mask must be an earlier bool");
                    level = std::max(level, k_.scalars[s.mask].level);
                    need(std::holds_alternative<double>(s.value) == ir::is_float(s.dtype), "value of the wrong kind");
                }
                break;
            case ScalarKind::Unary:
            case ScalarKind::Binary: {
                args(s.kind == ScalarKind::Unary ? 1 : 2);
                need(ir::kind(s.op) == (s.kind == ScalarKind::Unary ? ir::OpKind::Unary : ir::OpKind::Binary),
                     "wrong operator");
                computes(dtype_of(0));
                if (s.kind == ScalarKind::Binary) need(dtype_of(0) == dtype_of(1), "operands of different dtypes");
                need(s.dtype == (ir::returns_bool(s.op) ? DType::Bool : dtype_of(0)),
                     "result dtype " + std::string(ir::name(s.dtype)));
                break;
            }
            case ScalarKind::Ternary:
                args(3);
                need(s.op == Op::Where || s.op == Op::Fma, "wrong operator");
                if (s.op == Op::Where)
                    need(dtype_of(0) == DType::Bool, "condition must be bool");
                else
                    need(dtype_of(0) == s.dtype, "operands of different dtypes");
                need(dtype_of(1) == s.dtype && dtype_of(2) == s.dtype, "operands of different dtypes");
                computes(s.dtype);
                break;
            case ScalarKind::Cast: args(1); break;
            case ScalarKind::Reduce: {
                args(1);
                computes(dtype_of(0));
                const bool arg = s.op == Op::ArgMax || s.op == Op::ArgMin;
                need(ir::kind(s.op) == ir::OpKind::Reduce && s.op != Op::VarMean, "wrong operator");
                need(s.dtype == (arg ? DType::I64 : dtype_of(0)), "result dtype " + std::string(ir::name(s.dtype)));
                need(!k_.inner.empty(), "nothing to reduce over");
                need(s.stage >= 0 && s.stage < static_cast<int>(k_.stages.size()), "no such stage");
                const auto& list = k_.stages[s.stage].reduces;
                need(std::count(list.begin(), list.end(), static_cast<int>(i)) == 1, "not listed by its stage");
                level = Level::Outer;
                break;
            }
            case ScalarKind::IndexOf:
                need(s.args.size() == 1 || s.args.size() == 2, "expected an index and a check");
                need(s.dtype == DType::I64 && dtype_of(0) == DType::I64, "an index is i64");
                if (s.args.size() == 2)
                    need(k_.scalars[s.args[1]].kind == ScalarKind::Check, "second operand must be a check");
                need(s.symbol.is_symbol() && s.symbol.name()[0] == 't', "symbol must be t<k>");
                break;
            case ScalarKind::Check:
                args(1);
                need(dtype_of(0) == DType::Bool && s.dtype == DType::Bool, "a check is bool");
                break;
        }
        need(s.level == level, "level is " + std::string(name(s.level)) + ", expected " + std::string(name(level)));
    }

    // The last stage among the reductions that scalar i needs, -1 without any.
    int needs_stage(int i) {
        if (stage_of_.empty()) stage_of_.assign(k_.scalars.size(), -2);
        int& memo = stage_of_[i];
        if (memo != -2) return memo;
        const Scalar& s = k_.scalars[i];
        int stage = s.kind == ScalarKind::Reduce ? s.stage : -1;
        for (int a : s.args) stage = std::max(stage, needs_stage(a));
        if (s.mask >= 0) stage = std::max(stage, needs_stage(s.mask));
        std::vector<Expr> symbols;
        s.address.symbols(symbols);
        for (const Expr& e : symbols)
            for (int j = 0; j < i; ++j)
                if (k_.scalars[j].kind == ScalarKind::IndexOf && k_.scalars[j].symbol == e)
                    stage = std::max(stage, needs_stage(j));
        return stage_of_[i] = stage;
    }

    void stages() {
        need(!k_.stages.empty(), "no stages");
        for (size_t i = 0; i < k_.stages.size(); ++i) {
            where_ = "stage " + std::to_string(i);
            const Stage& st = k_.stages[i];
            for (int r : st.reduces) {
                need(r >= 0 && r < static_cast<int>(k_.scalars.size()) && k_.scalars[r].kind == ScalarKind::Reduce,
                     "not a reduction");
                need(k_.scalars[r].stage == static_cast<int>(i),
                     "reduction %" + std::to_string(r) + " of another stage");
                need(needs_stage(k_.scalars[r].args[0]) < static_cast<int>(i),
                     "reduction %" + std::to_string(r) + " needs a later one");
            }
            for (const Store& s : st.stores) {
                need(s.param >= 0 && s.param < static_cast<int>(k_.params.size()) && k_.params[s.param].written,
                     "store to a param that is not written");
                need(s.scalar >= 0 && s.scalar < static_cast<int>(k_.scalars.size()), "store of an unknown scalar");
                need(k_.scalars[s.scalar].dtype == k_.params[s.param].dtype, "store of another dtype");
                expression(s.address, k_.scalars.size());
                const Level level = std::max(k_.scalars[s.scalar].level, level_of(k_, s.address, k_.scalars.size()));
                need(s.level >= level && (s.level != Level::Inner || !k_.inner.empty()), "store at the wrong level");
                const int after = needs_stage(s.scalar) + (s.level == Level::Inner ? 1 : 0);
                need(static_cast<int>(i) >= after, "store of a value that is not available yet");
            }
        }
    }

    const Kernel& k_;
    std::vector<Expr> axes_;
    std::vector<int> stage_of_;
    std::string where_;
};

}  // namespace

void verify(const Kernel& k) { Verifier(k).run(); }

}  // namespace braze::loops
