// The front end's part of the extension module braze._C.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

// Adds types and functions to the module. 0, or -1 with an exception. The bridge has called set_tensor_bridge() before.
int braze_frontend_init(PyObject* module);
