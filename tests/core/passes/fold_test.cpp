#include "tests/core/passes/support.h"

namespace braze::testing {
namespace {

// The body between the input %0 : f32[2, 3] (contiguous) and `return`.
std::string folded(const std::string& body) {
    ir::Graph g = ir::parse_graph(after("fold", "graph { %0 : f32[2, 3] = input\n" + body + "}"));
    apply("dce", g);
    return ir::print(g);
}
std::string graph(const std::string& body) { return "graph { %0 : f32[2, 3] = input\n" + body + "}"; }
void unchanged(const std::string& body) {
    ir::Graph g = ir::parse_graph(graph(body));
    apply("dce", g);
    EXPECT_TRUE(same(folded(body), ir::print(g)));
}

TEST(Fold, NeutralElements) {
    std::string want = graph("%9 : f32[2, 3] = abs(%0)\n return %9");
    for (const char* line : {"mul(%0, %1)", "mul(%1, %0)", "div(%0, %1)"})
        EXPECT_TRUE(same(folded("%1 : f32[2, 3] = scalar(value=1.0)\n %2 : f32[2, 3] = " + std::string(line) +
                                "\n %9 : f32[2, 3] = abs(%2)\n return %9"),
                         want));
    EXPECT_TRUE(same(folded("%1 : f32[2, 3] = scalar(value=-0.0)\n %2 : f32[2, 3] = add(%0, %1)\n %9 : f32[2, 3] = "
                            "abs(%2)\n return %9"),
                     want));
    EXPECT_TRUE(same(
        folded(
            "%1 : f32[2, 3] = scalar(value=0.0)\n %2 : f32[2, 3] = sub(%0, %1)\n %9 : f32[2, 3] = abs(%2)\n return %9"),
        want));
}

TEST(Fold, SignedZerosAreKept) {
    unchanged(
        "%1 : f32[2, 3] = scalar(value=0.0)\n %2 : f32[2, 3] = add(%0, %1)\n %9 : f32[2, 3] = neg(%2)\n return %9");
    unchanged(
        "%1 : f32[2, 3] = scalar(value=-0.0)\n %2 : f32[2, 3] = sub(%0, %1)\n %9 : f32[2, 3] = neg(%2)\n return %9");
    unchanged(
        "%1 : f32[2, 3] = scalar(value=0.0)\n %2 : f32[2, 3] = mul(%0, %1)\n %9 : f32[2, 3] = neg(%2)\n return %9");
    unchanged(
        "%1 : f32[2, 3] = scalar(value=0.0)\n %2 : f32[2, 3] = sub(%1, %0)\n %9 : f32[2, 3] = abs(%2)\n return %9");
}

TEST(Fold, OutputsStayFresh) {
    unchanged("%1 : f32[2, 3] = scalar(value=1.0)\n %2 : f32[2, 3] = mul(%0, %1)\n return %2");
    unchanged("%1 : f32[2, 3] = copy(%0)\n return %1");
    // a view of a copy that is handed out must not become a view of the input
    unchanged(
        "%1 @0 : f32[2, 3] = copy(%0)\n %2 @0 : f32[3, 2]{1, 3} = permute(%1, dims=[1, 0]) aliases=[0]\n return %2");
}

TEST(Fold, ViewsOfADroppedCopyFollow) {
    EXPECT_TRUE(
        same(folded("%1 @0 : f32[2, 3] = copy(%0)\n %2 @0 : f32[3, 2]{1, 3} = permute(%1, dims=[1, 0]) aliases=[0]\n"
                    "%3 : f32[3, 2] = neg(%2)\n return %3"),
             "graph { %0 @0 : f32[2, 3] = input\n %2 @0 : f32[3, 2]{1, 3} = permute(%0, dims=[1, 0]) aliases=[0]\n"
             "%3 : f32[3, 2] = neg(%2)\n return %3 }"));
}

TEST(Fold, CallsKeepTheirLayouts) {
    unchanged("%1 : f32[2, 3]{1, 2} = copy(%0)\n %2 : f32[2, 3] = call aten::clone(self=%1)\n return %2");
    EXPECT_TRUE(same(folded("%1 : f32[2, 3] = copy(%0)\n %2 : f32[2, 3] = call aten::clone(self=%1)\n return %2"),
                     graph("%2 : f32[2, 3] = call aten::clone(self=%0)\n return %2")));
    unchanged(
        "%1 @0 : f32[2, 3] = copy(%0)\n %2 @0 : f32[2]{1} = call aten::as_strided(self=%1, storage_offset=1) "
        "aliases=[0]\n"
        "%3 : f32[2] = neg(%2)\n return %3");
    EXPECT_TRUE(same(folded("%1 : f32[2, 3]{1, 2} = copy(%0)\n %2 : f32[2, 3]{1, 2} = neg(%1)\n return %2"),
                     graph("%2 : f32[2, 3]{1, 2} = neg(%0)\n return %2")));
}

TEST(Fold, WrittenMemoryIsLeftAlone) {
    unchanged(
        "%1 @0 : f32[2, 3] = copy(%0)\n %2 @0 : f32[2, 3] = call aten::neg_(self=%1) writes=[0] aliases=[0]\n"
        "%3 : f32[2, 3] = add(%1, %0)\n return %3");
}

TEST(Fold, Casts) {
    EXPECT_TRUE(
        same(folded("%1 : f64[2, 3] = cast(%0)\n %2 : f32[2, 3] = cast(%1)\n %3 : f32[2, 3] = neg(%2)\n return %3"),
             graph("%3 : f32[2, 3] = neg(%0)\n return %3")));
    EXPECT_TRUE(same(folded("%1 : f64[2, 3] = cast(%0)\n %2 : bf16[2, 3] = cast(%1)\n return %2"),
                     graph("%2 : bf16[2, 3] = cast(%0)\n return %2")));
    unchanged("%1 : bf16[2, 3] = cast(%0)\n %2 : f32[2, 3] = cast(%1)\n return %2");
    unchanged("%1 : bool[2, 3] = cast(%0)\n %2 : i64[2, 3] = cast(%1)\n return %2");
}

TEST(Fold, ViewsOfViews) {
    EXPECT_TRUE(same(folded("%1 : f32[3, 2]{1, 3} = permute(%0, dims=[1, 0])\n %2 : f32[2, 3] = permute(%1, dims=[1, "
                            "0])\n %3 : f32[2, 3] = neg(%2)\n return %3"),
                     graph("%3 : f32[2, 3] = neg(%0)\n return %3")));
    EXPECT_TRUE(same(folded("%1 : f32[6] = reshape(%0)\n %2 : f32[3, 2] = reshape(%1)\n return %2"),
                     graph("%2 : f32[3, 2] = reshape(%0)\n return %2")));
    EXPECT_TRUE(same(folded("%1 : f32[2, 2]{3, 1} = slice(%0, starts=[0, 1], steps=[1, 1])\n %2 : f32[1, 1]{6, 2} = "
                            "slice(%1, starts=[1, 0], steps=[2, 2])\n return %2"),
                     graph("%2 : f32[1, 1]{6, 2} = slice(%0, starts=[1, 1], steps=[2, 2])\n return %2")));
    EXPECT_TRUE(
        same(folded("%1 : f32[1, 2, 3] = reshape(%0)\n %2 : f32[2, 2, 3]{0, 3, 1} = expand(%1)\n %3 : f32[4, 2, 2, "
                    "3]{0, 0, 3, 1} = expand(%2)\n return %3"),
             graph("%1 : f32[1, 2, 3] = reshape(%0)\n %3 : f32[4, 2, 2, 3]{0, 0, 3, 1} = expand(%1)\n return %3")));
}

TEST(Fold, ViewsThatAreHandedOutStayViews) {
    EXPECT_TRUE(same(after("fold",
                           "graph { %0 @0 : f32[2, 3] = input\n %1 @0 : f32[6] = reshape(%0) aliases=[0]\n %2 @0 : "
                           "f32[3, 2] = reshape(%1) aliases=[0]\n return %2 }"),
                     "graph { %0 @0 : f32[2, 3] = input\n %1 @0 : f32[6] = reshape(%0) aliases=[0]\n %2 @0 : f32[3, 2] "
                     "= reshape(%0) aliases=[0]\n return %2 }"));
    // the identity view is another tensor object
    std::string identity =
        "graph { %0 @0 : f32[2, 3] = input\n %1 @0 : f32[2, 3] = reshape(%0) aliases=[0]\n return %1 }";
    EXPECT_TRUE(same(after("fold", identity), identity));
}

TEST(Fold, Constants) {
    EXPECT_TRUE(same(folded("%1 : f32[] = scalar(value=2.0)\n %2 : f32[] = scalar(value=3.0)\n %3 : f32[] = mul(%1, "
                            "%2)\n %4 : f32[2, 3]{0, 0} = expand(%3)\n"
                            "%5 : i64[2, 3] = cast(%4)\n return %5"),
                     graph("%5 : i64[2, 3] = scalar(value=6)\n return %5")));
    EXPECT_TRUE(same(folded("%1 : bf16[] = scalar(value=1.0)\n %2 : bf16[] = scalar(value=0.001)\n %3 : bf16[] = "
                            "add(%1, %2)\n return %3"),
                     graph("%3 : bf16[] = scalar(value=1.0)\n return %3")));
    EXPECT_TRUE(same(folded("%1 : i8[] = scalar(value=100)\n %2 : i8[] = add(%1, %1)\n return %2"),
                     graph("%2 : i8[] = scalar(value=-56)\n return %2")));
    EXPECT_TRUE(same(folded("%1 : bool[2, 3] = scalar(value=true)\n %2 : f32[2, 3] = neg(%0)\n %3 : f32[2, 3] = "
                            "where(%1, %2, %0)\n %4 : f32[2, 3] = exp(%3)\n return %4"),
                     graph("%2 : f32[2, 3] = neg(%0)\n %4 : f32[2, 3] = exp(%2)\n return %4")));
    unchanged("%1 : f32[] = scalar(value=2.0)\n %2 : f32[] = exp(%1)\n return %2");
    unchanged("%1 : f32[] = scalar(value=1e+30)\n %2 : i32[] = cast(%1)\n return %2");
}

TEST(Fold, InvolutionsAndIdempotents) {
    EXPECT_TRUE(
        same(folded("%1 : f32[2, 3] = neg(%0)\n %2 : f32[2, 3] = neg(%1)\n %3 : f32[2, 3] = exp(%2)\n return %3"),
             graph("%3 : f32[2, 3] = exp(%0)\n return %3")));
    EXPECT_TRUE(
        same(folded("%1 : f32[2, 3] = relu(%0)\n %2 : f32[2, 3] = relu(%1)\n %3 : f32[2, 3] = exp(%2)\n return %3"),
             graph("%1 : f32[2, 3] = relu(%0)\n %3 : f32[2, 3] = exp(%1)\n return %3")));
    unchanged(
        "%1 : bool[2, 3] = logical_not(%0)\n %2 : bool[2, 3] = logical_not(%1)\n %3 : i64[2, 3] = cast(%2)\n return "
        "%3");
}

}  // namespace
}  // namespace braze::testing
