// Gradients inside a trace: `.grad` of the tensors from before, and backward passes that the program runs itself.
//
// The fake that stands for a tensor from before has a `.grad` of its own. It is filled from the real one at the first
// read, so that Python code and autograd's engine find and change the same thing; what it is when the trace ends is an
// effect of each run.
#pragma once
#include "frontend/effects/recipe.h"
#include "frontend/interp/calls.h"

namespace braze::frontend {

PyObject* gradient(Tracer& t, PyObject* fake);                       // new reference
int set_gradient(Tracer& t, PyObject* fake, PyObject* value);        // value: nullptr deletes, which is None
PyObject* run_backward(Tracer& t, PyObject* engine_method, Args a);  // `a` includes the engine
PyObject* apply_function(Tracer& t, PyObject* apply, Args a);        // of a custom autograd.Function
// What a tensor that the trace made has in .grad: a fake or nothing.
Owned gradient_of_result(PyObject* fake);
bool record_gradients(Tracer& t, Recipes& r, std::vector<Effect>& out);

}  // namespace braze::frontend
