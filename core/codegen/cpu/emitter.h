// The emitter of one kernel. Code is placed by levels: each open loop is a level that defines some axes, and a value
// goes to the outermost level that defines all it depends on, so loop-invariant code is hoisted as it is written and
// each value is made once per level.
//
// Every level has an insertion point, the terminator of a block; loops and branches are made by splitting the block
// there, so that the point stays valid. Values that vary over the lanes are emitted once for each vector of the step
// ("part").
#pragma once
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <optional>
#include <unordered_map>

#include "core/codegen/cpu/elementwise.h"
#include "core/codegen/cpu/plan.h"

namespace braze::codegen {

using Parts = llvm::SmallVector<llvm::Value*, 8>;

class Emitter {
  public:
    Emitter(const loops::Kernel& kernel, const CpuTarget& target, llvm::Module& module, const std::string& name);
    void run();

  private:
    using V = llvm::Value*;

    struct Level {
        Depends defines = 0;
        llvm::Instruction* point = nullptr;
        std::unordered_map<Expr, V> exprs;
        std::unordered_map<int, Parts> scalars;
        std::map<std::pair<V, int>, V> splats;                              // by value and lanes
        std::unordered_map<Expr, std::vector<std::pair<int, V>>> pointers;  // by address and param
    };
    // How the vectorised axis is being walked.
    struct Lanes {
        int count = 1;         // lanes of a vector
        int parts = 1;         // vectors per step
        V mask = nullptr;      // of the only part; null: all lanes are within the axis
        V index = nullptr;     // the axis at lane 0 of part 0
        bool active = false;   // inside of the axis' loop
        bool aligned = false;  // index is a multiple of count
    };
    struct Accumulator {
        int scalar;  // the Reduce
        int arg;
        ir::Op op;
        DType dtype;
        bool indexed = false;  // ArgMax, ArgMin
        int lanes = 1;
        Parts parts, indices;  // stack slots
        Parts totals;          // second level of a sum, in f64
        V single = nullptr;    // for the axis' last elements, one at a time
        V single_index = nullptr;
    };
    using Body = std::function<void()>;

    // ---- emit_loops.cpp, emit_control.cpp, emit_lanes.cpp: structure
    void prologue();
    void outer_points();
    void outer_segments();
    void segments(const std::function<void(V first, V last)>& body);
    void point();
    void stage(size_t s);
    void inner_loops(size_t s, size_t axis);
    void inner_body(size_t s);
    // The axis from lo to hi; `count` if known. After each `chunk` full steps (0: never) the accumulators are flushed.
    void lane_loops(Depends defines, V lo, V hi, std::optional<int64_t> count, int parts, bool one_body, int64_t chunk,
                    const Body& body);
    void aligned_lane_loop(Depends defines, V lo, V hi, int parts, bool one_body, const Body& body);
    void choose_flush(size_t s);
    void advance(const llvm::SmallVectorImpl<V>& slots, size_t axes);
    void enter(Depends defines, llvm::Instruction* point, llvm::Instruction* outside, const Body& body);
    void in_lanes(Lanes lanes, const Body& body);
    V tail_mask(V first, V last);  // lanes in [first, last); first null: 0
    llvm::SmallVector<V, 4> delinearise(V flat);
    void loop(Depends defines, V lo, V hi, V step, bool known_nonempty, const std::function<void(V)>& body);
    void while_loop(Depends defines, const std::function<V()>& condition, const Body& body);
    void if_then(V condition, Depends defines, const Body& body);
    void fail_if(V condition);  // the kernel returns 1
    void store_outer(size_t s);

    // ---- emit_tiles.cpp: kernels with transposed loads
    void outer_tiles();
    void tile_rows(V first, V last);
    void fill_tile(int scalar, V rows, V columns);
    void transpose_tile(int scalar);

