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

/// How often CUPTI is finalized. Each cuptiFinalize leaves some 0.6 MB of the device's memory behind, and
/// some of the host's, whoever calls it and whatever had been enabled (CUDA 13.0, H200:
/// studies/cupti_cycles.py). It is called this often in a process, and once more for each hour; beyond that
/// CUPTI stays initialised between windows, with nothing enabled and nobody subscribed.
struct FinalizationBudget {
  static constexpr std::uint64_t kMax = 50;
  static constexpr Nanoseconds kOneMoreEach = 3'600 * kSecond;

  static constexpr bool allows(std::uint64_t finalizations, Nanoseconds attached_for) noexcept {
    return finalizations < kMax + attached_for / kOneMoreEach;
  }
};

/// CUPTI as the session uses it: attached for windows and given up after them, with the sampling of hardware
/// metrics beside it. With the session's lock, but for what is said to be for any thread.
class CuptiAttachment {
 public:
  /// `register_exit_handler` is called once CUPTI has been loaded, and once the sampling's libraries have:
  /// exit handlers run last in, first out, and ours has to run before theirs.
  CuptiAttachment(const Options& options, SessionState& state, OnceLog& once, ProfiledTimes& times,
                  Tracer::Events events, void (*register_exit_handler)());
  CuptiAttachment(const CuptiAttachment&) = delete;
  CuptiAttachment& operator=(const CuptiAttachment&) = delete;

  Tracer& tracer() noexcept { return tracer_; }
  const Tracer& tracer() const noexcept { return tracer_; }
  PmSampler& sampler() noexcept { return sampler_; }
  const PmSampler& sampler() const noexcept { return sampler_; }
  ActivityBuffers& buffers() noexcept { return buffers_; }
  /// The window's records have come: only launch callbacks stay on until the next window.
  void keep_launches() noexcept;

  /// Attaches CUPTI, or raises its level. `refusal`: why we may not; empty: we may. False: what
  /// is recorded has no device activity, and untraced() says why.
  bool raise(TracerLevel level, bool may_gate, const std::string& refusal) noexcept;
  /// Why the latest attachment failed.
  const std::string& untraced() const noexcept { return untraced_; }

  struct Detachment {
    bool may_gate = false;
    bool sampler_out = true;   ///< stop_sampler()
    bool spare_none = false;   ///< finalized at any cost: the last window is over, or a client waits
    bool may_finalize = true;  ///< false where the program is about to do so itself
    ContextWait contexts = ContextWait::kNo;  ///< whether one that is being created may be waited for
    bool has_context = true;                  ///< the program has created one
  };
  /// False where CUPTI stays subscribed, with nothing recorded, and detach_owed(). Where the sampling has not
  /// come out of it: pulled from under a call, it would end the program. While NVML is being initialised by
  /// us. And as long as the program has no context: nothing keeps it from beginning to create one while CUPTI
  /// is finalized, which spoils that one.
  bool detach(const Detachment& how) noexcept;
  bool detach_owed() const noexcept { return detach_owed_; }
  /// Any thread: whether one is in CUPTI, attaching or detaching it.
  bool inside() const noexcept { return inside_.load(std::memory_order_relaxed); }
  /// A window has opened meanwhile, after which CUPTI will be detached anyway.
  void forgive_detach() noexcept { detach_owed_ = false; }
  /// The program has finalized CUPTI: what was attached, or was left of it, is gone. `window_open`: one loses
  /// by that.
  void forget(bool window_open) noexcept;
  /// CUPTI keeps a buffer for every thread that has launched, full or not, until it is flushed: threads that
  /// come and go, or that launched once, would take all of them. `gone`: threads that have ended so far.
  void reclaim_idle_buffers(std::uint64_t gone);

  // Any thread. Each waits for the sampling to come out of CUPTI, for a bounded time, and not a second time
  // for calls that hang.
  bool stop_sampler() noexcept;
  void suspend_sampler() noexcept;
  void yield_sampler(bool initialize) noexcept;
  /// A call of the sampling's hangs.
  bool sampler_hangs() const noexcept;
  /// The program has finalized CUPTI where it could not be forgotten at once: that is made up for by
  /// forget_if_owed(), which is true then.
  void owe_forgetting() noexcept { forget_owed_.store(true, std::memory_order_release); }
  bool forget_if_owed(bool window_open) noexcept;

  /// What attaching and detaching has taken so far. Any thread.
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
  bool lingers_ = false;  // detached, and not finalized: times_ goes on
  void (*const register_exit_handler_)();
  ActivityBuffers buffers_;
  Tracer tracer_;
  PmSampler sampler_;
  std::atomic<bool> sampler_stuck_{false};          // it was not out when it was last waited for …
  std::atomic<std::uint64_t> sampler_stuck_at_{0};  // … and had made so many passes
  std::atomic<bool> forget_owed_{false};
  std::atomic<bool> inside_{false};
  bool cupti_kept_ = false;   // a sampling call did not return in time: CUPTI is never finalized …
  bool detach_owed_ = false;  // … nor unsubscribed until it has returned
  Nanoseconds first_attached_ = 0;
  std::string problem_;  // the latest that was said
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
