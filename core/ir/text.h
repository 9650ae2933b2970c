// The text form of graphs: what dumps show, what IR test cases are written in.
//
//   graph {
//     symbol s0 [2, max]                                   Graph::symbols, in order
//     free u0 [0, max]                                     other symbols that occur
//     line 0 "file.py:12 in forward"
//     %0 "x" @0 : f32[s0, 3] = input                       @n: storage id
//     %1 : f32[3, s0]{1, 3} = permute(%0, dims=[1, 0])     {...}: strides, left out where they are contiguous
//     %2 : f32[s0, 3] = call aten::add.Tensor(self=%0, other=%0, alpha=1) line=0
//     %3 @0 : f32[s0, 3] = call aten::relu_(self=%0) writes=[0] ordered aliases=[0]
//     %4 : f32[3], %5 : f32[3] = var_mean(%0, dims=[0], keepdim=false, correction=1.0)
//     return %1, %4
//   }
//
// Arguments: none, %4, {%4, none} (list of tensors), true, an expression, a double (has a point or exponent, or is inf,
// -inf, nan), "text", dtype(f32), [1, s0], f[1.0, 2.0], b[true, false], opaque(3, "cpu"). Comments run from # to the
// end of the line.
#pragma once
#include <string>

#include "core/ir/graph.h"

namespace braze::ir {

std::string print(const Graph& g);
std::string print(const Node& n);
std::string print(const TensorType& t);
Graph parse_graph(const std::string& text);  // throws UserError that says where

// Same nodes in the same order, up to the numbering of values and storages; names and lines do not count.
bool structurally_equal(const Graph& a, const Graph& b);

}  // namespace braze::ir
