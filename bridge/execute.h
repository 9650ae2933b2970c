// Runs a core program on tensors: kernels through at::parallel_for, Calls through the dispatcher.
#pragma once
#include <memory>
#include <mutex>

#include "bridge/convert.h"
#include "core/runtime/program.h"

namespace braze::bridge {

// A Call made ready: constants converted once, operands patched in at each run.
struct PreparedCall {
    const OperatorInfo* info = nullptr;      // the operator, or its out= variant
    std::vector<c10::IValue> stack;          // constant arguments; operands are None
    struct Patch { int arg, slot; };
    std::vector<Patch> tensors;
    struct ListPatch { int arg; std::vector<int> slots; bool optional_elements; };
    std::vector<ListPatch> lists;
    std::vector<int> results;                // slots; -1: not wanted
    bool out = false;                        // writes into the result's slot
};

// What one run needs beside the inputs; kept and used again.
struct Workspace {
    at::Tensor arena;
    std::vector<at::Tensor> slots;
    std::vector<void*> pointers;
};

class Executor {
  public:
    Executor(std::unique_ptr<runtime::Program> program, OpaquePool opaques);
    std::vector<at::Tensor> run(c10::ArrayRef<at::Tensor> inputs);
    const runtime::Program& program() const { return *program_; }

  private:
    struct Step;
    void prepare_slots();
    PreparedCall prepare(const runtime::RunCall& c) const;
    std::unique_ptr<Workspace> acquire();
    void release(std::unique_ptr<Workspace> w);
    at::Tensor view(int slot, const Workspace& w) const;
    void run_kernel(const runtime::RunKernel& k, Workspace& w) const;
    void run_call(const PreparedCall& c, Workspace& w) const;

    std::unique_ptr<runtime::Program> program_;
    OpaquePool opaques_;
    std::vector<PreparedCall> calls_;          // per RunCall thunk, in order
    std::vector<bool> persistent_;             // slots whose tensors stay in the workspace
    std::vector<int> call_of_thunk_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Workspace>> free_;
};

}  // namespace braze::bridge
