// Axes, levels and the text form of kernels.
#include "core/loops/kernel.h"

#include <array>
#include <charconv>

namespace braze::loops {

Expr outer_axis(int k, Expr extent) { return Expr::axis("o" + std::to_string(k), extent); }
Expr inner_axis(int k, Expr extent) { return Expr::axis("i" + std::to_string(k), extent); }

std::string_view name(ScalarKind kind) {
    constexpr std::array<std::string_view, 10> names = {"const",   "index", "load",   "unary",   "binary",
                                                        "ternary", "cast",  "reduce", "indexof", "check"};
    return names[static_cast<size_t>(kind)];
}

std::string_view name(Level level) {
    constexpr std::array<std::string_view, 3> names = {"uniform", "outer", "inner"};
    return names[static_cast<size_t>(level)];
}

Level level_of(const Kernel& k, const Expr& e, size_t scalars) {
    std::vector<Expr> symbols;
    e.symbols(symbols);
    Level level = Level::Uniform;
    for (const Expr& s : symbols) {
        const char first = s.name()[0];
        Level l = Level::Uniform;
        if (first == 'i')
            l = Level::Inner;
        else if (first == 'o')
            l = Level::Outer;
        else if (first == 't')
            for (size_t i = 0; i < scalars; ++i)
                if (k.scalars[i].kind == ScalarKind::IndexOf && k.scalars[i].symbol == s) l = k.scalars[i].level;
        level = std::max(level, l);
    }
    return level;
}

namespace {

class Printer {
  public:
    explicit Printer(const Kernel& k) : k_(k) {}

    std::string body() {
        header();
        for (size_t i = 0; i < k_.scalars.size(); ++i) scalar(static_cast<int>(i));
        for (size_t i = 0; i < k_.stages.size(); ++i) stage(i);
        return std::move(out_);
    }

  private:
    void header() {
        for (size_t i = 0; i < k_.params.size(); ++i) {
            const Param& p = k_.params[i];
            out_ += "  param p" + std::to_string(i) + ": " + std::string(ir::name(p.dtype));
            if (p.written) out_ += " written";
            if (p.inplace_of >= 0) out_ += " inplace_of p" + std::to_string(p.inplace_of);
            out_ += '\n';
        }
        if (!k_.symbols.empty()) out_ += "  symbols " + list(k_.symbols) + "\n";
        out_ += "  outer [" + list(k_.outer) + "] inner [" + list(k_.inner) + "] vectorize ";
        out_ += k_.vectorize == Vectorize::InnerLast ? "inner\n" : "outer\n";
    }

    void scalar(int i) {
        const Scalar& s = k_.scalars[i];
        out_ += "  %" + std::to_string(i) + ": " + std::string(ir::name(s.dtype)) + ' ' + std::string(name(s.level)) +
                " = ";
        switch (s.kind) {
            case ScalarKind::Unary:
            case ScalarKind::Binary:
            case ScalarKind::Ternary: out_ += ir::name(s.op); break;
            case ScalarKind::Reduce: out_ += "reduce." + std::string(ir::name(s.op)); break;
            default: out_ += name(s.kind);
        }
        if (s.kind == ScalarKind::Const) out_ += ' ' + value(s);
        if (s.kind == ScalarKind::Index) out_ += ' ' + s.address.str();
        if (s.kind == ScalarKind::Load) {
            out_ += " p" + std::to_string(s.param) + '[' + s.address.str() + ']';
            if (s.mask >= 0) out_ += " mask %" + std::to_string(s.mask) + " else " + value(s);
        }
        if (s.kind == ScalarKind::IndexOf) out_ += ' ' + s.symbol.name();
        for (int a : s.args) out_ += " %" + std::to_string(a);
        if (s.kind == ScalarKind::Reduce) out_ += " stage " + std::to_string(s.stage);
        out_ += '\n';
    }

    void stage(size_t i) {
        out_ += "  stage " + std::to_string(i);
        if (!k_.stages[i].reduces.empty()) {
            out_ += " reduces";
            for (int r : k_.stages[i].reduces) out_ += " %" + std::to_string(r);
        }
        out_ += '\n';
        for (const Store& s : k_.stages[i].stores)
            out_ += "    p" + std::to_string(s.param) + '[' + s.address.str() + "] = %" + std::to_string(s.scalar) +
                    ' ' + std::string(name(s.level)) + '\n';
    }

    static std::string value(const Scalar& s) {
        if (const int64_t* i = std::get_if<int64_t>(&s.value)) return std::to_string(*i);
        char buffer[64];  // the shortest text that reads back as the same number
        auto end = std::to_chars(buffer, buffer + sizeof buffer, std::get<double>(s.value)).ptr;
        std::string text(buffer, end);
        return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
    }

    static std::string list(const std::vector<Expr>& xs) {
        std::string out;
        for (const Expr& x : xs) out += (out.empty() ? "" : ", ") + x.str();
        return out;
    }

    const Kernel& k_;
    std::string out_;
};

}  // namespace

std::string print(const Kernel& k) { return "kernel " + k.name + "\n" + Printer(k).body(); }
std::string canonical(const Kernel& k) { return Printer(k).body(); }

}  // namespace braze::loops
