#include "tests/core/passes/support.h"

#include <cmath>
#include <random>

#include "core/support/error.h"

namespace braze::testing {

using ir::HostTensor;
using ir::Node;

bool apply(const char* pass, ir::Graph& g) {
    PipelineOptions options;
    options.verify = true;
    passes::Context c{options, nullptr};
    return passes::run_pass(*passes::find_pass(pass), g, c);
}

std::string after(const char* pass, const std::string& text) {
    ir::Graph g = ir::parse_graph(text);
    ir::verify(g);
    ir::Graph before = g.clone();
    apply(pass, g);
    for (unsigned seed = 0; seed < 3; ++seed) expect_same_effect(before, g, seed, true);
    return ir::print(g);
}

::testing::AssertionResult same(const std::string& got, const std::string& want) {
    if (ir::structurally_equal(ir::parse_graph(got), ir::parse_graph(want))) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "got\n" << got << "want\n" << want;
}

namespace {

std::string callee(const Node& n) { return n.callee.substr(6); }
int64_t integer(const Node& n, const char* name) { return n.get<ir::Expr>(name)->value(); }
double scalar(const Node& n, const char* name) {
    if (auto* v = n.get<double>(name)) return *v;
    return static_cast<double>(integer(n, name));
}

void fill(HostTensor& out, const std::function<double(int64_t)>& f) {
    std::vector<double> values;
    for (int64_t i = 0; i < out.numel(); ++i) values.push_back(f(i));
    for (int64_t i = 0; i < out.numel(); ++i) out.set_number(i, values[static_cast<size_t>(i)]);
}

}  // namespace

void run_aten(const Node& n, std::vector<HostTensor>& xs, std::vector<HostTensor>& results) {
    if (n.callee == "test::norm") {  // makes one tensor and writes another
        const int64_t columns = xs[1].numel();
        fill(results[0], [&](int64_t i) { return xs[0].number(i) - xs[1].number(i % columns); });
        fill(xs[1], [&](int64_t i) { return xs[1].number(i) + 1; });
        return;
    }
    std::string name = callee(n);
    bool in_place = !n.writes.empty();
    HostTensor& out = in_place ? xs[static_cast<size_t>(n.writes[0])] : results[0];
    if (in_place && !results.empty()) results[0] = out;
    auto a = [&](int64_t i) { return xs[0].number(i); };
    auto b = [&](int64_t i) { return xs[1].number(xs[1].numel() == 1 ? 0 : i); };
    std::string base = name.substr(0, name.find('.'));
    if (base.ends_with('_')) base.pop_back();
    if (base == "add")
        fill(out, [&](int64_t i) { return a(i) + b(i); });
    else if (base == "mul" && xs.size() == 1)
        fill(out, [&](int64_t i) { return a(i) * scalar(n, "other"); });
    else if (base == "mul")
        fill(out, [&](int64_t i) { return a(i) * b(i); });
    else if (base == "maximum")
        fill(out, [&](int64_t i) { return std::max(a(i), b(i)); });
    else if (base == "gt")
        fill(out, [&](int64_t i) { return a(i) > scalar(n, "other"); });
    else if (base == "masked_fill" || base == "index_put")
        fill(out, [&](int64_t i) { return b(i) != 0 ? xs[2].number(0) : a(i); });
    else if (base == "relu")
        fill(out, [&](int64_t i) { return a(i) < 0 ? 0 : a(i); });
    else if (base == "neg" || base == "bernoulli")
        fill(out, [&](int64_t i) { return base == "neg" ? -a(i) : double(i % 2); });
    else if (base == "copy")
        fill(out, [&](int64_t i) { return b(i); });
    else if (base == "fill")
        fill(out, [&](int64_t) { return xs.size() == 2 ? xs[1].number(0) : scalar(n, "value"); });
    else if (base == "zero" || base == "empty")
        fill(out, [](int64_t) { return 0.0; });
    else if (base == "clone")
        fill(out, a);
    else if (base == "slice")
        out.offset = xs[0].offset + integer(n, "start") * xs[0].strides[static_cast<size_t>(integer(n, "dim"))];
    else if (base == "convolution")  // of 1 x 1, from images with as many channels
        fill(out, [&](int64_t i) {
            const std::vector<int64_t>& sizes = xs[0].sizes;
            const int64_t area = sizes[2] * sizes[3], channels = sizes[1], o = i / area % channels;
            double sum = 0;
            for (int64_t c = 0; c < channels; ++c) sum += a(i + (c - o) * area) * b(o * channels + c);
            return sum;
        });
    else if (base == "split" || base == "unsafe_split")
        results[1].offset = xs[0].offset + xs[0].strides[0];
    else if (base == "split_copy") {  // along the first axis
        int64_t start = 0;
        for (HostTensor& part : results) {
            fill(part, [&](int64_t i) { return a(start + i); });
            start += part.numel();
        }
    } else if (base == "as_strided")
        out.offset = integer(n, "storage_offset");
    else if (base == "view" || base == "t" || base == "detach")
        return;
    else
        throw InternalError("the tests do not know " + n.callee);
}

std::vector<HostTensor> random_inputs(const ir::Graph& g, unsigned seed, bool special) {
    std::mt19937 rng(seed);
    auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    std::vector<HostTensor> out;
    for (const ir::Value* v : g.inputs) {
        std::vector<int64_t> sizes, strides;
        for (const auto& s : v->type.sizes) sizes.push_back(s.value());
        for (const auto& s : v->type.strides) strides.push_back(s.value());
        HostTensor t = HostTensor::empty(v->type.dtype, sizes, strides);
        for (size_t k = 0; k < out.size(); ++k)
            if (v->storage >= 0 && g.inputs[k]->storage == v->storage) t.bytes = out[k].bytes;
        static const double odd[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1.5};
        for (int64_t i = 0; i < t.numel(); ++i) {
            double x = pick(-12, 12) / 4.0;
            if (special && ir::is_float(t.dtype) && pick(0, 3) == 0) x = odd[pick(0, 5)];
            t.set_number(i, ir::is_float(t.dtype) ? x : std::trunc(x));
        }
        out.push_back(t);
    }
    return out;
}

namespace {

struct Effect {
    std::vector<HostTensor> tensors;  // outputs, then inputs
    explicit Effect(const ir::Graph& g, unsigned seed, bool special) {
        std::vector<HostTensor> inputs = random_inputs(g, seed, special);
        tensors = ir::evaluate(g, inputs, {}, run_aten);
        tensors.insert(tensors.end(), inputs.begin(), inputs.end());
    }
};

bool same_number(double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b && std::signbit(a) == std::signbit(b);
}

}  // namespace

void expect_same_effect(const ir::Graph& before, const ir::Graph& after, unsigned seed, bool special) {
    Effect want(before, seed, special), got(after, seed, special);
    ASSERT_EQ(want.tensors.size(), got.tensors.size());
    for (size_t i = 0; i < want.tensors.size(); ++i) {
        const HostTensor &x = want.tensors[i], &y = got.tensors[i];
        ASSERT_EQ(x.dtype, y.dtype);
        ASSERT_EQ(x.sizes, y.sizes);
        ASSERT_EQ(x.strides, y.strides) << "tensor " << i << "\n" << ir::print(before) << ir::print(after);
        for (int64_t k = 0; k < x.numel(); ++k)
            ASSERT_TRUE(same_number(x.number(k), y.number(k)))
                << "tensor " << i << ", element " << k << ": " << x.number(k) << " became " << y.number(k) << "\n"
                << ir::print(before) << ir::print(after);
        for (size_t j = 0; j < i; ++j)
            ASSERT_EQ(x.bytes == want.tensors[j].bytes, y.bytes == got.tensors[j].bytes)
                << "tensors " << j << " and " << i << "\n"
                << ir::print(before) << ir::print(after);
    }
    for (size_t i = 0; i < before.outputs.size(); ++i)
        for (size_t j = 0; j < before.outputs.size(); ++j) {
            bool was = before.outputs[i] == before.outputs[j];
            ASSERT_TRUE(was || after.outputs[i] != after.outputs[j] ||
                        before.outputs[i]->storage == before.outputs[j]->storage);
        }
}

}  // namespace braze::testing
