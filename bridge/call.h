// One dispatcher call of a program, prepared once: everything that is constant lies ready, operands are patched in.
#pragma once
#include "bridge/operator_info.h"
#include "core/ir/graph.h"
#include "core/runtime/program.h"

namespace braze::bridge {

// An expression over the program's size symbols; constant ones cost nothing.
class Size {
  public:
    Size() = default;
    Size(const shapes::Expr& e, const std::vector<shapes::Expr>& symbols);
    bool constant() const { return !program_; }
    int64_t at(const int64_t* symbols) const { return program_ ? evaluate(symbols) : value_; }

  private:
    int64_t evaluate(const int64_t* symbols) const;
    int64_t value_ = 0;
    std::shared_ptr<const std::pair<shapes::Expr, std::vector<shapes::Expr>>> program_;
};

// A size where the operator takes any number, or a tensor.
c10::IValue size_argument(Form form, int64_t value);

class PreparedCall {
  public:
    // Where `into_results`, the out= overload is called with the tensors given for the results.
    PreparedCall(const ir::Node& node, const std::vector<c10::IValue>& opaque, const std::vector<shapes::Expr>& symbols,
                 bool into_results);

    // operand(k) and result(k) give tensors. The results are left on the stack.
    template <class Operand, class Result>
    void push(std::vector<c10::IValue>& stack, const int64_t* symbols, Operand&& operand, Result&& result) const {
        size_t first = stack.size();
        stack.insert(stack.end(), args_.begin(), args_.end());
        for (const Patch& p : patches_) stack[first + p.arg] = operand(p.operand);
        for (const Patch& p : numbers_) stack[first + p.arg] = at::Tensor(operand(p.operand)).item();
        for (const ListPatch& p : lists_) {
            c10::IValue& v = stack[first + p.arg];
            if (p.optional) {
                c10::List<std::optional<at::Tensor>> list;
                for (int k : p.operands) list.push_back(k < 0 ? std::nullopt : std::optional<at::Tensor>(operand(k)));
                v = std::move(list);
            } else {
                c10::List<at::Tensor> list;
                for (int k : p.operands) list.push_back(operand(k));
                v = std::move(list);
            }
        }
        for (const SizePatch& p : sizes_) {
            if (!p.list) {
                stack[first + p.arg] = size_argument(p.form, p.values[0].at(symbols));
                continue;
            }
            std::vector<int64_t> list;
            for (const Size& s : p.values) list.push_back(s.at(symbols));
            stack[first + p.arg] = std::move(list);
        }
        for (const Patch& p : outs_) stack[first + p.arg] = result(p.operand);
    }
    const OperatorInfo& info() const { return *info_; }
    void call(std::vector<c10::IValue>* stack) const {
        if (!grad_mode_) return info_->op.callBoxed(stack);
        c10::AutoGradMode on(true);
        info_->op.callBoxed(stack);
    }

  private:
    struct Patch {
        int arg, operand;
    };
    struct ListPatch {
        int arg;
        bool optional;
        std::vector<int> operands;
    };
    struct SizePatch {
        int arg;
        Form form;
        bool list;
        std::vector<Size> values;
    };
    c10::IValue constant(const ArgInfo& arg, const ir::Arg& value, const std::vector<c10::IValue>& opaque) const;

    const OperatorInfo* info_;
    bool grad_mode_ = false;  // it gives results for a backward pass, which it does in this mode only
    std::vector<c10::IValue> args_;
    std::vector<Patch> patches_, numbers_, outs_;
    std::vector<ListPatch> lists_;
    std::vector<SizePatch> sizes_;
};

// The out= overload of a functional operator, or nullptr.
const OperatorInfo* out_variant(const std::string& callee);

}  // namespace braze::bridge
