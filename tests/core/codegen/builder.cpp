#include "tests/core/codegen/builder.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "core/ir/number.h"

namespace braze::codegen::test {

namespace {

// A buffer whose last byte is followed by a page that may not be touched, and likewise before its first page.
class Guarded {
  public:
    explicit Guarded(const Bytes& content) : size_(content.size()) {
        page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        pages_ = (size_ + page_ - 1) / page_ + 2;
        base_ =
            static_cast<unsigned char*>(mmap(nullptr, pages_ * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (pages_ > 2) mprotect(base_ + page_, (pages_ - 2) * page_, PROT_READ | PROT_WRITE);
        data_ = base_ + (pages_ - 1) * page_ - size_;
        if (size_) std::memcpy(data_, content.data(), size_);
    }
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;
    ~Guarded() { munmap(base_, pages_ * page_); }
    void* data() { return data_; }
    Bytes content() const { return {data_, data_ + size_}; }

  private:
    size_t size_, page_, pages_;
    unsigned char* base_;
    unsigned char* data_;
};

// Distance in units in the last place of d at b.
double ulps(DType d, double a, double b) {
    if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
    if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
    int digits = d == DType::F64 ? 53 : d == DType::F32 ? 24 : d == DType::F16 ? 11 : 8;
    int lowest = d == DType::F64 ? -1074 : d == DType::F16 ? -24 : d == DType::BF16 ? -133 : -149;
    int e = 0;
    std::frexp(b, &e);
    return std::fabs(a - b) / std::ldexp(1.0, std::max(e - digits, lowest));
}

}  // namespace

std::string isa_text(Isa isa) {
    switch (isa) {
        case Isa::Scalar: return "scalar";
        case Isa::Sse2: return "sse2";
        case Isa::Avx2: return "avx2";
        case Isa::Avx512: return "avx512";
    }
    return "?";
}

Bytes elements(DType d, const std::vector<double>& values) {
    Bytes out(values.size() * static_cast<size_t>(ir::size_of(d)));
    for (size_t i = 0; i < values.size(); ++i) {
        ir::Number x;
        if (ir::is_float(d))
            x = ir::cast_number(DType::F64, d, {.f = values[i]});
        else
            x.i = static_cast<int64_t>(values[i]);
        ir::store_number(d, out.data(), static_cast<int64_t>(i), x);
    }
    return out;
}

double element(DType d, const Bytes& bytes, size_t i) {
    ir::Number x = ir::load_number(d, bytes.data(), static_cast<int64_t>(i));
    return ir::is_float(d) ? x.f : static_cast<double>(x.i);
}

Bytes random_elements(DType d, size_t n, uint32_t seed, bool specials) {
    std::mt19937 rng(seed);
    if (d == DType::Bool) {
        Bytes out(n);
        for (auto& b : out) b = rng() & 1;
        return out;
    }
    if (!ir::is_float(d)) {
        Bytes out(n * static_cast<size_t>(ir::size_of(d)));
        for (auto& b : out) b = static_cast<unsigned char>(rng());
        for (size_t i = 0; i < n; i += 3) {  // small ones too
            ir::Number x{.i = static_cast<int64_t>(rng() % 7) - (ir::is_signed(d) ? 3 : 0)};
            ir::store_number(d, out.data(), static_cast<int64_t>(i), x);
        }
        return out;
    }
    std::normal_distribution<double> normal(0, 2);
    std::vector<double> values(n);
    const double inf = std::numeric_limits<double>::infinity();
    const double special[] = {0.0,  -0.0,         1.0,   -1.0,   0.5, -2.5, 1.5,  inf,
                              -inf, std::nan(""), 1e-40, -1e-40, 7.0, 3.0,  1e30, -1e30};
    for (size_t i = 0; i < n; ++i) values[i] = specials && rng() % 8 == 0 ? special[rng() % 16] : normal(rng);
    return elements(d, values);
}

Outcome run_compiled(const Kernel& k, Isa isa, std::vector<Bytes> buffers, const std::vector<int64_t>& symbols,
                     int64_t begin, int64_t end) {
    CompiledKernel code = compile({k}, detect_target(isa_text(isa)), 1)[0];
    std::deque<Guarded> memory;
    std::vector<void*> pointers;
    for (const Bytes& b : buffers) pointers.push_back(memory.emplace_back(b).data());
    bool ok = code.fn(pointers.data(), symbols.data(), begin, end) == 0;
    for (size_t i = 0; i < buffers.size(); ++i) buffers[i] = memory[i].content();
    return {ok, buffers};
}

Outcome run_interpreted(const Kernel& k, std::vector<Bytes> buffers, const std::vector<int64_t>& symbols, int64_t begin,
                        int64_t end) {
    std::vector<void*> pointers;
    for (Bytes& b : buffers) pointers.push_back(b.data());
    bool ok = loops::interpret(k, pointers.data(), symbols.data(), begin, end);
    return {ok, buffers};
}

void expect_same(const Kernel& k, const std::vector<Bytes>& buffers, const std::vector<int64_t>& symbols, int64_t begin,
                 int64_t end, double ulp) {
    loops::verify(k);
    Outcome want = run_interpreted(k, buffers, symbols, begin, end);
    for (Isa isa : host_isas()) {
        Outcome got = run_compiled(k, isa, buffers, symbols, begin, end);
        ASSERT_EQ(got.ok, want.ok) << isa_text(isa) << "\n" << loops::print(k);
        if (!want.ok) continue;
        for (size_t p = 0; p < k.params.size(); ++p) {
            if (!k.params[p].written) {
                ASSERT_EQ(got.buffers[p], buffers[p]) << "read param p" << p << " changed";
                continue;
            }
            DType d = k.params[p].dtype;
            size_t n = buffers[p].size() / static_cast<size_t>(ir::size_of(d));
            for (size_t i = 0; i < n; ++i) {
                double a = element(d, got.buffers[p], i), b = element(d, want.buffers[p], i);
                bool same = ir::is_float(d) ? ulps(d, a, b) <= ulp
                                            : ir::load_number(d, got.buffers[p].data(), static_cast<int64_t>(i)).i ==
                                                  ir::load_number(d, want.buffers[p].data(), static_cast<int64_t>(i)).i;
                ASSERT_TRUE(same) << isa_text(isa) << ": p" << p << "[" << i << "] is " << a << ", expected " << b
                                  << "\n"
                                  << loops::print(k);
            }
        }
    }
}

}  // namespace braze::codegen::test
