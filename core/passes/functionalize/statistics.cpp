#include "core/passes/functionalize/statistics.h"

#include <algorithm>

#include "core/ir/builder.h"

namespace braze::passes::functionalization {

namespace {

using ir::Builder;
using ir::DType;
using ir::Expr;
using ir::Node;
using ir::Sizes;
using ir::Value;

struct Statistics {
    Value *input, *mean, *var;  // the running ones are written
    double momentum;
    Expr count;  // elements a channel
};

Value* tensor(const Node& n, std::string_view name) {
    const auto* ref = n.get<ir::Ref>(name);
    return ref ? n.operands[static_cast<size_t>(ref->operand)] : nullptr;
}

bool shares(const Value* a, const Value* b) { return a->storage >= 0 && a->storage == b->storage; }

// nullopt: it writes nothing, or its computation is not known here: another dtype, or so few elements that there is no
// variance.
std::optional<Statistics> statistics_of(const Node& n) {
    if (n.op != ir::Op::Call || n.callee != "aten::native_batch_norm" || n.ordered || n.writes.size() != 2)
        return std::nullopt;
    const auto* training = n.get<bool>("training");
    const auto* momentum = n.get<double>("momentum");
    Value *x = tensor(n, "input"), *mean = tensor(n, "running_mean"), *var = tensor(n, "running_var");
    if (!training || !*training || !momentum || !x || !mean || !var || x->type.rank() < 2) return std::nullopt;
    const DType d = x->type.dtype;
    if (d != DType::F32 && d != DType::F64) return std::nullopt;
    for (const Value* v : n.operands)
        if (v->type.dtype != d) return std::nullopt;
    for (const Value* v : {mean, var})
        if (v->type.sizes != Sizes{x->type.sizes[1]} || shares(v, x)) return std::nullopt;
    if (mean == var || shares(mean, var)) return std::nullopt;
    Expr count = x->type.sizes[0];
    for (size_t k = 2; k < x->type.sizes.size(); ++k) count = count * x->type.sizes[k];
    if (!shapes::known_lt(1, count)) return std::nullopt;
    return Statistics{x, mean, var, *momentum, count};
}

void overwrite(Value* target, Value* value, Builder& b) {
    Node* copy = b.call("aten::copy_", {target, value},
                        {{"self", ir::Ref{0}}, {"src", ir::Ref{1}}, {"non_blocking", false}}, {target->type});
    copy->writes = {0};
    copy->aliases = {0};
    copy->results[0]->storage = target->storage;
}

bool separate(Node& n, Builder& b) {
    const std::optional<Statistics> s = statistics_of(n);
    if (!s) return false;
    b.set_line(n.line);
    std::vector<int> axes;
    for (int k = 0; k < s->input->type.rank(); ++k)
        if (k != 1) axes.push_back(k);
    auto [var, mean] = b.var_mean(s->input, axes, false, 0.0);
    Value* count = b.scalar_int(var->type.dtype, s->count, var->type.sizes);
    Value* less = b.scalar_int(var->type.dtype, s->count - 1, var->type.sizes);
    auto moved = [&](Value* running, Value* batch) {
        Value* now = b.binary(ir::Op::Mul, batch, s->momentum);
        return b.add(now, b.binary(ir::Op::Mul, running, 1 - s->momentum));
    };
    Value* new_mean = moved(s->mean, mean);
    Value* new_var = moved(s->var, b.mul(var, b.div(count, less)));

    std::vector<Value*> operands;
    std::vector<ir::NamedArg> args;
    for (const char* name : {"input", "weight", "bias"}) {
        Value* v = tensor(n, name);
        if (!v) {
            args.push_back({name, ir::None{}});
            continue;
        }
        args.push_back({name, ir::Ref{static_cast<int>(operands.size())}});
        operands.push_back(v);
    }
    for (const char* name : {"training", "momentum", "eps"}) args.push_back({name, *n.arg(name)});
    std::vector<ir::TensorType> types;
    types.reserve(n.results.size());
    for (const Value* r : n.results) types.push_back(r->type);
    Node* pure = b.call("aten::_native_batch_norm_legit.no_stats", operands, std::move(args), types);
    for (size_t i = 0; i < n.results.size(); ++i) {
        pure->results[i]->storage = n.results[i]->storage;
        b.replace(n.results[i], pure->results[i]);
    }
    overwrite(s->mean, new_mean, b);
    overwrite(s->var, new_var, b);
    return true;
}

}  // namespace

bool separate_statistics(ir::Graph& g) {
    if (std::none_of(g.nodes.begin(), g.nodes.end(), [](const Node* n) { return statistics_of(*n).has_value(); }))
        return false;
    return ir::rewrite(g, [](Node* n, Builder& b) { return separate(*n, b); });
}

}  // namespace braze::passes::functionalization
