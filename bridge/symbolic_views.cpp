// Rules for views.
#include "bridge/symbolic_rule.h"

#include <algorithm>

#include "core/ir/builder.h"
#include "core/support/error.h"

namespace braze::bridge::symbolic {

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
static bool permuted(const SymbolicMetadata& self, const std::vector<int>& order, std::vector<SymbolicMetadata>& out) {
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
bool split(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const auto& self = c.operands[0].metadata;
    auto axis = c.axis("dim", self.sizes.size());
    auto piece = c.integer("split_size");
    if (!axis || !piece || c.results.empty() || !c.table.decide({Relation::Lt, Expr(0), *piece})) return false;
    const Expr size = c.table.resolve(self.sizes[*axis]), last(static_cast<int64_t>(c.results.size()) - 1);
    // as many pieces as now: all but the last are whole
    const Expr start = last * *piece;
    if (!c.table.decide({Relation::Lt, start, size}) || c.table.decide({Relation::Lt, start + *piece, size}))
        return false;
    for (size_t k = 0; k < c.results.size(); ++k) {
        SymbolicMetadata m = self;
        const Expr at = Expr(static_cast<int64_t>(k)) * *piece;
        m.sizes[*axis] = k + 1 < c.results.size() ? *piece : size - at;
        m.offset = self.offset + at * self.strides[*axis];
        out.push_back(std::move(m));
    }
    return true;
}
bool split_sizes(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const auto& self = c.operands[0].metadata;
    auto axis = c.axis("dim", self.sizes.size());
    auto pieces = c.integers("split_sizes");
    if (!axis || !pieces || pieces->size() != c.results.size()) return false;
    Expr start(0);
    for (const Expr& piece : *pieces) {
        SymbolicMetadata m = self;
        m.sizes[*axis] = piece;
        m.offset = self.offset + start * self.strides[*axis];
        start = start + piece;
        out.push_back(std::move(m));
    }
    c.table.unify(start, self.sizes[*axis]);
    return true;
}
bool windows(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {  // Tensor.unfold
    SymbolicMetadata m = c.operands[0].metadata;
    auto axis = c.axis("dimension", m.sizes.size());
    auto size = c.integer("size"), step = c.integer("step");
    if (!axis || !size || !step || m.sizes.empty() || !step->is_const() || step->value() <= 0) return false;
    const Expr all = c.table.resolve(m.sizes[*axis]);
    if (c.table.decide({Relation::Lt, all, *size})) return false;
    m.sizes[*axis] = shapes::floordiv(all - *size, *step) + Expr(1);
    m.sizes.push_back(*size);
    m.strides.push_back(m.strides[*axis]);
    m.strides[*axis] = m.strides[*axis] * *step;
    out.push_back(std::move(m));
    return true;
}
bool real_pairs(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {  // view_as_real
    SymbolicMetadata m = c.operands[0].metadata;
    for (Expr& s : m.strides) s = s * Expr(2);
    m.offset = m.offset * Expr(2);
    m.sizes.emplace_back(2);
    m.strides.emplace_back(1);
    out.push_back(std::move(m));
    return true;
}
bool complex_pairs(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {  // view_as_complex
    SymbolicMetadata m = c.operands[0].metadata;
    if (m.sizes.empty() || !c.table.resolve(m.offset).is_const() || m.offset.value() % 2) return false;
    m.sizes.pop_back();
    m.strides.pop_back();
    for (Expr& s : m.strides) s = c.table.resolve(shapes::floordiv(s, Expr(2)));
    m.offset = Expr(m.offset.value() / 2);
    out.push_back(std::move(m));
    return true;
}
bool diagonal(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const SymbolicMetadata& self = c.operands[0].metadata;
    auto a = c.axis("dim1", self.sizes.size()), b = c.axis("dim2", self.sizes.size());
    auto offset = c.integer("offset");
    if (!a || !b || *a == *b || !offset || !offset->is_const()) return false;
    const Expr down(std::max<int64_t>(-offset->value(), 0)), right(std::max<int64_t>(offset->value(), 0));
    const Expr rows = self.sizes[*a] - down, columns = self.sizes[*b] - right;
    const Expr length = c.table.decide({Relation::Lt, columns, rows}) ? columns : rows;
    if (!c.table.decide({Relation::Lt, Expr(0), length})) return false;
    SymbolicMetadata m{{}, {}, self.offset + down * self.strides[*a] + right * self.strides[*b]};
    for (size_t i = 0; i < self.sizes.size(); ++i) {
        if (static_cast<int>(i) == *a || static_cast<int>(i) == *b) continue;
        m.sizes.push_back(self.sizes[i]);
        m.strides.push_back(self.strides[i]);
    }
    m.sizes.push_back(length);
    m.strides.push_back(self.strides[*a] + self.strides[*b]);
    out.push_back(std::move(m));
    return true;
}
bool unbind(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const auto& self = c.operands[0].metadata;
    auto axis = c.axis("dim", self.sizes.size());
    if (!axis) return false;
    c.table.fix(self.sizes[*axis]);  // as many results as now
    for (size_t k = 0; k < c.results.size(); ++k) {
        SymbolicMetadata m = self;
        m.offset = self.offset + Expr(static_cast<int64_t>(k)) * self.strides[*axis];
        m.sizes.erase(m.sizes.begin() + *axis);
        m.strides.erase(m.strides.begin() + *axis);
        out.push_back(std::move(m));
    }
    return true;
}

}  // namespace braze::bridge::symbolic
