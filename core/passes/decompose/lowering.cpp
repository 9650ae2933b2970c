#include "core/passes/decompose/lowering.h"

#include <algorithm>
#include <cmath>

#include "core/support/error.h"

namespace braze::passes::decomposition {

namespace {

bool fits(int64_t v, DType d) {
    if (d == DType::I64) return true;
    if (d == DType::U64) return v >= 0;
    const bool is_signed = ir::is_signed(d);
    const unsigned bits = 8U * static_cast<unsigned>(ir::size_of(d));
    const auto end = static_cast<int64_t>(uint64_t{1} << (is_signed ? bits - 1 : bits));
    return v >= (is_signed ? -end : 0) && v < end;
}

}  // namespace

// ---- arguments

const ir::Arg* Lowering::find(std::string_view name) const {
    const ir::Arg* a = call.arg(name);
    return a && !std::holds_alternative<ir::None>(*a) ? a : nullptr;
}

bool Lowering::given(std::string_view name) const { return find(name) != nullptr; }

Value* Lowering::optional_tensor(std::string_view name) const {
    const ir::Arg* a = find(name);
    if (!a) return nullptr;
    const ir::Ref* r = std::get_if<ir::Ref>(a);
    require(r != nullptr);
    Value* v = call.operands[r->operand];
    require(ir::has_code(v->type.dtype));
    return v;
}

Value* Lowering::tensor(std::string_view name) const {
    Value* v = optional_tensor(name);
    require(v != nullptr);
    return v;
}

std::vector<Value*> Lowering::optional_tensors(std::string_view name) const {
    const ir::Arg* a = find(name);
    require(a != nullptr);
    const ir::RefList* list = std::get_if<ir::RefList>(a);
    require(list != nullptr);
    std::vector<Value*> out;
    for (int k : list->operands) {
        Value* v = k < 0 ? nullptr : call.operands[k];
        require(!v || ir::has_code(v->type.dtype));
        out.push_back(v);
    }
    return out;
}

std::vector<Value*> Lowering::tensors(std::string_view name) const {
    std::vector<Value*> out = optional_tensors(name);
    for (Value* v : out) require(v != nullptr);
    return out;
}

Operand Lowering::operand(std::string_view name) const {
    const ir::Arg* a = find(name);
    require(a != nullptr);
    if (std::holds_alternative<ir::Ref>(*a)) return tensor(name);
    return number(name);
}

std::optional<Operand> Lowering::optional_operand(std::string_view name) const {
    return given(name) ? std::optional(operand(name)) : std::nullopt;
}

std::optional<Number> Lowering::optional_number(std::string_view name) const {
    const ir::Arg* a = find(name);
    if (!a) return std::nullopt;
    std::optional<Number> n = Number::from(*a);
    require(n.has_value());
    return n;
}

Number Lowering::number(std::string_view name) const {
    std::optional<Number> n = optional_number(name);
    require(n.has_value());
    return *n;
}

double Lowering::real(std::string_view name) const {
    std::optional<double> v = number(name).real();
    require(v.has_value());
    return *v;
}

double Lowering::real_or(std::string_view name, double otherwise) const { return given(name) ? real(name) : otherwise; }

Expr Lowering::integer(std::string_view name) const {
    std::optional<Expr> e = number(name).expr();
    require(e.has_value());
    return *e;
}

int64_t Lowering::constant(std::string_view name) const {
    std::optional<int64_t> v = number(name).integer();
    require(v.has_value());
    return *v;
}

int64_t Lowering::constant_or(std::string_view name, int64_t otherwise) const {
    return given(name) ? constant(name) : otherwise;
}

bool Lowering::flag(std::string_view name) const {
    const ir::Arg* a = find(name);
    if (!a) return false;
    const bool* b = std::get_if<bool>(a);
    require(b != nullptr);
    return *b;
}

std::string_view Lowering::text(std::string_view name) const {
    const ir::Arg* a = find(name);
    if (!a) return {};
    const std::string* s = std::get_if<std::string>(a);
    require(s != nullptr);
    return *s;
}

std::vector<Expr> Lowering::list(std::string_view name) const {
    const ir::Arg* a = find(name);
    if (!a) return {};
    if (const auto* exprs = std::get_if<std::vector<Expr>>(a)) return *exprs;
    if (const Expr* e = std::get_if<Expr>(a)) return {*e};
    // An empty list has no element to tell its kind.
    if (const auto* d = std::get_if<std::vector<double>>(a); d && d->empty()) return {};
    if (const auto* f = std::get_if<std::vector<bool>>(a); f && f->empty()) return {};
    if (const auto* r = std::get_if<ir::RefList>(a); r && r->operands.empty()) return {};
    decline();
}

std::vector<int64_t> Lowering::constant_list(std::string_view name) const {
    std::vector<int64_t> out;
    for (const Expr& e : list(name)) {
        std::optional<int64_t> v = e.as_const();
        require(v.has_value());
        out.push_back(*v);
    }
    return out;
}

int Lowering::wrap_axis(int64_t dim, int rank) const {
    int n = std::max(rank, 1);
    require(dim >= -n && dim < n);
    return static_cast<int>(dim < 0 ? dim + n : dim);
}

int Lowering::axis(std::string_view name, int rank) const { return wrap_axis(constant(name), rank); }

std::vector<int> Lowering::axes(std::string_view name, int rank) const {
    std::vector<int> out;
    for (int64_t dim : constant_list(name)) {
        int k = wrap_axis(dim, rank);
        if (k < rank) out.push_back(k);
    }
    if (constant_list(name).empty()) {
        for (int k = 0; k < rank; ++k) out.push_back(k);
    }
    std::sort(out.begin(), out.end());
    require(std::adjacent_find(out.begin(), out.end()) == out.end());
    return out;
}

void Lowering::require_plain_cpu() const {
    require(!flag("pin_memory"));
    if (const auto* device = call.get<ir::Opaque>("device")) require(device->text.find("cpu") != std::string::npos);
    // torch.strided, or Strided as C++ prints it.
    if (const auto* layout = call.get<ir::Opaque>("layout")) require(layout->text.find("trided") != std::string::npos);
}

// ---- building

bool Lowering::is_alias(int i) const { return i < static_cast<int>(call.aliases.size()) && call.aliases[i] >= 0; }

Value* Lowering::fill(const Number& n, DType dtype, const Sizes& sizes) {
    if (dtype == DType::Bool) {
        std::optional<double> v = n.real();
        require(v.has_value());
        return b.scalar_bool(*v != 0, sizes);
    }
    if (ir::is_int(dtype)) {
        std::optional<Expr> e = n.expr();
        require(e.has_value());
        std::optional<int64_t> v = e->as_const();
        require(v ? fits(*v, dtype) : dtype == DType::I64);
        return b.scalar_int(dtype, *e, sizes);
    }
    if (std::optional<double> v = n.real()) {
        // Eager goes from double to float to the half type.
        if (ir::is_half(dtype)) v = static_cast<float>(*v);
        require(!n.is_integer() || std::abs(*v) <= 9007199254740992.0);  // exact in double
        return b.scalar(dtype, *v, sizes);
    }
    require(dtype == DType::F32 || dtype == DType::F64);
    return b.scalar_int(dtype, *n.expr(), sizes);
}

Value* Lowering::to(const Operand& x, DType dtype, const Sizes& sizes) {
    Value* v = x.tensor();
    if (!v) return fill(x.number(), dtype, sizes);
    require(v->type.rank() <= static_cast<int>(sizes.size()));
    return b.expand(b.cast(v, dtype), sizes);
}

DType Lowering::common_dtype(std::initializer_list<Operand> operands) const {
    if (std::optional<DType> d = result_type({operands.begin(), operands.size()})) return *d;
    // Only a number brings the default float dtype in, and then the result has it.
    require(ir::is_float(dtype()));
    return dtype();
}

// ---- results

void Lowering::finish(Value* v, int i) {
    require(v->type.dtype == dtype(i) && v->type.rank() == type(i).rank());
    for (int k = 0; k < v->type.rank(); ++k) require(!shapes::known_ne(v->type.sizes[k], sizes(i)[k]));
    finished_[i] = v;
}

void Lowering::done(Value* v, int i) {
    require(!is_alias(i));
    v = to(v, dtype(i), sizes(i));
    bool taken = std::find(call.operands.begin(), call.operands.end(), v) != call.operands.end() ||
                 std::find(finished_.begin(), finished_.end(), v) != finished_.end();
    if (taken || ir::kind(v->node->op) == ir::OpKind::View) {
        v = b.copy(v, type(i).strides);
    } else {
        ir::Builder::with_strides(v, type(i).strides);
    }
    v->storage = call.results[i]->storage;
    finish(v, i);
}

void Lowering::done(std::initializer_list<Value*> values) {
    int i = 0;
    for (Value* v : values) done(v, i++);
}

Value* Lowering::view(Op op, Value* x, std::vector<ir::NamedArg> attributes, int i) {
    Value* v = b.create(op, {x}, std::move(attributes), type(i));
    if (is_alias(i)) {
        ir::Builder::as_alias(v, call.results[i]->storage);
    } else {
        v->storage = call.results[i]->storage;
    }
    return v;
}

void Lowering::commit() {
    for (int i = 0; i < results(); ++i) {
        BRAZE_CHECK(finished_[i] != nullptr,
                    "a rule for " + call.callee + " left result " + std::to_string(i) + " open");
    }
    for (int i = 0; i < results(); ++i) b.replace(call.results[i], finished_[i]);
}

}  // namespace braze::passes::decomposition
