// The slow reference interpreter: every scalar is evaluated where it is needed, once per point.
#include <optional>

#include "core/ir/number.h"
#include "core/loops/kernel.h"
#include "core/support/error.h"

namespace braze::loops {
namespace {

// An expression as postfix code over numbered variables.
class Code {
  public:
    Code() = default;
    template <class Lookup>
    Code(const Expr& e, const Lookup& variable) {
        emit(e, variable);
    }

    int64_t run(const std::vector<int64_t>& variables) const {
        int64_t stack[64] = {};
        int top = 0;
        for (const Step& s : steps_) {
            if (s.kind == shapes::ExprKind::Const || s.kind == shapes::ExprKind::Symbol) {
                stack[top++] = s.kind == shapes::ExprKind::Const ? s.value : variables[s.value];
                continue;
            }
            const int64_t b = stack[--top], a = stack[--top];
            stack[top++] = combine(s.kind, a, b);
        }
        return stack[0];
    }

  private:
    struct Step {
        shapes::ExprKind kind;
        int64_t value;
    };

    static int64_t combine(shapes::ExprKind kind, int64_t a, int64_t b) {
        switch (kind) {
            case shapes::ExprKind::Add: return a + b;
            case shapes::ExprKind::Mul: return a * b;
            case shapes::ExprKind::Min: return std::min(a, b);
            case shapes::ExprKind::Max: return std::max(a, b);
            default: break;
        }
        if (b == 0) throw InternalError("division by zero in an index");
        int64_t q = a / b, r = a % b;
        if (r != 0 && (r < 0) != (b < 0)) --q, r += b;
        return kind == shapes::ExprKind::FloorDiv ? q : r;
    }

    template <class Lookup>
    void emit(const Expr& e, const Lookup& variable, int depth = 0) {
        BRAZE_CHECK(depth < 60, "index expression too deep: " + e.str());
        if (auto c = e.as_const()) return steps_.push_back({shapes::ExprKind::Const, *c});
        if (e.is_symbol()) return steps_.push_back({shapes::ExprKind::Symbol, variable(e)});
        for (size_t i = 0; i < e.operands().size(); ++i) {
            emit(e.operands()[i], variable, depth + (i > 0));
            if (i > 0) steps_.push_back({e.kind(), 0});
        }
    }

    std::vector<Step> steps_;
};

class Interpreter {
  public:
    Interpreter(const Kernel& k, void* const* buffers, const int64_t* symbols) : k_(k), buffers_(buffers) {
        for (size_t i = 0; i < k.symbols.size(); ++i) variable(k.symbols[i], symbols[i]);
        for (size_t i = 0; i < k.outer.size(); ++i)
            outer_.push_back(axis(outer_axis(static_cast<int>(i), k.outer[i]), k.outer[i]));
        for (size_t i = 0; i < k.inner.size(); ++i)
            inner_.push_back(axis(inner_axis(static_cast<int>(i), k.inner[i]), k.inner[i]));
        for (const Scalar& s : k.scalars)
            if (s.kind == ScalarKind::IndexOf) variable(s.symbol, 0);
        indices_.resize(k.scalars.size());
        for (size_t i = 0; i < k.scalars.size(); ++i) {
            const Scalar& s = k.scalars[i];
            addresses_.push_back(compile(s.address));
            std::vector<Expr> used;
            s.address.symbols(used);
            for (const Expr& e : used)  // the indirect symbols that must be set before this address is taken
                for (size_t j = 0; j < i; ++j)
                    if (k.scalars[j].kind == ScalarKind::IndexOf && k.scalars[j].symbol == e)
                        indices_[i].push_back(static_cast<int>(j));
        }
        for (const Stage& s : k.stages) {
            auto& list = stores_.emplace_back();
            for (const Store& st : s.stores) list.push_back(compile(st.address));
        }
        values_.resize(k.scalars.size());
        done_.assign(k.scalars.size(), false);
    }

    bool run(int64_t begin, int64_t end) {
        for (int64_t point = begin; point < end && ok_; ++point) {
            set(outer_, point);
            forget(Level::Uniform);
            for (size_t s = 0; s < k_.stages.size() && ok_; ++s) stage(s);
        }
        return ok_;
    }

  private:
    struct Axis {
        int variable;
        int64_t extent;
    };

