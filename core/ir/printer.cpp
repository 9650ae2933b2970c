#include <charconv>
#include <unordered_map>

#include "core/ir/text.h"

namespace braze::ir {

namespace {

std::string quoted(const std::string& s) {
    static const char* digits = "0123456789abcdef";
    std::string out = "\"";
    for (char c : s) {
        if (c == '"' || c == '\\')
            (out += '\\') += c;
        else if (c == '\n')
            out += "\\n";
        else if (static_cast<unsigned char>(c) < 32)
            ((out += "\\x") += digits[c / 16]) += digits[c % 16];
        else
            out += c;
    }
    return out + "\"";
}

std::string text(double v) {
    if (v != v) return "nan";
    char buffer[40];
    auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, v);
    std::string s(buffer, end);
    if (s.find_first_of(".en") == std::string::npos) s += ".0";  // n: inf
    return s;
}
std::string text(bool v) { return v ? "true" : "false"; }
std::string text(const Expr& e) { return e.str(); }
std::string text(int v) { return std::to_string(v); }

template <class T>
std::string list(const std::vector<T>& xs) {
    std::string s;
    for (size_t i = 0; i < xs.size(); ++i) (s += i ? ", " : "") += text(static_cast<T>(xs[i]));
    return s;
}

std::string ref(const Node& n, int operand) {
    if (operand < 0) return "none";
    if (static_cast<size_t>(operand) >= n.operands.size()) return "%?";
    return "%" + std::to_string(n.operands[static_cast<size_t>(operand)]->id);
}

struct ArgPrinter {
    const Node& n;
    std::string operator()(const None&) const { return "none"; }
    std::string operator()(const Ref& r) const { return ref(n, r.operand); }
    std::string operator()(const RefList& r) const {
        std::string s = "{";
        for (size_t i = 0; i < r.operands.size(); ++i) (s += i ? ", " : "") += ref(n, r.operands[i]);
        return s + "}";
    }
    std::string operator()(bool v) const { return text(v); }
    std::string operator()(const Expr& v) const { return text(v); }
    std::string operator()(double v) const { return text(v); }
    std::string operator()(const std::string& v) const { return quoted(v); }
    std::string operator()(DType v) const { return "dtype(" + std::string(name(v)) + ")"; }
    std::string operator()(const std::vector<Expr>& v) const { return "[" + list(v) + "]"; }
    std::string operator()(const std::vector<double>& v) const { return "f[" + list(v) + "]"; }
    std::string operator()(const std::vector<bool>& v) const { return "b[" + list(v) + "]"; }
    std::string operator()(const Opaque& v) const { return "opaque(" + text(v.index) + ", " + quoted(v.text) + ")"; }
};

std::string declaration(const Value& v) {
    std::string s = "%" + std::to_string(v.id);
    if (!v.name.empty()) s += " " + quoted(v.name);
    if (v.storage >= 0) s += " @" + std::to_string(v.storage);
    return s + " : " + print(v.type);
}

std::string bound(int64_t v) {
    if (v == std::numeric_limits<int64_t>::min()) return "min";
    if (v == std::numeric_limits<int64_t>::max()) return "max";
    return std::to_string(v);
}

void symbol_line(std::string& out, const char* what, const Expr& s) {
    ((out += "  ") += what) += " " + s.name() + " [" + bound(s.range().lo) + ", " + bound(s.range().hi) + "]\n";
}

void gather_symbols(const std::vector<Expr>& xs, std::vector<Expr>& out) {
    for (const Expr& x : xs)
        if (!x.is_const()) x.symbols(out);
}

}  // namespace

std::string print(const TensorType& t) {
    std::string s = std::string(name(t.dtype)) + "[" + list(t.sizes) + "]";
    if (t.strides != contiguous_strides(t.sizes)) s += "{" + list(t.strides) + "}";
    return s;
}

std::string print(const Node& n) {
    std::string s;
    for (size_t i = 0; i < n.results.size(); ++i) (s += i ? ", " : "") += declaration(*n.results[i]);
    if (!n.results.empty()) s += " = ";
    s += name(n.op);
    if (n.op == Op::Input) return s;
    bool call = n.op == Op::Call;
    if (call) s += " " + n.callee;
    s += '(';
    bool first = true;
    auto comma = [&] {
        if (!first) s += ", ";
        first = false;
    };
    if (!call)
        for (size_t i = 0; i < n.operands.size(); ++i) {
            comma();
            s += ref(n, static_cast<int>(i));
        }
    for (const NamedArg& a : n.args) {
        comma();
        (s += a.name) += "=" + std::visit(ArgPrinter{n}, a.value);
    }
    s += ')';
    if (!n.writes.empty()) s += " writes=[" + list(n.writes) + "]";
    if (n.ordered) s += " ordered";
    if (!n.aliases.empty()) s += " aliases=[" + list(n.aliases) + "]";
    if (n.line >= 0) s += " line=" + std::to_string(n.line);
    return s;
}

std::string print(const Graph& g) {
    std::string s = "graph {\n";
    std::vector<Expr> found = g.symbols;
    for (const Node* n : g.nodes) {
        for (const Value* v : n->results) {
            gather_symbols(v->type.sizes, found);
            gather_symbols(v->type.strides, found);
        }
        for (const NamedArg& a : n->args) {
            if (auto* e = std::get_if<Expr>(&a.value)) e->symbols(found);
            if (auto* es = std::get_if<std::vector<Expr>>(&a.value)) gather_symbols(*es, found);
        }
    }
    for (size_t i = 0; i < found.size(); ++i) symbol_line(s, i < g.symbols.size() ? "symbol" : "free", found[i]);
    for (size_t i = 0; i < g.lines.size(); ++i) s += "  line " + std::to_string(i) + " " + quoted(g.lines[i]) + "\n";
    for (const Node* n : g.nodes) s += "  " + print(*n) + "\n";
    s += "  return";
    for (size_t i = 0; i < g.outputs.size(); ++i) (s += i ? ", %" : " %") += std::to_string(g.outputs[i]->id);
    return s + "\n}\n";
}

}  // namespace braze::ir
