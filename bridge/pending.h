// One operator call on its way into a trace.
#pragma once
#include "bridge/capture.h"

namespace braze::bridge {

struct Tracer::Pending {
    const OperatorInfo& info;
    Record record;
    std::vector<at::Tensor> operands;                // the fakes, as Record::operands
    c10::Device device{c10::DeviceType::CPU};        // of its results
    bool symbolic = false;                           // some size that it is given is a symbol
    std::vector<SymbolicMetadata> symbolic_results;  // of the new results, in order; empty: all constant
    size_t next_result = 0;
    std::vector<std::pair<c10::StorageImpl*, int>> fresh;  // storages first seen in this operator's results
};

inline bool is_wrapped_number(const at::Tensor& t) { return t.unsafeGetTensorImpl()->is_wrapped_number(); }

}  // namespace braze::bridge
