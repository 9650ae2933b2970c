#include "frontend/interp/tensors.h"

#include "frontend/interp/gradients.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace braze::frontend {

// What a graph cannot answer about a tensor, by name: attribute or method.
static const char* forbidden(std::string_view name) {
    static const std::unordered_map<std::string_view, const char*> table = {
#define TENSOR_BREAK(name, id) {name, id},
#include "frontend/interp/tensor_breaks.def"
#undef TENSOR_BREAK
    };
    auto it = table.find(name);
    return it == table.end() ? nullptr : it->second;
}

PyObject* tensor_attribute(Tracer& t, PyObject* fake, PyObject* name) {
    const char* n = PyUnicode_AsUTF8(name);
    if (!n) return nullptr;
    std::string_view s = n;
    if (const char* id = forbidden(s)) return t.stop(id, std::string("Tensor.") + n);
    t.touch(fake);
    if (s == "grad") return gradient(t, fake);
    if (s == "data") return t.result(PyObject_CallMethod(fake, "detach", nullptr));
    int input = -1;
    if (s == "grad_fn" || s == "is_leaf" || s == "_backward_hooks") {
        input = t.input_of_fake(fake);
        if (input >= 0) {  // facts about the real tensor: guarded
            PyObject* real = t.inputs[static_cast<size_t>(input)].real.get();
            SourceId src =
                t.guards.sources.add(SourceKind::Attribute, t.inputs[static_cast<size_t>(input)].source, name);
            Owned v = Owned::steal(PyObject_GetAttr(real, name));
            if (!v) return nullptr;
            if (!is_primitive(v.get()) && !t.is_tensor(v.get()))
                return t.stop("tensor-attribute", std::string("Tensor.") + n);
            return t.loaded(v.release(), src);
        }
    }
    PyObject** dict = bz_instance_dict_pointer(fake);
    PyObject* own = dict && *dict ? PyDict_GetItemWithError(*dict, name) : nullptr;
    if (own && (input = t.input_of_fake(fake)) >= 0) {
        SourceTable& src = t.guards.sources;
        SourceId d = src.add(SourceKind::InstanceDict, t.inputs[static_cast<size_t>(input)].source, nullptr);
        return t.loaded(Py_NewRef(own), src.add(SourceKind::DictItem, d, name));
    }
    if (!own && (input = t.input_of_fake(fake)) >= 0 && !bz_type_lookup(Py_TYPE(fake), name)) {
        // hasattr(tensor, "mark"): its absence is an assumption
        SourceId attr = t.guards.sources.add(SourceKind::Attribute, t.inputs[static_cast<size_t>(input)].source, name);
        t.guards.absent(attr);
    }
    return t.result(PyObject_GetAttr(fake, name));
}

// torch.Tensor and torch.nn.Parameter, whose operators nobody overrides.
static bool is_plain_tensor(PyObject* o) {
    PyTypeObject *type = Py_TYPE(o), *base = type->tp_base;
    if (std::strcmp(type->tp_name, "Parameter") == 0 && base) base = base->tp_base;
    return base && std::strstr(base->tp_name, "TensorBase");
}

// torch's indexing takes symbolic slices and makes symbolic indices constants; select() takes them.
PyObject* tensor_item(PyObject* fake, PyObject* key) {
    auto symbolic = [](PyObject* o) { return Py_TYPE(o) == symbolic_int; };
    if (!is_plain_tensor(fake)) return PyObject_GetItem(fake, key);
    if (symbolic(key)) return PyObject_CallMethod(fake, "select", "iO", 0, key);
    if (!PyTuple_CheckExact(key)) return PyObject_GetItem(fake, key);
    std::vector<std::pair<int, PyObject*>> front, back;  // axis of the rest (back: from the end), index
    int axis = 0, kept = 0;
    bool ellipsis = false;
    Owned rest = Owned::steal(PyTuple_New(PyTuple_GET_SIZE(key)));
    if (!rest) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
        PyObject *v = PyTuple_GET_ITEM(key, i), *whole = nullptr;
        if (v == Py_Ellipsis) {
            if (ellipsis) return PyObject_GetItem(fake, key);
            ellipsis = true;
        } else if (symbolic(v)) {
            if (!(whole = PySlice_New(nullptr, nullptr, nullptr))) return nullptr;
            (ellipsis ? back : front).emplace_back(ellipsis ? kept : axis, v);
            ++(ellipsis ? kept : axis);
        } else if (PySlice_Check(v) || v == Py_None) {
            ++(ellipsis ? kept : axis);
        } else if (!PyLong_CheckExact(v)) {
            return PyObject_GetItem(fake, key);
        }
        PyTuple_SET_ITEM(rest.get(), i, whole ? whole : Py_NewRef(v));
    }
    if (front.empty() && back.empty()) return PyObject_GetItem(fake, key);
    std::reverse(front.begin(), front.end());
    for (auto& [place, index] : back) place -= kept;
    back.insert(back.end(), front.begin(), front.end());
    Owned r = Owned::steal(PyObject_GetItem(fake, rest.get()));
    for (auto [place, index] : back) {
        if (!r) return nullptr;
        r = Owned::steal(PyObject_CallMethod(r.get(), "select", "iO", place, index));
    }
    return r.release();
}

int set_tensor_attribute(Tracer& t, PyObject* fake, PyObject* name, PyObject* value) {
    if (PyUnicode_CompareWithASCIIString(name, "grad") == 0) return set_gradient(t, fake, value);
    t.stop("tensor-attribute", std::string("Tensor.") + PyUnicode_AsUTF8(name) + " is set");
    return -1;
}

}  // namespace braze::frontend
