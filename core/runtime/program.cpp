#include "core/runtime/program.h"

#include <array>

namespace braze::runtime {

namespace {

std::string list(const std::vector<Expr>& xs) {
    std::string out;
    for (const Expr& x : xs) out += (out.empty() ? "" : ",") + x.str();
    return "[" + out + "]";
}
std::string list(const std::vector<int>& xs) {
    std::string out;
    for (int x : xs) out += (out.empty() ? "%" : " %") + std::to_string(x);
    return out;
}

class Dumper {
  public:
    explicit Dumper(const Program& p) : p_(p) {}

    std::string run() {
        out_ = "program: " + std::to_string(p_.kernels.size()) + " kernels, arena " + std::to_string(p_.arena_bytes) +
               " bytes\n";
        if (!p_.symbols.empty()) out_ += "symbols " + list(p_.symbols) + "\n";
        for (size_t i = 0; i < p_.slots.size(); ++i) slot(i);
        for (const Thunk& t : p_.thunks) std::visit([&](const auto& x) { thunk(x); }, t);
        out_ += "return " + list(p_.outputs) + "\n";
        for (const auto& k : p_.kernels) out_ += loops::print(k);
        return std::move(out_);
    }

  private:
    void slot(size_t i) {
        constexpr std::array<const char*, 5> kinds = {"input", "arena", "fresh", "call result", "view"};
        const Slot& s = p_.slots[i];
        out_ += "slot %" + std::to_string(i) + ": " + kinds[static_cast<size_t>(s.kind)];
        if (s.kind == SlotKind::Input) out_ += " " + std::to_string(s.input);
        if (s.kind == SlotKind::Arena && s.arena_offset >= 0) out_ += " at " + std::to_string(s.arena_offset);
        if (s.kind == SlotKind::View) out_ += " of %" + std::to_string(s.base) + " + " + s.offset.str();
        out_ += " " + std::string(ir::name(s.type.dtype)) + list(s.type.sizes) + " strides " + list(s.type.strides);
        out_ += s.escapes ? " escapes\n" : "\n";
    }
    void thunk(const RunKernel& t) {
        const loops::Kernel& k = p_.kernels[static_cast<size_t>(t.kernel)];
        out_ += k.name + "(";
        for (size_t i = 0; i < t.slots.size(); ++i) {
            out_ += (i ? ", " : "") + std::string(k.params[i].written ? "out %" : "%") + std::to_string(t.slots[i]);
            if (t.offsets[i] != Expr(0)) out_ += "+" + t.offsets[i].str();
        }
        out_ += ") x " + t.outer_count.str() + origin(t.origin) + "\n";
    }
    void thunk(const RunCall& t) {
        out_ += list(t.results) + (t.results.empty() ? "" : " = ") + t.node->callee + "(" + list(t.operands) + ")" +
                origin(t.origin) + "\n";
    }
    void thunk(const MakeView& t) { out_ += "view %" + std::to_string(t.slot) + "\n"; }
    void thunk(const Allocate& t) { out_ += "allocate %" + std::to_string(t.slot) + "\n"; }
    void thunk(const Release& t) { out_ += "release %" + std::to_string(t.slot) + "\n"; }
    std::string origin(int i) const { return i < 0 ? "" : "  # " + p_.origins[static_cast<size_t>(i)]; }

    const Program& p_;
    std::string out_;
};

}  // namespace

std::string Program::dump() const { return Dumper(*this).run(); }

}  // namespace braze::runtime
