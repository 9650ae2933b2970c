#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace braze::bridge {

// _C.capture_operators(fn, inputs): fn is given a list of fakes for the tensors and returns a tuple of them; the result
// is a torch.fx.GraphModule of the same inputs.
PyObject* capture_operators(PyObject* self, PyObject* args);

}  // namespace braze::bridge
