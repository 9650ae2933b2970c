// The bridge's implementation of the front end's tensor interface.
#pragma once
#include "frontend/bridge_api.h"

namespace braze::bridge {

frontend::TensorBridge* tensor_bridge();
// Once, before the bridge is used. False: a Python exception is set.
bool init();  // torch must have been imported

}  // namespace braze::bridge
