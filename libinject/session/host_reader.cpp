// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/host_reader.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/control_groups.h"
#include "libinject/capture/torch/loader_fetch.h"
#include "libinject/record/internal_thread.h"

namespace inject {

namespace {

// How long the thread waits for the next window.
constexpr Nanoseconds kReaderLinger = kSecond;
// Minimum interval between two full readings in a window (they take half of the budget at most), and between
// two readings of the workers' states.
constexpr Nanoseconds kAllInterval = kSecond;
constexpr Nanoseconds kAllShare = 2 * ReadingBudget::kShare;
constexpr Nanoseconds kLookInterval = 20 * kMillisecond;
// A window is left out if its two readings are off its edges by more than one part in this many of it.
constexpr Nanoseconds kOffEdges = 10;
constexpr Nanoseconds kMaxHostReading = 200 * kMillisecond;

/// How many CPUs the process's first thread may run on; 0: not known.
std::uint64_t allowed_processors() {
  constexpr std::size_t kMaxProcessors = 8'192;
  cpu_set_t* const set = CPU_ALLOC(kMaxProcessors);
  if (set == nullptr) return 0;
  const std::size_t size = CPU_ALLOC_SIZE(kMaxProcessors);
  CPU_ZERO_S(size, set);
  const int count = sched_getaffinity(getpid(), size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
  CPU_FREE(set);
  return static_cast<std::uint64_t>(count);
}

}  // namespace

void ReadingBudget::earn(Nanoseconds time) {
  if (earned_until_ != 0 && time > earned_until_) {
    left_ = std::min(left_ + static_cast<std::int64_t>((time - earned_until_) / kShare),
                     static_cast<std::int64_t>(kSaved));
    // Keeps the remainder that is too small to count.
    earned_until_ = time - (time - earned_until_) % kShare;
  } else if (earned_until_ == 0) {
    earned_until_ = time;
  }
}

void ReadingBudget::spend(Nanoseconds time, Nanoseconds took) {
  earn(time);
  left_ -= static_cast<std::int64_t>(took);
}

bool ReadingBudget::allows_edge(Nanoseconds time, Nanoseconds cost) {
  earn(time);
  return left_ >= static_cast<std::int64_t>(std::min(cost, kSaved));
}

bool ReadingBudget::allows_more(Nanoseconds time, Nanoseconds cost) {
  earn(time);
  return left_ >= static_cast<std::int64_t>(kSaved / 2 + std::min(cost, kSaved / 2));
}

Nanoseconds ReadingBudget::next(Nanoseconds time, Nanoseconds cost) {
  if (allows_more(time, cost)) return time;
  const std::int64_t missing = static_cast<std::int64_t>(kSaved / 2 + std::min(cost, kSaved / 2)) - left_;
  return time + static_cast<Nanoseconds>(missing) * kShare;
}

void HostReader::window_begins(std::uint32_t window, Nanoseconds time) noexcept {
  note({window, time, true});
}

void HostReader::window_ends(std::uint32_t window, Nanoseconds time) noexcept {
  note({window, time, false});
}

void HostReader::note(Edge edge) noexcept {
  const MutexLock lock(mutex_);
  if (stopped_ || unusable_) return;
  if (pending_ == kMaxEdges) {
    std::copy(edges_.begin() + 1, edges_.end(), edges_.begin());
    --pending_;
  }
  edges_[pending_++] = edge;
  if (edge.opens) ++begun_;
  wake_.notify_one();
}

void HostReader::tend(bool window_expected) noexcept {
  const MutexLock lock(mutex_);
  if (running_ || stopped_ || unusable_ || (pending_ == 0 && !window_expected)) return;
  running_ = start_internal_thread(&entry, this) == 0;
}

void HostReader::wait(Nanoseconds most) noexcept {
  tend(false);
  MutexLock lock(mutex_);
  lock.wait_for(changed_, most, [this]() INJECT_REQUIRES(mutex_) {
    return !running_ || stopped_ || unusable_ || (pending_ == 0 && !busy_);
  });
}

void HostReader::stop() noexcept {
  MutexLock lock(mutex_);
  stopped_ = true;
  wake_.notify_one();
  lock.wait_for(changed_, kMaxHostReading, [this]() INJECT_REQUIRES(mutex_) { return !running_; });
}

void* HostReader::entry(void* reader) noexcept {
  enter_internal_thread();
  auto* self = static_cast<HostReader*>(reader);
  try {
    self->run();
  } catch (...) {
    // Out of memory: no further readings.
    const MutexLock lock(self->mutex_);
    self->unusable_ = true;
    self->running_ = self->busy_ = false;
    self->changed_.notify_all();
  }
  return nullptr;
}

void HostReader::run() {
  const bool own = source_.is_own();
  MutexLock lock(mutex_);
  unusable_ = !own;
  accounted_ = 0;
  const auto wanted = [this]() INJECT_REQUIRES(mutex_) { return stopped_ || pending_ != 0; };
  while (!stopped_ && !unusable_) {
    const Nanoseconds time = now();
    if (pending_ != 0) {
      read_edges(lock);
    } else if (open_ == 0) {
      if (!lock.wait_for(wake_, kReaderLinger, wanted)) break;
    } else if (const Nanoseconds next = next_look(time); next > time) {
      lock.wait_for(wake_, next - time, wanted);
    } else {
      read_between(lock);
    }
  }
  running_ = false;
  changed_.notify_all();
}

// Charges all the thread has used since the last time, including waking up.
void HostReader::account() {
  const Nanoseconds time = thread_cpu_time();
  const Nanoseconds took = time - std::exchange(accounted_, time);
  budget_.spend(now(), took);
  readings_.processor_time += took;
}

void HostReader::note_reading() {
  ++readings_.readings;
  readings_.threads_beyond = std::max(readings_.threads_beyond, reading_.threads_beyond);
  readings_.children_beyond = std::max(readings_.children_beyond, reading_.children_beyond);
}

void HostReader::read_edges(MutexLock& lock) {
  const std::array<Edge, kMaxEdges> edges = edges_;
  const std::size_t count = std::exchange(pending_, 0);
  bool read = budget_.allows_edge(now(), all_cost_);
  busy_ = true;
  if (read) {
    const Nanoseconds begin = thread_cpu_time();
    lock.unlock();
    read = read_all();
    lock.lock();
    last_all_ = now();
    all_cost_ = thread_cpu_time() - begin;
    account();
    if (read) note_reading();
  }
  for (std::size_t i = 0; i < count; ++i) handle(edges[i], read);
  busy_ = false;
  changed_.notify_all();
}

void HostReader::handle(const Edge& edge, bool read) {
  const HostTally::Mark& latest = tally_.latest();
  if (edge.opens) {
    open_ = edge.window;
    opened_ = edge.time;
    mark_.reset();
    if (!read) return;
    mark_ = tally_.begin_window();
    late_ = latest.time - std::min(latest.time, edge.time);
    return;
  }
  if (edge.window != open_) return;
  open_ = 0;
  const Nanoseconds late = latest.time - std::min(latest.time, edge.time);
  const bool usable = read && mark_ && (late_ + late) * kOffEdges <= edge.time - opened_;
  if (!usable || windows_.size() == kMaxWindows) return;
  HostWindow window = HostTally::window(*mark_, latest);
  window.window = edge.window;
  windows_.push_back(std::move(window));
}

bool HostReader::all_due(Nanoseconds time) const {
  return time >= last_all_ + std::max(kAllInterval, kAllShare * all_cost_);
}

// When to read next while a window is open. At irregular intervals, because steps are regular.
Nanoseconds HostReader::next_look(Nanoseconds time) {
  if (all_due(time)) return budget_.next(time, all_cost_);
  return std::max(last_look_ + kLookInterval / 2 + jitter_ % kLookInterval, budget_.next(time, look_cost_));
}

void HostReader::read_between(MutexLock& lock) {
  const Nanoseconds begin = thread_cpu_time();
  const Nanoseconds time = now();
  const bool all = all_due(time);
  jitter_ = jitter_ * 6'364'136'223'846'793'005u + 1'442'695'040'888'963'407u;
  last_look_ = time;
  lock.unlock();
  bool complete = false;
  if (all) {
    complete = read_all();
  } else {
    look_at_workers();
  }
  lock.lock();
  (all ? all_cost_ : look_cost_) = thread_cpu_time() - begin;
  account();
  if (!all) return;
  last_all_ = time;
  if (complete) note_reading();
}

bool HostReader::read_all() {
  const bool complete = source_.read(reading_);
  reading_.affinity = allowed_processors();
  reading_.quota_thousandths = static_cast<std::uint64_t>(1000 * group_processors().value_or(0) + 0.001);
  if (complete) tally_.add(reading_);
  return complete;
}

void HostReader::look_at_workers() {
  const pid_t thread = fetching_thread.load(std::memory_order_relaxed);
  if (thread == 0) return;
  std::array<char, HostSource::kMaxChildren> states;
  std::size_t count = 0;
  for (const HostTask& child : reading_.children) {
    if (child.role != HostRole::kLoaderWorker || count == states.size()) continue;
    if (const char state = source_.state_of(child.id, child.start); state != 0) states[count++] = state;
  }
  // Read after them: it waited all that time, in this fetch or the next one. What it computes there is its
  // own work.
  const char waits = source_.thread_state(thread);
  if (waits != 0 && waits != 'R' && fetching_thread.load(std::memory_order_relaxed) == thread)
    tally_.add_moment(std::string_view(states.data(), count));
}

std::vector<HostWindow> HostReader::windows() const {
  const MutexLock lock(mutex_);
  return windows_;
}

HostReadings HostReader::readings() const {
  const MutexLock lock(mutex_);
  HostReadings readings = readings_;
  const std::uint64_t open = open_ != 0 ? 1 : 0;
  readings.windows_not_read = begun_ - std::min(begun_, windows_.size() + open);
  return readings;
}

}  // namespace inject
