// Functions of torch that would ask for a symbolic number, by others that take it.
#include "frontend/interp/calls.h"
#include "frontend/interp/tensors.h"
#include "frontend/interp/tracer.h"

namespace braze::frontend {

static Owned torch_attribute(const char* name) {
    static PyObject* torch = PyUnicode_InternFromString("torch");
    Owned module = Owned::steal(PyImport_GetModule(torch));
    return Owned::steal(module ? PyObject_GetAttrString(module.get(), name) : nullptr);
}

namespace {

struct Numbers {
    int count = 0;
    bool symbolic = false, floats = false, right = true;
};

constexpr int kMostElements = 64;  // each is an operator of the graph

// The sizes of nested lists must agree: `shape` is that of the first.
void look_at(PyObject* data, size_t level, std::vector<Py_ssize_t>& shape, bool first, Numbers& n) {
    bool list = PyList_CheckExact(data) || PyTuple_CheckExact(data);
    if (!list) {
        bool is_float = PyFloat_CheckExact(data) || Py_TYPE(data) == symbolic_float;
        n.symbolic |= is_symbolic(data);
        n.floats |= is_float;
        n.right &= (is_float || PyLong_CheckExact(data) || is_symbolic(data)) && level == shape.size();
        n.right &= ++n.count <= kMostElements;
        return;
    }
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(data);
    if (first && level == shape.size()) shape.push_back(size);
    n.right &= level < shape.size() && shape[level] == size && size > 0 && level < 8;
    for (Py_ssize_t i = 0; i < size && n.right; ++i)
        look_at(PySequence_Fast_GET_ITEM(data, i), level + 1, shape, first && i == 0, n);
}

// The tensor of a number; of a list, those of its elements on one another.
Owned build(PyObject* data, PyObject* options) {
    if (!PyList_CheckExact(data) && !PyTuple_CheckExact(data)) {
        bool is_float = Py_TYPE(data) == symbolic_float;
        Owned function = torch_attribute(is_float ? "scalar_tensor" : "full");
        Owned arguments = Owned::steal(is_float ? PyTuple_Pack(1, data) : Py_BuildValue("(()O)", data));
        if (!function || !arguments) return nullptr;
        return Owned::steal(PyObject_Call(function.get(), arguments.get(), options));
    }
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(data);
    Owned parts = Owned::steal(PyList_New(n)), stack = torch_attribute("stack");
    if (!parts || !stack) return nullptr;
    for (Py_ssize_t i = 0; i < n; ++i) {
        Owned part = build(PySequence_Fast_GET_ITEM(data, i), options);
        if (!part) return nullptr;
        PyList_SET_ITEM(parts.get(), i, part.release());
    }
    return Owned::steal(PyObject_CallOneArg(stack.get(), parts.get()));
}

}  // namespace

std::optional<PyObject*> tensor_of_numbers(Args a) {
    if (a.n != 1) return std::nullopt;
    Numbers n;
    std::vector<Py_ssize_t> shape;
    look_at(a.v[0], 0, shape, true, n);
    if (!n.right || !n.symbolic) return std::nullopt;
    Owned options = Owned::steal(PyDict_New());
    PyObject* dtype = nullptr;
    for (Py_ssize_t i = 0; i < a.total() - a.n; ++i) {
        PyObject *name = PyTuple_GET_ITEM(a.kwnames, i), *value = a.v[a.n + i];
        bool is_dtype = PyUnicode_CompareWithASCIIString(name, "dtype") == 0;
        if (!is_dtype && PyUnicode_CompareWithASCIIString(name, "device") != 0) return std::nullopt;
        if (is_dtype && value != Py_None) dtype = value;
        if (value != Py_None && PyDict_SetItem(options.get(), name, value) < 0) return nullptr;
    }
    Owned int64 = torch_attribute("int64"), float64 = torch_attribute("float64"), float32 = torch_attribute("float32");
    bool known = dtype == float64.get() || dtype == float32.get() || (dtype == int64.get() && !n.floats);
    if (dtype && !known) return std::nullopt;  // a number may not fit
    if (!dtype && !n.floats && PyDict_SetItemString(options.get(), "dtype", int64.get()) < 0) return nullptr;
    if (!dtype && n.floats) {
        Owned function = torch_attribute("get_default_dtype");
        Owned usual = Owned::steal(function ? PyObject_CallNoArgs(function.get()) : nullptr);
        if (!usual || PyDict_SetItemString(options.get(), "dtype", usual.get()) < 0) return nullptr;
    }
    return build(a.v[0], options.get()).release();
}

Owned selected_by_symbols(PyObject* tensor, Owned& key) {
    if (!is_plain_tensor(tensor)) return nullptr;
    bool tuple = PyTuple_CheckExact(key.get());
    const Py_ssize_t n = tuple ? PyTuple_GET_SIZE(key.get()) : 1;
    auto at = [&](Py_ssize_t i) { return tuple ? PyTuple_GET_ITEM(key.get(), i) : key.get(); };
    auto is_index = [](PyObject* o) { return PyLong_CheckExact(o) || Py_TYPE(o) == symbolic_int; };
    Py_ssize_t axes = 0, ellipses = 0;
    bool any = false;
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject* k = at(i);
        any |= Py_TYPE(k) == symbolic_int;
        if (is_index(k) || PySlice_Check(k)) {
            ++axes;
        } else if (k == Py_Ellipsis) {
            ++ellipses;
        } else if (k != Py_None) {
            return nullptr;
        }
    }
    Owned dim = Owned::steal(any && ellipses <= 1 ? PyObject_GetAttrString(tensor, "ndim") : nullptr);
    if (!dim) return nullptr;
    const Py_ssize_t rest = PyLong_AsSsize_t(dim.get()) - axes;
    if (rest < 0) return nullptr;  // torch says so
    Owned result = Owned::share(tensor), left = Owned::steal(PyList_New(0));
    Py_ssize_t axis = 0;
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject* k = at(i);
        if (Py_TYPE(k) == symbolic_int) {
            Owned size = Owned::steal(PyObject_CallMethod(result.get(), "size", "n", axis));
            Owned least = Owned::steal(size ? PyNumber_Negative(size.get()) : nullptr);
            int inside = least ? PyObject_RichCompareBool(k, size.get(), Py_LT) : -1;
            if (inside > 0) inside = PyObject_RichCompareBool(k, least.get(), Py_GE);
            if (inside <= 0) return nullptr;  // torch's own words for it, or an error
            Owned next = Owned::steal(PyObject_CallMethod(result.get(), "select", "nO", axis, k));
            if (!next) return nullptr;
            result = std::move(next);
            continue;
        }
        if (PyList_Append(left.get(), k) < 0) return nullptr;
        axis += k == Py_None ? 0 : k == Py_Ellipsis ? rest : 1;
    }
    key = Owned::steal(PyList_AsTuple(left.get()));
    return key ? std::move(result) : nullptr;
}

}  // namespace braze::frontend
