#include <random>

#include "tests/core/passes/support.h"

namespace braze::testing {
namespace {

TEST(Functionalize, FreshTensor) {
    EXPECT_TRUE(same(after("functionalize", R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::neg(self=%0)
        %2 @1 : f32[2, 3] = call aten::relu_(self=%1) writes=[0] aliases=[0]
        %3 @1 : f32[2, 3] = call aten::add_.Tensor(self=%2, other=%0, alpha=1) writes=[0] aliases=[0]
        %4 : f32[2, 3] = call aten::neg(self=%1)
        return %4, %3
    })"),
                     R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::neg(self=%0)
        %2 @2 : f32[2, 3] = call aten::relu(self=%1)
        %3 @3 : f32[2, 3] = call aten::add.Tensor(self=%2, other=%0, alpha=1)
        %4 : f32[2, 3] = call aten::neg(self=%3)
        return %4, %3
    })"));
}

TEST(Functionalize, ACallThatWritesOneTensorAndMakesAnother) {
    EXPECT_TRUE(same(after("functionalize", R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[3] = input
        %2 @2 : f32[2, 3] = call test::norm(self=%0, mean=%1) writes=[1] aliases=[-1]
        %3 @2 : f32[2, 3] = call aten::relu_(self=%2) writes=[0] aliases=[0]
        return %3
    })"),
                     R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[3] = input
        %2 @2 : f32[2, 3] = call test::norm(self=%0, mean=%1) writes=[1] aliases=[-1]
        %3 @3 : f32[2, 3] = call aten::relu(self=%2)
        return %3
    })"));
}

TEST(Functionalize, OutArguments) {
    EXPECT_TRUE(same(after("functionalize", R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::neg(self=%0)
        %2 @1 : f32[2, 3] = call aten::maximum.out(self=%1, other=%0, out=%1) writes=[2] aliases=[2]
        %3 : f32[2, 3] = call aten::neg(self=%1)
        return %3, %2
    })"),
                     R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::neg(self=%0)
        %2 @2 : f32[2, 3] = call aten::maximum(self=%1, other=%0)
        %3 : f32[2, 3] = call aten::neg(self=%2)
        return %3, %2
    })"));
    // what would be resized or converted stays
    for (const char* out : {"f32[2, 3, 1]", "f64[2, 3]", "f32[4, 2, 3]"}) {
        ir::Graph g = ir::parse_graph("graph {\n%0 @0 : f32[2, 3] = input\n%1 @1 : " + std::string(out) +
                                      " = input\n%2 @1 : " + out +
                                      " = call aten::add.out(self=%0, other=%0, alpha=1, out=%1) writes=[2] "
                                      "aliases=[2]\nreturn %2\n}");
        EXPECT_FALSE(apply("functionalize", g)) << out;
    }
}

TEST(Functionalize, MasksAreFilled) {
    EXPECT_TRUE(same(after("functionalize", R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::neg(self=%0)
        %2 : bool[2, 3] = call aten::gt.Scalar(self=%1, other=0)
        %3 : f32[] = scalar(value=1.5)
        %4 @1 : f32[2, 3] = call aten::index_put_(self=%1, indices={%2}, values=%3, accumulate=false) writes=[0] aliases=[0]
        return %1
    })"),
                     R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::neg(self=%0)
        %2 : bool[2, 3] = call aten::gt.Scalar(self=%1, other=0)
        %3 : f32[] = scalar(value=1.5)
        %4 @2 : f32[2, 3] = call aten::masked_fill.Tensor(self=%1, mask=%2, value=%3)
        return %4
    })"));
    // rows, a sum, values of their own
    for (auto [mask, value, sum] : {std::tuple("bool[2]", "f32[]", "false"),
                                    {"bool[2, 3]", "f32[]", "true"},
                                    {"bool[2, 3]", "f32[1]", "false"},
                                    {"i64[2, 3]", "f32[]", "false"}}) {
        std::string text = "graph {\n%0 @0 : f32[2, 3] = input\n%1 : " + std::string(mask) + " = input\n%2 : " + value;
        text += " = input\n%3 @0 : f32[2, 3] = call aten::index_put_(self=%0, indices={%1}, values=%2, accumulate=";
        ir::Graph g = ir::parse_graph(text + sum + ") writes=[0] aliases=[0]\nreturn %3\n}");
        EXPECT_FALSE(apply("functionalize", g)) << mask << value << sum;
    }
}

