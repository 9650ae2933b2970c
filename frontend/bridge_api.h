// What the front end needs from tensors. The bridge implements it (the front end never includes torch headers).
// All functions need the GIL. PyObject* arguments are borrowed; results are new references where the name says Owned.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace braze::frontend {

// Where a fake tensor's value comes from when the graph has run.
struct ValueRef {
    enum Kind : uint8_t { NotFake, Input, Node } kind = NotFake;
    int index = 0;  // Input: the id given to fake_input. Node: an opaque value id, to be passed to finish()
};

// What a capture is compiled to.
struct BackendChoice {
    enum Kind : uint8_t {
        Kernels,   // Braze's own
        Eager,     // the calls of the program, in eager
        AotEager,  // the operators below autograd, in eager
        User       // whatever `compiler` returns for the calls of the program
    } kind = Kernels;
    PyObject* compiler = nullptr;  // User: (torch.fx.GraphModule, example inputs, "file.py:12 in f") -> callable
};

struct CaptureOptions {
    BackendChoice backend;
    bool dynamic = false;  // sizes of inputs marked dynamic are symbols
    bool numbers = true;   // floats may be computed by the graph: Tensor.item()
    // The mode met a real tensor (inside a container that C code walked, or a module-level constant). The front end
    // answers with the fake that stands for it (borrowed, kept alive by the tracer), after guarding the way to it, or
    // nullptr with a break set.
    std::function<PyObject*(PyObject* real)> on_real_tensor;
    // The capture cannot go on (data-dependent value, unsupported operator ...): called before the C++ exception is
    // thrown; the front end sets its abort exception (a Python exception) and the bridge then throws python_error so
    // that torch carries it out. id: name in breaks.def.
    std::function<void(const char* id, const std::string& detail)> on_break;
    // "file.py:12 in forward" of the innermost user frame, for Graph::lines.
    std::function<std::string()> current_line;
};

// What the traced program's own backward passes do to a tensor from before.
enum class GradientUse : uint8_t {
    None,
    Captured,    // its gradient is a value of the trace
    Accumulated  // its .grad changes
};

// What a graph with symbolic sizes assumes about them beyond what the tensor guards check.
class ShapeGuard {
  public:
    virtual ~ShapeGuard() = default;
    virtual bool check(PyObject* const* inputs) const = 0;           // the graph's inputs, of the types of the trace
    virtual std::string explain(PyObject* const* inputs) const = 0;  // what fails
    virtual std::string text() const = 0;                            // "s0 = inputs[0].size(1), s0 != 8"
    virtual bool empty() const = 0;                                  // nothing to check
};

class CompiledGraph {
  public:
    virtual ~CompiledGraph() = default;
    // inputs: real tensors (borrowed), outputs: `count` new references on success. false with a Python exception set.
    virtual bool run(PyObject* const* inputs, int n_inputs, PyObject** outputs, int n_outputs) = 0;
    // Whether the run that has just failed on this thread may have changed what it was given.
    virtual bool wrote() const { return true; }
    virtual int ops() const = 0;        // captured operators
    virtual int torch_ops() const = 0;  // the calls of the program that led to them, as a torch-level graph counts them
    virtual int kernels() const = 0;
    virtual int aten_calls() const = 0;
    virtual std::string text() const = 0;  // captured graph, for explain and dumps
};

class Capture {  // one trace on this thread; at most one is active (nested compiled calls are inlined)
  public:
    virtual ~Capture() = default;  // leaves the mode; all fakes become dead (debug: checks that none is reachable)
    // A fake (new reference) standing for graph input `id`, of the same Python class as `real` and a copy of its
    // __dict__. dynamic_dims: bit k: size k is a symbol. nullptr + on_break called where it is unsupported (sparse,
    // subclass, ...).
    virtual PyObject* fake_input(PyObject* real, int id, uint64_t dynamic_dims) = 0;
    // An int or float of the program as graph input `id`: what stands for it (new reference). nullptr without an error:
    // it has to be a constant (0, 1, a negative or huge integer).
    virtual PyObject* symbolic_input(PyObject* number, int id) = 0;
    // Of a symbolic int that is a size of an input, or an input itself (axis -1): which, and its value in the trace.
    struct SizePlace {
        int input, axis;
        int64_t value;
    };
    virtual std::optional<SizePlace> size_place(PyObject* symbolic_int) const = 0;
    // Whether the trace used the value of that float, so that it is a constant. (What is assumed of integers is in
    // shape_guard().)
    virtual bool is_fixed(int input_id) const = 0;
    virtual bool is_fake(PyObject* o) const = 0;
    virtual ValueRef value_of(PyObject* fake) const = 0;
    // The fake's identity was used: an operator saw it or its metadata was asked for. Inputs never touched need no
    // tensor guard.
    virtual void touch(PyObject* fake) = 0;
    virtual bool touched(int input_id) const = 0;
    virtual int op_count() const = 0;
    virtual bool mutated_input(int input_id) const = 0;
    // ---- symbolic sizes, as they stand when the trace ends
    // The sizes of the input that still are symbols (some became constants: an operator without a rule, int(size), a
    // size of 0 or 1). The tensor guard of the input must be made with these.
    virtual uint64_t dynamic_dims(int input_id) const = 0;
    virtual std::unique_ptr<ShapeGuard> shape_guard() const = 0;  // of all inputs in id order
    // The program is about to run autograd's engine from these fakes: the ids of the inputs that are leaves of the
    // graph behind them. nullopt: a break was set.
    virtual std::optional<std::vector<int>> begin_backward(const std::vector<PyObject*>& roots) = 0;
    // A custom autograd.Function was applied: its backward runs too, and what it does is kept in the place of its
    // Python code. once: its gradients cannot be differentiated. false: a break was set, or an exception.
    virtual bool end_function(const std::vector<PyObject*>& arguments, PyObject* result, bool once) = 0;
    // The program registers a hook on the gradient of this fake. call: what it does with the gradient (a new
    // reference). The hook's number; -1: a break was set.
    virtual int add_hook(PyObject* fake, std::function<PyObject*(PyObject* gradient)> call) = 0;
    virtual void remove_hook(int hook) = 0;
    // The program is over. Hooks that a backward pass from the outputs will meet are recorded. The first one for which
    // that is impossible, or -1.
    virtual int settle_hooks(const std::vector<PyObject*>& outputs) = 0;
    // Suspend the modes while foreign code runs (guard building, comparing constants).
    virtual void pause() = 0;
    virtual void resume() = 0;
    // Ends the capture and compiles. outputs: fakes whose real tensors the caller wants after a run, in order.
    // n_inputs: inputs in id order are what run() receives. An output may be a symbolic number: run() then makes a
    // Python int or float. Returns nullptr with a Python exception set on an internal error.
    virtual std::unique_ptr<CompiledGraph> finish(const std::vector<PyObject*>& outputs, int n_inputs) = 0;
    // The program is over: records its backward pass too, where an output needs a gradient and that is possible. It
    // may assume more about sizes, so this comes before the guards are made. Same arguments as finish().
    virtual void trace_backward(const std::vector<PyObject*>& outputs, int n_inputs) = 0;
};

