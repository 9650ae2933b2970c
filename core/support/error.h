// Errors say whose fault they are. The library never prints and never aborts: it throws one of these.
#pragma once
#include <stdexcept>
#include <string>

namespace braze {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};
// A bug in Braze. The Python layer falls back to eager with one warning (raises under BRAZE_STRICT=1).
struct InternalError : Error {
    using Error::Error;
};
// Something the user gave is wrong (an option, an IR text).
struct UserError : Error {
    using Error::Error;
};
// A limit of the machine or of an option was met.
struct LimitError : Error {
    using Error::Error;
};

[[noreturn]] void fail_internal(const char* file, int line, const std::string& what);

}  // namespace braze

// The message is evaluated only on failure.
#define BRAZE_CHECK(cond, msg)                                 \
    do {                                                       \
        if (!(cond)) [[unlikely]]                              \
            ::braze::fail_internal(__FILE__, __LINE__, (msg)); \
    } while (0)
