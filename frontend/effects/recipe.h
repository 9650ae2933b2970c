// How to rebuild what outlives a graph: the return value, changed locals, the new contents of changed objects.
//
// Recipes form a graph of nodes (one object stays one object; cycles through lists, dicts, instances and cells are
// possible). A node is built at most once a run.
#pragma once
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frontend/effects/journal.h"
#include "frontend/interp/tracer.h"
#include "frontend/source/source.h"

namespace braze::frontend {

using RecipeId = int;

struct RecipeNode {
    enum Kind : uint8_t {
        Const,   // object
        Fetch,   // source
        Output,  // graph output `index`; parts: its .grad, where it has one
        Null,    // an empty slot
        Tuple,
        List,
        Dict,
        Set,
        FrozenSet,
        Slice,
        StructSeq,  // type
        Instance,   // type, extra: the C class that makes it; parts: dict or Null, then base contents or Null; slots:
                    // names with values
        Function,   // object: code; parts: defaults, kwdefaults, closure, dict, annotations
        Cell,
        Method,
        BoundBuiltin,  // method: its definition; object: the module or nothing; parts: self
        BoundSlot,     // object: the slot wrapper; parts: self
        DictView,      // type: of the view; parts: the dict
        DictIterator,  // the same, and index: how many elements have been taken
        Call           // parts: callable, arguments tuple, state or Null (__reduce__)
    } kind;
    Owned object, extra;
    Ref type;
    int index = 0;
    std::vector<RecipeId> parts;
    std::vector<Owned> names;  // Instance: slots
    PyMethodDef* method = nullptr;
};

struct Effect {
    enum Kind : uint8_t {
        SetAttr,
        DelAttr,
        SetKey,
        DelKey,
        DictContents,
        ListExtend,
        ListContents,
        SetContents,
        DequeContents,
        CellContents,
        TypeAttr,
        Call  // the value is made for what making it does
    } kind;
    SourceId target = kNoSource;
    Ref object;  // where the target has no source: the very object
    Owned key;
    RecipeId value = -1;
};

class Recipes {
  public:
    std::vector<RecipeNode> nodes;
    std::vector<Owned> outputs;  // fakes to ask the graph for, while recording

    // While the trace's state stands: records `v`. -1: it cannot be rebuilt (`failure` says what).
    RecipeId record(Tracer& t, PyObject* v);
    std::string failure;
    Owned culprit;        // the first object that cannot be rebuilt
    void forget_trace();  // drops what only recording needs
    RecipeId fail(PyObject* v);
    // The call's result, which may be had in the place of `v`.
    RecipeId record_call(Tracer& t, PyObject* v, PyObject* function, PyObject* arguments);

  private:
    RecipeId push(RecipeNode n);
    RecipeId record_value(Tracer& t, PyObject* v);
    int depth_ = 0;
    RecipeId record_new(Tracer& t, PyObject* v, RecipeId id);
    RecipeId record_instance(Tracer& t, PyObject* v, RecipeId id);
    RecipeId record_alias(Tracer& t, PyObject* v, RecipeId id);
    RecipeId record_function(Tracer& t, PyObject* v, RecipeId id);
    RecipeId record_reduce(Tracer& t, PyObject* v, RecipeId id);
    RecipeId record_dict_view(Tracer& t, PyObject* v, RecipeId id);
    RecipeId items(Tracer& t, RecipeId id, RecipeNode::Kind kind, PyObject* sequence);
    std::unordered_map<PyObject*, RecipeId> memo_;
    std::unordered_set<RecipeId> open_;  // begun, and made only once their parts are: no cycle may go through them
    std::vector<Owned> kept_;
};

// One run's rebuilding.
class Builder {
  public:
    Builder(const Recipes& r, Fetcher& f, PyObject* const* outputs)
        : recipes_(r), fetcher_(f), outputs_(outputs), built_(r.nodes.size(), nullptr) {}
    ~Builder() {
        for (PyObject* o : built_) Py_XDECREF(o);
    }
    Builder(const Builder&) = delete;
    PyObject* build(RecipeId id);  // borrowed; nullptr: exception, or the Null recipe

  private:
    PyObject* make(RecipeId id);
    PyObject* make_instance(RecipeId id, const RecipeNode& n);
    const Recipes& recipes_;
    Fetcher& fetcher_;
    PyObject* const* outputs_;
    std::vector<PyObject*> built_;
};

// What rebuilding and the effects fetch, or name without a path: it must outlive the graph's run.
struct Needs {
    std::vector<SourceId> sources;
    std::vector<Ref> objects;
    void add(const Recipes& r, const std::vector<Effect>& effects);
};

// The net effect of the journal, in order. false: something cannot be replayed.
bool record_effects(Tracer& t, Recipes& r, std::vector<Effect>& out);
// Calls that are effects are made first, in order: their results may be parts of what is built.
int make_calls(const std::vector<Effect>& effects, Builder& b);
int apply_effects(const std::vector<Effect>& effects, Builder& b, Fetcher& f);

}  // namespace braze::frontend
