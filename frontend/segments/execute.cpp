// Runs real frames as segments.
#include "frontend/segments/execute.h"

#include <cstring>

#include "frontend/cpython/api.h"

namespace braze::frontend {

static thread_local Unit* g_unit = nullptr;
Unit* current_unit() { return g_unit; }
Unit* set_current_unit(Unit* u) { return std::exchange(g_unit, u); }

Unit::~Unit() {
    for (auto& [co, state] : codes) Py_DECREF(co);
}

static const char* file_of(PyCodeObject* co) {
    const char* file = PyUnicode_AsUTF8(co->co_filename);
    if (!file) PyErr_Clear();
    return file ? file : "";
}

CodeState& Unit::code(PyCodeObject* co) {
    auto [it, fresh] = codes.try_emplace(co);
    if (fresh) {
        Py_INCREF(co);
        const char* file = file_of(co);
        CodeState& s = it->second;
        s.skip = (co->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) ||
                 !(co->co_flags & CO_OPTIMIZED) || std::strncmp(file, "<frozen", 7) == 0;
        for (const std::string& p : settings().stdlib_prefixes)
            if (std::strncmp(file, p.c_str(), p.size()) == 0 && !std::strstr(file, "site-packages")) s.skip = true;
        const std::string& own = settings().own_prefix;
        if (!own.empty() && std::strncmp(file, own.c_str(), own.size()) == 0 && !std::strstr(file, "/_traced.py"))
            s.skip = true;
        if (const char* torch = std::strstr(file, "/torch/"); torch && std::strstr(file, "site-packages/torch/"))
            s.skip |= std::strncmp(torch, "/torch/nn/", 10) != 0 && std::strncmp(torch, "/torch/optim/", 13) != 0;
    }
    return it->second;
}

static std::string code_name(PyCodeObject* co) {
    const char *f = PyUnicode_AsUTF8(co->co_filename), *n = PyUnicode_AsUTF8(co->co_name);
    return std::string(n ? n : "?") + " (" + (f ? f : "?") + ":" + std::to_string(co->co_firstlineno) + ")";
}

void Position::drop_those_over() {
    std::vector<std::shared_ptr<Segment>> dropped;  // what they keep may run code when it goes
    for (auto it = segments.begin(); it != segments.end();) {
        if (!(*it)->guards.over()) {
            ++it;
            continue;
        }
        wasted += !(*it)->used;
        dropped.push_back(std::move(*it));
        it = segments.erase(it);
    }
}

// Numbers of one type, with other values.
static bool is_another_number(PyObject* a, PyObject* b) {
    return Py_TYPE(a) == Py_TYPE(b) && (PyLong_CheckExact(a) || PyFloat_CheckExact(a)) && !same_constant(a, b);
}

// Why the most recent segment did not fit, and which sizes varied.
static std::string note_miss(Position& pos, const Roots& roots, PyCodeObject* co, std::optional<bool> dynamic) {
    if (pos.segments.empty()) return pos.wasted ? "an object that it was compiled for has died" : "";
    std::string why;
    PyObject* names = PyObject_GetAttrString(reinterpret_cast<PyObject*>(co), "co_varnames");
    for (auto& s : pos.segments) {
        Fetcher f(s->guards.sources, roots);
        int g = s->guards.check(f);
        if (g < 0) continue;
        if (why.empty()) why = s->guards.explain(g, f, names);
        // Sizes that differ while all else agrees, and numbers, become symbols at the next trace.
        if (settings().automatic_dynamic && dynamic != false) {
            for (const Guard& x : s->guards.guards()) {
                if (x.kind != GuardKind::Tensor && x.kind != GuardKind::Equals) continue;
                PyObject *v = f.fetch(x.source), *e = x.expected.get();
                uint64_t dims = 0;
                if (v && x.kind == GuardKind::Tensor) dims = x.tensor->changed_dims(v);
                if (v && x.kind == GuardKind::Equals && is_another_number(v, e)) dims = 1;
                bool tuples = v && x.kind == GuardKind::Equals && PyTuple_CheckExact(v) && PyTuple_CheckExact(e) &&
                              PyTuple_GET_SIZE(v) == PyTuple_GET_SIZE(e);
                for (Py_ssize_t i = 0; tuples && i < PyTuple_GET_SIZE(v); ++i) {
                    PyObject *a = PyTuple_GET_ITEM(v, i), *b = PyTuple_GET_ITEM(e, i);
                    if (is_another_number(a, b))
                        pos.dynamic.dims[s->guards.sources.describe(x.source) + "[" + std::to_string(i) + "]"] = 1;
                }
                if (dims) pos.dynamic.dims[s->guards.sources.describe(x.source)] |= dims;
            }
        }
    }
    Py_XDECREF(names);
    PyErr_Clear();
    return why;
}

// The graph raised and nothing was changed yet: eager runs the frame from here, and raises in its own way.
static Lookup after_failure(Position& pos, PyCodeObject* co) {
    bool ours = settings().internal_error && PyErr_ExceptionMatches(settings().internal_error.get());
    if (ours && settings().strict) return Lookup::Error;
    std::string text = take_error();
    if (ours) {
        log("internal_error", "internal error while running " + code_name(co) + ", it runs in eager: " + text);
        pos.eager = true;
    }
    return Lookup::Eager;
}

// Where breaks are errors, one that was met before is one again.
static bool raises(const Unit& u) { return u.options.fullgraph || error_on_break(); }

static Lookup break_error(const Unit& u, const std::string& why) {
    std::string text = (u.options.fullgraph ? "fullgraph=True, but there is a graph break: "
                                            : "error_on_graph_break(True), but there is a graph break: ") +
                       why;
    if (why.starts_with("forbidden:")) text = why;
    PyErr_SetString(settings().graph_break_error ? settings().graph_break_error.get() : PyExc_RuntimeError,
                    text.c_str());
    return Lookup::Error;
}

// What the first call of a stance that runs it in eager had: the second one knows by it what varies.
static void remember_first_call(Position& pos, const Roots& roots) {
    pos.seen = true;
    for (int i = 0; i < roots.n_locals; ++i) {
        PyObject* v = roots.locals[i];
        if (!v) continue;
        if (PyLong_CheckExact(v) || PyFloat_CheckExact(v)) {
            pos.seen_numbers.emplace_back(i, Owned::share(v));
        } else if (tensor_bridge()->is_tensor(v)) {
            if (auto guard = tensor_bridge()->tensor_guard(v, 0)) pos.seen_tensors.emplace_back(i, std::move(guard));
            PyErr_Clear();
        }
    }
}

static void compare_with_first_call(Position& pos, const Roots& roots) {
    SourceTable names;
    auto at = [&](int i) { return i < roots.n_locals ? roots.locals[i] : nullptr; };
    for (auto& [i, guard] : pos.seen_tensors)
        if (PyObject* v = at(i); v && tensor_bridge()->is_tensor(v))
            if (uint64_t dims = guard->changed_dims(v)) pos.dynamic.dims[names.describe(names.local(i))] |= dims;
    for (auto& [i, number] : pos.seen_numbers)
        if (PyObject* v = at(i); v && is_another_number(v, number.get()))
            pos.dynamic.dims[names.describe(names.local(i))] = 1;
    pos.seen_tensors.clear();
    pos.seen_numbers.clear();
}

// Whether the stance lets a trace begin; otherwise what happens instead.
static std::optional<Lookup> ask_stance(Position& pos, const Roots& roots, PyCodeObject* co, const std::string& miss,
                                        const Unit& u, bool* provisional) {
    switch (stance()) {
        case Stance::Default: return {};
        case Stance::ForceEager:
        case Stance::EagerOnRecompile: return Lookup::Eager;
        case Stance::FailOnRecompile: {
            std::string text = "the stance is fail_on_recompile, but " + code_name(co) + " would be compiled" +
                               (miss.empty() ? ": it has not been compiled before" : " again: " + miss);
            PyErr_SetString(settings().recompile_error ? settings().recompile_error.get() : PyExc_RuntimeError,
                            text.c_str());
            return Lookup::Error;
        }
        case Stance::EagerThenCompile:
        case Stance::AotEagerThenCompile: break;
    }
    if (!pos.segments.empty() && !pos.segments[0]->provisional) return {};
    if (!pos.seen) {
        remember_first_call(pos, roots);
        *provisional = stance() == Stance::AotEagerThenCompile;
        if (!*provisional) return Lookup::Eager;
        return {};
    }
    if (settings().automatic_dynamic && u.options.dynamic != false) compare_with_first_call(pos, roots);
    pos.segments.clear();  // the provisional one
    return {};
}

static Lookup compile_at(Unit& u, CodeState& cs, PyObject* function, int at, const Roots& roots, RunResult& out,
                         std::unique_ptr<TraceLock>& lock) {
    auto* co = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(function)->func_code);
    Position& pos = cs.positions[at];
    int limit = u.options.recompile_limit > 0 ? u.options.recompile_limit : settings().recompile_limit;
    bool accumulated = cs.segments >= settings().accumulated_recompile_limit;
    pos.drop_those_over();
    // Objects that are made for each call, and guarded by identity, would be compiled for at each call.
    bool full = static_cast<int>(pos.segments.size()) + pos.wasted >= limit || accumulated;
    // (what has been said is not worth finding out again)
    if (full && cs.limit_reported && !settings().fail_on_recompile_limit && stance() == Stance::Default)
        return Lookup::Eager;
    std::string miss = note_miss(pos, roots, co, u.options.dynamic);
    bool provisional = false;
    if (auto instead = ask_stance(pos, roots, co, miss, u, &provisional)) return *instead;
    if (full) {
        std::string text = (accumulated ? "accumulated recompile limit (" : "recompile limit (") +
                           std::to_string(accumulated ? settings().accumulated_recompile_limit : limit) +
                           ") reached for " + code_name(co) + "; last reason: " + miss;
        if (settings().fail_on_recompile_limit) {
            PyErr_SetString(settings().limit_error ? settings().limit_error.get() : PyExc_RuntimeError, text.c_str());
            return Lookup::Error;
        }
        if (!cs.limit_reported) log("recompile_limit", text);
        cs.limit_reported = true;
        return Lookup::Eager;
    }
    if (u.options.dynamic == true) pos.dynamic.all = true;
    bool again = !pos.segments.empty();
    DynamicHints hints = pos.dynamic;  // another thread may add to them while this one compiles
    TraceResult r = trace_segment(u, function, roots.locals, roots.n_locals, at, hints, provisional);
    ++pos.version;
    switch (r.kind) {
        case TraceKind::Error: {
            if (r.raises) return Lookup::Error;  // the program's own: of a filter, a backend
            std::string text = take_error();
            if (settings().strict) {
                PyErr_SetString(settings().internal_error ? settings().internal_error.get() : PyExc_RuntimeError,
                                text.c_str());
                return Lookup::Error;
            }
            log("internal_error", "internal error while compiling " + code_name(co) + ", it runs in eager: " + text);
            pos.eager = true;
            pos.why = "internal error: " + text;
            return Lookup::Eager;
        }
        case TraceKind::Raised:
            if (++pos.raised >= 8) pos.eager = true;
            return Lookup::Eager;
        case TraceKind::Eager:
            if (r.id.empty()) return Lookup::Eager;  // this call only
            statistics().graph_breaks++;
            log("graph_break", "not compiled: " + code_name(co) + ": " + r.why, {{"id", r.id}});
            if (r.raises || raises(u)) return break_error(u, r.why);
            pos.eager = true;
            pos.why = r.why;
            return Lookup::Eager;
        case TraceKind::Step:
        case TraceKind::Quiet:
            if (r.kind == TraceKind::Step) statistics().graph_breaks++;
            if (r.raises || raises(u)) return break_error(u, r.why);
            pos.step = true;
            pos.why = r.why;
            return Lookup::Step;
        case TraceKind::Compiled: break;
    }
    if (again) {
        statistics().recompiles++;
        log("recompile", "recompiling " + code_name(co) + ": " + miss, {{"function", code_name(co)}, {"reason", miss}});
    }
    cs.segments++;
    std::shared_ptr<Segment> s = r.segment;
    if (!s->returns && (r.raises || u.options.fullgraph)) return break_error(u, s->reason->text());
    s->provisional = provisional;
    // Another thread that waits for the lock finds it there.
    pos.segments.insert(pos.segments.begin(), s);
    lock.reset();
    int failed = -1;
    out = run_segment(*s, roots, &failed);
    if (out.kind == RunResult::Miss) {  // an assumption that does not even hold now: never use it
        std::erase(pos.segments, s);
        if (s->guards.over()) return ++pos.wasted, Lookup::Eager;  // of an object that only the trace held
        Fetcher f(s->guards.sources, roots);
        log("internal_error",
            "guard fails right after the trace of " + code_name(co) + ": " + s->guards.explain(failed, f, nullptr));
        if (++pos.raised >= 2) pos.eager = true;
        return Lookup::Eager;
    }
    if (out.kind == RunResult::Error) return Lookup::Error;
    if (out.kind == RunResult::Failed) return after_failure(pos, co);
    out.segment = std::move(s);
    return Lookup::Ran;
}

