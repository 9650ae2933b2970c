#include "core/ir/evaluate.h"

#include <algorithm>
#include <unordered_map>

#include "core/ir/evaluate_node.h"
#include "core/ir/number.h"
#include "core/ir/op.h"
#include "core/ir/text.h"
#include "core/support/error.h"

namespace braze::ir {

namespace {

std::vector<int64_t> row_major_strides(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> strides(sizes.size());
    int64_t next = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
        strides[i] = next;
        next *= std::max<int64_t>(sizes[i], 1);
    }
    return strides;
}

std::vector<int64_t> index_of(int64_t row_major, const std::vector<int64_t>& sizes) {
    std::vector<int64_t> index(sizes.size());
    for (size_t i = sizes.size(); i-- > 0;) {
        index[i] = row_major % sizes[i];
        row_major /= sizes[i];
    }
    return index;
}

}  // namespace

HostTensor HostTensor::empty(DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    int64_t last = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
        if (sizes[i] == 0) {
            last = -1;
            break;
        }
        last += (sizes[i] - 1) * strides[i];
    }
    BRAZE_CHECK(size_of(dtype) > 0, "no host memory for dtype " + std::string(name(dtype)));
    size_t bytes = static_cast<size_t>(last + 1) * static_cast<size_t>(size_of(dtype));
    return {dtype, std::move(sizes), std::move(strides), 0, std::make_shared<std::vector<std::byte>>(bytes)};
}

HostTensor HostTensor::empty(DType dtype, std::vector<int64_t> sizes) {
    std::vector<int64_t> strides = row_major_strides(sizes);
    return empty(dtype, std::move(sizes), std::move(strides));
}

int64_t HostTensor::numel() const {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
}

int64_t HostTensor::element(const std::vector<int64_t>& index) const {
    int64_t at = offset;
    for (size_t i = 0; i < index.size(); ++i) at += index[i] * strides[i];
    return at;
}

double HostTensor::number(int64_t row_major) const {
    ir::Number x = ir::load_number(dtype, bytes->data(), element(index_of(row_major, sizes)));
    return is_float(dtype) ? x.f : static_cast<double>(x.i);
}

void HostTensor::set_number(int64_t row_major, double value) {
    ir::Number x = ir::cast_number(DType::F64, dtype, {.f = value});
    ir::store_number(dtype, bytes->data(), element(index_of(row_major, sizes)), x);
}

namespace {

class Evaluator {
  public:
    Evaluator(const Graph& g, const SymbolValues& symbols, const CallHandler& calls)
        : g_(g), symbols_(symbols), calls_(calls), values_(static_cast<size_t>(g.id_bound())) {}

    std::vector<HostTensor> run(const std::vector<HostTensor>& inputs) {
        BRAZE_CHECK(inputs.size() == g_.inputs.size(),
                    "expected " + std::to_string(g_.inputs.size()) + " inputs, got " + std::to_string(inputs.size()));
        for (size_t i = 0; i < inputs.size(); ++i) {
            const Value* v = g_.inputs[i];
            BRAZE_CHECK(inputs[i].dtype == v->type.dtype && inputs[i].sizes == numbers(v->type.sizes) &&
                            inputs[i].strides == numbers(v->type.strides),
                        "input " + std::to_string(i) + " is no " + print(v->type));
            value(v) = inputs[i];
        }
        for (const Node* n : g_.nodes)
            if (n->op != Op::Input) step(*n);
        std::vector<HostTensor> outputs;
        outputs.reserve(g_.outputs.size());
        for (const Value* v : g_.outputs) outputs.push_back(value(v));
        return outputs;
    }

  private:
    HostTensor& value(const Value* v) { return values_[static_cast<size_t>(v->id)]; }
    int64_t number(const Expr& e) const {
        auto v = e.evaluate([&](const Expr& s) { return symbols_ ? symbols_(s) : std::nullopt; });
        BRAZE_CHECK(v, "a symbol of " + e.str() + " has no value");
        return *v;
    }
    std::vector<int64_t> numbers(const std::vector<Expr>& es) const {
        std::vector<int64_t> out;
        out.reserve(es.size());
        for (const Expr& e : es) out.push_back(number(e));
        return out;
    }
    HostTensor allocate(const Value* v) const {
        return HostTensor::empty(v->type.dtype, numbers(v->type.sizes), numbers(v->type.strides));
    }
    static bool shares(const Node& n, size_t result) {
        return !n.aliases.empty() && n.aliases[result] >= 0 && n.results[result]->storage >= 0;
    }

    void step(const Node& n) {
        std::vector<HostTensor> operands, results;
        operands.reserve(n.operands.size());
        for (const Value* v : n.operands) operands.push_back(value(v));
        if (n.op == Op::Call) {
            BRAZE_CHECK(calls_, "a call cannot be evaluated: " + print(n));
            for (size_t i = 0; i < n.results.size(); ++i) {
                HostTensor t = allocate(n.results[i]);
                if (shares(n, i)) {
                    const HostTensor& base = operands[static_cast<size_t>(n.aliases[i])];
                    t.bytes = base.bytes;
                    t.offset = base.offset;
                }
                results.push_back(std::move(t));
            }
            calls_(n, operands, results);
        } else {
            NodeEvaluator run(n, operands, [&](const Expr& e) { return number(e); });
            for (const Value* v : n.results) results.push_back(allocate(v));
            if (shares(n, 0))
                results[0] = run.shared_view(results[0]);
            else
                run.fill(results);
        }
        for (size_t i = 0; i < n.results.size(); ++i) value(n.results[i]) = results[i];
    }

    const Graph& g_;
    const SymbolValues& symbols_;
    const CallHandler& calls_;
    std::vector<HostTensor> values_;  // by id
};

}  // namespace

std::vector<HostTensor> evaluate(const Graph& g, const std::vector<HostTensor>& inputs, const SymbolValues& symbols,
                                 const CallHandler& calls) {
    return Evaluator(g, symbols, calls).run(inputs);
}

}  // namespace braze::ir
