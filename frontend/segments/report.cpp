// Counters, logs and settings.
#include "frontend/segments/report.h"

#include <atomic>

#include "frontend/segments/segment.h"

namespace braze::frontend {

Statistics& statistics() {
    static Statistics s;
    return s;
}

Settings& settings() {
    static auto* s = new Settings;  // holds Python objects: never destroyed after the interpreter
    return *s;
}

static std::atomic<Stance> g_stance{Stance::Default};
static thread_local int t_only_compiled = 0;
Stance stance() {
    Stance s = g_stance.load(std::memory_order_relaxed);
    return t_only_compiled > 0 && s != Stance::ForceEager ? Stance::EagerOnRecompile : s;
}
void set_stance(Stance s) { g_stance = s; }
UseOnlyCompiled::UseOnlyCompiled() { ++t_only_compiled; }
UseOnlyCompiled::~UseOnlyCompiled() { --t_only_compiled; }

bool& error_on_break() {
    static thread_local bool flag = false;
    return flag;
}

static Owned& logger() {
    static auto* l = new Owned;
    return *l;
}

void set_logger(PyObject* callable) { logger() = callable == Py_None ? Owned() : Owned::share(callable); }

void log(const char* kind, const std::string& message, const KeyValues& data) {
    if (!logger()) return;
    SavedError saved;
    int mode = bz_mode_set(BZ_OFF);
    Owned d = Owned::steal(PyDict_New());
    for (const auto& [k, v] : data) {
        Owned s = Owned::steal(PyUnicode_DecodeUTF8(v.data(), static_cast<Py_ssize_t>(v.size()), "replace"));
        if (s) PyDict_SetItemString(d.get(), k, s.get());
    }
    Owned r = Owned::steal(PyObject_CallFunction(logger().get(), "ssO", kind, message.c_str(), d.get()));
    if (!r) PyErr_Clear();  // a logger must not change what the program does
    bz_mode_set(mode);
}

void log_break(const Break& b) {
    const BreakInfo* info = find_break(b.id);
    log("graph_break", b.text(),
        {{"id", b.id},
         {"detail", b.detail},
         {"file", b.file},
         {"line", std::to_string(b.line)},
         {"function", b.function},
         {"title", info ? info->title : ""},
         {"explanation", info ? info->explanation : ""},
         {"hint", info ? info->hint : ""}});
}

std::string take_error() {
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    PyErr_NormalizeException(&type, &value, &tb);
    std::string out = type && PyType_Check(type) ? reinterpret_cast<PyTypeObject*>(type)->tp_name : "?";
    Owned s = Owned::steal(value ? PyObject_Str(value) : nullptr);
    const char* c = s ? PyUnicode_AsUTF8(s.get()) : nullptr;
    if (c) out += std::string(": ") + c;
    PyErr_Clear();
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(tb);
    return out;
}

}  // namespace braze::frontend
