// Tensors as keys of dicts: found by their address, as torch.Tensor.__hash__ has it, without running its Python code.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace braze::frontend {

// A tensor whose hash is that of torch.Tensor.
bool is_tensor_key(PyObject* key);
Py_hash_t tensor_key_hash(PyObject* tensor);
// Like the functions of CPython's dicts, for keys of any kind. dict_get: borrowed; nullptr without an exception:
// absent.
PyObject* dict_get(PyObject* dict, PyObject* key);
int dict_set(PyObject* dict, PyObject* key, PyObject* value);
int dict_delete(PyObject* dict, PyObject* key);

}  // namespace braze::frontend
