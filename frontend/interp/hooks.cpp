#include "frontend/interp/hooks.h"

#include "frontend/segments/segment.h"

namespace braze::frontend {

PyObject* add_hook(Tracer& t, Args a) {
    if (a.n != 5 || a.kwnames || !PyTuple_Check(a.v[1])) return t.stop("autograd", "a hook");
    PyObject *handle = a.v[0], *tensor = a.v[2], *function = a.v[3];
    const bool post = a.v[4] == Py_True;
    // (of a function transform, what it wraps is the transform's own)
    if (!t.capture->is_fake(tensor) || t.capture->value_of(tensor).kind == ValueRef::NotFake)
        return t.stop("autograd", "a hook on a tensor of a function transform");
    if (t.in_function_backward || t.in_hook) return t.stop("autograd", "a backward that registers a hook");
    const int input = t.input_of_fake(tensor);
    if (input < 0 && post) return t.stop("autograd", "a hook on a leaf that the program makes");
    if (input >= 0 && t.capture->mutated_input(input)) return t.stop("autograd", "a hook on what was written");
    t.touch(tensor);
    int number = -1;
    if (!post) {
        Owned hook = Owned::share(function);
        number = t.capture->add_hook(tensor, [&t, hook](PyObject* gradient) -> PyObject* {
            const bool was = std::exchange(t.in_hook, true);
            PyObject* changed = call(t, hook.get(), {&gradient, 1, nullptr});
            t.in_hook = was;
            return changed;
        });
        if (number < 0) return nullptr;
    }
    t.hooks.push_back({Owned::share(handle), Owned::share(a.v[1]), number, input, t.root_event});
    Py_RETURN_NONE;
}

PyObject* remove_hook(Tracer& t, Args a) {
    // (what is removed while the hooks of a tensor are called is called once more)
    if (t.in_hook || t.in_function_backward) return t.stop("autograd", "a backward that removes a hook");
    for (Hook& h : t.hooks)
        if (a.n == 1 && h.handle.get() == a.v[0] && !std::exchange(h.removed, true) && h.number >= 0)
            t.capture->remove_hook(h.number);
    Py_RETURN_NONE;
}

bool has_post_hook(const Tracer& t, int input) {
    for (const Hook& h : t.hooks)
        if (h.input == input && h.number < 0 && !h.removed) return true;
    return false;
}

bool record_hooks(Tracer& t, Recipes& r, std::vector<Effect>& out) {
    for (const Hook& h : t.hooks) {
        if (h.removed || h.input < 0) continue;
        Effect e{Effect::Call};
        e.value = r.record(t, h.handle.get());
        if (e.value < 0) return false;
        out.push_back(std::move(e));
    }
    return true;
}

long settle_hooks(Tracer& t, const Recipes& r, std::string* why) {
    if (t.hooks.empty()) return 0;
    for (const Hook& h : t.hooks)
        if (!h.removed && h.input >= 0 && t.capture->mutated_input(h.input)) {
            *why = "a hook on a tensor that is written later";
            return h.event;
        }
    std::vector<PyObject*> outputs;
    for (const Owned& o : r.outputs) outputs.push_back(o.get());
    // (where the graph ends at a break, the trace goes on for this)
    SavedError error;
    const bool aborting = std::exchange(t.aborting, false);
    std::optional<Break> reason = std::exchange(t.reason, std::nullopt);
    const size_t changes = t.journal.size();
    const int mode = bz_mode_set(BZ_TRACING);
    const bool in_function = std::exchange(t.in_function_backward, true);
    t.capture->resume();
    const int failed = t.capture->settle_hooks(outputs);
    t.capture->pause();
    t.in_function_backward = in_function;
    bz_mode_set(mode);
    PyErr_Clear();
    long event = 0;
    for (const Hook& h : t.hooks) {
        const bool bad = t.journal.size() != changes ? h.input < 0 && !h.removed : h.number == failed && failed >= 0;
        if (bad && !event) event = h.event;
    }
    *why = t.reason                      ? "a hook (" + t.reason->id + ": " + t.reason->detail + ")"
           : t.journal.size() != changes ? "a hook that has effects"
                                         : "a hook that is not the same operators each time";
    t.aborting = aborting;
    t.reason = std::move(reason);
    return event;
}

}  // namespace braze::frontend
