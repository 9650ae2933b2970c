#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace braze::bridge {

// _C.enter_region(policy) and _C.leave_region(): a checkpointed part of the program that this thread traces begins and
// ends. Without a trace they do nothing.
PyObject* enter_region(PyObject* self, PyObject* policy);
PyObject* leave_region(PyObject* self, PyObject* none);

}  // namespace braze::bridge
