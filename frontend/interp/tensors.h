// Attributes and methods of fake tensors: which may be used inside a graph.
#pragma once
#include "frontend/interp/tracer.h"

namespace braze::frontend {

PyObject* tensor_attribute(Tracer& t, PyObject* fake, PyObject* name);  // new reference
// torch.Tensor and torch.nn.Parameter, whose operators nobody overrides.
bool is_plain_tensor(PyObject* o);
int set_tensor_attribute(Tracer& t, PyObject* fake, PyObject* name, PyObject* value);
// What a weakref.proxy stands for, or `o` itself (borrowed).
PyObject* behind_proxy(Tracer& t, PyObject* o);
PyObject* get_attribute(Tracer& t, PyObject* owner, PyObject* name);
PyObject* load_attribute(Tracer& t, PyObject* owner, PyObject* name, bool generic);
int store_attribute(Tracer& t, PyObject* owner, PyObject* name, PyObject* value);
int store_generic(Tracer& t, PyObject* owner, PyObject* name, PyObject* value);
PyObject* dict_item(Tracer& t, PyObject* dict, PyObject* key);
PyObject* sequence_item(Tracer& t, PyObject* seq, PyObject* key);
int set_raw_item(Tracer& t, PyObject* container, PyObject* key, PyObject* value);
int before_change(Tracer& t, PyObject* o, bool appends);
PyObject* get_item(Tracer& t, PyObject* container, PyObject* key);
int set_item(Tracer& t, PyObject* container, PyObject* key, PyObject* value);

// Indexing a tensor by integers, some of them symbolic, and slices: what is selected by the symbols (a view), with the
// rest of the index in `key`. nullptr: the index is of another kind, or an error is set.
Owned selected_by_symbols(PyObject* tensor, Owned& key);

}  // namespace braze::frontend
