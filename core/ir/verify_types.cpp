#include "core/ir/verify_types.h"

#include <algorithm>
#include <initializer_list>

#include "core/ir/builder.h"
#include "core/ir/op.h"

namespace braze::ir {

namespace {

enum class Attribute : uint8_t { Integer, Integers, Flag, Number, Fill };
struct Wanted {
    const char* name;
    Attribute kind;
};

// The table at the head of ops.def.
std::initializer_list<Wanted> wanted_attributes(Op op) {
    using enum Attribute;
    static constexpr std::initializer_list<Wanted> scalar = {{"value", Fill}}, dims = {{"dims", Integers}},
                                                   dim = {{"dim", Integer}}, offset = {{"offset", Integer}},
                                                   slice = {{"starts", Integers}, {"steps", Integers}}, none = {},
                                                   iota = {{"axis", Integer}, {"start", Integer}, {"step", Integer}},
                                                   pad = {{"low", Integers}, {"high", Integers}, {"value", Fill}},
                                                   take = {{"axes", Integers}, {"at", Integer}},
                                                   reduce = {{"dims", Integers}, {"keepdim", Flag}},
                                                   var_mean = {
                                                       {"dims", Integers}, {"keepdim", Flag}, {"correction", Number}};
    switch (op) {
        case Op::Scalar: return scalar;
        case Op::Iota: return iota;
        case Op::Permute:
        case Op::Flip: return dims;
        case Op::Slice: return slice;
        case Op::AsStrided: return offset;
        case Op::Cat:
        case Op::Gather: return dim;
        case Op::Pad: return pad;
        case Op::Take: return take;
        case Op::VarMean: return var_mean;
        default: return kind(op) == OpKind::Reduce ? reduce : none;
    }
}

bool fits(const Arg& a, Attribute kind, DType dtype) {
    switch (kind) {
        case Attribute::Integer: return std::holds_alternative<Expr>(a);
        case Attribute::Integers: return std::holds_alternative<std::vector<Expr>>(a);
        case Attribute::Flag: return std::holds_alternative<bool>(a);
        case Attribute::Number: return std::holds_alternative<double>(a);
        case Attribute::Fill:
            if (dtype == DType::Bool) return std::holds_alternative<bool>(a);
            if (is_int(dtype)) return std::holds_alternative<Expr>(a);
            return is_float(dtype) && (std::holds_alternative<double>(a) || std::holds_alternative<Expr>(a));
    }
    return false;
}

const std::vector<Expr>& integers(const Node& n, const char* name) { return *n.get<std::vector<Expr>>(name); }
const Expr& integer(const Node& n, const char* name) { return *n.get<Expr>(name); }

bool constant_axes(const std::vector<Expr>& dims, int rank) {
    return std::all_of(dims.begin(), dims.end(),
                       [&](const Expr& d) { return d.is_const() && d.value() >= 0 && d.value() < rank; });
}
bool axis_of(const Expr& d, const Value* x) { return d.is_const() && d.value() >= 0 && d.value() < x->type.rank(); }

const char* elementwise_problem(const Node& n) {
    const TensorType& r = n.results[0]->type;
    for (const Value* v : n.operands)
        if (v->type.sizes != r.sizes) return "an elementwise operator changes sizes";
    if (n.op == Op::Cast) return nullptr;
    size_t first = n.op == Op::Where ? 1 : 0;
    DType d = n.operands[first]->type.dtype;
    for (size_t i = first; i < n.operands.size(); ++i)
        if (n.operands[i]->type.dtype != d) return "operands differ in dtype";
    if (first && n.operands[0]->type.dtype != DType::Bool) return "the condition is not bool";
    if (r.dtype != (returns_bool(n.op) ? DType::Bool : d)) return "the dtype of the result is wrong";
    return nullptr;
}

bool same_count(const TensorType& a, const TensorType& b) {
    Expr x = a.numel(), y = b.numel();
    return x == y || !shapes::known_ne(x, y);
}

const char* view_problem(const Node& n) {
    const TensorType &x = n.operands[0]->type, &r = n.results[0]->type;
    size_t rank = x.sizes.size();
    if (x.dtype != r.dtype) return "a view changes the dtype";
    switch (n.op) {
        case Op::Permute: {
            const auto& dims = integers(n, "dims");
            if (dims.size() != rank || r.sizes.size() != rank || !constant_axes(dims, x.rank()))
                return "dims is no permutation";
            std::vector<char> seen(rank, 0);
            for (size_t i = 0; i < rank; ++i) {
                size_t d = static_cast<size_t>(dims[i].value());
                if (seen[d]++) return "dims is no permutation";
                if (r.sizes[i] != x.sizes[d]) return "the sizes are not the permuted ones";
            }
            return nullptr;
        }
        case Op::Expand:
            if (r.sizes.size() < rank) return "fewer axes than the operand has";
            for (size_t i = 0; i < rank; ++i) {
                const Expr &from = x.sizes[rank - 1 - i], &to = r.sizes[r.sizes.size() - 1 - i];
                if (from != to && from != Expr(1)) return "only axes of size 1 can be expanded";
            }
            return nullptr;
        case Op::Reshape: return same_count(x, r) ? nullptr : "the number of elements changes";
        case Op::Slice:
            if (integers(n, "starts").size() != rank || integers(n, "steps").size() != rank || r.sizes.size() != rank)
                return "starts, steps and sizes are per axis";
            for (const Expr& step : integers(n, "steps"))
                if (shapes::known_lt(step, 0)) return "a step is negative";
            return nullptr;
        case Op::Flip:
            return constant_axes(integers(n, "dims"), x.rank()) && x.sizes == r.sizes ? nullptr
                                                                                      : "dims or sizes are wrong";
        default: return nullptr;
    }
}

const char* structure_problem(const Node& n) {
    const TensorType& r = n.results[0]->type;
    if (n.operands.empty()) return "it needs an operand";
    for (const Value* v : n.operands)
        if (v->type.dtype != r.dtype || v->type.rank() != r.rank()) return "the dtype or the number of axes changes";
    const TensorType& x = n.operands[0]->type;
    if (n.op == Op::Copy) return x.sizes == r.sizes ? nullptr : "the sizes change";
    if (n.op == Op::Pad) {
        const auto &low = integers(n, "low"), &high = integers(n, "high");
        if (low.size() != x.sizes.size() || high.size() != x.sizes.size()) return "low and high are per axis";
        for (size_t i = 0; i < x.sizes.size(); ++i)
            if (r.sizes[i] != x.sizes[i] + low[i] + high[i]) return "the sizes are not the padded ones";
        return nullptr;
    }
    const Expr& dim = integer(n, "dim");
    if (!axis_of(dim, n.operands[0])) return "dim is out of range";
    size_t d = static_cast<size_t>(dim.value());
    Expr total(0);
    for (const Value* v : n.operands) {
        for (size_t i = 0; i < r.sizes.size(); ++i)
            if (i != d && v->type.sizes[i] != r.sizes[i]) return "operands differ in size along another axis";
        total = total + v->type.sizes[d];
    }
    return total == r.sizes[d] ? nullptr : "the size along dim is not the sum";
}

const char* index_problem(const Node& n) {
    if (n.operands.size() < 2) return "it needs an index";
    const TensorType &x = n.operands[0]->type, &r = n.results[0]->type;
    if (x.dtype != r.dtype) return "the dtype changes";
    for (size_t i = 1; i < n.operands.size(); ++i) {
        DType d = n.operands[i]->type.dtype;
        if (d != DType::I64 && d != DType::I32) return "an index is no i64 or i32";
        if (n.operands[i]->type.sizes != n.operands[1]->type.sizes) return "the indices differ in size";
    }
    const auto& index = n.operands[1]->type.sizes;
    if (n.op == Op::Gather) {
        if (!axis_of(integer(n, "dim"), n.operands[0]) || index.size() != x.sizes.size())
            return "dim or the index's axes are wrong";
        return r.sizes == index ? nullptr : "the result has not the index's sizes";
    }
    const auto& axes = integers(n, "axes");
    if (axes.size() != n.operands.size() - 1 || !constant_axes(axes, x.rank())) return "one axis per index is needed";
    Sizes want;
    for (size_t i = 0; i < x.sizes.size(); ++i)
        if (std::find(axes.begin(), axes.end(), Expr(static_cast<int64_t>(i))) == axes.end())
            want.push_back(x.sizes[i]);
    const Expr& at = integer(n, "at");
    if (!at.is_const() || at.value() < 0 || at.value() > static_cast<int64_t>(want.size()))
        return "`at` is out of range";
    want.insert(want.begin() + at.value(), index.begin(), index.end());
    return want == r.sizes ? nullptr : "the sizes are wrong";
}

const char* reduce_dtype_problem(Op op, DType x, DType r) {
    switch (op) {
        case Op::Sum:
        case Op::Prod:
            if (is_float(x))
                return r == x || (is_half(x) && r == DType::F32) ? nullptr : "the dtype of the result is wrong";
            return is_int(r) && (is_int(x) || x == DType::Bool) ? nullptr : "the dtype of the result is wrong";
        case Op::ArgMax:
        case Op::ArgMin: return r == DType::I64 ? nullptr : "the result is not i64";
        case Op::Any:
        case Op::All: return x == DType::Bool && r == DType::Bool ? nullptr : "it works on bool";
        case Op::VarMean: return is_float(x) && r == x ? nullptr : "it works on floats";
        default: return r == x ? nullptr : "the dtype changes";
    }
}

const char* reduce_problem(const Node& n) {
    const TensorType& x = n.operands[0]->type;
    const auto& dims = integers(n, "dims");
    if (!constant_axes(dims, x.rank())) return "a reduced axis is out of range";
    for (size_t i = 1; i < dims.size(); ++i)
        if (dims[i - 1].value() >= dims[i].value()) return "dims are not sorted";
    Sizes want;
    size_t next = 0;
    for (size_t i = 0; i < x.sizes.size(); ++i) {
        bool reduced = next < dims.size() && dims[next] == Expr(static_cast<int64_t>(i));
        next += reduced;
        if (!reduced)
            want.push_back(x.sizes[i]);
        else if (*n.get<bool>("keepdim"))
            want.emplace_back(1);
    }
    for (const Value* r : n.results) {
        if (r->type.sizes != want) return "the sizes are not the reduced ones";
        if (const char* problem = reduce_dtype_problem(n.op, x.dtype, r->type.dtype)) return problem;
    }
    return nullptr;
}

}  // namespace

const char* attribute_problem(const Node& n) {
    auto wanted = wanted_attributes(n.op);
    if (n.args.size() != wanted.size()) return "the number of attributes is wrong";
    size_t i = 0;
    for (const Wanted& w : wanted) {
        if (n.args[i].name != w.name) return "the attributes are not those of ops.def, in that order";
        if (!fits(n.args[i].value, w.kind, n.results[0]->type.dtype)) return "an attribute is of the wrong kind";
        ++i;
    }
    return nullptr;
}

const char* type_problem(const Node& n) {
    switch (kind(n.op)) {
        case OpKind::Unary:
        case OpKind::Binary:
        case OpKind::Ternary:
        case OpKind::Cast: return elementwise_problem(n);
        case OpKind::View: return view_problem(n);
        case OpKind::Structure: return structure_problem(n);
        case OpKind::Index: return index_problem(n);
        case OpKind::Reduce: return reduce_problem(n);
        case OpKind::Create:
            return n.op == Op::Iota && !axis_of(integer(n, "axis"), n.results[0]) ? "axis is out of range" : nullptr;
        case OpKind::Call:
        case OpKind::Input:
        case OpKind::Constant: return nullptr;
    }
    return nullptr;
}

}  // namespace braze::ir
