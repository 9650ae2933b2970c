// The pass `cse`: of pure nodes with the same operator, arguments, operands and result types only the first is
// computed.
//
// Two nodes stay apart all the same
//   * if a result's memory is written in place somewhere, or an operand's memory was written between them;
//   * if the memory of both is handed out as outputs: eager returns two tensors, which may be changed one by one.
#include <bit>
#include <unordered_map>

#include "core/ir/op.h"
#include "core/passes/memory.h"
#include "core/passes/pass.h"

namespace braze::passes {

namespace {

using ir::Arg;
using ir::Node;
using ir::Value;

size_t mix(size_t h, size_t v) {
    return (h ^ (v + 0x9e3779b97f4a7c15ull + (h << 6u) + (h >> 2u))) * 0xff51afd7ed558ccdull;
}

struct ArgHash {
    size_t operator()(const ir::None&) const { return 1; }
    size_t operator()(const ir::Ref& r) const { return static_cast<size_t>(r.operand); }
    size_t operator()(bool v) const { return v; }
    size_t operator()(double v) const { return std::bit_cast<uint64_t>(v); }
    size_t operator()(const ir::Expr& v) const { return v.hash(); }
    size_t operator()(ir::DType v) const { return static_cast<size_t>(v); }
    size_t operator()(const std::string& v) const { return std::hash<std::string>()(v); }
    size_t operator()(const ir::Opaque& v) const { return std::hash<std::string>()(v.text); }
    size_t operator()(const ir::RefList& v) const { return each(v.operands); }
    template <class T>
    size_t operator()(const std::vector<T>& v) const {
        return each(v);
    }
    template <class T>
    size_t each(const std::vector<T>& v) const {
        size_t h = v.size();
        for (const auto& x : v) h = mix(h, std::hash<T>()(x));
        return h;
    }
};

bool same_arg(const Arg& a, const Arg& b) {
    if (const double *x = std::get_if<double>(&a), *y = std::get_if<double>(&b); x && y)
        return std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y);
    if (const auto *x = std::get_if<ir::Opaque>(&a), *y = std::get_if<ir::Opaque>(&b); x && y)
        return x->text == y->text;
    return a == b;
}

bool same_operands(const Node& a, const Node& b) {
    return a.operands == b.operands || (ir::is_commutative(a.op) && ir::is_commutative(b.op) &&
                                        a.operands[0] == b.operands[1] && a.operands[1] == b.operands[0]);
}

bool same_node(const Node& a, const Node& b) {
    if (a.op != b.op || !same_operands(a, b) || a.callee != b.callee || a.args.size() != b.args.size() ||
        a.aliases != b.aliases || a.results.size() != b.results.size())
        return false;
    for (size_t i = 0; i < a.results.size(); ++i)
        if (a.results[i]->type != b.results[i]->type) return false;
    for (size_t i = 0; i < a.args.size(); ++i)
        if (!same_arg(a.args[i].value, b.args[i].value)) return false;
    return true;
}

class Common {
  public:
    explicit Common(ir::Graph& g)
        : g_(g),
          memory_(g),
          version_(static_cast<size_t>(memory_.count()), 0),
          escapes_(static_cast<size_t>(memory_.count()), 0),
          output_(static_cast<size_t>(g.id_bound()), 0),
          replacement_(static_cast<size_t>(g.id_bound()), nullptr),
          storage_(static_cast<size_t>(g.storage_bound())) {
        for (size_t i = 0; i < storage_.size(); ++i) storage_[i] = static_cast<int>(i);
        for (const Value* v : g.outputs) mark_output(v);
    }

    bool run() {
        seen_.reserve(g_.nodes.size());
        std::vector<Node*> kept;
        kept.reserve(g_.nodes.size());
        for (Node* n : g_.nodes) {
            for (Value*& v : n->operands)
                if (Value* r = replacement_[static_cast<size_t>(v->id)]) v = r;
            if (!candidate(*n) || !merge(n)) kept.push_back(n);
            for (int w : n->writes) ++version_[static_cast<size_t>(memory_.of(n->operands[static_cast<size_t>(w)]))];
        }
        if (kept.size() == g_.nodes.size()) return false;
        g_.nodes = std::move(kept);
        for (Value*& v : g_.outputs)
            if (Value* r = replacement_[static_cast<size_t>(v->id)]) v = r;
        for (Node* n : g_.nodes)
            for (Value* v : n->results)
                if (v->storage >= 0) v->storage = storage_[static_cast<size_t>(v->storage)];
        return true;
    }

