#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/ir/evaluate.h"
#include "core/ir/op.h"
#include "core/ir/text.h"
#include "core/ir/verify.h"
#include "core/passes/decompose/promotion.h"
#include "core/passes/decompose/rules.h"
#include "core/passes/pass.h"

namespace braze::passes {
namespace {

using ir::DType;
using ir::Graph;
using ir::HostTensor;
using Numbers = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Graph lowered(const std::string& text) {
    Graph g = ir::parse_graph("graph {\n" + text + "\n}");
    PipelineOptions options;
    Context context{options, nullptr};
    decompose(g, context);
    ir::verify(g);
    return g;
}

// The operators that are left, without inputs, in order.
std::string operators(const Graph& g) {
    std::string out;
    for (const ir::Node* n : g.nodes) {
        if (n->op == ir::Op::Input) continue;
        if (!out.empty()) out += " ";
        out += ir::name(n->op);
    }
    return out;
}

HostTensor tensor(DType d, std::vector<int64_t> sizes, const Numbers& numbers) {
    HostTensor t = HostTensor::empty(d, std::move(sizes));
    for (size_t i = 0; i < numbers.size(); ++i) t.set_number(static_cast<int64_t>(i), numbers[i]);
    return t;
}

Numbers numbers(const HostTensor& t) {
    Numbers out;
    for (int64_t i = 0; i < t.numel(); ++i) out.push_back(t.number(i));
    return out;
}

void expect_numbers(const HostTensor& got, const Numbers& want, double tolerance = 0) {
    ASSERT_EQ(static_cast<size_t>(got.numel()), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
        double x = got.number(static_cast<int64_t>(i));
        if (std::isnan(want[i])) {
            EXPECT_TRUE(std::isnan(x)) << "element " << i << " is " << x;
        } else if (std::isinf(want[i]) || tolerance == 0) {
            EXPECT_EQ(x, want[i]) << "element " << i;
        } else {
            EXPECT_NEAR(x, want[i], tolerance) << "element " << i;
        }
    }
}

std::vector<HostTensor> run(const std::string& text, const std::vector<HostTensor>& inputs) {
    Graph g = lowered(text);
    EXPECT_EQ(operators(g).find("call"), std::string::npos) << ir::print(g);
    return ir::evaluate(g, inputs);
}

// ---- promotion

ir::Value value(DType d, int rank) {
    ir::Value v;
    v.type.dtype = d;
    v.type.sizes.assign(static_cast<size_t>(rank), 2);
    v.type.strides.assign(static_cast<size_t>(rank), 1);
    return v;
}

TEST(Promotion, OfTwoDtypes) {
    using decomposition::promote;
    EXPECT_EQ(promote(DType::I8, DType::U8), DType::I16);
    EXPECT_EQ(promote(DType::U8, DType::I32), DType::I32);
    EXPECT_EQ(promote(DType::F16, DType::BF16), DType::F32);
    EXPECT_EQ(promote(DType::BF16, DType::I64), DType::BF16);
    EXPECT_EQ(promote(DType::Bool, DType::U8), DType::U8);
    EXPECT_EQ(promote(DType::U32, DType::I32), std::nullopt);
}

TEST(Promotion, DimensionedBeforeZeroDimBeforeNumbers) {
    using decomposition::Number;
    using decomposition::Operand;
    using decomposition::result_type;
    ir::Value i32 = value(DType::I32, 1), i64_0 = value(DType::I64, 0), f64_0 = value(DType::F64, 0),
              bf16 = value(DType::BF16, 2), b = value(DType::Bool, 1);
    auto type = [](std::vector<Operand> xs) { return result_type(xs); };
    EXPECT_EQ(type({&i32, &i64_0}), DType::I32);
    EXPECT_EQ(type({&i32, &f64_0}), DType::F64);
    EXPECT_EQ(type({&bf16, &f64_0}), DType::BF16);
    EXPECT_EQ(type({&bf16, Number(1.5)}), DType::BF16);
    EXPECT_EQ(type({&b, Number(3)}), DType::I64);
    EXPECT_EQ(type({&b, &i64_0}), DType::I64);
    EXPECT_EQ(type({&i32, Number(true)}), DType::I32);
    EXPECT_EQ(type({&i32, Number(2.5)}), std::nullopt);  // the default float dtype
}

// ---- pointwise

TEST(Decompose, AddScalesTheOtherOperand) {
    auto out = run(R"(  %0 : f32[2, 3] = input
  %1 : f32[3] = input
  %2 : f32[2, 3] = call aten::add.Tensor(self=%0, other=%1, alpha=2)
  return %2)",
                   {tensor(DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6}), tensor(DType::F32, {3}, {1, 10, 100})});
    expect_numbers(out[0], {3, 22, 203, 6, 25, 206});
}

