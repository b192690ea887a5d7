// Operators of PyTorch on the emulated NPU: allocation, views, copies, and a fallback that runs any other operator on
// zero-copy CPU aliases of its operands.
#include "kernels.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <cstring>
#include <unordered_set>

#include "npu.h"

namespace npu {
namespace {

using at::Tensor;
using c10::DeviceType;

bool on_npu(const Tensor& tensor) { return tensor.defined() && tensor.device().type() == DeviceType::PrivateUse1; }

void release_storage(void* context) { delete static_cast<c10::Storage*>(context); }

}  // namespace

Tensor to_cpu_alias(const Tensor& tensor) {
  TORCH_CHECK(on_npu(tensor), "npu_emulator: expected a tensor on the NPU");
  const c10::Storage& storage = tensor.storage();
  c10::DataPtr data(storage.mutable_data(), new c10::Storage(storage), &release_storage, c10::Device(DeviceType::CPU));
  c10::Storage alias(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data),
                     c10::GetAllocator(DeviceType::CPU), /*resizable=*/true);
  auto out = at::detail::make_tensor<c10::TensorImpl>(std::move(alias), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                      tensor.dtype());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) out._set_conj(true);
  if (tensor.is_neg()) out._set_neg(true);
  return out;
}

namespace {

Tensor with_storage(c10::Storage storage, const Tensor& like) {
  auto out = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), like.dtype());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return out;
}

}  // namespace

Tensor adopt_from_cpu(const Tensor& host, int chip) {
  TORCH_CHECK(host.device().is_cpu(), "npu_emulator: expected a CPU tensor");
  Tensor source = host.is_neg() || host.is_conj() ? host.resolve_conj().resolve_neg() : host;
  c10::Storage held = source.storage();
  size_t bytes = held.nbytes();
  c10::DataPtr data(held.mutable_data(), new c10::Storage(held), &release_storage, c10::Device(DeviceType::CPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, adopt(std::move(data), bytes, chip),
                       c10::GetAllocator(DeviceType::PrivateUse1), /*resizable=*/true);
  keep(storage);
  return with_storage(std::move(storage), source);
}

namespace {

// ---- allocation and views ----

Tensor kept(Tensor tensor) {
  if (capturing()) keep(tensor.storage());
  return tensor;
}

struct OnChip {
  int before = current_chip();
  explicit OnChip(std::optional<at::Device> device) {
    if (device && device->has_index() && device->index() != before) set_current_chip(device->index());
  }
  ~OnChip() {
    if (current_chip() != before) set_current_chip(before);
  }
};

Tensor empty_memory_format(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                           std::optional<at::Device> device, std::optional<bool>,
                           std::optional<at::MemoryFormat> format) {
  OnChip guard(device);
  return kept(at::detail::empty_generic(size, c10::GetAllocator(DeviceType::PrivateUse1),
                                        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                        c10::dtype_or_default(dtype), format));
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  OnChip guard(device);
  return kept(at::detail::empty_strided_generic(size, stride, c10::GetAllocator(DeviceType::PrivateUse1),
                                                c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                c10::dtype_or_default(dtype)));
}

Tensor as_strided(const Tensor& self, at::IntArrayRef size, at::IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

Tensor view(const Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); }

Tensor reshape_alias(const Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

Tensor& set_storage(Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  if (stride.data() == nullptr || stride.size() != size.size()) {
    impl->set_sizes_contiguous(size);
    impl->set_storage_offset(offset);
  } else {
    impl->set_sizes_and_strides(size, stride, offset);
  }
  return self;
}

Tensor& set_whole_storage(Tensor& self, at::Storage source) {
  int64_t elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {elements}, {});
}

Tensor& set_nothing(Tensor& self) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::GetAllocator(DeviceType::PrivateUse1), true);
  return set_storage(self, std::move(storage), 0, {0}, {});
}

// Fresh zero pages instead of written zeros: an unused KV cache costs the computer nothing.
Tensor& zero(Tensor& self) {
  enqueue();
  size_t bytes = self.numel() * self.itemsize();
  auto clear = [self, bytes]() {
    constexpr uintptr_t page = 4096;
    auto begin = reinterpret_cast<uintptr_t>(self.mutable_data_ptr());
    uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
    if (last > first + (1 << 20) && madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) == 0) {
      std::memset(reinterpret_cast<void*>(begin), 0, first - begin);
      std::memset(reinterpret_cast<void*>(last), 0, begin + bytes - last);
    } else {
      std::memset(reinterpret_cast<void*>(begin), 0, bytes);
    }
  };
  auto fill = [self]() { to_cpu_alias(self).zero_(); };
  std::function<void()> step = self.is_non_overlapping_and_dense() ? std::function<void()>(clear) : fill;
  step();
  record(step);
  return self;
}

// ---- copies ----

bool race_on_upload = false;

