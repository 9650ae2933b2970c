#include "core/ir/verify.h"

#include "core/ir/op.h"
#include "core/ir/text.h"
#include "core/ir/verify_types.h"
#include "core/support/error.h"

namespace braze::ir {

namespace {

class Verifier {
  public:
    explicit Verifier(const Graph& g) : g_(g), made_(static_cast<size_t>(g.id_bound()), nullptr) {}

    void run() {
        for (size_t i = 0; i < g_.nodes.size(); ++i) {
            const Node& n = *g_.nodes[i];
            bool input = i < g_.inputs.size();
            check(n, (n.op == Op::Input) == input, "inputs come first and only there");
            if (input)
                check(n, n.results.size() == 1 && n.results[0] == g_.inputs[i], "it is not the input of its place");
            for (const Value* v : n.operands) check(n, is_made(v), "an operand is not made before it is used");
            check_results(n);
            if (n.op == Op::Call)
                check_call(n);
            else
                check_primitive(n);
            for (const Value* v : n.results) made_[static_cast<size_t>(v->id)] = v;
        }
        BRAZE_CHECK(g_.inputs.size() <= g_.nodes.size(), "an input has no node");
        for (const Value* v : g_.outputs) BRAZE_CHECK(is_made(v), "an output is not made in the graph:\n" + print(g_));
    }

  private:
    void check(const Node& n, bool condition, const char* what) const {
        if (!condition) [[unlikely]]
            throw InternalError("invalid node: " + std::string(what) + ": " + print(n));
    }
    bool is_made(const Value* v) const {
        return v && v->id >= 0 && static_cast<size_t>(v->id) < made_.size() && made_[static_cast<size_t>(v->id)] == v;
    }
    void check_results(const Node& n) const {
        for (size_t i = 0; i < n.results.size(); ++i) {
            const Value& v = *n.results[i];
            check(n, v.node == &n && v.index == static_cast<int>(i), "a result does not know its node");
            check(n, v.id >= 0 && static_cast<size_t>(v.id) < made_.size(), "the id of a result is out of bounds");
            check(n, !made_[static_cast<size_t>(v.id)], "the id of a result is taken");
            check(n, v.type.sizes.size() == v.type.strides.size(), "sizes and strides differ in length");
            check(n, v.storage < g_.storage_bound(), "a storage id is out of bounds");
            for (const Expr& s : v.type.sizes) check(n, !s.is_const() || s.value() >= 0, "a size is negative");
        }
        check(n, n.aliases.empty() || n.aliases.size() == n.results.size(), "aliases are per result");
        for (size_t i = 0; i < n.aliases.size(); ++i) {
            if (n.aliases[i] < 0) continue;
            check(n, static_cast<size_t>(n.aliases[i]) < n.operands.size(), "an alias of an operand that is not there");
            check(n, n.results[i]->storage == n.operands[static_cast<size_t>(n.aliases[i])]->storage,
                  "a result does not share the storage of the operand it is an alias of");
        }
        check(n, n.line < static_cast<int>(g_.lines.size()), "the line is not in the graph");
    }
    void check_call(const Node& n) const {
        check(n, !n.callee.empty(), "a call needs a callee");
        int next = 0;
        for (const NamedArg& a : n.args) {
            if (const Ref* r = std::get_if<Ref>(&a.value))
                check(n, r->operand == next++, "operands are not in the order of the arguments");
            if (const RefList* r = std::get_if<RefList>(&a.value))
                for (int o : r->operands)
                    check(n, o == -1 || o == next++, "operands are not in the order of the arguments");
        }
        check(n, next == static_cast<int>(n.operands.size()), "an operand is in no argument");
        for (int w : n.writes) check(n, w >= 0 && w < next, "it writes an operand that is not there");
    }
    void check_primitive(const Node& n) const {
        check(n, n.writes.empty() && !n.ordered && n.callee.empty(), "a primitive operator is pure");
        check(n, arity(n.op) < 0 || static_cast<int>(n.operands.size()) == arity(n.op),
              "the number of operands is wrong");
        check(n, n.results.size() == (n.op == Op::VarMean ? 2u : 1u), "the number of results is wrong");
        check(n, kind(n.op) == OpKind::View || n.aliases.empty(), "only views are aliases");
        if (const char* problem = attribute_problem(n)) check(n, false, problem);
        if (const char* problem = type_problem(n)) check(n, false, problem);
    }

    const Graph& g_;
    std::vector<const Value*> made_;  // by id
};

}  // namespace

void verify(const Graph& g) { Verifier(g).run(); }

}  // namespace braze::ir
