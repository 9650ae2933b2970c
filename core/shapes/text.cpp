// The text form of expressions: Python's syntax.
#include <cctype>
#include <charconv>

#include "core/shapes/internal.h"

namespace braze::shapes {

using namespace detail;

namespace {

std::string text(const Expr& e);

bool is_atom(const Expr& e) {
    return e.is_symbol() || e.kind() == ExprKind::Min || e.kind() == ExprKind::Max || (e.is_const() && e.value() >= 0);
}
std::string tight(const Expr& e) { return is_atom(e) ? text(e) : "(" + text(e) + ")"; }

std::string product_text(const std::vector<Expr>& xs) {
    std::string s;
    for (const Expr& x : xs) {
        if (x == Expr(-1))
            s += '-';
        else if (x.is_const())
            s += std::to_string(x.value()) + "*";
        else
            s += tight(x) + "*";
    }
    s.pop_back();  // the last is never a constant
    return s;
}

std::string text(const Expr& e) {
    const auto& xs = e.operands();
    switch (e.kind()) {
        case ExprKind::Const: return std::to_string(e.value());
        case ExprKind::Symbol: return e.name();
        case ExprKind::Add: {
            std::string s = text(xs[0]);
            for (size_t i = 1; i < xs.size(); ++i) {
                std::string t = text(xs[i]);
                s += t[0] == '-' ? " - " + t.substr(1) : " + " + t;
            }
            return s;
        }
        case ExprKind::Mul: return product_text(xs);
        case ExprKind::FloorDiv: return tight(xs[0]) + " // " + tight(xs[1]);
        case ExprKind::Mod: return tight(xs[0]) + " % " + tight(xs[1]);
        case ExprKind::Min:
        case ExprKind::Max: {
            std::string s = e.kind() == ExprKind::Min ? "min(" : "max(";
            for (size_t i = 0; i < xs.size(); ++i) s += (i ? ", " : "") + text(xs[i]);
            return s + ")";
        }
    }
    return {};
}

class Parser {
  public:
    Parser(const std::string& s, const SymbolResolver& resolve) : s_(s), resolve_(resolve) {}
    std::optional<Expr> whole() {
        auto e = parse_sum();
        skip();
        return e && i_ == s_.size() ? e : std::nullopt;
    }

  private:
    void skip() {
        while (i_ < s_.size() && s_[i_] == ' ') ++i_;
    }
    bool take(const char* token) {
        skip();
        size_t n = std::char_traits<char>::length(token);
        if (s_.compare(i_, n, token) != 0) return false;
        i_ += n;
        return true;
    }
    std::optional<Expr> parse_sum() {
        std::vector<Expr> terms;
        bool negative = take("-");
        while (true) {
            auto t = parse_product(negative);
            if (!t) return std::nullopt;
            terms.push_back(*t);
            bool plus = take("+");
            negative = !plus && take("-");
            if (!plus && !negative) break;
        }
        return make_sum(terms);
    }
    // Runs of * are gathered and multiplied at once: a product is expanded or not depending on all of its factors.
    std::optional<Expr> parse_product(bool negative) {
        auto first = parse_atom();
        if (!first) return std::nullopt;
        std::vector<Expr> factors{*first};
        if (negative) factors.emplace_back(-1);
        while (true) {
            bool quotient = take("//");
            bool remainder = !quotient && take("%");
            if (!quotient && !remainder && !take("*")) break;
            auto next = parse_atom();
            if (!next) return std::nullopt;
            if (quotient || remainder) {
                Expr a = make_product(factors);
                factors = {quotient ? floordiv(a, *next) : mod(a, *next)};
            } else {
                factors.push_back(*next);
            }
        }
        return make_product(factors);
    }
    std::optional<Expr> parse_atom() {
        skip();
        if (i_ >= s_.size()) return std::nullopt;
        if (take("(")) {
            auto e = parse_sum();
            return e && take(")") ? e : std::nullopt;
        }
        if (take("-")) {
            auto e = parse_atom();
            return e ? std::optional<Expr>(-*e) : std::nullopt;
        }
        if (std::isdigit(static_cast<unsigned char>(s_[i_]))) return parse_number();
        size_t begin = i_;
        while (i_ < s_.size() && (std::isalnum(static_cast<unsigned char>(s_[i_])) || s_[i_] == '_')) ++i_;
        std::string word = s_.substr(begin, i_ - begin);
        if (word.empty()) return std::nullopt;
        if ((word == "min" || word == "max") && take("(")) return parse_extremum(word == "min");
        if (resolve_) return resolve_(word);
        if (auto known = first_symbol(word)) return known;
        return Expr::symbol(word);
    }
    std::optional<Expr> parse_number() {
        uint64_t v = 0;
        auto [end, error] = std::from_chars(s_.data() + i_, s_.data() + s_.size(), v);
        // 2**63 only occurs negated: it wraps to the smallest integer and so does its negation
        if (error != std::errc() || v > static_cast<uint64_t>(kMax) + 1) return std::nullopt;
        i_ = static_cast<size_t>(end - s_.data());
        return Expr(static_cast<int64_t>(v));
    }
    std::optional<Expr> parse_extremum(bool is_min) {
        std::optional<Expr> e;
        do {
            auto x = parse_sum();
            if (!x) return std::nullopt;
            e = !e ? *x : is_min ? min(*e, *x) : max(*e, *x);
        } while (take(","));
        return take(")") ? e : std::nullopt;
    }

    const std::string& s_;
    const SymbolResolver& resolve_;
    size_t i_ = 0;
};

}  // namespace

std::string Expr::str() const { return text(*this); }

std::optional<Expr> Expr::parse(const std::string& s, const SymbolResolver& resolve) {
    return Parser(s, resolve).whole();
}

}  // namespace braze::shapes
