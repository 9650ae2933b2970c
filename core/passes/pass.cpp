#include "core/passes/pass.h"

#include <array>
#include <chrono>

#include "core/ir/text.h"
#include "core/ir/verify.h"
#include "core/support/error.h"

namespace braze::passes {

namespace {
constexpr std::array kPasses = {
#define PASS(id, text, summary) Pass{text, summary, id},
#include "core/passes/passes.def"
#undef PASS
};
}  // namespace

const Pass* find_pass(std::string_view name) {
    for (const Pass& p : kPasses)
        if (p.name == name) return &p;
    return nullptr;
}

bool run_pass(const Pass& pass, ir::Graph& g, Context& c) {
    std::string name(pass.name);
    if (c.options.disabled_passes.contains(name)) return false;
    auto begin = std::chrono::steady_clock::now();
    bool changed = pass.run(g, c);
    if (c.stats) {
        std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
        c.stats->stages.push_back({name, spent.count()});
    }
    if (c.options.dump) c.options.dump(name, ir::print(g));
    if (c.options.verify) {
        try {
            ir::verify(g);
        } catch (const InternalError& e) { throw InternalError("after pass " + name + ": " + e.what()); }
    }
    return changed;
}

}  // namespace braze::passes
