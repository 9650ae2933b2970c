#include "bridge/float_nodes.h"

#include <cmath>

namespace braze::bridge {

bool has_float_item(const at::Tensor& t) {
    return t.defined() && t.is_cpu() && t.layout() == c10::kStrided && t.dim() == 0 && !t.is_neg() && t.has_storage() &&
           t.unsafeGetTensorImpl()->storage_initialized() &&
           (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble);
}

static double item_of(const at::Tensor& t) {
    const void* data = t.unsafeGetTensorImpl()->data();
    return t.scalar_type() == at::kFloat ? static_cast<double>(*static_cast<const float*>(data))
                                         : *static_cast<const double*>(data);
}

int FloatNodes::push(FloatNode n) {
    nodes_.push_back(n);
    return static_cast<int>(nodes_.size()) - 1;
}

int FloatNodes::constant(double v) { return push({FloatNode::Constant, -1, -1, -1, v}); }
int FloatNodes::number(int input, double v) { return push({FloatNode::Number, -1, -1, input, v}); }
int FloatNodes::item(int input, const at::Tensor& real) {
    return has_float_item(real) ? push({FloatNode::Item, -1, -1, input, item_of(real)}) : kUnknown;
}

double FloatNodes::compute(FloatNode::Kind kind, double a, double b) {
    switch (kind) {
        case FloatNode::Add: return a + b;
        case FloatNode::Subtract: return a - b;
        case FloatNode::Multiply: return a * b;
        case FloatNode::Divide: return a / b;
        case FloatNode::Power: return std::pow(a, b);
        case FloatNode::Maximum: return b > a ? b : a;  // as Python's max
        case FloatNode::Minimum: return b < a ? b : a;
        default: return static_cast<double>(static_cast<float>(a));
    }
}

int FloatNodes::add(FloatNode::Kind kind, int a, int b) {
    if (a < 0 || (b < 0 && kind != FloatNode::Single)) return kUnknown;
    return push({kind, a, b, -1, compute(kind, value(a), b < 0 ? 0 : value(b))});
}

bool FloatNodes::holds(FloatRelation::Kind kind, double a, double b) {
    switch (kind) {
        case FloatRelation::Eq: return a == b;
        case FloatRelation::Ne: return a != b;
        case FloatRelation::Lt: return a < b;
        default: return a <= b;
    }
}

bool FloatNodes::ask(FloatRelation::Kind kind, int a, int b) {
    bool answer = holds(kind, value(a), value(b));
    for (const FloatRelation& r : relations_)
        if (r.kind == kind && r.a == a && r.b == b) return answer;
    relations_.push_back({kind, a, b, answer});
    return answer;
}

FloatNodes FloatNodes::for_guard() const {
    std::vector<bool> used(nodes_.size());
    for (const FloatRelation& r : relations_) used[static_cast<size_t>(r.a)] = used[static_cast<size_t>(r.b)] = true;
    for (size_t i = nodes_.size(); i-- > 0;) {
        if (!used[i]) continue;
        for (int operand : {nodes_[i].a, nodes_[i].b})
            if (operand >= 0) used[static_cast<size_t>(operand)] = true;
    }
    FloatNodes out;
    std::vector<int> place(nodes_.size(), -1);
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (!used[i]) continue;
        FloatNode n = nodes_[i];
        if (n.a >= 0) n.a = place[static_cast<size_t>(n.a)];
        if (n.b >= 0) n.b = place[static_cast<size_t>(n.b)];
        place[i] = out.push(n);
    }
    for (FloatRelation r : relations_) {
        r.a = place[static_cast<size_t>(r.a)];
        r.b = place[static_cast<size_t>(r.b)];
        out.relations_.push_back(r);
    }
    return out;
}

std::string FloatNodes::broken(PyObject* const* inputs) const {
    c10::SmallVector<double, 64> values;
    for (const FloatNode& n : nodes_) {
        switch (n.kind) {
            case FloatNode::Constant: values.push_back(n.value); break;
            case FloatNode::Number: {
                PyObject* o = inputs[n.input];
                if (!o || !PyFloat_CheckExact(o)) return text(static_cast<int>(values.size())) + " is no float";
                values.push_back(PyFloat_AS_DOUBLE(o));
                break;
            }
            case FloatNode::Item: {
                PyObject* o = inputs[n.input];
                if (!o || !PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(THPVariableClass)) ||
                    !has_float_item(THPVariable_Unpack(o)))
                    return text(static_cast<int>(values.size())) + " is no float";
                values.push_back(item_of(THPVariable_Unpack(o)));
                break;
            }
            default: values.push_back(compute(n.kind, values[n.a], n.b < 0 ? 0 : values[n.b]));
        }
    }
    for (const FloatRelation& r : relations_)
        if (holds(r.kind, values[r.a], values[r.b]) != r.answer)
            return "a number that was " + std::to_string(value(r.a)) + " is " + std::to_string(values[r.a]) +
                   ", which compares otherwise with " + std::to_string(values[r.b]);
    return {};
}

std::string FloatNodes::text(int node) const {
    const FloatNode& n = nodes_[static_cast<size_t>(node)];
    static constexpr const char* signs[] = {"", "", "", " + ", " - ", " * ", " / ", " ** ", " max ", " min "};
    switch (n.kind) {
        case FloatNode::Constant: return std::to_string(n.value);
        case FloatNode::Number: return "inputs[" + std::to_string(n.input) + "]";
        case FloatNode::Item: return "inputs[" + std::to_string(n.input) + "].item()";
        case FloatNode::Single: return "float32(" + text(n.a) + ")";
        default: return "(" + text(n.a) + signs[n.kind] + text(n.b) + ")";
    }
}

std::string FloatNodes::text() const {
    std::string out;
    static constexpr const char* signs[2][4] = {{" != ", " == ", " >= ", " > "}, {" == ", " != ", " < ", " <= "}};
    for (const FloatRelation& r : relations_)
        out += (out.empty() ? "" : ", ") + text(r.a) + signs[r.answer][r.kind] + text(r.b);
    return out;
}

}  // namespace braze::bridge
