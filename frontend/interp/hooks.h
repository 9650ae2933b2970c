// Hooks on gradients that a program registers in a trace.
//
// On a tensor from before, registering is an effect of each run. On a tensor that the trace made, the hook belongs to
// the backward pass: what it does is traced where the program runs that pass itself, and recorded when the trace ends
// where one may follow. A hook that cannot be recorded ends the graph before it is registered.
#pragma once
#include "frontend/effects/recipe.h"
#include "frontend/interp/calls.h"

namespace braze::frontend {

PyObject* add_hook(Tracer& t, Args a);     // (handle, (function, arguments), tensor, hook, post)
PyObject* remove_hook(Tracer& t, Args a);  // (handle)
bool record_hooks(Tracer& t, Recipes& r, std::vector<Effect>& out);
// The root event in which a hook was registered that a later backward pass will meet and that can't be recorded; 0:
// there is none. *why: what stands in the way.
long settle_hooks(Tracer& t, const Recipes& r, std::string* why);
// Whether a backward pass of the program would have to call what is called after this input's gradient has changed.
bool has_post_hook(const Tracer& t, int input);

}  // namespace braze::frontend
