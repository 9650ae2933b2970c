// Builder: created, elementwise and reducing operators, calls, and rewrite(). Views and structure: builder_views.cpp.
#include "core/ir/builder.h"

#include <algorithm>
#include <cmath>

#include "core/ir/op.h"
#include "core/support/error.h"

namespace braze::ir {

Node* Builder::node(Op op) {
    Node* n = at_ ? graph_.insert_before(at_, op) : graph_.add_node(op);
    n->line = line_;
    return n;
}

Value* Builder::create(Op op, std::vector<Value*> operands, std::vector<NamedArg> attributes, TensorType result) {
    Node* n = node(op);
    n->operands = std::move(operands);
    n->args = std::move(attributes);
    return graph_.add_result(n, std::move(result));
}

Node* Builder::call(std::string callee, std::vector<Value*> operands, std::vector<NamedArg> args,
                    const std::vector<TensorType>& results) {
    Node* n = node(Op::Call);
    n->callee = std::move(callee);
    n->operands = std::move(operands);
    n->args = std::move(args);
    for (const TensorType& t : results) graph_.add_result(n, t);
    return n;
}

Node* Builder::repeat(const Node& n, std::vector<Value*> operands) {
    Node* copy = node(n.op);
    copy->callee = n.callee;
    copy->operands = std::move(operands);
    copy->args = n.args;
    copy->ordered = n.ordered;
    copy->writes = n.writes;
    copy->aliases = n.aliases;
    copy->line = n.line;
    for (size_t i = 0; i < n.results.size(); ++i) {
        int alias = n.aliases.empty() ? -1 : n.aliases[i];
        graph_.add_result(copy, n.results[i]->type,
                          alias < 0 ? -1 : copy->operands[static_cast<size_t>(alias)]->storage);
    }
    return copy;
}

namespace {

TensorType contiguous(DType dtype, const Sizes& sizes) { return {dtype, sizes, contiguous_strides(sizes)}; }

Arg scalar_attribute(DType dtype, double value) {
    if (is_float(dtype)) return value;
    if (dtype == DType::Bool) return value != 0;
    BRAZE_CHECK(is_int(dtype), "no scalars of dtype " + std::string(name(dtype)));
    BRAZE_CHECK(std::trunc(value) == value && std::abs(value) < 9.2e18,
                "not an integer: " + std::to_string(value) + " for dtype " + std::string(name(dtype)));
    return Expr(static_cast<int64_t>(value));
}

}  // namespace

Value* Builder::scalar(DType dtype, double value, const Sizes& sizes) {
    return create(Op::Scalar, {}, {{"value", scalar_attribute(dtype, value)}}, contiguous(dtype, sizes));
}

Value* Builder::scalar_int(DType dtype, const Expr& value, const Sizes& sizes) {
    if (value.is_const() && dtype == DType::Bool) return scalar_bool(value != Expr(0), sizes);
    constexpr int64_t exact = 9007199254740992;  // 2**53
    if (value.is_const() && is_float(dtype) && std::abs(value.value()) <= exact)
        return scalar(dtype, static_cast<double>(value.value()), sizes);
    BRAZE_CHECK(is_int(dtype) || is_float(dtype), "no symbolic scalars of dtype " + std::string(name(dtype)));
    return create(Op::Scalar, {}, {{"value", value}}, contiguous(dtype, sizes));
}

Value* Builder::scalar_bool(bool value, const Sizes& sizes) {
    return create(Op::Scalar, {}, {{"value", value}}, contiguous(DType::Bool, sizes));
}

Value* Builder::iota(DType dtype, const Sizes& sizes, int axis, const Expr& start, const Expr& step) {
    return create(Op::Iota, {}, {{"axis", Expr(axis)}, {"start", start}, {"step", step}}, contiguous(dtype, sizes));
}

namespace {

void check_elementwise(Op op, std::span<Value* const> operands, OpKind kind_wanted) {
    BRAZE_CHECK(kind(op) == kind_wanted,
                "operator " + std::string(name(op)) + " does not take this number of operands");
    for (const Value* v : operands) {
        BRAZE_CHECK(v->type.sizes == operands[0]->type.sizes, std::string(name(op)) + ": operands %" +
                                                                  std::to_string(operands[0]->id) + " and %" +
                                                                  std::to_string(v->id) + " differ in size");
    }
    size_t first = op == Op::Where ? 1 : 0;
    for (size_t i = first; i < operands.size(); ++i) {
        BRAZE_CHECK(operands[i]->type.dtype == operands[first]->type.dtype,
                    std::string(name(op)) + ": operands of dtype " + std::string(name(operands[first]->type.dtype)) +
                        " and " + std::string(name(operands[i]->type.dtype)));
    }
}

}  // namespace

Value* Builder::unary(Op op, Value* x) {
    Value* xs[] = {x};
    check_elementwise(op, xs, OpKind::Unary);
    DType d = returns_bool(op) ? DType::Bool : x->type.dtype;
    return create(op, {x}, {}, {d, x->type.sizes, elementwise_strides(xs)});
}

Value* Builder::binary(Op op, Value* a, Value* b) {
    Value* xs[] = {a, b};
    check_elementwise(op, xs, OpKind::Binary);
    DType d = returns_bool(op) ? DType::Bool : a->type.dtype;
    return create(op, {a, b}, {}, {d, a->type.sizes, elementwise_strides(xs)});
}

Value* Builder::binary(Op op, Value* a, double b) { return binary(op, a, scalar(a->type.dtype, b, a->type.sizes)); }
Value* Builder::binary(Op op, double a, Value* b) { return binary(op, scalar(b->type.dtype, a, b->type.sizes), b); }

Value* Builder::ternary(Op op, Value* a, Value* b, Value* c) {
    Value* xs[] = {a, b, c};
    check_elementwise(op, xs, OpKind::Ternary);
    BRAZE_CHECK(op != Op::Where || a->type.dtype == DType::Bool, "the condition of where must be bool");
    return create(op, {a, b, c}, {}, {c->type.dtype, a->type.sizes, elementwise_strides(xs)});
}

Value* Builder::cast(Value* x, DType dtype) {
    if (x->type.dtype == dtype) return x;
    Value* xs[] = {x};
    return create(Op::Cast, {x}, {}, {dtype, x->type.sizes, elementwise_strides(xs)});
}

namespace {

Sizes reduced_sizes(const Sizes& sizes, const std::vector<int>& dims, bool keepdim) {
    Sizes out;
    for (size_t i = 0; i < sizes.size(); ++i) {
        bool reduced = std::find(dims.begin(), dims.end(), static_cast<int>(i)) != dims.end();
        if (!reduced)
            out.push_back(sizes[i]);
        else if (keepdim)
            out.emplace_back(1);
    }
    return out;
}

std::vector<int> sorted_dims(std::vector<int> dims, int rank) {
    std::sort(dims.begin(), dims.end());
    BRAZE_CHECK(dims.empty() || (dims.front() >= 0 && dims.back() < rank), "a reduced axis is out of range");
    BRAZE_CHECK(std::adjacent_find(dims.begin(), dims.end()) == dims.end(), "an axis is reduced twice");
    return dims;
}

}  // namespace

Value* Builder::reduce(Op op, Value* x, const std::vector<int>& given, bool keepdim, std::optional<DType> dtype) {
    BRAZE_CHECK(kind(op) == OpKind::Reduce && op != Op::VarMean,
                std::string(name(op)) + " is no reduction with one result");
    std::vector<int> dims = sorted_dims(given, x->type.rank());
    DType d = x->type.dtype;
    if (op == Op::ArgMax || op == Op::ArgMin) d = DType::I64;
    if ((op == Op::Sum || op == Op::Prod) && !is_float(d)) d = DType::I64;
    if (dtype) d = *dtype;
    return create(op, {x}, {{"dims", to_exprs(dims)}, {"keepdim", keepdim}},
                  contiguous(d, reduced_sizes(x->type.sizes, dims, keepdim)));
}

std::pair<Value*, Value*> Builder::var_mean(Value* x, const std::vector<int>& given, bool keepdim, double correction) {
    std::vector<int> dims = sorted_dims(given, x->type.rank());
    TensorType t = contiguous(x->type.dtype, reduced_sizes(x->type.sizes, dims, keepdim));
    Value* var =
        create(Op::VarMean, {x}, {{"dims", to_exprs(dims)}, {"keepdim", keepdim}, {"correction", correction}}, t);
    return {var, graph_.add_result(var->node, t)};
}

Value* Builder::with_strides(Value* v, const Sizes& strides) {
    BRAZE_CHECK(strides.size() == v->type.sizes.size(), "as many strides as sizes are needed");
    v->type.strides = strides;
    return v;
}

Value* Builder::as_alias(Value* v, int storage) {
    BRAZE_CHECK(v->node->results.size() == 1 && !v->node->operands.empty(),
                "only a view can share memory with its operand");
    v->storage = storage;
    v->node->aliases = {0};
    return v;
}

// ---- rewrite

Value* Builder::resolve(Value* v) {
    while (static_cast<size_t>(v->id) < replacement_.size() && replacement_[static_cast<size_t>(v->id)])
        v = replacement_[static_cast<size_t>(v->id)];
    return v;
}

void Builder::replace(Value* from, Value* to) {
    if (!rewriting_) {
        graph_.replace_uses(from, to);
        return;
    }
    to = resolve(to);
    if (to == from) return;
    if (replacement_.size() <= static_cast<size_t>(from->id))
        replacement_.resize(static_cast<size_t>(std::max(graph_.id_bound(), from->id + 1)), nullptr);
    replacement_[static_cast<size_t>(from->id)] = to;
    replaced_ = true;
}

bool rewrite(Graph& g, const std::function<bool(Node*, Builder&)>& visit) {
    std::vector<Node*> old;
    old.swap(g.nodes);
    g.nodes.reserve(old.size());
    Builder b(g);
    b.rewriting_ = true;
    bool changed = false;
    size_t next = 0;
    try {
        for (; next < old.size(); ++next) {
            Node* n = old[next];
            if (!b.replacement_.empty())
                for (Value*& v : n->operands) v = b.resolve(v);
            b.line_ = n->line;
            bool drop = n->op != Op::Input && visit(n, b);
            BRAZE_CHECK(!b.at_, "no insertion point may be set while a graph is rewritten");
            if (drop)
                changed = true;
            else
                g.nodes.push_back(n);
        }
    } catch (...) {
        g.nodes.insert(g.nodes.end(), old.begin() + static_cast<long>(next), old.end());
        throw;
    }
    for (Value*& v : g.outputs) v = b.resolve(v);
    return changed || b.replaced_;
}

}  // namespace braze::ir
