// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "libinject/capture/cupti/api.h"
#include "libinject/capture/cupti/callbacks.h"
#include "libinject/capture/cupti/context_creation.h"
#include "libinject/model/records.h"
#include "libinject/record/buffers.h"

namespace inject {

/// What CUPTI is used for, in increasing order of cost.
enum class TracerLevel : std::uint8_t {
  kDetached,       ///< not subscribed, finalized: the program runs at its bare speed
  kProfilerCalls,  ///< subscribed to cu/cudaProfilerStart and Stop: no cost on the launch path
  kLaunches,       ///< … and to every launch, copy and memset: some 0.2 µs a launch
  kActivity,       ///< … and activity records are collected: some 0.5 µs a launch
};

/// The one CUPTI subscriber of this process: attaching, detaching and the callbacks. Not thread-safe but for
/// the callbacks, flush(), level() and loaded(): the session calls it under its lock.
class Tracer {
 public:
  using Events = ProfilerEvents;

  Tracer(ActivityBuffers& buffers, Events events) noexcept;

  /// Raises the level, never lowers it. On failure it returns false, gives the reason in `error`, and is
  /// kDetached. On success `error` names what will be missing, if anything.
  /// `all_driver_calls`: INJECT_API=full.
  bool raise(TracerLevel level, bool all_driver_calls, std::string& error,
             ContextWait contexts = ContextWait::kNo);

  /// Stops activity records of new work; those of work submitted before still arrive. Waits for contexts that
  /// are being created only as `contexts` allows.
  void stop_activity(ContextWait contexts = ContextWait::kNo) noexcept;
  /// Undoes stop_activity().
  void resume_activity() noexcept;

  /// Back to kLaunches once the activity has been collected, without a gap in the launch callbacks.
  void keep_launches() noexcept;

  /// Asks CUPTI for the buffers whose records are complete; `force` for all of them, finished or not. May
  /// block until running kernels are done. Never from a callback.
  void flush(bool force) noexcept;

  /// Unsubscribes and, if `finalize`, finalizes CUPTI, unless it has failed or has traced CUDA graphs, or a
  /// thread stays inside it. Waits for a use() on another thread, and for threads to leave CUPTI; those that
  /// create a context only as `contexts` allows.
  void detach(bool finalize, ContextWait contexts = ContextWait::kNo) noexcept;

  /// Whether our subscription is still valid: a cuptiFinalize by any client ends all of them.
  bool holds() noexcept;

  /// Detaches without calling CUPTI: the program has finalized it, and our subscription with it.
  void forget() noexcept;

  /// Held while CUPTI returns buffers or reads records, so that it is not finalized meanwhile. Waits for
  /// kMaxUse at most: a flush may be waiting for a kernel that never ends.
  static std::unique_lock<std::mutex> use() noexcept;
  static constexpr Nanoseconds kMaxUse = 5'000'000'000;

  /// Held while NVML is initialised by us, and while CUPTI is attached or finalized: one in the middle of the
  /// other leaves a lock behind that the next cuInit waits for, for ever (driver 580). Not owned where it
  /// can't be had within `most`.
  static std::unique_lock<std::mutex> no_switch(Nanoseconds most = kMaxNoSwitch) noexcept;
  static constexpr Nanoseconds kMaxNoSwitch = 1'000'000'000;

  TracerLevel level() const noexcept { return level_.load(std::memory_order_acquire); }
  bool activity_on() const noexcept { return activity_on_; }
  const CuptiApi& api() const noexcept { return api_; }
  bool loaded() const noexcept { return loaded_.load(std::memory_order_acquire); }
  /// A record's time on CLOCK_MONOTONIC: a CUPTI that can't take our clock uses CLOCK_REALTIME.
  static Nanoseconds to_our_clock(Nanoseconds time) noexcept;
  /// How far CUPTI's clock is ahead of ours.
  static Nanoseconds clock_ahead_of_ours() noexcept;
  /// Time spent in CUPTI's requests for buffers and returns of them, over the run, on all threads.
  static Nanoseconds buffer_callback_time() noexcept;
  /// Records that CUPTI itself dropped, over the run.
  static std::uint64_t dropped_records() noexcept;
  /// The last detach() finalized CUPTI: it holds no buffer, and launches run at their bare speed.
  bool finalized() const noexcept { return finalized_; }
  /// The program launched or copied something while CUPTI was attached: it has a context.
  static bool saw_work() noexcept;
  /// The program launched or instantiated CUDA graphs while CUPTI was attached.
  static bool saw_graphs() noexcept;
  /// The last detach() did not finalize it because a thread of the program's stayed inside.
  bool thread_stayed() const noexcept { return thread_stayed_; }
  /// A thread is inside CUPTI that may sleep there: in cu/cudaProfilerStart or Stop, where a hook or a
  /// callback sees it, or in a callback that waits for the session. CUPTI is not finalized meanwhile.
  static bool thread_inside() noexcept;
  /// CUPTI gave up with a fatal error and finalized itself.
  static bool failed() noexcept;
  /// How often it did so in this process.
  static std::uint32_t failures() noexcept;

 private:
  static bool wait_until_left(ContextWait contexts) noexcept;
  bool raise_to(TracerLevel level, bool all_driver_calls, std::string& error, ContextWait contexts);
  bool attach(std::string& error, ContextWait contexts);
  bool look_up_driver_functions(std::string& error);
  bool enable_launch_callbacks(bool all_driver_calls, std::string& error);
  void watch_creations() noexcept;
  bool enable_activity(std::string& error);

  ActivityBuffers& buffers_;
  CuptiApi api_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::atomic<TracerLevel> level_{TracerLevel::kDetached};
  std::atomic<bool> loaded_{false};
  bool activity_on_ = false;
  bool finalized_ = false;
  bool thread_stayed_ = false;
};

}  // namespace inject
