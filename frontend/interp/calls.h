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

enum class Policy : uint8_t { Unknown, Pure, Numeric, Fresh, FreshOrIo, Appends, Changes, Torch, Special, Break };
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
// torch.tensor of a number, or of lists of numbers, where some are symbolic: of these arguments, the first of them the
// data. nullopt: nothing of that kind. Else a new reference, or nullptr and an exception.
std::optional<PyObject*> tensor_of_numbers(Args a);
// elements_only: the call hands on the elements of lists, tuples and dicts, and looks at none of them.
int read_arguments(Tracer& t, Args a, Py_ssize_t from = 0, bool elements_only = false);
PyObject* finish_c_call(Tracer& t, PyObject* result);

// Functions with a meaning of their own in a trace, whatever their code says (set by configure() and set_rule()).
struct FunctionRule {
    enum Kind : uint8_t {
        Constant,  // the call has this value
        Break,     // the graph ends
        Forbid,    // an error
        Replace,   // `value` is called instead; where `folds` and all arguments are constants, the function itself
        Opaque,    // runs as it is, on fakes: only its operators are seen
        NonStrict  // traced, but its own wishes for a graph break do not count
    } kind = Break;
    Owned value{};
    std::string break_id{};
    bool folds = false;
};
void set_function_rule(PyObject* function, FunctionRule rule);
void clear_function_rule(PyObject* function);
const FunctionRule* function_rule(PyObject* callable);
PyObject* apply_rule(Tracer& t, const FunctionRule& rule, PyObject* callable, Args a);
// The result of the function for these arguments is a constant: it is called for real, once.
PyObject* call_as_constant(Tracer& t, PyObject* callable, Args a);
// Whether a mark on the function, or what torch's compiler knows about it, decides: then *result is the outcome.
bool call_marked(Tracer& t, PyObject* function, Args a, PyObject** result);
std::string qualified_name(PyObject* callable);

}  // namespace braze::frontend
