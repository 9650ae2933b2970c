#pragma once
#include "frontend/segments/segment.h"

namespace braze::frontend {

enum class Lookup : uint8_t { Ran, Step, Eager, Error };
// Finds a segment that fits at instruction `at` and runs it, or compiles one.
Lookup find_or_trace(Unit& u, CodeState& cs, PyObject* function, int at, const Roots& roots, RunResult& out);

}  // namespace braze::frontend
