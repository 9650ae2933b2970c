// Products of matrices stay Calls; what is added to them need not be part of them.
#include "core/passes/decompose/rules.h"
#include "core/passes/decompose/term.h"

namespace braze::passes::decomposition::rules {

// A row that is added to every row of a product. Eager copies it into the result, which the product then reads again;
// as an operator of its own it becomes part of the kernel that reads the product.
void addmm(Lowering& c) {
    c.require(c.dtype() == DType::F32 || c.dtype() == DType::F64);
    c.require(c.number("beta").real() == 1 && c.number("alpha").real() == 1);
    Value *row = c.tensor("self"), *left = c.tensor("mat1"), *right = c.tensor("mat2");
    c.require(row->type.rank() == 1 || (row->type.rank() == 2 && row->type.sizes[0] == Expr(1)));
    for (const Value* v : {row, left, right}) c.require(v->type.dtype == c.dtype());
    TensorType product{c.dtype(), c.sizes(), ir::contiguous_strides(c.sizes())};
    const ir::Node* mm = c.b.call("aten::mm", {left, right}, {{"self", ir::Ref{0}}, {"mat2", ir::Ref{1}}}, {product});
    c.done(Term(c, mm->results[0]) + Term(c, c.b.expand(row, c.sizes())));
}

}  // namespace braze::passes::decomposition::rules
