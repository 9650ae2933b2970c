// What capture, conversion and execution need to know about an operator, decoded once from its schema.
#pragma once
#include "bridge/shape_rules.h"
#include "bridge/torch.h"

namespace braze::bridge {

enum class Form : uint8_t {  // of an argument; optional ones have the form of what they may hold
    Tensor,
    TensorList,
    ScalarType,
    Layout,
    MemoryFormat,
    Device,
    Generator,
    Number,
    Int,
    Float,
    Bool,
    String,
    IntList,
    FloatList,
    BoolList,
    Other
};

struct ArgInfo {
    std::string name;
    Form form;
    bool optional_elements = false;  // Tensor?[]
    bool writes = false;             // the schema says that its memory is written
};
struct ReturnInfo {
    bool list = false;
    bool tensor = false;
    int alias_arg = -1;   // argument it shares memory with, by the schema
    bool writes = false;  // it is that argument itself, written
};
struct HiddenWrite {
    int arg, flag;
};

struct OperatorInfo {
    c10::OperatorHandle op;
    std::string callee;  // "aten::add.Tensor"
    std::vector<ArgInfo> args;
    std::vector<ReturnInfo> returns;
    std::vector<HiddenWrite> hidden_writes;
    std::optional<c10::OperatorHandle> functional;  // METADATA: its functional form
    bool refused = false;
    bool asks_grad_mode = false;  // GRAD_MODE in operators.def
    bool composite = false;       // has only an implicit composite kernel: to be decomposed
    bool pointwise = false;       // results have the broadcast sizes of its tensors
    bool random = false;
    bool data_value = false;     // its result is a Python value that depends on data
    bool data_shape = false;     // its result's sizes depend on data
    bool own_autograd = false;   // a kernel of a library for autograd, as torch.library.custom_op makes
    bool is_lift = false;        // lift_fresh: a constant enters the program
    bool foreach = false;        // on lists of tensors, with a kernel that takes one after the other
    bool is_index = false;       // index.Tensor: data_shape only with masks
    bool puts_by_index = false;  // index_put and its forms
    ShapeRule shape_rule = nullptr;
    bool structured =
        false;  // its shape function can be reached through the kernel of CompositeExplicitAutogradNonFunctional
    int device_arg = -1;
    bool writes_anything = false;
    bool in_place_broadcast = false;  // IN_PLACE in operators.def
    bool in_place_unary = false;      // writes and returns its first argument, and has no other tensor
    bool resizes_out = false;         // an out= overload
    // One function call per operator and process.
    static const OperatorInfo& of(const c10::OperatorHandle& op);
    // By "aten::add.Tensor"; throws InternalError where the dispatcher has no such operator.
    static const OperatorInfo& named(const std::string& callee);
    int arg_index(std::string_view name) const;
};

}  // namespace braze::bridge
