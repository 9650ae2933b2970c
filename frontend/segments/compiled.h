// braze._C.CompiledFunction: what runs in place of a function.
#pragma once
#include "frontend/support/ref.h"

namespace braze::frontend {

// The Python callable behind a CompiledFunction (borrowed), or nullptr if `o` is something else.
PyObject* compiled_target(PyObject* o);
int compiled_init(PyObject* module);
// Every unit forgets what it compiled at its next call.
void reset_units();
// Every call compiles with this backend, whatever it was made with. None: its own again.
void force_backend(PyObject* backend);
PyObject* explain_compiled(PyObject* compiled);

}  // namespace braze::frontend