    int variable(const Expr& symbol, int64_t value) {
        symbols_.push_back(symbol);
        variables_.push_back(value);
        return static_cast<int>(variables_.size()) - 1;
    }
    Code compile(const Expr& e) const {
        return Code(e, [&](const Expr& s) -> int64_t {
            for (size_t i = 0; i < symbols_.size(); ++i)
                if (symbols_[i] == s) return static_cast<int64_t>(i);
            throw InternalError("kernel " + k_.name + ": unknown symbol " + s.str());
        });
    }
    Axis axis(const Expr& symbol, const Expr& extent) {
        const int64_t n = compile(extent).run(variables_);
        return {variable(symbol, 0), n};
    }
    void set(const std::vector<Axis>& axes, int64_t flat) {
        for (size_t i = axes.size(); i-- > 0;) {
            variables_[axes[i].variable] = flat % axes[i].extent;
            flat /= axes[i].extent;
        }
    }
    void forget(Level from) {
        for (size_t i = 0; i < done_.size(); ++i)
            if (k_.scalars[i].level >= from) done_[i] = false;
    }

    void stage(size_t s) {
        const Stage& st = k_.stages[s];
        std::vector<ir::Accumulator> sums;
        sums.reserve(st.reduces.size());
        for (int r : st.reduces) sums.emplace_back(k_.scalars[r].op, k_.scalars[k_.scalars[r].args[0]].dtype);
        int64_t count = 1;
        for (const Axis& a : inner_) count *= a.extent;
        for (int64_t point = 0; point < count && ok_; ++point) {
            set(inner_, point);
            forget(Level::Inner);
            for (size_t i = 0; i < sums.size(); ++i) sums[i].add(value(k_.scalars[st.reduces[i]].args[0]), point);
            stores(s, true);
        }
        for (size_t i = 0; i < sums.size(); ++i) {
            values_[st.reduces[i]] = sums[i].result();
            done_[st.reduces[i]] = true;
        }
        stores(s, false);
    }

    void stores(size_t s, bool inner) {
        const auto& list = k_.stages[s].stores;
        for (size_t i = 0; i < list.size() && ok_; ++i) {
            if ((list[i].level == Level::Inner) != inner) continue;
            const ir::Number x = value(list[i].scalar);
            if (!ok_) return;
            ir::store_number(k_.params[list[i].param].dtype, buffers_[list[i].param], stores_[s][i].run(variables_), x);
        }
    }

    ir::Number value(int i) {
        if (!done_[i]) {
            values_[i] = compute(i);
            done_[i] = true;
        }
        return values_[i];
    }

    ir::Number compute(int i) {
        const Scalar& s = k_.scalars[i];
        for (int j : indices_[i]) value(j);
        ir::Number args[3];
        if (s.kind != ScalarKind::Reduce)
            for (size_t a = 0; a < s.args.size(); ++a) args[a] = value(s.args[a]);
        if (!ok_) return {};
        switch (s.kind) {
            case ScalarKind::Const: return constant(s);
            case ScalarKind::Index: return {.i = addresses_[i].run(variables_)};
            case ScalarKind::Load:
                if (s.mask >= 0 && !value(s.mask).i) return constant(s);
                return ir::load_number(s.dtype, buffers_[s.param], addresses_[i].run(variables_));
            case ScalarKind::Unary:
            case ScalarKind::Binary:
            case ScalarKind::Ternary: return ir::apply(s.op, k_.scalars[s.args.back()].dtype, args);
            case ScalarKind::Cast: return ir::cast_number(k_.scalars[s.args[0]].dtype, s.dtype, args[0]);
            case ScalarKind::IndexOf:
                for (size_t v = 0; v < symbols_.size(); ++v)
                    if (symbols_[v] == s.symbol) variables_[v] = args[0].i;
                return args[0];
            case ScalarKind::Check:
                if (!args[0].i) ok_ = false;
                return args[0];
            case ScalarKind::Reduce: break;
        }
        throw InternalError("kernel " + k_.name + ": reduction %" + std::to_string(i) +
                            " is used before its stage has run");
    }

    static ir::Number constant(const Scalar& s) {
        if (const int64_t* i = std::get_if<int64_t>(&s.value)) return {.i = *i};
        return {.f = ir::cast_number(DType::F64, s.dtype, {.f = std::get<double>(s.value)}).f};
    }

    const Kernel& k_;
    void* const* buffers_;
    std::vector<Expr> symbols_;
    std::vector<int64_t> variables_;
    std::vector<Axis> outer_, inner_;
    std::vector<Code> addresses_;
    std::vector<std::vector<Code>> stores_;
    std::vector<std::vector<int>> indices_;
    std::vector<ir::Number> values_;
    std::vector<bool> done_;
    bool ok_ = true;
};

}  // namespace

bool interpret(const Kernel& k, void* const* buffers, const int64_t* symbols, int64_t begin, int64_t end) {
    return Interpreter(k, buffers, symbols).run(begin, end);
}

}  // namespace braze::loops
