// Python code that torch runs inside the bridge is not the user's: shape functions, subclass hooks.
#pragma once
#include "frontend/cpython/api.h"

namespace braze::bridge {

class FrontendOff {
  public:
    FrontendOff() : old_(bz_mode_set(BZ_OFF)) {}
    ~FrontendOff() { bz_mode_set(old_); }
    FrontendOff(const FrontendOff&) = delete;
    FrontendOff& operator=(const FrontendOff&) = delete;

  private:
    int old_;
};

}  // namespace braze::bridge
