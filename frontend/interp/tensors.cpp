#include "frontend/interp/tensors.h"

#include "frontend/interp/gradients.h"

#include <cstring>
#include <string_view>
#include <unordered_map>

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
    // (a leaf of the trace may be the result of an operator; of a function transform, what it wraps is its own)
    if (s == "retain_grad" && (t.input_of_fake(fake) >= 0 || t.capture->value_of(fake).kind == ValueRef::NotFake))
        return t.stop("autograd", "Tensor.retain_grad of a tensor from before");
    if (s == "grad_fn" || s == "is_leaf" || s == "retains_grad" || s == "_backward_hooks") {
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

bool is_plain_tensor(PyObject* o) {
    PyTypeObject *type = Py_TYPE(o), *base = type->tp_base;
    if (std::strcmp(type->tp_name, "Parameter") == 0 && base) base = base->tp_base;
    return base && std::strstr(base->tp_name, "TensorBase");
}

int set_tensor_attribute(Tracer& t, PyObject* fake, PyObject* name, PyObject* value) {
    if (PyUnicode_CompareWithASCIIString(name, "grad") == 0) return set_gradient(t, fake, value);
    t.stop("tensor-attribute", std::string("Tensor.") + PyUnicode_AsUTF8(name) + " is set");
    return -1;
}

}  // namespace braze::frontend