Tensor copy_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  enqueue();
  if (on_npu(self) && on_npu(dst)) {
    auto step = [self, dst]() { to_cpu_alias(dst).copy_(to_cpu_alias(self)); };
    step();
    record(step);
    return dst;
  }
  count_copy(on_npu(self));
  if (on_npu(self)) {
    if (non_blocking && is_pinned(dst.data_ptr())) {
      // The value is the one at this point of the queue; the host sees it after a wait.
      Tensor value = to_cpu_alias(self).clone();
      auto deliver = [value, dst]() { const_cast<Tensor&>(dst).copy_(value); };
      if (capturing()) {
        record([self, dst]() { const_cast<Tensor&>(dst).copy_(to_cpu_alias(self)); });
        return dst;
      }
      defer(deliver);
      return dst;
    }
    refuse_in_capture("A copy to the host");
    synchronize();
    const_cast<Tensor&>(dst).copy_(to_cpu_alias(self));
    return dst;
  }
  auto step = [self, dst]() { to_cpu_alias(dst).copy_(self); };
  if (capturing()) {
    if (!non_blocking || !is_pinned(self.data_ptr())) refuse_in_capture("A blocking copy from the host");
    step();
    record(step);
    return dst;
  }
  if (race_on_upload && non_blocking) {
    Tensor value = self.clone();
    defer([value, dst]() { to_cpu_alias(dst).copy_(value); });
    return dst;
  }
  step();
  return dst;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& dst) {
  const_cast<Tensor&>(dst).resize_(self.sizes());
  return copy_from(self, dst, false);
}

at::Scalar local_scalar_dense(const Tensor& self) {
  enqueue();
  refuse_in_capture("Reading a value on the host");
  count_copy(true);
  synchronize();
  return at::_local_scalar_dense(to_cpu_alias(self));
}

// ---- the fallback ----

struct Operands {
  std::vector<std::pair<Tensor, Tensor>> pairs;  // on the NPU, its CPU alias
  std::optional<c10::Device> device;
  std::optional<c10::Device> host_tensor;

  Tensor alias(const Tensor& tensor) {
    for (const auto& [npu, cpu] : pairs)
      if (npu.is_same(tensor)) return cpu;
    if (!device) device = tensor.device();
    TORCH_CHECK(*device == tensor.device(), "Expected all tensors to be on the same device, but found at least two devices, ",
                *device, " and ", tensor.device(), "!");
    pairs.emplace_back(tensor, to_cpu_alias(tensor));
    return pairs.back().second;
  }

  Tensor incoming(const Tensor& tensor) {
    if (on_npu(tensor)) return alias(tensor);
    if (tensor.defined() && tensor.device().is_cpu() && tensor.dim() > 0) host_tensor = tensor.device();
    return tensor;
  }

  Tensor outgoing(const Tensor& tensor, int chip) const {
    if (!tensor.defined() || !tensor.device().is_cpu()) return tensor;
    for (const auto& [npu, cpu] : pairs)
      if (cpu.is_same(tensor)) return npu;
    for (const auto& [npu, cpu] : pairs)
      if (cpu.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl())
        return with_storage(npu.storage(), tensor);
    return adopt_from_cpu(tensor, chip);
  }

  // An `out` operand may have been resized: the NPU tensor takes the alias's memory and shape.
  void settle() const {
    for (const auto& [npu, cpu] : pairs) {
      auto* to = npu.storage().unsafeGetStorageImpl();
      auto* from = cpu.storage().unsafeGetStorageImpl();
      if (from->data() != to->data()) {
        size_t bytes = from->nbytes();
        c10::DataPtr data = from->set_data_ptr(c10::DataPtr(nullptr, c10::Device(DeviceType::CPU)));
        to->set_data_ptr_noswap(adopt(std::move(data), bytes, npu.device().index()));
        to->set_nbytes(bytes);
        keep(npu.storage());
      }
      if (npu.sizes() != cpu.sizes() || npu.strides() != cpu.strides() || npu.storage_offset() != cpu.storage_offset())
        npu.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
    }
  }
};

c10::IValue incoming(const c10::IValue& value, Operands& operands) {
  if (value.isTensor()) return operands.incoming(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorList()) list.push_back(operands.incoming(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const auto& item : value.toOptionalTensorList()) {
      std::optional<Tensor> tensor = item;
      list.push_back(tensor ? std::optional<Tensor>(operands.incoming(*tensor)) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice() && value.toDevice().type() == DeviceType::PrivateUse1) return c10::Device(DeviceType::CPU);
  if (value.isGenerator() && value.toGenerator().device().type() == DeviceType::PrivateUse1)
    return host_generator(value.toGenerator());
  return value;
}

c10::IValue outgoing(const c10::IValue& value, const Operands& operands, int chip) {
  if (value.isTensor()) return operands.outgoing(value.toTensor(), chip);
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorList()) list.push_back(operands.outgoing(tensor, chip));
    return list;
  }
  return value;
}

