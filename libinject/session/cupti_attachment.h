// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "libinject/capture/cupti/tracer.h"
#include "libinject/capture/metrics/pm_sampler.h"
#include "libinject/config/options.h"
#include "libinject/model/run_info.h"
#include "libinject/pipeline/profiled_times.h"
#include "libinject/record/buffers.h"
#include "libinject/session/once_log.h"
#include "libinject/session/session_state.h"

namespace inject {

/// Limits how often CUPTI is finalized. Each cuptiFinalize leaks some 0.6 MB of device memory, and some host
/// memory, whoever calls it and whatever had been enabled (CUDA 13.0, H200: studies/cupti_cycles.py). A
/// process may call it this often, and once more for each hour; beyond that, CUPTI stays initialised between
/// windows, with nothing enabled and no subscriber.
struct FinalizationBudget {
  static constexpr std::uint64_t kMax = 50;
  static constexpr Nanoseconds kOneMoreEach = 3'600 * kSecond;

  static constexpr bool allows(std::uint64_t finalizations, Nanoseconds attached_for) noexcept {
    return finalizations < kMax + attached_for / kOneMoreEach;
  }
};

/// CUPTI as the session uses it: attached for windows and released after them, together with the sampling of
/// hardware metrics. Call with the session's lock, except for functions marked as callable from any thread.
class CuptiAttachment {
 public:
  /// `register_exit_handler` is called once CUPTI has been loaded, and again once the sampling libraries have
  /// been: exit handlers run last in, first out, and ours has to run before theirs.
  CuptiAttachment(const Options& options, SessionState& state, OnceLog& once, ProfiledTimes& times,
                  Tracer::Events events, void (*register_exit_handler)());
  CuptiAttachment(const CuptiAttachment&) = delete;
  CuptiAttachment& operator=(const CuptiAttachment&) = delete;

  Tracer& tracer() noexcept { return tracer_; }
  const Tracer& tracer() const noexcept { return tracer_; }
  PmSampler& sampler() noexcept { return sampler_; }
  const PmSampler& sampler() const noexcept { return sampler_; }
  ActivityBuffers& buffers() noexcept { return buffers_; }
  /// The window's records have arrived: only launch callbacks stay on until the next window.
  void keep_launches() noexcept;

  /// Attaches CUPTI, or raises its level. `refusal`: why we may not; empty if we may. False if recordings
  /// will have no device activity; untraced() then returns the reason.
  bool raise(TracerLevel level, bool may_gate, const std::string& refusal) noexcept;
  /// Why the latest attachment failed.
  const std::string& untraced() const noexcept { return untraced_; }

  struct Detachment {
    bool sampler_out = true;   ///< stop_sampler()
    bool spare_none = false;   ///< finalize at any cost: the last window is over, or a client is waiting
    bool may_finalize = true;  ///< false if the program is about to finalize it itself
    ContextWait contexts = ContextWait::kNo;  ///< whether to wait for a context that is being created
    bool has_context = true;                  ///< the program has created one
  };
  /// False if CUPTI stays subscribed, with nothing recorded; detach_owed() is then true. That is so if
  /// sampling is still inside CUPTI (detaching it during a call would end the program), while we are
  /// initialising NVML, and as long as the program has no context: nothing keeps it from creating one while
  /// CUPTI is finalized, which would break that context.
  bool detach(const Detachment& how) noexcept;
  bool detach_owed() const noexcept { return detach_owed_; }
  /// True while a thread is inside CUPTI, attaching or detaching it. Any thread.
  bool inside() const noexcept { return inside_.load(std::memory_order_relaxed); }
  /// Another window has opened, after which CUPTI will be detached anyway.
  void forgive_detach() noexcept { detach_owed_ = false; }
  /// The program has finalized CUPTI: whatever was still attached is gone. `window_open`: an open window
  /// loses data.
  void forget(bool window_open) noexcept;
  /// CUPTI keeps a buffer for every thread that has launched, full or not, until it is flushed: threads that
  /// come and go, or launched once, would use up all of them. `gone`: threads that have ended so far.
  void reclaim_idle_buffers(std::uint64_t gone);

  // Any thread. Each waits a bounded time for the sampling to leave CUPTI, and does not wait again for calls
  // that hang.
  bool stop_sampler() noexcept;
  void suspend_sampler() noexcept;
  void yield_sampler(bool initialize) noexcept;
  /// True if a call of the sampling thread hangs.
  bool sampler_hangs() const noexcept;
  /// The program has finalized CUPTI at a moment when forget() could not be called: forget_if_owed() makes up
  /// for it, and then returns true.
  void owe_forgetting() noexcept { forget_owed_.store(true, std::memory_order_release); }
  bool forget_if_owed(bool window_open) noexcept;

  /// Adds the time spent attaching and detaching so far. Any thread.
  void add_overhead(Overhead& overhead) const noexcept;

 private:
  bool try_raise(TracerLevel level, bool may_gate, const std::string& refusal) noexcept;
  void warn_no_device_activity(const std::string& why);
  Nanoseconds longest_sampler_stop() const noexcept;
  void note_sampler(bool out) noexcept;

  const Options& options_;
  SessionState& state_;
  OnceLog& once_;
  ProfiledTimes& times_;
  bool lingers_ = false;  // detached but not finalized: times_ goes on
  void (*const register_exit_handler_)();
  ActivityBuffers buffers_;
  Tracer tracer_;
  PmSampler sampler_;
  std::atomic<bool> sampler_stuck_{false};          // was still inside when last waited for
  std::atomic<std::uint64_t> sampler_stuck_at_{0};  // number of passes it had made by then
  std::atomic<bool> forget_owed_{false};
  std::atomic<bool> inside_{false};
  bool cupti_kept_ = false;   // a sampling call did not return in time: CUPTI is never finalized
  bool detach_owed_ = false;  // CUPTI stays subscribed until it can be detached
  Nanoseconds first_attached_ = 0;
  std::string problem_;  // the latest one logged
  std::string untraced_;
  std::uint64_t seen_refusals_ = 0;
  std::uint64_t seen_gone_ = 0;
  // Atomic: the writer reads them under the pipeline's lock.
  std::atomic<Nanoseconds> attaching_time_{0};
  std::atomic<Nanoseconds> detaching_time_{0};
  std::atomic<std::uint64_t> attachments_{0};
  std::atomic<std::uint64_t> finalizations_{0};
};

}  // namespace inject
