// The pass `layout`: convolutions run on images whose channels lie innermost in memory.
//
// Eager's images are planes, one per channel, unless the program says otherwise. Its convolutions rearrange such images
// before they start and again when they are done; on images with the channels innermost they do neither. But the
// weights, which are rearranged in any case, cost more then. So a convolution of a large image by small weights gets
// its image in that layout and says so of its result, and what is computed from the result element by element, up to
// the next convolution, has that layout too. A value whose layout is eager's (an output, an operand of another Call) is
// copied back; the schedule drops the copies that nobody needs. Their gradients follow: where the image of a
// convolution has that layout, the gradient of its result gets it too, and those that come out have it.
//
// The `twin` of a value has the same elements and another layout. A value gets one if its memory is never written in
// place.
#include <algorithm>
#include <unordered_map>

#include "core/ir/builder.h"
#include "core/ir/op.h"
#include "core/passes/memory.h"
#include "core/passes/pass.h"

namespace braze::passes {

namespace {

using ir::Builder;
using ir::DType;
using ir::Expr;
using ir::Node;
using ir::Op;
using ir::OpKind;
using ir::Sizes;
using ir::Value;

Sizes channels_last(const Sizes& s) { return {s[1] * s[2] * s[3], Expr(1), s[1] * s[3], s[1]}; }

bool is_image(const ir::TensorType& t) { return t.rank() == 4 && !ir::has_zero_size(t); }
bool is_channels_last(const ir::TensorType& t) { return is_image(t) && t.strides == channels_last(t.sizes); }

// Planes, and another layout would be a different one.
bool is_planes(const ir::TensorType& t) {
    return is_image(t) && ir::is_contiguous(t) && t.sizes[1] != Expr(1) &&
           !(t.sizes[2] == Expr(1) && t.sizes[3] == Expr(1));
}

// Calls whose results have the layout of their first operand, all of them images.
bool follows_operand(const Node& n) {
    return n.callee == "aten::max_pool2d_with_indices" || n.callee == "aten::upsample_bilinear2d";
}

bool has_fast_layout(const Node& n, DType d) {
    const bool* transposed = n.get<bool>("transposed");
    return transposed && !*transposed && (d == DType::F32 || d == DType::BF16);
}
bool is_convolution(const Node& n) {
    return n.callee == "aten::convolution" && n.operands.size() >= 2 && has_fast_layout(n, n.results[0]->type.dtype);
}

// Calls of a gradient and of the image that the forward operator had, all of whose results that are images (the
// gradients of an image and of weights) have that image's layout.
bool is_gradient(const Node& n) {
    if (n.operands.size() < 3 || !is_image(n.operands[0]->type)) return false;
    return n.callee == "aten::max_pool2d_with_indices_backward" ||
           (n.callee == "aten::convolution_backward" && has_fast_layout(n, n.operands[0]->type.dtype));
}

// So many elements of the image and the result for each of the weights.
constexpr int64_t kImageElements = 2;
constexpr int64_t kUnknownSize = 32;

int64_t elements(const ir::TensorType& t) {
    int64_t n = 1;
    for (const Expr& s : t.sizes) n *= s.as_const().value_or(kUnknownSize);
    return n;
}
bool is_worth_it(const Node& n) {
    return elements(n.operands[0]->type) + elements(n.results[0]->type) >=
           kImageElements * elements(n.operands[1]->type);
}

class Layout {
  public:
    explicit Layout(const ir::Graph& g) : memory_(g), values_(g.id_bound()) {}

    bool visit(Node& n, Builder& b) {
        if (n.op == Op::Call) return call(n, b);
        if (twins_.empty() || n.results.size() != 1 || written(n.results[0])) {
            if (n.op == Op::VarMean) n.operands = swapped(n);
            return false;
        }
        if (ir::kind(n.op) == OpKind::View) return view(n, b);
        std::vector<Value*> operands = swapped(n);
        Value* r = n.results[0];
        const auto moves = [](const Value* v) { return is_channels_last(v->type); };
        const bool same_place = ir::is_elementwise(n.op) || n.op == Op::Pad || n.op == Op::Cat;
        if (!same_place || !is_planes(r->type) || operands == n.operands ||
            std::none_of(operands.begin(), operands.end(), moves)) {
            n.operands = std::move(operands);
            return false;
        }
        become(r, Builder::with_strides(b.repeat(n, std::move(operands))->results[0], channels_last(r->type.sizes)), b);
        return true;
    }

