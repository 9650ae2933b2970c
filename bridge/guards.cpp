#include "bridge/guards.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "bridge/gil.h"

namespace braze::bridge {

c10::SmallVector<StrideRule, 5> stride_rules(c10::IntArrayRef sizes, c10::IntArrayRef strides, uint64_t dynamic) {
    c10::SmallVector<StrideRule, 5> rules;
    for (int64_t s : strides) rules.push_back({s, -1});
    if (dynamic == 0) return rules;
    std::vector<int> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return strides[a] != strides[b] ? strides[a] < strides[b] : a > b; });
    // Follow the axes from the innermost: while each stride is the previous extent times the previous stride it depends
    // on the sizes.
    bool depends = false;
    for (size_t k = 0; k + 1 < order.size(); ++k) {
        int inner = order[k], outer = order[k + 1];
        depends |= (dynamic >> inner) & 1;
        if (strides[inner] == 0 || strides[outer] != sizes[inner] * strides[inner]) {
            depends = false;
            continue;
        }
        if (depends) rules[outer].from = inner;
    }
    return rules;
}

// Read without the dispatcher: this is part of a guard.
const char* gradient_obstacle(const c10::TensorImpl& t, frontend::GradientUse use) {
    if (use == frontend::GradientUse::None || !t.requires_grad()) return nullptr;
    const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(t.autograd_meta());
    if (!meta) return nullptr;
    if (!meta->hooks_.empty() || meta->post_acc_grad_hooks_ || meta->retains_grad_)
        return "a hook of a tensor from before";
    if (meta->grad_dtype_ || meta->allow_grad_dtype_mismatch_) return "a dtype of its own for the gradient of a tensor";
    if (use == frontend::GradientUse::Captured) return nullptr;
    // (the gradient function of a view is brought up to date when it is asked for)
    if (meta->grad_fn_ || (meta->is_view_ && !meta->requires_grad_))
        return "the graph goes on before the compiled function";
    if (meta->grad_accumulator_.expired()) return nullptr;
    auto node = meta->grad_accumulator_.lock();
    if (node && (!node->pre_hooks().empty() || !node->post_hooks().empty())) return "a hook of a tensor from before";
    return nullptr;
}

namespace {

class Guard final : public frontend::TensorGuard {
  public:
    Guard(PyObject* real, uint64_t dynamic_dims, frontend::GradientUse use)
        : type_(Py_TYPE(real)), dynamic_(dynamic_dims), use_(use) {
        Py_INCREF(type_);
        const at::Tensor& t = THPVariable_Unpack(real);
        keys_ = t.key_set();
        dtype_ = t.dtype();
        device_ = t.device();
        requires_grad_ = t.requires_grad();
        sizes_.assign(t.sizes().begin(), t.sizes().end());
        strides_.assign(t.strides().begin(), t.strides().end());
        rules_ = stride_rules(sizes_, strides_, dynamic_);
    }
    ~Guard() override {
        Gil gil;
        Py_DECREF(type_);
    }

    bool check(PyObject* value) const override {
        if (Py_TYPE(value) != type_) return false;
        const c10::TensorImpl* t = reinterpret_cast<THPVariable*>(value)->cdata.unsafeGetTensorImpl();
        return t->key_set() == keys_ && t->dtype() == dtype_ && t->requires_grad() == requires_grad_ &&
               t->device() == device_ && same_shape(*t) &&
               (use_ == frontend::GradientUse::None || !gradient_obstacle(*t, use_));
    }

