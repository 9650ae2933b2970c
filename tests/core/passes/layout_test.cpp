#include "tests/core/passes/support.h"

namespace braze::testing {
namespace {

// A convolution of 1 x 1 with one weight per channel pair; the evaluator of the tests runs it.
const char* kConvolution =
    "call aten::convolution(self=%0, weight=%1, bias=none, stride=[1, 1], padding=[0, 0], dilation=[1, 1], "
    "transposed=false, output_padding=[0, 0], groups=1)";

std::string graph(const std::string& body) {
    return "graph { %0 : f32[2, 3, 4, 5] = input\n %1 : f32[3, 3, 1, 1] = input\n" + body + "}";
}
std::string convolution(const std::string& x, bool transposed = false) {
    std::string text = kConvolution;
    text.replace(text.find("%0"), 2, x);
    if (transposed) text.replace(text.find("false"), 5, "true");
    return text;
}
std::string laid_out(const std::string& body) {
    ir::Graph g = ir::parse_graph(after("layout", graph(body)));
    apply("dce", g);
    return ir::print(g);
}
size_t count(const std::string& text, const std::string& what) {
    size_t n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
}
const std::string kPlanes = "f32[2, 3, 4, 5] ", kLast = "f32[2, 3, 4, 5]{60, 1, 15, 3} ";

TEST(Layout, FromOneConvolutionToTheNext) {
    EXPECT_TRUE(same(
        laid_out("%2 : f32[2, 3, 4, 5] = " + convolution("%0") +
                 "\n %3 : f32[2, 3, 4, 5] = relu(%2)\n %4 : " + kPlanes + "= " + convolution("%3") + "\n return %4"),
        graph("%5 : " + kLast + "= copy(%0)\n %6 : " + kLast + "= " + convolution("%5") + "\n %7 : " + kLast +
              "= relu(%6)\n %8 : " + kLast + "= " + convolution("%7") + "\n %9 : " + kPlanes +
              "= copy(%8)\n return %9")));
}

TEST(Layout, ViewsOfTheResultFollow) {
    // channels to the end: what was a strided view is contiguous
    const std::string got = laid_out("%2 @0 : f32[2, 3, 4, 5] = " + convolution("%0") +
                                     "\n %3 @0 : f32[2, 4, 5, 3]{60, 5, 1, 20} = permute(%2, dims=[0, 2, 3, 1]) "
                                     "aliases=[0]\n %4 : f32[2, 4, 5, 3] = neg(%3)\n return %4");
    EXPECT_TRUE(same(got, graph("%5 : " + kLast + "= copy(%0)\n %6 : " + kLast + "= " + convolution("%5") +
                                "\n %7 : f32[2, 4, 5, 3] = permute(%6, dims=[0, 2, 3, 1])\n"
                                "%8 : f32[2, 4, 5, 3] = neg(%7)\n return %8")));
}

TEST(Layout, OtherCallsAndOutputsSeeEagersLayout) {
    const std::string got = laid_out("%2 @0 : f32[2, 3, 4, 5] = " + convolution("%0") +
                                     "\n %3 @0 : f32[2, 3, 20] = reshape(%2) aliases=[0]\n"
                                     "%4 : f32[2, 3, 4, 5] = call aten::neg(self=%2)\n return %3, %4");
    EXPECT_EQ(count(got, "f32[2, 3, 4, 5] = copy"), 1u) << got;
    EXPECT_EQ(count(got, "f32[2, 3, 4, 5] = call aten::neg"), 1u) << got;
    EXPECT_EQ(count(got, "reshape"), 1u) << got;
}

TEST(Layout, ReductionsAndPaddings) {
    const std::string got = laid_out("%2 : f32[2, 3, 4, 5] = " + convolution("%0") +
                                     "\n %3 : f32[2, 3, 6, 7] = pad(%2, low=[0, 0, 1, 1], high=[0, 0, 1, 1], "
                                     "value=0.0)\n %4 : f32[2, 3] = sum(%3, dims=[2, 3], keepdim=false)\n return %4");
    EXPECT_EQ(count(got, "copy"), 1u) << got;
    EXPECT_EQ(count(got, "f32[2, 3, 6, 7]{126, 1, 21, 3} = pad"), 1u) << got;
}

TEST(Layout, GradientsFollowTheImage) {
    std::string text = graph("%2 : f32[2, 3, 4, 5] = " + convolution("%0") +
                             "\n %3 : f32[2, 3, 4, 5] = relu(%2)\n %4 : f32[2, 3, 4, 5] = input\n"
                             "%5 : f32[2, 3, 4, 5] = mul(%3, %4)\n"
                             "%6 : f32[2, 3, 4, 5], %7 : f32[3, 3, 1, 1], %8 : f32[3] = call "
                             "aten::convolution_backward(grad_output=%5, input=%0, weight=%1, bias_sizes=[3], "
                             "stride=[1, 1], padding=[0, 0], dilation=[1, 1], transposed=false, output_padding=[0, 0], "
                             "groups=1, output_mask=b[true, true, true])\n"
                             "%9 : f32[2, 3, 4, 5] = neg(%6)\n return %9, %7, %8");
    ir::Graph g = ir::parse_graph(text);
    EXPECT_TRUE(apply("layout", g));
    apply("dce", g);
    const std::string got = ir::print(g);
    EXPECT_EQ(count(got, kLast + "= mul"), 1u) << got;
    EXPECT_EQ(count(got, kLast.substr(0, kLast.size() - 1) + ", %"), 1u) << got;
    EXPECT_EQ(count(got, kLast + "= neg"), 1u) << got;
    EXPECT_EQ(count(got, kPlanes + "= copy"), 1u) << got;  // of the result
}

TEST(Layout, StaysWhereItIsNotKnownToPay) {
    const auto unchanged = [](const std::string& body) {
        ir::Graph g = ir::parse_graph(graph(body));
        EXPECT_FALSE(apply("layout", g)) << ir::print(g);
    };
    unchanged("%2 : f32[2, 3, 4, 5] = " + convolution("%0", true) + "\n return %2");
    {
        // weights that are larger than the image
        ir::Graph g = ir::parse_graph(
            "graph { %0 : f32[1, 64, 4, 4] = input\n %1 : f32[64, 64, 3, 3] = input\n %2 : f32[1, 64, 2, 2] = " +
            convolution("%0") + "\n return %2 }");
        EXPECT_FALSE(apply("layout", g));
    }
    // channels last already
    unchanged("%2 : " + kLast + "= copy(%0)\n %3 : " + kLast + "= " + convolution("%2") + "\n return %3");
    // a result that is written in place
    unchanged("%2 @0 : f32[2, 3, 4, 5] = " + convolution("%0") +
              "\n %3 @0 : f32[2, 3, 4, 5] = call aten::neg_(self=%2) writes=[0] aliases=[0]\n return %3");
}

}  // namespace
}  // namespace braze::testing
