// Numbers that vary from call to call: symbols in their place, also inside containers that C code reads.
#include <cstring>

#include "frontend/interp/tracer.h"

namespace braze::frontend {

// A table of data is no set of settings: the numbers beyond are constants.
constexpr int kMostSymbols = 200;

uint64_t Tracer::dims_of(SourceId s) const {
    if (!dynamic_.any() || s == kNoSource) return 0;
    // What a function makes of symbols is one.
    const Source& source = guards.sources[s];
    bool part = source.kind == SourceKind::TupleItem && guards.sources[source.parent].kind == SourceKind::NumberCall;
    if (part || source.kind == SourceKind::NumberCall) return ~uint64_t{0};
    auto it = dynamic_.dims.find(guards.sources.describe(s));
    if (it != dynamic_.dims.end()) return it->second;
    if (!dynamic_.all) return 0;
    // Arguments, and what lies in their tuples, lists and dicts. The sizes of parameters and the numbers that a module
    // was built with do not vary.
    for (;; s = guards.sources[s].parent) {
        switch (guards.sources[s].kind) {
            case SourceKind::Local: return ~uint64_t{0};
            case SourceKind::TupleItem:
            case SourceKind::ListItem:
            case SourceKind::DictItem: break;
            default: return 0;
        }
    }
}

PyObject* Tracer::symbolic_number(PyObject* v, SourceId s) {
    if (!dynamic_.any() || !(PyLong_CheckExact(v) || PyFloat_CheckExact(v))) return nullptr;
    auto it = number_of_.find(s);
    if (it != number_of_.end()) return inputs[static_cast<size_t>(it->second)].fake.new_reference();
    if (static_cast<int>(number_of_.size()) >= kMostSymbols || dims_of(s) == 0) return nullptr;
    PyObject* symbol = capture->symbolic_input(v, static_cast<int>(inputs.size()));
    if (!symbol) return nullptr;
    guards.type_is(s, Py_TYPE(v));
    number_of_.emplace(s, static_cast<int>(inputs.size()));
    symbol_inputs_.emplace(symbol, static_cast<int>(inputs.size()));
    inputs.push_back({s, Owned::share(v), Owned::steal(symbol), true});
    return Py_NewRef(symbol);
}

// A tuple of constants; a namedtuple of such, with nothing beside its elements.
static bool is_tuple_of_constants(PyObject* v) {
    if (PyTuple_CheckExact(v)) return is_constant_value(v);
    if (!PyTuple_Check(v) || !is_python_class(Py_TYPE(v)) || Py_TYPE(v)->tp_dictoffset || has_finaliser(v))
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(v); ++i)
        if (!is_constant_value(PyTuple_GET_ITEM(v, i))) return false;
    return true;
}

PyObject* Tracer::symbolic_tuple(PyObject* v, SourceId s) {
    if (!dynamic_.any() || !is_tuple_of_constants(v)) return nullptr;
    if (auto it = tuple_of_.find(v); it != tuple_of_.end()) {
        if (it->second.first != s) guards.same_object(it->second.first, s, true);
        return it->second.second.new_reference();
    }
    const Py_ssize_t n = PyTuple_GET_SIZE(v);
    auto item = [&](Py_ssize_t i) { return guards.sources.add(SourceKind::TupleItem, s, nullptr, i); };
    bool any = false;
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject* x = PyTuple_GET_ITEM(v, i);
        any |= (PyLong_CheckExact(x) || PyFloat_CheckExact(x)) && dims_of(item(i)) != 0;
    }
    Owned tuple = Owned::steal(any ? Py_TYPE(v)->tp_alloc(Py_TYPE(v), n) : nullptr);
    if (!tuple) return nullptr;
    guards.type_is(s, Py_TYPE(v));
    guards.length(s, n);
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject* x = loaded(Py_NewRef(PyTuple_GET_ITEM(v, i)), item(i));
        if (!x) return nullptr;
        PyTuple_SET_ITEM(tuple.get(), i, x);
    }
    made(tuple.get());
    kept_.push_back(Owned::share(v));
    return tuple_of_.emplace(v, std::pair(s, std::move(tuple))).first->second.second.new_reference();
}

PyObject* Tracer::stand_in(PyObject* v, SourceId s) {
    if (!dynamic_.any() || s == kNoSource) return nullptr;
    PyObject* tuple = symbolic_tuple(v, s);
    return tuple || PyErr_Occurred() ? tuple : symbolic_number(v, s);
}