TEST(Decompose, ANumberAtATensorsPlaceTakesTheTensorsDtype) {
    auto out = run(R"(  %0 : i64[2] = input
  %1 : i64[2] = call aten::add.Tensor(self=%0, other=3, alpha=1)
  %2 : f32[2] = call aten::mul.Tensor(self=%0, other=0.5)
  return %1, %2)",
                   {tensor(DType::I64, {2}, {1, -2})});
    expect_numbers(out[0], {4, 1});
    expect_numbers(out[1], {0.5, -1});
}

TEST(Decompose, HalfTypesMultiplyANumberUnrounded) {
    // 0.1003 is not a bf16; eager multiplies in f32 and rounds once.
    auto out = run(R"(  %0 : bf16[1] = input
  %1 : bf16[1] = call aten::mul.Tensor(self=%0, other=0.1003)
  return %1)",
                   {tensor(DType::BF16, {1}, {1.0078125})});
    auto want = tensor(DType::BF16, {1}, {1.0078125 * static_cast<double>(0.1003F)});
    expect_numbers(out[0], numbers(want));
}

TEST(Decompose, ComparisonsComputeInThePromotedDtype) {
    auto out = run(R"(  %0 : u8[3] = input
  %1 : i8[3] = input
  %2 : bool[3] = call aten::lt.Tensor(self=%0, other=%1)
  %3 : bool[3] = call aten::eq.Scalar(self=%0, other=200)
  return %2, %3)",
                   {tensor(DType::U8, {3}, {0, 200, 5}), tensor(DType::I8, {3}, {-1, 100, 6})});
    expect_numbers(out[0], {0, 0, 1});
    expect_numbers(out[1], {0, 1, 0});
}

TEST(Decompose, WhatTheGraphDoesNotKnowStaysACall) {
    const char* cases[] = {
        // The default float dtype decides in which dtype this is compared.
        "%1 : bool[2] = call aten::gt.Scalar(self=%0, other=0.5)",
        // Out of the range of the dtype.
        "%1 : bool[2] = call aten::eq.Scalar(self=%0, other=99999999999)",
        // Division by zero raises.
        "%1 : i32[2] = call aten::floor_divide(self=%0, other=%0)",
        "%1 : i32[2] = call aten::remainder.Scalar(self=%0, other=0)",
        "%1 : i32[2] = call aten::pow.Tensor_Tensor(self=%0, exponent=%0)",
        "%1 : i32[2] = call aten::no_such_operator(self=%0)",
        "%1 : c64[2] = call aten::add.Tensor(self=%0, other=%0, alpha=1)",
        "%1 : i32[2] = call aten::neg(self=%0) ordered",
        "%1 : i32[2] = call aten::add_.Tensor(self=%0, other=1, alpha=1) writes=[0]",
    };
    for (const char* call : cases) {
        Graph g = lowered(std::string("  %0 : i32[2] = input\n  ") + call + "\n  return %1");
        EXPECT_EQ(g.outputs[0]->node->op, ir::Op::Call) << ir::print(g);
    }
}

TEST(Decompose, IntegerDivisionRoundsAsAskedAndNeverTraps) {
    constexpr double min = -2147483648.0;
    auto out = run(R"(  %0 : i32[3] = input
  %1 : i32[3] = call aten::floor_divide(self=%0, other=2)
  %2 : i32[3] = call aten::div.Tensor_mode(self=%0, other=2, rounding_mode="trunc")
  %3 : i32[3] = call aten::floor_divide(self=%0, other=-1)
  %4 : i32[3] = call aten::remainder.Scalar(self=%0, other=-1)
  return %1, %2, %3, %4)",
                   {tensor(DType::I32, {3}, {-7, 7, min})});
    expect_numbers(out[0], {-4, 3, min / 2});
    expect_numbers(out[1], {-3, 3, min / 2});
    expect_numbers(out[2], {7, -7, min});
    expect_numbers(out[3], {0, 0, 0});
}

