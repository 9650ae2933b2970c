// Builds the scalar DAG of one kernel: equal scalars are made once, half types are computed in f32.
#pragma once
#include <unordered_map>
#include <vector>

#include "core/loops/kernel.h"

namespace braze::schedule {

using shapes::Expr;

class Scalars {
  public:
    using DType = ir::DType;
    std::vector<loops::Scalar> list;

    int constant(DType d, double value);  // converted to d
    int constant_int(DType d, int64_t value);
    int index(const Expr& e);                                      // I64
    int load(int buffer, DType d, const Expr& address, int mask);  // 0 where the mask is false
    // An elementwise operator on arguments of any dtype, as ir/ops.def defines it: the result has dtype d.
    int apply(ir::Op op, DType d, std::vector<int> args);
    int cast(int s, DType to);
    int reduce(ir::Op op, DType accumulate, int arg);
    int both(int a, int b);  // a && b, where -1 is true
    int where(int cond, int a, int b);
    // The indirect symbol for index `i` (I64) into an axis of that size, checked where the mask is true.
    Expr indirect(int i, const Expr& size, int mask, bool wrap);

    DType dtype(int s) const { return list[static_cast<size_t>(s)].dtype; }

  private:
    int add(loops::Scalar s);
    int raw(ir::Op op, DType d, std::vector<int> args);
    int widened(int s) { return ir::is_half(dtype(s)) ? cast(s, DType::F32) : s; }

    std::unordered_multimap<size_t, int> known_;
    int symbols_ = 0;
};

}  // namespace braze::schedule
