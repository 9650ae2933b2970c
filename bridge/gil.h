// The GIL, for code that the dispatcher may reach without it.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace braze::bridge {

class Gil {
  public:
    Gil() : state_(PyGILState_Ensure()) {}
    ~Gil() { PyGILState_Release(state_); }
    Gil(const Gil&) = delete;
    Gil& operator=(const Gil&) = delete;

  private:
    PyGILState_STATE state_;
};

}  // namespace braze::bridge