class TensorGuard {
  public:
    virtual ~TensorGuard() = default;
    virtual bool check(PyObject* value) const = 0;           // value may be anything
    virtual std::string explain(PyObject* value) const = 0;  // "dtype: expected float32, got float64"
    virtual std::string text() const = 0;
    // What failed for automatic dynamic shapes: bits of the sizes that differ while all else agrees; 0 if something
    // else differs.
    virtual uint64_t changed_dims(PyObject* value) const = 0;
};

class GlobalStateGuard {  // grad mode, inference mode, autocast, default dtype/device, deterministic, torch function
                          // modes, ...
  public:
    virtual ~GlobalStateGuard() = default;
    virtual bool check() const = 0;
    virtual std::string explain() const = 0;
};
class StateDelta {  // what the segment changed of that state, to be done again after a run
  public:
    virtual ~StateDelta() = default;
    virtual void apply() const = 0;
    // What cannot be done again ("inference mode", ...), or an empty string. The trace must not end in such a state.
    virtual std::string obstacle() const { return {}; }
};

class TensorBridge {
  public:
    virtual ~TensorBridge() = default;
    virtual bool is_tensor(PyObject* o) const = 0;  // torch.Tensor or a subclass
    // The classes of the objects that stand for numbers which differ from run to run. int(n) and float(f) make such a
    // number a constant of the trace; so does everything but arithmetic and comparison.
    virtual PyTypeObject* symbolic_int_class() const = 0;
    virtual PyTypeObject* symbolic_float_class() const = 0;
    // Takes and returns a reference: torch.SymInt, also inside a torch.Size or tuple, becomes a symbolic number.
    virtual PyObject* with_own_numbers(PyObject* o) const = 0;
    // max(a, b) or min(a, b) of floats, at least one of them symbolic. New reference.
    virtual PyObject* extremum(PyObject* a, PyObject* b, bool max) const = 0;
    virtual std::unique_ptr<Capture> begin_capture(CaptureOptions options) = 0;
    virtual std::unique_ptr<TensorGuard> tensor_guard(PyObject* real, uint64_t dynamic_dims,
                                                      GradientUse use = GradientUse::None) = 0;
    virtual Py_ssize_t size_of(PyObject* tensor, Py_ssize_t axis) const = 0;  // -1: it has no such axis
    // What the tensor has in .grad, or None: new reference.
    virtual PyObject* gradient(PyObject* tensor) const = 0;
    // What about the tensor stands in the way of that use (hooks, a graph of its own), or an empty string. Its guard
    // checks the same.
    virtual std::string gradient_obstacle(PyObject* real, GradientUse use) const = 0;
    // What tensors that share memory have in common; nullptr: no strided tensor.
    virtual const void* storage(PyObject* tensor) const = 0;
    virtual std::unique_ptr<GlobalStateGuard> state_guard() = 0;                          // of the state now
    virtual std::unique_ptr<StateDelta> state_delta(const GlobalStateGuard& before) = 0;  // nullptr: nothing changed
    virtual void restore_state(const GlobalStateGuard& to) = 0;                           // after an aborted trace
    // While `on`, fakes are counted: see living_fakes().
    virtual void count_fakes(bool on) = 0;
    // What keeps fakes alive now, after a garbage collection; empty: there are none. No trace may be under way.
    virtual std::string living_fakes() = 0;
    // A native option of the compiler (isa, threads, verify, disabled_passes, dump, ...). false: unknown name, or an
    // exception is set.
    virtual bool set_option(const std::string& name, PyObject* value) = 0;
};

// Set once by the bridge when the extension module is loaded.
void set_tensor_bridge(TensorBridge* bridge);
TensorBridge* tensor_bridge();

}  // namespace braze::frontend