// Where the number is found before a run, and what it is in the trace. kNoSource: nowhere.
SourceId Tracer::source_of_number(PyObject* number, Owned* value) {
    if (auto it = symbol_inputs_.find(number); it != symbol_inputs_.end()) {
        const auto& input = inputs[static_cast<size_t>(it->second)];
        *value = input.real;
        return input.source;
    }
    if (auto it = made_by_.find(number); it != made_by_.end()) {
        NumberCall& c = it->second;
        std::vector<SourceId> sources;
        std::vector<PyObject*> arguments, values;
        std::vector<Owned> held;
        for (Owned& a : c.arguments) {
            Owned v = a;
            sources.push_back(is_symbolic(a.get()) ? source_of_number(a.get(), &v) : kNoSource);
            if (is_symbolic(a.get()) && sources.back() == kNoSource) return kNoSource;
            arguments.push_back(a.get());
            values.push_back(v.get());
            held.push_back(std::move(v));
        }
        if (!c.value)
            c.value = Owned::steal(PyObject_Vectorcall(c.function.get(), values.data(), values.size(), nullptr));
        if (!c.value) return PyErr_Clear(), kNoSource;
        *value = c.value;
        return guards.sources.number_call(c.function.get(), sources, arguments.data());
    }
    if (Py_TYPE(number) != symbolic_int) return kNoSource;
    auto place = capture->size_place(number);
    if (!place) return kNoSource;
    *value = Owned::steal(PyLong_FromLongLong(place->value));
    SourceId s = inputs[static_cast<size_t>(place->input)].source;
    return place->axis < 0 ? s : guards.sources.add(SourceKind::TensorSize, s, nullptr, place->axis);
}

std::optional<PyObject*> Tracer::number_call(PyObject* function, PyObject* const* arguments, Py_ssize_t n) {
    if (!dynamic_.any() || n < 1 || n > kMostNumbers || static_cast<int>(number_of_.size()) >= kMostSymbols)
        return std::nullopt;
    std::vector<SourceId> sources;
    std::vector<Owned> values;
    bool any = false;
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject* a = arguments[i];
        bool plain = PyLong_CheckExact(a) || PyFloat_CheckExact(a) || PyBool_Check(a) || a == Py_None;
        if (!plain && !is_symbolic(a)) return std::nullopt;
        if (use_number(a) < 0) return nullptr;
        values.push_back(Owned::share(a));
        sources.push_back(kNoSource);
        if (plain) continue;
        any = true;
        sources.back() = source_of_number(a, &values.back());
        if (sources.back() == kNoSource) return std::nullopt;
    }
    if (!any) return std::nullopt;
    std::vector<PyObject*> raw;
    for (Owned& v : values) raw.push_back(v.get());
    Owned result = Owned::steal(PyObject_Vectorcall(function, raw.data(), raw.size(), nullptr));
    if (!result) return PyErr_Clear(), std::nullopt;  // with these very numbers it raises
    if (!is_primitive(result.get()) && !PyTuple_CheckExact(result.get())) return std::nullopt;
    SourceId s = guards.sources.number_call(function, sources, arguments);
    return s == kNoSource ? nullptr : loaded(result.release(), s);
}

// The functions of the operator module, in the order of the hooks' operators (the second half: in place).
static constexpr const char* kOperators[] = {"add", "and_", "floordiv", "lshift", "matmul",  "mul", "mod",
                                             "or_", "pow",  "rshift",   "sub",    "truediv", "xor"};

static PyObject* operator_function(const char* name) {
    static PyObject* module = PyImport_ImportModule("_operator");
    return module ? PyObject_GetAttrString(module, name) : nullptr;
}

void Tracer::note_made_by(PyObject* result, PyObject* function, std::initializer_list<PyObject*> arguments) {
    if (!result || !is_symbolic(result) || symbol_inputs_.contains(result)) return;
    NumberCall c{Owned::share(function), {}, {}};
    for (PyObject* a : arguments) {
        if (a == result) return;
        c.arguments.push_back(Owned::share(a));
    }
    kept_.push_back(Owned::share(result));
    made_by_.try_emplace(result, std::move(c));
}

static bool is_int(PyObject* o) { return Py_TYPE(o) == symbolic_int || PyLong_CheckExact(o); }
static bool is_float(PyObject* o) { return Py_TYPE(o) == symbolic_float || PyFloat_CheckExact(o); }

