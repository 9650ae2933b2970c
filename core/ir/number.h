// Scalars of any dtype as interpreters see them, with the elementwise operators of ops.def.
#pragma once
#include <cstdint>
#include <vector>

#include "core/ir/dtype.h"
#include "core/ir/graph.h"

namespace braze::ir {

struct Number {     // which member counts is told by the dtype
    double f = 0;   // floats; a value of f32, f16 or bf16 is exact in it
    int64_t i = 0;  // integers, u64 by its bits; Bool is 0 or 1
};

Number load_number(DType d, const void* buffer, int64_t element);
void store_number(DType d, void* buffer, int64_t element, Number x);
// As tensor.to(dtype): rounds to the nearest even float, truncates floats to integers, wraps integers.
Number cast_number(DType from, DType to, Number x);
// An elementwise operator on operands of dtype d (Where: of the second operand's).
Number apply(Op op, DType d, const Number* args);

// One reduction in progress: sums of floats are kept in long double, so that the result is correctly rounded in
// practice.
class Accumulator {
  public:
    Accumulator(Op op, DType d);
    void add(Number x, int64_t index);
    Number result() const;

  private:
    Op op_;
    DType d_;
    long double sum_ = 0;
    Number best_;
    int64_t at_ = 0;
    bool empty_ = true;
};

}  // namespace braze::ir
