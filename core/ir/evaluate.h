// A slow reference evaluator: runs a graph of primitive operators over host memory, one element at a time, rounding to
// the dtype after every operator. Tests of every stage compare against it.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "core/ir/graph.h"

namespace braze::ir {

// A strided tensor on shared memory: copies of a HostTensor, and views of it, see the same elements.
struct HostTensor {
    DType dtype = DType::F32;
    std::vector<int64_t> sizes, strides;
    int64_t offset = 0;  // elements, of the first element
    std::shared_ptr<std::vector<std::byte>> bytes;

    // Zero-filled memory for these strides.
    static HostTensor empty(DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides);
    static HostTensor empty(DType dtype, std::vector<int64_t> sizes);  // contiguous
    int64_t numel() const;
    int64_t element(const std::vector<int64_t>& index) const;  // its place in `bytes`, in elements
    // By row-major number; integers and Bool as numbers.
    double number(int64_t row_major) const;
    void set_number(int64_t row_major, double value);
};

using SymbolValues = std::function<std::optional<int64_t>(const Expr& symbol)>;
// Runs a Call: operands are those of the node; results are allocated (aliases share memory with their operand) and
// filled by it.
using CallHandler =
    std::function<void(const Node&, std::vector<HostTensor>& operands, std::vector<HostTensor>& results)>;

// Views whose result shares a storage with the operand share memory, all other results are fresh. A Call without a
// handler, a Gather or Take out of range is an InternalError.
std::vector<HostTensor> evaluate(const Graph& g, const std::vector<HostTensor>& inputs,
                                 const SymbolValues& symbols = {}, const CallHandler& calls = {});

}  // namespace braze::ir