PyObject* Tracer::number_operation(int op, PyObject* a, PyObject* b, binaryfunc by_symbols) {
    if (use_number(a) < 0 || use_number(b) < 0) return nullptr;
    if (!(is_int(a) || is_float(a)) || !(is_int(b) || is_float(b))) return by_symbols(a, b);
    const char* name = kOperators[static_cast<size_t>(op) % std::size(kOperators)];
    auto one_of = [&](std::initializer_list<const char*> names) {
        return std::any_of(names.begin(), names.end(), [&](const char* n) { return std::strcmp(n, name) == 0; });
    };
    bool ints = is_int(a) && is_int(b), mixed = Py_TYPE(a) == symbolic_int || Py_TYPE(b) == symbolic_int;
    bool by_itself = ints ? one_of({"add", "sub", "mul", "floordiv", "mod"})
                          : !mixed && one_of({"add", "sub", "mul", "truediv", "pow"});
    Owned function = Owned::steal(operator_function(name));
    if (!function) return nullptr;
    PyObject* const arguments[] = {a, b};
    if (!by_itself)
        if (std::optional<PyObject*> r = number_call(function.get(), arguments, 2)) return *r;
    PyObject* r = by_symbols(a, b);
    note_made_by(r, function.get(), {a, b});
    return r;
}

PyObject* Tracer::number_operation(const char* name, PyObject* a, unaryfunc by_symbols) {
    if (use_number(a) < 0) return nullptr;
    Owned function = Owned::steal(operator_function(name));
    if (!function) return nullptr;
    if (std::strcmp(name, "neg") != 0)
        if (std::optional<PyObject*> r = number_call(function.get(), &a, 1)) return *r;
    PyObject* r = by_symbols(a);
    if (r != a) note_made_by(r, function.get(), {a});
    return r;
}

PyObject* Tracer::number_comparison(PyObject* a, PyObject* b, int op) {
    static constexpr const char* names[] = {"lt", "le", "eq", "ne", "gt", "ge"};
    // Symbols compare with their own kind by themselves, and with constants of it.
    if (is_int(a) != is_int(b)) {
        Owned function = Owned::steal(operator_function(names[op]));
        if (!function) return nullptr;
        PyObject* const arguments[] = {a, b};
        if (std::optional<PyObject*> r = number_call(function.get(), arguments, 2)) return *r;
    }
    return PyObject_RichCompare(a, b, op);
}

PyObject* Tracer::number_sum(const std::vector<PyObject*>& numbers) {
    Owned sum = Owned::steal(PyLong_FromLong(0));
    for (size_t i = 0; sum && i < numbers.size(); ++i)
        sum = Owned::steal(number_operation(0, sum.get(), numbers[i], PyNumber_Add));
    return sum.release();
}

PyObject* Tracer::number_extremum(PyObject* function, const std::vector<PyObject*>& numbers, bool max) {
    Owned best = Owned::share(numbers[0]);
    for (size_t i = 1; i < numbers.size(); ++i) {
        PyObject *a = best.get(), *b = numbers[i];
        if (is_float(a) && is_float(b) && (is_symbolic(a) || is_symbolic(b))) {  // whichever it is
            PyObject* r = tensor_bridge()->extremum(a, b, max);
            note_made_by(r, function, {a, b});
            best = Owned::steal(r);
        } else {
            Owned other = Owned::steal(number_comparison(b, a, max ? Py_GT : Py_LT));
            int truth = other ? PyObject_IsTrue(other.get()) : -1;
            if (truth < 0) return nullptr;
            if (truth) best = Owned::share(b);
        }
        if (!best) return nullptr;
    }
    return best.release();
}

int Tracer::place_symbols(PyObject* container, SourceId s) {
    bool dict = PyDict_Check(container), list = PyList_Check(container);
    // What was changed as a whole was read before that.
    if (!dynamic_.any() || journal.changed_whole(container) || !(dict || list || is_deque(container))) return 0;
    Owned items = dict ? Owned::steal(dict_items(container)) : Owned::steal(plain_elements(container));
    if (!items) return -1;
    Owned old = journal.original(container);  // without what the trace appended
    const Py_ssize_t n = dict || !old ? PySequence_Fast_GET_SIZE(items.get()) : PyList_GET_SIZE(old.get());
    SourceKind kind = dict ? SourceKind::DictItem : list ? SourceKind::ListItem : SourceKind::DequeItem;
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject *x = PySequence_Fast_GET_ITEM(items.get(), i), *key = nullptr;
        if (dict) {
            key = PyTuple_GET_ITEM(x, 0);
            x = PyTuple_GET_ITEM(x, 1);
        }
        if (!(PyLong_CheckExact(x) || PyFloat_CheckExact(x) || PyTuple_Check(x))) continue;
        if (dict && ((!is_plain_key(key) && !is_tensor_key(key)) || journal.changed_key(container, key))) continue;
        Owned symbols = Owned::steal(stand_in(x, guards.sources.add(kind, s, key, dict ? 0 : i)));
        if (symbols ? journal.put_stand_in(container, key, i, symbols.get()) < 0 : PyErr_Occurred() != nullptr)
            return -1;
    }
    return 0;
}

}  // namespace braze::frontend
