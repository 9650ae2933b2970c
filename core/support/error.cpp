#include "core/support/error.h"

namespace braze {

void fail_internal(const char* file, int line, const std::string& what) {
    throw InternalError(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

}  // namespace braze
