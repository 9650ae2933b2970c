// Levels, stages and memory relations of a kernel whose loops are known.
#pragma once
#include <vector>

#include "core/loops/kernel.h"

namespace braze::schedule {

// Sets Scalar::level and Kernel::has_checks.
void set_levels(loops::Kernel& k);

// Sets Scalar::stage, makes the stages and puts each store into the first one where its value is known. Store::level is
// set here.
void make_stages(loops::Kernel& k, std::vector<loops::Store> stores);

// A dear value that several stages need for each element is written by the first one to where the last one stores its
// result anyway, and loaded from there by the others (the exponentials of a softmax).
void keep_between_stages(loops::Kernel& k);

// Sets Param::inplace_of where a written element certainly comes after the last load of the element of the read param
// at the same address. alone[r]: no other param shows the same buffer; same_offset(w, r): both start at the same
// element of their buffers. wanted[w]: the read param that it should be, where that is possible; -1: any.
void find_in_place(loops::Kernel& k, const std::vector<bool>& alone, const std::vector<shapes::Expr>& offsets,
                   const std::vector<int>& wanted);

}  // namespace braze::schedule
