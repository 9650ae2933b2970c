#include <cctype>
#include <charconv>
#include <unordered_map>

#include "core/ir/op.h"
#include "core/ir/text.h"
#include "core/support/error.h"

namespace braze::ir {

namespace {

class Parser {
  public:
    explicit Parser(const std::string& s) : s_(s) {}

    Graph whole() {
        expect("graph");
        expect("{");
        while (!take_word("return")) {
            if (take_word("symbol"))
                graph_.symbols.push_back(symbol());
            else if (take_word("free"))
                symbol();
            else if (take_word("line"))
                line();
            else
                node();
        }
        if (!peek("}")) do
                graph_.outputs.push_back(value());
            while (take(","));
        expect("}");
        skip();
        if (i_ != s_.size()) fail("end of text");
        return std::move(graph_);
    }

  private:
    // ---- characters
    [[noreturn]] void fail(const std::string& wanted) {
        size_t line_number = 1, begin = 0;
        for (size_t k = 0; k < i_ && k < s_.size(); ++k)
            if (s_[k] == '\n') {
                ++line_number;
                begin = k + 1;
            }
        size_t end = s_.find('\n', begin);
        throw UserError("graph text, line " + std::to_string(line_number) + ": expected " + wanted + " at column " +
                        std::to_string(i_ - begin + 1) +
                        " of: " + s_.substr(begin, end == std::string::npos ? end : end - begin));
    }
    void skip() {
        while (i_ < s_.size()) {
            if (s_[i_] == '#')
                i_ = std::min(s_.find('\n', i_), s_.size());
            else if (std::isspace(static_cast<unsigned char>(s_[i_])))
                ++i_;
            else
                break;
        }
    }
    bool peek(std::string_view token) {
        skip();
        return s_.compare(i_, token.size(), token) == 0;
    }
    bool take(std::string_view token) {
        if (!peek(token)) return false;
        i_ += token.size();
        return true;
    }
    static bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
    bool take_word(std::string_view token) {
        if (!peek(token) || (i_ + token.size() < s_.size() && word_char(s_[i_ + token.size()]))) return false;
        i_ += token.size();
        return true;
    }
    void expect(std::string_view token) {
        if (!take(token)) fail("'" + std::string(token) + "'");
    }
    std::string word(const char* what) {
        skip();
        size_t begin = i_;
        while (i_ < s_.size() && word_char(s_[i_])) ++i_;
        if (begin == i_) fail(what);
        return s_.substr(begin, i_ - begin);
    }
    int integer() {
        skip();
        int v = 0;
        auto [end, error] = std::from_chars(s_.data() + i_, s_.data() + s_.size(), v);
        if (error != std::errc()) fail("an integer");
        i_ = static_cast<size_t>(end - s_.data());
        return v;
    }
    std::string string() {
        expect("\"");
        std::string out;
        while (i_ < s_.size() && s_[i_] != '"') {
            char c = s_[i_++];
            if (c == '\\' && i_ < s_.size()) {
                c = s_[i_++];
                if (c == 'n')
                    c = '\n';
                else if (c == 'x' && i_ + 2 <= s_.size()) {
                    c = static_cast<char>(std::stoi(s_.substr(i_, 2), nullptr, 16));
                    i_ += 2;
                }
            }
            out += c;
        }
        expect("\"");
        return out;
    }

    // ---- declarations
    int64_t bound() {
        if (take_word("min")) return std::numeric_limits<int64_t>::min();
        if (take_word("max")) return std::numeric_limits<int64_t>::max();
        return expr().value();
    }
    Expr symbol() {
        std::string name = word("a symbol's name");
        expect("[");
        int64_t lo = bound();
        expect(",");
        int64_t hi = bound();
        expect("]");
        if (lo > hi) fail("a range that is not empty");
        Expr e = Expr::symbol(name, {lo, hi});
        symbols_.insert_or_assign(name, e);
        return e;
    }
    void line() {
        if (integer() != static_cast<int>(graph_.lines.size())) fail("lines in order");
        graph_.lines.push_back(string());
    }

