// One trace becomes one segment.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>

#include "frontend/cpython/trace_hooks.h"
#include "frontend/guards/filter.h"
#include "frontend/interp/gradients.h"
#include "frontend/interp/hooks.h"
#include "frontend/interp/tracer.h"
#include "frontend/segments/segment.h"

namespace braze::frontend {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

void guard_inputs(Tracer& t) {
    t.guard_compared();
    std::vector<int> used;
    for (size_t i = 0; i < t.inputs.size(); ++i) {
        GraphInput& in = t.inputs[i];
        int id = static_cast<int>(i);
        if (in.number) {
            if (t.capture->is_fixed(id)) t.guards.equals(in.source, in.real.get());
            continue;
        }
        if (!t.capture->touched(id) && !t.capture->mutated_input(id)) continue;
        used.push_back(id);
        t.guards.tensor(in.source,
                        tensor_bridge()->tensor_guard(in.real.get(), t.capture->dynamic_dims(id), in.gradient_use));
    }
    if (auto shapes = t.capture->shape_guard(); shapes && !shapes->empty()) {
        std::vector<SourceId> sources;
        for (const GraphInput& in : t.inputs) sources.push_back(in.source);
        t.guards.shapes(std::move(sources), std::move(shapes));
    }
    // Memory shared between inputs is part of the program's meaning where something is written or handed out.
    Sharing sharing;
    std::vector<SourceId> tensors;
    std::unordered_map<const void*, int> groups;
    bool matters = false;
    for (int id : used) {
        GraphInput& x = t.inputs[static_cast<size_t>(id)];
        const void* storage = tensor_bridge()->storage(x.real.get());
        auto [at, fresh] = groups.emplace(storage, static_cast<int>(sharing.written.size()));
        if (fresh) sharing.written.push_back(false);
        bool written = t.capture->mutated_input(id);
        if (written) sharing.written[static_cast<size_t>(at->second)] = true;
        matters |= written || !fresh;
        sharing.group.push_back(at->second);
        tensors.push_back(x.source);
    }
    if (matters && tensors.size() > 1) t.guards.same_storage(std::move(tensors), std::move(sharing));
}

// The error that the option fail_at asks for, to test what happens then.
bool provoked(const char* stage) {
    if (settings().fail_at != stage) return false;
    PyErr_Format(settings().internal_error ? settings().internal_error.get() : PyExc_RuntimeError,
                 "provoked at stage '%s'", stage);
    return true;
}

// mark_dynamic promises that a size varies: a program that does not let it is told so.
bool marks_are_kept(Tracer& t) {
    Owned names;
    for (size_t i = 0; i < t.inputs.size(); ++i) {
        const GraphInput& in = t.inputs[i];
        int id = static_cast<int>(i);
        if (!in.must_vary || !(t.capture->touched(id) || t.capture->mutated_input(id))) continue;
        uint64_t fixed = in.must_vary & ~t.capture->dynamic_dims(id);
        if (!fixed) continue;
        int dim = 0;
        while (!((fixed >> dim) & 1)) ++dim;
        names = Owned::steal(
            PyObject_GetAttrString(reinterpret_cast<PyFunctionObject*>(t.function())->func_code, "co_varnames"));
        std::string text = "mark_dynamic: size " + std::to_string(dim) + " of " +
                           t.guards.sources.describe(in.source, names.get()) +
                           " must not be a constant, but the program makes it one (it compares or converts it, or uses "
                           "it where only a number is taken); maybe_mark_dynamic allows that";
        PyErr_SetString(settings().user_error ? settings().user_error.get() : PyExc_ValueError, text.c_str());
        return false;
    }
    return true;
}

// False: *why tells. "error": an exception of ours is set; "program": one that belongs to the program.
bool finish(Tracer& t, Segment& s, GlobalStateGuard& before, PyObject* guard_filter, std::string* why) {
    if (!t.held_locks.empty()) {
        *why = "a lock is held where the graph ends";
        return false;
    }
    s.state = tensor_bridge()->state_delta(before);
    if (s.state && !s.state->obstacle().empty()) {
        *why = s.state->obstacle();
        return false;
    }
    tensor_bridge()->restore_state(before);
    t.journal.undo();
    auto start = Clock::now();
    std::vector<PyObject*> outputs;
    for (Owned& o : s.recipes.outputs) outputs.push_back(o.get());
    t.capture->trace_backward(outputs, static_cast<int>(t.inputs.size()));
    guard_inputs(t);
    if (!marks_are_kept(t)) {
        *why = "program";
        return false;
    }
    s.n_outputs = static_cast<int>(outputs.size());
    // (a constant tensor or a size needs a graph, but no operator)
    if (t.capture->op_count() > 0 || !outputs.empty()) {
        if (provoked("compile")) {
            *why = "error";
            return false;
        }
        s.graph = t.capture->finish(outputs, static_cast<int>(t.inputs.size()));
        if (!s.graph) {
            // an obstacle that only shows at the end (hooks in autograd's graph)
            *why = t.aborting && t.reason ? t.reason->text() : "error";
            if (settings().backend_error && PyErr_ExceptionMatches(settings().backend_error.get())) *why = "program";
            if (*why != "error" && *why != "program") PyErr_Clear();
            return false;
        }
        for (GraphInput& in : t.inputs) s.inputs.push_back(in.source);
        Statistics& st = statistics();
        st.graphs++;
        st.kernels += s.graph->kernels();
        st.aten_calls += s.graph->aten_calls();
        st.compile_seconds += since(start);
    }
    s.recipes.forget_trace();
    s.needs.add(s.recipes, s.effects);
    if (guard_filter) {
        std::unordered_set<SourceId> inputs(s.inputs.begin(), s.inputs.end());
        for (const Effect& e : s.effects) inputs.insert(e.target);
        Owned names = Owned::steal(
            PyObject_GetAttrString(reinterpret_cast<PyFunctionObject*>(t.function())->func_code, "co_varnames"));
        Roots roots{t.state(), t.state_size(), t.function()};
        if (!filter_guards(t.guards, guard_filter, roots, names.get(), inputs)) {
            *why = "program";
            return false;
        }
    }
    t.guards.sources.lifetimes.settle();
    s.guards = std::move(t.guards);
    return true;
}

// Where the function begins, for a break that belongs to none of its lines.
void place_at_function(Break& b, const Tracer& t) {
    auto* co = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(t.function())->func_code);
    const char *file = PyUnicode_AsUTF8(co->co_filename), *name = PyUnicode_AsUTF8(co->co_name);
    PyErr_Clear();
    b.file = file ? file : "?";
    b.line = co->co_firstlineno;
    b.function = name ? name : "?";
}