TEST(Decompose, PowersBySmallExponents) {
    auto ops = [](const char* exponent) {
        return operators(lowered(
            std::string("  %0 : f32[2] = input\n  %1 : f32[2] = call aten::pow.Tensor_Scalar(self=%0, exponent=") +
            exponent + ")\n  return %1"));
    };
    EXPECT_EQ(ops("2"), "mul");
    EXPECT_EQ(ops("3.0"), "mul mul");
    EXPECT_EQ(ops("0.5"), "sqrt");
    EXPECT_EQ(ops("-0.5"), "rsqrt");
    EXPECT_EQ(ops("-1"), "reciprocal");
    EXPECT_EQ(ops("0"), "scalar");
    EXPECT_EQ(ops("1"), "copy");
    EXPECT_EQ(ops("2.5"), "scalar pow");
    auto out =
        run("  %0 : i64[2] = input\n  %1 : i64[2] = call aten::pow.Tensor_Scalar(self=%0, exponent=5)\n  return %1",
            {tensor(DType::I64, {2}, {-3, 2})});
    expect_numbers(out[0], {-243, 32});
}

TEST(Decompose, ClampKeepsNaN) {
    auto out = run(R"(  %0 : f32[4] = input
  %1 : f32[4] = call aten::clamp(self=%0, min=-1, max=1.5)
  %2 : f32[4] = call aten::clamp_min(self=%0, min=0)
  %3 : f32[4] = call aten::clamp(self=%0, min=2, max=1)
  return %1, %2, %3)",
                   {tensor(DType::F32, {4}, {kNaN, -kInf, 0.5, 7})});
    expect_numbers(out[0], {kNaN, -1, 0.5, 1.5});
    expect_numbers(out[1], {kNaN, 0, 0.5, 7});
    expect_numbers(out[2], {kNaN, 1, 1, 1});
}

TEST(Decompose, MaskedFillAndWhereCastTheValue) {
    auto out =
        run(R"(  %0 : f32[2, 2] = input
  %1 : bool[2] = input
  %2 : f64[] = input
  %3 : f32[2, 2] = call aten::masked_fill.Scalar(self=%0, mask=%1, value=-inf)
  %4 : f32[2, 2] = call aten::where.self(condition=%1, self=%0, other=%2)
  return %3, %4)",
            {tensor(DType::F32, {2, 2}, {1, 2, 3, 4}), tensor(DType::Bool, {2}, {1, 0}), tensor(DType::F64, {}, {9})});
    expect_numbers(out[0], {-kInf, 2, -kInf, 4});
    expect_numbers(out[1], {1, 9, 3, 9});
}

TEST(Decompose, Activations) {
    auto out = run(R"(  %0 : f32[3] = input
  %1 : f32[3] = call aten::gelu(self=%0, approximate="none")
  %2 : f32[3] = call aten::gelu(self=%0, approximate="tanh")
  %3 : f32[3] = call aten::silu(self=%0)
  %4 : f32[3] = call aten::hardswish(self=%0)
  %5 : f32[3] = call aten::leaky_relu(self=%0, negative_slope=0.5)
  %6 : f32[3] = call aten::elu(self=%0, alpha=1, scale=1, input_scale=1)
  return %1, %2, %3, %4, %5, %6)",
                   {tensor(DType::F32, {3}, {-1, 0, 2})});
    expect_numbers(out[0], {-0.158655254, 0, 1.954499736}, 1e-6);
    expect_numbers(out[1], {-0.158808009, 0, 1.954597694}, 1e-6);
    expect_numbers(out[2], {-0.268941421, 0, 1.761594156}, 1e-6);
    expect_numbers(out[3], {-1.0 / 3, 0, 5.0 / 3}, 1e-6);
    expect_numbers(out[4], {-0.5, 0, 2});
    expect_numbers(out[5], {std::expm1(-1.0), 0, 2}, 1e-6);
}

// ---- results

