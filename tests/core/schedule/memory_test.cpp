// What is in memory, where, and who shares it.
#include "core/ir/text.h"
#include "core/schedule/arena.h"
#include "tests/core/schedule/calls.h"
#include "tests/core/schedule/compare.h"

namespace braze::testing {
namespace {

Checked check_text(const std::string& text) {
    return check(ir::parse_graph("graph {\n" + text + "}\n"), 1, {}, test_calls());
}

TEST(Memory, OutputViewsShareAndCopiesDoNot) {
    const Checked c = check_text(R"(
        %0 @0 : f32[3, 4] = input
        %1 @1 : f32[3, 4] = exp(%0)
        %2 @1 : f32[4, 3]{1, 4} = permute(%1, dims=[1, 0]) aliases=[0]
        %3 : f32[12] = reshape(%1)
        %4 @0 : f32[12] = reshape(%0) aliases=[0]
        %5 : f32[12] = reshape(%0)
        return %1, %2, %3, %4, %5, %0, %2
    )");
    EXPECT_EQ(c.kernels(), 2) << c.text();
}

TEST(Memory, AHiddenRootServesAsTheOutput) {
    const Checked c = check_text(R"(
        %0 : f32[3, 4] = input
        %1 : f32[3] = sum(%0, dims=[1], keepdim=false)
        %2 : f32[3, 1] = reshape(%1)
        return %2
    )");
    EXPECT_EQ(c.kernels(), 1) << c.text();
}

TEST(Memory, OperandsOfCallsHaveTheirStrides) {
    check_text(R"(
        %0 : f32[2, 3, 4] = input
        %1 : f32[2, 3, 4] = exp(%0)
        %2 : f32[3, 2, 4]{4, 12, 1} = permute(%1, dims=[1, 0, 2])
        %3 : f32[3, 8] = reshape(%2)
        %4 : f32[3, 8] = call test::id(self=%3)
        %5 : f32[3, 2, 4] = call test::id(self=%2)
        %6 : f32[2, 3, 4] = expand(%1)
        %7 : f32[24] = reshape(%1)
        %8 : f32[24] = call test::scale(self=%7)
        %9 : f32[2, 12] = reshape(%1)
        %10 : f32[2, 5]{12, 2} = slice(%9, starts=[0, 1], steps=[1, 2])
        %11 : f32[2, 5] = call test::scale(self=%10)
        return %4, %5, %8, %11
    )");
}

TEST(Memory, WritesAreSeenAfterAndNotBefore) {
    check_text(R"(
        %0 @0 : f32[4] = input
        %1 @1 : f32[4] = input
        %2 : f32[4] = add(%0, %1)
        %3 @0 : f32[4] = call test::add_(self=%0, other=%1) writes=[0] aliases=[0]
        %4 : f32[4] = add(%0, %1)
        %5 : f32[4] = mul(%2, %3)
        %6 : f32[4] = neg(%1)
        %7 @0 : f32[4] = call test::fill_(self=%0) writes=[0] aliases=[0]
        %8 : f32[4] = add(%4, %6)
        %9 : f32[4] = sub(%8, %0)
        return %2, %4, %5, %9, %7
    )");
}

TEST(Memory, ViewsFollowAWriteAndCopiesDoNot) {
    check_text(R"(
        %0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = exp(%0)
        %2 @1 : f32[3, 2]{1, 3} = permute(%1, dims=[1, 0]) aliases=[0]
        %3 : f32[3, 2]{1, 3} = permute(%1, dims=[1, 0])
        %4 @1 : f32[2, 3] = call test::fill_(self=%1) writes=[0] aliases=[0]
        %5 : f32[3, 2]{1, 3} = neg(%2)
        %6 : f32[3, 2]{1, 3} = neg(%3)
        %7 : f32[6] = reshape(%3)
        return %5, %6, %2, %7
    )");
}

TEST(Memory, WhatIsCopiedIntoAnInputIsComputedThere) {
    const Checked c = check_text(R"(
        %0 @0 : f32[4] = input
        %1 @1 : f32[4] = input
        %2 : f32[4] = input
        %3 : f32[4] = add(%1, %2)
        %4 : f32[4] = mul(%0, %3)
        %5 @0 : f32[4] = call aten::copy_(self=%0, src=%4) writes=[0] aliases=[0]
        %6 @1 : f32[4] = call aten::copy_(self=%1, src=%3) writes=[0] aliases=[0]
        return %0, %1
    )");
    EXPECT_EQ(c.calls(), 0) << c.text();
    EXPECT_EQ(c.program.arena_bytes, 0) << c.text();
}

TEST(Memory, WhatIsCopiedIntoSeveralInputsIsComputedInEach) {
    const Checked c = check_text(R"(
        %0 @0 : f32[4] = input
        %1 @1 : f32[4] = input
        %2 @2 : f32[4] = input
        %3 : f32[4] = add(%0, %1)
        %4 @0 : f32[4] = call aten::copy_(self=%0, src=%3) writes=[0] aliases=[0]
        %5 @1 : f32[4] = call aten::copy_(self=%1, src=%3) writes=[0] aliases=[0]
        %6 @2 : f32[4] = call aten::copy_(self=%2, src=%3) writes=[0] aliases=[0]
        return %0
    )");
    EXPECT_EQ(c.calls(), 0) << c.text();
    EXPECT_EQ(c.kernels(), 1) << c.text();
    EXPECT_EQ(c.program.arena_bytes, 0) << c.text();
}

TEST(Memory, SeveralValuesAreComputedInSeveralInputsEach) {
    // like the average and the parameter of each step of ASGD
    const Checked c = check_text(R"(
        %0 @0 : f32[4] = input
        %1 @1 : f32[4] = input
        %2 @2 : f32[8] = input
        %3 @3 : f32[8] = input
        %4 : f32[4] = exp(%0)
        %5 : f32[8] = exp(%2)
        %6 @0 : f32[4] = call aten::copy_(self=%0, src=%4) writes=[0] aliases=[0]
        %7 @1 : f32[4] = call aten::copy_(self=%1, src=%4) writes=[0] aliases=[0]
        %8 @2 : f32[8] = call aten::copy_(self=%2, src=%5) writes=[0] aliases=[0]
        %9 @3 : f32[8] = call aten::copy_(self=%3, src=%5) writes=[0] aliases=[0]
        return %0
    )");
    EXPECT_EQ(c.calls(), 0) << c.text();
    EXPECT_EQ(c.kernels(), 2) << c.text();
    EXPECT_EQ(c.program.arena_bytes, 0) << c.text();
}

TEST(Memory, WhatIsReadLaterOrElsewhereIsNotWrittenTooEarly) {
    // the old elements are read out of order, by a later kernel, by a call
    for (const char* reader : {"%3 : f32[4, 4]{1, 4} = permute(%0, dims=[1, 0])\n%4 : f32[4, 4] = exp(%3)",
                               "%3 : f32[4] = sum(%0, dims=[1], keepdim=false)\n%4 : f32[4] = exp(%3)",
                               "%3 : f32[4, 4] = call test::scale(self=%0)\n%4 : f32[4, 4] = exp(%3)"}) {
        check_text("%0 @0 : f32[4, 4] = input\n%1 : f32[4, 4] = input\n" + std::string(reader) +
                   "\n%2 : f32[4, 4] = mul(%0, %1)\n"
                   "%5 : f32[4, 4] = neg(%2)\n"
                   "%6 @0 : f32[4, 4] = call aten::copy_(self=%0, src=%2) writes=[0] aliases=[0]\n"
                   "return %4, %5, %0\n");
    }
    const Checked transposed = check_text(R"(
        %0 @0 : f32[4, 4] = input
        %1 : f32[4, 4]{1, 4} = permute(%0, dims=[1, 0])
        %2 : f32[4, 4] = add(%0, %1)
        %3 @0 : f32[4, 4] = call aten::copy_(self=%0, src=%2) writes=[0] aliases=[0]
        return %0
    )");
    EXPECT_EQ(transposed.calls(), 1) << transposed.text();
}

TEST(Memory, CallsMayHaveReadWhatIsComputedInItsPlace) {
    // through a view, by several calls, and by one that the program has after what is copied
    const Checked c = check_text(R"(
        %0 @0 : f32[4, 4] = input
        %1 : f32[4, 4] = input
        %2 : f32[4, 4] = call aten::mm(self=%1, mat2=%0)
        %3 @0 : f32[4, 4]{1, 4} = permute(%0, dims=[1, 0]) aliases=[0]
        %4 : f32[4, 4] = call aten::mm(self=%2, mat2=%3)
        %5 : f32[4, 4] = add(%0, %4)
        %6 : f32[4, 4] = call test::scale(self=%0)
        %7 @0 : f32[4, 4] = call aten::copy_(self=%0, src=%5) writes=[0] aliases=[0]
        return %6, %0
    )");
    EXPECT_EQ(c.calls(), 3) << c.text();
    // what is computed in the place of what a later call needs
    const Checked circle = check_text(R"(
        %0 @0 : f32[4, 4] = input
        %1 : f32[4, 4] = exp(%0)
        %2 : f32[4, 4] = call test::scale(self=%1)
        %3 : f32[4, 4] = call aten::mm(self=%2, mat2=%0)
        %4 @0 : f32[4, 4] = call aten::copy_(self=%0, src=%1) writes=[0] aliases=[0]
        return %3, %0
    )");
    EXPECT_EQ(circle.calls(), 3) << circle.text();
    // a view that a call has made
    check_text(R"(
        %0 @0 : f32[4] = input
        %1 @0 : f32[4] = call test::view(self=%0) aliases=[0]
        %2 : f32[4] = exp(%0)
        %3 : f32[4] = neg(%2)
        %4 : f32[4] = call test::id(self=%3)
        %5 : f32[4] = add(%1, %4)
        %6 @0 : f32[4] = call aten::copy_(self=%0, src=%2) writes=[0] aliases=[0]
        return %5, %0
    )");
}

TEST(Memory, WhatIsReducedIsComputedInItsPlaceBehindTheLoop) {
    // like running statistics, and like a weight that its gradient changes and that the kernel reads in another stage;
    // rows or columns, and a single number
    for (const char* dims : {"[0, 2]", "[1, 2]", "[0, 1]"}) {
        const std::string text = R"(
            %0 : f32[6, 6, 6] = input
            %1 @1 : f32[6] = input
            %2 @2 : f32[6] = input
            %3 : f32[6] = sum(%0, dims=)" +
                                 std::string(dims) + R"(, keepdim=false)
            %4 : f32[] = scalar(value=0.1)
            %5 : f32[6] = expand(%4)
            %6 : f32[6] = mul(%3, %5)
            %7 : f32[6] = add(%1, %6)
            %8 @1 : f32[6] = call aten::copy_(self=%1, src=%7) writes=[0] aliases=[0]
            %9 : f32[6] = mul(%2, %3)
            %10 @2 : f32[6] = call aten::copy_(self=%2, src=%9) writes=[0] aliases=[0]
            return %0
        )";
        EXPECT_EQ(check_text(text).calls(), 0) << check_text(text).text();
    }
    const Checked number = check_text(R"(
        %0 : f32[6, 6] = input
        %1 @1 : f32[] = input
        %2 : f32[] = sum(%0, dims=[0, 1], keepdim=false)
        %3 : f32[] = add(%1, %2)
        %4 @1 : f32[] = call aten::copy_(self=%1, src=%3) writes=[0] aliases=[0]
        %5 : f32[6, 6] = expand(%2)
        %6 : f32[6, 6] = sub(%0, %5)
        return %6
    )");
    EXPECT_EQ(number.calls(), 0) << number.text();
    // the old elements are needed in the order of the columns, or of all rows
    for (const char* other : {"permute(%1, dims=[1, 0])", "expand(%8)"}) {
        const Checked c = check_text(R"(
            %0 : f32[4, 4, 8] = input
            %1 @1 : f32[4, 4] = input
            %2 : f32[4, 4] = sum(%0, dims=[2], keepdim=false)
            %8 : f32[4, 1] = slice(%1, starts=[0, 0], steps=[1, 1])
            %3 : f32[4, 4] = )" + std::string(other) +
                                     R"(
            %4 : f32[4, 4] = add(%2, %3)
            %5 @1 : f32[4, 4] = call aten::copy_(self=%1, src=%4) writes=[0] aliases=[0]
            return %2
        )");
        EXPECT_EQ(c.calls(), 1) << c.text();
    }
}

