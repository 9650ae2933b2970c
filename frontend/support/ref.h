// Owned and borrowed references. A signature that takes or returns `Owned` moves a reference; `PyObject*` is always
// borrowed.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <utility>

namespace braze::frontend {

class Owned {
  public:
    Owned() = default;
    Owned(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
    static Owned steal(PyObject* p) {
        Owned o;
        o.p_ = p;
        return o;
    }
    static Owned share(PyObject* p) {
        Py_XINCREF(p);
        return steal(p);
    }
    Owned(const Owned& o) : p_(o.p_) { Py_XINCREF(p_); }
    Owned(Owned&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
    Owned& operator=(Owned o) noexcept {
        std::swap(p_, o.p_);
        return *this;
    }
    ~Owned() { Py_XDECREF(p_); }
    PyObject* get() const { return p_; }
    PyObject* release() { return std::exchange(p_, nullptr); }
    PyObject* new_reference() const {
        Py_XINCREF(p_);
        return p_;
    }
    explicit operator bool() const { return p_ != nullptr; }

  private:
    PyObject* p_ = nullptr;
};

// Keeps the pending exception over code that may touch it.
class SavedError {
  public:
    SavedError() { PyErr_Fetch(&type_, &value_, &traceback_); }
    ~SavedError() { PyErr_Restore(type_, value_, traceback_); }
    SavedError(const SavedError&) = delete;
    SavedError& operator=(const SavedError&) = delete;

  private:
    PyObject *type_, *value_, *traceback_;
};

}  // namespace braze::frontend