TEST(Decompose, ResultsKeepTheirStridesAndStorage) {
    Graph g = lowered(R"(  %0 @0 : f32[2, 3]{1, 2} = input
  %1 @1 : f32[2, 3]{1, 2} = call aten::exp(self=%0)
  %2 @1 : f32[3, 2]{2, 1} = call aten::t(self=%1) aliases=[0]
  %3 : f32[2, 3] = call aten::clone(self=%0, memory_format=opaque(0, "contiguous"))
  return %2, %1, %3)");
    EXPECT_EQ(operators(g), "exp permute copy");
    EXPECT_EQ(g.outputs[1]->type.strides, (ir::TensorType{DType::F32, {2, 3}, {1, 2}}.strides));
    EXPECT_EQ(g.outputs[0]->storage, g.outputs[1]->storage);
    EXPECT_EQ(g.outputs[0]->node->aliases, std::vector<int>{0});
    EXPECT_EQ(g.outputs[2]->storage, -1);
    EXPECT_TRUE(ir::is_contiguous(g.outputs[2]->type));
}

TEST(Decompose, ViewsOfSymbolicSizes) {
    Graph g = lowered(R"(  symbol s0 [2, max]
  %0 @0 : f32[s0, 6] = input
  %1 @0 : f32[s0, 2, 3]{6, 3, 1} = call aten::view(self=%0, size=[s0, 2, 3]) aliases=[0]
  %2 @0 : f32[s0, 3]{6, 1} = call aten::select.int(self=%1, dim=1, index=-1) aliases=[0]
  %3 @0 : f32[s0 - 1, 3]{6, 1} = call aten::slice.Tensor(self=%2, dim=0, start=1, end=9223372036854775807, step=1) aliases=[0]
  %4 : f32[s0, 3] = call aten::softplus(self=%2, beta=1, threshold=20)
  return %3, %4)");
    EXPECT_EQ(operators(g).find("call"), std::string::npos) << ir::print(g);
    EXPECT_EQ(g.outputs[0]->storage, 0);
}

TEST(Decompose, SplitGivesConsecutivePieces) {
    auto out = run(R"(  %0 @0 : f32[5] = input
  %1 @0 : f32[2] = input
  %2 @0 : f32[2], %3 @0 : f32[2], %4 @0 : f32[1] = call aten::split.Tensor(self=%0, split_size=2, dim=0) aliases=[0, 0, 0]
  return %2, %3, %4)",
                   {tensor(DType::F32, {5}, {0, 1, 2, 3, 4}), tensor(DType::F32, {2}, {0, 0})});
    expect_numbers(out[0], {0, 1});
    expect_numbers(out[1], {2, 3});
    expect_numbers(out[2], {4});
}

// ---- creation and structure

TEST(Decompose, RangesAndTriangles) {
    auto out = run(R"(  %0 : f32[2, 3] = input
  %1 : i64[3] = call aten::arange.start_step(start=5, end=-1, step=-2, dtype=none)
  %2 : f32[2, 3] = call aten::tril(self=%0, diagonal=0)
  %3 : f32[2, 2] = call aten::eye(n=2, dtype=none)
  %4 : i32[2] = call aten::full(size=[2], fill_value=2.7, dtype=dtype(i32))
  return %1, %2, %3, %4)",
                   {tensor(DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6})});
    expect_numbers(out[0], {5, 3, 1});
    expect_numbers(out[1], {1, 0, 0, 4, 5, 0});
    expect_numbers(out[2], {1, 0, 0, 1});
    expect_numbers(out[3], {2, 2});
    Graph g =
        lowered("  %0 : f32[4] = call aten::arange.start_step(start=0, end=1, step=0.25, dtype=none)\n  return %0");
    EXPECT_EQ(operators(g), "call");
}

TEST(Decompose, CatPromotesAndSkipsTheEmpty) {
    auto out =
        run(R"(  %0 : f32[2, 1] = input
  %1 : i64[2, 1] = input
  %2 : f32[0] = input
  %3 : f32[2, 2] = call aten::cat(tensors={%0, %2, %1}, dim=-1)
  %4 : f32[3, 3] = call aten::constant_pad_nd(self=%3, pad=[1, 0, 0, 1], value=7)
  %5 : f32[2, 2] = call aten::roll(self=%3, shifts=[1], dims=[])
  return %3, %4, %5)",
            {tensor(DType::F32, {2, 1}, {1, 2}), tensor(DType::I64, {2, 1}, {3, 4}), tensor(DType::F32, {0}, {})});
    expect_numbers(out[0], {1, 3, 2, 4});
    expect_numbers(out[1], {7, 1, 3, 7, 2, 4, 7, 7, 7});
    expect_numbers(out[2], {4, 1, 3, 2});
}

