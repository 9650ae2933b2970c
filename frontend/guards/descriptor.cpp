#include "frontend/guards/descriptor.h"

#include <structmember.h>

#include <cstring>

namespace braze::frontend {

namespace {

// A field that the type shows as a member of this name.
PyObject* member(PyObject* o, const char* name) {
    for (PyMemberDef* m = Py_TYPE(o)->tp_members; m && m->name; ++m)
        if (std::strcmp(m->name, name) == 0)
            return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(o) + m->offset);
    return nullptr;
}

bool holds_function(PyObject* o) { return Py_TYPE(o) == &PyClassMethod_Type || Py_TYPE(o) == &PyStaticMethod_Type; }

bool is_field(PyObject* o) { return Py_TYPE(o) == &PyMemberDescr_Type || Py_TYPE(o) == &PyGetSetDescr_Type; }

}  // namespace

bool is_plain_descriptor(PyObject* o) {
    if (is_field(o)) {
        PyTypeObject* owner = reinterpret_cast<PyDescrObject*>(o)->d_type;
        return (owner->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0;
    }
    return Py_TYPE(o) == &PyProperty_Type || holds_function(o);
}

DescriptorFields descriptor_fields(PyObject* o) {
    DescriptorFields d;
    if (is_field(o)) {
        auto* common = reinterpret_cast<PyDescrObject*>(o);
        d.field[0] = common->d_type;
        d.field[1] = Py_TYPE(o) == &PyMemberDescr_Type
                         ? static_cast<const void*>(reinterpret_cast<PyMemberDescrObject*>(o)->d_member)
                         : static_cast<const void*>(reinterpret_cast<PyGetSetDescrObject*>(o)->d_getset);
        d.holds[0] = reinterpret_cast<PyObject*>(common->d_type);
        return d;
    }
    int n = 0;
    for (const char* name : {"fget", "fset", "fdel"}) d.holds[n++] = holds_function(o) ? nullptr : member(o, name);
    if (holds_function(o)) d.holds[0] = member(o, "__func__");
    for (int i = 0; i < DescriptorFields::kMost; ++i) d.field[i] = d.holds[i];
    return d;
}

}  // namespace braze::frontend