// The position of the first kernel that writes input k among the thunks, and of the first call of `callee`.
static std::pair<size_t, size_t> write_and_call(const Checked& c, int k, std::string_view callee) {
    size_t write = ~size_t{0}, call = ~size_t{0};
    for (size_t i = 0; i < c.program.thunks.size(); ++i) {
        if (const auto* run = std::get_if<runtime::RunKernel>(&c.program.thunks[i])) {
            const loops::Kernel& kernel = c.program.kernels[static_cast<size_t>(run->kernel)];
            for (size_t p = 0; p < run->slots.size(); ++p)
                if (kernel.params[p].written && c.program.slots[static_cast<size_t>(run->slots[p])].input == k)
                    write = std::min(write, i);
        } else if (const auto* other = std::get_if<runtime::RunCall>(&c.program.thunks[i])) {
            if (other->node->callee == callee) call = std::min(call, i);
        }
    }
    return {write, call};
}

TEST(Memory, WhatNeedsNoMemoryRunsEarlyButNotBeforeWhatMayRaise) {
    auto program = [](const std::string& last) {
        return check_text(R"(
            %0 @0 : f32[4, 4] = input
            %1 : f32[4, 4] = input
            %2 : f32[4, 4] = call aten::mm(self=%1, mat2=%0)
            %3 : f32[4, 4] = exp(%1)
            %4 : f32[4, 4] = )" +
                          last + R"(
            %5 : f32[4, 4] = add(%0, %2)
            %6 @0 : f32[4, 4] = call aten::copy_(self=%0, src=%5) writes=[0] aliases=[0]
            return %4
        )");
    };
    const Checked early = program("call aten::mm(self=%3, mat2=%3)");
    auto [write, call] = write_and_call(early, 0, "aten::mm");
    EXPECT_EQ(write, call + 1) << early.text();
    const Checked late = program("call test::scale(self=%3)");
    std::tie(write, call) = write_and_call(late, 0, "test::scale");
    EXPECT_LT(call, write) << late.text();
    EXPECT_NE(write, ~size_t{0}) << late.text();
}

