#include "bridge/symbolic_rules.h"

#include <algorithm>
#include <unordered_map>

#include "core/ir/builder.h"
#include "core/support/error.h"

namespace braze::bridge {

namespace {

using Sizes = std::vector<Expr>;
// Appends one entry per result. Strides left empty are those of a new dense tensor laid out as the hint is. False: not
// covered.
using Rule = bool (*)(SymbolicCall& c, std::vector<SymbolicMetadata>& out);

SymbolicMetadata fresh(Sizes sizes) { return {std::move(sizes), {}, Expr(0)}; }
const Sizes& sizes_of(const SymbolicCall& c, size_t operand) { return c.operands.at(operand).metadata.sizes; }

// ---- elementwise

std::optional<Sizes> broadcast(SymbolicCall& c, const std::vector<const Sizes*>& shapes) {
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
        if (self.size() != sizes->size()) return false;
        for (size_t i = 0; i < self.size(); ++i) c.table.unify(self[i], (*sizes)[i]);
    }
    for (size_t k = 0; k < c.results.size(); ++k) out.push_back(fresh(*sizes));
    return true;
}
bool like_first(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    for (size_t k = 0; k < c.results.size(); ++k) out.push_back(fresh(sizes_of(c, 0)));
    return true;
}

// ---- views

bool same_view(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    out.push_back(c.operands[0].metadata);
    return true;
}
bool view(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const auto& self = c.operands[0].metadata;
    auto sizes = c.integers("size");
    if (!sizes) return false;
    Expr given(1);
    int inferred = -1;
    for (size_t i = 0; i < sizes->size(); ++i) {
        if ((*sizes)[i] == Expr(-1))
            inferred = static_cast<int>(i);
        else
            given = given * (*sizes)[i];
    }
    Expr numel = c.table.resolve(shapes::product(self.sizes));
    if (inferred >= 0) {
        if (given == Expr(0)) return false;
        // the quotient has no remainder for the hint; nor for the sizes that the graph is used with
        (*sizes)[inferred] = shapes::floordiv(numel, given);
        c.table.assume({Relation::Eq, c.table.resolve((*sizes)[inferred] * given), numel});
    } else if (!shapes::known_eq(given, numel)) {
        c.table.unify(given, numel);
    }
    auto strides = ir::view_strides({ir::DType::F32, c.table.resolve(self.sizes), c.table.resolve(self.strides)},
                                    c.table.resolve(*sizes));
    if (!strides && ir::contiguous_strides(c.table.resolve(self.sizes)) == c.table.resolve(self.strides))
        strides = ir::contiguous_strides(c.table.resolve(*sizes));
    if (!strides) return false;
    out.push_back({*sizes, *strides, self.offset});
    return true;
}
bool expand(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const auto& self = c.operands[0].metadata;
    auto sizes = c.integers("size");
    if (!sizes || sizes->size() < self.sizes.size()) return false;
    SymbolicMetadata m{*sizes, Sizes(sizes->size(), Expr(0)), self.offset};
    size_t added = sizes->size() - self.sizes.size();
    for (size_t i = 0; i < sizes->size(); ++i) {
        if (i < added) continue;
        Expr from = c.table.resolve(self.sizes[i - added]);
        if ((*sizes)[i] == Expr(-1)) m.sizes[i] = from;
        if (c.table.is_one(from)) {
            // a size that stays 1 keeps its stride
            if (c.table.is_one(m.sizes[i])) m.strides[i] = self.strides[i - added];
            continue;
        }
        c.table.unify(m.sizes[i], from);
        m.strides[i] = self.strides[i - added];
    }
    out.push_back(std::move(m));
    return true;
}
bool permuted(const SymbolicMetadata& self, const std::vector<int>& order, std::vector<SymbolicMetadata>& out) {
    SymbolicMetadata m{{}, {}, self.offset};
    for (int axis : order) {
        m.sizes.push_back(self.sizes[axis]);
        m.strides.push_back(self.strides[axis]);
    }
    out.push_back(std::move(m));
    return true;
}
bool permute(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const auto& self = c.operands[0].metadata;
    auto dims = c.integers("dims");
    if (!dims) return false;
    std::vector<int> order;
    for (const Expr& d : *dims) {
        if (!d.is_const()) return false;
        order.push_back(
            static_cast<int>(d.value() < 0 ? d.value() + static_cast<int64_t>(self.sizes.size()) : d.value()));
    }
    return permuted(self, order, out);
}
bool transpose(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const auto& self = c.operands[0].metadata;
    std::vector<int> order;
    for (size_t i = 0; i < self.sizes.size(); ++i) order.push_back(static_cast<int>(i));
    auto a = c.axis("dim0", order.size()), b = c.axis("dim1", order.size());
    if (!a || !b) return false;
    std::swap(order[*a], order[*b]);
    return permuted(self, order, out);
}
bool t(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const auto& self = c.operands[0].metadata;
    return self.sizes.size() < 2 ? same_view(c, out) : permuted(self, {1, 0}, out);
}
bool unsqueeze(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    SymbolicMetadata m = c.operands[0].metadata;
    auto at = c.axis("dim", m.sizes.size() + 1);
    if (!at) return false;
    Expr stride = *at < static_cast<int>(m.sizes.size()) ? m.sizes[*at] * m.strides[*at] : Expr(1);
    m.sizes.insert(m.sizes.begin() + *at, Expr(1));
    m.strides.insert(m.strides.begin() + *at, stride);
    out.push_back(std::move(m));
    return true;
}
bool squeeze(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const auto& self = c.operands[0].metadata;
    std::vector<bool> chosen(self.sizes.size(), !c.arg("dim"));
    if (c.arg("dim")) {
        bool list = c.info.args[c.info.arg_index("dim")].form == Form::IntList;
        if (!list) {
            auto a = c.axis("dim", self.sizes.size());
            if (!a) return false;
            if (*a < static_cast<int>(chosen.size())) chosen[*a] = true;
        } else {
            for (const Expr& d : *c.integers("dim")) {
                int64_t k = d.value() < 0 ? d.value() + static_cast<int64_t>(chosen.size()) : d.value();
                if (k >= 0 && k < static_cast<int64_t>(chosen.size())) chosen[k] = true;
            }
        }
    }
    SymbolicMetadata m{{}, {}, self.offset};
    for (size_t i = 0; i < self.sizes.size(); ++i) {
        if (chosen[i] && c.table.is_one(self.sizes[i])) continue;
        m.sizes.push_back(self.sizes[i]);
        m.strides.push_back(self.strides[i]);
    }
    out.push_back(std::move(m));
    return true;
}
bool select(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    SymbolicMetadata m = c.operands[0].metadata;
    auto axis = c.axis("dim", m.sizes.size());
    auto index = c.integer("index");
    if (!axis || !index) return false;
    Expr size = c.table.resolve(m.sizes[*axis]), at = *index;
    if (c.table.decide({Relation::Lt, at, Expr(0)})) at = at + size;
    if (!c.table.decide({Relation::Lt, at, size}) || c.table.decide({Relation::Lt, at, Expr(0)})) return false;
    m.offset = m.offset + at * m.strides[*axis];
    m.sizes.erase(m.sizes.begin() + *axis);
    m.strides.erase(m.strides.begin() + *axis);
    out.push_back(std::move(m));
    return true;
}
bool slice(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    SymbolicMetadata m = c.operands[0].metadata;
    auto axis = c.axis("dim", m.sizes.size());
    auto step = c.integer("step");
    if (!axis || !step || !step->is_const()) return false;
    Expr size = c.table.resolve(m.sizes[*axis]);
    auto clamped = [&](std::optional<Expr> given, Expr otherwise) {
        if (!given) return otherwise;
        Expr e = *given;
        if (c.table.decide({Relation::Lt, e, Expr(0)})) e = e + size;
        if (c.table.decide({Relation::Lt, e, Expr(0)})) return Expr(0);
        return c.table.decide({Relation::Lt, size, e}) ? size : e;
    };
    Expr start = clamped(c.integer("start"), Expr(0)), end = clamped(c.integer("end"), size);
    if (c.table.decide({Relation::Lt, end, start})) end = start;
    m.sizes[*axis] = shapes::floordiv(end - start + *step - Expr(1), *step);
    m.offset = m.offset + start * m.strides[*axis];
    m.strides[*axis] = m.strides[*axis] * *step;
    out.push_back(std::move(m));
    return true;
}
// The axis that is cut, if its size is constant.
std::optional<int> constant_axis(const SymbolicCall& c) {
    const Sizes& sizes = c.operands[0].metadata.sizes;
    auto axis = c.axis("dim", sizes.size());
    return axis && c.table.resolve(sizes[*axis]).is_const() ? axis : std::nullopt;
}
bool pieces(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const auto& self = c.operands[0].metadata;
    auto axis = constant_axis(c);
    if (!axis) return false;
    Expr start(0);
    for (const at::Tensor& r : c.results) {
        SymbolicMetadata m = self;
        m.sizes[*axis] = Expr(r.size(*axis));
        m.offset = self.offset + start * self.strides[*axis];
        start = start + m.sizes[*axis];
        out.push_back(std::move(m));
    }
    return true;
}
bool unbind(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const auto& self = c.operands[0].metadata;
    auto axis = constant_axis(c);
    if (!axis) return false;
    for (size_t k = 0; k < c.results.size(); ++k) {
        SymbolicMetadata m = self;
        m.offset = self.offset + Expr(static_cast<int64_t>(k)) * self.strides[*axis];
        m.sizes.erase(m.sizes.begin() + *axis);
        m.strides.erase(m.strides.begin() + *axis);
        out.push_back(std::move(m));
    }
    return true;
}

// ---- reductions

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

// ---- products

bool matmul(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {  // mm, bmm, addmm, baddbmm
    size_t n = c.operands.size();
    const Sizes a = sizes_of(c, n - 2), b = sizes_of(c, n - 1);
    size_t batch = a.size() - 2;
    c.table.unify(a[batch + 1], b[batch]);
    Sizes sizes{a[batch], b[batch + 1]};
    if (batch == 1) {
        c.table.unify(a[0], b[0]);
        sizes.insert(sizes.begin(), a[0]);
    }
    if (n == 3) {
        auto all = broadcast(c, {&sizes_of(c, 0), &sizes});
        for (size_t i = 0; i < sizes.size(); ++i) c.table.unify((*all)[i], sizes[i]);
    }
    out.push_back(fresh(sizes));
    return true;
}
bool attention(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes q = sizes_of(c, 0), k = sizes_of(c, 1), v = sizes_of(c, 2);
    for (size_t i : {size_t{0}, size_t{1}}) {
        c.table.unify(q[i], k[i]);
        c.table.unify(q[i], v[i]);
    }
    c.table.unify(k[2], v[2]);
    c.table.unify(q[3], k[3]);
    c.table.unify(q[3], v[3]);
    if (c.operands.size() > 3) {
        const Sizes scores{q[0], q[1], q[2], k[2]};
        auto all = broadcast(c, {&sizes_of(c, 3), &scores});
        if (all->size() != 4) return false;
        for (size_t i = 0; i < 4; ++i) c.table.unify((*all)[i], scores[i]);
    }
    out.push_back(fresh(q));
    out.push_back(fresh({q[0], q[1], q[2]}));
    return true;
}
// Rank and channels of the hint; only the first axis, the batch, may be a symbol.
bool batched(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    for (size_t k = 0; k < c.operands.size(); ++k)
        for (size_t i = k == 0 ? 1 : 0; i < sizes_of(c, k).size(); ++i)
            if (!c.table.resolve(sizes_of(c, k)[i]).is_const()) return false;
    for (const at::Tensor& r : c.results) {
        if (!r.defined()) {
            out.push_back({});
            continue;
        }
        if (r.dim() == 0 || r.size(0) != c.operands[0].hint->size(0)) return false;
        Sizes sizes(r.sizes().begin(), r.sizes().end());
        sizes[0] = sizes_of(c, 0)[0];
        out.push_back(fresh(std::move(sizes)));
    }
    return true;
}
// Convolutions and pools: a window slides over the last axes.
bool windowed(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const bool convolution = c.info.callee == "aten::convolution";
    if (convolution ? c.boolean("transposed", false) : c.boolean("ceil_mode", false)) return batched(c, out);
    const Sizes x = c.table.resolve(sizes_of(c, 0));
    Sizes kernel;
    if (convolution)
        kernel.assign(sizes_of(c, 1).begin() + 2, sizes_of(c, 1).end());
    else if (auto k = c.integers("kernel_size"))
        kernel = *k;
    size_t rank = convolution ? kernel.size() : 2;
    if (x.size() != rank + 2 && (convolution || x.size() != rank + 1)) return false;
    auto list = [&](std::string_view name, int64_t otherwise) {
        Sizes v = c.integers(name).value_or(Sizes{});
        if (v.empty()) v.push_back(Expr(otherwise));
        if (v.size() == 1) v.resize(rank, v[0]);
        return v;
    };
    if (kernel.size() == 1) kernel.resize(rank, kernel[0]);
    Sizes stride = list("stride", 0), padding = list("padding", 0), dilation = list("dilation", 1);
    if (stride[0] == Expr(0)) stride = kernel;  // a pool's own default
    if (kernel.size() != rank || stride.size() != rank || padding.size() != rank || dilation.size() != rank)
        return false;
    Sizes sizes(x.begin(), x.end() - static_cast<std::ptrdiff_t>(rank));
    if (convolution) sizes.back() = c.table.resolve(sizes_of(c, 1)[0]);
    for (size_t i = 0; i < rank; ++i) {
        Expr room = x[x.size() - rank + i] + Expr(2) * padding[i] - dilation[i] * (kernel[i] - Expr(1)) - Expr(1);
        sizes.push_back(shapes::floordiv(room, stride[i]) + Expr(1));
    }
    for (const at::Tensor& r : c.results) {
        if (!r.defined()) return false;
        out.push_back(fresh(sizes));
    }
    return true;
}
bool topk(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    Sizes sizes = sizes_of(c, 0);
    auto axis = c.axis("dim", sizes.size());
    auto k = c.integer("k");
    if (!axis || !k) return false;
    sizes[*axis] = *k;
    out.push_back(fresh(sizes));
    out.push_back(fresh(sizes));
    return true;
}
bool batch_norm(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes& x = sizes_of(c, 0);
    for (size_t k = 1; k < c.operands.size(); ++k) c.table.unify(sizes_of(c, k).at(0), x[1]);
    out.push_back(fresh(x));
    for (size_t k = 1; k < c.results.size(); ++k) {
        if (c.results[k].dim() != 1) return false;
        out.push_back(fresh({c.results[k].size(0) == 0 ? Expr(0) : x[1]}));
    }
    return true;
}
bool layer_norm(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes x = sizes_of(c, 0);
    auto shape = c.integers("normalized_shape");
    if (!shape || shape->size() > x.size()) return false;
    Sizes outer = x;
    for (size_t i = 0; i < shape->size(); ++i) {
        size_t axis = x.size() - shape->size() + i;
        c.table.unify(x[axis], (*shape)[i]);
        outer[axis] = Expr(1);
    }
    out = {fresh(x), fresh(outer), fresh(outer)};
    return true;
}

// ---- structure and indexing

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
bool index(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes self = sizes_of(c, 0);
    std::vector<const Sizes*> indices;
    std::vector<int> places;
    for (size_t k = 1; k < c.operands.size(); ++k) {
        auto type = c.operands[k].hint->scalar_type();
        if (type == at::kBool || type == at::kByte) return false;
        indices.push_back(&c.operands[k].metadata.sizes);
        places.push_back(c.operands[k].pos);
    }
    auto all = broadcast(c, indices);
    bool adjacent = true;
    for (size_t k = 1; k < places.size(); ++k) adjacent &= places[k] == places[k - 1] + 1;
    Sizes sizes;
    if (!adjacent) sizes = *all;
    for (size_t i = 0; i < self.size(); ++i) {
        bool indexed = std::find(places.begin(), places.end(), static_cast<int>(i)) != places.end();
        if (!indexed)
            sizes.push_back(self[i]);
        else if (adjacent && static_cast<int>(i) == places[0])
            sizes.insert(sizes.end(), all->begin(), all->end());
    }
    out.push_back(fresh(std::move(sizes)));
    return true;
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

// ---- created

bool sized(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto sizes = c.integers("size");
    if (!sizes) return false;
    out.push_back(fresh(*sizes));
    return true;
}
bool range(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto end = c.integer("end");
    auto start = c.arg("start") ? c.integer("start") : std::optional<Expr>(0);
    auto step = c.arg("step") ? c.integer("step") : std::optional<Expr>(1);
    if (!start || !end || !step || !step->is_const() || step->value() <= 0) return false;
    if (c.table.decide({Relation::Lt, *end, *start})) return false;
    out.push_back(fresh({shapes::floordiv(*end - *start + *step - Expr(1), *step)}));
    return true;
}

const std::unordered_map<std::string, Rule>& rules() {
    static const std::unordered_map<std::string, Rule> table = {
        {"aten::_to_copy", like_first},
        {"aten::clone", like_first},
        {"aten::_softmax", like_first},
        {"aten::_log_softmax", like_first},
        {"aten::_softmax_backward_data", pointwise},
        {"aten::_log_softmax_backward_data", pointwise},
        {"aten::cumsum", like_first},
        {"aten::cumprod", like_first},
        {"aten::native_dropout", like_first},
        {"aten::tril", like_first},
        {"aten::triu", like_first},
        {"aten::zeros_like", like_first},
        {"aten::ones_like", like_first},
        {"aten::full_like", like_first},
        {"aten::empty_like", like_first},
        {"aten::rand_like", like_first},
        {"aten::randn_like", like_first},
        {"aten::flip", like_first},
        {"aten::roll", like_first},
        {"aten::sort", like_first},
        {"aten::sort.stable", like_first},
        {"aten::bernoulli", like_first},
        {"aten::bernoulli.p", like_first},
        {"aten::_transformer_encoder_layer_fwd", like_first},
        {"aten::copy_", pointwise},
        {"aten::fill_.Scalar", pointwise},
        {"aten::fill_.Tensor", pointwise},
        {"aten::zero_", pointwise},
        {"aten::masked_fill.Scalar", pointwise},
        {"aten::masked_fill.Tensor", pointwise},
        {"aten::where.self", pointwise},
        {"aten::masked_fill_.Scalar", pointwise},
        {"aten::masked_fill_.Tensor", pointwise},
        {"aten::floor_divide", pointwise},
        {"aten::topk", topk},
        {"aten::alias", same_view},
        {"aten::detach", same_view},
        {"aten::view", view},
        {"aten::_unsafe_view", view},
        {"aten::expand", expand},
        {"aten::permute", permute},
        {"aten::transpose.int", transpose},
        {"aten::t", t},
        {"aten::unsqueeze", unsqueeze},
        {"aten::squeeze", squeeze},
        {"aten::squeeze.dim", squeeze},
        {"aten::squeeze.dims", squeeze},
        {"aten::select.int", select},
        {"aten::slice.Tensor", slice},
        {"aten::split.Tensor", pieces},
        {"aten::split_with_sizes", pieces},
        {"aten::unbind.int", unbind},
        {"aten::sum", reduction},
        {"aten::sum.dim_IntList", reduction},
        {"aten::mean", reduction},
        {"aten::mean.dim", reduction},
        {"aten::amax", reduction},
        {"aten::amin", reduction},
        {"aten::max.dim", reduction},
        {"aten::min.dim", reduction},
        {"aten::max", reduction},
        {"aten::min", reduction},
        {"aten::argmax", reduction},
        {"aten::argmin", reduction},
        {"aten::any", reduction},
        {"aten::any.dim", reduction},
        {"aten::all", reduction},
        {"aten::all.dim", reduction},
        {"aten::prod", reduction},
        {"aten::prod.dim_int", reduction},
        {"aten::var.correction", reduction},
        {"aten::std.correction", reduction},
        {"aten::var_mean.correction", reduction},
        {"aten::logsumexp", reduction},
        {"aten::linalg_vector_norm", reduction},
        {"aten::mm", matmul},
        {"aten::bmm", matmul},
        {"aten::addmm", matmul},
        {"aten::baddbmm", matmul},
        {"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
        {"aten::convolution", windowed},
        {"aten::max_pool2d_with_indices", windowed},
        {"aten::avg_pool2d", windowed},
        {"aten::_adaptive_avg_pool2d", batched},
        {"aten::native_group_norm", batched},
        {"aten::upsample_nearest2d", batched},
        {"aten::upsample_bilinear2d", batched},
        {"aten::native_batch_norm", batch_norm},
        {"aten::native_layer_norm", layer_norm},
        {"aten::cat", cat},
        {"aten::stack", stack},
        {"aten::embedding", embedding},
        {"aten::gather", gather},
        {"aten::index_select", index_select},
        {"aten::index.Tensor", index},
        {"aten::constant_pad_nd", pad},
        {"aten::repeat", repeat},
        {"aten::zeros", sized},
        {"aten::ones", sized},
        {"aten::full", sized},
        {"aten::empty.memory_format", sized},
        {"aten::rand", sized},
        {"aten::randn", sized},
        {"aten::new_zeros", sized},
        {"aten::new_ones", sized},
        {"aten::new_full", sized},
        {"aten::new_empty", sized},
        {"aten::arange", range},
        {"aten::arange.start", range},
        {"aten::arange.start_step", range},
    };
    return table;
}

// The strides of a new dense tensor whose axes lie in memory as the hint's do; nullopt where the hint is not dense.
std::optional<Sizes> dense_strides(const SymbolTable& table, const Sizes& sizes, const at::Tensor& hint) {
    std::vector<int> order;
    for (int64_t i = hint.dim(); i-- > 0;) order.push_back(static_cast<int>(i));
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return hint.stride(a) < hint.stride(b); });
    // axes of size 1 may have any stride: they do not decide the order of the others
    Sizes strides(sizes.size(), Expr(1));
    Expr expected(1);
    for (int axis : order) {
        bool one = hint.size(axis) == 1;
        if (hint.stride(axis) == table.hint(expected))
            strides[axis] = expected;
        else if (one || hint.numel() == 0)
            strides[axis] = Expr(hint.stride(axis));
        else
            return std::nullopt;
        expected = expected * sizes[axis];
    }
    return strides;
}

bool agrees(const SymbolTable& table, const SymbolicMetadata& m, const at::Tensor& hint) {
    if (static_cast<int64_t>(m.sizes.size()) != hint.dim() || m.strides.size() != m.sizes.size()) return false;
    for (int64_t i = 0; i < hint.dim(); ++i) {
        if (table.hint(m.sizes[i]) != hint.size(i)) return false;
        if (hint.size(i) > 1 && hint.numel() > 0 && table.hint(m.strides[i]) != hint.stride(i)) return false;
    }
    return table.hint(m.offset) == hint.storage_offset();
}

}  // namespace

const SymbolicCall::Operand* SymbolicCall::tensor(std::string_view name) const {
    int k = info.arg_index(name);
    for (const Operand& o : operands)
        if (o.arg == k) return &o;
    return nullptr;
}
const c10::IValue* SymbolicCall::arg(std::string_view name) const {
    int k = info.arg_index(name);
    return k < 0 || args[k].isNone() ? nullptr : &args[k];
}
std::optional<Expr> SymbolicCall::integer(std::string_view name) const {
    const c10::IValue* v = arg(name);
    if (v && v->isInt()) return Expr(v->toInt());
    if (v && v->isSymInt()) return table.resolve(expr_of(v->toSymInt()));
    return std::nullopt;
}
std::optional<std::vector<Expr>> SymbolicCall::integers(std::string_view name) const {
    const c10::IValue* v = arg(name);
    if (!v || !v->isList()) return std::nullopt;
    std::vector<Expr> out;
    if (v->isIntList()) {
        for (int64_t x : v->toIntVector()) out.emplace_back(x);
        return out;
    }
    for (const c10::IValue& x : v->toListRef()) {
        if (x.isInt())
            out.emplace_back(x.toInt());
        else if (x.isSymInt())
            out.push_back(table.resolve(expr_of(x.toSymInt())));
        else
            return std::nullopt;
    }
    return out;
}
std::optional<int> SymbolicCall::axis(std::string_view name, size_t rank) const {
    const c10::IValue* v = arg(name);
    if (!v || !v->isInt()) return std::nullopt;
    int64_t n = static_cast<int64_t>(std::max<size_t>(rank, 1)), d = v->toInt();
    if (d < 0) d += n;
    return d >= 0 && d < n ? std::optional<int>(static_cast<int>(d)) : std::nullopt;
}
bool SymbolicCall::boolean(std::string_view name, bool otherwise) const {
    const c10::IValue* v = arg(name);
    return v && v->isBool() ? v->toBool() : otherwise;
}

std::optional<std::vector<SymbolicMetadata>> symbolic_results(SymbolicCall& c) {
    auto it = rules().find(c.info.callee);
    Rule rule = it != rules().end() ? it->second : c.info.pointwise ? pointwise : nullptr;
    std::vector<SymbolicMetadata> out;
    if (!rule || !rule(c, out) || out.size() != c.results.size()) return std::nullopt;
    for (size_t k = 0; k < out.size(); ++k) {
        SymbolicMetadata& m = out[k];
        const at::Tensor& hint = c.results[k];
        if (!hint.defined()) continue;
        m.sizes = c.table.resolve(m.sizes);
        m.strides = c.table.resolve(m.strides);
        m.offset = c.table.resolve(m.offset);
        if (static_cast<int64_t>(m.sizes.size()) != hint.dim()) return std::nullopt;
        if (m.strides.empty() && !m.sizes.empty()) {
            auto strides = dense_strides(c.table, m.sizes, hint);
            if (!strides) return std::nullopt;
            m.strides = std::move(*strides);
        }
        if (!agrees(c.table, m, hint)) return std::nullopt;
    }
    return out;
}

}  // namespace braze::bridge
