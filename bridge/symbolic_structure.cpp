// Rules for what puts tensors together, indexes or creates them.
#include "bridge/symbolic_rule.h"

#include <algorithm>

#include "core/ir/builder.h"
#include "core/support/error.h"

namespace braze::bridge::symbolic {

bool cat(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    // (an empty tensor of rank 1 is left out, whatever the rank of the others)
    std::vector<const Sizes*> parts;
    for (const auto& o : c.operands)
        if (!(o.metadata.sizes.size() == 1 && o.metadata.sizes[0] == Expr(0))) parts.push_back(&o.metadata.sizes);
    if (parts.empty()) return false;
    auto axis = c.axis("dim", parts[0]->size());
    if (!axis) return false;
    Sizes sizes = *parts[0];
    for (size_t k = 1; k < parts.size(); ++k) {
        if (parts[k]->size() != sizes.size()) return false;
        for (size_t i = 0; i < sizes.size(); ++i) {
            if (static_cast<int>(i) == *axis)
                sizes[i] = sizes[i] + (*parts[k])[i];
            else
                c.table.unify(sizes[i], (*parts[k])[i]);
        }
    }
    out.push_back(fresh(std::move(sizes)));
    return true;
}
bool stack(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    Sizes sizes = sizes_of(c, 0);
    auto axis = c.axis("dim", sizes.size() + 1);
    if (!axis) return false;
    for (size_t k = 1; k < c.operands.size(); ++k)
        for (size_t i = 0; i < sizes.size(); ++i) c.table.unify(sizes[i], sizes_of(c, k)[i]);
    sizes.insert(sizes.begin() + *axis, Expr(static_cast<int64_t>(c.operands.size())));
    out.push_back(fresh(std::move(sizes)));
    return true;
}
bool embedding(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    Sizes sizes = sizes_of(c, 1);
    sizes.push_back(sizes_of(c, 0)[1]);
    out.push_back(fresh(std::move(sizes)));
    return true;
}
bool gather(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const SymbolicCall::Operand* index = c.tensor("index");
    const Sizes& self = sizes_of(c, 0);
    auto axis = c.axis("dim", self.size());
    if (!index || !axis || index->metadata.sizes.size() != self.size()) return false;
    for (size_t i = 0; i < self.size(); ++i)
        if (static_cast<int>(i) != *axis && c.table.decide({Relation::Lt, self[i], index->metadata.sizes[i]}))
            return false;
    out.push_back(fresh(index->metadata.sizes));
    return true;
}
bool index_select(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    Sizes sizes = sizes_of(c, 0);
    auto axis = c.axis("dim", sizes.size());
    const SymbolicCall::Operand* index = c.tensor("index");
    if (!axis || !index || sizes.empty()) return false;
    sizes[*axis] = index->metadata.sizes.empty() ? Expr(1) : index->metadata.sizes[0];
    out.push_back(fresh(std::move(sizes)));
    return true;
}
// What an index with tensors gives; nullopt where it depends on data.
static std::optional<Sizes> indexed(SymbolicCall& c, std::string_view name) {
    const Sizes self = sizes_of(c, 0);
    std::vector<const Sizes*> indices;
    std::vector<int> places;
    for (const SymbolicCall::Operand& o : c.operands) {
        if (o.arg != c.info.arg_index(name)) continue;
        auto type = o.hint->scalar_type();
        if (type == at::kBool || type == at::kByte) return std::nullopt;
        indices.push_back(&o.metadata.sizes);
        places.push_back(o.pos);
    }
    const Sizes all = broadcast(c, indices);
    bool adjacent = !places.empty();
    for (size_t k = 1; k < places.size(); ++k) adjacent &= places[k] == places[k - 1] + 1;
    Sizes sizes;
    if (!adjacent) sizes = all;
    for (size_t i = 0; i < self.size(); ++i) {
        bool chosen = std::find(places.begin(), places.end(), static_cast<int>(i)) != places.end();
        if (!chosen)
            sizes.push_back(self[i]);
        else if (adjacent && static_cast<int>(i) == places[0])
            sizes.insert(sizes.end(), all.begin(), all.end());
    }
    return sizes;
}
bool index(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto sizes = indexed(c, "indices");
    if (sizes) out.push_back(fresh(std::move(*sizes)));
    return sizes.has_value();
}
bool index_put(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto places = indexed(c, "indices");
    const Sizes* values = sizes_of(c, "values");
    return places && values && expands_to(c, *values, *places) && like_self(c, out);
}
bool scatter(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes *self = sizes_of(c, "self"), *index = sizes_of(c, "index"), *src = sizes_of(c, "src");
    auto axis = self ? c.axis("dim", self->size()) : std::nullopt;
    if (!index || !axis || index->size() != self->size() || (src && src->size() != self->size())) return false;
    for (size_t i = 0; i < self->size(); ++i)
        if ((static_cast<int>(i) != *axis && c.table.decide({Relation::Lt, (*self)[i], (*index)[i]})) ||
            (src && c.table.decide({Relation::Lt, (*src)[i], (*index)[i]})))
            return false;
    return like_self(c, out);
}
bool index_add(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes *self = sizes_of(c, "self"), *index = sizes_of(c, "index"), *source = sizes_of(c, "source");
    auto axis = self ? c.axis("dim", self->size()) : std::nullopt;
    if (!index || !source || !axis || self->empty() || index->size() != 1 || source->size() != self->size())
        return false;
    for (size_t i = 0; i < self->size(); ++i)
        c.table.unify((*source)[i], static_cast<int>(i) == *axis ? (*index)[0] : (*self)[i]);
    return like_self(c, out);
}
bool pad(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    Sizes sizes = sizes_of(c, 0);
    auto amounts = c.integers("pad");
    if (!amounts || amounts->size() > 2 * sizes.size()) return false;
    for (size_t i = 0; i + 1 < amounts->size(); i += 2) {
        size_t axis = sizes.size() - 1 - i / 2;
        sizes[axis] = sizes[axis] + (*amounts)[i] + (*amounts)[i + 1];
        if (c.table.decide({Relation::Lt, sizes[axis], Expr(0)})) return false;
    }
    out.push_back(fresh(std::move(sizes)));
    return true;
}
bool window_pad(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {  // by reflection or replication
    Sizes sizes = sizes_of(c, 0);
    auto amounts = c.integers("padding");
    if (!amounts || amounts->size() >= 2 * sizes.size()) return false;
    for (size_t i = 0; i + 1 < amounts->size(); i += 2) {
        Expr& size = sizes[sizes.size() - 1 - i / 2];
        for (const Expr& amount : {(*amounts)[i], (*amounts)[i + 1]})  // what is reflected must be there
            if (!c.table.decide({Relation::Lt, amount, size}) || c.table.decide({Relation::Lt, amount, Expr(0)}))
                return false;
        size = size + (*amounts)[i] + (*amounts)[i + 1];
    }
    out.push_back(fresh(std::move(sizes)));
    return true;
}
bool repeat(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto counts = c.integers("repeats");
    const Sizes& self = sizes_of(c, 0);
    if (!counts || counts->size() < self.size()) return false;
    Sizes sizes = *counts;
    size_t added = counts->size() - self.size();
    for (size_t i = 0; i < self.size(); ++i) sizes[added + i] = sizes[added + i] * self[i];
    out.push_back(fresh(std::move(sizes)));
    return true;
}

bool sized(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto sizes = c.integers("size");
    if (!sizes) return false;
    out.push_back(fresh(*sizes));
    return true;
}
bool strided(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto sizes = c.integers("size"), strides = c.integers("stride");
    if (!sizes || !strides || sizes->size() != strides->size()) return false;
    out.push_back({*sizes, *strides, Expr(0)});
    return true;
}
bool restrided(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    if (!strided(c, out)) return false;
    out.back().offset =
        c.arg("storage_offset") ? c.integer("storage_offset").value_or(Expr(0)) : c.operands[0].metadata.offset;
    return true;
}
bool shuffled_pixels(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    Sizes sizes = c.table.resolve(sizes_of(c, 0));
    auto factor = c.integer("upscale_factor");
    size_t n = sizes.size();
    if (n < 3 || !factor || !factor->is_const() || !sizes[n - 3].is_const()) return false;
    sizes[n - 3] = shapes::floordiv(sizes[n - 3], *factor * *factor);
    for (size_t i : {n - 2, n - 1}) sizes[i] = sizes[i] * *factor;
    out.push_back(fresh(std::move(sizes)));
    return true;
}
bool like_input_sizes(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto sizes = c.arg("input_sizes") ? c.integers("input_sizes") : c.integers("input_size");
    if (sizes) out.push_back(fresh(*sizes));
    return sizes.has_value();
}
bool square(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto n = c.integer("n"), m = c.arg("m") ? c.integer("m") : n;
    if (!n || !m) return false;
    out.push_back(fresh({*n, *m}));
    return true;
}
bool permutation(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto n = c.integer("n");
    if (n) out.push_back(fresh({*n}));
    return n.has_value();
}
bool range(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto end = c.integer("end");
    auto start = c.arg("start") ? c.integer("start") : std::optional<Expr>(0);
    auto step = c.arg("step") ? c.integer("step") : std::optional<Expr>(1);
    if (!start || !end || !step || !step->is_const() || step->value() == 0) return false;
    if (step->value() < 0) {
        std::swap(*start, *end);
        step = -*step;
    }
    if (c.table.decide({Relation::Lt, *end, *start})) return false;
    out.push_back(fresh({shapes::floordiv(*end - *start + *step - Expr(1), *step)}));
    return true;
}

}  // namespace braze::bridge::symbolic
