// Addresses of the functions that compiled code calls.
#pragma once
#include <string>

namespace braze::codegen {

// Registered, or one of our own lane functions, or found in the process; nullptr if nowhere.
void* resolve_symbol(const std::string& name);

}  // namespace braze::codegen
