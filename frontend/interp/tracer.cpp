#include "frontend/interp/tracer.h"

#include <cstring>

#include "frontend/segments/segment.h"

namespace braze::frontend {

PyObject* abort_exception = nullptr;

static thread_local Tracer* g_current = nullptr;

Tracer* Tracer::current() { return g_current; }

PyTypeObject *symbolic_int = nullptr, *symbolic_float = nullptr;

int tracer_init() {
    symbolic_int = tensor_bridge()->symbolic_int_class();
    symbolic_float = tensor_bridge()->symbolic_float_class();
    // Not a subclass of Exception: code that catches Exception in C must not take it for its own.
    abort_exception = PyErr_NewException("braze._C.TraceAborted", PyExc_BaseException, nullptr);
    return abort_exception ? 0 : -1;
}

static std::string utf8(PyObject* s) {
    const char* c = s && PyUnicode_Check(s) ? PyUnicode_AsUTF8(s) : nullptr;
    if (!c) PyErr_Clear();
    return c ? c : "?";
}

Tracer::Tracer(PyObject* function, PyObject* const* state, int n_state, int nlocals, bool at_start, long forced_event,
               const DynamicHints& dynamic, const BackendChoice& backend)
    : function_(Owned::share(function)),
      nlocals_(nlocals),
      dynamic_(dynamic),
      symbols_(dynamic.any()),
      forced_event_(forced_event),
      outer_(g_current) {
    for (int i = 0; i < n_state; ++i) {
        Py_XINCREF(state[i]);
        state_.push_back(state[i]);
    }
    handled_ = Owned::steal(PyErr_GetHandledException());
    CaptureOptions options;
    options.dynamic = true;
    options.backend = backend;
    options.on_real_tensor = [this](PyObject* real) -> PyObject* {
        PyObject* fake = fake_for(real, kNoSource);
        Py_XDECREF(fake);  // the input keeps it
        return fake;
    };
    options.on_break = [this](const char* id, const std::string& detail) { stop(id, detail); };
    options.current_line = [this] { return user_line(); };
    g_current = this;
    error_on_break = frontend::error_on_break();
    guards.global_state(tensor_bridge()->state_guard());
    SourceId fn = guards.sources.add(SourceKind::Function, kNoSource, nullptr);
    auto* f = reinterpret_cast<PyFunctionObject*>(function);
    guards.is(guards.sources.add(SourceKind::FunctionGlobals, fn, nullptr), f->func_globals);
    if (at_start) {  // the closure's cells are copied into the frame by its first instruction
        know(function, fn);
        for (Py_ssize_t i = 0; f->func_closure && i < PyTuple_GET_SIZE(f->func_closure); ++i)
            know(PyTuple_GET_ITEM(f->func_closure, i), guards.sources.add(SourceKind::FunctionClosure, fn, nullptr, i));
    }
    capture = tensor_bridge()->begin_capture(std::move(options));
}

Tracer::~Tracer() {
    inputs.clear();
    capture.reset();
    g_current = outer_;
    for (PyObject* o : state_) Py_XDECREF(o);
}

void Tracer::close_generators() {
    bool was = std::exchange(aborting, true);
    int mode = bz_mode_set(BZ_TRACING);
    for (auto [o, event] : fresh_) {
        if (!PyGen_Check(o) && !PyCoro_CheckExact(o)) continue;
        PyObject* r = PyObject_CallMethod(o, "close", nullptr);
        Py_XDECREF(r);
        PyErr_Clear();
    }
    bz_mode_set(mode);
    aborting = was;
}

void Tracer::forget_classes() {
    for (auto [o, event] : fresh_) {
        if (!PyType_Check(o)) continue;
        PyObject* bases = reinterpret_cast<PyTypeObject*>(o)->tp_bases;
        Owned key = Owned::steal(PyLong_FromVoidPtr(o));
        for (Py_ssize_t i = 0; key && bases && i < PyTuple_GET_SIZE(bases); ++i) {
            PyObject* base = PyTuple_GET_ITEM(bases, i);
            auto* subclasses = static_cast<PyObject*>(reinterpret_cast<PyTypeObject*>(base)->tp_subclasses);
            if (subclasses && !is_fresh(base) && PyDict_DelItem(subclasses, key.get()) < 0) PyErr_Clear();
        }
    }
}

PyObject* Tracer::suspended_generator() const {
    for (auto [o, event] : fresh_)
        if ((PyGen_Check(o) || PyCoro_CheckExact(o) || PyAsyncGen_CheckExact(o)) && bz_generator_in_handler(o))
            return o;
    return nullptr;
}

// The innermost frame of the program's own: torch's Python says little about where something happens.
static bz_frame* user_frame() {
    bz_frame* top = bz_frame_top();
    for (bz_frame* f = top; f; f = bz_frame_back(f)) {
        const char* file = PyUnicode_AsUTF8(bz_frame_code(f)->co_filename);
        if (!file) PyErr_Clear();
        if (file && !std::strstr(file, "site-packages/torch/")) return f;
        if (f == bz_trace_root_frame()) break;
    }
    return top;
}

std::string Tracer::user_line() const {
    bz_frame* f = user_frame();
    if (!f) return "?";
    PyCodeObject* co = bz_frame_code(f);
    return utf8(co->co_filename) + ":" + std::to_string(bz_frame_line(f)) + " in " + utf8(co->co_name);
}

std::nullptr_t Tracer::stop(const char* id, const std::string& detail) {
    if (!aborting) {
        aborting = true;
        Break b;
        b.id = id;
        b.detail = detail;
        if (bz_frame* f = user_frame()) {
            PyCodeObject* co = bz_frame_code(f);
            b.file = utf8(co->co_filename);
            b.line = bz_frame_line(f);
            b.function = utf8(co->co_name);
        }
        reason = std::move(b);
        clean =
            depth == 1 && mark_.ops == capture->op_count() && mark_.changes == journal.size() && mark_.frames == frames;
    }
    if (!PyErr_Occurred()) PyErr_SetString(abort_exception, "the trace stops here");
    return nullptr;
}

void Tracer::loop_too_long() {
    endless = backward_jumps - mark_.backward_jumps < limits.max_backward_jumps / 2;
    stop("loop-too-long", "a loop without tensor operations");
}

bool Tracer::begin_hook() {
    if (aborting) {
        if (!PyErr_Occurred()) PyErr_SetString(abort_exception, "the trace stops here");
        return false;
    }
    if (depth != 1) return true;
    mark_ = {capture->op_count(), journal.size(), frames, backward_jumps};
    if (++root_event == forced_event_) {
        stop("internal", "repeated");  // the caller knows the real reason from the first time
        return false;
    }
    if (mark_.ops > limits.max_ops) {
        stop("loop-too-long", std::to_string(mark_.ops) + " operators");
        return false;
    }
    return true;
}

}  // namespace braze::frontend

