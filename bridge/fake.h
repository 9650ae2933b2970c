// Fake tensors: TensorImpls without data that stand for the values of a graph while the user's program runs once.
//
// A fake reports the device it stands for, has the sizes and strides of the real value, and dispatches to Meta kernels
// and, because its key set has the autograd keys, through the stock autograd engine. Its graph value travels with every
// shallow copy (saved variables of the autograd graph, .data).
#pragma once
#include "bridge/symbols.h"
#include "bridge/torch.h"

namespace braze::bridge {

// The memory that a set of aliasing fakes would share. Reading its data raises instead of returning a null pointer.
class FakeStorage final : public c10::StorageImpl {
  public:
    FakeStorage(int alias_set, size_t bytes);
    const int alias_set;
};
// nullptr for any other storage.
inline FakeStorage* as_fake_storage(c10::StorageImpl* s) {
    return s && typeid(*s) == typeid(FakeStorage) ? static_cast<FakeStorage*>(s) : nullptr;
}

class FakeImpl final : public c10::TensorImpl {
  public:
    // `meta` is a plain meta tensor; the fake shares its storage and keeps it as its twin.
    FakeImpl(const at::Tensor& meta, c10::Device device, int value, uint64_t epoch);
    ~FakeImpl() override;
    void release_resources() override;

    int value() const { return value_; }
    // The capture that made it.
    uint64_t epoch() const { return epoch_; }
    // A plain meta tensor with the same storage and metadata, to be given to Meta kernels. Not to be changed in place.
    const at::Tensor& twin() const { return twin_; }
    // Its sizes beside the hints; nullptr: they are constant.
    void set_symbolic(Symbols symbols, SymbolicMetadata metadata);
    const SymbolicMetadata* symbolic() const { return symbols_ ? &symbolic_ : nullptr; }
    // A new twin's metadata and another graph value: in-place view operators (unsqueeze_, t_, ...).
    void rebind(const at::Tensor& meta, int value);
    int alias_set() const { return static_cast<FakeStorage*>(storage_.unsafeGetStorageImpl())->alias_set; }
    // This fake is a graph input itself, not a copy of it: its data must not be replaced.
    void mark_input() { input_ = true; }
    bool is_input() const { return input_; }

    c10::Device device_custom() const override { return device_; }
    const char* tensorimpl_type_name() const override { return "BrazeFake"; }
    c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                           bool allow) const override;
    c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version, bool allow) const override;
    void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) override;

    // Asked only of fakes with symbolic sizes. Who wants numbers fixes the symbols.
    c10::IntArrayRef sizes_custom() const override;
    c10::IntArrayRef strides_custom() const override;
    int64_t size_custom(int64_t d) const override;
    int64_t numel_custom() const override;
    int64_t dim_custom() const override { return dim_default(); }
    int64_t storage_offset_custom() const override;
    c10::SymIntArrayRef sym_sizes_custom() const override;
    c10::SymIntArrayRef sym_strides_custom() const override;
    c10::SymInt sym_numel_custom() const override;
    c10::SymInt sym_storage_offset_custom() const override;
    c10::SymBool sym_is_contiguous_custom(at::MemoryFormat format) const override;
    bool is_strides_like_custom(at::MemoryFormat format) const override;
    c10::SymBool sym_is_non_overlapping_and_dense_custom() const override;

  private:
    at::Tensor twin_;
    c10::Device device_;
    int value_;
    uint64_t epoch_;
    bool input_ = false;
    bool watched_ = false;  // see bridge/living_fakes.h

    void refresh_sym_ints() const;
    void fix(const std::vector<Expr>& es) const;
    Symbols symbols_;
    SymbolicMetadata symbolic_;
    mutable std::vector<c10::SymInt> sym_sizes_, sym_strides_;
    mutable int sym_version_ = -1;
};

inline FakeImpl* as_fake(const c10::TensorImpl* t) {
    return t && typeid(*t) == typeid(FakeImpl) ? const_cast<FakeImpl*>(static_cast<const FakeImpl*>(t)) : nullptr;
}
inline FakeImpl* as_fake(const at::TensorBase& t) { return as_fake(t.unsafeGetTensorImpl()); }

// Called when the data of a graph input is replaced (x.data = y). Set by capture; throws.
void set_data_replaced_handler(void (*handler)());

// Bytes that a strided tensor of these sizes reaches from its storage's start.
size_t reach_bytes(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, size_t item);
// A plain meta tensor over `storage`.
at::Tensor plain_meta(c10::Storage storage, caffe2::TypeMeta dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      int64_t offset);

// Why a real tensor cannot be traced, or an empty string.
std::string unsupported_reason(PyObject* object);
// The Python object of a fake: same class and attributes as `real` (nullptr: a torch.Tensor). New reference.
PyObject* wrap_like(const at::Tensor& fake, PyObject* real);

}  // namespace braze::bridge
