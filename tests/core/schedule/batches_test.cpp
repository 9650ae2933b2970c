// Kernels that run at the same time, and how threads share them.
#include "core/runtime/batches.h"

#include "core/ir/text.h"
#include "tests/core/schedule/calls.h"
#include "tests/core/schedule/compare.h"

namespace braze::testing {
namespace {

// How many kernels each batch of kernels has.
std::vector<size_t> kernels_of_batches(const runtime::Program& p) {
    std::vector<size_t> found;
    std::vector<int> seen(p.thunks.size());
    for (const runtime::Batch& b : runtime::batches(p)) {
        for (size_t i : b) ++seen[i];
        if (std::holds_alternative<runtime::RunKernel>(p.thunks[b[0]])) found.push_back(b.size());
    }
    EXPECT_EQ(seen, std::vector<int>(p.thunks.size(), 1));
    return found;
}

std::vector<size_t> batches_of(const std::string& text) {
    return kernels_of_batches(check(ir::parse_graph("graph {\n" + text + "}\n"), 1, {}, test_calls()).program);
}

using Sizes = std::vector<size_t>;

TEST(Batches, IndependentKernelsRunTogether) {
    EXPECT_EQ(batches_of(R"(
        %0 : f32[4] = input
        %1 : f32[8, 2] = input
        %2 : f32[4] = exp(%0)
        %3 : f32[8, 2] = exp(%1)
        return %2, %3
    )"),
              Sizes{2});
}

// Like a step of Adam: the count of steps of each parameter, and the parameter.
TEST(Batches, ASmallKernelRunsBeforeThoseThatItDoesNotFollow) {
    EXPECT_EQ(batches_of(R"(
        %0 @0 : f32[] = input
        %1 @1 : f32[20000] = input
        %2 @2 : f32[] = input
        %3 @3 : f32[30000] = input
        %4 : f32[] = scalar(value=1.0)
        %5 : f32[] = add(%0, %4)
        %6 @0 : f32[] = call aten::copy_(self=%0, src=%5) writes=[0] aliases=[0]
        %7 : f32[20000] = expand(%5)
        %8 : f32[20000] = div(%1, %7)
        %9 @1 : f32[20000] = call aten::copy_(self=%1, src=%8) writes=[0] aliases=[0]
        %10 : f32[] = add(%2, %4)
        %11 @2 : f32[] = call aten::copy_(self=%2, src=%10) writes=[0] aliases=[0]
        %12 : f32[30000] = expand(%10)
        %13 : f32[30000] = div(%3, %12)
        %14 @3 : f32[30000] = call aten::copy_(self=%3, src=%13) writes=[0] aliases=[0]
        return %0
    )"),
              (Sizes{2, 2}));
}

TEST(Batches, WhatReadsAResultComesLater) {
    EXPECT_EQ(batches_of(R"(
        %0 : f32[64, 64] = input
        %1 : f32[64] = sum(%0, dims=[0], keepdim=false)
        %2 : f32[64, 64] = expand(%1)
        %3 : f32[64, 64] = div(%0, %2)
        return %1, %3
    )"),
              (Sizes{1, 1}));
}

TEST(Batches, CallsAndWritesThroughOtherViewsOfAnInputAreBetween) {
    EXPECT_EQ(batches_of(R"(
        %0 : f32[4] = input
        %1 : f32[8] = input
        %2 : f32[4] = exp(%0)
        %3 : f32[4] = call test::scale(self=%2)
        %4 : f32[8] = exp(%1)
        %5 : f32[4] = exp(%3)
        return %4, %5
    )")
                  .size(),
              2U);
    // a kernel reads what a call made of an input that another kernel writes
    EXPECT_EQ(batches_of(R"(
        %0 @0 : f32[4] = input
        %1 @0 : f32[4] = call test::view(self=%0) aliases=[0]
        %2 : f32[8] = input
        %3 : f32[2, 4] = reshape(%2)
        %4 : f32[2, 4] = expand(%1)
        %5 : f32[2, 4] = add(%3, %4)
        %6 : f32[4] = exp(%0)
        %7 @0 : f32[4] = call aten::copy_(self=%0, src=%6) writes=[0] aliases=[0]
        return %5
    )"),
              (Sizes{1, 1}));
}

TEST(Batches, IndicesAreCheckedAlone) {
    EXPECT_EQ(batches_of(R"(
        %0 : f32[8, 4] = input
        %1 : i64[3] = input
        %2 : f32[5] = input
        %3 : f32[3, 4] = take(%0, %1, axes=[0], at=0)
        %4 : f32[5] = exp(%2)
        return %3, %4
    )"),
              (Sizes{1, 1}));
}

TEST(Shares, EveryPointIsInOneShare) {
    std::mt19937 rng(1);
    for (int round = 0; round < 300; ++round) {
        std::vector<runtime::Amount> kernels(1 + rng() % 20);
        for (runtime::Amount& a : kernels) {
            a.count = static_cast<int64_t>(rng() % (rng() % 2 ? 10 : 100000));
            a.work = 1 + static_cast<int64_t>(rng() % (rng() % 2 ? 5 : 3000));
        }
        const int threads = 1 + static_cast<int>(rng() % 9);
        const auto shares = runtime::share_out(kernels, threads);
        ASSERT_LE(shares.size(), static_cast<size_t>(threads));
        std::vector<int64_t> at(kernels.size());
        for (const auto& thread : shares)
            for (const runtime::Share& s : thread) {
                ASSERT_EQ(s.begin, at[s.kernel]);
                ASSERT_LT(s.begin, s.end);
                at[s.kernel] = s.end;
            }
        for (size_t k = 0; k < kernels.size(); ++k) ASSERT_EQ(at[k], kernels[k].count);
    }
}

TEST(Shares, ThreadsHaveAboutTheSameWork) {
    std::vector<runtime::Amount> kernels;
    for (int i = 0; i < 30; ++i) kernels.insert(kernels.end(), {{128, 5}, {65536, 5}, {512, 5}, {16, 4000}});
    for (int threads : {2, 3, 8, 16}) {
        const auto shares = runtime::share_out(kernels, threads);
        ASSERT_EQ(shares.size(), static_cast<size_t>(threads));
        int64_t least = INT64_MAX, most = 0;
        for (const auto& thread : shares) {
            int64_t work = 0;
            for (const runtime::Share& s : thread) work += (s.end - s.begin) * kernels[s.kernel].work;
            least = std::min(least, work);
            most = std::max(most, work);
        }
        EXPECT_LE(most - least, most / 8) << threads << " threads";
    }
    EXPECT_EQ(runtime::share_out({{100, 5}, {200, 5}}, 8).size(), 1U);  // too little to share
}

}  // namespace
}  // namespace braze::testing
