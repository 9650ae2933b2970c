// What is decided about a kernel before its code is emitted: the vector shape, what every scalar depends on, and how
// addresses run along the lanes.
#pragma once
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/codegen/cpu/compiler.h"

namespace braze::codegen {

using shapes::Expr;

// What a value depends on, as bits; the emitter places it at the outermost loop level that defines them all.
using Depends = uint64_t;
constexpr int kMaxAxes = 28;
constexpr Depends outer_bit(size_t k) { return Depends{1} << k; }
constexpr Depends inner_bit(size_t k) { return Depends{1} << (32U + k); }
constexpr Depends kPoint = Depends{1} << 30U;   // a result of a reduction: known inside one outer point
constexpr Depends kStage = Depends{1} << 62U;   // may only be evaluated where the inner space is not empty
constexpr Depends kPinned = Depends{1} << 63U;  // reads what the kernel writes: where it is used, not earlier

// The value of an address in lane l is base + l * stride, base being the address of lane 0.
struct LaneForm {
    Expr base;
    Expr stride;
};

class Plan {
  public:
    Plan(const loops::Kernel& kernel, const CpuTarget& target);

    bool along_outer = false;  // the vectorised axis is the last outer one, else the last inner one
    bool has_axis = false;     // false: nothing to vectorise
    Expr axis = 0;             // its symbol
    Expr extent = 1;
    Depends axis_bit = 0;
    int lanes = 1;             // of a vector; a power of two
    bool masked_tail = false;  // the rest of the axis by masked vectors, else one element at a time
    bool aligned = false;      // along_outer: vectors must start at multiples of `lanes`
    std::vector<int> unroll;   // vectors per step, per stage
    std::vector<bool>
        one_body;          // per stage: all vectors masked, so that there is no second copy of a long body for the rest
    int point_unroll = 1;  // along_outer: the same for all stages
    bool point_one_body = false;
    // Loads that run through memory along the last outer axis rather than along the lanes (a transposed operand):
    // blocks of lanes x lanes elements are loaded along that axis and transposed.
    std::vector<int> transposed;

    Depends depends(int scalar) const { return depends_[static_cast<size_t>(scalar)]; }
    Depends depends(const Expr& e) const;
    bool varies(int scalar) const { return (depends(scalar) & axis_bit) != 0; }
    bool varies(const Expr& e) const { return (depends(e) & axis_bit) != 0; }
    int index_scalar(const Expr& symbol) const;  // of IndexOf; -1 if it is another kind of symbol

    // nullopt: not of that form. `aligned`: the axis starts at a multiple of `lanes`.
    std::optional<LaneForm> lane_form(const Expr& e, int lanes, bool aligned) const;

  private:
    void find_depends();
    void choose_axis();
    void choose_lanes();
    void find_transposed();
    void widen();
    void choose_unroll();
    void choose_tail();
    int64_t divisor(const Expr& e, int lanes, bool aligned) const;
    double cost(int scalar) const;
    double stage_cost(size_t s) const;

    const loops::Kernel& k_;
    const CpuTarget& target_;
    std::vector<Expr> outer_, inner_;  // axis symbols
    std::unordered_map<Expr, Depends> symbol_depends_;
    std::unordered_map<Expr, int> index_of_;
    std::vector<Depends> depends_;
};

// The expression and all its parts fit 32 bits.
bool fits_int32(const Expr& e);
// The largest value the expression can have if that is known to be finite.
std::optional<int64_t> upper_bound(const Expr& e);

}  // namespace braze::codegen
