#include "bridge/call.h"

#include <ATen/ScalarOps.h>

#include "bridge/dtypes.h"
#include "core/support/error.h"

namespace braze::bridge {

Size::Size(const shapes::Expr& e, const std::vector<shapes::Expr>& symbols) {
    if (auto v = e.as_const())
        value_ = *v;
    else
        program_ = std::make_shared<const std::pair<shapes::Expr, std::vector<shapes::Expr>>>(e, symbols);
}

int64_t Size::evaluate(const int64_t* values) const {
    const auto& symbols = program_->second;
    auto v = program_->first.evaluate([&](const shapes::Expr& s) -> std::optional<int64_t> {
        for (size_t i = 0; i < symbols.size(); ++i)
            if (symbols[i] == s) return values[i];
        return std::nullopt;
    });
    BRAZE_CHECK(v.has_value(), "cannot evaluate " + program_->first.str());
    return *v;
}

const OperatorInfo* out_variant(const std::string& callee) {
    static const std::pair<const char*, const char*> table[] = {{"aten::mm", "aten::mm.out"},
                                                                {"aten::addmm", "aten::addmm.out"},
                                                                {"aten::bmm", "aten::bmm.out"},
                                                                {"aten::baddbmm", "aten::baddbmm.out"}};
    for (auto [functional, out] : table)
        if (callee == functional) return &OperatorInfo::named(out);
    return nullptr;
}

c10::IValue PreparedCall::constant(const ArgInfo& arg, const ir::Arg& value,
                                   const std::vector<c10::IValue>& opaque) const {
    if (std::holds_alternative<ir::None>(value)) return {};
    if (const auto* o = std::get_if<ir::Opaque>(&value)) {
        BRAZE_CHECK(o->index >= 0 && o->index < static_cast<int>(opaque.size()), "no value is kept for " + o->text);
        return opaque[o->index];
    }
    if (const auto* d = std::get_if<ir::DType>(&value)) return static_cast<int64_t>(to_scalar_type(*d));
    if (const auto* s = std::get_if<std::string>(&value)) return *s;
    if (const auto* l = std::get_if<std::vector<double>>(&value)) return *l;
    if (const auto* l = std::get_if<std::vector<bool>>(&value)) {
        c10::List<bool> list;
        for (bool b : *l) list.push_back(b);
        return list;
    }
    if (const auto* l = std::get_if<std::vector<shapes::Expr>>(&value)) {
        std::vector<int64_t> list;
        for (const auto& e : *l) list.push_back(e.as_const().value_or(0));
        if (arg.form == Form::FloatList) return std::vector<double>(list.begin(), list.end());
        return list;
    }
    std::optional<at::Scalar> number;
    if (const auto* b = std::get_if<bool>(&value)) number = at::Scalar(*b);
    if (const auto* d = std::get_if<double>(&value)) number = at::Scalar(*d);
    if (const auto* e = std::get_if<shapes::Expr>(&value)) number = at::Scalar(e->as_const().value_or(0));
    BRAZE_CHECK(number.has_value(), "unexpected argument " + arg.name);
    switch (arg.form) {
        case Form::Tensor: return at::native::wrapped_scalar_tensor(*number);
        case Form::Float: return number->toDouble();
        case Form::Bool: return number->toBool();
        case Form::IntList: return std::vector<int64_t>{number->toLong()};
        case Form::Int: return number->toLong();
        default: return *number;
    }
}

c10::IValue size_argument(Form form, int64_t value) {
    if (form == Form::Tensor) return at::native::wrapped_scalar_tensor(value);
    if (form == Form::Float) return static_cast<double>(value);
    return value;
}

PreparedCall::PreparedCall(const ir::Node& node, const std::vector<c10::IValue>& opaque,
                           const std::vector<shapes::Expr>& symbols, bool into_results) {
    info_ = into_results ? out_variant(node.callee) : &OperatorInfo::named(node.callee);
    BRAZE_CHECK(info_, node.callee + " has no out= overload that is known");
    grad_mode_ = info_->asks_grad_mode;
    for (const ir::Value* v : node.results) grad_mode_ &= v->type.dtype != ir::DType::Other;
    const auto& schema = info_->op.schema().arguments();
    for (size_t i = 0; i < info_->args.size(); ++i) {
        const ArgInfo& arg = info_->args[i];
        int index = static_cast<int>(i);
        args_.emplace_back();
        if (into_results && arg.writes) {
            outs_.push_back({index, static_cast<int>(outs_.size())});
            continue;
        }
        const ir::Arg* value = node.arg(arg.name);
        if (!value) {
            auto fallback = schema[i].default_value();
            BRAZE_CHECK(fallback.has_value(), node.callee + ": no argument " + arg.name);
            args_.back() = *fallback;
        } else if (const auto* r = std::get_if<ir::Ref>(value)) {
            (arg.form == Form::Number ? numbers_ : patches_).push_back({index, r->operand});
        } else if (const auto* l = std::get_if<ir::RefList>(value)) {
            lists_.push_back({index, arg.optional_elements, l->operands});
        } else {
            args_.back() = constant(arg, *value, opaque);
            auto symbolic = [](const shapes::Expr& e) { return !e.is_const(); };
            if (const auto* e = std::get_if<shapes::Expr>(value); e && symbolic(*e)) {
                sizes_.push_back({index, arg.form, false, {Size(*e, symbols)}});
            } else if (const auto* list = std::get_if<std::vector<shapes::Expr>>(value);
                       list && std::any_of(list->begin(), list->end(), symbolic)) {
                SizePatch patch{index, arg.form, true, {}};
                for (const auto& e : *list) patch.values.emplace_back(e, symbols);
                sizes_.push_back(std::move(patch));
            }
        }
    }
}

}  // namespace braze::bridge
