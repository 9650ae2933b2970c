#include "bridge/convert.h"

#include "bridge/dtypes.h"
#include "core/ir/builder.h"
#include "core/support/error.h"

namespace braze::bridge {

namespace {

using ir::Arg;
using shapes::Expr;

std::string format_name(at::MemoryFormat f) {
    switch (f) {
        case at::MemoryFormat::Contiguous: return "contiguous_format";
        case at::MemoryFormat::Preserve: return "preserve_format";
        case at::MemoryFormat::ChannelsLast: return "channels_last";
        case at::MemoryFormat::ChannelsLast3d: return "channels_last_3d";
        default: return "memory_format " + std::to_string(static_cast<int>(f));
    }
}

class Converter {
  public:
    Converter(const Trace& trace, const std::vector<TraceOutput>& outputs) : trace_(trace), outputs_(outputs) {}

    Converted run() {
        count_storage_users();
        latest_.resize(trace_.values.size());
        result_.graph.lines = trace_.lines;
        for (const auto& s : trace_.symbols->symbols())
            if (trace_.symbols->resolve(s.symbol) == s.symbol) result_.graph.symbols.push_back(s.symbol);
        result_.graph.reserve_storages(trace_.alias_sets);
        add_inputs();
        for (const Record& r : trace_.records) add_call(r);
        std::unordered_map<int, int> placed;
        for (const TraceOutput& o : outputs_) {
            if (o.value < 0) {
                result_.outputs.push_back(0);  // no tensor
                continue;
            }
            const ValueInfo& v = trace_.values[o.value];
            if (v.kind == ValueInfo::Input) {
                result_.outputs.push_back(-1 - v.producer);
                continue;
            }
            auto [it, fresh] = placed.emplace(o.value, static_cast<int>(result_.graph.outputs.size()));
            if (fresh) result_.graph.outputs.push_back(latest_[o.value]);
            result_.outputs.push_back(it->second);
        }
        return std::move(result_);
    }

  private:
    // Memory that one value alone uses, and that nothing writes, needs no storage id.
    void count_storage_users() {
        users_.resize(trace_.alias_sets, 0);
        for (const ValueInfo& v : trace_.values)
            if (v.alias_set >= 0) ++users_[v.alias_set];
        escaping_.resize(trace_.alias_sets, false);
        for (const TraceOutput& o : outputs_)
            if (o.value >= 0 && trace_.values[o.value].alias_set >= 0)
                escaping_[trace_.values[o.value].alias_set] = true;
    }
    int storage_of(const ValueInfo& v) const {
        if (v.alias_set < 0 || (users_[v.alias_set] < 2 && !trace_.written_sets[v.alias_set])) return -1;
        return v.alias_set;
    }

    ir::TensorType type_of(const ValueInfo& v) const {
        ir::TensorType t;
        if (v.kind == ValueInfo::Undefined) {
            t.dtype = ir::DType::Other;
            return t;
        }
        t.dtype = to_dtype(v.dtype);
        if (v.symbolic) {
            t.sizes = trace_.symbols->resolve(v.symbolic->sizes);
            t.strides = trace_.symbols->resolve(v.symbolic->strides);
        } else {
            t.sizes.assign(v.sizes.begin(), v.sizes.end());
            t.strides.assign(v.strides.begin(), v.strides.end());
        }
        return t;
    }

    void add_inputs() {
        ir::Graph& g = result_.graph;
        for (int value : trace_.inputs) {
            if (value < 0) {
                g.add_input({ir::DType::Other, {}, {}}, -1, "unused");
                continue;
            }
            const ValueInfo& v = trace_.values[value];
            latest_[value] = g.add_input(type_of(v), storage_of(v));
        }
        std::vector<std::pair<int, ir::Value*>> copies;
        std::vector<int> scalars;
        for (size_t i = 0; i < trace_.values.size(); ++i) {
            const ValueInfo& v = trace_.values[i];
            if (v.kind != ValueInfo::Constant) continue;
            int value = static_cast<int>(i);
            bool own = trace_.written_sets[v.alias_set] || escaping_[v.alias_set];
            ir::TensorType type = type_of(v);
            if (!own && v.sizes.empty() && users_[v.alias_set] < 2 && ir::has_code(type.dtype)) {
                scalars.push_back(value);
                continue;
            }
            result_.constants.push_back(v.producer);
            ir::Value* input = g.add_input(type, own ? -1 : storage_of(v), "constant");
            if (own)
                copies.emplace_back(value, input);
            else
                latest_[value] = input;
        }
        // Each run has its own copy of what may be changed, here or by the caller.
        for (auto [value, input] : copies) {
            ir::Node* n = g.add_node(ir::Op::Call);
            n->callee = "aten::clone";
            n->operands = {input};
            n->args = {{"self", ir::Ref{0}}, {"memory_format", ir::None{}}};
            latest_[value] = g.add_result(n, input->type, trace_.values[value].alias_set);
        }
        ir::Builder build(g);
        for (int value : scalars) {
            const ValueInfo& v = trace_.values[value];
            at::Scalar s = trace_.constants[v.producer].item();
            ir::DType dtype = to_dtype(v.dtype);
            latest_[value] = v.dtype == at::kBool  ? build.scalar_bool(s.toBool())
                             : s.isFloatingPoint() ? build.scalar(dtype, s.toDouble())
                                                   : build.scalar_int(dtype, s.toLong());
        }
    }