Lookup find_or_trace(Unit& u, CodeState& cs, PyObject* function, int at, const Roots& roots, RunResult& out) {
    auto* co = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(function)->func_code);
    Position& pos = cs.positions[at];
    std::unique_ptr<TraceLock> lock;
    for (;;) {
        if (stance() == Stance::ForceEager) return Lookup::Eager;
        if (pos.eager || pos.step) {
            if (raises(u) && !pos.why.empty()) return break_error(u, pos.why);
            return pos.eager ? Lookup::Eager : Lookup::Step;
        }
        for (size_t i = 0; i < pos.segments.size(); ++i) {
            std::shared_ptr<Segment> s = pos.segments[i];
            if (s->error_on_break != error_on_break() || s->provisional) continue;
            int failed = -1;
            out = run_segment(*s, roots, &failed);
            if (out.kind == RunResult::Miss) continue;
            s->used = true;
            pos.used(i, s);
            if (out.kind == RunResult::Error) return Lookup::Error;
            if (out.kind == RunResult::Failed) return after_failure(pos, co);
            out.segment = std::move(s);
            return Lookup::Ran;
        }
        if (lock) break;
        int version = pos.version;
        lock = std::make_unique<TraceLock>();  // whoever had it may have compiled what is needed here
        if (version == pos.version) break;
    }
    return compile_at(u, cs, function, at, roots, out, lock);
}