TEST(Decompose, IndicesAreCheckedAsEagerDoes) {
    auto out = run(R"(  %0 : f32[3, 2] = input
  %1 : i64[2] = input
  %2 : f32[2, 2] = call aten::index.Tensor(self=%0, indices={%1})
  return %2)",
                   {tensor(DType::F32, {3, 2}, {0, 1, 2, 3, 4, 5}), tensor(DType::I64, {2}, {-1, 0})});
    expect_numbers(out[0], {4, 5, 0, 1});
    Graph g = lowered(R"(  %0 : f32[3, 2] = input
  %1 : i64[1] = input
  %2 : f32[1, 2] = call aten::embedding(weight=%0, indices=%1, padding_idx=-1, scale_grad_by_freq=false, sparse=false)
  return %2)");
    std::vector<HostTensor> inputs = {tensor(DType::F32, {3, 2}, {0, 1, 2, 3, 4, 5}), tensor(DType::I64, {1}, {2})};
    expect_numbers(ir::evaluate(g, inputs)[0], {4, 5});
    inputs[1].set_number(0, -1);  // a negative index is an error here
    EXPECT_ANY_THROW(ir::evaluate(g, inputs));
}

// ---- reductions

TEST(Decompose, SumsAndMeans) {
    auto out = run(R"(  %0 : f32[2, 3] = input
  %1 : f32[] = call aten::sum(self=%0, dtype=none)
  %2 : f32[2, 1] = call aten::mean.dim(self=%0, dim=[-1], keepdim=true, dtype=none)
  %3 : f32[] = call aten::mean.dim(self=%0, dim=[], keepdim=false, dtype=none)
  %4 : f32[3] = call aten::amax(self=%0, dim=[0], keepdim=false)
  return %1, %2, %3, %4)",
                   {tensor(DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6})});
    expect_numbers(out[0], {21});
    expect_numbers(out[1], {2, 5});
    expect_numbers(out[2], {3.5});
    expect_numbers(out[3], {4, 5, 6});
    auto ints = run("  %0 : bool[3] = input\n  %1 : i64[] = call aten::sum(self=%0, dtype=none)\n  return %1",
                    {tensor(DType::Bool, {3}, {1, 0, 1})});
    expect_numbers(ints[0], {2});
}

TEST(Decompose, MaxWithPlacesTakesTheFirstAndNaN) {
    auto out = run(R"(  %0 : f32[2, 3] = input
  %1 : f32[2], %2 : i64[2] = call aten::max.dim(self=%0, dim=1, keepdim=false)
  return %1, %2)",
                   {tensor(DType::F32, {2, 3}, {5, 7, 7, 1, kNaN, 9})});
    expect_numbers(out[0], {7, kNaN});
    expect_numbers(out[1], {1, 1});
}

TEST(Decompose, ReductionsOverNothingStayCalls) {
    Graph g = lowered("  %0 : f32[0] = input\n  %1 : f32[] = call aten::max(self=%0)\n  return %1");
    EXPECT_EQ(operators(g), "call");
    Graph var = lowered(
        "  %0 : f32[1] = input\n  %1 : f32[] = call aten::var.correction(self=%0, dim=none, correction=none, "
        "keepdim=false)\n"
        "  return %1");
    EXPECT_EQ(operators(var), "call");
}

TEST(Decompose, SoftmaxAndLayerNorm) {
    auto out = run(R"(  %0 : f32[2, 2] = input
  %1 : f32[2] = input
  %2 : f32[2, 2] = call aten::_softmax(self=%0, dim=-1, half_to_float=false)
  %3 : f32[2, 2], %4 : f32[2, 1], %5 : f32[2, 1] = call aten::native_layer_norm(input=%0, normalized_shape=[2], weight=%1, bias=none, eps=0.0)
  %6 : f32[2] = call aten::logsumexp(self=%0, dim=[1], keepdim=false)
  return %2, %3, %4, %5, %6)",
                   {tensor(DType::F32, {2, 2}, {0, 0, 1, 3}), tensor(DType::F32, {2}, {1, 2})});
    double e2 = std::exp(2.0);
    expect_numbers(out[0], {0.5, 0.5, 1 / (1 + e2), e2 / (1 + e2)}, 1e-6);
    expect_numbers(out[2], {0, 2});
    expect_numbers(out[3], {kInf, 1});
    EXPECT_NEAR(out[1].number(2), -1, 1e-6);
    EXPECT_NEAR(out[1].number(3), 2, 1e-6);
    expect_numbers(out[4], {std::log(2.0), 3 + std::log1p(1 / e2)}, 1e-6);
}