    Arg opaque(const c10::IValue& v, std::string text) {
        result_.opaque.push_back(v);
        int index = static_cast<int>(result_.opaque.size()) - 1;
        if (text.empty()) text = "value " + std::to_string(index);
        return ir::Opaque{index, std::move(text)};
    }
    Arg number(const c10::IValue& v) {
        if (v.isBool()) return v.toBool();
        if (v.isInt()) return Expr(v.toInt());
        if (v.isDouble()) return v.toDouble();
        if (v.isSymInt()) return trace_.symbols->resolve(expr_of(v.toSymInt()));
        if (v.isTensor()) return number(c10::IValue(v.toTensor().item()));  // a wrapped number
        if (v.isComplexDouble()) {
            auto c = v.toComplexDouble();
            return opaque(v, c10::str("complex ", c.real(), " ", c.imag()));
        }
        return opaque(v, {});
    }
    Arg argument(const ArgInfo& arg, const c10::IValue& v) {
        if (v.isNone()) return ir::None{};
        switch (arg.form) {
            case Form::Tensor:
                if (v.isSymInt()) return number(v);
                return v.toTensor().defined() ? number(v) : Arg(ir::None{});
            case Form::ScalarType: {
                ir::DType d = to_dtype(v.toScalarType());
                return d == ir::DType::Other ? opaque(v, c10::toString(v.toScalarType())) : Arg(d);
            }
            case Form::Layout: return opaque(v, v.toLayout() == c10::kStrided ? "strided" : c10::str(v.toLayout()));
            case Form::MemoryFormat: return opaque(v, format_name(v.toMemoryFormat()));
            case Form::Device: return opaque(v, v.toDevice().str());
            case Form::Number:
            case Form::Int:
            case Form::Float:
            case Form::Bool: return number(v);
            case Form::String: return v.toStringRef();
            case Form::IntList: {
                std::vector<Expr> list;
                if (v.isIntList())
                    for (int64_t x : v.toIntVector()) list.emplace_back(x);
                else
                    for (const c10::IValue& x : v.toListRef())
                        list.push_back(x.isSymInt() ? trace_.symbols->resolve(expr_of(x.toSymInt())) : Expr(x.toInt()));
                return list;
            }
            case Form::FloatList: return v.toDoubleVector();
            case Form::BoolList: {
                std::vector<bool> list;
                for (bool b : v.toBoolList()) list.push_back(b);
                return list;
            }
            default: return opaque(v, {});
        }
    }

    void add_call(const Record& r) {
        ir::Graph& g = result_.graph;
        ir::Node* n = g.add_node(ir::Op::Call);
        n->callee = r.info->callee;
        n->ordered = r.ordered;
        n->writes = r.writes;
        n->line = r.line;
        for (const Operand& o : r.operands) n->operands.push_back(latest_[o.value]);
        size_t next = 0;
        int list = 0;
        for (size_t i = 0; i < r.info->args.size(); ++i) {
            const ArgInfo& arg = r.info->args[i];
            auto traced = [&](int pos) {
                return next < r.operands.size() && r.operands[next].arg == static_cast<int>(i) &&
                       r.operands[next].pos == pos;
            };
            if (arg.form == Form::TensorList) {
                int size = r.list_sizes[list++];
                if (size < 0) {
                    n->args.push_back({arg.name, ir::None{}});
                    continue;
                }
                ir::RefList refs;
                for (int pos = 0; pos < size; ++pos)
                    refs.operands.push_back(traced(pos) ? static_cast<int>(next++) : -1);
                n->args.push_back({arg.name, std::move(refs)});
            } else if ((arg.form == Form::Tensor || arg.form == Form::Number) && traced(-1)) {
                n->args.push_back({arg.name, ir::Ref{static_cast<int>(next++)}});
            } else {
                n->args.push_back({arg.name, argument(arg, r.args[i])});
            }
        }
        bool any_alias = false;
        for (size_t k = 0; k < r.results.size(); ++k) {
            const ValueInfo& v = trace_.values[r.results[k]];
            latest_[r.results[k]] = g.add_result(n, type_of(v), storage_of(v));
            any_alias |= r.aliases[k] >= 0;
        }
        if (any_alias) n->aliases = r.aliases;
    }

    const Trace& trace_;
    const std::vector<TraceOutput>& outputs_;
    Converted result_;
    std::vector<ir::Value*> latest_;  // by value: the result of the last operator that returned it
    std::vector<int> users_;
    std::vector<bool> escaping_;
};

}  // namespace

Converted to_graph(const Trace& trace, const std::vector<TraceOutput>& outputs) {
    return Converter(trace, outputs).run();
}

}  // namespace braze::bridge