TEST(Memory, IndicesAreCheckedBeforeAnInputIsWritten) {
    const Checked c = check_text(R"(
        %0 @0 : f32[8, 4] = input
        %1 : i64[8, 4] = input
        %2 : f32[8, 4] = input
        %8 : f32[8, 4] = input
        %3 : f32[8, 4] = add(%0, %8)
        %4 : f32[8, 4] = exp(%2)
        %5 : f32[8, 4] = call test::scale(self=%4)
        %6 : f32[8, 4] = gather(%5, %1, dim=0)
        %7 @0 : f32[8, 4] = call aten::copy_(self=%0, src=%3) writes=[0] aliases=[0]
        return %6
    )");
    EXPECT_EQ(c.calls(), 1) << c.text();
    size_t check = 0;
    for (size_t i = 0; i < c.program.thunks.size(); ++i)
        if (const auto* run = std::get_if<runtime::RunKernel>(&c.program.thunks[i]))
            if (c.program.kernels[static_cast<size_t>(run->kernel)].has_checks) check = i;
    EXPECT_GT(write_and_call(c, 0, "").first, check) << c.text();
}

TEST(Memory, AnAliasingCallKeepsItsOperandAlive) {
    check_text(R"(
        %0 : f32[64] = input
        %1 @1 : f32[64] = exp(%0)
        %2 @1 : f32[64] = call test::view(self=%1) aliases=[0]
        %3 : f32[64] = call test::scale(self=%0)
        %4 : f32[64] = neg(%3)
        %5 : f32[64] = call test::scale(self=%4)
        %6 : f32[64] = call test::id(self=%5)
        %7 : f32[64] = add(%2, %6)
        return %7
    )");
    const Checked c = check_text(R"(
        %0 : f32[64] = input
        %1 @1 : f32[64] = exp(%0)
        %2 @1 : f32[64] = call test::view(self=%1) aliases=[0]
        return %2
    )");
    EXPECT_EQ(c.program.arena_bytes, 0) << c.text();
}

