// Program against evaluator: values, strides, and which tensors share memory.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/ir/text.h"
#include "core/schedule/schedule.h"
#include "tests/core/schedule/host.h"

namespace braze::testing {

inline std::vector<ir::HostTensor> random_inputs(const ir::Graph& g, unsigned seed,
                                                 const ir::SymbolValues& symbols = {}) {
    std::mt19937 rng(seed);
    auto number = [&](const shapes::Expr& e) {
        return *e.evaluate([&](const auto& s) { return symbols ? symbols(s) : std::nullopt; });
    };
    std::vector<ir::HostTensor> out;
    for (const ir::Value* v : g.inputs) {
        std::vector<int64_t> sizes, strides;
        for (const auto& e : v->type.sizes) sizes.push_back(number(e));
        for (const auto& e : v->type.strides) strides.push_back(number(e));
        ir::HostTensor t = ir::HostTensor::empty(v->type.dtype, sizes, strides);
        for (size_t j = 0; j < out.size(); ++j)  // inputs that alias each other
            if (v->storage >= 0 && g.inputs[j]->storage == v->storage && out[j].bytes->size() >= t.bytes->size())
                t.bytes = out[j].bytes;
        for (int64_t i = 0; i < t.numel(); ++i) {
            const double x = std::uniform_real_distribution<double>(-2, 2)(rng);
            t.set_number(i, ir::is_float(t.dtype)              ? x
                            : v->type.dtype == ir::DType::Bool ? x > 0
                                                               : std::floor(std::fabs(x)));
        }
        out.push_back(t);
    }
    return out;
}

inline std::vector<ir::HostTensor> copies(const std::vector<ir::HostTensor>& xs) {
    std::vector<ir::HostTensor> out = xs;
    for (size_t i = 0; i < out.size(); ++i) {
        out[i].bytes = std::make_shared<std::vector<std::byte>>(*xs[i].bytes);
        for (size_t j = 0; j < i; ++j)
            if (xs[j].bytes == xs[i].bytes) out[i].bytes = out[j].bytes;
    }
    return out;
}

inline void expect_close(const ir::HostTensor& got, const ir::HostTensor& want, const std::string& what) {
    ASSERT_EQ(got.dtype, want.dtype) << what;
    ASSERT_EQ(got.sizes, want.sizes) << what;
    ASSERT_EQ(got.strides, want.strides) << what;
    // f64 values may come from f32 ones
    const double tolerance = want.dtype == ir::DType::BF16 ? 2e-2 : want.dtype == ir::DType::F16 ? 3e-3 : 2e-5;
    for (int64_t i = 0; i < want.numel(); ++i) {
        const double a = got.number(i), b = want.number(i);
        if (std::isnan(a) && std::isnan(b)) continue;
        if (std::isinf(b) || !ir::is_float(want.dtype)) {
            ASSERT_EQ(a, b) << what << " at " << i;
        } else {
            ASSERT_LE(std::fabs(a - b), tolerance * (1 + std::fabs(b)))
                << what << " at " << i << ": got " << a << ", expected " << b;
        }
    }
}

struct Checked {
    runtime::Program program;
    std::string text() const { return program.dump(); }
    int kernels() const {
        int n = 0;
        for (const auto& t : program.thunks) n += std::holds_alternative<runtime::RunKernel>(t);
        return n;
    }
    int calls() const {
        int n = 0;
        for (const auto& t : program.thunks) n += std::holds_alternative<runtime::RunCall>(t);
        return n;
    }
};

// Schedules a copy of g, runs it, compares everything that can be seen.
inline Checked check(const ir::Graph& g, unsigned seed = 1, const ir::SymbolValues& symbols = {},
                     const ir::CallHandler& calls = {}, const schedule::Options& options = {}) {
    const auto inputs = random_inputs(g, seed, symbols);
    auto expected_inputs = copies(inputs);
    const ir::CallHandler reference = calls;  // with its own state
    const auto want = ir::evaluate(g, expected_inputs, symbols, reference);
    Checked out{schedule::schedule(g.clone(), options)};
    for (const auto& k : out.program.kernels) loops::verify(k);
    for (const bool in_batches : {false, true}) {
        auto actual_inputs = copies(inputs);
        const ir::CallHandler actual = calls;  // with its own state
        Host host(out.program, symbols, actual);
        host.in_batches = in_batches;
        const auto got = host.run(actual_inputs);
        EXPECT_FALSE(host.failed_check);
        const std::string context = (in_batches ? "\nin batches\n" : "\n") + ir::print(g) + out.program.dump();
        EXPECT_EQ(got.size(), want.size());
        for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
            expect_close(got[i], want[i], "output " + std::to_string(i) + context);
            for (size_t j = 0; j < i; ++j)
                EXPECT_EQ(got[i].bytes == got[j].bytes, want[i].bytes == want[j].bytes)
                    << "outputs " << i << " and " << j << context;
            for (size_t j = 0; j < inputs.size(); ++j)
                EXPECT_EQ(got[i].bytes == actual_inputs[j].bytes, want[i].bytes == expected_inputs[j].bytes)
                    << "output " << i << " and input " << j << context;
        }
        for (size_t j = 0; j < inputs.size(); ++j)
            expect_close(actual_inputs[j], expected_inputs[j], "input " + std::to_string(j) + context);
    }
    return out;
}

}  // namespace braze::testing
