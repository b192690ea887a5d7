// Memory of the emulated chips: host memory, counted in the granularity of torch_npu's allocator (512 bytes).
// A chip is full when the bytes in use by this process and reserved by the others on it exceed its size.
#include "npu.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

namespace npu {
namespace {

constexpr uint64_t kGranularity = 512;
constexpr uint64_t kLarge = 1 << 20;           // mapped, so that pages are committed when first written
constexpr uint64_t kHostReserve = 768ull << 20;  // never take the computer's last memory
constexpr int kSlots = 256;

struct Slot {
  int32_t pid;
  uint64_t reserved[kMaxChips];
};

std::mutex mutex;
std::array<Usage, kMaxChips> usages;
int chip_count = 1;
std::array<int, kMaxChips> physical{};  // this process's chip -> the computer's chip
uint64_t chip_bytes = 4ull << 30;
Slot* slots = nullptr;
Slot* own = nullptr;
thread_local int chip_now = 0;

uint64_t rounded(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + kGranularity - 1) / kGranularity * kGranularity;
}

bool alive(int32_t pid) { return pid != 0 && (kill(pid, 0) == 0 || errno == EPERM); }

void claim_slot() {
  if (slots == nullptr || (own != nullptr && own->pid == getpid())) return;
  own = nullptr;
  for (int i = 0; i < kSlots; ++i) {
    int32_t old = slots[i].pid;
    if (alive(old) && old != getpid()) continue;
    if (__atomic_compare_exchange_n(&slots[i].pid, &old, getpid(), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
      own = &slots[i];
      std::memset(own->reserved, 0, sizeof(own->reserved));
      return;
    }
  }
}

void publish(int chip) {
  claim_slot();
  if (own != nullptr) own->reserved[physical[chip]] = usages[chip].reserved;
}

uint64_t reserved_by_others(int chip) {
  uint64_t sum = 0;
  if (slots == nullptr) return 0;
  for (int i = 0; i < kSlots; ++i)
    if (slots[i].pid != 0 && slots[i].pid != getpid() && alive(slots[i].pid)) sum += slots[i].reserved[physical[chip]];
  return sum;
}

std::string mebibytes(uint64_t bytes) {
  char text[64];
  if (bytes >= (1ull << 30)) std::snprintf(text, sizeof text, "%.2f GiB", bytes / double(1ull << 30));
  else std::snprintf(text, sizeof text, "%.2f MiB", bytes / double(1ull << 20));
  return text;
}

void guard_host(uint64_t bytes) {
  if (bytes < kLarge) return;
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  uint64_t kibibytes;
  while (file >> key >> kibibytes >> unit)
    if (key == "MemAvailable:" && kibibytes * 1024 < kHostReserve)
      raise(0, "npu_emulator: this computer has only " + mebibytes(kibibytes * 1024) +
                   " of memory left; this is not the emulated chip's limit");
}

// Counts `bytes` on `chip` or throws, as torch_npu's allocator does.
void take(int chip, uint64_t bytes) {
  std::unique_lock<std::mutex> lock(mutex);
  Usage& u = usages[chip];
  uint64_t others = reserved_by_others(chip);
  if (u.allocated + bytes + others > chip_bytes) {
    ++u.out_of_memory;
    u.reserved = u.allocated;
    publish(chip);
    uint64_t in_use = u.allocated;
    lock.unlock();
    std::ostringstream text;
    text << "NPU out of memory. Tried to allocate " << mebibytes(bytes) << " (NPU " << chip << "; "
         << mebibytes(chip_bytes) << " total capacity; " << mebibytes(in_use) << " already allocated; "
         << mebibytes(in_use) << " current active; "
         << mebibytes(chip_bytes > in_use + others ? chip_bytes - in_use - others : 0) << " free; "
         << mebibytes(in_use) << " reserved in total by PyTorch) If reserved memory is >> allocated memory try "
         << "setting max_split_size_mb to avoid fragmentation.";
    raise(207001, text.str());
  }
  u.allocated += bytes;
  ++u.allocations;
  u.allocated_peak = std::max(u.allocated_peak, u.allocated);
  if (u.allocated > u.reserved) {
    u.reserved = u.allocated;
    u.reserved_peak = std::max(u.reserved_peak, u.reserved);
    publish(chip);
  }
}

void give_back(int chip, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  usages[chip].allocated -= bytes;
  ++usages[chip].frees;
}

struct Block {
  void* base;
  uint64_t bytes;
  int chip;
  bool mapped;
};

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  if (block->mapped) munmap(block->base, block->bytes);
  else std::free(block->base);
  give_back(block->chip, block->bytes);
  delete block;
}

c10::DataPtr obtain(uint64_t wanted, int chip) {
  c10::Device device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(chip));
  if (wanted == 0) return {nullptr, device};
  uint64_t bytes = rounded(wanted);
  guard_host(bytes);
  take(chip, bytes);
  bool mapped = bytes >= kLarge;
  void* base = mapped ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                      : std::aligned_alloc(kGranularity, bytes);
  if (base == nullptr || base == MAP_FAILED) {
    give_back(chip, bytes);
    raise(0, "npu_emulator: this computer refuses " + mebibytes(bytes) + " of memory");
  }
  return {base, new Block{base, bytes, chip, mapped}, &release, device};
}

