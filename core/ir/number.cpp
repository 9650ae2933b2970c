#include "core/ir/number.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/support/error.h"

namespace braze::ir {

namespace {

template <class T>
T read(const void* p, int64_t n) {
    T x;
    std::memcpy(&x, static_cast<const char*>(p) + n * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return x;
}
template <class T>
void write(void* p, int64_t n, T x) {
    std::memcpy(static_cast<char*>(p) + n * static_cast<int64_t>(sizeof(T)), &x, sizeof(T));
}

float from_bf16(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16U); }
uint16_t to_bf16(float x) {
    uint32_t u = std::bit_cast<uint32_t>(x);
    if (std::isnan(x)) return 0x7fc0;
    return static_cast<uint16_t>((u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U);
}
float from_f16(uint16_t b) {
    const int exponent = b / 1024 % 32, mantissa = b % 1024;
    float x;
    if (exponent == 31)
        x = mantissa ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
    else if (exponent == 0)
        x = std::ldexp(static_cast<float>(mantissa), -24);
    else
        x = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
    return b >= 0x8000 ? -x : x;
}
uint16_t to_f16(float x) {
    const int sign = std::signbit(x) ? 0x8000 : 0;
    int bits;
    const float a = std::fabs(x);
    if (std::isnan(x)) {
        bits = 0x7e00;
    } else if (a >= 65520.0F) {
        bits = 0x7c00;
    } else if (a < std::ldexp(1.0F, -14)) {
        bits = static_cast<int>(std::nearbyint(std::ldexp(a, 24)));
    } else {
        int e;
        std::frexp(a, &e);  // a = m * 2^e, m in [0.5, 1); below 1024..2048: 2048 carries into the exponent
        bits = (e + 14) * 1024 + static_cast<int>(std::nearbyint(std::ldexp(a, 11 - e))) - 1024;
    }
    return static_cast<uint16_t>(sign + bits);
}

bool is_small_float(DType d) { return d == DType::F32 || is_half(d); }

int64_t wrap(DType d, int64_t x) {
    switch (d) {
        case DType::Bool: return x != 0;
        case DType::U8: return static_cast<uint8_t>(x);
        case DType::I8: return static_cast<int8_t>(x);
        case DType::I16: return static_cast<int16_t>(x);
        case DType::U16: return static_cast<uint16_t>(x);
        case DType::I32: return static_cast<int32_t>(x);
        case DType::U32: return static_cast<uint32_t>(x);
        default: return x;
    }
}

double round_float(DType d, double x) {
    if (d == DType::F32) return static_cast<float>(x);
    if (d == DType::BF16) return from_bf16(to_bf16(static_cast<float>(x)));
    if (d == DType::F16) return from_f16(to_f16(static_cast<float>(x)));
    return x;
}

template <class T>
T floor_divide(T a, T b) {  // as torch.floor_divide
    if (b == 0) return a / b;
    T m = std::fmod(a, b), q = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0)) q -= 1;
    if (q == 0) return std::copysign(T(0), a / b);
    T f = std::floor(q);
    if (q - f > T(0.5)) f += 1;
    return f;
}
template <class T>
T remainder(T a, T b) {
    T m = std::fmod(a, b);
    return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}

template <class T>
T unary(Op op, T x) {
    switch (op) {
        case Op::Neg: return -x;
        case Op::Abs: return std::fabs(x);
        case Op::Exp: return std::exp(x);
        case Op::Exp2: return std::exp2(x);
        case Op::Expm1: return std::expm1(x);
        case Op::Log: return std::log(x);
        case Op::Log2: return std::log2(x);
        case Op::Log10: return std::log10(x);
        case Op::Log1p: return std::log1p(x);
        case Op::Sqrt: return std::sqrt(x);
        case Op::Rsqrt: return T(1) / std::sqrt(x);
        case Op::Reciprocal: return T(1) / x;
        case Op::Sin: return std::sin(x);
        case Op::Cos: return std::cos(x);
        case Op::Tan: return std::tan(x);
        case Op::Asin: return std::asin(x);
        case Op::Acos: return std::acos(x);
        case Op::Atan: return std::atan(x);
        case Op::Sinh: return std::sinh(x);
        case Op::Cosh: return std::cosh(x);
        case Op::Tanh: return std::tanh(x);
        case Op::Asinh: return std::asinh(x);
        case Op::Acosh: return std::acosh(x);
        case Op::Atanh: return std::atanh(x);
        case Op::Erf: return std::erf(x);
        case Op::Erfc: return std::erfc(x);
        case Op::Sigmoid: return T(1) / (T(1) + std::exp(-x));
        case Op::Floor: return std::floor(x);
        case Op::Ceil: return std::ceil(x);
        case Op::Round: return std::nearbyint(x);
        case Op::Trunc: return std::trunc(x);
        case Op::Sign: return static_cast<T>((x > 0) - (x < 0));
        case Op::Relu: return x < 0 ? T(0) : x;
        default: throw InternalError("no float meaning of " + std::string(name(op)));
    }
}

template <class T>
T binary(Op op, T a, T b) {
    const bool nan = std::isnan(a) || std::isnan(b);
    switch (op) {
        case Op::Add: return a + b;
        case Op::Sub: return a - b;
        case Op::Mul: return a * b;
        case Op::Div: return a / b;
        case Op::FloorDiv: return floor_divide(a, b);
        case Op::TruncDiv: return std::trunc(a / b);
        case Op::Mod: return remainder(a, b);
        case Op::Fmod: return std::fmod(a, b);
        case Op::Pow: return std::pow(a, b);
        case Op::Atan2: return std::atan2(a, b);
        case Op::Maximum: return nan ? std::numeric_limits<T>::quiet_NaN() : std::max(a, b);
        case Op::Minimum: return nan ? std::numeric_limits<T>::quiet_NaN() : std::min(a, b);
        case Op::Fmax: return std::fmax(a, b);
        case Op::Fmin: return std::fmin(a, b);
        case Op::CopySign: return std::copysign(a, b);
        case Op::Hypot: return std::hypot(a, b);
        default: throw InternalError("no float meaning of " + std::string(name(op)));
    }
}

template <class T>
bool compare(Op op, T a, T b) {
    switch (op) {
        case Op::Eq: return a == b;
        case Op::Ne: return a != b;
        case Op::Lt: return a < b;
        case Op::Le: return a <= b;
        case Op::Gt: return a > b;
        default: return a >= b;
    }
}
bool is_comparison(Op op) { return op >= Op::Eq && op <= Op::Ge; }

int64_t power(int64_t base, int64_t exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    uint64_t r = 1, b = static_cast<uint64_t>(base);
    for (uint64_t e = static_cast<uint64_t>(exponent); e; e /= 2, b *= b)
        if (e % 2) r *= b;
    return static_cast<int64_t>(r);
}

int64_t integer_division(Op op, DType d, int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (d == DType::U64) {
        const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
        return static_cast<int64_t>(op == Op::Mod || op == Op::Fmod ? x % y : x / y);
    }
    if (b == -1) return op == Op::Mod || op == Op::Fmod ? 0 : static_cast<int64_t>(0 - static_cast<uint64_t>(a));
    const int64_t q = a / b, r = a % b;
    const bool down = r != 0 && (r < 0) != (b < 0);
    switch (op) {
        case Op::FloorDiv: return down ? q - 1 : q;
        case Op::TruncDiv: return q;
        case Op::Mod: return down ? r + b : r;
        default: return r;
    }
}

int64_t integer(Op op, DType d, const Number* x) {
    const int64_t a = x[0].i, b = kind(op) == OpKind::Unary ? 0 : x[1].i;
    const uint64_t ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
    const bool less = d == DType::U64 ? ua < ub : a < b;
    const int bits = 8 * size_of(d);
    switch (op) {
        case Op::Neg: return static_cast<int64_t>(0 - ua);
        case Op::Abs: return a < 0 && is_signed(d) ? static_cast<int64_t>(0 - ua) : a;
        case Op::Sign: return is_signed(d) ? (a > 0) - (a < 0) : a != 0;
        case Op::Relu: return a < 0 && is_signed(d) ? 0 : a;
        case Op::Floor:
        case Op::Ceil:
        case Op::Round:
        case Op::Trunc: return a;
        case Op::BitNot: return d == DType::Bool ? a == 0 : -1 - a;
        case Op::Add: return static_cast<int64_t>(ua + ub);
        case Op::Sub: return static_cast<int64_t>(ua - ub);
        case Op::Mul: return static_cast<int64_t>(ua * ub);
        case Op::FloorDiv:
        case Op::TruncDiv:
        case Op::Mod:
        case Op::Fmod: return integer_division(op, d, a, b);
        case Op::Pow: return power(a, b);
        case Op::Maximum:
        case Op::Fmax: return less ? b : a;
        case Op::Minimum:
        case Op::Fmin: return less ? a : b;
        case Op::And: return static_cast<int64_t>(ua & ub);
        case Op::Or: return static_cast<int64_t>(ua | ub);
        case Op::Xor: return static_cast<int64_t>(ua ^ ub);
        case Op::Shl: return b < 0 || b >= bits ? 0 : static_cast<int64_t>(ua << ub);
        case Op::Shr:
            if (b < 0 || b >= bits) return is_signed(d) && a < 0 ? -1 : 0;
            return d == DType::U64 ? static_cast<int64_t>(ua >> ub)
                                   : a >> b;  // NOLINT(bugprone-signed-bitwise): arithmetic
        default: throw InternalError("no integer meaning of " + std::string(name(op)));
    }
}

}  // namespace

