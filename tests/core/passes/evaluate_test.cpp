#include <cmath>

#include "core/support/error.h"
#include "tests/core/passes/support.h"

namespace braze::ir {
namespace {

HostTensor tensor(DType d, std::vector<int64_t> sizes, const std::vector<double>& values) {
    HostTensor t = HostTensor::empty(d, std::move(sizes));
    for (size_t i = 0; i < values.size(); ++i) t.set_number(static_cast<int64_t>(i), values[i]);
    return t;
}
std::vector<double> values(const HostTensor& t) {
    std::vector<double> out;
    for (int64_t i = 0; i < t.numel(); ++i) out.push_back(t.number(i));
    return out;
}
std::vector<double> run(const std::string& body, const std::vector<HostTensor>& inputs) {
    Graph g = parse_graph("graph {" + body + "}");
    verify(g);
    return values(evaluate(g, inputs)[0]);
}
using V = std::vector<double>;
const HostTensor x23 = tensor(DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6});

TEST(Evaluate, Elementwise) {
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : f32[2,3]=mul(%0,%0) return %1", {x23}), (V{1, 4, 9, 16, 25, 36}));
    EXPECT_EQ(run("%0 : f32[2]=input %1 : bool[2]=isnan(%0) return %1", {tensor(DType::F32, {2}, {NAN, 1})}),
              (V{1, 0}));
    EXPECT_EQ(run("%0 : i8[2]=input %1 : i8[2]=add(%0,%0) return %1", {tensor(DType::I8, {2}, {100, -3})}),
              (V{-56, -6}));
    EXPECT_EQ(run("%0 : f32[2]=input %1 : i32[2]=cast(%0) return %1", {tensor(DType::F32, {2}, {1.9, -1.9})}),
              (V{1, -1}));
    // bf16 has 8 significant bits
    EXPECT_EQ(run("%0 : bf16[1]=input %1 : bf16[1]=add(%0,%0) %2 : f32[1]=cast(%1) return %2",
                  {tensor(DType::BF16, {1}, {1.00390625})}),
              (V{2.0}));
}

TEST(Evaluate, Views) {
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : f32[3,2]{1,3}=permute(%0,dims=[1,0]) return %1", {x23}),
              (V{1, 4, 2, 5, 3, 6}));
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : f32[3,2]=reshape(%0) return %1", {x23}), (V{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : f32[2,2]=slice(%0,starts=[0,0],steps=[1,2]) return %1", {x23}),
              (V{1, 3, 4, 6}));
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : f32[2,3]=flip(%0,dims=[1]) return %1", {x23}), (V{3, 2, 1, 6, 5, 4}));
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : f32[2]{4}=as_strided(%0,offset=1) return %1", {x23}), (V{2, 6}));
    EXPECT_EQ(run("%0 : f32[1,2]=input %1 : f32[2,2,2]=expand(%0) return %1", {tensor(DType::F32, {1, 2}, {7, 8})}),
              (V{7, 8, 7, 8, 7, 8, 7, 8}));
}

TEST(Evaluate, AliasesShareMemory) {
    Graph g = parse_graph(
        "graph { %0 @0 : f32[2,3]=input\n %1 @0 : f32[1,3]{3,1}=slice(%0,starts=[1,0],steps=[1,1]) aliases=[0]\n "
        "return %1, %0 }");
    auto out = evaluate(g, {x23});
    EXPECT_EQ(out[0].bytes, out[1].bytes);
    EXPECT_EQ(values(out[0]), (V{4, 5, 6}));
}

TEST(Evaluate, StructureAndIndex) {
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : f32[2,6]=cat(%0,%0,dim=1) return %1", {x23}),
              (V{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : f32[3,2]=pad(%0,low=[1,0],high=[0,-1],value=9.0) return %1", {x23}),
              (V{9, 9, 1, 2, 4, 5}));
    HostTensor index = tensor(DType::I64, {2}, {-1, 0});
    EXPECT_EQ(
        run("%0 : f32[2,3]=input %1 : i64[2]=input %2 : f32[2,2]=take(%0,%1,axes=[1],at=1) return %2", {x23, index}),
        (V{3, 1, 6, 4}));
    EXPECT_EQ(
        run("%0 : f32[2,3]=input %1 : i64[2]=input %2 : f32[2,3]=take(%0,%1,axes=[0],at=0) return %2", {x23, index}),
        (V{4, 5, 6, 1, 2, 3}));
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : i64[1,3]=input %2 : f32[1,3]=gather(%0,%1,dim=0) return %2",
                  {x23, tensor(DType::I64, {1, 3}, {1, 0, -1})}),
              (V{4, 2, 6}));
    EXPECT_THROW(run("%0 : f32[2,3]=input %1 : i64[2]=input %2 : f32[2,2]=take(%0,%1,axes=[1],at=1) return %2",
                     {x23, tensor(DType::I64, {2}, {3, 0})}),
                 InternalError);
    EXPECT_EQ(run("%0 : i64[2,3]=iota(axis=1, start=5, step=-2) return %0", {}), (V{5, 3, 1, 5, 3, 1}));
}

TEST(Evaluate, Reductions) {
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : f32[2]=sum(%0,dims=[1],keepdim=false) return %1", {x23}), (V{6, 15}));
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : f32[1,3]=max(%0,dims=[0],keepdim=true) return %1", {x23}), (V{4, 5, 6}));
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : i64[]=argmax(%0,dims=[0,1],keepdim=false) return %1", {x23}), (V{5}));
    EXPECT_EQ(run("%0 : f32[2,3]=input %1 : f32[2,3]=sum(%0,dims=[],keepdim=false) return %1", {x23}),
              (V{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(
        run("%0 : f32[2,3]=input %1 : f32[2], %2 : f32[2]=var_mean(%0,dims=[1],keepdim=false,correction=1.0) return %1",
            {x23}),
        (V{1, 1}));
    EXPECT_EQ(run("%0 : i8[2]=input %1 : i64[]=sum(%0,dims=[0],keepdim=false) return %1",
                  {tensor(DType::I8, {2}, {100, 100})}),
              (V{200}));
    double m = run("%0 : f32[2]=input %1 : f32[]=max(%0,dims=[0],keepdim=false) return %1",
                   {tensor(DType::F32, {2}, {NAN, 1})})[0];
    EXPECT_TRUE(std::isnan(m));
}

TEST(Evaluate, Symbols) {
    Graph g = parse_graph(
        "graph { symbol s0 [2, max]\n %0 : f32[s0]=input\n %1 : f32[s0]=scalar(value=s0)\n %2 : f32[s0]=add(%0,%1)\n "
        "return %2 }");
    auto out = evaluate(g, {tensor(DType::F32, {3}, {1, 2, 3})}, [](const Expr&) { return 3; });
    EXPECT_EQ(values(out[0]), (V{4, 5, 6}));
    EXPECT_THROW(evaluate(g, {tensor(DType::F32, {3}, {1, 2, 3})}), InternalError);
}

}  // namespace
}  // namespace braze::ir
