// Results' sizes as expressions, for the operators that have a rule. The others fix the symbols of their operands.
#pragma once
#include "bridge/symbols.h"
#include "bridge/trace.h"

namespace braze::bridge {

struct SymbolicCall {
    struct Operand {
        int arg, pos;            // as in Record
        const at::Tensor* hint;  // plain meta tensor
        SymbolicMetadata metadata;
    };
    const OperatorInfo& info;
    SymbolTable& table;
    const std::vector<c10::IValue>& args;
    std::vector<Operand> operands;
    std::vector<at::Tensor> results;  // plain meta tensors, lists flattened; undefined ones too

    const Operand* tensor(std::string_view name) const;   // nullptr: not given
    const c10::IValue* arg(std::string_view name) const;  // nullptr: no such argument, or None
    std::optional<Expr> integer(std::string_view name) const;
    std::optional<std::vector<Expr>> integers(std::string_view name) const;
    // An axis argument, wrapped: axis in [0, rank).
    std::optional<int> axis(std::string_view name, size_t rank) const;
    bool boolean(std::string_view name, bool otherwise) const;
};

// One entry per result (undefined ones stay empty). nullopt: there is no rule, or it does not cover the case. What the
// rule had to assume is in the table's guards. The answers agree with the hints.
std::optional<std::vector<SymbolicMetadata>> symbolic_results(SymbolicCall& call);

}  // namespace braze::bridge
