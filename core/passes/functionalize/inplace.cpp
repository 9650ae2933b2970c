#include "core/passes/functionalize/inplace.h"

#include <string_view>
#include <unordered_map>

#include "core/support/error.h"

namespace braze::passes::functionalization {

using ir::DType;
using ir::Expr;
using ir::Node;
using ir::TensorType;
using ir::Value;

namespace {

enum class Form : uint8_t { Iterator, Contiguous, Out, Mask, Copy, Fill, Zero };
struct Row {
    std::string_view functional;  // without "aten::"
    Form form;
};

const Row* find(const std::string& callee) {
    static const auto& table = *new std::unordered_map<std::string_view, Row>{
#define INPLACE(name, functional, form) {"aten::" name, {functional, Form::form}},
#define OUT(name, functional)
#include "core/passes/functionalize/inplace.def"
#undef INPLACE
#undef OUT
#define INPLACE(name, functional, form)
#define OUT(name, functional) {"aten::" name, {functional, Form::Out}},
#include "core/passes/functionalize/inplace.def"
#undef INPLACE
#undef OUT
        {"aten::index_put_", {"masked_fill.Tensor", Form::Mask}},
        {"aten::copy_", {"", Form::Copy}},
        {"aten::fill_.Scalar", {"", Form::Fill}},
        {"aten::fill_.Tensor", {"", Form::Copy}},
        {"aten::zero_", {"", Form::Zero}},
    };
    auto it = table.find(callee);
    return it == table.end() ? nullptr : &it->second;
}

// Type promotion's order: bool < integers < floats < complex.
int category(DType d) {
    if (d == DType::Bool) return 0;
    if (ir::is_int(d)) return 1;
    return ir::is_float(d) ? 2 : 3;
}

int category(const ir::Arg& a) {  // of a number; -1: no number
    if (std::holds_alternative<bool>(a)) return 0;
    if (std::holds_alternative<Expr>(a)) return 1;
    return std::holds_alternative<double>(a) ? 2 : -1;
}

// The other operands do not promote the result beyond self's dtype.
bool keeps_dtype(const Node& n) {
    const TensorType& self = n.operands[0]->type;
    if (self.dtype == DType::Other) return false;
    for (size_t i = 1; i < n.operands.size(); ++i) {
        const TensorType& t = n.operands[i]->type;
        if (t.dtype == self.dtype) continue;
        int own = category(self.dtype), other = category(t.dtype);
        bool weaker = other < own || (other == own && t.rank() == 0 && self.rank() > 0);
        if (t.dtype == DType::Other || !weaker) return false;
    }
    for (const ir::NamedArg& a : n.args)
        if (category(a.value) > category(self.dtype)) return false;
    return true;
}

bool contiguous(const TensorType& t) { return t.strides == ir::contiguous_strides(t.sizes); }

bool dense_without_ones(const TensorType& t) {  // the strides of axes of size 1 are not kept by every operator
    for (const Expr& s : t.sizes)
        if (!shapes::known_ne(s, 1)) return false;
    return ir::is_dense(t);
}

bool expandable(const TensorType& from, const TensorType& to) {
    if (from.rank() > to.rank()) return false;
    size_t shift = to.sizes.size() - from.sizes.size();
    for (size_t i = 0; i < from.sizes.size(); ++i)
        if (from.sizes[i] != Expr(1) && from.sizes[i] != to.sizes[i + shift]) return false;
    return true;
}

// The tensors that an operator with out= reads are of out's dtype and have its sizes when they are broadcast: neither
// is the result converted nor out resized.
bool fits_out(const Node& n) {
    const size_t out = n.operands.size() - 1;
    const TensorType& type = n.operands[out]->type;
    if (n.writes != std::vector<int>{static_cast<int>(out)} || type.dtype == DType::Other) return false;
    std::vector<bool> reached(type.sizes.size());
    for (size_t i = 0; i < out; ++i) {
        const TensorType& t = n.operands[i]->type;
        if (t.dtype != type.dtype || !expandable(t, type)) return false;
        size_t shift = type.sizes.size() - t.sizes.size();
        for (size_t k = 0; k < t.sizes.size(); ++k)
            if (t.sizes[k] == type.sizes[k + shift]) reached[k + shift] = true;
    }
    if (std::find(reached.begin(), reached.end(), false) != reached.end()) return false;
    return std::all_of(n.args.begin(), n.args.end(),
                       [&](const ir::NamedArg& a) { return category(a.value) <= category(type.dtype); });
}

const Value* operand(const Node& n, std::string_view name) {
    const auto* ref = n.get<ir::Ref>(name);
    return ref ? n.operands[static_cast<size_t>(ref->operand)] : nullptr;
}

// One number for the elements under a mask of all of them: eager fills too, and does not look where the mask is set.
bool fills_mask(const Node& n) {
    const auto* indices = n.get<ir::RefList>("indices");
    const auto* accumulate = n.get<bool>("accumulate");
    const Value* value = operand(n, "values");
    if (!indices || indices->operands.size() != 1 || indices->operands[0] < 0 || !value) return false;
    if (accumulate && *accumulate) return false;
    const TensorType& self = n.operands[0]->type;
    const TensorType& mask = n.operands[static_cast<size_t>(indices->operands[0])]->type;
    return mask.dtype == DType::Bool && mask.sizes == self.sizes && self.rank() > 0 && value->type.rank() == 0 &&
           value->type.dtype == self.dtype && ir::has_code(self.dtype) && contiguous(self);
}

// The attribute of an Op::Scalar of that dtype; nullopt where eager's conversion is not reproduced here.
std::optional<ir::Arg> filling(const ir::Arg* a, DType d) {
    if (!a) return std::nullopt;
    if (const bool* v = std::get_if<bool>(a)) {
        if (d == DType::Bool) return *v;
        if (ir::is_float(d)) return *v ? 1.0 : 0.0;
        return Expr(*v ? 1 : 0);
    }
    if (const double* v = std::get_if<double>(a)) {
        if (ir::is_half(d)) return static_cast<double>(static_cast<float>(*v));
        if (ir::is_float(d)) return *v;
        if (d == DType::Bool) return *v != 0;
        return std::nullopt;
    }
    if (const Expr* v = std::get_if<Expr>(a)) {
        if (ir::is_int(d)) return *v;
        if (!v->is_const()) return std::nullopt;
        int64_t i = v->value();
        if (d == DType::Bool) return i != 0;
        constexpr int64_t exact = 16777216;  // 2**24, in f32
        if (i > -exact && i < exact) return static_cast<double>(i);
    }
    return std::nullopt;
}

// What copy_ and fill_ write; a number where it was a constant.
const ir::Arg* source(const Node& n) { return n.arg(n.callee == "aten::copy_" ? "src" : "value"); }

Value* filled(const TensorType& type, ir::Arg value, ir::Builder& b) {
    return b.create(ir::Op::Scalar, {}, {{"value", std::move(value)}}, type);
}

}  // namespace

bool has_pure_form(const Node& n) {
    if (n.op != ir::Op::Call || n.ordered || n.writes.size() != 1 || n.results.size() > 1) return false;
    if (n.results.size() == 1 && (n.aliases.empty() || n.aliases[0] != n.writes[0])) return false;
    const Row* row = find(n.callee);
    if (!row || (n.writes[0] != 0 && row->form != Form::Out)) return false;
    const TensorType& self = n.operands[static_cast<size_t>(n.writes[0])]->type;
    if (n.results.size() == 1 && n.results[0]->type != self) return false;
    switch (row->form) {
        case Form::Iterator: return keeps_dtype(n) && (contiguous(self) || dense_without_ones(self));
        case Form::Contiguous: return keeps_dtype(n) && contiguous(self);
        case Form::Out: return fits_out(n) && contiguous(self);
        case Form::Mask: return fills_mask(n);
        case Form::Copy: {
            if (!ir::has_code(self.dtype) || !ir::is_dense(self)) return false;
            if (n.operands.size() == 1) return filling(source(n), self.dtype).has_value();
            const TensorType& from = n.operands[1]->type;
            return ir::has_code(from.dtype) && expandable(from, self);
        }
        case Form::Fill: return ir::has_code(self.dtype) && ir::is_dense(self) && filling(source(n), self.dtype);
        case Form::Zero: return ir::has_code(self.dtype) && ir::is_dense(self);
    }
    return false;
}

Value* pure_form(const Node& n, const std::vector<Value*>& operands, ir::Builder& b) {
    const Row* row = find(n.callee);
    BRAZE_CHECK(row, "no pure form of " + n.callee);
    const TensorType& self = n.operands[static_cast<size_t>(n.writes[0])]->type;
    switch (row->form) {
        case Form::Out: {
            std::vector<ir::NamedArg> args = n.args;
            std::erase_if(args, [](const ir::NamedArg& a) { return a.name == "out"; });
            return b
                .call("aten::" + std::string(row->functional), {operands.begin(), operands.end() - 1}, std::move(args),
                      {self})
                ->results[0];
        }
        case Form::Mask: {
            const auto at = [&](int k) { return operands[static_cast<size_t>(k)]; };
            return b
                .call("aten::" + std::string(row->functional),
                      {operands[0], at(n.get<ir::RefList>("indices")->operands[0]),
                       at(n.get<ir::Ref>("values")->operand)},
                      {{"self", ir::Ref{0}}, {"mask", ir::Ref{1}}, {"value", ir::Ref{2}}}, {self})
                ->results[0];
        }
        case Form::Iterator:
        case Form::Contiguous:
            return b.call("aten::" + std::string(row->functional), operands, n.args, {self})->results[0];
        case Form::Copy:
            if (operands.size() == 1) return filled(self, *filling(source(n), self.dtype), b);
            return b.copy(b.expand(b.cast(operands[1], self.dtype), self.sizes), self.strides);
        case Form::Fill: return filled(self, *filling(source(n), self.dtype), b);
        case Form::Zero: {
            ir::Arg zero = Expr(0);
            return filled(self, *filling(&zero, self.dtype), b);
        }
    }
    fail_internal(__FILE__, __LINE__, "unknown form of " + n.callee);
}

}  // namespace braze::passes::functionalization
