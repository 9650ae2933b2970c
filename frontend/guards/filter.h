// Filters of the user's choose which guards a segment keeps.
#pragma once
#include "frontend/guards/guard.h"

namespace braze::frontend {

// Asks `filter`, a function from a list of tuples (source, text, kind, value, is global, module on the way or None,
// whether there is a value) to a list of bools. roots: the state that the guards hold in. False: an exception is set.
bool filter_guards(GuardSet& guards, PyObject* filter, const Roots& roots, PyObject* local_names,
                   const std::unordered_set<SourceId>& inputs);
// The name of a guard's kind, as guards.def spells it.
const char* guard_kind_name(GuardKind kind);

}  // namespace braze::frontend
