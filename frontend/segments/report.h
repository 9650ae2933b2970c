#pragma once
#include "frontend/support/ref.h"

namespace braze::frontend {

void set_logger(PyObject* callable);  // None: nobody listens

}  // namespace braze::frontend
