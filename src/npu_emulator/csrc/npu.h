// What the parts of the emulated device share: memory of the chips, the device queue, graph capture, errors.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace npu {

constexpr int kMaxChips = 16;

// Throws the Python exception NpuError(message, code); set by the Python module.
[[noreturn]] void raise(int code, const std::string& message);
void set_raise(void (*function)(int, const std::string&));

// ---- memory (bytes) ----
struct Usage {
  uint64_t allocated = 0, allocated_peak = 0, reserved = 0, reserved_peak = 0;
  int64_t allocations = 0, frees = 0, out_of_memory = 0;
};
// `visible`: the computer's chips that this process sees, in its own order. `shared_path`: a file through which
// processes on one machine see each other's reserved memory; "" for none.
void configure(const std::vector<int>& visible, uint64_t memory_bytes, const std::string& shared_path);
int chips();
uint64_t memory_bytes();
uint64_t free_bytes(int chip);
Usage usage(int chip);
void empty_cache();
void reset_peak(int chip);
// A block of host memory counted as memory of `chip`; the block is released with the returned pointer.
c10::DataPtr adopt(c10::DataPtr host, size_t bytes, int chip);
c10::Allocator* pinned_allocator();
bool is_pinned(const void* pointer);

int current_chip();
void set_current_chip(int chip);

// ---- the device queue ----
struct Clock {
  uint64_t queued = 0, completed = 0, waits = 0, device_to_host = 0, host_to_device = 0;
};
// One more operator in the queue; throws the device's failure when it has one. Returns the operator's position.
uint64_t enqueue();
// `effect` becomes visible when the queue has been waited for up to its present end.
void defer(std::function<void()> effect);
void synchronize();  // waits for everything
void synchronize_until(uint64_t position);
bool query(uint64_t position);
uint64_t position();
Clock clock_now();
void count_copy(bool to_host);
// The device is lost: at once when `after` is 0, else at the `after`-th next operator or at a wait.
void fail(int code, const std::string& message, uint64_t after);
bool failed();

// ---- graph capture ----
struct Recording {
  std::vector<std::function<void()>> steps;
  std::vector<c10::Storage> kept;
};
bool capturing();
void begin_capture();
std::shared_ptr<Recording> end_capture();
void record(std::function<void()> step);
void keep(const c10::Storage& storage);
void replay(const Recording& recording);
// Throws when a capture is under way: `what` would wait for the device.
void refuse_in_capture(const char* what);

// ---- streams: names only, the queue is one per process and in order ----
int64_t current_stream(int chip);
void set_current_stream(int chip, int64_t stream);
int64_t new_stream();

}  // namespace npu
