// Segments: what was compiled for a frame from one instruction on. A frame is run as segments, with single instructions
// in between that only CPython can execute.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/breaks/breaks.h"
#include "frontend/bridge_api.h"
#include "frontend/effects/recipe.h"
#include "frontend/guards/guard.h"

namespace braze::frontend {

struct Segment {
    GuardSet guards;
    std::vector<SourceId> inputs;
    std::unique_ptr<CompiledGraph> graph;  // nullptr: no tensor operation
    int n_outputs = 0;
    Recipes recipes;
    std::vector<Effect> effects;
    Needs needs;
    std::unique_ptr<StateDelta> state;
    bool returns = false;
    RecipeId result = -1;                         // returns
    int next = 0, depth = 0;                      // else: where the frame goes on, entries on its stack
    std::vector<std::pair<int, RecipeId>> slots;  // locals and stack entries that changed
    std::optional<Break> reason;
    bool error_on_break = false;               // the thread's flag that it was traced with
    std::optional<bool> error_on_break_after;  // where the traced code changed it
    bool provisional = false;                  // of a stance that compiles again at the next call
    bool used = false;                         // by a call that did not make it
};

// All that is known about one instruction of one code object as the start of a segment.
struct Position {
    std::vector<std::shared_ptr<Segment>> segments;  // most recently used first
    bool step = false;                               // the instruction itself cannot be traced
    bool eager = false;                              // nothing can be compiled from here on
    std::string why;                                 // step, eager: the reason
    int raised = 0;                                  // traces that ended in an exception of the user's program
    DynamicHints dynamic;
    int version = 0;  // changes with what was compiled
    int wasted = 0;   // segments that were over before a second call could use them
    void drop_those_over();
    // segments[i] was `s` and has been used: it goes to the front.
    void used(size_t i, const std::shared_ptr<Segment>& s) {
        if (i && i < segments.size() && segments[i] == s) std::swap(segments[0], segments[i]);
    }
    // What the first call had, where a stance makes it run in eager: by local, a tensor's guard or a number.
    bool seen = false;
    std::vector<std::pair<int, std::unique_ptr<TensorGuard>>> seen_tensors;
    std::vector<std::pair<int, Owned>> seen_numbers;
};

struct CodeState {
    std::map<int, Position> positions;
    bool skip = false;
    int segments = 0;
    bool limit_reported = false;
};

struct UnitOptions {
    bool fullgraph = false;
    std::optional<bool> dynamic;
    std::string backend = "braze";
    Owned user_backend;  // what compiles torch-level graphs in place of `backend`
    Owned guard_filter;  // list of descriptions -> list of bools, or nothing
    int recompile_limit = 8;
};

// Everything compiled for one call of braze.compile: the function itself and what it calls across graph breaks.
struct Unit {
    UnitOptions options;
    std::map<PyCodeObject*, CodeState> codes;  // owns a reference to each key
    std::vector<Break> breaks;
    Owned made_for;          // the backend of a stance
    int users = 0;           // calls that are using it
    bool forgotten = false;  // to be deleted by the last of them
    ~Unit();
    CodeState& code(PyCodeObject* co);
};

// Step: the instruction cannot be traced. Quiet: the same, but no break of its own.
enum class TraceKind : uint8_t { Compiled, Step, Quiet, Eager, Raised, Error };
struct TraceResult {
    TraceKind kind;
    std::shared_ptr<Segment> segment;
    std::string why;                    // Eager
    bool raises = false;                // the break is an error
    std::string id = "cannot-rebuild";  // Eager: of the break; empty: this call can't be traced, others may
};
// Traces `function` from instruction `next` with that state and compiles what it finds. Error: a Python exception is
// set.
// provisional: with the backend aot_eager.
TraceResult trace_segment(Unit& unit, PyObject* function, PyObject* const* state, int n_state, int next,
                          const DynamicHints& dynamic, bool provisional);

// Traces change objects of the program for a while, so only one thread traces at a time. Waiting gives the GIL away.
class TraceLock {
  public:
    TraceLock();
    ~TraceLock();
    TraceLock(const TraceLock&) = delete;
};

struct RunResult {
    enum Kind : uint8_t { Miss, Returned, Stopped, Error, Failed } kind;
    PyObject* value = nullptr;                       // Returned: new reference
    std::vector<std::pair<int, PyObject*>> slots{};  // Stopped: new references (nullptr: unbound)
    std::shared_ptr<Segment> segment{};
};
// Miss: a guard fails (*failed says which). Failed: the graph raised (the exception is set) before anything was
// changed, so the frame can run in eager from here, which raises the same with its own traceback.
RunResult run_segment(Segment& s, const Roots& roots, int* failed);

// Counters and the log, shared by all units.
struct Statistics {
    long graphs = 0, graph_breaks = 0, recompiles = 0, kernels = 0, aten_calls = 0, traces = 0;
    double trace_seconds = 0, compile_seconds = 0;
};
Statistics& statistics();
using KeyValues = std::vector<std::pair<const char*, std::string>>;
void log(const char* kind, const std::string& message, const KeyValues& data = {});
void log_break(const Break& b);
struct Settings {
    bool strict = false, fail_on_recompile_limit = false, automatic_dynamic = true;
    int recompile_limit = 8, accumulated_recompile_limit = 256;
    bool check_fakes = false;
    std::string fail_at;  // provoke an internal error at this stage (tests)
    Owned graph_break_error, internal_error, limit_error, recompile_error, user_error, backend_error;
    std::vector<std::string> run_untraced;               // modules
    std::vector<std::string> run_traced;                 // modules inside those that are traced all the same
    std::vector<Owned> untraced_code;                    // code of single functions
    std::unordered_map<PyObject*, Owned> replaced_code;  // code -> the function whose code is traced in its place
    std::vector<std::string> stdlib_prefixes;
    std::vector<std::string> peer;  // names of torch's own compiler, see _tables.py
    std::string own_prefix;         // Braze's own Python files; what runs in eager in them is not compiled
};
Settings& settings();
// Formats the pending exception and clears it.
std::string take_error();

// What a call may do, for the whole process (set_stance) or one thread (run).
enum class Stance : uint8_t {
    Default,
    ForceEager,
    EagerOnRecompile,
    FailOnRecompile,
    EagerThenCompile,
    AotEagerThenCompile
};
Stance stance();
void set_stance(Stance s);
class UseOnlyCompiled {  // this thread compiles nothing meanwhile
  public:
    UseOnlyCompiled();
    ~UseOnlyCompiled();
    UseOnlyCompiled(const UseOnlyCompiled&) = delete;
};
// Whether a graph break is an error on this thread (braze.error_on_graph_break).
bool& error_on_break();

Unit* current_unit();
Unit* set_current_unit(Unit* u);  // returns the old one

}  // namespace braze::frontend