    // ---- pieces
    // An expression ends at a comma or bracket that it did not open.
    Expr expr() {
        skip();
        int depth = 0;
        size_t end = i_;
        for (; end < s_.size(); ++end) {
            char c = s_[end];
            if (c == '(')
                ++depth;
            else if (c == '\n' || c == '#' || (depth == 0 && (c == ',' || c == ')' || c == ']' || c == '}')))
                break;
            else if (c == ')')
                --depth;
        }
        auto e = Expr::parse(s_.substr(i_, end - i_), [&](const std::string& name) -> std::optional<Expr> {
            auto it = symbols_.find(name);
            return it == symbols_.end() ? std::nullopt : std::optional<Expr>(it->second);
        });
        if (!e) fail("an expression of declared symbols");
        i_ = end;
        return *e;
    }
    std::vector<Expr> exprs(const char* close) {
        std::vector<Expr> out;
        if (take(close)) return out;
        do out.push_back(expr());
        while (take(","));
        expect(close);
        return out;
    }
    DType dtype() {
        auto d = dtype_named(word("a dtype"));
        if (!d) fail("a dtype");
        return *d;
    }
    TensorType type() {
        TensorType t;
        t.dtype = dtype();
        expect("[");
        t.sizes = exprs("]");
        t.strides = take("{") ? exprs("}") : contiguous_strides(t.sizes);
        if (t.strides.size() != t.sizes.size()) fail("as many strides as sizes");
        return t;
    }
    Value* value() {
        expect("%");
        auto it = values_.find(integer());
        if (it == values_.end()) fail("a value that was made before");
        return it->second;
    }
    std::optional<double> try_double() {
        skip();
        size_t begin = i_ + (i_ < s_.size() && s_[i_] == '-');
        auto starts = [&](std::string_view w) { return s_.compare(begin, w.size(), w) == 0; };
        size_t end = begin;
        if (starts("inf") || starts("nan")) {
            end += 3;
            if (end < s_.size() && word_char(s_[end])) return std::nullopt;  // a symbol
        } else {
            if (end >= s_.size() || !std::isdigit(static_cast<unsigned char>(s_[end]))) return std::nullopt;
            while (end < s_.size() && (std::isdigit(static_cast<unsigned char>(s_[end])) || s_[end] == '.' ||
                                       s_[end] == 'e' || ((s_[end] == '-' || s_[end] == '+') && s_[end - 1] == 'e')))
                ++end;
            if (s_.substr(begin, end - begin).find_first_of(".e") == std::string::npos) return std::nullopt;
        }
        double v = 0;
        auto [p, error] = std::from_chars(s_.data() + i_, s_.data() + end, v);
        if (error != std::errc() || p != s_.data() + end) fail("a number");
        i_ = end;
        return v;
    }
    double number() {
        auto v = try_double();
        if (!v) fail("a double");
        return *v;
    }
    bool boolean() {
        if (take_word("true")) return true;
        if (take_word("false")) return false;
        fail("true or false");
    }
    template <class T, class F>
    std::vector<T> sequence(F item) {
        std::vector<T> out;
        if (take("]")) return out;
        do out.push_back(item());
        while (take(","));
        expect("]");
        return out;
    }
    int operand(Node& n) {
        n.operands.push_back(value());
        return static_cast<int>(n.operands.size()) - 1;
    }
    Arg argument(Node& n) {
        if (peek("%")) return Ref{operand(n)};
        if (take("{")) {
            RefList r;
            if (take("}")) return r;
            do r.operands.push_back(take_word("none") ? -1 : operand(n));
            while (take(","));
            expect("}");
            return r;
        }
        if (take_word("none")) return None{};
        if (take_word("true")) return true;
        if (take_word("false")) return false;
        if (peek("\"")) return string();
        if (take("dtype(")) {
            DType d = dtype();
            expect(")");
            return d;
        }
        if (take("opaque(")) {
            Opaque o;
            o.index = integer();
            expect(",");
            o.text = string();
            expect(")");
            return o;
        }
        if (take("f[")) return sequence<double>([&] { return number(); });
        if (take("b[")) return sequence<bool>([&] { return boolean(); });
        if (take("[")) return exprs("]");
        if (auto v = try_double()) return *v;
        return expr();
    }
    std::vector<int> integers() {
        expect("=");
        expect("[");
        return sequence<int>([&] { return integer(); });
    }

    // ---- nodes
    struct Declaration {
        int id;
        std::string name;
        int storage = -1;
        TensorType type;
    };
    Declaration declaration() {
        expect("%");
        Declaration d;
        d.id = integer();
        if (peek("\"")) d.name = string();
        if (take("@")) d.storage = integer();
        expect(":");
        d.type = type();
        return d;
    }
    std::string callee() {
        skip();
        size_t begin = i_;
        while (i_ < s_.size() && (word_char(s_[i_]) || s_[i_] == ':' || s_[i_] == '.')) ++i_;
        if (begin == i_) fail("the name of an operator");
        return s_.substr(begin, i_ - begin);
    }
    void node() {
        std::vector<Declaration> results;
        if (peek("%")) {
            do results.push_back(declaration());
            while (take(","));
            expect("=");
        }
        auto op = op_named(word("an operator"));
        if (!op) fail("an operator of ops.def");
        if (*op == Op::Input) {
            if (results.size() != 1) fail("one result of an input");
            Declaration& d = results[0];
            bind(graph_.add_input(std::move(d.type), d.storage), d);
            return;
        }
        Node& n = *graph_.add_node(*op);
        if (*op == Op::Call) n.callee = callee();
        expect("(");
        if (!take(")")) {
            do {
                if (*op != Op::Call && peek("%")) {
                    operand(n);
                    continue;
                }
                std::string name = word("an argument's name");
                expect("=");
                n.args.push_back({std::move(name), argument(n)});
            } while (take(","));
            expect(")");
        }
        while (true) {
            if (take_word("writes"))
                n.writes = integers();
            else if (take_word("ordered"))
                n.ordered = true;
            else if (take_word("aliases"))
                n.aliases = integers();
            else if (take("line="))
                n.line = integer();
            else
                break;
        }
        for (Declaration& d : results) bind(graph_.add_result(&n, std::move(d.type), d.storage), d);
    }
    void bind(Value* v, Declaration& d) {
        v->name = std::move(d.name);
        graph_.set_id(v, d.id);
        if (!values_.emplace(d.id, v).second) fail("an id that is not taken, got %" + std::to_string(d.id));
    }

    const std::string& s_;
    size_t i_ = 0;
    Graph graph_;
    std::unordered_map<std::string, Expr> symbols_;
    std::unordered_map<int, Value*> values_;
};

}  // namespace

Graph parse_graph(const std::string& text) { return Parser(text).whole(); }

}  // namespace braze::ir