struct Adopted {
  c10::DataPtr host;
  uint64_t bytes;
  int chip;
};

void release_adopted(void* context) {
  auto* adopted = static_cast<Adopted*>(context);
  give_back(adopted->chip, adopted->bytes);
  delete adopted;
}

struct ChipAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override { return obtain(bytes, chip_now); }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { empty_cache(); }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex chip) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    Usage u = usage(chip);
    for (size_t i = 0; i < stats.allocated_bytes.size(); ++i) {
      stats.allocated_bytes[i].current = static_cast<int64_t>(u.allocated);
      stats.allocated_bytes[i].peak = static_cast<int64_t>(u.allocated_peak);
      stats.active_bytes[i] = stats.requested_bytes[i] = stats.allocated_bytes[i];
      stats.reserved_bytes[i].current = static_cast<int64_t>(u.reserved);
      stats.reserved_bytes[i].peak = static_cast<int64_t>(u.reserved_peak);
    }
    stats.num_ooms = u.out_of_memory;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex chip) override { reset_peak(chip); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex chip) override { return {free_bytes(chip), chip_bytes}; }
};

std::mutex pinned_mutex;
std::map<uintptr_t, size_t> pinned;

void release_pinned(void* pointer) {
  {
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned.erase(reinterpret_cast<uintptr_t>(pointer));
  }
  std::free(pointer);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    void* pointer = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (pointer == nullptr) raise(0, "npu_emulator: no host memory for a pinned buffer");
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned[reinterpret_cast<uintptr_t>(pointer)] = bytes;
    return {pointer, pointer, &release_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

// Never destroyed: blocks may be released after static destructors ran.
ChipAllocator* chip_allocator = new ChipAllocator();
PinnedAllocator* host_allocator = new PinnedAllocator();

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, chip_allocator);

}  // namespace

void configure(const std::vector<int>& visible, uint64_t bytes, const std::string& shared_path) {
  chip_count = std::min(static_cast<int>(visible.size()), kMaxChips);
  for (int i = 0; i < chip_count; ++i) physical[i] = std::min(visible[i], kMaxChips - 1);
  chip_bytes = bytes;
  if (shared_path.empty() || slots != nullptr) return;
  int file = open(shared_path.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0) return;
  size_t size = sizeof(Slot) * kSlots;
  if (ftruncate(file, static_cast<off_t>(size)) == 0) {
    void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) slots = static_cast<Slot*>(map);
  }
  close(file);
}

int chips() { return chip_count; }
uint64_t memory_bytes() { return chip_bytes; }

uint64_t free_bytes(int chip) {
  std::lock_guard<std::mutex> lock(mutex);
  uint64_t used = usages[chip].reserved + reserved_by_others(chip);
  return used < chip_bytes ? chip_bytes - used : 0;
}

Usage usage(int chip) {
  std::lock_guard<std::mutex> lock(mutex);
  return usages[chip];
}

void empty_cache() {
  std::lock_guard<std::mutex> lock(mutex);
  for (int chip = 0; chip < chip_count; ++chip) {
    usages[chip].reserved = usages[chip].allocated;
    publish(chip);
  }
}

void reset_peak(int chip) {
  std::lock_guard<std::mutex> lock(mutex);
  usages[chip].allocated_peak = usages[chip].allocated;
  usages[chip].reserved_peak = usages[chip].reserved;
}

c10::DataPtr adopt(c10::DataPtr host, size_t wanted, int chip) {
  c10::Device device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(chip));
  void* pointer = host.get();
  if (pointer == nullptr || wanted == 0) return {nullptr, device};
  uint64_t bytes = rounded(wanted);
  guard_host(bytes);
  take(chip, bytes);
  return {pointer, new Adopted{std::move(host), bytes, chip}, &release_adopted, device};
}

c10::Allocator* pinned_allocator() { return host_allocator; }

bool is_pinned(const void* pointer) {
  std::lock_guard<std::mutex> lock(pinned_mutex);
  auto after = pinned.upper_bound(reinterpret_cast<uintptr_t>(pointer));
  if (after == pinned.begin()) return false;
  --after;
  return reinterpret_cast<uintptr_t>(pointer) < after->first + after->second;
}

int current_chip() { return chip_now; }

void set_current_chip(int chip) {
  if (chip < 0 || chip >= chip_count)
    raise(107001, "SetDevice: invalid device ID " + std::to_string(chip) + ", this machine has " +
                      std::to_string(chip_count) + " NPU chips. error code is 107001");
  chip_now = chip;
}

}  // namespace npu