    // ---- emit_values.cpp
    // The parts of a scalar that varies, or its single value.
    const Parts& value(int scalar);
    V part(int scalar, int u);  // as a vector of lanes
    V single(int scalar);       // of a scalar that does not vary
    Parts compute(int scalar);
    Parts elementwise(int scalar);
    V short_index(int scalar, int u);
    llvm::Constant* constant(DType d, const std::variant<double, int64_t>& v);
    V splat(V x);  // to the current number of lanes, hoisted as far as x is
    void ensure_indices(const Expr& e);
    void check(int scalar);
    size_t level_of(Depends d) const;
    template <class F>
    auto at_level(size_t level, const F& emit);

    // ---- emit_address.cpp
    V index(const Expr& e);               // at lane 0 of part 0
    V index_lanes(const Expr& e, int u);  // <lanes x i64>
    V index_lanes_as(const Expr& e, int u, llvm::Type* element);
    Expr at_part(const Expr& e, int u) const;   // the axis moved on by u vectors
    V pointer(int param, const Expr& address);  // at lane 0 of part 0
    V divide(V a, V b, shapes::Range range_a, shapes::Range range_b, bool want_mod);
    Depends depends(const Expr& e) const { return plan_.depends(e); }

    // ---- emit_access.cpp
    Parts load(int scalar);
    void store(const loops::Store& s);
    V load_one(DType d, V pointer, V mask, V otherwise);
    V load_part(const loops::Scalar& s, int u, V mask, V otherwise);
    V load_vector(DType d, V pointer, V mask, V otherwise);
    V load_lanes(DType d, const std::function<V(int)>& pointer_of_lane, V mask, V otherwise);
    V gather(DType d, V base, V offsets, V mask, V otherwise);
    bool masks_natively(DType d) const;
    V from_memory(V x, DType d);
    V to_memory(V x, DType d);
    V both(V a, V b);  // of masks; null: all true

    // ---- emit_reduce.cpp
    void make_accumulator(int reduce, size_t s);
    void accumulate(const Accumulator& a);
    void accumulate_index(const Accumulator& a);
    void flush(const Accumulator& a);
    Parts finish(const Accumulator& a);
    V finish_index(const Accumulator& a);
    V horizontal(ir::Op op, DType d, V x);
    V sum_of_parts(const Accumulator& a);  // tree over the parts
    // Of two (value, index): the one that ArgMax or ArgMin keeps. ordered: x comes later than best.
    std::pair<V, V> better(const Accumulator& a, std::pair<V, V> best, std::pair<V, V> x, bool ordered);
    V reduction_index(int u, int lanes);

    V slot(llvm::Type* type) { return ops_.math().stack_slot(type); }
    V i64(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }
    llvm::Type* vector_of(DType d, int lanes) { return with_lanes(element_type(b_.getContext(), d), lanes); }
    llvm::Type* stored_as(DType d) { return memory_type(b_.getContext(), d); }
    Level& here() { return levels_.back(); }

    const loops::Kernel& k_;
    const CpuTarget& target_;
    Plan plan_;
    llvm::Module& module_;
    llvm::IRBuilder<> b_;
    Elementwise ops_;
    llvm::Function* function_;
    llvm::BasicBlock* fail_ = nullptr;
    V dummy_ = nullptr;  // memory that may always be read
    std::vector<Level> levels_;
    size_t at_ = 0;  // the level that is emitted to: the innermost, but while something is hoisted
    Lanes lanes_;
    std::vector<V> params_;
    std::vector<Accumulator> accumulators_;  // of the current stage
    std::unordered_map<int, V> tiles_;  // by transposed load: lanes x lanes elements, a vector for each outer point
    V tile_row_ = nullptr;              // which of them, inside the tile
    int flush_axis_ = -1;               // inner axis along which two-level sums are flushed, every flush_steps_ steps
    int64_t flush_steps_ = 0;
    V begin_ = nullptr, end_ = nullptr, symbols_ = nullptr;
};

// Runs emit() with the builder at that level, and comes back.
template <class F>
auto Emitter::at_level(size_t level, const F& emit) {
    size_t before = at_;
    at_ = level;
    b_.SetInsertPoint(levels_[at_].point);
    auto result = emit();
    at_ = before;
    b_.SetInsertPoint(levels_[at_].point);
    return result;
}

}  // namespace braze::codegen
