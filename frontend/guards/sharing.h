// Which tensors share memory, as a graph that writes some of them, or hands some out, assumes it.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace braze::frontend {

struct Sharing {
    std::vector<int> group;     // by tensor: those of one group share their memory
    std::vector<bool> written;  // by group: its memory is nobody else's

    // Two of the tensors, in the order of `group`, for which that is not so. A nullptr shares nothing.
    std::optional<std::pair<size_t, size_t>> conflict(const std::vector<PyObject*>& tensors) const;
};

}  // namespace braze::frontend
