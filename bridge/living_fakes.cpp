#include "bridge/living_fakes.h"

#include <atomic>
#include <mutex>
#include <set>
#include <unordered_set>

#include "bridge/fake.h"

namespace braze::bridge {

namespace {

std::atomic<bool> g_watching{false};
std::mutex g_mutex;

std::unordered_set<FakeImpl*>& living() {
    static auto* fakes = new std::unordered_set<FakeImpl*>;  // (fakes may die after main)
    return *fakes;
}

// The classes of the objects that the collector finds to refer to this one.
void add_referrers(PyObject* fake, std::set<std::string>& names) {
    auto gc = pybind11::module_::import("gc");
    for (pybind11::handle r : gc.attr("get_referrers")(pybind11::handle(fake))) {
        if (pybind11::isinstance<pybind11::dict>(r))
            for (auto [key, value] : pybind11::reinterpret_borrow<pybind11::dict>(r))
                if (value.ptr() == fake) names.insert("a dict's " + pybind11::repr(key).cast<std::string>());
        names.insert(Py_TYPE(r.ptr())->tp_name);
    }
}

}  // namespace

void watch_fakes(bool on) { g_watching = on; }

bool watch_fake(FakeImpl* fake) {
    if (!g_watching.load(std::memory_order_relaxed)) return false;
    std::lock_guard lock(g_mutex);
    living().insert(fake);
    return true;
}

void forget_fake(FakeImpl* fake) {
    std::lock_guard lock(g_mutex);
    living().erase(fake);
}

std::string living_fakes() {
    auto none = [] {
        std::lock_guard lock(g_mutex);
        return living().empty();
    };
    if (none()) return {};
    PyGC_Collect();
    if (none()) return {};
    std::vector<at::Tensor> left;
    {
        std::lock_guard lock(g_mutex);
        for (FakeImpl* f : living()) {
            c10::raw::intrusive_ptr::incref(f);
            left.emplace_back(c10::intrusive_ptr<c10::TensorImpl>::reclaim(f));
        }
        living().clear();
    }
    std::set<std::string> names;
    for (const at::Tensor& t : left) {
        auto object = pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(t));
        if (object) add_referrers(object.ptr(), names);
    }
    PyErr_Clear();
    std::string text = std::to_string(left.size()) + " fake tensors outlived their trace; what refers to them:";
    for (const std::string& n : names) text += " " + n + ",";
    text.back() = ';';
    if (names.empty()) text += " no Python object;";
    const FakeImpl* first = as_fake(left[0]);
    return text + c10::str(" the first: value ", first->value(), " of sizes ", first->twin().sizes());
}

}  // namespace braze::bridge
