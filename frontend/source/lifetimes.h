// The objects of the program that a segment names: its guards compare with them, its sources begin at them.
//
// A segment keeps none of them alive that can be referenced weakly: when one dies, the segment is over, so that no
// other object at the same address is ever taken for it, and its pointers need no check one by one. What has no weak
// references is kept.
#pragma once
#include <memory>
#include <unordered_set>
#include <vector>

#include "frontend/support/ref.h"

namespace braze::frontend {

// Borrowed from a Lifetimes.
class Ref {
  public:
    Ref() = default;
    PyObject* get() const { return p_; }
    explicit operator bool() const { return p_ != nullptr; }

  private:
    friend class Lifetimes;
    explicit Ref(PyObject* p) : p_(p) {}
    PyObject* p_ = nullptr;
};

class Lifetimes {
  public:
    // Until settle() both keep the object.
    Ref depend_on(PyObject* o);  // it belongs to the program
    Ref keep(PyObject* o);       // nobody else may have it
    // The trace is over: from now on those that the program owns may die.
    void settle();
    bool over() const { return over_ && *over_; }

  private:
    std::vector<Owned> kept_;
    std::vector<Owned> watched_;                // while tracing the objects, then weak references
    std::unordered_set<PyObject*> seen_, own_;  // while tracing
    std::shared_ptr<bool> over_;
};

}  // namespace braze::frontend