  private:
    struct Entry {
        Node* node;
        std::vector<int> versions;  // of its operands' memory when it ran
    };

    bool candidate(const Node& n) const {
        if (n.op == ir::Op::Input || !is_pure(n) || n.results.empty()) return false;
        for (size_t i = 0; i < n.results.size(); ++i)
            if ((n.aliases.empty() || n.aliases[i] < 0) && memory_.written(n.results[i])) return false;
        return true;
    }
    void mark_output(const Value* v) {
        output_[static_cast<size_t>(v->id)] = 1;
        escapes_[static_cast<size_t>(memory_.of(v))] = 1;
    }
    bool handed_out(const Node& n, size_t i) const {
        const Value* v = n.results[i];
        bool view = !n.aliases.empty() && n.aliases[i] >= 0;
        return view ? output_[static_cast<size_t>(v->id)] : escapes_[static_cast<size_t>(memory_.of(v))];
    }
    bool both_escape(const Node& a, const Node& b) const {
        for (size_t i = 0; i < a.results.size(); ++i)
            if (handed_out(a, i) && handed_out(b, i)) return true;
        return false;
    }
    std::vector<int> versions(const Node& n) const {
        std::vector<int> out;
        for (const Value* v : n.operands)
            if (memory_.written(v)) out.push_back(version_[static_cast<size_t>(memory_.of(v))]);
        return out;
    }
    static size_t hash(const Node& n) {
        size_t h = static_cast<size_t>(n.op);
        if (n.op == ir::Op::Call) h = mix(h, std::hash<std::string>()(n.callee));
        if (ir::is_commutative(n.op))
            h = mix(h, static_cast<size_t>(n.operands[0]->id) + static_cast<size_t>(n.operands[1]->id));
        else
            for (const Value* v : n.operands) h = mix(h, static_cast<size_t>(v->id));
        for (const ir::NamedArg& a : n.args) h = mix(h, std::visit(ArgHash{}, a.value));
        const ir::TensorType& t = n.results[0]->type;
        h = mix(h, static_cast<size_t>(t.dtype));
        for (const ir::Expr& e : t.sizes) h = mix(h, e.hash());
        return h;
    }
    bool merge(Node* n) {
        std::vector<Entry>& bucket = seen_[hash(*n)];
        std::vector<int> now = versions(*n);
        for (const Entry& e : bucket) {
            if (e.versions != now || !same_node(*e.node, *n) || both_escape(*e.node, *n)) continue;
            for (size_t i = 0; i < n->results.size(); ++i) take_over(n->results[i], e.node->results[i]);
            return true;
        }
        bucket.push_back({n, std::move(now)});
        return false;
    }
    // `to` stands for `from` from now on; what shared memory with `from` shares it with `to`.
    void take_over(Value* from, Value* to) {
        replacement_[static_cast<size_t>(from->id)] = to;
        bool output = output_[static_cast<size_t>(from->id)], escapes = escapes_[static_cast<size_t>(memory_.of(from))];
        rename(from, to);
        if (output) output_[static_cast<size_t>(to->id)] = 1;
        if (escapes) escapes_[static_cast<size_t>(memory_.of(to))] = 1;
    }
    void rename(const Value* from, Value* to) {
        if (from->storage < 0) return;
        int target = to->storage < 0 ? -1 : storage_[static_cast<size_t>(to->storage)];
        int& own = storage_[static_cast<size_t>(from->storage)];
        if (target < 0)
            to->storage = from->storage;
        else
            own = target;
    }

    ir::Graph& g_;
    Memory memory_;
    std::vector<int> version_;         // by memory: how often it was written
    std::vector<char> escapes_;        // by memory: it is handed out
    std::vector<char> output_;         // by value id: it is itself an output
    std::vector<Value*> replacement_;  // by value id
    std::vector<int> storage_;         // by storage: what it is called now
    std::unordered_map<size_t, std::vector<Entry>> seen_;
};

}  // namespace

bool eliminate_common(ir::Graph& g, Context&) { return Common(g).run(); }

}  // namespace braze::passes
