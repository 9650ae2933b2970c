// What ops.def demands of each primitive operator. For verify.cpp.
#pragma once
#include "core/ir/graph.h"

namespace braze::ir {

// nullptr: all is well.
const char* attribute_problem(const Node& n);
const char* type_problem(const Node& n);  // relies on the attributes and the number of operands

}  // namespace braze::ir
