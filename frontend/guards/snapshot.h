// What held when all guards of a segment were last checked, in a form that is quick to compare.
//
// Most guards are about attributes of modules: they hold as long as the dicts on the way are the same and unchanged.
// CPython gives every dict a version that no other state of any dict ever has, so a handful of loads answers for
// hundreds of lookups. Guards on what can change without a dict noticing (tensors, elements of lists, the contents of
// cells, ...) are checked each time.
#pragma once
#include <memory>
#include <unordered_set>
#include <vector>

#include "frontend/guards/guard.h"

namespace braze::frontend {

class Snapshot {
  public:
    // After a check that every guard passed; `f` is the fetcher of that check.
    Snapshot(const GuardSet& guards, Fetcher& f);
    // Whether what the snapshot covers is unchanged. Then `f` is given the values of the sources that it knows.
    bool unchanged(Fetcher& f) const;
    // The guards that the snapshot does not cover.
    const std::vector<int>& rest() const { return rest_; }

  private:
    struct Root {  // the object that a chain starts at, and where its __dict__ was
        SourceId source;
        PyObject *object, *dict;
    };
    // A word of memory that must be as it was: where an object's __dict__ is, a dict's version, an object's type, the
    // length of a list, its elements.
    // What comes before in the list proves that the memory is still there.
    struct Word {
        const uint64_t* at;
        uint64_t expected;
    };
    struct Class {  // with the version that changes with it and its bases; 0: it has none
        PyTypeObject* type;
        unsigned version;
    };
    bool cover(SourceId s, Fetcher& f);
    bool cover_dict(SourceId s, Fetcher& f);
    bool cover_guard(const Guard& g, Fetcher& f);
    void type_of(PyObject* object);
    void length_of(PyObject* list);

    const SourceTable& sources_;
    std::vector<Root> roots_;
    std::vector<Word> words_;
    std::vector<Class> classes_;
    std::vector<Owned> kept_;                         // elements of lists that cannot change
    std::shared_ptr<std::vector<PyObject*>> values_;  // by source, of those covered
    std::vector<int> rest_;
    // Only while it is built.
    std::vector<int8_t> covered_, dict_covered_;  // by source: 0 not asked yet, 1 yes, -1 no
    std::unordered_set<const void*> seen_;        // what is in words_ and classes_
};

}  // namespace braze::frontend
