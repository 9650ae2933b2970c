// Views and structure: identities, views of views, views of filled tensors.
#include <algorithm>

#include "core/ir/op.h"
#include "core/passes/fold/folder.h"

namespace braze::passes::folding {

namespace {

using ir::Sizes;

const Sizes& integers(const Node& n, const char* name) { return *n.get<Sizes>(name); }

bool all_equal(const Sizes& xs, int64_t v) {
    return std::all_of(xs.begin(), xs.end(), [&](const Expr& x) { return x == Expr(v); });
}

bool is_identity(const Node& n) {
    const ir::TensorType &x = n.operands[0]->type, &r = n.results[0]->type;
    if (x.sizes != r.sizes) return false;
    switch (n.op) {
        case Op::Expand:
        case Op::Reshape:
        case Op::Copy: return true;
        case Op::Permute: {
            const Sizes& dims = integers(n, "dims");
            for (size_t i = 0; i < dims.size(); ++i)
                if (dims[i] != Expr(static_cast<int64_t>(i))) return false;
            return true;
        }
        case Op::Slice: return all_equal(integers(n, "starts"), 0) && all_equal(integers(n, "steps"), 1);
        case Op::Flip: {
            const Sizes& dims = integers(n, "dims");
            return std::all_of(dims.begin(), dims.end(),
                               [&](const Expr& d) { return x.sizes[static_cast<size_t>(d.value())] == Expr(1); });
        }
        case Op::Pad: return all_equal(integers(n, "low"), 0) && all_equal(integers(n, "high"), 0);
        case Op::Cat: return n.operands.size() == 1;
        default: return false;
    }
}

// outer(inner(x)) where both are the same operator, as one node.
bool compose(Node& n, const Node& inner, Folder& f) {
    Value* x = inner.operands[0];
    if (!f.composable(n, inner)) return false;
    switch (n.op) {
        case Op::Permute: {
            Sizes dims;
            for (const Expr& d : integers(n, "dims"))
                dims.push_back(integers(inner, "dims")[static_cast<size_t>(d.value())]);
            return f.substitute(n, Op::Permute, {x}, {{"dims", dims}});
        }
        case Op::Reshape:
        case Op::Expand: return f.substitute(n, n.op, {x}, {});
        case Op::Slice: {
            Sizes starts = integers(n, "starts"), steps = integers(n, "steps");
            const Sizes &first = integers(inner, "starts"), &by = integers(inner, "steps");
            for (size_t i = 0; i < starts.size(); ++i) {
                starts[i] = first[i] + by[i] * starts[i];
                steps[i] = by[i] * steps[i];
            }
            return f.substitute(n, Op::Slice, {x}, {{"starts", starts}, {"steps", steps}});
        }
        default: return false;
    }
}

// The composition gives x back.
bool undoes(const Node& n, const Node& inner) {
    if (n.op != inner.op || n.results[0]->type.sizes != inner.operands[0]->type.sizes) return false;
    if (n.op == Op::Reshape) return true;
    if (n.op != Op::Permute) return false;
    const Sizes &outer_dims = integers(n, "dims"), &inner_dims = integers(inner, "dims");
    for (size_t i = 0; i < outer_dims.size(); ++i)
        if (inner_dims[static_cast<size_t>(outer_dims[i].value())] != Expr(static_cast<int64_t>(i))) return false;
    return true;
}

}  // namespace

bool fold_view(Node& n, Folder& f) {
    ir::OpKind k = ir::kind(n.op);
    if ((k != ir::OpKind::View && k != ir::OpKind::Structure) || n.op == Op::AsStrided) return false;
    if (is_identity(n) && f.stand_in(n, n.operands[0])) return true;
    if (n.op != Op::Cat && n.op != Op::Pad)
        if (auto x = f.filled_with(n.operands[0])) return f.substitute_scalar(n, *x);
    const Node& inner = *n.operands[0]->node;
    if (n.op != inner.op) return false;
    if (undoes(n, inner) && f.stand_in(n, inner.operands[0])) return true;
    return compose(n, inner, f);
}

}  // namespace braze::passes::folding