// An object that the trace made cannot be rebuilt (a generator, an iterator): the next trace stops where it is made,
// and that instruction runs for real. False: the trace did not make it, or stopped there already.
bool make_before(const Tracer& t, const Recipes& r, long* forced, std::optional<Break>* reason) {
    long event = r.culprit ? t.made_in(r.culprit.get()) : 0;
    bool earlier = event > 0 && (*forced < 0 || event < *forced);
    Break b;
    b.id = "cannot-rebuild";
    b.detail = r.failure;
    // (a trace that is repeated ends where it was told to: the reason is the first one's)
    const Break* end = t.reason && t.reason->id == "internal" && *reason ? &**reason : t.reason ? &*t.reason : nullptr;
    if (end && end->id == "cannot-rebuild")
        b.detail += end->detail.substr(std::min(end->detail.find(';'), end->detail.size()));
    else if (end)
        b.detail += "; alive where the graph ends: " + end->id + ", " + end->detail;
    if (t.reason) {
        b.file = t.reason->file;
        b.line = t.reason->line;
        b.function = t.reason->function;
    } else {  // the function came to its end
        place_at_function(b, t);
    }
    *reason = std::move(b);
    if (earlier) *forced = event;
    return earlier;
}

bool record_all_effects(Tracer& t, Segment& s) {
    return record_hooks(t, s.recipes, s.effects) && record_effects(t, s.recipes, s.effects) &&
           record_gradients(t, s.recipes, s.effects);
}

// A hook that a later backward pass would have to call: the next trace stops where it is registered. False: there is
// none, or the trace stopped there already, which *why tells.
bool register_before(Tracer& t, const Recipes& r, long* forced, std::optional<Break>* reason, std::string* why) {
    const long event = settle_hooks(t, r, why);
    if (!event) return why->clear(), false;
    if (*forced >= 0 && event >= *forced) return false;
    Break b;
    b.id = "autograd";
    b.detail = *why;
    place_at_function(b, t);
    *reason = std::move(b);
    *forced = event;
    return true;
}

