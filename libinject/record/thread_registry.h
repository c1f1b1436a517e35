// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "libinject/model/records.h"
#include "libinject/record/block_pool.h"
#include "libinject/record/collective_group.h"
#include "libinject/record/open_calls.h"
#include "libinject/record/open_operators.h"
#include "libinject/record/unplaced_pushes.h"
#include "libinject/record/watched_ranges.h"

namespace inject {

/// The state of one program thread while it is observed. Only its own thread touches it, except for `queue`'s
/// consumer side, `life` and `ended_ranges`. Others may read `index`.
struct alignas(64) ThreadState {
  enum Life : std::uint32_t { kFree = 0, kLive = 1, kDead = 2, kClaimed = 3 };

  std::uint32_t index = 0;  ///< into the run's thread list; 0 is never given
  std::uint32_t calls = 0;  ///< numbers the thread's calls
  std::uint32_t range = 0;  ///< NVTX ranges open now, as a node of the range tree
  std::uint32_t graph_nodes =
      0;  ///< graph nodes created on this thread: grows inside a launch that is captured
  std::uint32_t graph_nodes_at_enter = 0;
  std::uint32_t launching_kernel = 0;  ///< 1 while a kernel launch of an open window is in progress
  std::uint32_t last_shape = 0;        ///< of the call whose operand is last_operand
  std::uint64_t last_operand = 0;
  std::uint32_t untimed_signs = 0;   ///< signs that need no time (record/iteration_watch.cpp)
  std::uint32_t sign_pass = 0;       ///< pass of the search at the last sign that had one
  std::uint64_t sign_sum = 0;        ///< of the shapes of its signs so far
  std::uint64_t step_sum = 0;        ///< sign_sum at the beginning of the optimizer step in progress
  std::uint64_t sign_count = 0;      ///< number of its signs so far
  std::uint64_t step_count = 0;      ///< sign_count at the beginning of that step
  std::uint64_t step_function = 0;   ///< LaunchSign::function of that step
  std::uint32_t step_optimizer = 0;  ///< LaunchSign::optimizer of that step
  const void* step = nullptr;        ///< the framework's object for that step; null outside of steps
  std::uint32_t step_level = 0;      ///< known operators around the step
  bool step_calls_model = false;     ///< the step has a closure that calls it; while launches are named
  const void* fetch = nullptr;       ///< the framework's object for the data loader fetch in progress
  Nanoseconds fetch_begin = 0;       ///< when the fetch began
  FetchKind fetch_kind = FetchKind::kWaiting;  ///< what is fetched
  bool has_stepped = false;                    ///< it has stepped an optimizer
  std::uint32_t captures = 0;                  ///< number of CUDA graphs that it is capturing now
  std::uint32_t capture_period = 0;            ///< in which it has captured into capture_stream
  void* capture_stream = nullptr;              ///< (capture/graph_capture.cpp)
  std::uint32_t launch_window = 0;             ///< window of the driver launch in progress
  std::uint32_t launch_place = 0;              ///< of that launch, while launches are named
  std::uint64_t launch_call = 0;               ///< its OperatorCall, packed
  std::uint32_t plain_window = 0;              ///< window that a driver call which submits nothing began in
  std::atomic<std::uint32_t> launching{0};     ///< 1 while a driver launch of an open window is in progress
  std::atomic<std::uint32_t> ended_ranges{0};  ///< start/end ranges of this thread that another thread ended
  std::atomic<std::uint32_t> life{kFree};
  // A short call needs the end of the queue and what follows it, up to the beginning of open_calls: two
  // adjacent cache lines.
  RecordQueue queue;
  alignas(64) Nanoseconds last_call_end = 0;  ///< of the last outermost call in a window that no
                                              ///< ShortCallFrame made
  std::uint64_t last_short_end = 0;           ///< in ticks, of the last one with a ShortCallFrame
  std::uint32_t processor_time_window = 0;    ///< of the last reading of the thread's processor time
  std::uint32_t kept_window = 0;              ///< of the last outermost call that was not short
  Nanoseconds kept_end = 0;                   ///< when that call ended
  std::uint64_t kept_end_ticks = 0;           ///< the same in ticks
  OpenCalls open_calls;
  WatchedRanges watched;
  UnplacedPushes unplaced;
  CollectiveGroup collectives;
  OpenOperators operators;  ///< of the program's framework, while launches are named

