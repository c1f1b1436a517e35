// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "libinject/base/grace_period.h"
#include "libinject/base/time.h"
#include "libinject/capture/cupti/api.h"
#include "libinject/capture/cupti/callbacks.h"
#include "libinject/capture/cupti/context_creation.h"
#include "libinject/record/buffers.h"

namespace inject {

/// What CUPTI is used for, in increasing order of cost.
enum class TracerLevel : std::uint8_t {
  kDetached,       ///< not subscribed, finalized: the program runs at full speed
  kProfilerCalls,  ///< subscribed to cu/cudaProfilerStart and Stop: no cost on the launch path
  kLaunches,       ///< also to every launch, copy and memset: some 0.2 µs per launch
  kActivity,       ///< also collects activity records: some 0.5 µs per launch
};

/// The one CUPTI subscriber of this process: attaching, detaching and the callbacks. Not thread-safe except
/// for the callbacks, flush(), level() and loaded(): the session calls it with its lock held.
class Tracer {
 public:
  using Events = ProfilerEvents;

  Tracer(ActivityBuffers& buffers, Events events) noexcept;

  /// Raises the level, never lowers it. On failure it returns false, sets `error` to the reason, and is
  /// kDetached. On success `error` names what will be missing, if anything. `all_driver_calls`:
  /// INJECT_API=full.
  bool raise(TracerLevel level, bool all_driver_calls, std::string& error,
             ContextWait contexts = ContextWait::kNo);

  /// Stops activity records of new work; those of work submitted earlier still arrive. Waits for contexts
  /// that are being created only as `contexts` allows.
  void stop_activity(ContextWait contexts = ContextWait::kNo) noexcept;
  /// Undoes stop_activity().
  void resume_activity() noexcept;

  /// Returns to kLaunches once the activity has been collected, without a gap in the launch callbacks.
  void keep_launches() noexcept;

  /// Requests from CUPTI the buffers whose records are complete; with `force` all of them, complete or not.
  /// May block until running kernels are done. Never from a callback.
  void flush(bool force) noexcept;

  /// Unsubscribes and, if `finalize`, finalizes CUPTI, unless it has failed or has traced CUDA graphs, or a
  /// thread stays inside it. Waits for a use() on another thread, and for threads to leave CUPTI; those that
  /// create a context only as `contexts` allows.
  void detach(bool finalize, ContextWait contexts = ContextWait::kNo) noexcept;

  /// True if our subscription is still valid: a cuptiFinalize by any client ends all of them.
  bool holds() noexcept;

  /// Detaches without calling CUPTI: the program has finalized it, and our subscription with it.
  void forget() noexcept;

  /// Held while CUPTI returns buffers or reads records, so that it is not finalized meanwhile. Waits for
  /// kMaxUse at most: a flush may be waiting for a kernel that never ends.
  static std::unique_lock<std::mutex> use() noexcept;
  static constexpr Nanoseconds kMaxUse = 5 * kSecond;

  /// Held while we initialise NVML, and while CUPTI is attached or finalized: one in the middle of the other
  /// leaves a lock behind that the next cuInit waits for, for ever (driver 580). Not owned if it can't be had
  /// within `most`.
  static std::unique_lock<std::mutex> no_switch(Nanoseconds most = kMaxNoSwitch) noexcept;
  static constexpr Nanoseconds kMaxNoSwitch = kSecond;

  TracerLevel level() const noexcept { return level_.load(std::memory_order_acquire); }
  bool activity_on() const noexcept { return activity_on_; }
  const CuptiApi& api() const noexcept { return api_; }
  bool loaded() const noexcept { return loaded_.load(std::memory_order_acquire); }
  /// Converts a record's time to CLOCK_MONOTONIC: a CUPTI that can't use our clock uses CLOCK_REALTIME.
  static Nanoseconds to_our_clock(Nanoseconds time) noexcept;
  /// How far CUPTI's clock is ahead of ours.
  static Nanoseconds clock_ahead_of_ours() noexcept;
  /// Time spent in CUPTI's buffer callbacks (requests and returns), over the run, on all threads.
  static Nanoseconds buffer_callback_time() noexcept;
  /// Records that CUPTI itself dropped, over the run.
  static std::uint64_t dropped_records() noexcept;
  /// True if the last detach() finalized CUPTI: it holds no buffer, and launches run at full speed.
  bool finalized() const noexcept { return finalized_; }
  /// True if the program launched or copied something while CUPTI was attached: it has a context.
  static bool saw_work() noexcept;
  /// True if the program launched or instantiated CUDA graphs while CUPTI was attached.
  static bool saw_graphs() noexcept;
  /// Why the last detach() did not finalize CUPTI, if the program's threads were the reason; otherwise kOver.
  GracePeriod threads_left() const noexcept { return threads_left_; }
  /// True if a thread is inside CUPTI that may sleep there: in cu/cudaProfilerStart or Stop, as seen by a
  /// hook or a callback, or in a callback that waits for the session. CUPTI is not finalized meanwhile.
  static bool thread_inside() noexcept;
  /// True if CUPTI gave up with a fatal error and finalized itself.
  static bool failed() noexcept;
  /// How often it did so in this process.
  static std::uint32_t failures() noexcept;

 private:
  static GracePeriod wait_until_left(ContextWait contexts) noexcept;
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
  GracePeriod threads_left_ = GracePeriod::kOver;
};

}  // namespace inject
