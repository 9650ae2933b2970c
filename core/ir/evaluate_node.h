// One primitive operator on host tensors. For evaluate.cpp.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "core/ir/evaluate.h"
#include "core/ir/number.h"

namespace braze::ir {

class NodeEvaluator {
  public:
    NodeEvaluator(const Node& n, std::vector<HostTensor>& operands, std::function<int64_t(const Expr&)> number)
        : n_(n), xs_(operands), number_(std::move(number)) {}

    void fill(std::vector<HostTensor>& results);
    // The result as a view of the operand's memory; `type` has its dtype, sizes and strides.
    HostTensor shared_view(const HostTensor& type);

  private:
    using Index = std::vector<int64_t>;
    using Number = ir::Number;

    int64_t integer(const char* name) const { return number_(*n_.get<Expr>(name)); }
    Index integers(const char* name) const;
    Number fill_value(DType dtype) const;
    Number load(size_t operand, const Index& index) const;
    Number element(const HostTensor& result, const Index& index);  // one result, not a reduction
    Number elementwise(const Index& index) const;
    Index viewed(const HostTensor& result, const Index& index) const;  // index into operand 0
    Number taken(const Index& index) const;
    void reduce(std::vector<HostTensor>& results);

    const Node& n_;
    std::vector<HostTensor>& xs_;
    std::function<int64_t(const Expr&)> number_;
};

}  // namespace braze::ir
