#include "core/codegen/cpu/symbols.h"

#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "core/codegen/cpu/compiler.h"

namespace braze::codegen {

namespace {

// x[i] = f(x[i]) or f(x[i], y[i]): the compiled code spills a vector, calls one of these, and loads the result.
template <class T, T (*f)(T)>
void map_lanes(T* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] = f(x[i]);
}
template <class T, T (*f)(T, T)>
void map_lanes(T* x, const T* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] = f(x[i], y[i]);
}

template <class F>
void* address(F* f) {
    return reinterpret_cast<void*>(f);
}
template <class T, T (*f)(T)>
void* lanes_function() {
    return address(static_cast<void (*)(T*, int64_t)>(map_lanes<T, f>));
}
template <class T, T (*f)(T, T)>
void* lanes_function() {
    return address(static_cast<void (*)(T*, const T*, int64_t)>(map_lanes<T, f>));
}

// Integer power as eager computes it: wraps; a negative exponent gives 0 unless the base is 1 or -1.
uint64_t wrapping_power(uint64_t base, uint64_t exponent) {
    uint64_t result = 1;
    for (; exponent; exponent >>= 1U, base *= base)
        if (exponent & 1U) result *= base;
    return result;
}
int64_t signed_power(int64_t base, int64_t exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
    return static_cast<int64_t>(wrapping_power(static_cast<uint64_t>(base), static_cast<uint64_t>(exponent)));
}
void lanes_signed_power(int64_t* x, const int64_t* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] = signed_power(x[i], y[i]);
}
void lanes_unsigned_power(uint64_t* x, const uint64_t* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] = wrapping_power(x[i], y[i]);
}

using Table = std::unordered_map<std::string, void*>;

const Table& own_functions() {
    static const Table table = {
#define MATH(op, function, sleef, accuracy, arity)                    \
    {"braze_lanes_" #function, lanes_function<double, ::function>()}, \
        {"braze_lanes_" #function "f", lanes_function<float, ::function##f>()},
#include "core/codegen/cpu/math_functions.def"
#undef MATH
        {"braze_lanes_power_i64", address(lanes_signed_power)},
        {"braze_lanes_power_u64", address(lanes_unsigned_power)},
    };
    return table;
}

struct Registry {
    std::mutex mutex;
    Table table;
};
Registry& registry() {
    static Registry* r = new Registry;  // compiled code may outlive static destructors
    return *r;
}

}  // namespace

void register_symbols(std::vector<std::pair<std::string, void*>> symbols) {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    for (auto& [name, where] : symbols) r.table[std::move(name)] = where;
}

void* resolve_symbol(const std::string& name) {
    auto own = own_functions().find(name);
    if (own != own_functions().end()) return own->second;
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    auto it = r.table.find(name);
    if (it != r.table.end()) return it->second;
    void* found = dlsym(RTLD_DEFAULT, name.c_str());
    if (found) r.table[name] = found;
    return found;
}

}  // namespace braze::codegen
