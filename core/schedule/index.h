// How the index of a result relates to the index of an operand.
#pragma once
#include <optional>
#include <vector>

#include "core/ir/graph.h"

namespace braze::schedule {

using shapes::Expr;
using Index = std::vector<Expr>;

// A number for decisions that need one; never for correctness. Size symbols count as 64 where their range allows.
int64_t hint(const Expr& e);

// The index in a tensor of `to` sizes of the element that has index `index` in one of `from` sizes (same number of
// elements, row-major). Axes that correspond are kept apart, so that a split or merge of axes stays affine where
// factors divide.
Index renumber(const std::vector<Expr>& from, const std::vector<Expr>& to, const Index& index);

// The index in the operand of the view node `view` of the element at `index` of its result. Not for AsStrided.
Index operand_index(const ir::Node& view, const Index& index);

// The other direction, for views that keep every element (or repeat it): the index in the result of the element at
// `index` of the operand. Axes along which the operand is repeated are free (nullopt). nullopt as a whole: elements are
// lost or moved irregularly.
using PartialIndex = std::vector<std::optional<Expr>>;
std::optional<PartialIndex> result_index(const ir::Node& view, const PartialIndex& index);

// Index into the result of a reduction, given the index into its operand.
Index reduced_index(const ir::Node& reduce, const Index& index);
bool is_reduced(const ir::Node& reduce, size_t axis);
// The axis that is innermost in the operand's memory is not reduced.
bool reduces_columns(const ir::Node& reduce);
// The axis along which neighbours lie closest in memory (repeated ones aside); nullopt: there is none.
std::optional<size_t> innermost_axis(const ir::TensorType& t);

Expr dot(const Index& index, const std::vector<Expr>& strides);

}  // namespace braze::schedule