TEST(Memory, OrderedCallsKeepTheirOrder) {
    check_text(R"(
        %0 : f32[4] = call test::random() ordered
        %1 : f32[4] = exp(%0)
        %2 : f32[4] = call test::random() ordered
        %3 : f32[4] = call test::id(self=%1)
        %4 : f32[4] = call test::random() ordered
        %5 : f32[4] = sub(%4, %2)
        return %5, %3, %0
    )");
}

TEST(Memory, MatrixProductsGoIntoTheArenaAndItIsReused) {
    std::string text = "%0 : f32[16, 16] = input\n%1 : f32[16, 16] = input\n";
    int v = 0, next = 2;
    for (int i = 0; i < 8; ++i) {
        text +=
            "%" + std::to_string(next) + " : f32[16, 16] = call aten::mm(self=%" + std::to_string(v) + ", mat2=%1)\n";
        text += "%" + std::to_string(next + 1) + " : f32[16, 16] = tanh(%" + std::to_string(next) + ")\n";
        v = next + 1;
        next += 2;
    }
    const Checked c = check_text(text + "return %" + std::to_string(v) + "\n");
    EXPECT_EQ(c.program.arena_bytes, 2 * 16 * 16 * 4) << c.text();  // tanh in place
    EXPECT_EQ(c.program.kernels.size(), 1u);
}

