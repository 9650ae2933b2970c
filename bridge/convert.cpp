#include "bridge/convert.h"

#include "core/support/error.h"

namespace braze::bridge {

using ir::Arg;
using ir::DType;
using shapes::Expr;

ir::DType dtype_of(at::ScalarType t) {
    switch (t) {
        case at::kBool: return DType::Bool;
        case at::kByte: return DType::U8;
        case at::kChar: return DType::I8;
        case at::kShort: return DType::I16;
        case at::kInt: return DType::I32;
        case at::kLong: return DType::I64;
        case at::kUInt16: return DType::U16;
        case at::kUInt32: return DType::U32;
        case at::kUInt64: return DType::U64;
        case at::kHalf: return DType::F16;
        case at::kBFloat16: return DType::BF16;
        case at::kFloat: return DType::F32;
        case at::kDouble: return DType::F64;
        case at::kComplexFloat: return DType::C64;
        case at::kComplexDouble: return DType::C128;
        default: return DType::Other;
    }
}

at::ScalarType scalar_type_of(ir::DType d) {
    for (at::ScalarType t : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kUInt16, at::kUInt32, at::kUInt64, at::kHalf,
                             at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble})
        if (dtype_of(t) == d) return t;
    throw InternalError("no torch dtype for " + std::string(ir::name(d)));
}

namespace {

ir::TensorType type_of(const ValueInfo& v) {
    ir::TensorType t;
    t.dtype = dtype_of(v.dtype);
    for (size_t i = 0; i < v.sizes.size(); ++i) {
        t.sizes.push_back(v.sym_sizes.empty() ? Expr(v.sizes[i]) : v.sym_sizes[i]);
        t.strides.push_back(v.sym_strides.empty() ? Expr(v.strides[i]) : v.sym_strides[i]);
    }
    return t;
}

class Converter {
  public:
    Converter(const Trace& trace, const std::vector<TraceOutput>& outputs) : trace_(trace), outputs_(outputs) {}

    Converted run() {
        ir::Graph& g = out_.graph;
        g.lines = trace_.lines;
        g.reserve_storages(trace_.alias_sets);
        values_.resize(trace_.values.size());
        for (size_t id = 0; id < trace_.inputs.size(); ++id) {
            int v = trace_.inputs[id];
            if (v < 0) {  // never captured: a place for the caller's numbering
                g.add_input(ir::TensorType{DType::Bool, {}, {}}, -1);
                continue;
            }
            values_[v] = g.add_input(type_of(trace_.values[v]), trace_.values[v].alias_set);
        }
        for (size_t v = 0; v < trace_.values.size(); ++v) {
            const ValueInfo& info = trace_.values[v];
            if (info.kind != ValueInfo::Constant) continue;
            values_[v] = g.add_input(type_of(info), info.alias_set);
            out_.constant_inputs.push_back(info.producer);
        }
        for (size_t i = 0; i < trace_.records.size(); ++i) add(trace_.records[i], static_cast<int>(i));
        for (const TraceOutput& o : outputs_) g.outputs.push_back(values_[o.value]);
        return std::move(out_);
    }

  private:
    void add(const Record& r, int index) {
        ir::Graph& g = out_.graph;
        ir::Node* n = g.add_node(ir::Op::Call);
        n->callee = r.info->callee;
        n->ordered = r.ordered;
        n->line = r.line;
        n->writes = r.writes;
        size_t next = 0;
        int list = 0;
        for (size_t a = 0; a < r.info->args.size(); ++a) {
            const ArgInfo& info = r.info->args[a];
            ir::NamedArg arg{info.name, ir::None{}};
            auto mine = [&] { return next < r.operands.size() && r.operands[next].arg == static_cast<int>(a); };
            auto take = [&] {
                n->operands.push_back(values_[r.operands[next++].value]);
                return static_cast<int>(n->operands.size()) - 1;
            };
            if (info.form == Form::Tensor && mine()) {
                arg.value = ir::Ref{take()};
            } else if (info.form == Form::TensorList) {
                int size = r.list_sizes[list++];
                if (size >= 0) {
                    ir::RefList refs;
                    for (int pos = 0; pos < size; ++pos) refs.operands.push_back(mine() && r.operands[next].pos == pos ? take() : -1);
                    arg.value = std::move(refs);
                }
            } else {
                arg.value = constant(r.args[a], info.form);
            }
            n->args.push_back(std::move(arg));
        }
        n->aliases.assign(r.results.size(), -1);
        for (size_t k = 0; k < r.results.size(); ++k) {
            int v = r.results[k];
            const ValueInfo& info = trace_.values[v];
            bool own = info.kind == ValueInfo::Result && info.producer == index && info.index == static_cast<int>(k);
            ir::Value* value = g.add_result(n, type_of(info), info.kind == ValueInfo::Undefined ? -1 : info.alias_set);
            if (k < r.aliases.size()) n->aliases[k] = r.aliases[k];
            // An in-place operator returns its operand: from here on that value has the new contents.
            if (own || !r.writes.empty()) values_[v] = value;
        }
    }

