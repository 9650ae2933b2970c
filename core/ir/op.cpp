#include "core/ir/op.h"

#include <array>
#include <string>
#include <unordered_map>

namespace braze::ir {

namespace {
struct Row {
    std::string_view text;
    OpKind kind;
    int arity;
};
constexpr std::array kTable = {
#define OP(e, text, kind, arity) Row{text, OpKind::kind, arity},
#include "core/ir/ops.def"
#undef OP
};
const Row& row(Op op) { return kTable[static_cast<size_t>(op)]; }
}  // namespace

std::string_view name(Op op) { return row(op).text; }
OpKind kind(Op op) { return row(op).kind; }
int arity(Op op) { return row(op).arity; }

std::optional<Op> op_named(std::string_view text) {
    static const auto& by_name = *[] {
        auto* m = new std::unordered_map<std::string_view, Op>;
        for (size_t i = 0; i < kTable.size(); ++i) m->emplace(kTable[i].text, static_cast<Op>(i));
        return m;
    }();
    auto it = by_name.find(text);
    return it == by_name.end() ? std::nullopt : std::optional<Op>(it->second);
}

bool is_elementwise(Op op) {
    OpKind k = kind(op);
    return k == OpKind::Unary || k == OpKind::Binary || k == OpKind::Ternary || k == OpKind::Cast;
}

bool returns_bool(Op op) {
    switch (op) {
        case Op::LogicalNot:
        case Op::IsNan:
        case Op::IsInf:
        case Op::SignBit:
        case Op::Eq:
        case Op::Ne:
        case Op::Lt:
        case Op::Le:
        case Op::Gt:
        case Op::Ge: return true;
        default: return false;
    }
}

bool is_commutative(Op op) {
    switch (op) {
        case Op::Add:
        case Op::Mul:
        case Op::Eq:
        case Op::Ne:
        case Op::And:
        case Op::Or:
        case Op::Xor: return true;
        default: return false;
    }
}

}  // namespace braze::ir
