#include "core/passes/fold/folder.h"

#include "core/ir/op.h"
#include "core/passes/pass.h"

namespace braze::passes {

namespace folding {

namespace {
bool sees_storage(const Node& n) {
    return n.op == Op::AsStrided || (n.op == Op::Call && n.callee.starts_with("aten::as_strided"));
}
}  // namespace

Folder::Folder(ir::Graph& g)
    : g_(g),
      memory_(g),
      values_(g.id_bound()),
      storages_(g.storage_bound()),
      output_(static_cast<size_t>(values_), 0),
      call_operand_(static_cast<size_t>(values_), 0),
      storage_seen_(static_cast<size_t>(values_), 0),
      storage_(static_cast<size_t>(storages_)) {
    for (const Value* v : g.outputs) output_[static_cast<size_t>(v->id)] = 1;
    for (const Node* n : g.nodes) {
        bool seen = sees_storage(*n);
        if (n->op != Op::Call && !seen) continue;
        for (const Value* v : n->operands) {
            call_operand_[static_cast<size_t>(v->id)] = 1;
            if (seen) storage_seen_[static_cast<size_t>(v->id)] = 1;
        }
    }
    for (size_t i = 0; i < storage_.size(); ++i) storage_[i] = static_cast<int>(i);
}

bool Folder::run() {
    bool changed = ir::rewrite(g_, [&](Node* n, ir::Builder& b) {
        b_ = &b;
        return visit(*n);
    });
    if (renamed_) rename_storages();
    return changed;
}

bool Folder::visit(Node& n) {
    if (n.op == Op::Call || n.results.size() != 1) return false;
    if (ir::is_elementwise(n.op)) return fold_elementwise(n, *this);
    return fold_view(n, *this);
}

bool Folder::escapes(const Value* v) const { return flag(output_, v) || (known(v) && memory_.is_output(v)); }

bool Folder::stand_in(Node& n, Value* existing) {
    Value* r = n.results[0];
    if (r->type.dtype != existing->type.dtype || r->type.sizes != existing->type.sizes || flag(output_, r))
        return false;
    // Calls see the strides, and so do views that share the memory: their strides are those of a view of this layout.
    if (r->type.strides != existing->type.strides && (flag(call_operand_, r) || r->storage >= 0)) return false;
    bool shared =
        r->storage >= 0 && storage_[static_cast<size_t>(r->storage)] ==
                               (existing->storage >= 0 ? storage_[static_cast<size_t>(existing->storage)] : -1);
    if (!shared && (escapes(r) || written(r) || written(existing) || flag(storage_seen_, r))) return false;
    if (shared && r->type.strides != existing->type.strides && written(r)) return false;
    if (!shared && r->storage >= 0) {  // views of the result become views of the other
        if (existing->storage < 0)
            existing->storage = r->storage;
        else
            storage_[static_cast<size_t>(r->storage)] = storage_[static_cast<size_t>(existing->storage)];
        renamed_ = true;
    }
    if (flag(call_operand_, r) && existing->id < values_) call_operand_[static_cast<size_t>(existing->id)] = 1;
    b_->replace(r, existing);
    return true;
}

bool Folder::substitute(Node& n, Op op, std::vector<Value*> operands, std::vector<ir::NamedArg> attributes) {
    Value* r = n.results[0];
    Value* made = b_->create(op, std::move(operands), std::move(attributes), r->type);
    made->storage = r->storage;
    made->name = r->name;
    if (is_alias(n) && ir::kind(op) == ir::OpKind::View) made->node->aliases = {0};
    b_->replace(r, made);
    return true;
}

bool Folder::substitute_scalar(Node& n, const ir::Number& value) {
    Value* r = n.results[0];
    // A view of the filled tensor that is handed out must stay a view.
    if (is_alias(n) && (escapes(r) || written(r) || flag(storage_seen_, r))) return false;
    ir::Arg attribute = value.f;
    if (r->type.dtype == ir::DType::Bool)
        attribute = value.i != 0;
    else if (!ir::is_float(r->type.dtype))
        attribute = Expr(value.i);
    Value* made = b_->create(Op::Scalar, {}, {{"value", attribute}}, r->type);
    if (is_alias(n)) {
        made->storage = g_.fresh_storage();
        storage_.resize(static_cast<size_t>(g_.storage_bound()), made->storage);
        renamed_ = true;
    } else {
        made->storage = r->storage;
    }
    b_->replace(r, made);
    return true;
}

bool Folder::composable(const Node& n, const Node& inner) const {
    if (is_alias(n)) return is_alias(inner) && inner.operands[0]->storage == n.results[0]->storage;
    return !written(inner.operands[0]) && !written(n.results[0]);
}

void Folder::rename_storages() {
    for (Node* n : g_.nodes)
        for (size_t i = 0; i < n->results.size(); ++i) {
            Value* v = n->results[i];
            int s = v->storage;
            while (s >= 0 && storage_[static_cast<size_t>(s)] != s) s = storage_[static_cast<size_t>(s)];
            // a view follows its operand, which may have other memory now
            if (!n->aliases.empty() && n->aliases[i] >= 0) s = n->operands[static_cast<size_t>(n->aliases[i])]->storage;
            v->storage = s;
        }
}

std::optional<ir::Number> Folder::filled_with(const Value* v) const {
    if (v->node->op != Op::Scalar || written(v)) return std::nullopt;
    ir::DType d = v->type.dtype;
    if (const double* x = v->node->get<double>("value")) return ir::cast_number(ir::DType::F64, d, {.f = *x});
    if (const bool* x = v->node->get<bool>("value")) return ir::Number{.i = *x};
    const Expr& e = *v->node->get<Expr>("value");
    if (!e.is_const()) return std::nullopt;
    return ir::cast_number(ir::DType::I64, d, {.i = e.value()});
}

}  // namespace folding

bool fold_constants(ir::Graph& g, Context&) { return folding::Folder(g).run(); }

}  // namespace braze::passes
