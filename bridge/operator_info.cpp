#include "bridge/operator_info.h"

#include <mutex>
#include <unordered_map>

#include "core/support/error.h"

namespace braze::bridge {

namespace {

struct MetadataOp {
    const char *name, *functional;
};
constexpr MetadataOp kMetadata[] = {
#define METADATA(name, functional) {name, functional},
#include "bridge/operators.def"
};
struct HiddenWriteRow {
    const char *op, *arg, *flag;
};
constexpr HiddenWriteRow kHiddenWrites[] = {
#define HIDDEN_WRITE(op, arg, flag) {op, arg, flag},
#include "bridge/operators.def"
};
constexpr const char* kRefused[] = {
#define REFUSED(name) name,
#include "bridge/operators.def"
};
constexpr const char* kGradMode[] = {
#define GRAD_MODE(name) name,
#include "bridge/operators.def"
};
constexpr const char* kInPlace[] = {
#define IN_PLACE(name) name,
#include "bridge/operators.def"
};

Form form_of(c10::TypePtr type, bool* optional_elements) {
    using K = c10::TypeKind;
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    switch (type->kind()) {
        case K::TensorType: return Form::Tensor;
        case K::ScalarTypeType: return Form::ScalarType;
        case K::LayoutType: return Form::Layout;
        case K::MemoryFormatType: return Form::MemoryFormat;
        case K::DeviceObjType: return Form::Device;
        case K::GeneratorType: return Form::Generator;
        case K::NumberType: return Form::Number;
        case K::IntType:
        case K::SymIntType: return Form::Int;
        case K::FloatType:
        case K::SymFloatType: return Form::Float;
        case K::BoolType:
        case K::SymBoolType: return Form::Bool;
        case K::StringType: return Form::String;
        case K::ListType: {
            c10::TypePtr element = type->castRaw<c10::ListType>()->getElementType();
            if (auto optional = element->cast<c10::OptionalType>()) {
                element = optional->getElementType();
                *optional_elements = true;
            }
            switch (element->kind()) {
                case K::TensorType: return Form::TensorList;
                case K::IntType:
                case K::SymIntType: return Form::IntList;
                case K::FloatType: return Form::FloatList;
                case K::BoolType: return Form::BoolList;
                default: return Form::Other;
            }
        }
        default: return Form::Other;
    }
}

std::string callee_of(const c10::OperatorHandle& op) {
    const auto& name = op.operator_name();
    return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

OperatorInfo decode(const c10::OperatorHandle& op) {
    OperatorInfo info{op};
    info.callee = callee_of(op);
    const c10::FunctionSchema& schema = op.schema();
    const auto& arguments = schema.arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
        const c10::Argument& a = arguments[i];
        ArgInfo arg;
        arg.name = a.name();
        arg.form = form_of(a.real_type(), &arg.optional_elements);
        arg.writes = a.alias_info() && a.alias_info()->isWrite();
        info.writes_anything |= arg.writes;
        if (arg.form == Form::Device) info.device_arg = static_cast<int>(i);
        if (arg.writes && a.kwarg_only()) info.resizes_out = true;
        info.random |= arg.form == Form::Generator;
        info.args.push_back(std::move(arg));
    }
    for (const c10::Argument& r : schema.returns()) {
        ReturnInfo result;
        bool optional = false;
        Form form = form_of(r.real_type(), &optional);
        result.tensor = form == Form::Tensor || form == Form::TensorList;
        result.list = form == Form::TensorList;
        if (r.alias_info()) {
            result.writes = r.alias_info()->isWrite();
            for (size_t i = 0; i < arguments.size(); ++i)
                if (arguments[i].alias_info() &&
                    arguments[i].alias_info()->beforeSets() == r.alias_info()->beforeSets()) {
                    result.alias_arg = static_cast<int>(i);
                    break;
                }
        }
        info.returns.push_back(result);
    }
    for (const auto& row : kHiddenWrites)
        if (info.callee == row.op) info.hidden_writes.push_back({info.arg_index(row.arg), info.arg_index(row.flag)});
    for (const auto& row : kMetadata)
        if (info.callee == row.name) info.functional = OperatorInfo::named(row.functional).op;
    for (const char* name : kRefused) info.refused |= info.callee == name;
    for (const char* name : kGradMode) info.asks_grad_mode |= info.callee == name;
    for (const char* name : kInPlace) info.in_place_broadcast |= info.callee == name;
    info.shape_rule = shape_rule(info.callee);
    info.structured =
        !info.writes_anything && op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
    info.composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
                     !op.hasKernelForDispatchKey(c10::DispatchKey::Meta);
    int tensors = 0;
    for (const ArgInfo& a : info.args) tensors += a.form == Form::Tensor || a.form == Form::TensorList;
    info.in_place_unary = tensors == 1 && !info.args.empty() && info.args[0].writes && info.returns.size() == 1 &&
                          info.returns[0].writes && !info.functional && !info.refused;
    info.random |= op.hasTag(at::Tag::nondeterministic_seeded);
    info.pointwise = op.hasTag(at::Tag::pointwise);
    info.data_value = op.hasTag(at::Tag::data_dependent_output);
    info.data_shape = op.hasTag(at::Tag::dynamic_output_shape);
    info.own_autograd = !info.callee.starts_with("aten::") && op.hasKernelForDispatchKey(c10::DispatchKey::Autograd);
    info.is_lift = info.callee == "aten::lift_fresh" || info.callee == "aten::lift";
    info.foreach = info.callee.starts_with("aten::_foreach_") &&
                   op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
    info.is_index = info.callee == "aten::index.Tensor";
    info.puts_by_index = info.callee.find("index_put") != std::string::npos;
    return info;
}

std::mutex g_mutex;

}  // namespace

const OperatorInfo& OperatorInfo::of(const c10::OperatorHandle& op) {
    // Handles of one operator are equal, and operators are not removed while a graph that uses them lives.
    static std::unordered_map<c10::OperatorHandle, std::unique_ptr<OperatorInfo>> all;
    {
        std::lock_guard lock(g_mutex);
        auto it = all.find(op);
        if (it != all.end()) return *it->second;
    }
    auto info = std::make_unique<OperatorInfo>(decode(op));
    std::lock_guard lock(g_mutex);
    return *all.try_emplace(op, std::move(info)).first->second;
}

const OperatorInfo& OperatorInfo::named(const std::string& callee) {
    size_t dot = callee.find('.', callee.find("::"));
    std::string overload = dot == std::string::npos ? "" : callee.substr(dot + 1);
    auto op = c10::Dispatcher::singleton().findSchema({callee.substr(0, dot), overload});
    BRAZE_CHECK(op.has_value(), "no operator " + callee);
    return of(*op);
}

int OperatorInfo::arg_index(std::string_view name) const {
    for (size_t i = 0; i < args.size(); ++i)
        if (args[i].name == name) return static_cast<int>(i);
    return -1;
}

}  // namespace braze::bridge
