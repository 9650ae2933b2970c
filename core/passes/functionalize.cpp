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
// dtype, same layout) and if it writes all that is used of the storage from then on, its root: at first the base; the
// result of an in-place call on the root is the root, a detach of it counts as it; and a view becomes the new root
// where nothing that is not derived from that view is used later (gradients are accumulated into a transposed view of a
// product that nobody else sees).
//
// Each such write makes a new root, a fresh value with the type of the old one. Whoever reads a value of the storage
// gets its present form: the newest root, or the views that lead to it run again. A graph input that was written is
// written back at the end of the graph by one aten::copy_, and outputs that share its memory are the input itself or
// views of it taken after that.
//
// Before that, tensors that are cut into pieces which are then written one by one are taken apart
// (functionalize/pieces.h), and normalisations from the running statistics that they write
// (functionalize/statistics.h).
//
// All other writes stay real in-place calls, which nothing is moved across.
#include "core/ir/builder.h"
#include "core/passes/functionalize/inplace.h"
#include "core/passes/functionalize/pieces.h"
#include "core/passes/functionalize/plan.h"
#include "core/passes/functionalize/statistics.h"
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
            if (plan_.covers(v)) begin(v);
        ir::rewrite(g_, [&](Node* n, ir::Builder& b) { return visit(*n, b); });
        ir::Builder b(g_);
        for (Value* v : g_.inputs)
            if (plan_.covers(v)) write_back(v, b);
        for (Value*& v : g_.outputs) v = present(v, b);
    }

  private:
    struct StorageState {
        Value* root = nullptr;  // the tensor that was written last, or the base
        Value* form = nullptr;  // its newest form
        int version = 0;        // how often it was written
    };
    struct Form {
        Value* value = nullptr;
        int version = -1;  // of the storage when it was taken
    };
    StorageState& state(const Value* v) { return storages_[static_cast<size_t>(plan_.storage(v))]; }
    Form& form(const Value* v) { return forms_[static_cast<size_t>(v->id)]; }

    void begin(Value* base) {
        StorageState& s = state(base);
        s.root = s.form = base;
        ++s.version;
    }

    Value* tensor_of(Value* v) const {
        while (plan_.origin(v).same_tensor) v = plan_.origin(v).parent;
        return v;
    }

    bool visit(Node& n, ir::Builder& b) {
        if (plan_.rewrites(n)) {
            write(n, b);
            return true;
        }
        for (Value*& v : n.operands) v = present(v, b);
        for (size_t i = 0; i < n.results.size(); ++i) {
            Value* v = n.results[i];
            if (!plan_.covers(v)) continue;
            if (!plan_.origin(v).parent) {
                begin(v);
                continue;
            }
            v->storage = n.operands[static_cast<size_t>(n.aliases[i])]->storage;
            form(v) = {v, state(v).version};
        }
        return false;
    }

    void write(const Node& n, ir::Builder& b) {
        std::vector<Value*> operands = n.operands;
        for (Value*& v : operands) v = present(v, b);
        Value* written = n.operands[static_cast<size_t>(n.writes[0])];
        StorageState& s = state(written);
        Value* target = tensor_of(written);
        if (!stands_for_root(target, s)) s.root = target;
        s.form = pure_form(n, operands, b);
        s.form->storage = g_.fresh_storage();
        ++s.version;
    }

    // Written through a detach, the root has the written elements too.
    bool stands_for_root(Value* v, const StorageState& s) const {
        while (v != s.root) {
            const std::string& callee = v->node->callee;
            if (callee != "aten::detach" && callee != "aten::alias") return false;
            v = tensor_of(plan_.origin(v).parent);
        }
        return true;
    }

    // What stands for v at this point of the program.
    Value* present(Value* v, ir::Builder& b) {
        if (!plan_.covers(v)) return v;
        v = tensor_of(v);
        StorageState& s = state(v);
        if (v == s.root) return s.form;
        if (form(v).version != s.version) {
            Value* parent = plan_.origin(v).parent;
            BRAZE_CHECK(parent, "%" + std::to_string(v->id) + " is used after a view of it was written");
            Node* again = b.repeat(*v->node, {present(parent, b)});
            for (size_t i = 0; i < again->results.size(); ++i)
                form(v->node->results[i]) = {again->results[i], s.version};
        }
        return form(v).value;
    }

    void write_back(Value* input, ir::Builder& b) {
        StorageState& s = state(input);
        Value *written = s.root, *newest = s.form;
        if (newest == input) return;
        begin(input);
        Value* target = present(written, b);
        Node* copy = b.call("aten::copy_", {target, newest},
                            {{"self", ir::Ref{0}}, {"src", ir::Ref{1}}, {"non_blocking", false}}, {target->type});
        copy->writes = {0};
        copy->aliases = {0};
        copy->results[0]->storage = target->storage;
    }

    ir::Graph& g_;
    const Plan& plan_;
    std::vector<Form> forms_;             // by value id
    std::vector<StorageState> storages_;  // by storage
};

}  // namespace
}  // namespace functionalization

bool functionalize(ir::Graph& g, Context& c) {
    if (!c.options.codegen)
        return false;  // nothing is fused: writing in place is as good, and the pure forms need kernels
    bool separated = functionalization::separate_statistics(g);
    separated |= functionalization::separate_pieces(g);
    functionalization::Plan plan(g);
    if (!plan.any()) return separated;
    functionalization::Functionalizer(g, plan).run();
    return true;
}

}  // namespace braze::passes