const char* kBatchNorm = R"(graph {
        %0 @0 : f32[4, 3] = input
        %1 @1 : f32[3] = input
        %2 @2 : f32[3] = input
        %3 : f32[4, 3], %4 : f32[3], %5 : f32[3] = call aten::native_batch_norm(input=%0, weight=none, bias=none, running_mean=%1, running_var=%2, training=true, momentum=0.25, eps=1e-05) writes=[1, 2]
        return %3
    })";

TEST(Functionalize, RunningStatisticsAreWrittenAtTheEnd) {
    ir::Graph g = ir::parse_graph(kBatchNorm);
    EXPECT_TRUE(apply("functionalize", g));
    EXPECT_TRUE(same(ir::print(g), R"(graph {
        %0 @0 : f32[4, 3] = input
        %1 @1 : f32[3] = input
        %2 @2 : f32[3] = input
        %3 : f32[3], %4 : f32[3] = var_mean(%0, dims=[0], keepdim=false, correction=0.0)
        %5 : f32[3] = scalar(value=4.0)
        %6 : f32[3] = scalar(value=3.0)
        %7 : f32[3] = scalar(value=0.25)
        %8 : f32[3] = mul(%4, %7)
        %9 : f32[3] = scalar(value=0.75)
        %10 : f32[3] = mul(%1, %9)
        %11 : f32[3] = add(%8, %10)
        %12 : f32[3] = div(%5, %6)
        %13 : f32[3] = mul(%3, %12)
        %14 : f32[3] = scalar(value=0.25)
        %15 : f32[3] = mul(%13, %14)
        %16 : f32[3] = scalar(value=0.75)
        %17 : f32[3] = mul(%2, %16)
        %18 : f32[3] = add(%15, %17)
        %19 : f32[4, 3], %20 : f32[3], %21 : f32[3] = call aten::_native_batch_norm_legit.no_stats(input=%0, weight=none, bias=none, training=true, momentum=0.25, eps=1e-05)
        %22 @3 : f32[3] = copy(%11)
        %23 @4 : f32[3] = copy(%18)
        %24 @1 : f32[3] = call aten::copy_(self=%1, src=%22, non_blocking=false) writes=[0] aliases=[0]
        %25 @2 : f32[3] = call aten::copy_(self=%2, src=%23, non_blocking=false) writes=[0] aliases=[0]
        return %19
    })"));
}

TEST(Functionalize, StatisticsThatAreNotKnownStay) {
    const auto stays = [](std::string_view what, std::string_view instead) {
        std::string text = kBatchNorm;
        for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + instead.size()))
            text.replace(at, what.size(), instead);
        ir::Graph g = ir::parse_graph(text);
        EXPECT_FALSE(apply("functionalize", g)) << ir::print(g);
    };
    stays("[4, 3]", "[1, 3]");  // no variance
    stays("f32", "bf16");       // computed in another type
    stays("%2 @2", "%2 @1");    // the two share memory
    stays("true", "false");
}

TEST(Functionalize, ViewsAreTakenAgain) {
    EXPECT_TRUE(same(after("functionalize", R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::neg(self=%0)
        %2 @1 : f32[6] = call aten::view(self=%1, size=[6]) aliases=[0]
        %3 @1 : f32[2]{1} = call aten::slice.Tensor(self=%2, dim=0, start=1, end=3, step=1) aliases=[0]
        %4 @1 : f32[2, 3] = call aten::relu_(self=%1) writes=[0] aliases=[0]
        %5 : f32[2] = call aten::neg(self=%3)
        return %5
    })"),
                     R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::neg(self=%0)
        %2 @1 : f32[6] = call aten::view(self=%1, size=[6]) aliases=[0]
        %3 @1 : f32[2]{1} = call aten::slice.Tensor(self=%2, dim=0, start=1, end=3, step=1) aliases=[0]
        %4 @2 : f32[2, 3] = call aten::relu(self=%1)
        %6 @2 : f32[6] = call aten::view(self=%4, size=[6]) aliases=[0]
        %7 @2 : f32[2]{1} = call aten::slice.Tensor(self=%6, dim=0, start=1, end=3, step=1) aliases=[0]
        %5 : f32[2] = call aten::neg(self=%7)
        return %5
    })"));
}

