// A Source says how to reach, at the start of a segment, an object that existed before the trace: local 2, its
// attribute dict, the item 'weight' of that, ... It can fetch the value at run time, name it in a message, and root a
// guard.
//
// Sources are numbered in a SourceTable (one a segment); a parent has a smaller number than its children. Fetching
// never runs Python code: every kind reads a C structure directly, checks the type of what it reads from and yields
// nullptr where the shape is not as expected.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/source/lifetimes.h"
#include "frontend/support/ref.h"

namespace braze::frontend {

enum class SourceKind : uint8_t {
#define SOURCE(e, format) e,
#include "frontend/source/sources.def"
#undef SOURCE
};

using SourceId = int;
constexpr SourceId kNoSource = -1;
constexpr int kMostNumbers = 4;  // that the function of a NumberCall is given

struct Source {
    SourceKind kind;
    SourceId parent = kNoSource;
    Ref key;               // attribute name, dict key, the class of a slot, or the object of Const
    Py_ssize_t index = 0;  // local, item or cell number; of a slot its definition
    Py_hash_t hash = -1;   // of a key that is a str or a tensor
};

// The state at the start of a segment that sources are fetched from.
struct Roots {
    PyObject* const* locals = nullptr;  // localsplus and stack, or the bound arguments
    int n_locals = 0;
    PyObject* function = nullptr;
};

class SourceTable {
  public:
    SourceId add(SourceKind kind, SourceId parent, PyObject* key, Py_ssize_t index = 0);
    SourceId local(int i) { return add(SourceKind::Local, kNoSource, nullptr, i); }
    SourceId constant(PyObject* object) { return add(SourceKind::Const, kNoSource, object); }
    // The slot that a member descriptor reads.
    SourceId slot(SourceId parent, PyObject* descriptor);
    Lifetimes lifetimes;
    const Source& operator[](SourceId id) const { return sources_[static_cast<size_t>(id)]; }
    int size() const { return static_cast<int>(sources_.size()); }
    void truncate(int n);
    // "L['self'].layers[0]"; local_names may be nullptr
    std::string describe(SourceId id, PyObject* local_names = nullptr) const;
    // function(arguments), where function is C code that makes a number of numbers. The key is a tuple: the function,
    // then what it is given, a constant or a tuple with the id of a source. The parent is the first of these.
    SourceId number_call(PyObject* function, const std::vector<SourceId>& sources, PyObject* const* constants);
    // Local or Const at the end of the chain of parents
    SourceId root(SourceId id) const;

  private:
    struct Key {
        SourceKind kind;
        SourceId parent;
        PyObject* key;
        Py_ssize_t index;
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        size_t operator()(const Key& k) const {
            return (static_cast<size_t>(k.kind) * 31 + static_cast<size_t>(k.parent)) * 1000003 ^
                   reinterpret_cast<size_t>(k.key) ^ static_cast<size_t>(k.index) * 97;
        }
    };
    std::vector<Source> sources_;
    std::unordered_map<Key, SourceId, KeyHash> index_;
};

// Values of one evaluation, fetched once each. Borrowed references where the container holds them; new ones are kept
// until clear().
class Fetcher {
  public:
    Fetcher(const SourceTable& table, const Roots& roots);
    ~Fetcher();
    Fetcher(const Fetcher&) = delete;
    PyObject* fetch(SourceId id) {  // borrowed; nullptr: not there
        if (known_)
            if (PyObject* v = known_[static_cast<size_t>(id)]) return v;
        PyObject*& v = values_[static_cast<size_t>(id)];
        return v ? v : v = compute(id);
    }

    // Values by source, nullptr where not known, that the fetcher keeps.
    void know(std::shared_ptr<const std::vector<PyObject*>> values) {
        known_owner_ = std::move(values);
        known_ = known_owner_->data();
    }

  private:
    PyObject* compute(SourceId id);
    PyObject* call_number_function(PyObject* key);
    PyObject* keep(PyObject* owned);
    const SourceTable& table_;
    Roots roots_;
    std::shared_ptr<const std::vector<PyObject*>> known_owner_;
    PyObject* const* known_ = nullptr;
    PyObject** values_;
    PyObject* small_[256];
    std::vector<PyObject*> large_;
    std::vector<PyObject*> kept_;
};

}  // namespace braze::frontend