using braze::frontend::Tracer;

// Did traced code call the function, not C code?
static bool f_is_direct(Tracer& t, bz_frame* f) { return std::exchange(t.called, nullptr) == bz_frame_function(f); }

// C code calls these on an object that it is making: a class while its statement runs, an instance.
static void made_by_c(Tracer& t, bz_frame* f) {
    static PyObject* const init = PyUnicode_InternFromString("__init__");
    static PyObject* const set_name = PyUnicode_InternFromString("__set_name__");
    static PyObject* const init_subclass = PyUnicode_InternFromString("__init_subclass__");
    if (!bz_frame_code(f)->co_argcount) return;
    PyObject* name = bz_frame_code(f)->co_name;
    PyObject* o = bz_frame_localsplus(f)[0];
    if (name == set_name && bz_frame_code(f)->co_argcount > 1) o = bz_frame_localsplus(f)[1];
    if (!o || (name != init && name != set_name && name != init_subclass)) return;
    bool cls = PyType_Check(o);
    if (cls ? name != init && !t.is_fresh(o) : name == init && t.source_of(o) == braze::frontend::kNoSource) t.made(o);
}

extern "C" {

bool bz_aborting(void) {
    Tracer* t = Tracer::current();
    return t && t->aborting;
}

bool bz_runs_untraced(PyCodeObject* co) {
    if (bz_collecting_garbage() || PyUnicode_CompareWithASCIIString(co->co_name, "__del__") == 0) return true;
    for (const auto& known : braze::frontend::settings().untraced_code)
        if (known.get() == reinterpret_cast<PyObject*>(co)) return true;
    const char* file = PyUnicode_AsUTF8(co->co_filename);
    if (!file) PyErr_Clear();
    if (!file) return false;
    // The objects in which torch hands out symbolic sizes before they become ours.
    const char* name = PyUnicode_AsUTF8(co->co_qualname);
    if (name && std::strncmp(name, "Sym", 3) == 0 && std::strstr(file, "/torch/__init__.py")) return true;
    if (std::strstr(file, "/torch/fx/experimental/sym_node.py")) return true;
    return std::strncmp(file, "<frozen importlib", 17) == 0;
}

int bz_frame_enter(bz_frame* f, bool is_root) {
    Tracer& t = *Tracer::current();
    t.depth++;
    t.frames++;
    if (is_root) return 0;
    // A generator from before the trace would be moved on for real.
    PyObject* generator = bz_frame_generator(f);
    if (generator && !t.is_fresh(generator)) {
        t.stop("iterator-from-before", braze::frontend::type_name(Py_TYPE(generator)));
        return -1;
    }
    if (t.depth > 900) {
        t.stop("internal", "calls nested too deeply");
        return -1;
    }
    if (!generator && !f_is_direct(t, f)) made_by_c(t, f);
    PyObject* first = bz_frame_code(f)->co_argcount ? bz_frame_localsplus(f)[0] : nullptr;
    if (!generator && t.use_callee(bz_frame_function(f), first) < 0) return -1;
    // Arguments that C code took from sourced containers, or defaults: real tensors become fakes.
    PyObject** locals = bz_frame_localsplus(f);
    PyCodeObject* co = bz_frame_code(f);
    int n = co->co_argcount + co->co_kwonlyargcount + !!(co->co_flags & CO_VARARGS) + !!(co->co_flags & CO_VARKEYWORDS);
    if (bz_frame_is_generator(f)) n = bz_code_nlocalsplus(co);
    for (int i = 0; i < n; ++i) {
        PyObject* v = locals[i];
        if (!v || braze::frontend::is_primitive(v) || !t.is_tensor(v) || t.capture->is_fake(v)) continue;
        PyObject* fake = t.fake_for(v, braze::frontend::kNoSource);
        if (!fake) return -1;
        locals[i] = fake;
        Py_DECREF(v);
    }
    if (PyObject* names = bz_frame_locals_mapping(f)) t.made(names);  // a class body
    if (bz_frame_is_generator(f)) return 0;
    int at = co->co_argcount + co->co_kwonlyargcount;
    if (co->co_flags & CO_VARARGS) t.made(locals[at++]);
    if (co->co_flags & CO_VARKEYWORDS) t.made(locals[at]);
    return 0;
}

void bz_frame_exit(bz_frame*, PyObject*) { Tracer::current()->depth--; }

int bz_backward_jump(bz_frame*) {
    Tracer& t = *Tracer::current();
    if (t.aborting) return -1;
    if (++t.backward_jumps > t.limits.max_backward_jumps) {
        t.loop_too_long();
        return -1;
    }
    return 0;
}

PyObject* bz_load_fast_root(bz_frame*, int i, PyObject* value) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return nullptr;
    if (i < t.state_size() && t.state()[i] == value && !t.stored_local(i)) {
        // A number that a symbol stands for was replaced before the first instruction: this one is equal by chance.
        braze::frontend::SourceId s = t.guards.sources.local(i);
        if (!t.is_number_input(s)) return t.loaded(Py_NewRef(value), s);
    }
    return t.result(Py_NewRef(value));
}