TEST(Functionalize, InputsAreWrittenBack) {
    EXPECT_TRUE(same(after("functionalize", R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @0 : f32[3, 2]{1, 3} = call aten::t(self=%0) aliases=[0]
        %2 @0 : f32[2, 3] = call aten::mul_.Scalar(self=%0, other=2) writes=[0] aliases=[0]
        %3 : f32[3, 2] = call aten::clone(self=%1)
        return %2, %1, %3
    })"),
                     R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @0 : f32[3, 2]{1, 3} = call aten::t(self=%0) aliases=[0]
        %2 @1 : f32[2, 3] = call aten::mul.Scalar(self=%0, other=2)
        %4 @1 : f32[3, 2]{1, 3} = call aten::t(self=%2) aliases=[0]
        %3 : f32[3, 2] = call aten::clone(self=%4)
        %5 @0 : f32[2, 3] = call aten::copy_(self=%0, src=%2, non_blocking=false) writes=[0] aliases=[0]
        %6 @0 : f32[3, 2]{1, 3} = call aten::t(self=%0) aliases=[0]
        return %0, %6, %3
    })"));
}

TEST(Functionalize, CopyFillAndZero) {
    EXPECT_TRUE(same(after("functionalize", R"(graph {
        %0 : i64[3] = input
        %1 @1 : f32[2, 3]{1, 2} = call aten::empty()
        %2 @1 : f32[2, 3]{1, 2} = call aten::copy_(self=%1, src=%0, non_blocking=false) writes=[0] aliases=[0]
        %3 @2 : bf16[2] = call aten::empty()
        call aten::fill_.Scalar(self=%3, value=1) writes=[0]
        %4 @3 : bool[2] = call aten::empty()
        call aten::zero_(self=%4) writes=[0]
        return %1, %3, %4
    })"),
                     R"(graph {
        %0 : i64[3] = input
        %1 @1 : f32[2, 3]{1, 2} = call aten::empty()
        %5 : f32[3] = cast(%0)
        %6 : f32[2, 3]{0, 1} = expand(%5)
        %2 @4 : f32[2, 3]{1, 2} = copy(%6)
        %3 @2 : bf16[2] = call aten::empty()
        %7 @5 : bf16[2] = scalar(value=1.0)
        %4 @3 : bool[2] = call aten::empty()
        %8 @6 : bool[2] = scalar(value=false)
        return %2, %7, %8
    })"));
}

TEST(Functionalize, CopiesOfNumbers) {
    ir::Graph g = ir::parse_graph(R"(graph {
        %0 @0 : f32[2] = call aten::empty()
        call aten::copy_(self=%0, src=0.5, non_blocking=false) writes=[0]
        %1 @1 : i64[2] = call aten::empty()
        call aten::copy_(self=%1, src=0.5, non_blocking=false) writes=[0]
        return %0, %1
    })");
    apply("functionalize", g);
    EXPECT_TRUE(same(ir::print(g), R"(graph {
        %0 @0 : f32[2] = call aten::empty()
        %2 @2 : f32[2] = scalar(value=0.5)
        %1 @1 : i64[2] = call aten::empty()
        call aten::copy_(self=%1, src=0.5, non_blocking=false) writes=[0]
        return %2, %1
    })"));
}

TEST(Functionalize, RealWritesComeFirst) {
    // as dropout: bernoulli_ stays, what follows is pure
    EXPECT_TRUE(same(after("functionalize", R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::empty()
        %2 @1 : f32[2, 3] = call aten::bernoulli_.float(self=%1, p=0.5, generator=none) writes=[0] ordered aliases=[0]
        %3 @1 : f32[2, 3] = call aten::mul_.Scalar(self=%2, other=2.0) writes=[0] aliases=[0]
        %4 : f32[2, 3] = call aten::mul.Tensor(self=%0, other=%3)
        return %4
    })"),
                     R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::empty()
        %2 @1 : f32[2, 3] = call aten::bernoulli_.float(self=%1, p=0.5, generator=none) writes=[0] ordered aliases=[0]
        %3 @2 : f32[2, 3] = call aten::mul.Scalar(self=%1, other=2.0)
        %4 : f32[2, 3] = call aten::mul.Tensor(self=%0, other=%3)
        return %4
    })"));
}

void stays(const std::string& body) {
    std::string text = "graph {" + body + "}";
    EXPECT_TRUE(same(after("functionalize", text), text));
}

