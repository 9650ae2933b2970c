// Object code to runnable memory in this process (JITLink).
#pragma once
#include <llvm/ADT/SmallVector.h>

#include <memory>
#include <string>
#include <vector>

namespace braze::codegen {

// The linked code; the memory is freed when the last owner goes.
class LinkedCode {
  public:
    virtual ~LinkedCode() = default;
    virtual void* symbol(const std::string& name) const = 0;  // nullptr if it defines none of that name
};

std::shared_ptr<LinkedCode> link_object(const llvm::SmallVectorImpl<char>& object);

}  // namespace braze::codegen
