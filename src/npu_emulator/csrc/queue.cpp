// The device queue: a clock of queued and completed operators, effects that wait for it, failures, graph capture.
#include "npu.h"

#include <c10/core/InferenceMode.h>

#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <stdexcept>

namespace npu {
namespace {

void (*raise_function)(int, const std::string&) = nullptr;

struct Deferred {
  uint64_t position;
  std::function<void()> effect;
};

struct Failure {
  bool set = false;
  int code = 0;
  std::string message;
  uint64_t at = 0;
};

std::mutex mutex;
Clock clock_state;
std::deque<Deferred> deferred;
Failure pending, sticky;
std::atomic<bool> trouble{false};
std::shared_ptr<Recording> recording;
thread_local bool recording_here = false;
thread_local std::array<int64_t, kMaxChips> streams{};
std::atomic<int64_t> next_stream{1};

// Raising needs Python's lock, so it must not happen under ours.
void check_failure(bool waiting) {
  if (!trouble) return;
  Failure failure;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!sticky.set && pending.set && (waiting || clock_state.queued >= pending.at)) sticky = pending;
    failure = sticky;
  }
  if (failure.set) raise(failure.code, failure.message);
}

void complete(uint64_t until) {
  std::vector<std::function<void()>> effects;
  {
    std::lock_guard<std::mutex> lock(mutex);
    while (!deferred.empty() && deferred.front().position <= until) {
      effects.push_back(std::move(deferred.front().effect));
      deferred.pop_front();
    }
    if (until > clock_state.completed) clock_state.completed = until;
  }
  // The waiting thread may be outside inference mode, the buffers made inside it.
  c10::InferenceMode inference(true);
  for (auto& effect : effects) effect();
}

}  // namespace

void raise(int code, const std::string& message) {
  if (raise_function != nullptr) raise_function(code, message);
  throw std::runtime_error(message);
}

void set_raise(void (*function)(int, const std::string&)) { raise_function = function; }

uint64_t enqueue() {
  uint64_t here;
  {
    std::lock_guard<std::mutex> lock(mutex);
    here = ++clock_state.queued;
  }
  check_failure(false);
  return here;
}

void defer(std::function<void()> effect) {
  std::lock_guard<std::mutex> lock(mutex);
  deferred.push_back({clock_state.queued, std::move(effect)});
}

void synchronize() { synchronize_until(position()); }

void synchronize_until(uint64_t until) {
  refuse_in_capture("Synchronising");
  {
    std::lock_guard<std::mutex> lock(mutex);
    ++clock_state.waits;
  }
  check_failure(true);
  complete(until);
}

bool query(uint64_t until) {
  bool done;
  {
    std::lock_guard<std::mutex> lock(mutex);
    done = clock_state.completed >= until;
  }
  // Time passes between two questions: work asked about once is done when it is asked about again.
  if (!done) complete(until);
  return done;
}

uint64_t position() {
  std::lock_guard<std::mutex> lock(mutex);
  return clock_state.queued;
}

Clock clock_now() {
  std::lock_guard<std::mutex> lock(mutex);
  return clock_state;
}

void count_copy(bool to_host) {
  std::lock_guard<std::mutex> lock(mutex);
  ++(to_host ? clock_state.device_to_host : clock_state.host_to_device);
}

void fail(int code, const std::string& message, uint64_t after) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (sticky.set || (pending.set && after > 0)) return;
    pending = {true, code, message, clock_state.queued + after};
    trouble = true;
    if (after > 0) return;
    sticky = pending;
  }
  raise(code, message);
}

bool failed() {
  std::lock_guard<std::mutex> lock(mutex);
  return sticky.set;
}

bool capturing() { return recording_here; }

void begin_capture() {
  if (recording_here) raise(107025, "a capture is under way already. error code is 107025");
  recording = std::make_shared<Recording>();
  recording_here = true;
}

std::shared_ptr<Recording> end_capture() {
  recording_here = false;
  return std::move(recording);
}

void record(std::function<void()> step) {
  if (recording_here) recording->steps.push_back(std::move(step));
}

void keep(const c10::Storage& storage) {
  if (recording_here) recording->kept.push_back(storage);
}

void replay(const Recording& graph) {
  c10::InferenceMode inference(true);
  for (const auto& step : graph.steps) {
    enqueue();
    step();
  }
}

void refuse_in_capture(const char* what) {
  if (recording_here)
    raise(107027, std::string(what) + " is not permitted while a stream is being captured. error code is 107027");
}

int64_t current_stream(int chip) { return streams[chip]; }
void set_current_stream(int chip, int64_t stream) { streams[chip] = stream; }
int64_t new_stream() { return next_stream++; }

}  // namespace npu
