// The pass `functionalize`.
//
// The captured program writes memory: in-place calls, on tensors of which there are views. A storage is made pure from
// the last write on that has no pure form (random numbers, a write through a slice, an out argument: such writes stay),
// if
//
//   1. it has one base: the one graph input, or the one result that is no view, from which all its other values are
//   derived by views;
//   2. every view of it is a call (or primitive) of one operand that can be run again on another base: not as_strided,
//   whose offset
//      counts from the storage's own beginning, nor a call that changes its operand's metadata.
//
// A write has a pure form if it is an in-place call that functionalize/inplace.h knows (same values bit for bit, same
// dtype, same layout) and writes the whole base: its operand is the base, the result of an earlier in-place call on it,
// or a detach of it.
//
// Each such write makes a new base, a fresh value with the type of the old one. Whoever reads a value of the storage
// gets its present form: the newest base, or the view run again on it. A graph input that was written is written back
// at the end of the graph by one aten::copy_, and outputs that share its memory are the input itself or views of it
// taken after that.
//
// All other writes stay real in-place calls, which nothing is moved across.
#include "core/ir/builder.h"
#include "core/passes/functionalize/inplace.h"
#include "core/passes/functionalize/plan.h"
#include "core/passes/pass.h"
#include "core/support/error.h"

namespace braze::passes {

namespace functionalization {

namespace {

using ir::Node;
using ir::Value;

class Functionalizer {
  public:
    Functionalizer(ir::Graph& g, const Plan& plan)
        : g_(g),
          plan_(plan),
          forms_(static_cast<size_t>(g.id_bound())),
          storages_(static_cast<size_t>(g.storage_bound())) {}

    void run() {
        for (Value* v : g_.inputs)
            if (plan_.covers(v)) state(v).base = v;
        ir::rewrite(g_, [&](Node* n, ir::Builder& b) { return visit(*n, b); });
        ir::Builder b(g_);
        for (Value* v : g_.inputs)
            if (plan_.covers(v)) write_back(v, b);
        for (Value*& v : g_.outputs) v = present(v, b);
    }

  private:
    struct StorageState {
        Value* base = nullptr;  // its newest form
        int version = 0;        // how often it was written
    };
    struct Form {
        Value* value = nullptr;
        int version = -1;  // of the storage when it was taken
    };
    StorageState& state(const Value* v) { return storages_[static_cast<size_t>(plan_.storage(v))]; }
    Form& form(const Value* v) { return forms_[static_cast<size_t>(v->id)]; }

    bool visit(Node& n, ir::Builder& b) {
        if (plan_.rewrites(n)) {
            StorageState& s = state(n.operands[0]);
            std::vector<Value*> operands;
            for (Value* v : n.operands) operands.push_back(present(v, b));
            s.base = pure_form(n, operands, b);
            s.base->storage = g_.fresh_storage();
            ++s.version;
            return true;
        }
        for (Value*& v : n.operands) v = present(v, b);
        for (Value* v : n.results) {
            if (!plan_.covers(v)) continue;
            StorageState& s = state(v);
            if (plan_.origin(v).parent) {
                v->storage = s.base->storage;
                form(v) = {v, s.version};
            } else {
                s.base = v;
            }
        }
        return false;
    }

    // What stands for v at this point of the program.
    Value* present(Value* v, ir::Builder& b) {
        if (!plan_.covers(v)) return v;
        while (plan_.origin(v).same_tensor) v = plan_.origin(v).parent;
        const Plan::Origin& origin = plan_.origin(v);
        StorageState& s = state(v);
        if (!origin.parent) return s.base;
        if (form(v).version != s.version) {
            Node* again = b.repeat(*v->node, {present(origin.parent, b)});
            for (size_t i = 0; i < again->results.size(); ++i)
                form(v->node->results[i]) = {again->results[i], s.version};
        }
        return form(v).value;
    }

    void write_back(Value* input, ir::Builder& b) {
        StorageState& s = state(input);
        if (s.base == input) return;
        Node* copy = b.call("aten::copy_", {input, s.base},
                            {{"self", ir::Ref{0}}, {"src", ir::Ref{1}}, {"non_blocking", false}}, {input->type});
        copy->writes = {0};
        copy->aliases = {0};
        copy->results[0]->storage = input->storage;
        s.base = input;
        ++s.version;
    }

    ir::Graph& g_;
    const Plan& plan_;
    std::vector<Form> forms_;             // by value id
    std::vector<StorageState> storages_;  // by storage
};

}  // namespace
}  // namespace functionalization

bool functionalize(ir::Graph& g, Context&) {
    functionalization::Plan plan(g);
    if (!plan.any()) return false;
    functionalization::Functionalizer(g, plan).run();
    return true;
}

}  // namespace braze::passes
