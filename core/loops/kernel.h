// The loop-nest IR: what schedule/ produces and codegen/ translates. One Kernel is one compiled function.
//
// Shape of a kernel, with outer axes o0..om and inner axes i0..in:
//
//   parallel for (o0..om) flattened, the caller passes [begin, end) of the flattened outer range
//     for each stage, in order:
//        for (i0..in) in row-major order:                 (the whole inner space)
//          evaluate the stage's Inner-level scalars; accumulate its reductions; store its stores
//        reductions finished: their results, and Outer-level scalars that depend on them, are now available
//     Outer-level stores (of values that do not depend on inner axes) are done after the stage that makes them
//     available
//
// A pure pointwise kernel has one stage; a softmax has three (max; sum of exp; write). With no inner axes a stage is
// evaluated once per outer point.
//
// Vectorisation (`vectorize`): along the last inner axis (InnerLast), or along the last outer axis (OuterLast: each
// lane is another outer point; for reductions over rows). The code generator chooses the width; every load and store is
// by an address expression, and its stride along the vectorised axis decides how it is done (1: vector, 0: broadcast,
// other constants or symbols: strided/gather; not affine: per lane). Transposed accesses may be tiled by the code
// generator.
//
// Scalars form a DAG in topological order (operands before users). Numbers: a Scalar computes in exactly its dtype;
// half types occur only in Load, Store, Cast and Const (Cast f32 -> bf16 -> f32 is how rounding to a half type is
// written). Elementwise operators have the semantics of ir/ops.def. Integer arithmetic wraps. No fast-math; a*b+c may
// be contracted to fma only when both are written as Fma.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/ir/dtype.h"
#include "core/ir/graph.h"
#include "core/shapes/expr.h"

namespace braze::loops {

using ir::DType;
using shapes::Expr;

struct Param {  // one buffer; ABI order
    DType dtype;
    // Written params never alias read ones, except element for element (in-place) when `inplace_of` >= 0. A kernel may
    // load from its own written param only what an earlier stage of the same outer point stored (a row kept between
    // stages).
    bool written = false;
    int inplace_of = -1;  // index of the read param whose memory it may share (same address for the same element)
    std::string name;
};

enum class ScalarKind : uint8_t {
    Const,  // value
    Index,  // index expression over axis and size symbols (and indirect ones), as i64
    Load,   // param[address]; with mask >= 0: only where that Bool scalar is true, else `value`
    Unary,
    Binary,
    Ternary,  // op (ir::Op), args
    Cast,     // args[0] to dtype
    Reduce,   // args[0] reduced over all inner axes by `op` (ir::Op::Sum, Prod, Max, Min, Any, All, ArgMax, ArgMin);
              // Outer level. ArgMax/ArgMin: dtype I64, the row-major index over the inner axes
    IndexOf,  // args[0] (an I64 scalar) as the indirect symbol `symbol`, to be used in address expressions; a negative
              // index has already been wrapped by explicit arithmetic. args[1], if present, is the Check that must pass
              // first.
    Check,    // args[0] is a Bool that must be true everywhere (index in range); if not, the kernel sets its error flag
              // and returns it before anything is loaded by that index
};
// Depends on: nothing, outer axes (or reductions), inner axes. Without inner axes nothing is Inner.
enum class Level : uint8_t { Uniform, Outer, Inner };

struct Scalar {
    ScalarKind kind;
    DType dtype;
    Level level = Level::Inner;
    ir::Op op = ir::Op::Call;  // Unary, Binary, Ternary, Reduce
    std::vector<int> args;     // indices into Kernel::scalars, all smaller than its own
    int param = -1;            // Load
    Expr address;              // Load: element offset in the param; Index: the expression
    int mask = -1;             // Load: a Bool scalar; it may guard addresses outside the param
    std::variant<double, int64_t> value =
        0.0;         // Const; Load with mask: the value elsewhere. Int and Bool dtypes hold int64_t
    Expr symbol;     // IndexOf: the symbol (t0, t1, ...)
    int stage = -1;  // Reduce: the stage whose loop computes it
};

struct Store {
    int param;
    Expr address;
    int scalar;   // its dtype is the param's
    Level level;  // Inner: in the stage's loop; Outer/Uniform: once per outer point after the stage's loop
};

struct Stage {
    std::vector<Store> stores;
    std::vector<int> reduces;  // Reduce scalars computed by this stage's loop
};  // everything the loop needs is reached from these

enum class Vectorize : uint8_t { InnerLast, OuterLast };

struct Kernel {
    std::string name;  // "k_" + hash; identical kernels have identical names and are compiled once
    std::vector<Param> params;
    std::vector<Expr> symbols;  // size symbols, ABI order
    std::vector<Expr> outer;    // extents; axis k is the symbol "o<k>"
    std::vector<Expr> inner;    // extents; axis k is the symbol "i<k>"
    std::vector<Scalar> scalars;
    std::vector<Stage> stages;
    Vectorize vectorize = Vectorize::InnerLast;
    bool has_checks = false;
};

// The axis symbols. A symbol knows its extent, so ask with the kernel's own.
Expr outer_axis(int k, Expr extent);
Expr inner_axis(int k, Expr extent);
std::string_view name(ScalarKind kind);
std::string_view name(Level level);
// The Level of an expression over k's axes, size symbols and indirect symbols (by the level of their IndexOf among the
// first `scalars` scalars).
Level level_of(const Kernel& k, const Expr& e, size_t scalars);

std::string print(const Kernel& k);
void verify(const Kernel& k);  // throws InternalError with the place
// Canonical text without the name: equal texts are the same code.
std::string canonical(const Kernel& k);
// Slow reference interpreter over host buffers. Returns false if a Check failed. begin/end: flattened outer range.
bool interpret(const Kernel& k, void* const* buffers, const int64_t* symbols, int64_t begin, int64_t end);

// ABI of compiled kernels: returns 0, or 1 if a Check failed.
using KernelFn = int32_t (*)(void* const* buffers, const int64_t* symbols, int64_t begin, int64_t end);

}  // namespace braze::loops
