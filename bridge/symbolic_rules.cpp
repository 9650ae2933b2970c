#include "bridge/symbolic_rules.h"

#include <algorithm>
#include <unordered_map>

#include "bridge/symbolic_rule.h"

namespace braze::bridge {

namespace {

using symbolic::Rule;
using symbolic::Sizes;

const std::unordered_map<std::string, Rule>& rules() {
    static const std::unordered_map<std::string, Rule> table = {
#define SYMBOLIC_RULE(op, rule) {op, symbolic::rule},
#include "bridge/symbolic_rules.def"
#undef SYMBOLIC_RULE
    };
    return table;
}

// The strides of a new dense tensor whose axes lie in memory as the hint's do; nullopt where the hint is not dense.
std::optional<Sizes> dense_strides(const SymbolTable& table, const Sizes& sizes, const at::Tensor& hint) {
    std::vector<int> order;
    for (int64_t i = hint.dim(); i-- > 0;) order.push_back(static_cast<int>(i));
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return hint.stride(a) < hint.stride(b); });
    // axes of size 1 may have any stride: they do not decide the order of the others
    Sizes strides(sizes.size(), Expr(1));
    Expr expected(1);
    for (int axis : order) {
        bool one = hint.size(axis) == 1;
        if (hint.stride(axis) == table.hint(expected))
            strides[axis] = expected;
        else if (one || hint.numel() == 0)
            strides[axis] = Expr(hint.stride(axis));
        else
            return std::nullopt;
        expected = expected * sizes[axis];
    }
    return strides;
}

bool agrees(const SymbolTable& table, const SymbolicMetadata& m, const at::Tensor& hint) {
    if (static_cast<int64_t>(m.sizes.size()) != hint.dim() || m.strides.size() != m.sizes.size()) return false;
    for (int64_t i = 0; i < hint.dim(); ++i) {
        if (table.hint(m.sizes[i]) != hint.size(i)) return false;
        if (hint.size(i) > 1 && hint.numel() > 0 && table.hint(m.strides[i]) != hint.stride(i)) return false;
    }
    return table.hint(m.offset) == hint.storage_offset();
}

}  // namespace

const SymbolicCall::Operand* SymbolicCall::tensor(std::string_view name) const {
    int k = info.arg_index(name);
    for (const Operand& o : operands)
        if (o.arg == k) return &o;
    return nullptr;
}
const c10::IValue* SymbolicCall::arg(std::string_view name) const {
    int k = info.arg_index(name);
    return k < 0 || args[k].isNone() ? nullptr : &args[k];
}
std::optional<Expr> SymbolicCall::integer(std::string_view name) const {
    const c10::IValue* v = arg(name);
    if (v && v->isInt()) return Expr(v->toInt());
    if (v && v->isSymInt()) return table.resolve(expr_of(v->toSymInt()));
    return std::nullopt;
}
std::optional<std::vector<Expr>> SymbolicCall::integers(std::string_view name) const {
    const c10::IValue* v = arg(name);
    if (!v || !v->isList()) return std::nullopt;
    std::vector<Expr> out;
    if (v->isIntList()) {
        for (int64_t x : v->toIntVector()) out.emplace_back(x);
        return out;
    }
    for (const c10::IValue& x : v->toListRef()) {
        if (x.isInt())
            out.emplace_back(x.toInt());
        else if (x.isSymInt())
            out.push_back(table.resolve(expr_of(x.toSymInt())));
        else
            return std::nullopt;
    }
    return out;
}
std::optional<int> SymbolicCall::axis(std::string_view name, size_t rank) const {
    const c10::IValue* v = arg(name);
    if (!v || !v->isInt()) return std::nullopt;
    int64_t n = static_cast<int64_t>(std::max<size_t>(rank, 1)), d = v->toInt();
    if (d < 0) d += n;
    return d >= 0 && d < n ? std::optional<int>(static_cast<int>(d)) : std::nullopt;
}
bool SymbolicCall::boolean(std::string_view name, bool otherwise) const {
    const c10::IValue* v = arg(name);
    return v && v->isBool() ? v->toBool() : otherwise;
}

std::optional<std::vector<SymbolicMetadata>> symbolic_results(SymbolicCall& c) {
    auto it = rules().find(c.info.callee);
    Rule rule = it != rules().end() ? it->second : c.info.pointwise ? symbolic::pointwise : nullptr;
    std::vector<SymbolicMetadata> out;
    if (!rule || !rule(c, out) || out.size() != c.results.size()) return std::nullopt;
    for (size_t k = 0; k < out.size(); ++k) {
        SymbolicMetadata& m = out[k];
        const at::Tensor& hint = c.results[k];
        if (!hint.defined()) continue;
        m.sizes = c.table.resolve(m.sizes);
        m.strides = c.table.resolve(m.strides);
        m.offset = c.table.resolve(m.offset);
        if (static_cast<int64_t>(m.sizes.size()) != hint.dim()) return std::nullopt;
        if (m.strides.empty() && !m.sizes.empty()) {
            auto strides = dense_strides(c.table, m.sizes, hint);
            if (!strides) return std::nullopt;
            m.strides = std::move(*strides);
        }
        if (!agrees(c.table, m, hint)) return std::nullopt;
    }
    return out;
}

}  // namespace braze::bridge
