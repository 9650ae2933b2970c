#include "frontend/segments/compiled.h"

#include <structmember.h>

#include <atomic>
#include <unordered_set>

#include "frontend/cpython/api.h"
#include "frontend/guards/filter.h"
#include "frontend/segments/binding.h"
#include "frontend/segments/execute.h"

namespace braze::frontend {

namespace {

struct Compiled {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject *wrapped, *options, *dict, *weakrefs;
    PyObject* function;  // the Python function that is traced, or nullptr: only its callees can be
    PyObject* self;      // bound to it, or nullptr
    PyObject* unbound;   // __func__ of a compiled bound method, once it was asked for
    Unit* unit;
    Unit* forced;  // what was compiled with the backend of a stance
    long generation;
};

std::atomic<long> g_generation{0};

Owned& forced_backend() {
    static auto* b = new Owned;  // never destroyed after the interpreter
    return *b;
}

// Keeps a unit while a call uses it: meanwhile another thread may forget it. (The GIL protects the count.)
class Hold {
  public:
    explicit Hold(Unit* u) : unit_(u) { ++u->users; }
    ~Hold() {
        if (--unit_->users == 0 && unit_->forgotten) delete unit_;
    }
    Hold(const Hold&) = delete;
    Unit* operator->() const { return unit_; }
    Unit* get() const { return unit_; }

  private:
    Unit* unit_;
};

void forget(Unit*& u) {
    Unit* old = std::exchange(u, nullptr);
    if (!old) return;
    old->forgotten = true;
    if (old->users == 0) delete old;
}

void find_function(Compiled* c) {
    static PyObject* name = PyUnicode_InternFromString("__call__");
    PyObject* w = c->wrapped;
    Py_CLEAR(c->function);
    Py_CLEAR(c->self);
    if (PyFunction_Check(w)) {
        c->function = Py_NewRef(w);
    } else if (PyMethod_Check(w) && PyFunction_Check(PyMethod_GET_FUNCTION(w))) {
        c->function = Py_NewRef(PyMethod_GET_FUNCTION(w));
        c->self = Py_NewRef(PyMethod_GET_SELF(w));
    } else if (PyObject* call = bz_type_lookup(Py_TYPE(w), name); call && PyFunction_Check(call)) {
        c->function = Py_NewRef(call);
        c->self = Py_NewRef(w);
    }
}

void set_backend(UnitOptions& o, PyObject* backend) {
    if (PyUnicode_Check(backend)) {
        o.backend = PyUnicode_AsUTF8(backend);
    } else if (backend != Py_None) {
        o.backend = "user";
        o.user_backend = Owned::share(backend);
    }
}

bool read_options(Compiled* c) {
    UnitOptions& o = c->unit->options;
    auto get = [&](const char* k) { return PyDict_GetItemString(c->options, k); };
    PyObject* v;
    if ((v = get("fullgraph"))) o.fullgraph = PyObject_IsTrue(v) > 0;
    if ((v = get("dynamic")) && v != Py_None) o.dynamic = PyObject_IsTrue(v) > 0;
    if ((v = get("native_backend"))) set_backend(o, v);
    if ((v = get("native_guard_filter")) && v != Py_None) o.guard_filter = Owned::share(v);
    o.recompile_limit = 0;  // the global one
    if ((v = get("recompile_limit")) && v != Py_None) o.recompile_limit = static_cast<int>(PyLong_AsLong(v));
    return !PyErr_Occurred();
}

// What this call uses: after a reset a new unit, under a stance that forces a backend another one.
Unit* unit_of(Compiled* c) {
    if (c->generation != g_generation) {
        auto* fresh = new Unit;
        fresh->options = c->unit->options;
        forget(c->forced);
        forget(c->unit);
        c->unit = fresh;
        c->generation = g_generation;
    }
    if (!forced_backend()) return c->unit;
    if (!c->forced || c->forced->made_for.get() != forced_backend().get()) {
        auto* fresh = new Unit;
        fresh->options = c->unit->options;
        fresh->options.user_backend = {};
        set_backend(fresh->options, forced_backend().get());
        fresh->made_for = forced_backend();
        forget(c->forced);
        c->forced = fresh;
    }
    return c->forced;
}

// Everything that must be put back when the call ends.
struct Activation {
    int mode;
    Unit* unit;
    explicit Activation(Unit* u) : mode(bz_mode_set(BZ_ACTIVE)), unit(set_current_unit(u)) { bz_hook_acquire(); }
    ~Activation() {
        bz_hook_release();
        set_current_unit(unit);
        bz_mode_set(mode);
    }
};

PyObject* call_through_frame(Compiled* c, Unit* u, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
    Activation active(u);
    return PyObject_Vectorcall(c->wrapped, args, nargsf, kwnames);
}

// The callable itself, with nothing compiled meanwhile.
PyObject* call_in_eager(Compiled* c, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
    int mode = bz_mode_set(BZ_OFF);
    PyObject* r = PyObject_Vectorcall(c->wrapped, args, nargsf, kwnames);
    bz_mode_set(mode);
    return r;
}

PyObject* compiled_vectorcall(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
    auto* c = reinterpret_cast<Compiled*>(o);
    int mode = bz_mode_get();
    if (mode == BZ_TRACING || bz_tracer_active(PyThreadState_Get()))
        return PyObject_Vectorcall(c->wrapped, args, nargsf, kwnames);
    Stance now = stance();
    if (now == Stance::ForceEager) return call_in_eager(c, args, nargsf, kwnames);
    Hold unit(unit_of(c));
    if (!c->function) return call_through_frame(c, unit.get(), args, nargsf, kwnames);
    // A hit at the first instruction whose segment returns needs no Python frame.
    auto* code = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(c->function)->func_code);
    auto it = unit->codes.find(code);
    if (it != unit->codes.end() && !it->second.positions.empty()) {
        Position& pos = it->second.positions.begin()->second;
        if (it->second.positions.begin()->first == 0 && !pos.segments.empty() && pos.segments[0]->returns) {
            BoundArguments bound(c->function, c->self, args, PyVectorcall_NARGS(nargsf), kwnames);
            if (bound.ok()) {
                Roots roots{bound.locals(), bound.size(), c->function};
                for (size_t i = 0; i < pos.segments.size(); ++i) {
                    std::shared_ptr<Segment> s = pos.segments[i];
                    if (!s->returns || s->error_on_break != error_on_break() || s->provisional) break;
                    int failed = -1;
                    RunResult r = run_segment(*s, roots, &failed);
                    if (r.kind == RunResult::Miss) continue;
                    if (r.kind == RunResult::Failed) {
                        PyErr_Clear();  // it is run again, in a frame that eager can take over
                        break;
                    }
                    s->used = true;
                    pos.used(i, s);
                    return r.value;
                }
            }
        }
    }
    return call_through_frame(c, unit.get(), args, nargsf, kwnames);
}

PyObject* guarded_vectorcall(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
    try {
        return compiled_vectorcall(o, args, nargsf, kwnames);
    } catch (const std::exception& e) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, e.what());
        return nullptr;
    }
}

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
    static const char* names[] = {"fn", "options", nullptr};
    PyObject *fn, *options;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!:CompiledFunction", const_cast<char**>(names), &fn, &PyDict_Type,
                                     &options))
        return nullptr;
    if (!PyCallable_Check(fn)) {
        PyErr_Format(PyExc_TypeError, "a callable is expected, got %.200s", Py_TYPE(fn)->tp_name);
        return nullptr;
    }
    auto* c = reinterpret_cast<Compiled*>(type->tp_alloc(type, 0));
    if (!c) return nullptr;
    c->vectorcall = guarded_vectorcall;
    c->wrapped = Py_NewRef(fn);
    c->options = PyDict_Copy(options);
    c->dict = PyDict_New();
    c->unit = new Unit;
    c->generation = g_generation;
    for (const char* n : {"__name__", "__qualname__", "__module__", "__doc__"}) {
        Owned v = Owned::steal(PyObject_GetAttrString(fn, n));
        if (!v) PyErr_Clear();
        if (v) PyDict_SetItemString(c->dict, n, v.get());
    }
    find_function(c);
    if (!read_options(c)) {
        Py_DECREF(c);
        return nullptr;
    }
    return reinterpret_cast<PyObject*>(c);
}

