// Calls: who may be called inside a trace, and how.
#pragma once
#include <string>

#include "frontend/interp/tracer.h"

namespace braze::frontend {

struct Args {  // as vectorcall has them, without the offset flag
    PyObject* const* v;
    Py_ssize_t n;       // positional
    PyObject* kwnames;  // tuple or nullptr
    Py_ssize_t total() const { return n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0); }
};

enum class Policy : uint8_t { Unknown, Pure, Fresh, Appends, Changes, Torch, Special, Break };
struct CFunction {
    Policy policy = Policy::Unknown;
    const char* break_id = nullptr;
    std::string name;
};
// The name and the policy of a builtin function, method descriptor, slot wrapper or their bound forms; nullptr: not a C
// function.
const CFunction* c_function(PyObject* callable);
// What a builtin method is bound to (borrowed), or nullptr: a function, a class or static method.
PyObject* bound_self(PyObject* builtin);
bool c_type_allowed(PyTypeObject* t);

// New reference; nullptr: exception or break.
PyObject* call(Tracer& t, PyObject* callable, Args a);
PyObject* call_special(Tracer& t, const CFunction& f, PyObject* callable, Args a);  // `a` includes self
PyObject* call_type(Tracer& t, PyTypeObject* type, Args a);
int read_arguments(Tracer& t, Args a, Py_ssize_t from = 0);
PyObject* finish_c_call(Tracer& t, PyObject* result);

// Python functions with a meaning of their own: value, or a break (set by configure()).
struct FunctionRule {
    Owned constant;
    std::string break_id;
};
void set_function_rule(PyObject* function, FunctionRule rule);
const FunctionRule* function_rule(PyObject* function);

}  // namespace braze::frontend
