// What a traced program holds in place of a Python int or float that differs from run to run.
//
// torch.SymInt is no int: isinstance(n, int) is false, it is not hashable, it prints an expression. These subclasses of
// torch's classes (which its argument parsers know) behave like the number. Arithmetic stays symbolic, a comparison
// becomes a guard, and whatever else looks at the value makes it a constant of the trace.
#pragma once
#include "bridge/symbols.h"

namespace braze::bridge {

// Creates the classes. False: a Python exception is set.
bool init_symbolic_numbers();
PyTypeObject* symbolic_int_class();
PyTypeObject* symbolic_float_class();

// The SymFloat behind a Python object. (torch's own conversion would wrap our node in another.)
c10::SymFloat float_of(PyObject* o);
// New references. A plain int where nothing symbolic is in it.
PyObject* wrap_symbolic(const c10::SymInt& n);
PyObject* wrap_symbolic(const c10::SymFloat& f);
// max(a, b) or min(a, b) of floats, at least one of them symbolic. New reference.
PyObject* extremum(PyObject* a, PyObject* b, bool max);
// Takes a reference: a torch.SymInt or torch.SymFloat, or a torch.Size with some in it, with our classes in their
// place; anything else as it is.
PyObject* with_own_numbers(PyObject* owned);

}  // namespace braze::bridge