    std::string explain(PyObject* value) const override {
        std::ostringstream out;
        if (Py_TYPE(value) != type_) {
            out << "type: expected " << type_->tp_name << ", got " << Py_TYPE(value)->tp_name;
            return out.str();
        }
        const at::Tensor& t = THPVariable_Unpack(value);
        auto differs = [&](const char* what, const auto& expected, const auto& got) {
            if (out.tellp() == 0 && !(expected == got)) out << what << ": expected " << expected << ", got " << got;
        };
        if (!t.defined()) return "tensor without a value";
        differs("dtype", c10::typeMetaToScalarType(dtype_), t.scalar_type());
        differs("device", device_, t.device());
        auto flag = [](bool b) { return b ? "True" : "False"; };
        differs("requires_grad", std::string(flag(requires_grad_)), std::string(flag(t.requires_grad())));
        differs("dispatch keys", c10::toString(keys_), c10::toString(t.key_set()));
        if (out.tellp() > 0) return out.str();
        differs("rank", static_cast<int64_t>(sizes_.size()), t.dim());
        for (int64_t i = 0; out.tellp() == 0 && i < t.dim(); ++i) {
            if (is_dynamic(i)) {
                if (t.size(i) < 2) out << "size " << i << ": expected at least 2, got " << t.size(i);
            } else if (t.size(i) != sizes_[i]) {
                out << "size " << i << ": expected " << sizes_[i] << ", got " << t.size(i);
            }
        }
        if (out.tellp() == 0 && !same_shape(*t.unsafeGetTensorImpl()))
            out << "strides: expected " << c10::IntArrayRef(strides_) << ", got " << t.strides();
        if (const char* obstacle = gradient_obstacle(*t.unsafeGetTensorImpl(), use_); obstacle && out.tellp() == 0)
            out << "gradient: " << obstacle;
        return out.str();
    }

    std::string text() const override {
        std::ostringstream out;
        out << type_->tp_name << '(' << c10::typeMetaToScalarType(dtype_) << ", [";
        for (size_t i = 0; i < sizes_.size(); ++i) {
            out << (i ? ", " : "");
            if (is_dynamic(i))
                out << "s>=2";
            else
                out << sizes_[i];
        }
        out << "], strides " << c10::IntArrayRef(strides_) << ", " << device_
            << (requires_grad_ ? ", requires_grad" : "")
            << (use_ == frontend::GradientUse::None ? "" : ", without hooks") << ')';
        return out.str();
    }

    uint64_t changed_dims(PyObject* value) const override {
        if (Py_TYPE(value) != type_) return 0;
        const at::Tensor& t = THPVariable_Unpack(value);
        if (!t.defined() || t.key_set() != keys_ || t.dtype() != dtype_ || t.requires_grad() != requires_grad_ ||
            t.device() != device_ || t.dim() != static_cast<int64_t>(sizes_.size()))
            return 0;
        uint64_t bits = 0;
        for (size_t i = 0; i < sizes_.size() && i < 64; ++i)
            if (t.sizes()[i] != sizes_[i]) bits |= uint64_t{1} << i;
        // the layout must be the same function of the sizes
        auto rules = stride_rules(sizes_, strides_, bits);
        for (size_t i = 0; i < sizes_.size(); ++i) {
            int from = rules[i].from;
            int64_t wanted = from < 0 ? rules[i].constant : t.sizes()[from] * t.strides()[from];
            if (t.sizes()[i] > 1 && t.strides()[i] != wanted) return 0;
        }
        return bits;
    }

  private:
    bool is_dynamic(size_t i) const { return i < 64 && ((dynamic_ >> i) & 1); }
    bool same_shape(const c10::TensorImpl& t) const {
        c10::IntArrayRef sizes = t.sizes(), strides = t.strides();
        if (sizes.size() != sizes_.size()) return false;
        for (size_t i = 0; i < sizes.size(); ++i)
            if (is_dynamic(i) ? sizes[i] < 2 : sizes[i] != sizes_[i]) return false;
        for (size_t i = 0; i < sizes.size(); ++i) {
            if (sizes[i] <= 1) continue;
            int from = rules_[i].from;
            if (strides[i] != (from < 0 ? rules_[i].constant : sizes[from] * strides[from])) return false;
        }
        return true;
    }

    PyTypeObject* type_;
    uint64_t dynamic_;
    frontend::GradientUse use_;
    c10::DispatchKeySet keys_;
    caffe2::TypeMeta dtype_;
    c10::Device device_{c10::DeviceType::CPU};
    bool requires_grad_;
    c10::DimVector sizes_, strides_;
    c10::SmallVector<StrideRule, 5> rules_;
};

}  // namespace

std::unique_ptr<frontend::TensorGuard> make_tensor_guard(PyObject* real, uint64_t dynamic_dims,
                                                         frontend::GradientUse use) {
    return std::make_unique<Guard>(real, dynamic_dims, use);
}

}  // namespace braze::bridge