int compiled_traverse(PyObject* o, visitproc visit, void* arg) {
    auto* c = reinterpret_cast<Compiled*>(o);
    Py_VISIT(c->wrapped);
    Py_VISIT(c->options);
    Py_VISIT(c->dict);
    Py_VISIT(c->function);
    Py_VISIT(c->self);
    Py_VISIT(c->unbound);
    return 0;
}

int compiled_clear(PyObject* o) {
    auto* c = reinterpret_cast<Compiled*>(o);
    Py_CLEAR(c->wrapped);
    Py_CLEAR(c->options);
    Py_CLEAR(c->dict);
    Py_CLEAR(c->function);
    Py_CLEAR(c->self);
    Py_CLEAR(c->unbound);
    return 0;
}

void compiled_dealloc(PyObject* o) {
    auto* c = reinterpret_cast<Compiled*>(o);
    PyObject_GC_UnTrack(o);
    if (c->weakrefs) PyObject_ClearWeakRefs(o);
    compiled_clear(o);
    forget(c->forced);
    forget(c->unit);
    Py_TYPE(o)->tp_free(o);
}

PyObject* compiled_get(PyObject* o, PyObject* instance, PyObject*) {
    if (!instance || instance == Py_None) return Py_NewRef(o);
    return PyMethod_New(o, instance);
}

// A compiled bound method has what bound methods have (learning rate schedulers take opt.step apart).
PyObject* method_part(PyObject* o, const char* name) {
    auto* c = reinterpret_cast<Compiled*>(o);
    if (!PyMethod_Check(c->wrapped))
        return PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute '%s': it wraps no bound method",
                            Py_TYPE(o)->tp_name, name);
    return c->wrapped;
}

PyObject* compiled_self(PyObject* o, void*) {
    PyObject* method = method_part(o, "__self__");
    return method ? Py_NewRef(PyMethod_GET_SELF(method)) : nullptr;
}

