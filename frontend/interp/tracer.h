// One trace of one segment on one thread: what is known about every object the traced code meets.
//
// Objects are real. One that existed before the trace is *sourced* once it was reached: `identity_` maps it to its
// Source. Reading a value without identity (int, str, None, ...) from a sourced object guards it at once; an object
// with identity gets a guard on its type and a place in the map, and whatever is read from it later is guarded then.
// Everything else is *fresh*. Real tensors never reach the traced code: a read yields the fake that stands for them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frontend/breaks/breaks.h"
#include "frontend/bridge_api.h"
#include "frontend/cpython/api.h"
#include "frontend/effects/journal.h"
#include "frontend/guards/guard.h"

namespace braze::frontend {

struct GraphInput {
    SourceId source;
    Owned real, fake;
    bool number = false;     // a Python int or float
    uint64_t must_vary = 0;  // sizes that mark_dynamic was called for
    GradientUse gradient_use = GradientUse::None;
    bool gradient_known = false;  // the fake's .grad is what the program would find
    Owned gradient_before{};      // what it was when the trace began; nothing: unknown
};

// On the gradient of a tensor.
struct Hook {
    Owned handle;      // as the program has it
    Owned registered;  // (function, arguments): on a tensor from before it is registered by this call after each run
    int number;        // the capture's; -1: it has none
    int input;         // the tensor from before; -1: the trace made it
    long event;        // of the root frame
    bool removed = false;
};

// What earlier calls showed to vary, by the source's description: sizes that become symbols, and numbers.
struct DynamicHints {
    std::unordered_map<std::string, uint64_t> dims;  // of a number: not 0
    bool all = false;                                // every size and number among the arguments
    bool any() const { return all || !dims.empty(); }
};

struct TraceLimits {
    int max_ops = 20000;
    int max_backward_jumps = 200000;
};

class Tracer {
  public:
    // state: localsplus and stack at the start. forced_event: break before that root event (see begin_root_event), -1:
    // none.
    Tracer(PyObject* function, PyObject* const* state, int n_state, int nlocals, bool at_start, long forced_event,
           const DynamicHints& dynamic, const BackendChoice& backend);
    ~Tracer();
    static Tracer* current();  // of this thread, or nullptr

    GuardSet guards;
    Journal journal;
    std::unique_ptr<Capture> capture;
    std::vector<GraphInput> inputs;
    TraceLimits limits;

    // ---- breaks
    bool aborting = false;
    std::optional<Break> reason;
    bool clean = true;           // nothing happened between the start of the root's instruction and the break
    long root_event = 0;         // hooks of the root frame so far: where to stop when the trace is repeated
    PyObject* called = nullptr;  // the function whose frame begins next, if traced code calls it
    long handler_event = 0;      // the last one before the root entered or left an `except` block
    // Sets the abort exception. Always returns nullptr.
    std::nullptr_t stop(const char* id, const std::string& detail);
    void loop_too_long();
    // Called by each hook; false: aborting.
    bool begin_hook();

    // ---- knowledge
    SourceId source_of(PyObject* o) const;
    bool is_fresh(PyObject* o) const { return fresh_.contains(o); }
    // An iterator whose position belongs to the caller. (A generator may be reached without a source.)
    bool is_iterator_from_before(PyObject* it) const;
    // The root event in which `o` was made; 0: unknown.
    long made_in(PyObject* o) const {
        if (auto a = addresses_.find(o); a != addresses_.end()) return a->second;
        auto it = fresh_.find(o);
        return it == fresh_.end() ? 0 : it->second;
    }
    void made(PyObject* fresh);
    // Classes that the trace made are no subclasses of others any more: only the garbage collector takes them.
    void forget_classes();
    // Generators that the trace leaves suspended end without running their handlers: what they do on closing belongs to
    // a real run.
    void close_generators();
    // One whose closing would run code of the program, in eager when it is dropped: the trace kept it alive. Borrowed
    // or nullptr.
    PyObject* suspended_generator() const;
    // The exception that was handled when the trace began, or nullptr.
    PyObject* handled_before() const { return handled_.get(); }
    // Remembers that `o` is reached by `s`; a second way to the same object becomes a guard.
    void know(PyObject* o, SourceId s);
    // The same where a guard on its identity was made at `s`: wherever it turns up, it is that object.
    void know_guarded(PyObject* o, SourceId s);
    // A value was read from `s`: guards it or knows it; a real tensor becomes its fake. Takes and returns a reference;
    // nullptr: break or error.
    PyObject* loaded(PyObject* owned, SourceId s);
    // The same without handing the value to the program: an element of a container that C code is going to see. 0 or
    // -1.
    int note(PyObject* v, SourceId s);
    // Whatever C code returned: real tensors become fakes. Takes a reference.
    PyObject* result(PyObject* owned);
    PyObject* fake_for(PyObject* real, SourceId s);  // new reference
    // The graph input that a fake stands for, or -1.
    int input_of_fake(PyObject* fake) const {
        auto it = fake_inputs_.find(fake);
        return it == fake_inputs_.end() ? -1 : it->second;
    }
    SourceId source_of_fake(PyObject* fake) const {
        int i = input_of_fake(fake);
        return i < 0 ? kNoSource : inputs[static_cast<size_t>(i)].source;
    }
    // The very object that a dict or set from before the trace has in place of this key: a fake's real tensor.
    PyObject* key_in(PyObject* container, PyObject* key) const {
        int i = source_of(container) == kNoSource ? -1 : input_of_fake(key);
        return i < 0 ? key : inputs[static_cast<size_t>(i)].real.get();
    }
    // Guards all that C code can see in a container (recursively) and touches fakes. 0 or -1.
    int read_all(PyObject* v, int depth = 0);
    // The same of the elements of a container alone (a dict's keys), not of what is in them: for iterating.
    int read_elements(PyObject* v);
    int read_length(PyObject* v);
    // `proxy` is the __dict__ of a class from before.
    void is_namespace_of(PyObject* proxy, PyObject* cls);
    PyObject* class_namespace(PyObject* proxy) const;  // borrowed or nullptr

