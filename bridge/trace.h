// What a capture records: the operators below autograd, in order, over numbered values.
#pragma once
#include "bridge/operator_info.h"
#include "bridge/symbols.h"
#include "bridge/torch.h"
#include "core/autograd/region.h"

namespace braze::bridge {

struct ValueInfo {
    enum Kind : uint8_t { Input, Constant, Result, Undefined } kind;
    int producer;  // Input: the caller's id. Constant: index into Trace::constants. Result: index into Trace::records
    int index;     // Result: which, lists flattened
    at::ScalarType dtype;
    c10::DimVector sizes, strides;
    int64_t offset;
    int alias_set;                             // FakeStorage::alias_set
    bool lazy = false;                         // conjugated or negated when it is read
    std::optional<SymbolicMetadata> symbolic;  // beside the hints; none: constant
};

struct Operand {
    int arg;  // argument of the schema
    int pos;  // in a list of tensors; -1: the argument is the tensor
    int value;
    bool requires_grad;  // as the fake was, when the operator ran
};

struct Record {
    const OperatorInfo* info;
    std::vector<c10::IValue> args;  // traced tensors (and lists of tensors) replaced by None
    std::vector<int> list_sizes;    // per TensorList argument in order: its length
    std::vector<Operand> operands;  // in the order of the arguments
    std::vector<int> results;       // values, lists flattened; the value of an operand where the operator returns it
    std::vector<int> aliases;       // per result: index into operands, or -1
    std::vector<int> writes;        // indices into operands
    bool grad_mode;
    bool ordered;
    int line;
    bool symbolic_args = false;  // some argument is a SymInt, or a list with one
};

// Autocast on the CPU, as a program sees it.
struct Autocast {
    bool enabled = false, cache = true;
    at::ScalarType dtype = at::kBFloat16;
    static Autocast now();
    bool operator==(const Autocast&) const = default;
};

// An operator as the program called it, above autograd and autocast.
struct TorchLevelOp {
    Record record;  // its results are values of the operators that it led to
    std::vector<bool> results_require_grad;
    Autocast autocast;
};

// Inputs that are Python numbers.
enum class NumberInput : uint8_t { None, Int, Float };

struct RecordedFunction;

struct Trace {
    std::vector<ValueInfo> values;
    std::vector<Record> records;
    std::vector<std::shared_ptr<RecordedFunction>> functions;  // in order
    std::vector<at::Tensor> constants;                         // private copies
    std::vector<std::string> lines;
    std::vector<autograd::Region> regions;  // by line
    std::vector<int> inputs;                // value per input id; -1: no such input
    int alias_sets = 0;
    std::vector<bool> written_sets;  // by alias set
    int torch_ops = 0;
    std::vector<TorchLevelOp> torch_level;  // where asked for
    bool torch_level_complete = true;       // every record belongs to one of them
    bool grad_mode = true;                  // at the start
    Autocast autocast;
    bool only_cpu = true;              // every tensor is on the CPU
    std::vector<NumberInput> numbers;  // by input id; may be shorter
    Symbols symbols = std::make_shared<SymbolTable>();
    NumberInput number(size_t id) const { return id < numbers.size() ? numbers[id] : NumberInput::None; }
};

// The arguments of a record with the traced tensors at their places; get(operand) returns the tensor of one.
template <class Get>
void push_arguments(const Record& r, std::vector<c10::IValue>& stack, Get&& get) {
    size_t first = stack.size(), next = 0;
    int list = 0;
    stack.insert(stack.end(), r.args.begin(), r.args.end());
    for (size_t i = 0; i < r.info->args.size(); ++i) {
        const ArgInfo& arg = r.info->args[i];
        c10::IValue& v = stack[first + i];
        if (arg.form == Form::Number) {
            if (next < r.operands.size() && r.operands[next].arg == static_cast<int>(i))
                v = at::Tensor(get(r.operands[next++])).item();
        } else if (arg.form == Form::Tensor) {
            if (next < r.operands.size() && r.operands[next].arg == static_cast<int>(i)) v = get(r.operands[next++]);
        } else if (arg.form == Form::TensorList) {
            int size = r.list_sizes[list++];
            if (size < 0) continue;
            c10::List<at::Tensor> plain;
            c10::List<std::optional<at::Tensor>> optional;
            for (int pos = 0; pos < size; ++pos) {
                bool traced = next < r.operands.size() && r.operands[next].arg == static_cast<int>(i) &&
                              r.operands[next].pos == pos;
                at::Tensor t = traced ? get(r.operands[next++]) : at::Tensor();
                if (!arg.optional_elements)
                    plain.push_back(t);
                else
                    optional.push_back(traced ? std::optional<at::Tensor>(t) : std::nullopt);
            }
            if (arg.optional_elements)
                v = std::move(optional);
            else
                v = std::move(plain);
        }
    }
}

}  // namespace braze::bridge