std::recursive_mutex& trace_mutex() {
    static std::recursive_mutex m;
    return m;
}

BackendChoice backend_of(const UnitOptions& o, bool provisional) {
    if (provisional || o.backend == "aot_eager") return {BackendChoice::AotEager};
    if (o.user_backend) return {BackendChoice::User, o.user_backend.get()};
    return {o.backend == "eager" ? BackendChoice::Eager : BackendChoice::Kernels};
}

// Whether a break with this reason is an error where it happened.
bool raises(const Tracer& t, const std::optional<Break>& reason) {
    return t.error_on_break || (reason && reason->id == "forbidden");
}

}  // namespace

TraceLock::TraceLock() {
    if (trace_mutex().try_lock()) return;
    Py_BEGIN_ALLOW_THREADS trace_mutex().lock();
    Py_END_ALLOW_THREADS
}
TraceLock::~TraceLock() { trace_mutex().unlock(); }

static TraceResult trace(Unit& unit, PyObject* function, PyObject* const* state, int n_state, int next,
                         const DynamicHints& dynamic, bool provisional) {
    auto* code = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(function)->func_code);
    int nlocals = bz_code_nlocalsplus(code);
    long forced = -1;
    std::optional<Break> forced_reason;
    const BackendChoice backend = backend_of(unit.options, provisional);
    bool forced_error = false;  // the break is an error where it happened
    for (int attempt = 0; attempt < 64; ++attempt) {
        auto start = Clock::now();
        statistics().traces++;
        auto before = tensor_bridge()->state_guard();
        Tracer t(function, state, n_state, nlocals, next == 0, forced, dynamic, backend);
        if (!t.capture) return {TraceKind::Eager, nullptr, "a dispatch mode of the program", false, ""};
        // What no LOAD_FAST will read: the value stack, cells, and arguments that become cells.
        std::vector<PyObject*> scratch(state, state + n_state);
        std::vector<Owned> kept;
        int old_mode = bz_mode_set(BZ_TRACING);
        bool ready = true;
        for (int i = 0; i < n_state && ready; ++i) {
            PyObject* v = state[i];
            if (!v) continue;
            SourceId s = t.guards.sources.local(i);
            bool cell_variable = i < nlocals && bz_code_local_is_cell(code, i);
            // Not LOAD_FAST decides whether the number is still the argument's: equal ones may be the same object.
            if (PyObject* symbol = i < nlocals && !cell_variable ? t.symbolic_number(v, s) : nullptr) {
                scratch[static_cast<size_t>(i)] = symbol;
                kept.push_back(Owned::steal(symbol));
            } else if (cell_variable && PyCell_Check(v) && next != 0) {
                ready = t.note(v, s) == 0;
            } else if (i >= nlocals || cell_variable) {
                PyObject* x = t.loaded(Py_NewRef(v), s);
                ready = x != nullptr;
                kept.push_back(Owned::steal(x));
                scratch[static_cast<size_t>(i)] = x;
            }
        }
        PyObject *value = nullptr, **end = nullptr;
        int n_end = 0, at = next;
        bz_outcome outcome = BZ_RAISED;
        if (ready) outcome = bz_trace(function, scratch.data(), n_state, next, &value, &end, &n_end, &at);
        bz_mode_set(BZ_OFF);
        bool handler_changed = ready && bz_trace_handler_changed();
        t.capture->pause();
        statistics().trace_seconds += since(start);
        struct Cleanup {
            Tracer& t;
            GlobalStateGuard& before;
            PyObject *&value, **&end;
            int &n_end, old_mode;
            ~Cleanup() {
                SavedError saved;
                t.close_generators();
                t.forget_classes();
                tensor_bridge()->restore_state(before);
                t.journal.undo();
                Py_XDECREF(value);
                if (end) bz_state_free(end, n_end);
                bz_mode_set(old_mode);
            }
        } cleanup{t, *before, value, end, n_end, old_mode};

        if (outcome == BZ_RAISED) {
            if (!t.aborting) {
                PyErr_Clear();
                return {TraceKind::Raised, nullptr, ""};
            }
            PyErr_Clear();
            if (!t.reason) return {TraceKind::Eager, nullptr, "the trace stopped", raises(t, t.reason)};
            return {TraceKind::Eager, nullptr, t.reason->text(), raises(t, t.reason), t.reason->id};
        }
        if (t.endless) {
            PyErr_Clear();
            return {TraceKind::Eager, nullptr, t.reason->text(), raises(t, t.reason), t.reason->id};
        }
        auto s = std::make_shared<Segment>();
        std::string why;
        if (PyObject* generator = t.suspended_generator()) {
            s->recipes.fail(generator);
            if (make_before(t, s->recipes, &forced, &forced_reason)) continue;
            PyErr_Clear();
            return {TraceKind::Eager, nullptr, forced_reason->text()};
        }
        if (handler_changed) {
            // What sys.exc_info() says is the real frame's business: it enters and leaves the block, a segment ends
            // before that.
            PyErr_Clear();
            if (!forced_reason) {
                forced_reason = t.reason;
                forced_error = raises(t, t.reason);
            }
            if (t.handler_event > 0 && (forced < 0 || t.handler_event < forced)) {
                forced = t.handler_event;
                continue;
            }
            if (t.handler_event > 0) return {TraceKind::Eager, nullptr, "a break inside an except block"};
            return {TraceKind::Quiet, nullptr, forced_reason ? forced_reason->text() : "an except block", forced_error};
        }
        bool error = false;
        if (outcome == BZ_RETURNED) {
            s->returns = true;
            s->result = s->recipes.record(t, value);
            if (s->result < 0 || !record_all_effects(t, *s)) {
                if (make_before(t, s->recipes, &forced, &forced_reason)) continue;
                return {TraceKind::Eager, nullptr, forced_reason->text()};
            }
        } else {
            PyErr_Clear();
            bool repeated = forced >= 0 && t.root_event == forced;
            if (!t.clean && !repeated) {  // something ran between the start of the root's instruction and the break:
                                          // once more, stopping before it
                forced = t.root_event;
                forced_reason = t.reason;
                forced_error = raises(t, t.reason);
                continue;
            }
            error = repeated ? forced_error : raises(t, t.reason);
            if (at == next && t.journal.size() == 0 && t.capture->op_count() == 0) {
                unit.breaks.push_back(repeated ? *forced_reason : *t.reason);
                log_break(unit.breaks.back());
                return {TraceKind::Step, nullptr, unit.breaks.back().text(), error};
            }
            s->reason = repeated ? forced_reason : t.reason;
            s->next = at;
            s->depth = n_end - nlocals;
            bool ok = true;
            for (int i = 0; i < n_end && ok; ++i) {
                bool same = i < n_state && (end[i] == state[i] || end[i] == scratch[static_cast<size_t>(i)]);
                if (same && !t.stored_local(i)) continue;
                RecipeId r = s->recipes.record(t, end[i]);
                ok = r >= 0;
                s->slots.emplace_back(i, r);
            }
            if (!ok || !record_all_effects(t, *s)) {
                if (make_before(t, s->recipes, &forced, &forced_reason)) continue;
                return {TraceKind::Eager, nullptr, forced_reason->text()};
            }
        }
        if (register_before(t, s->recipes, &forced, &forced_reason, &why)) continue;
        if (!why.empty()) return {TraceKind::Eager, nullptr, why};
        // What a backend of the program's raises is the program's, and its effects are unknown.
        if (!finish(t, *s, *before, unit.options.guard_filter.get(), &why)) {
            if (why == "program") return {TraceKind::Error, nullptr, "", true};
            if (why == "error") return {TraceKind::Error, nullptr, ""};
            return {TraceKind::Eager, nullptr, why};
        }
        s->error_on_break = error_on_break();
        if (t.error_on_break != s->error_on_break) s->error_on_break_after = t.error_on_break;
        if (s->reason) {
            statistics().graph_breaks++;
            unit.breaks.push_back(*s->reason);
            log_break(*s->reason);
        }
        return {TraceKind::Compiled, std::move(s), "", error};
    }
    return {TraceKind::Eager, nullptr, "the trace does not come to the same place twice"};
}