  /// Any thread: whether the thread with that index is still the one that this state is of.
  bool belongs_to_live(std::uint32_t thread_index) const noexcept {
    return life.load(std::memory_order_acquire) == kLive && index == thread_index;
  }

  /// Resets everything except `life`: another thread must not take the state meanwhile.
  void reset() noexcept {
    open_calls.reset(queue);
    operators.clear();
    index = calls = range = graph_nodes = graph_nodes_at_enter = launching_kernel = launch_window =
        launch_place = 0;
    launch_call = 0;
    untimed_signs = sign_pass = last_shape = plain_window = processor_time_window = kept_window = 0;
    last_operand = last_call_end = last_short_end = kept_end = kept_end_ticks = sign_sum = step_sum = 0;
    sign_count = step_count = step_function = step_optimizer = captures = 0;
    capture_period = 0;
    step = fetch = nullptr;
    capture_stream = nullptr;
    fetch_begin = 0;
    has_stepped = false;
    launching.store(0, std::memory_order_relaxed);
    ended_ranges.store(0, std::memory_order_relaxed);
    watched = {};
    unplaced.clear();
    collectives = {};
    queue.reset();
  }
};

/// Most of the library's share of the static TLS block. Declared here so that hooks read them without a call.
extern constinit thread_local ThreadState* this_thread_state;
extern constinit thread_local bool this_thread_ignored;
/// The thread is in a cudaProfilerStart that a hook sees.
extern constinit thread_local bool this_thread_starts_profiler;

/// While one exists, nothing that its thread does is recorded or held at the gate: for calls that a hook
/// makes to query a library, which must not appear among the program's calls and ranges.
class UnrecordedScope {
 public:
  UnrecordedScope() noexcept : state_(this_thread_state), ignored_(this_thread_ignored) {
    this_thread_state = nullptr;
    this_thread_ignored = true;
  }
  ~UnrecordedScope() {
    this_thread_state = state_;
    this_thread_ignored = ignored_;
  }
  UnrecordedScope(const UnrecordedScope&) = delete;
  UnrecordedScope& operator=(const UnrecordedScope&) = delete;

 private:
  ThreadState* state_;
  bool ignored_;
};

/// Host records that found the ring full, and calls left by siglongjmp, since the process began.
struct HostDrops {
  std::uint64_t calls = 0;
  std::uint64_t ranges = 0;

  bool operator==(const HostDrops&) const = default;
};

/// Finds and keeps the state of every thread that makes a recorded call. Bounded: 4,096 threads at once and
/// 65,536 over the run; calls of further threads are not recorded (counted in refused()).
class ThreadRegistry {
 public:
  static constexpr std::uint32_t kMaxAtOnce = 4096;
  static constexpr std::uint32_t kMaxEver = 65536;

  explicit ThreadRegistry(BlockPool& pool) noexcept;
  /// Only if no thread has been observed.
  ~ThreadRegistry();
  ThreadRegistry(const ThreadRegistry&) = delete;
  ThreadRegistry& operator=(const ThreadRegistry&) = delete;

  /// This thread's state, created on its first call; nullptr in our own threads, before there is a registry,
  /// after a fork, or if the registry is full.
  static ThreadState* current() noexcept {
    return this_thread_state != nullptr ? this_thread_state : first_of_this_thread();
  }
  static ThreadState* current_if_any() noexcept { return this_thread_state; }

  /// Marks the calling thread as one of ours: nothing that it does is recorded or held at the gate.
  static void ignore_this_thread() noexcept;
  static bool this_thread_is_ignored() noexcept { return this_thread_ignored; }

  /// Makes `registry` the one that current() uses; nullptr switches recording off permanently (a forked
  /// child).
  static void publish(ThreadRegistry* registry) noexcept;