TEST(Functionalize, LeavesWhatItCannotProve) {
    // a write through a view of part of the base
    stays(R"(%0 : f32[3] = input
        %1 @1 : f32[2, 3] = call aten::empty()
        %2 @1 : f32[1, 3] = call aten::slice.Tensor(self=%1, dim=0, start=1, end=2, step=1) aliases=[0]
        %3 @1 : f32[1, 3] = call aten::copy_(self=%2, src=%0, non_blocking=false) writes=[0] aliases=[0]
        return %1)");
    // two inputs that share memory
    stays(R"(%0 @0 : f32[2] = input
        %1 @0 : f32[2] = input
        %2 @0 : f32[2] = call aten::relu_(self=%0) writes=[0] aliases=[0]
        %3 : f32[2] = call aten::neg(self=%1)
        return %3)");
    // promotion: the pure form would be f64
    stays(R"(%0 @0 : f32[2] = input
        %1 : f64[2] = input
        %2 @0 : f32[2] = call aten::add_.Tensor(self=%0, other=%1, alpha=1) writes=[0] aliases=[0]
        return %2)");
    // as_strided sees the storage
    stays(R"(%0 @0 : f32[2] = input
        %1 @0 : f32[1] = call aten::as_strided(self=%0, size=[1], stride=[1], storage_offset=0) aliases=[0]
        %2 @0 : f32[2] = call aten::relu_(self=%0) writes=[0] aliases=[0]
        return %1)");
    // not dense: the pure form would have another layout
    stays(R"(%0 @0 : f32[2]{2} = input
        %1 @0 : f32[2]{2} = call aten::relu_(self=%0) writes=[0] aliases=[0]
        return %1)");
}

TEST(Functionalize, AViewThatIsAllThatIsUsedBecomesTheRoot) {
    EXPECT_TRUE(same(after("functionalize", R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::neg(self=%0)
        %2 @1 : f32[3, 2]{1, 3} = call aten::t(self=%1) aliases=[0]
        %3 @1 : f32[3, 2]{1, 3} = call aten::add_.Tensor(self=%2, other=%2, alpha=1) writes=[0] aliases=[0]
        %4 @1 : f32[2, 3] = call aten::t(self=%3) aliases=[0]
        %5 @1 : f32[2, 3] = call aten::relu_(self=%4) writes=[0] aliases=[0]
        return %5
    })"),
                     R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::neg(self=%0)
        %2 @1 : f32[3, 2]{1, 3} = call aten::t(self=%1) aliases=[0]
        %3 @2 : f32[3, 2]{1, 3} = call aten::add.Tensor(self=%2, other=%2, alpha=1)
        %4 @2 : f32[2, 3] = call aten::t(self=%3) aliases=[0]
        %5 @3 : f32[2, 3] = call aten::relu(self=%4)
        return %5
    })"));
}

TEST(Functionalize, PartOfAnInputIsWrittenBackInPlace) {
    EXPECT_TRUE(same(after("functionalize", R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @0 : f32[1, 3] = call aten::slice.Tensor(self=%0, dim=0, start=1, end=2, step=1) aliases=[0]
        %2 @0 : f32[1, 3] = call aten::relu_(self=%1) writes=[0] aliases=[0]
        %3 : f32[1, 3] = call aten::neg(self=%1)
        return %3
    })"),
                     R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @0 : f32[1, 3] = call aten::slice.Tensor(self=%0, dim=0, start=1, end=2, step=1) aliases=[0]
        %2 @1 : f32[1, 3] = call aten::relu(self=%1)
        %3 : f32[1, 3] = call aten::neg(self=%2)
        %4 @0 : f32[1, 3] = call aten::slice.Tensor(self=%0, dim=0, start=1, end=2, step=1) aliases=[0]
        %5 @0 : f32[1, 3] = call aten::copy_(self=%4, src=%2, non_blocking=false) writes=[0] aliases=[0]
        return %3
    })"));
}

// A graph whose tensor %1 is cut into the rows %2 and %3, one of which is written.
std::string split_rows(const std::string& type, const std::string& made, const std::string& rest) {
    return "graph { %0 @0 : f32[2, 3] = input\n %1 @1 : f32[2, 3]" + type + " = " + made +
           "\n %2 @1 : f32[1, 3], %3 @1 : f32[1, 3] = call aten::unsafe_split.Tensor(self=%1, split_size=1, dim=0) "
           "aliases=[0, 0]\n %4 @1 : f32[1, 3] = call aten::relu_(self=%2) writes=[0] aliases=[0]\n" +
           rest + "}";
}