TEST(Memory, NothingButCalls) {
    const Checked c = check_text(R"(
        %0 : f32[4] = input
        %1 : f32[4] = call test::scale(self=%0)
        %2 : f32[4] = call test::scale(self=%1)
        return %2, %0
    )");
    EXPECT_EQ(c.kernels(), 0);
    EXPECT_EQ(c.calls(), 2);
}

TEST(Memory, ConstantsAndEmptyTensors) {
    check_text(R"(
        %0 : f32[0, 3] = input
        %1 : f32[0, 3] = exp(%0)
        %2 : f32[3] = sum(%0, dims=[0], keepdim=false)
        %3 : f32[2, 3] = scalar(value=2.5)
        %4 : i64[5] = iota(axis=0, start=3, step=2)
        %5 : f32[] = scalar(value=1.0)
        %6 : f32[4]{0} = expand(%5)
        %7 : f32[2, 3] = cat(%0, %3, dim=0)
        %8 : f32[2, 3] = call test::id(self=%3)
        %9 : f32[3] = add(%2, %2)
        return %1, %2, %3, %4, %7, %8, %9, %5
    )");
}

TEST(Memory, StridedWindowsOfComputedMemory) {
    check_text(R"(
        %0 : f32[4, 4] = input
        %1 @1 : f32[4, 4] = exp(%0)
        %2 @1 : f32[4]{5} = as_strided(%1, offset=0) aliases=[0]
        %3 : f32[4] = neg(%2)
        return %3, %2
    )");
}

TEST(Arena, ReusesAndJoinsHoles) {
    schedule::Arena a;
    EXPECT_EQ(a.allocate(100), 0);
    EXPECT_EQ(a.allocate(64), 128);
    EXPECT_EQ(a.allocate(10), 192);
    a.release(0, 100);
    EXPECT_EQ(a.allocate(60), 0);
    EXPECT_EQ(a.allocate(60), 64);
    a.release(64, 60);
    a.release(128, 64);
    EXPECT_EQ(a.allocate(128), 64);
    EXPECT_EQ(a.size(), 256);
}

}  // namespace
}  // namespace braze::testing
