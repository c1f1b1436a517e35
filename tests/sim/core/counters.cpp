// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/counters.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "tests/sim/core/trace.h"
#include "tests/sim/cudasim.h"

namespace inject::sim::counters {

struct Object {
  int device = 0;
  bool configured = false;
  bool started = false;
  bool set_up = false;  // the next sample is the one that spans the set-up
  bool torn = false;    // the next sample
  bool overflowed = false;
  bool silent = false;
  bool after_stop = false;  // a sample without duration is to come
  std::size_t period = 0;   // its place among those that the report lists
  Nanoseconds interval = 0;
  std::size_t capacity = 0;
  Nanoseconds enabled_at = 0;
  Nanoseconds next = 0;   // begin of the next sample
  Nanoseconds until = 0;  // where sampling has stopped
  Nanoseconds begun = 0;
  Nanoseconds lost_until = 0;  // samples up to here have no times
  Nanoseconds full_from = 0;   // between these the hardware's buffer was full: there are none
  Nanoseconds full_until = 0;
};

namespace {

struct Run {
  Part part;
  OpRef op;
};

// Leaked: see base.cpp.
struct State {
  std::mutex mutex;
  std::map<int, std::deque<Run>> runs;
  std::vector<Object*> objects;
  std::vector<Period> periods;
  bool initialized = false;
  bool finalized = false;  // and nobody has subscribed since
  bool gave_up = false;    // likewise: CUPTI did it itself, which a client can't know at once
  std::atomic<std::uint64_t> misuse{0};
};

State& state() {
  static State& instance = *new State;
  return instance;
}

constexpr std::size_t kMaxRuns = 1u << 16;

// What no sample to come overlaps.
void prune(State& shared, int device) {
  std::deque<Run>& runs = shared.runs[device];
  Nanoseconds oldest = now_ns();
  for (const Object* object : shared.objects) {
    if (object->device != device) continue;
    oldest = std::min(oldest, object->set_up || !object->configured ? object->enabled_at : object->next);
  }
  while (!runs.empty() && (runs.front().op->ended_by(oldest) || runs.size() >= kMaxRuns)) runs.pop_front();
}

Part part_of(std::string_view name) {
  const auto holds = [name](std::string_view part) { return name.find(part) != std::string_view::npos; };
  return holds("gemm") || holds("matmul") ? kMatrix : holds("fp64") ? kDouble : kOther;
}

bool known(State& shared, Object* object) {
  return std::find(shared.objects.begin(), shared.objects.end(), object) != shared.objects.end();
}

Nanoseconds covered(std::vector<std::pair<Nanoseconds, Nanoseconds>>& spans, Nanoseconds begin,
                    Nanoseconds end) {
  std::sort(spans.begin(), spans.end());
  Nanoseconds total = 0;
  Nanoseconds reached = begin;
  for (const auto& [from, to] : spans) {
    const Nanoseconds first = std::max(from, reached);
    const Nanoseconds last = std::min(to, end);
    if (last <= first) continue;
    total += last - first;
    reached = last;
  }
  return total;
}

Sample measure(State& shared, const Object& object, Nanoseconds begin, Nanoseconds end, Nanoseconds clock) {
  std::array<std::vector<std::pair<Nanoseconds, Nanoseconds>>, kParts> spans;
  for (const Run& run : shared.runs[object.device]) {
    const Nanoseconds start = run.op->start.load();
    if (start == kUnknown || start >= end || run.op->end.load() <= begin) continue;
    spans[kAny].emplace_back(start, run.op->end.load());
    spans[run.part].emplace_back(start, run.op->end.load());
  }
  Sample sample;
  sample.start = begin + clock;
  sample.end = end + clock;
  for (std::size_t part = 0; part < kParts; ++part)
    sample.parts[part] =
        static_cast<double>(covered(spans[part], begin, end)) / static_cast<double>(end - begin);
  return sample;
}

}  // namespace

Nanoseconds note_kernel(int device, const char* name, const OpRef& op) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  prune(shared, device);
  shared.runs[device].push_back({part_of(name), op});
  Nanoseconds sampled = 0;
  for (const Object* object : shared.objects) {
    if (object->device == device) sampled = std::max(sampled, object->next);
  }
  return sampled;
}

CUptiResult initialize() {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (shared.finalized) return CUPTI_ERROR_NOT_INITIALIZED;
  shared.initialized = true;
  return CUPTI_SUCCESS;
}

CUptiResult deinitialize() {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  // It does not count who has initialised: a second call, or one while devices are sampled, ends the program.
  const bool wrong = !shared.initialized || !shared.objects.empty();
  if (wrong && !shared.gave_up) ++shared.misuse;
  shared.initialized = false;
  return wrong ? CUPTI_ERROR_INVALID_OPERATION : CUPTI_SUCCESS;
}

CUptiResult enter() {
  trace::note_client_call();
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (shared.initialized) return CUPTI_SUCCESS;
  if (!shared.gave_up) ++shared.misuse;
  return CUPTI_ERROR_NOT_INITIALIZED;
}

void subscribed() {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.finalized = shared.gave_up = false;
}

void unsubscribing() {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (shared.initialized) ++shared.misuse;
}

void finalized(bool by_client) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (by_client && shared.initialized) ++shared.misuse;
  shared.gave_up = !by_client;
  shared.initialized = false;
  shared.finalized = true;
  shared.objects.clear();  // leaked, so that a late call finds them unknown
}