// The trace keeps what was there: if its __del__ is to run now, the instruction belongs to a real run.
static int before_dropping_local(Tracer& t, int i) {
    PyObject* old = i < t.state_size() && !t.stored_local(i) ? t.state()[i] : nullptr;
    if (!old || !braze::frontend::has_finaliser(old)) return 0;
    if (t.begin_hook()) t.stop("finaliser", braze::frontend::type_name(Py_TYPE(old)));
    return -1;
}

void bz_unbound_fast_root(int i) {
    Tracer& t = *Tracer::current();
    if (i < t.state_size() && !t.stored_local(i)) t.guards.absent(t.guards.sources.local(i));
}

int bz_store_fast_root(int i) {
    Tracer& t = *Tracer::current();
    if (before_dropping_local(t, i) < 0) return -1;
    t.store_local(i);
    return 0;
}

int bz_delete_fast_root(int i) {
    Tracer& t = *Tracer::current();
    if (before_dropping_local(t, i) < 0) return -1;
    if (i < t.state_size() && !t.stored_local(i)) t.guards.present(t.guards.sources.local(i));
    t.store_local(i);
    return 0;
}

// A list of a comprehension that began before has the place on the stack for a path.
int bz_mutate_container(PyObject* container) {
    Tracer& t = *Tracer::current();
    if (t.source_of(container) == braze::frontend::kNoSource) return 0;
    if (!t.begin_hook()) return -1;
    if (PyList_CheckExact(container)) return t.journal.before_list_append(container);
    t.stop("unknown-object", "a comprehension that began before");
    return -1;
}

int bz_before_raise(PyObject* exc) {
    Tracer& t = *Tracer::current();
    if (!t.begin_hook()) return -1;
    bool before = exc && PyExceptionInstance_Check(exc) &&
                  (exc == t.handled_before() || t.source_of(exc) != braze::frontend::kNoSource);
    if (!before) return 0;
    t.stop("unknown-object", "an exception from before is raised");
    return -1;
}

void bz_handler_moved(void) {
    Tracer& t = *Tracer::current();
    t.handler_event = t.root_event;
}

int bz_made(PyObject* fresh) {
    Tracer::current()->made(fresh);
    return 0;
}

int bz_unsupported(const char* what) {
    Tracer& t = *Tracer::current();
    t.stop("opcode", what);
    return -1;
}

}  // extern "C"