  private:
    bool written(const Value* v) const { return v->id < values_ && memory_.written(v); }
    Value* twin(Value* v) const {
        auto it = twins_.find(v);
        return it == twins_.end() ? nullptr : it->second;
    }
    std::vector<Value*> swapped(const Node& n) const {
        std::vector<Value*> operands = n.operands;
        for (Value*& v : operands)
            if (Value* t = twin(v)) v = t;
        return operands;
    }

    // r, whose node goes, is a copy of t.
    void become(Value* r, Value* t, Builder& b) {
        Value* copy = b.copy(t, r->type.strides);
        copy->storage = r->storage;
        copy->name = r->name;
        twins_[copy] = t;
        b.replace(r, copy);
    }

    // v, or what has its elements with the channels innermost.
    Value* channels_last_twin(Value* v) const {
        if (is_channels_last(v->type)) return v;
        Value* t = twin(v);
        return t && is_channels_last(t->type) ? t : nullptr;
    }

    // The forward operator had its image in the new layout.
    bool gradient(Node& n, Builder& b) {
        if (!is_pure(n) || !n.aliases.empty() || !is_planes(n.operands[1]->type)) return false;
        std::vector<Value*> operands = n.operands;
        for (Value* v : operands)
            if (written(v)) return false;
        for (const Value* r : n.results)
            if (written(r)) return false;
        operands[1] = channels_last_twin(n.operands[1]);
        if (!operands[1]) return false;
        if (n.callee != "aten::convolution_backward") {  // a pool's indices have a twin; weights stay as they are
            operands[2] = channels_last_twin(n.operands[2]);
            if (!operands[2]) return false;
        }
        operands[0] = channels_last_twin(n.operands[0]);
        if (!operands[0])
            operands[0] = twins_[n.operands[0]] = b.copy(n.operands[0], channels_last(n.operands[0]->type.sizes));
        Node* made = b.repeat(n, std::move(operands));
        for (size_t i = 0; i < n.results.size(); ++i) {
            Value *r = n.results[i], *t = made->results[i];
            if (is_planes(r->type)) {
                become(r, Builder::with_strides(t, channels_last(t->type.sizes)), b);
            } else {
                t->storage = r->storage;
                t->name = r->name;
                b.replace(r, t);
            }
        }
        return true;
    }

    bool call(Node& n, Builder& b) {
        if (is_gradient(n)) return gradient(n, b);
        if (!is_pure(n) || !n.aliases.empty() || n.operands.empty() || written(n.operands[0])) return false;
        for (const Value* r : n.results)
            if (written(r) || !is_planes(r->type)) return false;
        Value* x = n.operands[0];
        Value* image = twin(x);
        if (image && !is_channels_last(image->type)) image = nullptr;
        if (is_convolution(n) ? !is_worth_it(n) : !follows_operand(n)) return false;
        if (!image && (!is_convolution(n) || !is_planes(x->type))) return false;
        if (!image) twins_[x] = image = b.copy(x, channels_last(x->type.sizes));
        std::vector<Value*> operands = n.operands;
        operands[0] = image;
        Node* made = b.repeat(n, std::move(operands));
        for (size_t i = 0; i < n.results.size(); ++i) {
            Value* t = made->results[i];
            become(n.results[i], Builder::with_strides(t, channels_last(t->type.sizes)), b);
        }
        return true;
    }

    // The same view of the twin, where it is one.
    bool view(Node& n, Builder& b) {
        Value *t = twin(n.operands[0]), *r = n.results[0];
        if (!t) return false;
        switch (n.op) {
            case Op::Permute: twins_[r] = b.permute(t, ir::to_ints(*n.get<Sizes>("dims"))); break;
            case Op::Expand: twins_[r] = b.expand(t, r->type.sizes); break;
            case Op::Slice:
                twins_[r] = b.slice(t, *n.get<Sizes>("starts"), *n.get<Sizes>("steps"), r->type.sizes);
                break;
            case Op::Reshape:
                if (ir::view_strides(t->type, r->type.sizes)) twins_[r] = b.reshape(t, r->type.sizes);
                break;
            default: break;
        }
        return false;
    }

    Memory memory_;
    int values_;  // ids below this were there before the pass
    std::unordered_map<const Value*, Value*> twins_;
};

}  // namespace

bool choose_layouts(ir::Graph& g, Context&) {
    if (std::none_of(g.nodes.begin(), g.nodes.end(), [](const Node* n) { return is_convolution(*n); })) return false;
    Layout layout(g);
    return ir::rewrite(g, [&](Node* n, Builder& b) { return layout.visit(*n, b); });
}

}  // namespace braze::passes