std::uint64_t misuse() {
  return state().misuse.load();
}

std::vector<Period> periods() {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  return shared.periods;
}

CUptiResult enable(int device, Object*& object) {
  object = nullptr;
  if (const std::uint32_t delay = faults().pm_enable_ms.load())
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  for (const Object* other : shared.objects)
    if (other->device == device) return CUPTI_ERROR_INVALID_OPERATION;
  object = new Object;
  object->device = device;
  object->enabled_at = now_ns();
  object->period = shared.periods.size();
  Period& period = shared.periods.emplace_back();
  period.device = device;
  period.enabled = object->enabled_at;
  shared.objects.push_back(object);
  return CUPTI_SUCCESS;
}

CUptiResult disable(Object* object) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (!known(shared, object) || object->started) {
    ++shared.misuse;
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  shared.periods[object->period].disabled = now_ns();
  std::erase(shared.objects, object);
  delete object;
  return CUPTI_SUCCESS;
}

bool enabled(int device) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  return std::any_of(shared.objects.begin(), shared.objects.end(),
                     [device](const Object* object) { return object->device == device; });
}

CUptiResult configure(Object* object, Nanoseconds interval, std::size_t capacity, bool silent) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (!known(shared, object) || object->started || interval == 0 || capacity == 0)
    return CUPTI_ERROR_INVALID_PARAMETER;
  object->interval = interval;
  object->capacity = capacity;
  object->silent = silent;
  object->next = now_ns();
  object->configured = true;
  return CUPTI_SUCCESS;
}

void tear(Object* object) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (known(shared, object)) object->torn = true;
}

CUptiResult start(Object* object) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (!known(shared, object) || !object->configured || object->started) return CUPTI_ERROR_INVALID_OPERATION;
  object->started = true;
  object->set_up = true;
  object->next = object->begun = now_ns();
  object->until = kUnknown;
  shared.periods[object->period].started = object->begun;
  shared.periods[object->period].interval = object->interval;
  return CUPTI_SUCCESS;
}

CUptiResult stop(Object* object) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (!known(shared, object) || !object->started) return CUPTI_ERROR_INVALID_OPERATION;
  object->started = false;
  object->after_stop = true;
  const Nanoseconds time = now_ns();
  object->until = std::min(object->until, time);
  shared.periods[object->period].stopped = time;
  return CUPTI_SUCCESS;
}

CUptiResult decode(Object* object, std::size_t most, std::vector<Sample>& samples, Decoded& decoded) {
  if (const std::uint32_t delay = faults().pm_decode_ms.load())
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (!known(shared, object) || !object->configured) return CUPTI_ERROR_INVALID_OPERATION;
  if (std::int64_t room = faults().pm_buffer.load(); room > 0)
    object->capacity = static_cast<std::size_t>(room);
  Nanoseconds limit = std::min(object->until, now_ns());
  // One reading for all of them: each ends where the next one begins.
  const Nanoseconds clock = trace::sample_clock_ahead();
  // As on the hardware: an overflow is for good, until the device is disabled.
  if (!object->overflowed && object->next >= object->full_until &&
      object->next + (object->capacity + 1) * object->interval <= limit) {
    const Nanoseconds full = object->next + object->capacity * object->interval;
    if (faults().pm_overflow_silent.load()) {
      object->full_from = full;
      object->full_until = limit - (limit - full) % object->interval;
    } else {
      object->overflowed = true;
      object->until = full;
    }
  }
  decoded.overflow = object->overflowed;
  if (object->overflowed) {
    if (!faults().pm_overflow_flag.load()) return CUPTI_ERROR_OUT_OF_MEMORY;
    limit = std::min(limit, object->until);
  }
  const auto skip_lost = [object] {
    if (object->next == object->full_from && object->full_until != 0) object->next = object->full_until;
  };
  while (skip_lost(), samples.size() < most && object->next + object->interval <= limit) {
    const Nanoseconds end = object->next + object->interval;
    // As on the hardware: the first one begins with the set-up.
    const bool set_up = std::exchange(object->set_up, false);
    const Nanoseconds begin = set_up ? object->enabled_at : object->next;
    const bool lost = end <= object->lost_until;
    if (lost) {
      // Its counters come all the same.
      Sample empty;
      empty.start = empty.end = object->begun + clock;
      samples.push_back(empty);
    } else {
      samples.push_back(measure(shared, *object, begin, end, clock));
      samples.back().torn = std::exchange(object->torn, false);
      samples.back().contrary = !samples.back().torn && !set_up && samples.back().parts[kAny] > 0 &&
                                Faults::take(faults().pm_contrary);
    }
    if (!lost && !set_up && !object->silent && !samples.back().torn && !samples.back().contrary)
      ++shared.periods[object->period].given;
    object->next = end;
  }
  prune(shared, object->device);
  decoded.more = object->next + object->interval <= limit;
  if (object->started && !decoded.more && !object->overflowed && object->next < limit)
    decoded.begun = object->next + clock;
  if (decoded.more) object->lost_until = std::max(object->lost_until, limit);
  if (!decoded.more && samples.size() < most && std::exchange(object->after_stop, false)) {
    Sample empty;
    empty.start = empty.end = object->begun + clock;
    samples.push_back(empty);
  }
  return CUPTI_SUCCESS;
}

}  // namespace inject::sim::counters

extern "C" uint64_t cudasim_sampling_misuse(void) {
  return inject::sim::counters::misuse();
}
