// The axes of a draft become loops.
#pragma once
#include <string>
#include <vector>

#include "core/schedule/homes.h"
#include "core/schedule/lower.h"

namespace braze::schedule {

struct Nest {
    loops::Kernel kernel;             // named, complete
    std::string text;                 // its canonical text
    std::vector<ir::Value*> buffers;  // per param
    std::vector<Expr> offsets;        // per param: element offset from the value's first element
    Expr outer_count, work;           // as in runtime::RunKernel
};

Nest make_nest(Draft draft, const std::vector<Expr>& symbols, const Homes& homes);

}  // namespace braze::schedule
