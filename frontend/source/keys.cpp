#include "frontend/source/keys.h"

#include "frontend/bridge_api.h"
#include "frontend/cpython/api.h"

namespace braze::frontend {

// torch.Tensor itself, on the way up from a tensor's class: the last one that a class statement made.
static PyTypeObject* tensor_class(PyTypeObject* t) {
    PyTypeObject* last = nullptr;
    for (; t && (t->tp_flags & Py_TPFLAGS_HEAPTYPE); t = t->tp_base) last = t;
    return last;
}

bool is_tensor_key(PyObject* key) {
    if (!tensor_bridge()->is_tensor(key)) return false;
    static PyObject* name = PyUnicode_InternFromString("__hash__");
    PyTypeObject* base = tensor_class(Py_TYPE(key));
    return base && (base == Py_TYPE(key) || bz_type_lookup(Py_TYPE(key), name) == bz_type_lookup(base, name));
}

Py_hash_t tensor_key_hash(PyObject* tensor) { return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(tensor)); }

PyObject* dict_get(PyObject* dict, PyObject* key) {
    return is_tensor_key(key) ? bz_dict_get_known_hash(dict, key, tensor_key_hash(key))
                              : PyDict_GetItemWithError(dict, key);
}

int dict_set(PyObject* dict, PyObject* key, PyObject* value) {
    if (PyODict_Check(dict)) return PyODict_SetItem(dict, key, value);
    if (is_tensor_key(key)) return _PyDict_SetItem_KnownHash(dict, key, value, tensor_key_hash(key));
    return PyDict_SetItem(dict, key, value);
}

int dict_delete(PyObject* dict, PyObject* key) {
    if (PyODict_Check(dict)) return PyODict_DelItem(dict, key);
    if (is_tensor_key(key)) return _PyDict_DelItem_KnownHash(dict, key, tensor_key_hash(key));
    return PyDict_DelItem(dict, key);
}

}  // namespace braze::frontend
