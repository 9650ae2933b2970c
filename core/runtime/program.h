// A compiled graph as data: a list of thunks over numbered slots. Core builds it; the host (bridge, or a test) executes
// it, because tensors and ATen calls are the host's business.
//
// Slots hold tensors. Slot kinds: graph inputs, constants of calls are inside the call; outputs are slots returned at
// the end.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/codegen/cpu/compiler.h"
#include "core/ir/graph.h"
#include "core/loops/kernel.h"

namespace braze::runtime {

using ir::DType;
using shapes::Expr;

enum class SlotKind : uint8_t {
    Input,  // graph input k
    Arena,  // an intermediate in the planned arena: byte offset `arena_offset` (constant sizes) or own allocation if
            // offset is -1
    Fresh,  // allocated by the program and handed out (an output, or the base of an output view)
    CallResult,  // comes out of an ATen call
    View         // a view of another slot: sizes, strides, offset relative to the base slot's own first element
};
struct Slot {
    SlotKind kind;
    ir::TensorType type;
    int input = -1;  // Input: which
    int64_t arena_offset = -1;
    int base = -1;         // View
    Expr offset;           // View: elements, relative to the base tensor's data pointer
    bool escapes = false;  // it, or a view of it, is an output
};

struct RunKernel {
    int kernel;                 // index into Program::kernels
    std::vector<int> slots;     // per param
    std::vector<Expr> offsets;  // per param: element offset from the slot's data pointer, usually 0
    Expr outer_count;           // product of the outer extents
    Expr work;                  // element operations per outer point, to choose the grain
    int origin = -1;            // index into Program::origins
};
struct RunCall {
    const ir::Node* node;       // in Program::graph: callee and arguments
    std::vector<int> operands;  // slot per operand
    std::vector<int> results;   // slot per result (may be Arena slots: out variants write there)
    int origin = -1;
};
struct MakeView {
    int slot;
};  // materialise the View slot's tensor (hosts may do it lazily)
struct Allocate {
    int slot;
};  // Fresh, or Arena with unknown size
struct Release {
    int slot;
};  // last use is over; not for inputs, what escapes, and memory that an in-place kernel took over
using Thunk = std::variant<RunKernel, RunCall, MakeView, Allocate, Release>;

struct Program {
    ir::Graph graph;  // after all passes; owns the nodes that calls refer to
    std::vector<Slot> slots;
    std::vector<Thunk> thunks;
    std::vector<int> outputs;   // slots
    std::vector<Expr> symbols;  // size symbols in the order the host passes them
    int64_t arena_bytes = 0;
    std::vector<loops::Kernel> kernels;         // unique kernels; each takes all of `symbols`
    std::vector<codegen::CompiledKernel> code;  // per kernel
    std::vector<std::string> origins;           // "add, mul (model.py:12)"
    std::string dump() const;
};

}  // namespace braze::runtime
