// Rules for products, convolutions, pools and normalisations.
#include "bridge/symbolic_rule.h"

#include <algorithm>

#include "core/ir/builder.h"
#include "core/support/error.h"

namespace braze::bridge::symbolic {

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
        const Sizes all = broadcast(c, {&sizes_of(c, 0), &sizes});
        for (size_t i = 0; i < sizes.size(); ++i) c.table.unify(all[i], sizes[i]);
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
        const Sizes all = broadcast(c, {&sizes_of(c, 3), &scores});
        if (all.size() != 4) return false;
        for (size_t i = 0; i < 4; ++i) c.table.unify(all[i], scores[i]);
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
    const bool transposed = convolution && c.boolean("transposed", false);
    if (!convolution && c.boolean("ceil_mode", false)) return batched(c, out);
    const Sizes x = c.table.resolve(sizes_of(c, 0));
    Sizes kernel;
    if (convolution)
        kernel.assign(sizes_of(c, 1).begin() + 2, sizes_of(c, 1).end());
    else if (auto k = c.integers("kernel_size"))
        kernel = *k;
    size_t rank = convolution ? kernel.size() : c.info.callee.find("3d") != std::string::npos ? 3 : 2;
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
    if (transposed) {
        auto groups = c.integer("groups");
        Sizes more = list("output_padding", 0);
        if (!groups || more.size() != rank) return false;
        sizes.back() = c.table.resolve(sizes_of(c, 1)[1]) * *groups;
        for (size_t i = 0; i < rank; ++i)
            sizes.push_back((x[2 + i] - Expr(1)) * stride[i] - Expr(2) * padding[i] +
                            dilation[i] * (kernel[i] - Expr(1)) + more[i] + Expr(1));
    }
    for (size_t i = 0; i < rank && !transposed; ++i) {
        Expr room = x[x.size() - rank + i] + Expr(2) * padding[i] - dilation[i] * (kernel[i] - Expr(1)) - Expr(1);
        sizes.push_back(shapes::floordiv(room, stride[i]) + Expr(1));
    }
    for (const at::Tensor& r : c.results) {
        if (!r.defined()) return false;
        out.push_back(fresh(sizes));
    }
    return true;
}
// The last axes get the sizes that are given.
bool resized(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    Sizes sizes = sizes_of(c, 0);
    auto given = c.integers("output_size");
    if (!given || given->size() >= sizes.size()) return false;
    std::copy(given->begin(), given->end(), sizes.end() - static_cast<std::ptrdiff_t>(given->size()));
    for (size_t k = 0; k < c.results.size(); ++k) out.push_back(fresh(sizes));
    return true;
}
bool columns(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {  // im2col
    const Sizes x = c.table.resolve(sizes_of(c, 0));
    auto kernel = c.integers("kernel_size"), dilation = c.integers("dilation"), padding = c.integers("padding"),
         stride = c.integers("stride");
    for (const auto* v : {&kernel, &dilation, &padding, &stride})
        if (!*v || (*v)->size() != 2) return false;
    if (x.size() != 4) return false;
    Expr places(1);
    for (size_t i = 0; i < 2; ++i) {
        const Expr room = x[2 + i] + Expr(2) * (*padding)[i] - (*dilation)[i] * ((*kernel)[i] - Expr(1)) - Expr(1);
        places = places * (shapes::floordiv(room, (*stride)[i]) + Expr(1));
    }
    out.push_back(fresh({x[0], x[1] * (*kernel)[0] * (*kernel)[1], places}));
    return true;
}
bool grid_sample(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes x = sizes_of(c, 0), grid = sizes_of(c, 1);
    if (x.size() < 3 || grid.size() != x.size()) return false;
    c.table.unify(x[0], grid[0]);
    Sizes sizes{x[0], x[1]};
    sizes.insert(sizes.end(), grid.begin() + 1, grid.end() - 1);
    out.push_back(fresh(std::move(sizes)));
    return true;
}
bool grid_gradients(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes *x = sizes_of(c, "input"), *grid = sizes_of(c, "grid");
    if (!x || !grid || c.results.size() != 2) return false;
    for (size_t k = 0; k < 2; ++k)
        out.push_back(c.results[k].defined() ? fresh(k == 0 ? *x : *grid) : SymbolicMetadata{});
    return true;
}
bool affine_grid(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto size = c.integers("size");
    const Sizes theta = sizes_of(c, 0);
    if (!size || (size->size() != 4 && size->size() != 5) || theta.empty()) return false;
    c.table.unify(theta[0], (*size)[0]);
    Sizes sizes{(*size)[0]};
    sizes.insert(sizes.end(), size->begin() + 2, size->end());
    sizes.push_back(Expr(static_cast<int64_t>(size->size()) - 2));
    out.push_back(fresh(std::move(sizes)));
    return true;
}
bool folded(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {  // col2im
    const Sizes x = sizes_of(c, 0);
    auto size = c.integers("output_size"), kernel = c.integers("kernel_size");
    if (!size || !kernel || size->size() != 2 || kernel->size() != 2 || x.size() != 3) return false;
    const Expr channels = c.table.resolve(shapes::floordiv(x[1], (*kernel)[0] * (*kernel)[1]));
    out.push_back(fresh({x[0], channels, (*size)[0], (*size)[1]}));
    return true;
}
bool transformed(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {  // fft
    Sizes sizes = sizes_of(c, 0);
    auto dims = c.integers("dim");
    if (!dims || dims->empty() || sizes.empty() || !dims->back().is_const()) return false;
    int64_t last = dims->back().value();
    Expr& size = sizes.at(last < 0 ? last + static_cast<int64_t>(sizes.size()) : last);
    if (c.arg("onesided") && c.boolean("onesided", false)) size = shapes::floordiv(size, Expr(2)) + Expr(1);
    if (auto given = c.integer("last_dim_size")) size = *given;
    out.push_back(fresh(std::move(sizes)));
    return true;
}
bool class_loss(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {  // nll_loss
    const Sizes x = sizes_of(c, 0), target = sizes_of(c, 1);
    auto reduced = c.integer("reduction");
    if (!reduced || x.size() < 2 || target.size() + 1 != x.size()) return false;
    c.table.unify(x[0], target[0]);
    for (size_t i = 1; i < target.size(); ++i) c.table.unify(x[i + 1], target[i]);
    out.push_back(fresh(*reduced == Expr(0) ? target : Sizes{}));
    out.push_back(fresh({}));
    return true;
}
bool group_norm(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes x = sizes_of(c, 0);
    auto n = c.integer("N"), groups = c.integer("group"), channels = c.integer("C");
    if (!n || !groups || !channels || x.size() < 2) return false;
    c.table.unify(x[0], *n);
    c.table.unify(x[1], *channels);
    for (std::string_view name : {"weight", "bias"})
        if (const Sizes* s = sizes_of(c, name)) c.table.unify(s->at(0), *channels);
    out = {fresh(x), fresh({*n, *groups}), fresh({*n, *groups})};
    return true;
}
// The gradients of an operator's input, weight and bias, those of them that are asked for.
bool norm_gradients(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes *input = sizes_of(c, "input"), *weight = sizes_of(c, "weight");
    if (!input || input->size() < 2) return false;
    Sizes scale{(*input)[1]};  // of a channel
    if (auto shape = c.integers("normalized_shape")) scale = *shape;
    if (weight) scale = *weight;
    for (size_t k = 0; k < c.results.size(); ++k)
        out.push_back(c.results[k].defined() ? fresh(k == 0 ? *input : scale) : SymbolicMetadata{});
    return true;
}
bool convolution_gradients(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    const Sizes *input = sizes_of(c, "input"), *weight = sizes_of(c, "weight"), *grad = sizes_of(c, "grad_output");
    if (!input || !weight || !grad || grad->size() < 2) return false;
    const Sizes* of[] = {input, weight};
    for (size_t k = 0; k < c.results.size(); ++k)
        out.push_back(c.results[k].defined() ? fresh(k < 2 ? *of[k] : Sizes{(*grad)[1]}) : SymbolicMetadata{});
    return true;
}
bool embedding_gradient(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    auto rows = c.integer("num_weights");
    if (!rows || sizes_of(c, 0).empty()) return false;
    out.push_back(fresh({*rows, sizes_of(c, 0).back()}));
    return true;
}
bool attention_gradients(SymbolicCall& c, std::vector<SymbolicMetadata>& out) {
    for (std::string_view name : {"query", "key", "value"}) {
        const Sizes* s = sizes_of(c, name);
        if (!s) return false;
        out.push_back(fresh(*s));
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

}  // namespace braze::bridge::symbolic