    // ---- identity. C code compares this object with others: which of them are one object is an assumption.
    void compared(PyObject* o, int level = 0);
    void compared_elements(PyObject* container, int level = 0);
    void looked_up(PyObject* container, PyObject* key, int level = 0);  // a dict or set
    void guard_compared();

    // ---- numbers made of addresses (addresses.h)
    PyObject* address(PyObject* number);  // takes and returns a reference; nullptr: break
    bool is_address(PyObject* o) const { return !addresses_.empty() && addresses_.contains(o); }
    bool is_address_value(unsigned long n) const { return address_values_.contains(n); }
    bool any_address() const { return !addresses_.empty(); }
    int use_number(PyObject* v);  // a number is used for what it is: 0, or -1 and a break
    // Which fakes were used by an operator or asked for metadata.
    void touch(PyObject* v) {
        if (capture->is_fake(v)) capture->touch(v);
    }
    bool is_tensor(PyObject* v) const { return tensor_bridge()->is_tensor(v); }
    // Attribute of a class as found along the MRO, guarded against the class being changed. Borrowed or nullptr.
    PyObject* type_attribute(PyTypeObject* t, PyObject* name);
    SourceId type_source(PyTypeObject* t);
    bool is_fresh(PyTypeObject* t) const { return is_fresh(reinterpret_cast<PyObject*>(t)); }
    // A Python function is about to run: its code and defaults are assumptions.
    int use_function(PyObject* function);
    // The same of one that C code calls, when its frame begins: an operator's method, a callback.
    int use_callee(PyObject* function, PyObject* first_argument);

    // The sizes of the tensor at `s` that are to be symbols; not 0: the number at `s` is to be one.
    uint64_t dims_of(SourceId s) const;
    // A number that was read from `s`: what stands for it if it is to be a symbol, else nullptr (no error, or one is
    // set). New reference.
    PyObject* symbolic_number(PyObject* v, SourceId s);
    // The same of a tuple of constants with such a number among them: a tuple with symbols.
    PyObject* symbolic_tuple(PyObject* v, SourceId s);
    // Either of them.
    PyObject* stand_in(PyObject* v, SourceId s);
    // A pure function of C code is called with numbers, some of them symbolic. If each of these can be computed before
    // a run, so can the result: it is what the function makes of the values, and a number input of the graph in its
    // turn. nullopt: it has to be called with the symbols. Else a new reference, or nullptr and a break.
    std::optional<PyObject*> number_call(PyObject* function, PyObject* const* arguments, Py_ssize_t n);
    // The same of an operator (its place among trace_hooks.h's). Symbols know how to add and multiply by themselves.
    PyObject* number_operation(int op, PyObject* a, PyObject* b, binaryfunc by_symbols);
    PyObject* number_operation(const char* name, PyObject* a, unaryfunc by_symbols);
    PyObject* number_comparison(PyObject* a, PyObject* b, int op);
    // sum(), max() and min() of numbers, at least one of them symbolic. New reference.
    PyObject* number_sum(const std::vector<PyObject*>& numbers);
    PyObject* number_extremum(PyObject* function, const std::vector<PyObject*>& numbers, bool max);
    void note_made_by(PyObject* result, PyObject* function, std::initializer_list<PyObject*> arguments);
    bool is_number_input(SourceId s) const { return number_of_.contains(s); }

    std::vector<Hook> hooks;                        // in order
    bool in_hook = false;                           // one of them runs
    std::unordered_map<PyObject*, int> held_locks;  // taken in the trace and not given back

    bool in_function_backward = false;  // of a custom autograd.Function, recorded apart
    int non_strict = 0;                 // functions active whose wishes for a graph break do not count
    bool error_on_break = false;        // where a break is an error, as the traced code has set it
    int depth = 0;                      // traced frames active
    uint64_t frames = 0;                // entered so far
    int backward_jumps = 0;
    bool endless = false;  // the loop that is too long is the root's: it would be so behind a break too
    std::string user_line() const;

