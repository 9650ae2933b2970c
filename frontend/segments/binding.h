// Binds the arguments of a call to a function's locals, as CPython does when it makes the frame, without making one.
#pragma once
#include "frontend/support/ref.h"

namespace braze::frontend {

class BoundArguments {
  public:
    // self: first positional argument or nullptr. Not ok(): the call is wrong or unusual; let CPython do it.
    BoundArguments(PyObject* function, PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames);
    ~BoundArguments();
    BoundArguments(const BoundArguments&) = delete;
    bool ok() const { return ok_; }
    PyObject* const* locals() const { return locals_; }
    int size() const { return size_; }

  private:
    bool bind(PyObject* function, PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames);
    PyObject* small_[32];
    PyObject** locals_ = small_;
    int size_ = 0;
    Owned varargs_, varkw_;
    bool ok_ = false;
};

}  // namespace braze::frontend