// Indices may be on the host, as with every accelerator of PyTorch.
bool takes_host_tensors(const std::string& name) {
  return name == "aten::index" || name == "aten::_index_put_impl_" || name == "aten::index_put_" ||
         name == "aten::_unsafe_index";
}

// The shape of the result depends on values, so the host waits for the device.
bool waits(const std::string& name) {
  static const std::unordered_set<std::string> names{"aten::nonzero", "aten::masked_select", "aten::equal",
                                                     "aten::_unique2", "aten::unique_consecutive", "aten::unique_dim",
                                                     "aten::is_set_to"};
  return names.count(name) > 0;
}

bool has_boolean_index(const std::vector<c10::IValue>& arguments) {
  for (const auto& value : arguments)
    if (value.isOptionalTensorList())
      for (const auto& item : value.toOptionalTensorList()) {
        std::optional<Tensor> tensor = item;
        if (tensor && tensor->defined() && (tensor->scalar_type() == at::kBool || tensor->scalar_type() == at::kByte))
          return true;
      }
  return false;
}

std::vector<c10::IValue> run_on_cpu(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                                    Operands& operands) {
  std::optional<c10::Device> device;
  torch::jit::Stack stack;
  const auto& schema = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isDevice() && arguments[i].toDevice().type() == DeviceType::PrivateUse1)
      device = arguments[i].toDevice();
    bool generator = schema[i].type()->kind() == c10::TypeKind::OptionalType &&
                     schema[i].type()->expect<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::GeneratorType;
    if (generator && arguments[i].isNone()) stack.emplace_back(host_generator(default_generator(current_chip())));
    else stack.push_back(incoming(arguments[i], operands));
  }
  if (!operands.device && device) operands.device = device;
  if (operands.host_tensor && !operands.pairs.empty() && !takes_host_tensors(op.schema().name()))
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
                *operands.device, " and cpu! (when checking the arguments of ", op.schema().name(), ")");
  op.callBoxed(&stack);
  operands.settle();
  return stack;
}

void remember(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
              const std::vector<c10::IValue>& results) {
  record([op, arguments, results]() {
    Operands operands;
    auto fresh = run_on_cpu(op, arguments, operands);
    auto refresh = [&operands](const Tensor& kept, const Tensor& now) {
      if (!on_npu(kept) || !now.defined()) return;
      for (const auto& [npu, cpu] : operands.pairs)
        if (cpu.storage().unsafeGetStorageImpl() == now.storage().unsafeGetStorageImpl()) return;
      to_cpu_alias(kept).copy_(now);
    };
    for (size_t i = 0; i < fresh.size(); ++i) {
      if (fresh[i].isTensor()) refresh(results[i].toTensor(), fresh[i].toTensor());
      if (fresh[i].isTensorList())
        for (size_t k = 0; k < fresh[i].toTensorVector().size(); ++k)
          refresh(results[i].toTensorVector()[k], fresh[i].toTensorVector()[k]);
    }
  });
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  enqueue();
  const auto& schema = op.schema();
  size_t count = schema.arguments().size();
  std::vector<c10::IValue> arguments(stack->end() - static_cast<ptrdiff_t>(count), stack->end());
  if (waits(schema.name()) || (schema.name() == "aten::index" && has_boolean_index(arguments))) {
    refuse_in_capture(schema.name().c_str());
    synchronize();
  }
  Operands operands;
  auto results = run_on_cpu(op, arguments, operands);
  int chip = operands.device && operands.device->has_index() ? operands.device->index() : current_chip();
  for (auto& value : results) value = outgoing(value, operands, chip);
  if (capturing()) remember(op, arguments, results);
  stack->erase(stack->end() - static_cast<ptrdiff_t>(count), stack->end());
  for (auto& value : results) stack->push_back(std::move(value));
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   at::SymIntArrayRef stride, at::SymIntArrayRef padding, at::SymIntArrayRef dilation, bool transposed,
                   at::SymIntArrayRef output_padding, c10::SymInt groups) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  torch::jit::Stack stack;
  auto ints = [](at::SymIntArrayRef values) { return C10_AS_INTARRAYREF_SLOW(values).vec(); };
  stack.emplace_back(input);
  stack.emplace_back(weight);
  stack.emplace_back(bias);
  stack.emplace_back(ints(stride));
  stack.emplace_back(ints(padding));
  stack.emplace_back(ints(dilation));
  stack.emplace_back(transposed);
  stack.emplace_back(ints(output_padding));
  stack.emplace_back(groups.guard_int(__FILE__, __LINE__));
  fallback(op, &stack);
  return stack.back().toTensor();
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_memory_format);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("set_.source_Storage", &set_whole_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_", &set_nothing);
  m.impl("zero_", &zero);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("convolution_overrideable", &convolution);
  // Kernels of their own on every backend; the generic decompositions would round in between.
  m.impl("native_layer_norm", torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace

void set_upload_race(bool on) { race_on_upload = on; }

}  // namespace npu