TEST(Functionalize, PiecesAreApart) {
    const std::string rest =
        "%5 : f32[1, 3] = call aten::neg(self=%4)\n %6 : f32[1, 3] = call aten::neg(self=%3)\n return %5, %6";
    EXPECT_TRUE(same(after("functionalize", split_rows("", "call aten::neg(self=%0)", rest)),
                     R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @1 : f32[2, 3] = call aten::neg(self=%0)
        %2 @2 : f32[1, 3], %3 @3 : f32[1, 3] = call aten::split_copy.Tensor(self=%1, split_size=1, dim=0)
        %4 @4 : f32[1, 3] = call aten::relu(self=%2)
        %5 : f32[1, 3] = call aten::neg(self=%4)
        %6 : f32[1, 3] = call aten::neg(self=%3)
        return %5, %6
    })"));
    // columns: copies are contiguous, so that writing them has a pure form
    ir::Graph columns = ir::parse_graph(
        "graph { %0 @0 : f32[2, 4] = input\n %1 @1 : f32[2, 4] = call aten::neg(self=%0)\n"
        "%2 @1 : f32[2, 2]{4, 1}, %3 @1 : f32[2, 2]{4, 1} = call aten::split.Tensor(self=%1, split_size=2, dim=1) "
        "aliases=[0, 0]\n %4 @1 : f32[2, 2]{4, 1} = call aten::tanh_(self=%3) writes=[0] aliases=[0]\n"
        "%5 : f32[2, 2] = call aten::mul.Tensor(self=%2, other=%4)\n return %5}");
    apply("functionalize", columns);
    EXPECT_TRUE(same(ir::print(columns),
                     "graph { %0 @0 : f32[2, 4] = input\n %1 @1 : f32[2, 4] = call aten::neg(self=%0)\n"
                     "%2 @2 : f32[2, 2], %3 @3 : f32[2, 2] = call aten::split_copy.Tensor(self=%1, split_size=2, "
                     "dim=1)\n %4 @4 : f32[2, 2] = call aten::tanh(self=%3)\n"
                     "%5 : f32[2, 2] = call aten::mul.Tensor(self=%2, other=%4)\n return %5}"));
    // the whole is used again; a piece is handed out; the pieces may share memory
    for (const std::string& text :
         {split_rows("", "call aten::neg(self=%0)", "%5 : f32[2, 3] = call aten::neg(self=%1)\n return %5"),
          split_rows("", "call aten::neg(self=%0)", "return %4"),
          split_rows("{0, 1}", "call aten::neg(self=%0)", rest)}) {
        ir::Graph g = ir::parse_graph(text);
        apply("functionalize", g);
        EXPECT_EQ(ir::print(g).find("split_copy"), std::string::npos) << ir::print(g);
    }
}

TEST(Functionalize, SplitViewsAreTakenAgainTogether) {
    std::string text = after("functionalize", R"(graph {
        %0 @0 : f32[2, 3] = input
        %1 @0 : f32[1, 3], %2 @0 : f32[1, 3] = call aten::split.Tensor(self=%0, split_size=1, dim=0) aliases=[0, 0]
        %3 @0 : f32[2, 3] = call aten::relu_(self=%0) writes=[0] aliases=[0]
        %4 : f32[1, 3] = call aten::add.Tensor(self=%1, other=%2, alpha=1)
        return %4, %2
    })");
    ir::Graph g = ir::parse_graph(text);
    int splits = 0;
    for (const ir::Node* n : g.nodes) splits += n->callee == "aten::split.Tensor";
    EXPECT_EQ(splits, 3) << text;  // of the input, of its new form, of the input written back
}

// ---- random programs of in-place calls and views

class RandomProgram {
  public:
    explicit RandomProgram(unsigned seed) : rng_(seed) {}
    ir::Graph make(int length) {
        ir::Graph g;
        ir::Builder b(g);
        ir::TensorType t{ir::DType::F32, {2, 3}, {3, 1}};
        for (int i = 0; i < 2; ++i) live_.push_back(g.add_input(t, g.fresh_storage()));
        if (pick(0, 2) == 0) live_.push_back(g.add_input(t, live_[0]->storage));
        for (int i = 0; i < length; ++i) step(b);
        for (int i = 0; i < 4; ++i) g.outputs.push_back(any());
        return g;
    }