    PyObject* const* state() const { return state_.data(); }
    int state_size() const { return static_cast<int>(state_.size()); }
    // Whether the root frame has assigned to that local, be it the very object that was there at the start.
    bool stored_local(int i) const {
        return static_cast<size_t>(i) < stored_.size() && stored_[static_cast<size_t>(i)];
    }
    void store_local(int i) {
        if (static_cast<size_t>(i) >= stored_.size()) stored_.resize(static_cast<size_t>(i) + 1);
        stored_[static_cast<size_t>(i)] = true;
    }
    int nlocals() const { return nlocals_; }
    PyObject* function() const { return function_.get(); }

  private:
    int note_container(PyObject* v, SourceId s, int depth, bool deep = true);
    // C code is going to read this list, dict or deque from before: until the trace ends, it has symbols in the place
    // of the numbers in it that are to be some. 0 or -1.
    int place_symbols(PyObject* container, SourceId s);
    int read_opaque(PyObject* v, SourceId s, int depth);
    int read_part(PyObject* v, SourceId s, const char* name, int depth);
    int read_fresh(PyObject* v, int depth);
    SourceId path_of(PyObject* o, PyObject** real) const;  // of a fake: of the real tensor
    PyObject* inherited_attribute(PyTypeObject* t, PyObject* name);
    Owned function_;
    Owned handled_;
    std::vector<PyObject*> state_;  // owned
    std::vector<bool> stored_;
    int nlocals_;
    const DynamicHints& dynamic_;
    bool symbols_;  // some size or number may be one
    long forced_event_;
    std::unordered_map<PyObject*, SourceId> identity_;
    std::unordered_map<PyObject*, long> fresh_;       // with the root event that made it
    std::unordered_map<PyObject*, int> input_of_;     // of a real tensor
    std::unordered_map<PyObject*, int> fake_inputs_;  // of a fake
    struct NumberCall {                               // what made a symbol
        Owned function;
        std::vector<Owned> arguments;
        Owned value;
    };
    SourceId source_of_number(PyObject* number, Owned* value);
    std::unordered_map<PyObject*, NumberCall> made_by_;                   // symbols that operators made
    std::unordered_map<PyObject*, int> symbol_inputs_;                    // the input that a symbol is
    std::unordered_map<SourceId, int> number_of_;                         // graph inputs that are numbers
    std::unordered_map<PyObject*, std::pair<SourceId, Owned>> tuple_of_;  // for a real one: one with symbols
    std::unordered_set<PyObject*> read_;                                  // containers that are guarded as a whole
    std::unordered_set<PyObject*> listed_;                                // those whose elements are
    std::unordered_set<SourceId> compared_;
    std::unordered_set<PyObject*> used_;  // functions
    std::unordered_map<PyObject*, PyObject*> class_of_proxy_;
    std::unordered_map<PyObject*, long> addresses_;  // with the root event that made it
    std::unordered_set<unsigned long> address_values_;
    std::vector<Owned> kept_;  // or an id could be used again
    struct Mark {
        int ops;
        size_t changes;
        uint64_t frames;
        int backward_jumps;
    } mark_{};
    Tracer* outer_;
};

// An int or float that differs from run to run (see TensorBridge::symbolic_int_class).
extern PyTypeObject *symbolic_int, *symbolic_float;
inline bool is_symbolic(PyObject* o) { return Py_TYPE(o) == symbolic_int || Py_TYPE(o) == symbolic_float; }
// The number as a constant of the trace; anything else as it is. New reference.
PyObject* fixed(PyObject* o);
// None, bool, int, float, complex, str, bytes, ...: compared by value, may be shared by chance. Symbolic numbers too.
bool is_primitive(PyObject* o);
// A tuple, frozenset, range, slice, torch.Size, ... made of primitives only, none of them symbolic.
bool is_constant_value(PyObject* o);
// Classes, modules, builtin functions, code, dtypes, enum members: one object for ever, guarded by identity.
bool is_singleton(PyObject* o);
// Its hash and its comparison are no code of the program.
bool is_plain_key(PyObject* o);
bool is_python_class(PyTypeObject* t);  // made by a class statement
// The class of C code that a class inherits its layout from.
PyTypeObject* solid_base(PyTypeObject* t);
bool is_deque(PyObject* o);
bool has_finaliser(PyTypeObject* t);  // a __del__ of the program's
inline bool has_finaliser(PyObject* o) { return has_finaliser(Py_TYPE(o)); }
bool is_value_class(PyTypeObject* base);  // int, float, complex, str, bytes
Owned plain_value(PyObject* v, PyTypeObject* base);
// Type's qualified name "module.name".
std::string type_name(PyTypeObject* t);

extern PyObject* abort_exception;  // the Python exception class that carries a break through C code
int tracer_init();

}  // namespace braze::frontend