TEST(Decompose, BatchNormOnlyInInference) {
    auto text = [](const char* training) {
        return std::string(R"(  %0 : f32[2, 2] = input
  %1 : f32[2] = input
  %2 : f32[2] = input
  %3 : f32[2, 2], %4 : f32[0], %5 : f32[0] = call aten::native_batch_norm(input=%0, weight=none, bias=none, running_mean=%1, running_var=%2, training=)") +
               training + ", momentum=0.1, eps=0.0)\n  return %3";
    };
    auto out = run(text("false"), {tensor(DType::F32, {2, 2}, {1, 2, 3, 4}), tensor(DType::F32, {2}, {1, 2}),
                                   tensor(DType::F32, {2}, {1, 4})});
    expect_numbers(out[0], {0, 0, 2, 1}, 1e-6);
    EXPECT_EQ(operators(lowered(text("true"))), "call");
}

TEST(Decompose, GradientsOfSlicesWithSteps) {
    const auto gradient = [](int start, int step, int size) {
        const int n = (size - start + step - 1) / step;
        std::vector<double> ones(static_cast<size_t>(n)), want(static_cast<size_t>(size), 0.0);
        for (int i = 0; i < n; ++i) want[static_cast<size_t>(start + i * step)] = ones[static_cast<size_t>(i)] = i + 1;
        const auto str = [](int k) { return std::to_string(k); };
        auto out =
            run("  %0 : f32[1, " + str(n) + "] = input\n  %1 : f32[1, " + str(size) +
                    "] = call aten::slice_backward(grad_output=%0, input_sizes=[1, " + str(size) +
                    "], dim=1, start=" + str(start) + ", end=9223372036854775807, step=" + str(step) + ")\n  return %1",
                {tensor(DType::F32, {1, n}, ones)});
        expect_numbers(out[0], want);
    };
    for (int step : {1, 2, 3})
        for (int start : {0, 1, 2, 4})
            for (int size : {5, 6, 7, 8}) gradient(start, step, size);
}

TEST(Decompose, GradientOfLayerNormOfSingleElementsStays) {
    const auto text = [](const std::string& size) {
        return "  %0 : f32[4, " + size + "] = input\n  %1 : f32[4, 1] = input\n  %2 : f32[" + size +
               "] = input\n  %3 : f32[4, " + size + "], %4 : f32[" + size + "], %5 : f32[" + size +
               "] = call aten::native_layer_norm_backward(grad_out=%0, input=%0, normalized_shape=[" + size +
               "], mean=%1, rstd=%1, weight=%2, bias=%2, output_mask=b[true, true, true])\n  return %3, %4, %5";
    };
    EXPECT_EQ(operators(lowered(text("1"))), "call");
    EXPECT_NE(operators(lowered(text("2"))), "call");
}

TEST(Decompose, NllLossIgnores) {
    auto out = run(R"(  %0 : f32[3, 2] = input
  %1 : i64[3] = input
  %2 : f32[], %3 : f32[] = call aten::nll_loss_forward(self=%0, target=%1, weight=none, reduction=1, ignore_index=-100)
  return %2, %3)",
                   {tensor(DType::F32, {3, 2}, {-1, -2, -3, -4, -5, -6}), tensor(DType::I64, {3}, {1, -100, 0})});
    expect_numbers(out[0], {3.5});
    expect_numbers(out[1], {2});
}

TEST(Decompose, ShiftsOutsideTheWidthLeaveTheSign) {
    auto out = run(R"(  %0 : i32[3] = input
  %1 : i32[3] = input
  %2 : i32[3] = call aten::bitwise_left_shift.Tensor(self=%0, other=%1)
  %3 : i32[3] = call aten::bitwise_right_shift.Tensor(self=%0, other=%1)
  return %2, %3)",
                   {tensor(DType::I32, {3}, {-8, 5, -8}), tensor(DType::I32, {3}, {1, 40, -1})});
    expect_numbers(out[0], {-16, 0, 0});
    expect_numbers(out[1], {-4, 0, -1});
}