  private:
    int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }
    ir::Value* any() { return live_[static_cast<size_t>(pick(0, static_cast<int>(live_.size()) - 1))]; }
    ir::Value* like(ir::Value* x) {
        for (int i = 0; i < 10; ++i)
            if (ir::Value* y = any(); y->type.sizes == x->type.sizes) return y;
        return x;
    }
    void in_place(ir::Builder& b, const char* callee, std::vector<ir::Value*> operands, std::vector<ir::NamedArg> args,
                  int written = 0) {
        ir::Value* self = operands[static_cast<size_t>(written)];
        ir::Node* n = b.call(callee, std::move(operands), std::move(args), {});
        n->writes = {written};
        if (pick(0, 3) == 0) return;  // the result is not bound to a value
        n->aliases = {written};
        live_.push_back(b.graph().add_result(n, self->type, self->storage));
    }
    void view(ir::Builder& b, const char* callee, ir::Value* x, std::vector<ir::NamedArg> args, ir::TensorType type) {
        args.insert(args.begin(), {"self", ir::Ref{0}});
        ir::Node* n = b.call(callee, {x}, std::move(args), {});
        n->aliases = {0};
        live_.push_back(b.graph().add_result(n, std::move(type), x->storage));
    }
    void step(ir::Builder& b) {
        ir::Value* x = any();
        const ir::TensorType& t = x->type;
        bool contiguous = ir::is_contiguous(t);
        switch (pick(0, 10)) {
            case 10:
                in_place(b, "aten::add.out", {like(x), like(x), x},
                         {{"self", ir::Ref{0}}, {"other", ir::Ref{1}}, {"alpha", ir::Expr(1)}, {"out", ir::Ref{2}}}, 2);
                break;
            case 0:
            case 1: {
                ir::Node* n = b.call("aten::add.Tensor", {x, like(x)},
                                     {{"self", ir::Ref{0}}, {"other", ir::Ref{1}}, {"alpha", ir::Expr(1)}}, {});
                live_.push_back(b.graph().add_result(n, {t.dtype, t.sizes, ir::contiguous_strides(t.sizes)},
                                                     b.graph().fresh_storage()));
                break;
            }
            case 2: in_place(b, "aten::relu_", {x}, {{"self", ir::Ref{0}}}); break;
            case 3:
                in_place(b, "aten::add_.Tensor", {x, like(x)},
                         {{"self", ir::Ref{0}}, {"other", ir::Ref{1}}, {"alpha", ir::Expr(1)}});
                break;
            case 4:
                in_place(b, "aten::copy_", {x, like(x)},
                         {{"self", ir::Ref{0}}, {"src", ir::Ref{1}}, {"non_blocking", false}});
                break;
            case 5:
                if (pick(0, 2) == 0)
                    in_place(b, "aten::bernoulli_.float", {x}, {{"self", ir::Ref{0}}, {"p", 0.5}});
                else
                    in_place(b, "aten::mul_.Scalar", {x}, {{"self", ir::Ref{0}}, {"other", ir::Expr(-2)}});
                break;
            case 6:
                if (pick(0, 2) == 0) in_place(b, "aten::zero_", {x}, {{"self", ir::Ref{0}}});
                break;
            case 7:
                if (contiguous) view(b, "aten::view", x, {{"size", ir::Sizes{t.numel()}}}, {t.dtype, {t.numel()}, {1}});
                break;
            case 8:
                if (t.rank() == 2)
                    view(b, "aten::t", x, {}, {t.dtype, {t.sizes[1], t.sizes[0]}, {t.strides[1], t.strides[0]}});
                else
                    view(b, "aten::detach", x, {}, t);
                break;
            case 9: {
                ir::Sizes sizes = t.sizes;
                if (sizes[0].value() < 2) break;
                sizes[0] = sizes[0] - 1;
                view(b, "aten::slice.Tensor", x, {{"dim", ir::Expr(0)}, {"start", ir::Expr(1)}},
                     {t.dtype, sizes, t.strides});
                break;
            }
        }
    }

    std::mt19937 rng_;
    std::vector<ir::Value*> live_;
};

TEST(Functionalize, RandomProgramsKeepTheirEffects) {
    int writes_before = 0, writes_after = 0;
    for (unsigned seed = 0; seed < 2000; ++seed) {
        ir::Graph g = RandomProgram(seed).make(static_cast<int>(seed % 25) + 3);
        ir::verify(g);
        ir::Graph before = g.clone();
        for (const ir::Node* n : g.nodes) writes_before += !n->writes.empty();
        for (const char* pass : {"functionalize", "fold", "cse", "dce"}) {
            apply(pass, g);
            expect_same_effect(before, g, seed);
            if (::testing::Test::HasFatalFailure()) {
                ADD_FAILURE() << "seed " << seed << ", pass " << pass;
                return;
            }
        }
        for (const ir::Node* n : g.nodes) writes_after += !n->writes.empty();
    }
    EXPECT_LT(writes_after, writes_before * 3 / 4);
}

}  // namespace
}  // namespace braze::testing