Number load_number(DType d, const void* p, int64_t n) {
    switch (d) {
        case DType::Bool: return {.i = read<uint8_t>(p, n) != 0};
        case DType::U8: return {.i = read<uint8_t>(p, n)};
        case DType::I8: return {.i = read<int8_t>(p, n)};
        case DType::I16: return {.i = read<int16_t>(p, n)};
        case DType::U16: return {.i = read<uint16_t>(p, n)};
        case DType::I32: return {.i = read<int32_t>(p, n)};
        case DType::U32: return {.i = read<uint32_t>(p, n)};
        case DType::I64:
        case DType::U64: return {.i = read<int64_t>(p, n)};
        case DType::F16: return {.f = from_f16(read<uint16_t>(p, n))};
        case DType::BF16: return {.f = from_bf16(read<uint16_t>(p, n))};
        case DType::F32: return {.f = read<float>(p, n)};
        case DType::F64: return {.f = read<double>(p, n)};
        default: throw InternalError("no code for dtype " + std::string(name(d)));
    }
}

void store_number(DType d, void* p, int64_t n, Number x) {
    switch (d) {
        case DType::F16: return write<uint16_t>(p, n, to_f16(static_cast<float>(x.f)));
        case DType::BF16: return write<uint16_t>(p, n, to_bf16(static_cast<float>(x.f)));
        case DType::F32: return write<float>(p, n, static_cast<float>(x.f));
        case DType::F64: return write<double>(p, n, x.f);
        default: break;
    }
    switch (size_of(d)) {
        case 1: return write<uint8_t>(p, n, static_cast<uint8_t>(x.i));
        case 2: return write<uint16_t>(p, n, static_cast<uint16_t>(x.i));
        case 4: return write<uint32_t>(p, n, static_cast<uint32_t>(x.i));
        default: return write<int64_t>(p, n, x.i);
    }
}