static PyObject* run_frame(Unit& u, PyThreadState* ts, bz_frame* f) {
    PyObject* function = bz_frame_function(f);
    PyCodeObject* co = bz_frame_code(f);
    CodeState& cs = u.code(co);
    if (cs.skip && u.codes.size() == 1 && (co->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))) {
        Break b{"generator-function", code_name(co), file_of(co), co->co_firstlineno, ""};
        if (!std::exchange(cs.limit_reported, true)) {
            statistics().graph_breaks++;
            log_break(b);
            u.breaks.push_back(b);
        }
        if (raises(u)) return break_error(u, b.text()), nullptr;
    }
    if (cs.skip || !function ||
        reinterpret_cast<PyFunctionObject*>(function)->func_code != reinterpret_cast<PyObject*>(co))
        return bz_leave_to_cpython(ts, f, 0);
    int nlocals = bz_code_nlocalsplus(co);
    PyObject** slots = bz_frame_localsplus(f);
    for (;;) {
        int at = bz_frame_next(f), depth = bz_frame_stack_depth(f);
        Roots roots{slots, nlocals + depth, function};
        RunResult out{RunResult::Miss};
        switch (find_or_trace(u, cs, function, at, roots, out)) {
            case Lookup::Eager: return bz_leave_to_cpython(ts, f, 0);
            case Lookup::Error:
                for (int i = 0; i < depth; ++i) Py_CLEAR(slots[nlocals + i]);
                bz_frame_set_state(f, at, 0);
                if (bz_frame_top() == f) PyTraceBack_Here(PyThreadState_GetFrame(ts));
                return nullptr;
            case Lookup::Ran: {
                std::vector<PyObject*> old;
                if (out.kind == RunResult::Returned) {
                    for (int i = 0; i < depth; ++i) old.push_back(std::exchange(slots[nlocals + i], nullptr));
                    bz_frame_set_state(f, at, 0);
                    for (PyObject* o : old) Py_XDECREF(o);
                    return out.value;
                }
                int now = out.segment->depth;
                for (auto [i, v] : out.slots) {
                    PyObject* was = std::exchange(slots[i], v);
                    if (i < nlocals + depth) old.push_back(was);  // above the stack's top lies garbage
                }
                for (int i = now; i < depth; ++i) old.push_back(std::exchange(slots[nlocals + i], nullptr));
                bz_frame_set_state(f, out.segment->next, now);
                for (PyObject* o : old) Py_XDECREF(o);
                break;
            }
            case Lookup::Step: break;
        }
        // What the instruction leaves on the stack would be guarded by value; in a local it is not until it is read.
        do {
            PyObject* value = nullptr;
            switch (bz_step(ts, f, 0, &value)) {
                case BZ_RETURNED: return value;
                case BZ_RAISED: return nullptr;
                case BZ_STOPPED: break;
            }
        } while (bz_puts_away(f));
        if (bz_tracer_active(ts)) return bz_leave_to_cpython(ts, f, 0);
    }
}

}  // namespace braze::frontend