TEST(Decompose, PadsByReflectionAndReplication) {
    auto out = run(R"(  %0 : f32[1, 3] = input
  %1 : f32[1, 6] = call aten::reflection_pad1d(self=%0, padding=[2, 1])
  %2 : f32[1, 6] = call aten::replication_pad1d(self=%0, padding=[1, 2])
  return %1, %2)",
                   {tensor(DType::F32, {1, 3}, {1, 2, 3})});
    expect_numbers(out[0], {3, 2, 1, 2, 3, 2});
    expect_numbers(out[1], {1, 1, 2, 3, 3, 3});
}

TEST(Decompose, PoolsOnlyOverWindowsThatTile) {
    auto pool = [](const char* padding) {
        return std::string(R"(  %0 : f32[1, 2, 4] = input
  %1 : f32[1, 1, 2] = call aten::avg_pool2d(self=%0, kernel_size=[2, 2], stride=[], padding=)") +
               padding + ", ceil_mode=false, count_include_pad=true, divisor_override=none)\n  return %1";
    };
    auto out = run(pool("[0, 0]"), {tensor(DType::F32, {1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})});
    expect_numbers(out[0], {3.5, 5.5});
    EXPECT_EQ(operators(lowered(pool("[1, 1]"))), "call");
}

TEST(Decompose, ARowIsAddedAfterTheProduct) {
    const auto addmm = [](const std::string& dtype, const std::string& row, const std::string& beta) {
        return operators(lowered("%0 : " + dtype + row + " = input\n%1 : " + dtype + "[2, 5] = input\n%2 : " + dtype +
                                 "[5, 3] = input\n%3 : " + dtype +
                                 "[2, 3] = call aten::addmm(self=%0, mat1=%1, mat2=%2, beta=" + beta +
                                 ", alpha=1)\nreturn %3"));
    };
    EXPECT_EQ(addmm("f32", "[3]", "1"), "call expand add");
    EXPECT_EQ(addmm("f64", "[1, 3]", "1"), "call expand add");
    EXPECT_EQ(addmm("f32", "[2, 3]", "1"), "call");
    EXPECT_EQ(addmm("f32", "[3]", "2"), "call");
    EXPECT_EQ(addmm("bf16", "[3]", "1"), "call");  // rounds once
}

TEST(Decompose, ConvolutionsOfAChannelAlongOneAxis) {
    const auto text = [](const std::string& weight, const std::string& out, const std::string& stride,
                         const std::string& groups) {
        return "%0 : f32[1, 2, 3] = input\n%1 : f32" + weight + " = input\n%2 : f32[2] = input\n%3 : f32" + out +
               " = call aten::convolution(input=%0, weight=%1, bias=%2, stride=[" + stride +
               "], padding=[2], dilation=[1], transposed=false, output_padding=[0], groups=" + groups + ")\nreturn %3";
    };
    // what lies outside is left out rather than multiplied
    const auto out = run(text("[2, 1, 2]", "[1, 2, 6]", "1", "2"),
                         {tensor(DType::F32, {1, 2, 3}, {1, 2, 3, 4, 5, 6}),
                          tensor(DType::F32, {2, 1, 2}, {10, 1, kInf, 1}), tensor(DType::F32, {2}, {0.5, 0})});
    expect_numbers(out[0], {0.5, 1.5, 12.5, 23.5, 30.5, 0.5, 0, 4, kInf, kInf, kInf, 0});
    EXPECT_EQ(operators(lowered(text("[2, 1, 2]", "[1, 2, 3]", "2", "2"))), "call");
    EXPECT_EQ(operators(lowered(text("[2, 2, 2]", "[1, 2, 6]", "1", "1"))), "call");
    EXPECT_EQ(operators(lowered(text("[2, 1, 9]", "[1, 2, 1]", "1", "2"))), "call");
}

TEST(Rules, AreFoundByOperator) {
    EXPECT_NE(decomposition::find_rule("aten::add.Tensor"), nullptr);
    EXPECT_NE(decomposition::find_rule("aten::relu"), nullptr);
    EXPECT_EQ(decomposition::find_rule("aten::mm"), nullptr);
}

}  // namespace
}  // namespace braze::passes