PyObject* compiled_func(PyObject* o, void*) {
    auto* c = reinterpret_cast<Compiled*>(o);
    PyObject* method = method_part(o, "__func__");
    if (method && !c->unbound)
        c->unbound = PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(Py_TYPE(o)),
                                                  PyMethod_GET_FUNCTION(method), c->options, nullptr);
    return method ? Py_XNewRef(c->unbound) : nullptr;
}

PyMemberDef members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Compiled, wrapped), READONLY, "the callable that was compiled"},
    {"options", T_OBJECT, offsetof(Compiled, options), READONLY, "the options given"},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Compiled, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Compiled, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Compiled, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                        {"__self__", compiled_self, nullptr, "of a compiled bound method", nullptr},
                        {"__func__", compiled_func, nullptr, "its function, compiled", nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(compiled_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(compiled_dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(compiled_traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(compiled_clear)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_descr_get, reinterpret_cast<void*>(compiled_get)},
                       {Py_tp_members, members},
                       {Py_tp_getset, getset},
                       {Py_tp_doc, const_cast<char*>("What runs in place of a function that was compiled.")},
                       {0, nullptr}};
PyType_Spec spec = {"braze._C.CompiledFunction", sizeof(Compiled), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                        Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_BASETYPE,
                    slots};
PyTypeObject* g_type = nullptr;

Owned text(const std::string& s) {
    return Owned::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
}

void set(PyObject* d, const char* k, Owned v) {
    if (v) PyDict_SetItemString(d, k, v.get());
}

}  // namespace

PyObject* compiled_target(PyObject* o) {
    return g_type && PyObject_TypeCheck(o, g_type) ? reinterpret_cast<Compiled*>(o)->wrapped : nullptr;
}

void reset_units() { g_generation++; }

void force_backend(PyObject* backend) { forced_backend() = backend == Py_None ? Owned() : Owned::share(backend); }

PyObject* explain_compiled(PyObject* o) {
    if (!compiled_target(o)) {
        PyErr_Format(PyExc_TypeError, "a CompiledFunction is expected, got %.200s", Py_TYPE(o)->tp_name);
        return nullptr;
    }
    Hold unit(unit_of(reinterpret_cast<Compiled*>(o)));
    Unit& u = *unit.get();
    Owned out = Owned::steal(PyDict_New()), graphs = Owned::steal(PyList_New(0)), breaks = Owned::steal(PyList_New(0)),
          guards = Owned::steal(PyList_New(0));
    auto number = [](long n) { return Owned::steal(PyLong_FromLong(n)); };
    for (auto& [co, cs] : u.codes) {
        for (auto& [at, pos] : cs.positions) {
            pos.drop_those_over();
            for (auto& s : pos.segments) {
                if (s->graph) {
                    Owned g = Owned::steal(PyDict_New());
                    set(g.get(), "text", text(s->graph->text()));
                    set(g.get(), "ops", number(s->graph->torch_ops()));
                    set(g.get(), "aten_ops", number(s->graph->ops()));
                    set(g.get(), "kernels", number(s->graph->kernels()));
                    set(g.get(), "aten_calls", number(s->graph->aten_calls()));
                    PyList_Append(graphs.get(), g.get());
                }
                Owned names = Owned::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(co), "co_varnames"));
                for (int i = 0; i < static_cast<int>(s->guards.guards().size()); ++i) {
                    Owned g = Owned::steal(PyDict_New());
                    SourceId src = s->guards.guards()[static_cast<size_t>(i)].source;
                    const Guard& guard = s->guards.guards()[static_cast<size_t>(i)];
                    set(g.get(), "kind", text(guard_kind_name(guard.kind)));
                    set(g.get(), "checks", number(guard.checks));
                    set(g.get(), "seconds", Owned::steal(PyFloat_FromDouble(guard.seconds)));
                    set(g.get(), "source", text(src == kNoSource ? "" : s->guards.sources.describe(src, names.get())));
                    set(g.get(), "text", text(s->guards.text(i, names.get())));
                    PyList_Append(guards.get(), g.get());
                }
            }
        }
    }
    for (const Break& b : u.breaks) {
        const BreakInfo* info = find_break(b.id);
        Owned d = Owned::steal(PyDict_New());
        set(d.get(), "id", text(b.id));
        set(d.get(), "title", text(info ? info->title : b.id));
        set(d.get(), "explanation", text(info ? info->explanation : ""));
        set(d.get(), "hint", text(info ? info->hint : ""));
        set(d.get(), "detail", text(b.detail));
        set(d.get(), "file", text(b.file));
        set(d.get(), "line", number(b.line));
        set(d.get(), "function", text(b.function));
        PyList_Append(breaks.get(), d.get());
    }
    set(out.get(), "graphs", graphs);
    set(out.get(), "breaks", breaks);
    set(out.get(), "guards", guards);
    return out.release();
}

int compiled_init(PyObject* module) {
    g_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return g_type ? PyModule_AddObjectRef(module, "CompiledFunction", reinterpret_cast<PyObject*>(g_type)) : -1;
}

}  // namespace braze::frontend