using namespace braze::frontend;

namespace {
enum class Disabled { No, Itself, WithCallees };

// Marks that braze.disable and torch.compiler.disable leave on a function.
Disabled disabled(PyObject* function) {
    PyObject* marks = function ? reinterpret_cast<PyFunctionObject*>(function)->func_dict : nullptr;
    if (!marks) return Disabled::No;
    if (PyDict_GetItemString(marks, "_torchdynamo_disable") == Py_True)
        return PyDict_GetItemString(marks, "_torchdynamo_disable_recursive") == Py_False ? Disabled::Itself
                                                                                         : Disabled::WithCallees;
    if (PyDict_GetItemString(marks, "_braze_disable") != Py_True) return Disabled::No;
    return PyDict_GetItemString(marks, "_braze_disable_recursive") == Py_False ? Disabled::Itself
                                                                               : Disabled::WithCallees;
}
// torch.compiler.disable(recursive=False) marks a wrapper: the function inside is what must not be compiled.
void skip_what_it_wraps(Unit& u, PyObject* function) {
    PyObject* marks = reinterpret_cast<PyFunctionObject*>(function)->func_dict;
    PyObject* inner = PyDict_GetItemString(marks, "_torchdynamo_orig_callable");
    if (inner && PyMethod_Check(inner)) inner = PyMethod_GET_FUNCTION(inner);
    if (!inner || !PyFunction_Check(inner)) return;
    u.code(reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(inner)->func_code)).skip = true;
}
}  // namespace

extern "C" PyObject* bz_on_frame(PyThreadState* ts, bz_frame* f, int throwflag) {
    Unit* u = current_unit();
    if (!u || throwflag || bz_frame_is_generator(f) || bz_collecting_garbage())
        return bz_leave_to_cpython(ts, f, throwflag);
    if (Disabled d = disabled(bz_frame_function(f)); d != Disabled::No) {
        if (d == Disabled::Itself) skip_what_it_wraps(*u, bz_frame_function(f));
        int mode = d == Disabled::WithCallees ? bz_mode_set(BZ_OFF) : bz_mode_get();
        PyObject* r = bz_leave_to_cpython(ts, f, throwflag);
        bz_mode_set(mode);
        return r;
    }
    try {
        return run_frame(*u, ts, f);
    } catch (const std::exception& e) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, e.what());
        return nullptr;
    }
}
