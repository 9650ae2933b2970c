// The pass `fold`: what each rule may do. A rule looks at one node and, if it applies, replaces its result either
//
//   * by an existing value (stand_in): the node computes nothing new; or
//   * by a new node with exactly the result's type and aliasing (substitute).
//
// stand_in is refused where it could be observed: the result (or memory it shares with others) is an output, its memory
// or the other's is written in place somewhere, it is an operand of a Call and the strides differ, or of as_strided
// (which sees the whole storage) and the memory differs.
#pragma once
#include <optional>
#include <vector>

#include "core/ir/builder.h"
#include "core/ir/number.h"
#include "core/passes/memory.h"

namespace braze::passes::folding {

using ir::Expr;
using ir::Node;
using ir::Op;
using ir::Value;

class Folder {
  public:
    explicit Folder(ir::Graph& g);
    bool run();

    bool stand_in(Node& n, Value* existing);
    // Creates op(operands) with n's result type; it shares n's operand's memory if n does.
    bool substitute(Node& n, Op op, std::vector<Value*> operands, std::vector<ir::NamedArg> attributes);
    bool substitute_scalar(Node& n, const ir::Number& value);

    // n's result is a view of x, made through `inner` (n's operand): both are aliases, or both are not and x is never
    // written.
    bool composable(const Node& n, const Node& inner) const;
    static bool is_alias(const Node& n) { return !n.aliases.empty() && n.aliases[0] >= 0; }
    bool escapes(const Value* v) const;
    // The constant with which a value is filled; nothing if its memory is written in place somewhere.
    std::optional<ir::Number> filled_with(const Value* v) const;

  private:
    bool visit(Node& n);
    bool flag(const std::vector<char>& flags, const Value* v) const {
        return static_cast<size_t>(v->id) < flags.size() && flags[static_cast<size_t>(v->id)];
    }
    bool known(const Value* v) const { return v->storage < 0 ? v->id < values_ : v->storage < storages_; }
    bool written(const Value* v) const { return known(v) && memory_.written(v); }
    void rename_storages();

    ir::Graph& g_;
    Memory memory_;
    int values_, storages_;                                   // ids below these were there before the pass
    std::vector<char> output_, call_operand_, storage_seen_;  // by value id
    std::vector<int> storage_;                                // what a storage is called now
    bool renamed_ = false;
    ir::Builder* b_ = nullptr;
};

// rules; true: the node was replaced
bool fold_elementwise(Node& n, Folder& f);
bool fold_view(Node& n, Folder& f);  // and structure

}  // namespace braze::passes::folding