TraceResult trace_segment(Unit& unit, PyObject* function, PyObject* const* state, int n_state, int next,
                          const DynamicHints& dynamic, bool provisional) {
    if (provoked("capture")) return {TraceKind::Error, nullptr, ""};
    TraceLock lock;
    TraceResult result = trace(unit, function, state, n_state, next, dynamic, provisional);
    // (an exception's traceback reaches what the trace had)
    if (settings().check_fakes && !PyErr_Occurred() && !Tracer::current()) {
        std::string left = tensor_bridge()->living_fakes();
        if (!left.empty()) {
            PyErr_SetString(settings().internal_error ? settings().internal_error.get() : PyExc_RuntimeError,
                            left.c_str());
            return {TraceKind::Error, nullptr, ""};
        }
    }
    return result;
}

namespace {
// Keeps what another thread, or code that effects run, may drop while a segment runs.
class Needed {
  public:
    Needed(const Needs& needs, Fetcher& f) : n_(needs.sources.size() + needs.objects.size()) {
        if (n_ > std::size(small_)) {
            large_.resize(n_);
            objects_ = large_.data();
        }
        size_t i = 0;
        for (SourceId id : needs.sources) objects_[i++] = Py_XNewRef(f.fetch(id));
        for (Ref o : needs.objects) objects_[i++] = Py_XNewRef(o.get());
    }
    ~Needed() {
        for (size_t i = 0; i < n_; ++i) Py_XDECREF(objects_[i]);
    }
    Needed(const Needed&) = delete;

