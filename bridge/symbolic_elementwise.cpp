// Rules for elementwise operators and reductions.
#include "bridge/symbolic_rule.h"

#include <algorithm>

#include "core/ir/builder.h"
#include "core/support/error.h"

namespace braze::bridge::symbolic {

const Sizes* sizes_of(const SymbolicCall& c, std::string_view name) {
    const SymbolicCall::Operand* o = c.tensor(name);
    return o ? &o->metadata.sizes : nullptr;
}

bool expands_to(SymbolicCall& c, const Sizes& from, const Sizes& to) {
    if (from.size() > to.size()) return false;
    for (size_t i = 0; i < from.size(); ++i)
        if (Expr e = c.table.resolve(from[i]); !c.table.is_one(e)) c.table.unify(e, to[to.size() - from.size() + i]);
    return true;
}

Sizes broadcast(SymbolicCall& c, const std::vector<const Sizes*>& shapes) {
    size_t rank = 0;
    for (const Sizes* s : shapes) rank = std::max(rank, s->size());
    Sizes out(rank, Expr(1));
    for (size_t i = 0; i < rank; ++i)
        for (const Sizes* s : shapes) {
            if (s->size() + i < rank) continue;
            Expr e = c.table.resolve((*s)[s->size() + i - rank]);
            if (c.table.is_one(e)) continue;
            if (c.table.is_one(out[i]))
                out[i] = e;
            else
                c.table.unify(out[i], e);
        }
    return out;
}

bool pointwise(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    std::vector<const Sizes*> shapes;
    for (const auto& o : c.operands) shapes.push_back(&o.metadata.sizes);
    auto sizes = broadcast(c, shapes);
    if (c.info.writes_anything) {  // what is written keeps its sizes
        const Sizes& self = sizes_of(c, 0);
        if (self.size() != sizes.size()) return false;
        for (size_t i = 0; i < self.size(); ++i) c.table.unify(self[i], sizes[i]);
    }
    for (size_t k = 0; k < c.results.size(); ++k) out.push_back(fresh(sizes));
    return true;
}
bool like_first(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    for (size_t k = 0; k < c.results.size(); ++k) out.push_back(fresh(sizes_of(c, 0)));
    return true;
}
bool like_self(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes* self = sizes_of(c, "self");
    for (size_t k = 0; self && k < c.results.size(); ++k) out.push_back(fresh(*self));
    return self;
}
bool scalar(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    for (size_t k = 0; k < c.results.size(); ++k) out.push_back(fresh({}));
    return true;
}

bool reduction(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes& self = sizes_of(c, 0);
    std::vector<bool> reduced(self.size(), true);
    if (const c10::IValue* dim = c.arg("dim")) {
        std::vector<int64_t> dims;
        if (dim->isInt())
            dims = {dim->toInt()};
        else if (dim->isIntList())
            dims = dim->toIntVector();
        else
            return false;
        if (!dims.empty()) std::fill(reduced.begin(), reduced.end(), false);
        for (int64_t d : dims) {
            if (self.empty()) continue;
            reduced.at(d < 0 ? d + static_cast<int64_t>(self.size()) : d) = true;
        }
    }
    bool keep = c.boolean("keepdim", false);
    Sizes sizes;
    for (size_t i = 0; i < self.size(); ++i) {
        if (!reduced[i])
            sizes.push_back(self[i]);
        else if (keep)
            sizes.push_back(Expr(1));
    }
    for (size_t k = 0; k < c.results.size(); ++k) out.push_back(fresh(sizes));
    return true;
}

}  // namespace braze::bridge::symbolic
