// Runs a runtime::Program: kernels, ATen calls and memory.
//
// What is constant is prepared once. Intermediates live in an arena that a context owns together with its tensors; a
// context serves one call at a time and is kept for the next one, so that only inputs and outputs change from call to
// call.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "bridge/call.h"
#include "bridge/symbols.h"
#include "core/runtime/program.h"

namespace braze::bridge {

// Whether the last run on this thread, of a program or a replay, came to where it writes what it was given.
bool& run_wrote();

class Executor {
  public:
    // constants: graph inputs that follow those given to run(). mutated: inputs that a run writes.
    Executor(std::unique_ptr<runtime::Program> program, std::vector<c10::IValue> opaque,
             std::vector<at::Tensor> constants, std::vector<int> mutated, const SymbolTable& symbols);
    ~Executor();

    // integers: by input, of those that are no tensors. Outputs in the order of Program::outputs. No autograd.
    // Thread-safe.
    void run(c10::ArrayRef<const at::Tensor*> inputs, c10::ArrayRef<int64_t> integers,
             std::vector<at::Tensor>& outputs) const;
    // The same with the values of the program's symbols, in their order, and with inputs that are given away: each goes
    // after its last use.
    void run_with(c10::ArrayRef<int64_t> symbols, std::vector<at::Tensor> inputs,
                  std::vector<at::Tensor>& outputs) const;
    // The values that they have for these inputs.
    std::vector<int64_t> symbols_of(c10::ArrayRef<const at::Tensor*> inputs, c10::ArrayRef<int64_t> integers) const;
    // Whether an output may lie in the memory of an input or of another output.
    bool may_share(int output) const;
    bool long_running() const { return long_running_; }
    const runtime::Program& program() const { return *program_; }

  private:
    struct Kernel;
    struct Call;
    struct SlotPlan;
    struct Step;
    struct Shares;
    struct Context;
    struct Lease;
    class Run;

    void plan_slots();
    void plan_steps();
    void plan_kernel(const runtime::RunKernel& k, int& buffers);
    void find_symbols(const SymbolTable& table);
    void read_symbols(c10::ArrayRef<const at::Tensor*> inputs, c10::ArrayRef<int64_t> integers, int64_t* values) const;
    void find_last_uses();
    // owned: the inputs, or nullptr.
    void run_in(Context& context, c10::ArrayRef<const at::Tensor*> inputs, std::vector<at::Tensor>* owned,
                std::vector<at::Tensor>& outputs) const;
    std::unique_ptr<Context> make_context() const;

    std::unique_ptr<runtime::Program> program_;
    std::vector<c10::IValue> opaque_;
    std::vector<at::Tensor> constants_;
    std::vector<int> mutated_;
    std::vector<SlotPlan> slots_;
    std::vector<Kernel> kernels_;
    std::vector<Call> calls_;
    std::vector<Step> steps_;
    std::vector<std::vector<int>> last_uses_;         // by step: the input slots that no later one uses
    std::vector<int> transient_;                      // slots whose tensors belong to one run
    std::vector<std::pair<int, int>> symbol_source_;  // per symbol: input and axis
    bool long_running_ = false;
    mutable std::atomic<Context*> cached_{nullptr};
    mutable std::mutex mutex_;
    mutable std::vector<std::unique_ptr<Context>> spare_;
};

}  // namespace braze::bridge
