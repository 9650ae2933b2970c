// What shows where an object lies in memory: id(), standard hashes, standard texts. Each run of a graph makes objects
// of its own, so what is derived from the address of one that the trace made is no constant. Such a number may be a key
// and be compared for equality as long as it stays within the trace (copy.deepcopy does that); anything else ends the
// trace.
#pragma once
#include "frontend/interp/tracer.h"

namespace braze::frontend {

// id(o) and hash(o). New reference.
PyObject* address_of(Tracer& t, PyObject* o);
PyObject* hash_of(Tracer& t, PyObject* o);
// The text that C code made of an object. Takes a reference; nullptr: break.
PyObject* checked_text(Tracer& t, PyObject* text);
bool shows_address(PyObject* text);

}  // namespace braze::frontend
