#include "bridge/fake.h"

#include "bridge/living_fakes.h"

namespace braze::bridge {

namespace {
void (*g_data_replaced)() = nullptr;

c10::DispatchKeySet fake_keys(const at::Tensor& meta) {
    // Autocast looks at the key set, not at the device.
    c10::DispatchKeySet keys({c10::DispatchKey::Meta, c10::DispatchKey::AutogradMeta, c10::DispatchKey::ADInplaceOrView,
                              c10::DispatchKey::AutocastCPU});
    c10::DispatchKeySet bits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
    return keys | (meta.key_set() & bits);
}

PyTypeObject* tensor_class() { return reinterpret_cast<PyTypeObject*>(THPVariableClass); }

bool overrides(PyTypeObject* type, const char* name) {
    PyObject* mine = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name);
    PyObject* base = PyObject_GetAttrString(THPVariableClass, name);
    auto function = [](PyObject* o) { return o && PyMethod_Check(o) ? PyMethod_GET_FUNCTION(o) : o; };
    bool differs = function(mine) != function(base);
    Py_XDECREF(mine);
    Py_XDECREF(base);
    PyErr_Clear();
    return differs;
}
}  // namespace

void set_data_replaced_handler(void (*handler)()) { g_data_replaced = handler; }

FakeStorage::FakeStorage(int alias_set, size_t bytes)
    : StorageImpl(use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)),
                  at::DataPtr(nullptr, c10::Device(c10::DeviceType::Meta)), c10::GetAllocator(c10::DeviceType::Meta),
                  true),
      alias_set(alias_set) {
    release_data_and_set_meta_custom_data_ptr_error_msg_(
        std::string("the data of a tensor was read while its program was being traced"));
}

FakeImpl::FakeImpl(const at::Tensor& meta, c10::Device device, int value, uint64_t epoch)
    : TensorImpl(c10::Storage(meta.storage()), fake_keys(meta), meta.dtype()),
      twin_(meta),
      device_(device),
      value_(value),
      epoch_(epoch) {
    set_sizes_and_strides(meta.sizes(), meta.strides(), meta.storage_offset());
    set_custom_device(true);
    if (!device.is_cpu()) key_set_ = key_set_.remove(c10::DispatchKey::AutocastCPU);
    watched_ = watch_fake(this);
}

FakeImpl::~FakeImpl() {
    if (watched_) forget_fake(this);
}
void FakeImpl::release_resources() {
    if (watched_) forget_fake(this);
    watched_ = false;
    TensorImpl::release_resources();
}

void FakeImpl::rebind(const at::Tensor& meta, int value) {
    twin_ = meta;
    value_ = value;
    symbols_ = nullptr;
    set_custom_sizes_strides(SizesStridesPolicy::Default);
    set_storage_keep_dtype(meta.storage());
    set_sizes_and_strides(meta.sizes(), meta.strides(), meta.storage_offset());
}

void FakeImpl::set_symbolic(Symbols symbols, SymbolicMetadata metadata) {
    if (metadata.constant()) return;
    symbols_ = std::move(symbols);
    symbolic_ = std::move(metadata);
    sym_version_ = -1;
    set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
}

void FakeImpl::refresh_sym_ints() const {
    if (sym_version_ == symbols_->version()) return;
    sym_sizes_.clear();
    sym_strides_.clear();
    for (const Expr& e : symbolic_.sizes) sym_sizes_.push_back(sym_int(symbols_, e));
    for (const Expr& e : symbolic_.strides) sym_strides_.push_back(sym_int(symbols_, e));
    sym_version_ = symbols_->version();
}
void FakeImpl::fix(const std::vector<Expr>& es) const {
    for (const Expr& e : es) symbols_->fix(e);
}
c10::IntArrayRef FakeImpl::sizes_custom() const {
    fix(symbolic_.sizes);
    return sizes_default();
}
c10::IntArrayRef FakeImpl::strides_custom() const {
    fix(symbolic_.strides);
    return strides_default();
}
int64_t FakeImpl::size_custom(int64_t d) const {
    d = c10::maybe_wrap_dim(d, dim_default());
    symbols_->fix(symbolic_.sizes[d]);
    return sizes_default()[d];
}
int64_t FakeImpl::numel_custom() const {
    fix(symbolic_.sizes);
    return numel_default();
}
int64_t FakeImpl::storage_offset_custom() const {
    symbols_->fix(symbolic_.offset);
    return storage_offset_default();
}
c10::SymIntArrayRef FakeImpl::sym_sizes_custom() const {
    refresh_sym_ints();
    return sym_sizes_;
}
c10::SymIntArrayRef FakeImpl::sym_strides_custom() const {
    refresh_sym_ints();
    return sym_strides_;
}
c10::SymInt FakeImpl::sym_numel_custom() const {
    return sym_int(symbols_, shapes::product(symbols_->resolve(symbolic_.sizes)));
}
c10::SymInt FakeImpl::sym_storage_offset_custom() const { return sym_int(symbols_, symbolic_.offset); }
c10::SymBool FakeImpl::sym_is_contiguous_custom(at::MemoryFormat format) const {
    std::vector<int> order;
    if (format == at::MemoryFormat::ChannelsLast) {
        if (dim_default() != 4) return false;
        order = {1, 3, 2, 0};
    } else if (format == at::MemoryFormat::ChannelsLast3d) {
        if (dim_default() != 5) return false;
        order = {1, 4, 3, 2, 0};
    } else {
        for (int64_t i = dim_default(); i-- > 0;) order.push_back(static_cast<int>(i));
    }
    return has_dense_layout(*symbols_, symbolic_.sizes, symbolic_.strides, order);
}
bool FakeImpl::is_strides_like_custom(at::MemoryFormat format) const {
    int64_t rank = format == at::MemoryFormat::ChannelsLast ? 4 : format == at::MemoryFormat::ChannelsLast3d ? 5 : -1;
    return rank == dim_default() && is_channels_last_like(*symbols_, symbolic_.sizes, symbolic_.strides);
}
c10::SymBool FakeImpl::sym_is_non_overlapping_and_dense_custom() const {
    return is_dense_in_some_order(*symbols_, symbolic_.sizes, symbolic_.strides);
}

