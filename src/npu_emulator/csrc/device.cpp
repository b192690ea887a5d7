// The device type as PyTorch sees it: device guard, streams and events, hooks, random generators.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "kernels.h"
#include "npu.h"

namespace npu {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

constexpr DeviceType kType = DeviceType::PrivateUse1;

struct Event {
  uint64_t position = 0;
  std::chrono::steady_clock::time_point time;
};

Stream stream_of(int chip) {
  return Stream(Stream::UNSAFE, Device(kType, static_cast<DeviceIndex>(chip)), current_stream(chip));
}

int index_of(Device device) { return device.has_index() ? device.index() : current_chip(); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return kType; }
  Device exchangeDevice(Device device) const override {
    Device before = getDevice();
    if (device.has_index() && device.index() != before.index()) set_current_chip(device.index());
    return before;
  }
  Device getDevice() const override { return Device(kType, static_cast<DeviceIndex>(current_chip())); }
  void setDevice(Device device) const override { set_current_chip(index_of(device)); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.has_index() && device.index() < chips()) set_current_chip(device.index());
  }
  Stream getStream(Device device) const override { return stream_of(index_of(device)); }
  Stream getDefaultStream(Device device) const override {
    return Stream(Stream::UNSAFE, Device(kType, static_cast<DeviceIndex>(index_of(device))), 0);
  }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  Stream getNewStream(Device device, int) const override {
    return Stream(Stream::UNSAFE, Device(kType, static_cast<DeviceIndex>(index_of(device))), new_stream());
  }
  Stream exchangeStream(Stream stream) const override {
    int chip = stream.device_index();
    Stream before = stream_of(chip);
    set_current_stream(chip, stream.id());
    return before;
  }
  void* getStreamNativeHandle(const Stream stream) const override { return reinterpret_cast<void*>(stream.id()); }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(chips()); }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void record(void** event, const Stream&, const DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event();
    static_cast<Event*>(*event)->position = position();
    static_cast<Event*>(*event)->time = std::chrono::steady_clock::now();
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void* event) const override {
    return event == nullptr || query(static_cast<Event*>(event)->position);
  }
  bool queryStream(const Stream&) const override { return query(position()); }
  void synchronizeStream(const Stream&) const override { synchronize(); }
  bool isStreamCapturing(const Stream&) const override { return capturing(); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) synchronize_until(static_cast<Event*>(event)->position);
  }
  void synchronizeDevice(const DeviceIndex) const override { synchronize(); }
  double elapsedTime(void* first, void* second, const DeviceIndex) const override {
    std::chrono::duration<double, std::milli> span =
        static_cast<Event*>(second)->time - static_cast<Event*>(first)->time;
    return span.count();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// A generator of the NPU draws from a CPU generator of its own.
struct Generator final : c10::GeneratorImpl {
  at::Generator host;

  explicit Generator(DeviceIndex chip, at::Generator inner)
      : c10::GeneratorImpl(Device(kType, chip), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host(std::move(inner)) {}
  static DeviceType device_type() { return kType; }
  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.seed(); }
  void set_state(const c10::TensorImpl& state) override {
    host.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return host.unsafeGetGeneratorImpl()->get_state();
  }
  Generator* clone_impl() const override { return new Generator(device().index(), host.clone()); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return chips() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(chips()); }
  void setCurrentDevice(DeviceIndex chip) const override { set_current_chip(chip); }
  DeviceIndex getCurrentDevice() const override { return static_cast<DeviceIndex>(current_chip()); }
  DeviceIndex exchangeDevice(DeviceIndex chip) const override {
    auto before = static_cast<DeviceIndex>(current_chip());
    set_current_chip(chip);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex chip) const override {
    auto before = static_cast<DeviceIndex>(current_chip());
    if (chip >= 0) set_current_chip(chip);
    return before;
  }
  const at::Generator& getDefaultGenerator(DeviceIndex chip) const override {
    return default_generator(chip < 0 ? current_chip() : chip);
  }
  at::Generator getNewGenerator(DeviceIndex chip) const override {
    return new_generator(chip < 0 ? current_chip() : chip);
  }
  Device getDeviceFromPtr(void*) const override {
    return Device(kType, static_cast<DeviceIndex>(current_chip()));
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::DataPtr fresh = storage.device().index() == current_chip() || !storage.device().has_index()
                             ? c10::GetAllocator(kType)->allocate(bytes)
                             : [&] {
                                 int before = current_chip();
                                 set_current_chip(storage.device().index());
                                 auto data = c10::GetAllocator(kType)->allocate(bytes);
                                 set_current_chip(before);
                                 return data;
                               }();
    size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0) std::memcpy(fresh.get(), storage.data(), kept);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

struct RegisterHooks {
  RegisterHooks() { at::RegisterPrivateUse1HooksInterface(new Hooks()); }
} register_hooks;

}  // namespace

at::Generator new_generator(int chip) {
  return at::make_generator<Generator>(static_cast<DeviceIndex>(chip),
                                       at::detail::createCPUGenerator(c10::default_rng_seed_val));
}

const at::Generator& default_generator(int chip) {
  static auto* generators = [] {
    auto* all = new std::vector<at::Generator>();
    for (int i = 0; i < kMaxChips; ++i) all->push_back(new_generator(i));
    return all;
  }();
  return generators->at(chip);
}

at::Generator host_generator(const at::Generator& generator) {
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->host;
}

}  // namespace npu