  private:
    size_t n_;
    PyObject* small_[16];
    std::vector<PyObject*> large_;
    PyObject** objects_ = small_;
};
}  // namespace

RunResult run_segment(Segment& s, const Roots& roots, int* failed) {
    if (s.guards.over()) [[unlikely]]
        return {RunResult::Miss};
    Fetcher f(s.guards.sources, roots);
    int g = s.guards.check(f);
    if (g >= 0) {
        *failed = g;
        return {RunResult::Miss};
    }
    if (s.guards.has_assumptions()) [[unlikely]] {
        if (auto broken = s.guards.broken_assumption(f)) {
            std::string text = "guard_filter_fn dropped a guard that fails: " + *broken;
            PyErr_SetString(settings().user_error ? settings().user_error.get() : PyExc_ValueError, text.c_str());
            return {RunResult::Error};
        }
    }
    PyObject* small[32] = {};
    std::vector<PyObject*> big;
    PyObject** outputs = small;
    struct Outputs {
        PyObject**& v;
        int n;
        ~Outputs() {
            for (int i = 0; i < n; ++i) Py_XDECREF(v[i]);
        }
    } release{outputs, s.n_outputs};
    if (s.n_outputs > 32) {
        big.resize(static_cast<size_t>(s.n_outputs));
        outputs = big.data();
    }
    const Needed needed(s.needs, f);
    if (s.graph) {
        size_t n = s.inputs.size();
        PyObject* in_small[64];
        std::vector<PyObject*> in_big(n > 64 ? n : 0);
        PyObject** in = n > 64 ? in_big.data() : in_small;
        for (size_t i = 0; i < n; ++i) in[i] = f.fetch(s.inputs[i]);
        if (provoked("run") || !s.graph->run(in, static_cast<int>(n), outputs, s.n_outputs))
            return {s.graph->wrote() ? RunResult::Error : RunResult::Failed};
    }
    Builder b(s.recipes, f, outputs);
    if (!s.effects.empty() && make_calls(s.effects, b) < 0) return {RunResult::Error};
    RunResult r{s.returns ? RunResult::Returned : RunResult::Stopped};
    if (s.returns) {
        PyObject* v = b.build(s.result);
        if (!v) return {RunResult::Error};
        if (!s.effects.empty() && apply_effects(s.effects, b, f) < 0) return {RunResult::Error};
        r.value = Py_NewRef(v);
    } else {
        for (auto [slot, recipe] : s.slots) {
            PyObject* v = b.build(recipe);
            if (!v && PyErr_Occurred()) {
                for (auto& [i, x] : r.slots) Py_XDECREF(x);
                return {RunResult::Error};
            }
            r.slots.emplace_back(slot, Py_XNewRef(v));
        }
        if (!s.effects.empty() && apply_effects(s.effects, b, f) < 0) {
            for (auto& [i, x] : r.slots) Py_XDECREF(x);
            return {RunResult::Error};
        }
    }
    if (s.state) s.state->apply();
    if (s.error_on_break_after) error_on_break() = *s.error_on_break_after;
    return r;
}

}  // namespace braze::frontend
