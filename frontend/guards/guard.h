// Guards: what must hold at the start of a segment so that its graph may run. Each kind is written once: its check, its
// explanation and its text form. Checking runs no Python code of the user.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "frontend/bridge_api.h"
#include "frontend/guards/descriptor.h"
#include "frontend/guards/sharing.h"
#include "frontend/source/source.h"

namespace braze::frontend {

enum class GuardKind : uint8_t {
#define GUARD(e, text) e,
#include "frontend/guards/guards.def"
#undef GUARD
};

struct Guard {
    GuardKind kind;
    SourceId source = kNoSource;
    SourceId other = kNoSource;  // SameObject, NotSameObject
    Ref expected;                // Is, TypeIs, Equals, Descriptor (its type), DictLacks (key)
    std::vector<Ref> elements;   // DictKeys, SetElements: in order
    DescriptorFields fields;     // Descriptor
    Py_ssize_t number = 0;       // Length; Equals: 1 as a plain value
    std::unique_ptr<TensorGuard> tensor;
    std::unique_ptr<GlobalStateGuard> state;
    std::unique_ptr<ShapeGuard> shapes;  // Sizes
    std::unique_ptr<Sharing> sharing;    // SameStorage
    std::vector<SourceId> inputs;        // Sizes, SameStorage, Distinct
    mutable long checks = 0;             // while measure_guards()
    mutable double seconds = 0;
};

// Whether the checks of single guards are counted and timed.
bool& measure_guards();

class Snapshot;

class GuardSet {
  public:
    GuardSet();
    GuardSet(GuardSet&&) noexcept;
    GuardSet& operator=(GuardSet&&) noexcept;
    ~GuardSet();
    SourceTable sources;

    // Each adds a guard unless an equal one is there.
    void is(SourceId s, PyObject* object);
    void type_is(SourceId s, PyTypeObject* type);
    void equals(SourceId s, PyObject* value);
    // An instance of a subclass of int, str, ...: its class and what it is as a plain int, str, ...
    void value_is(SourceId s, PyObject* value, PyObject* plain);
    void length(SourceId s, Py_ssize_t n);
    void dict_keys(SourceId s, PyObject* keys_tuple);
    void dict_lacks(SourceId s, PyObject* key);
    void set_elements(SourceId s, PyObject* list);
    void distinct(std::vector<SourceId> sources);
    void present(SourceId s);
    void absent(SourceId s);
    void same_object(SourceId a, SourceId b, bool same);
    void same_storage(std::vector<SourceId> tensors, Sharing sharing);
    void tensor(SourceId s, std::unique_ptr<TensorGuard> g);
    void global_state(std::unique_ptr<GlobalStateGuard> g);
    void shapes(std::vector<SourceId> inputs, std::unique_ptr<ShapeGuard> g);

    // An object that the guards name has died: the set must not be used any more.
    bool over() const { return sources.lifetimes.over(); }
    // Index of the first guard that fails, or -1. `f` is a new fetcher. The set must not be moved afterwards.
    int check(Fetcher& f) const;
    // "L['x']: dtype: expected float32, got float64"
    std::string explain(int guard, Fetcher& f, PyObject* local_names) const;
    std::string text(int guard, PyObject* local_names) const;
    const std::vector<Guard>& guards() const { return guards_; }
    // A filter's answer, one bool a guard. What memory depends on (the tensors and numbers at `inputs`) stays as an
    // assumption that is checked, and is an error where it fails.
    void keep(const std::vector<bool>& kept, const std::unordered_set<SourceId>& inputs);
    // Whether the assumptions hold; otherwise what fails.
    std::optional<std::string> broken_assumption(Fetcher& f) const;
    bool has_assumptions() const { return !assumptions_.empty(); }

  private:
    bool add_once(GuardKind k, SourceId s, const void* what);
    Guard& push(GuardKind k, SourceId s);
    bool holds(const Guard& g, Fetcher& f) const;
    bool holds_measured(const Guard& g, Fetcher& f) const;
    std::string explain(const Guard& g, Fetcher& f, PyObject* local_names) const;
    std::string text(const Guard& g, PyObject* local_names) const;
    std::vector<Guard> guards_, assumptions_;
    std::unordered_set<std::string> seen_;
    mutable std::unique_ptr<Snapshot> snapshot_;  // of the last full check that passed
    mutable int snapshots_ = 0;
};

// Exact type and value, deep for tuples; NaN equals NaN, 0.0 differs from -0.0.
bool same_constant(PyObject* a, PyObject* b);
// In the order of iteration, by the set's own C code: a list, new reference.
PyObject* set_elements(PyObject* set);

}  // namespace braze::frontend
