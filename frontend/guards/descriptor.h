// Descriptors of C's own types say what they do in a few fields. A guard compares those: the descriptor itself cannot
// be referenced weakly, and one that is kept keeps its class.
#pragma once
#include <algorithm>

#include "frontend/source/lifetimes.h"

namespace braze::frontend {

struct DescriptorFields {
    static constexpr int kMost = 3;
    const void* field[kMost] = {};  // equal for descriptors of one type that do the same
    PyObject* holds[kMost] = {};    // the objects among what the descriptor refers to, nullptr where there are fewer
    bool operator==(const DescriptorFields& o) const { return std::equal(field, field + kMost, o.field); }
};

// Whether `o` is a property, classmethod, staticmethod, slot or getter of a class that may die. Exact types only.
bool is_plain_descriptor(PyObject* o);
DescriptorFields descriptor_fields(PyObject* o);

}  // namespace braze::frontend