    Arg opaque(const c10::IValue& v, std::string text) {
        out_.opaques.push_back(v);
        return ir::Opaque{static_cast<int>(out_.opaques.size()) - 1, std::move(text)};
    }

    Arg number(const at::Scalar& s, const c10::IValue& v) {
        if (s.isBoolean()) return s.to<bool>();
        if (s.isIntegral(false)) {
            if (s.type() == at::kUInt64 && s.to<uint64_t>() > uint64_t{INT64_MAX}) return opaque(v, std::to_string(s.to<uint64_t>()));
            return Expr(s.to<int64_t>());
        }
        if (s.isFloatingPoint()) return s.to<double>();
        return opaque(v, c10::str(s));
    }

    Arg constant(const c10::IValue& v, Form form) {
        if (v.isNone()) return ir::None{};
        switch (form) {
            case Form::Tensor: {  // a number that was wrapped, or an undefined tensor
                const at::Tensor& t = v.toTensor();
                return t.defined() ? number(t.item(), t.item()) : Arg(ir::None{});
            }
            case Form::ScalarType: return dtype_of(v.toScalarType());
            case Form::Number: return number(v.toScalar(), v);
            case Form::Int:
                if (v.isInt()) return Expr(v.toInt());
                break;
            case Form::Float:
                if (v.isDouble()) return v.toDouble();
                break;
            case Form::Bool:
                if (v.isBool()) return v.toBool();
                break;
            case Form::String: return v.toStringRef();
            case Form::IntList:
                if (v.isIntList()) {
                    std::vector<Expr> xs;
                    for (int64_t x : v.toIntVector()) xs.emplace_back(x);
                    return xs;
                }
                if (v.isSymIntList()) {
                    std::vector<Expr> xs;
                    for (const c10::SymInt& x : v.toSymIntVector()) xs.emplace_back(x.expect_int());
                    return xs;
                }
                if (v.isInt()) return std::vector<Expr>{Expr(v.toInt())};
                break;
            case Form::FloatList: return v.toDoubleVector();
            case Form::BoolList: {
                std::vector<bool> xs;
                for (bool x : v.toBoolList()) xs.push_back(x);
                return xs;
            }
            case Form::Layout: return opaque(v, c10::str(v.toLayout()));
            case Form::MemoryFormat: return opaque(v, c10::str(v.toMemoryFormat()));
            case Form::Device: return opaque(v, v.toDevice().str());
            case Form::Generator: return opaque(v, "generator " + std::to_string(out_.opaques.size()));
            default: break;
        }
        if (v.isSymInt()) return Expr(v.toSymInt().expect_int());
        return opaque(v, "value " + std::to_string(out_.opaques.size()));
    }

    const Trace& trace_;
    const std::vector<TraceOutput>& outputs_;
    Converted out_;
    std::vector<ir::Value*> values_;
};

int64_t known(const Expr& e) {
    auto c = e.as_const();
    BRAZE_CHECK(c, "a symbolic argument of a call: " + e.str());
    return *c;
}

}  // namespace

Converted convert(const Trace& trace, const std::vector<TraceOutput>& outputs) { return Converter(trace, outputs).run(); }

c10::IValue to_ivalue(const Arg& arg, Form form, const OpaquePool& opaques) {
    struct Visitor {
        Form form;
        const OpaquePool& opaques;
        c10::IValue wrapped(const at::Scalar& s) const {
            if (form != Form::Tensor) return s;
            at::Tensor t = at::scalar_tensor(s, at::TensorOptions().dtype(s.type()));
            t.unsafeGetTensorImpl()->set_wrapped_number(true);
            return t;
        }
        c10::IValue operator()(const ir::None&) const { return {}; }
        c10::IValue operator()(const ir::Ref&) const { return {}; }
        c10::IValue operator()(const ir::RefList&) const { return {}; }
        c10::IValue operator()(bool b) const { return form == Form::Bool ? c10::IValue(b) : wrapped(at::Scalar(b)); }
        c10::IValue operator()(const Expr& e) const {
            int64_t x = known(e);
            if (form == Form::Float) return static_cast<double>(x);
            if (form == Form::IntList) return std::vector<int64_t>{x};
            return form == Form::Int ? c10::IValue(x) : wrapped(at::Scalar(x));
        }
        c10::IValue operator()(double d) const { return form == Form::Float ? c10::IValue(d) : wrapped(at::Scalar(d)); }
        c10::IValue operator()(const std::string& s) const { return s; }
        c10::IValue operator()(DType d) const { return static_cast<int64_t>(scalar_type_of(d)); }
        c10::IValue operator()(const std::vector<Expr>& xs) const {
            std::vector<int64_t> v;
            for (const Expr& x : xs) v.push_back(known(x));
            return v;
        }
        c10::IValue operator()(const std::vector<double>& xs) const { return xs; }
        c10::IValue operator()(const std::vector<bool>& xs) const {
            c10::List<bool> v;
            for (bool x : xs) v.push_back(x);
            return v;
        }
        c10::IValue operator()(const ir::Opaque& o) const { return opaques.at(static_cast<size_t>(o.index)); }
    };
    return std::visit(Visitor{form, opaques}, arg);
}

}  // namespace braze::bridge
