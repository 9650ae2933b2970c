#include "core/schedule/prepare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "core/ir/builder.h"
#include "core/schedule/facts.h"
#include "core/schedule/index.h"

namespace braze::schedule {

using ir::Builder;
using ir::DType;
using ir::Node;
using ir::Op;
using ir::Sizes;
using ir::Value;

namespace {

// A reduction with fewer independent results than this cannot keep many cores busy (down columns, a vector of them is
// one) ...
constexpr int64_t kFewResults = 32;
constexpr int64_t kFewColumns = 256;
// ... which is only worth a second kernel from this many elements on.
constexpr int64_t kManyElements = 32768;
constexpr int64_t kChunks = 128;

std::vector<int> dims_of(const Node& n) { return ir::to_ints(*n.get<std::vector<Expr>>("dims")); }

// `to` takes the place of `from`: same dtype, sizes, layout and storage.
void stand_in(Builder& b, Value* from, Value* to) {
    to = b.cast(to, from->type.dtype);
    if (to->type.sizes != from->type.sizes || to->type.strides != from->type.strides)
        to = b.copy(b.reshape(to, from->type.sizes), from->type.strides);
    to->storage = from->storage;
    b.replace(from, to);
}

// ---- VarMean

void expand_var_mean(Node* n, Builder& b) {
    const std::vector<int> dims = dims_of(*n);
    Value *x = n->operands[0], *var = n->results[0], *mean = n->results[1];
    const DType d = ir::compute_type(x->type.dtype);
    const double correction = *n->get<double>("correction");
    Sizes kept = x->type.sizes;
    Expr count(1);
    for (int i : dims) {
        count = count * kept[static_cast<size_t>(i)];
        kept[static_cast<size_t>(i)] = Expr(1);
    }
    const Sizes& sizes = mean->type.sizes;
    // max(count - correction, 0), as eager
    Value* divisor;
    if (count.is_const())
        divisor = b.scalar(d, std::max(static_cast<double>(count.value()) - correction, 0.0), sizes);
    else if (std::trunc(correction) == correction)
        divisor = b.scalar_int(d, shapes::max(count - Expr(static_cast<int64_t>(correction)), Expr(0)), sizes);
    else
        divisor = b.binary(Op::Maximum, b.sub(b.scalar_int(d, count, sizes), b.scalar(d, correction, sizes)),
                           b.scalar(d, 0, sizes));
    const bool keep = *n->get<bool>("keepdim");
    auto sum = [&](Value* y) { return b.reduce(Op::Sum, y, dims, keep); };
    x = b.cast(x, d);
    Value* m = b.div(sum(x), b.scalar_int(d, count, sizes));
    Value* centred = b.sub(x, b.expand(b.reshape(m, kept), x->type.sizes));
    Value* v = b.div(sum(b.mul(centred, centred)), divisor);
    stand_in(b, mean, m);
    stand_in(b, var, v);
}

// ---- two levels

bool is_associative(Op op) {
    return op == Op::Sum || op == Op::Prod || op == Op::Max || op == Op::Min || op == Op::Any || op == Op::All;
}

double identity(Op op, DType d) {
    switch (op) {
        case Op::Prod:
        case Op::All: return 1;
        case Op::Max: return ir::is_float(d) ? -std::numeric_limits<double>::infinity() : 0;
        case Op::Min: return ir::is_float(d) ? std::numeric_limits<double>::infinity() : 0;
        default: return 0;
    }
}

// Which reduced axis becomes the first level's outer one, in how many parts.
struct Split {
    int axis = -1;
    int64_t parts = 0;  // 0: the whole axis
    int64_t size = 0;
};

Split choose_split(const Node& n, const std::vector<int>& dims, int64_t results) {
    const ir::TensorType& t = n.operands[0]->type;
    Split best;
    int64_t best_stride = -1;
    const int64_t wanted = std::max<int64_t>(kChunks / results, 8);
    // the axis that lies outermost in memory among those long enough
    for (int d : dims) {
        auto size = t.sizes[static_cast<size_t>(d)].as_const();
        if (!size || *size < wanted) continue;
        const int64_t stride = hint(t.strides[static_cast<size_t>(d)]);
        if (stride <= best_stride) continue;
        best_stride = stride;
        best = {d, *size <= 4 * wanted && dims.size() > 1 ? 0 : wanted, *size};
    }
    return best;
}

bool split_reduction(Node* n, Builder& b) {
    if (!is_associative(n->op)) return false;
    const std::vector<int> dims = dims_of(*n);
    Value *x = n->operands[0], *result = n->results[0];
    const int64_t results = hint(result->type.numel()), elements = hint(x->type.numel());
    if (results >= (reduces_columns(*n) ? kFewColumns : kFewResults) || results == 0 || elements < kManyElements ||
        elements / results < 1024)
        return false;
    const Split split = choose_split(*n, dims, results);
    if (split.axis < 0) return false;
    const size_t axis = static_cast<size_t>(split.axis);
    const DType d = ir::compute_type(result->type.dtype);
    if (ir::is_float(d) && ir::is_half(x->type.dtype)) x = b.cast(x, d);

    std::vector<int> first, second;
    if (split.parts == 0) {
        for (int i : dims)
            if (i != split.axis) first.push_back(i);
        int place = split.axis;
        for (int i : first) place -= i < split.axis;
        second = {place};
    } else {
        const int64_t length = (split.size + split.parts - 1) / split.parts;
        if (length * split.parts != split.size) {
            if ((n->op == Op::Max || n->op == Op::Min) && !ir::is_float(x->type.dtype)) return false;
            Sizes low(x->type.sizes.size(), Expr(0)), high = low;
            high[axis] = Expr(length * split.parts - split.size);
            x = b.pad(x, low, high, identity(n->op, x->type.dtype));
        }
        Sizes sizes = x->type.sizes;
        sizes[axis] = Expr(length);
        sizes.insert(sizes.begin() + split.axis, Expr(split.parts));
        x = b.reshape(x, sizes);
        for (int i : dims) first.push_back(i < split.axis ? i : i + 1);
        int place = split.axis;
        for (int i : first) place -= i < split.axis;
        second = {place};
    }
    std::optional<DType> wide;
    if (n->op == Op::Sum || n->op == Op::Prod) wide = d;
    Value* y = b.reduce(n->op, b.reduce(n->op, x, first, false, wide), second, false, wide);
    stand_in(b, result, y);
    return true;
}

// ---- AsStrided

// The offset counts from the start of the storage. Only memory that the program itself computes certainly starts there.
bool strided_call(Node* n, Builder& b) {
    const Value* v = n->operands[0];
    while (is_view(*v->node) && is_alias(*v->node)) v = v->node->operands[0];
    if (is_computed(*v->node) && v->node->op != Op::Scalar && v->node->op != Op::Iota) return false;
    const ir::TensorType& t = n->results[0]->type;
    Node* call = b.call(
        "aten::as_strided", {n->operands[0]},
        {{"self", ir::Ref{0}}, {"size", t.sizes}, {"stride", t.strides}, {"storage_offset", *n->get<Expr>("offset")}},
        {t});
    call->results[0]->storage = n->results[0]->storage;
    call->aliases = {0};
    b.replace(n->results[0], call->results[0]);
    return true;
}

// ---- one value for several inputs

// A value can be computed in the memory of one input that it is copied to. For each other one it gets a copy beside it,
// which the same kernel can store there. (Not of what is written in place later.)
void copy_once_each(ir::Graph& g) {
    std::unordered_set<int> written;
    std::unordered_map<const Value*, std::vector<Node*>> writes_of;
    for (Node* n : g.nodes) {
        for (int w : n->writes) written.insert(n->operands[static_cast<size_t>(w)]->storage);
        if (n->op != Op::Call || n->callee != "aten::copy_" || n->operands.size() != 2) continue;
        const Value *input = n->operands[0], *source = n->operands[1];
        if (input->node->op == Op::Input && is_computed(*source->node) && source->type == input->type)
            writes_of[source].push_back(n);
    }
    std::erase_if(writes_of, [&](const auto& entry) {
        return entry.second.size() < 2 || (entry.first->storage >= 0 && written.contains(entry.first->storage));
    });
    if (writes_of.empty()) return;
    // Right behind the value: kernels do not reach across what is written in between.
    std::vector<Value*> made;
    ir::rewrite(g, [&](Node* n, Builder& b) {
        for (Value* source : made) {
            const std::vector<Node*>& writes = writes_of.at(source);
            for (size_t k = 1; k < writes.size(); ++k) writes[k]->operands[1] = b.copy(source, source->type.strides);
        }
        made.clear();
        for (Value* v : n->results)
            if (writes_of.contains(v)) made.push_back(v);
        return false;
    });
}

}  // namespace

void prepare(ir::Graph& g) {
    ir::rewrite(g, [](Node* n, Builder& b) {
        if (n->op == Op::AsStrided) return strided_call(n, b);
        if (n->op != Op::VarMean) return false;
        expand_var_mean(n, b);
        return true;
    });
    ir::rewrite(g, [](Node* n, Builder& b) { return ir::kind(n->op) == ir::OpKind::Reduce && split_reduction(n, b); });
    copy_once_each(g);
}

}  // namespace braze::schedule