Number cast_number(DType from, DType to, Number x) {
    if (is_float(from)) {
        if (is_float(to)) return {.f = round_float(to, x.f)};
        if (to == DType::Bool) return {.i = x.f != 0};
        // out of range is undefined in C++; any value will do
        if (!(x.f > -9.3e18 && x.f < 1.85e19)) return {.i = wrap(to, std::numeric_limits<int64_t>::min())};
        if (x.f >= 9.2e18) return {.i = wrap(to, static_cast<int64_t>(static_cast<uint64_t>(x.f)))};
        return {.i = wrap(to, x.f < -9223372036854775807.0 ? std::numeric_limits<int64_t>::min()
                                                           : static_cast<int64_t>(x.f))};
    }
    if (!is_float(to)) return {.i = wrap(to, x.i)};
    // one rounding, not by way of double
    if (is_small_float(to)) {
        const float f = from == DType::U64 ? static_cast<float>(static_cast<uint64_t>(x.i)) : static_cast<float>(x.i);
        return {.f = round_float(to, f)};
    }
    return {.f = from == DType::U64 ? static_cast<double>(static_cast<uint64_t>(x.i)) : static_cast<double>(x.i)};
}

Number apply(Op op, DType d, const Number* x) {
    if (op == Op::Where) return x[0].i ? x[1] : x[2];
    const bool fl = is_float(d);
    if (op == Op::LogicalNot) return {.i = fl ? x[0].f == 0 : x[0].i == 0};
    if (op == Op::IsNan) return {.i = fl && std::isnan(x[0].f)};
    if (op == Op::IsInf) return {.i = fl && std::isinf(x[0].f)};
    if (op == Op::SignBit) return {.i = fl ? std::signbit(x[0].f) : is_signed(d) && x[0].i < 0};
    if (is_comparison(op)) {
        if (fl) return {.i = compare(op, x[0].f, x[1].f)};
        if (d == DType::U64) return {.i = compare(op, static_cast<uint64_t>(x[0].i), static_cast<uint64_t>(x[1].i))};
        return {.i = compare(op, x[0].i, x[1].i)};
    }
    if (op == Op::Fma) {
        if (!fl)
            return {.i = wrap(d, static_cast<int64_t>(static_cast<uint64_t>(x[0].i) * static_cast<uint64_t>(x[1].i) +
                                                      static_cast<uint64_t>(x[2].i)))};
        return {.f = d == DType::F64 ? std::fma(x[0].f, x[1].f, x[2].f)
                                     : std::fma(static_cast<float>(x[0].f), static_cast<float>(x[1].f),
                                                static_cast<float>(x[2].f))};
    }
    if (!fl) return {.i = wrap(d, integer(op, d, x))};
    const bool one = kind(op) == OpKind::Unary;
    if (d == DType::F64) return {.f = one ? unary(op, x[0].f) : binary(op, x[0].f, x[1].f)};
    const float a = static_cast<float>(x[0].f), b = one ? 0.0F : static_cast<float>(x[1].f);
    return {.f = one ? unary(op, a) : binary(op, a, b)};
}

