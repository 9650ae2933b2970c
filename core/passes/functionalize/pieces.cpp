#include "core/passes/functionalize/pieces.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace braze::passes::functionalization {

using ir::Node;
using ir::Value;

namespace {

struct CopyingForm {
    std::string_view callee, copy;  // with the same arguments
};
constexpr CopyingForm kSplits[] = {
    {"aten::split.Tensor", "aten::split_copy.Tensor"},
    {"aten::unsafe_split.Tensor", "aten::split_copy.Tensor"},
    {"aten::split_with_sizes", "aten::split_with_sizes_copy"},
    {"aten::unsafe_split_with_sizes", "aten::split_with_sizes_copy"},
    {"aten::unbind.int", "aten::unbind_copy.int"},
};

const CopyingForm* copying_form(const Node& n) {
    if (n.op != ir::Op::Call) return nullptr;
    for (const CopyingForm& s : kSplits)
        if (n.callee == s.callee) return &s;
    return nullptr;
}

class Pieces {
  public:
    explicit Pieces(ir::Graph& g) : g_(g), memories_(static_cast<size_t>(g.storage_bound())) {}

    bool run() {
        for (const Value* v : g_.inputs) keep(v);
        for (const Value* v : g_.outputs) keep(v);
        for (Node* n : g_.nodes) look_at(*n);
        bool any = false;
        for (Memory& m : memories_) any |= m.split && m.written && !m.kept;
        if (!any) return false;
        for (Node* n : g_.nodes) rewrite(*n);
        return true;
    }

  private:
    struct Memory {
        Node* split = nullptr;  // the one split; what follows is derived from its pieces
        bool kept = false;      // it must stay in one piece
        bool written = false;   // after the split
        bool viewed = false;    // there are views of pieces
    };
    Memory* memory(const Value* v) {
        return v->storage >= 0 && static_cast<size_t>(v->storage) < memories_.size()
                   ? &memories_[static_cast<size_t>(v->storage)]
                   : nullptr;
    }
    void keep(const Value* v) {
        if (Memory* m = memory(v)) m->kept = true;
    }

    static int alias_of(const Value* v) {
        const Node& n = *v->node;
        return n.aliases.empty() ? -1 : n.aliases[static_cast<size_t>(v->index)];
    }
    // The piece of `split` that v is, or is a view of; nullptr: none.
    static const Value* piece_of(const Value* v, const Node* split) {
        while (v->node != split) {
            const int a = alias_of(v);
            if (a < 0) return nullptr;
            v = v->node->operands[static_cast<size_t>(a)];
        }
        return v;
    }

    void look_at(Node& n) {
        for (size_t i = 0; i < n.operands.size(); ++i) {
            Memory* m = memory(n.operands[i]);
            if (!m || m->kept) continue;
            // Where the memory begins can be seen by these alone.
            if (n.op == ir::Op::AsStrided || n.callee.find("as_strided") != std::string::npos) m->kept = true;
            if (!m->split) continue;
            if (!piece_of(n.operands[i], m->split)) m->kept = true;
            m->written |= std::find(n.writes.begin(), n.writes.end(), static_cast<int>(i)) != n.writes.end();
            m->viewed |= n.writes.empty() &&
                         std::find(n.aliases.begin(), n.aliases.end(), static_cast<int>(i)) != n.aliases.end();
        }
        if (!copying_form(n) || n.operands.size() != 1 || n.results.empty()) return;
        Memory* m = memory(n.operands[0]);
        if (!m || m->kept || m->split || n.aliases.size() != n.results.size()) return;
        if (!ir::is_dense(n.operands[0]->type)) return;  // pieces of an expanded tensor are one memory
        if (std::all_of(n.aliases.begin(), n.aliases.end(), [](int a) { return a == 0; })) m->split = &n;
    }

    void rewrite(Node& n) {
        for (size_t i = 0; i < n.results.size(); ++i) {
            Value* v = n.results[i];
            const Memory* m = memory(v);
            if (!m || !m->split || m->kept || !m->written) continue;
            if (&n == m->split) continue;
            // a view, or a tensor that was written: its memory is its operand's
            const int a = alias_of(v);
            if (a < 0) continue;
            const Value* operand = n.operands[static_cast<size_t>(a)];
            v->storage = operand->storage;
            if (!m->viewed && piece_of(v, m->split)) v->type.strides = operand->type.strides;
        }
        const Memory* m = n.operands.empty() ? nullptr : memory(n.operands[0]);
        if (!m || m->split != &n || m->kept || !m->written) return;
        n.callee = copying_form(n)->copy;
        n.aliases.clear();
        for (Value* v : n.results) {
            v->storage = g_.fresh_storage();
            if (!m->viewed) v->type.strides = ir::contiguous_strides(v->type.sizes);  // as copies are
        }
    }

    ir::Graph& g_;
    std::vector<Memory> memories_;  // by storage, of those that were there before
};

}  // namespace

bool separate_pieces(ir::Graph& g) { return Pieces(g).run(); }

}  // namespace braze::passes::functionalization