c10::intrusive_ptr<c10::TensorImpl> FakeImpl::shallow_copy_and_detach(const c10::VariableVersion& version,
                                                                      bool allow) const {
    auto copy = c10::make_intrusive<FakeImpl>(twin_, device_, value_, epoch_);
    copy->key_set_ = key_set_;
    if (symbols_) copy->set_symbolic(symbols_, symbolic_);
    if (!copy->key_set_.has(c10::DispatchKey::ADInplaceOrView)) return copy;
    copy->set_version_counter(version);
    copy->set_allow_tensor_metadata_change(allow);
    return copy;
}

c10::intrusive_ptr<c10::TensorImpl> FakeImpl::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                      bool allow) const {
    const c10::VariableVersion& same = version;
    return shallow_copy_and_detach(same, allow);
}

void FakeImpl::shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) {
    FakeImpl* other = as_fake(impl.get());
    if ((input_ || !other) && g_data_replaced) g_data_replaced();
    TORCH_CHECK(other, "the data of a traced tensor was replaced by that of another kind of tensor");
    rebind(other->twin_, other->value_);
    if (other->symbols_) set_symbolic(other->symbols_, other->symbolic_);
    device_ = other->device_;
}

size_t reach_bytes(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, size_t item) {
    int64_t last = offset;
    for (size_t i = 0; i < sizes.size(); ++i) {
        if (sizes[i] == 0) return static_cast<size_t>(offset) * item;
        last += (sizes[i] - 1) * strides[i];
    }
    return static_cast<size_t>(last + 1) * item;
}

at::Tensor plain_meta(c10::Storage storage, caffe2::TypeMeta dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      int64_t offset) {
    auto impl =
        c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::Meta), dtype);
    impl->set_sizes_and_strides(sizes, strides, offset);
    return at::Tensor(std::move(impl));
}

std::string unsupported_reason(PyObject* object) {
    const at::Tensor& t = THPVariable_Unpack(object);
    if (!t.defined()) return "tensor without a value";
    if (as_fake(t)) return "a tensor of another trace";
    auto keys = t.key_set();
    auto layout = t.layout();
    if (layout != c10::kStrided) return c10::str("layout ", layout);
    if (keys.has_any(c10::DispatchKeySet({c10::DispatchKey::NestedTensor}))) return "nested tensor";
    if (at::isQIntType(t.scalar_type())) return c10::str("quantised tensor ", t.scalar_type());
    if (keys.has(c10::DispatchKey::ZeroTensor)) return "zero tensor";
    if (keys.has_any(c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper})))
        return "tensor of an enclosing functorch transform";
    if (keys.has(c10::DispatchKey::Functionalize)) return "functional tensor";
    if (t.is_neg()) return "lazily negated tensor";
    if (!t.is_cpu() && !t.is_meta()) return c10::str("device ", t.device());
    if (t.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return "tensor with symbolic sizes";
    if (!t.has_storage() || !t.storage().unsafeGetStorageImpl()) return "tensor without storage";
    if (t._fw_grad(0).defined()) return "dual tensor of forward-mode differentiation";
    PyTypeObject* type = Py_TYPE(object);
    if (type != tensor_class() && type != reinterpret_cast<PyTypeObject*>(ParameterClass)) {
        if (keys.has(c10::DispatchKey::Python) || overrides(type, "__torch_dispatch__"))
            return c10::str("subclass ", type->tp_name, " with __torch_dispatch__");
        PyObject* function = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__torch_function__");
        PyObject* of_parameter = PyObject_GetAttrString(ParameterClass, "__torch_function__");
        bool disabled = function && function == of_parameter;
        Py_XDECREF(function);
        Py_XDECREF(of_parameter);
        PyErr_Clear();
        if (!disabled && overrides(type, "__torch_function__"))
            return c10::str("subclass ", type->tp_name, " with __torch_function__");
    }
    return {};
}

PyObject* wrap_like(const at::Tensor& fake, PyObject* real) {
    PyTypeObject* type = real ? Py_TYPE(real) : tensor_class();
    PyObject* object = type == tensor_class() ? THPVariable_Wrap(fake) : THPVariable_Wrap(fake, type);
    if (!object) throw python_error();
    if (!real) return object;
    PyObject* attributes = PyObject_GenericGetDict(real, nullptr);
    if (!attributes) {
        PyErr_Clear();
        return object;
    }
    if (PyDict_GET_SIZE(attributes) > 0) {
        PyObject* mine = PyObject_GenericGetDict(object, nullptr);
        bool failed = !mine || PyDict_Update(mine, attributes) < 0;
        Py_XDECREF(mine);
        if (failed) {
            Py_DECREF(attributes);
            Py_DECREF(object);
            throw python_error();
        }
    }
    Py_DECREF(attributes);
    return object;
}

}  // namespace braze::bridge