Accumulator::Accumulator(Op op, DType d) : op_(op), d_(d) {
    const bool fl = is_float(d);
    if (op == Op::Prod) best_ = {.f = 1, .i = 1}, sum_ = 1;
    if (op == Op::All) best_.i = 1;
    if (op == Op::Max && fl) best_.f = -std::numeric_limits<double>::infinity();
    if (op == Op::Min && fl) best_.f = std::numeric_limits<double>::infinity();
}

void Accumulator::add(Number x, int64_t index) {
    const bool fl = is_float(d_);
    switch (op_) {
        case Op::Sum:
            if (fl)
                sum_ += x.f;
            else
                best_.i = static_cast<int64_t>(static_cast<uint64_t>(best_.i) + static_cast<uint64_t>(x.i));
            return;
        case Op::Prod:
            if (fl)
                sum_ *= x.f;
            else
                best_.i = static_cast<int64_t>(static_cast<uint64_t>(best_.i) * static_cast<uint64_t>(x.i));
            return;
        case Op::Any: best_.i = best_.i || x.i; return;
        case Op::All: best_.i = best_.i && x.i; return;
        default: break;
    }
    const bool max = op_ == Op::Max || op_ == Op::ArgMax;
    bool better;
    if (empty_)
        better = true;
    else if (fl && std::isnan(best_.f))
        better = false;
    else if (fl && std::isnan(x.f))
        better = true;
    else
        better = apply(max ? Op::Gt : Op::Lt, d_, std::vector<Number>{x, best_}.data()).i != 0;
    empty_ = false;
    if (better) best_ = x, at_ = index;
}

Number Accumulator::result() const {
    if (op_ == Op::ArgMax || op_ == Op::ArgMin) return {.i = at_};
    if ((op_ == Op::Sum || op_ == Op::Prod) && is_float(d_)) return {.f = round_float(d_, static_cast<double>(sum_))};
    if (is_float(d_)) return best_;
    return {.i = wrap(d_, best_.i)};
}

}  // namespace braze::ir