  /// Publishes a record of the calling thread; counts it if there is no room. False if it was not published.
  template <typename Record>
  [[gnu::hot]] static bool push(ThreadState& thread, const Record& record) noexcept {
    BlockPool* pool = published_pool.load(std::memory_order_acquire);
    return pool != nullptr && thread.queue.push(*pool, record, thread.index);
  }
  /// The same for a call of `window` of which only the duration is kept.
  [[gnu::always_inline]] static void add_short_call(ThreadState& thread, std::uint32_t window,
                                                    ShortCallsRecord::Call call) noexcept {
    if (BlockPool* pool = published_pool.load(std::memory_order_acquire); pool != nullptr) {
      thread.queue.add_short_call(*pool, window, call, thread.index);
    }
  }
  /// The same, constructed in place by `fill(Record&)`.
  template <typename Record, typename Fill>
  [[gnu::always_inline]] static void emplace(ThreadState& thread, RecordKind kind, Fill&& fill) noexcept {
    if (BlockPool* pool = published_pool.load(std::memory_order_acquire); pool != nullptr) {
      thread.queue.emplace<Record>(*pool, kind, thread.index, fill);
    }
  }

  /// Drain thread: takes every record published since the last call, per thread in order. Recycles dead
  /// threads.
  template <typename Use>  // Use(std::uint32_t thread, const Slot&)
  void drain(Use&& use) {
    drain(use, [](std::uint32_t, const Block&, std::uint32_t, std::uint32_t, bool) {});
  }
  /// The same, with RecordQueue::drain()'s callback for blocks: Taken(thread, block, from, to, done).
  template <typename Use, typename Taken>
  void drain(Use&& use, Taken&& taken) {
    const std::uint32_t most = high_water_.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < most; ++i) {
      ThreadState& state = states_[i];
      const std::uint32_t life = state.life.load(std::memory_order_acquire);
      if (life != ThreadState::kLive && life != ThreadState::kDead) continue;
      const std::uint32_t index = state.index;
      state.queue.drain(
          pool_, [&](const Slot& slot) { use(index, slot); },
          [&](const Block& block, BlockPosition from, BlockPosition to, bool done) {
            taken(index, block, from, to, done || life == ThreadState::kDead);
          });
      if (life == ThreadState::kDead) recycle(state);
    }
  }

  /// True if some thread is inside a driver launch. A launch that began before current_window was set to 0 is
  /// seen.
  bool any_launching() const noexcept;
  /// Makes the barrier that any_launching() needs available. On our own thread, because the kernel may take
  /// long.
  static void register_barrier() noexcept;

  std::uint32_t threads_seen() const noexcept;
  pid_t tid(std::uint32_t index) const noexcept;
  /// The thread's current name in the kernel, or its name when it ended.
  std::string thread_name(std::uint32_t index) const;
  /// Number of records of this kind that did not fit, and of calls left by siglongjmp.
  std::uint64_t dropped(RecordKind kind) const noexcept;
  /// Number of records, of any kind, of threads that did not fit, while a window was open.
  std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }
  /// Refused records count as calls.
  HostDrops host_drops() const noexcept {
    return {dropped(RecordKind::kCall) + refused(), dropped(RecordKind::kRange)};
  }
  /// There was memory for the threads' state; if not, all threads are refused.
  bool usable() const noexcept { return usable_; }
  /// Drain thread, once: from here on, the threads' counts are kept in `lines` as well, complete and up to
  /// date. There are kCountLines of them: one for each thread that may exist at once, and one for those that
  /// were refused.
  void keep_counts(RecordCounts* lines) noexcept;
  static constexpr std::uint32_t kCountLines = kMaxAtOnce + 1;
  RecordCounts* kept_counts() const noexcept { return count_lines_.load(std::memory_order_acquire); }
  /// Number of the process's threads that have exited after they had a state.
  static std::uint64_t exited() noexcept;
  /// Number of threads that have ended and whose last records have been taken.
  std::uint64_t gone() const noexcept { return gone_.load(std::memory_order_relaxed); }

 private:
  struct Identity {
    std::atomic<pid_t> tid;
    char name[16];
  };

  static ThreadState* first_of_this_thread() noexcept;
  ThreadState* acquire() noexcept;
  ThreadState* refuse() noexcept;
  void keep_refused() noexcept;
  void recycle(ThreadState& state) noexcept;
  static void wait_for_stores() noexcept;
  static void on_thread_exit(void* state) noexcept;

  BlockPool& pool_;
  ThreadState* states_ = nullptr;
  Identity* identities_ = nullptr;
  pthread_key_t key_ = 0;
  bool usable_ = false;
  std::atomic<std::uint32_t> high_water_{0};
  std::atomic<std::uint32_t> next_index_{1};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> gone_{0};
  std::atomic<RecordCounts*> count_lines_{nullptr};
};

}  // namespace inject
