// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <string>
#include <vector>

#include "libinject/base/mutex.h"
#include "libinject/capture/metrics/sampled_devices.h"
#include "libinject/capture/metrics/sampling_stop.h"
#include "libinject/model/metric_samples.h"
#include "libinject/model/run_info.h"

namespace inject {

/// Hardware metrics, sampled while the program runs at full speed (CUPTI's PM sampling). All of it happens on
/// a thread of our own, which exists only while CUPTI is attached for windows:
///   start() → ProfilerInitialize, for each device that the program uses: Enable, SetConfig, Start
///           → decode, evaluate, decode, …
///   stop()  → Stop, the rest, Disable, ProfilerDeInitialize
/// This must happen between cuptiSubscribe and cuptiUnsubscribe, in this order: a sampling call after
/// cuptiFinalize and before the next cuptiSubscribe ends the program (H200, CUDA 13.0).
///
/// Memory is bounded whatever a window's length: CUPTI's hardware buffer and image per device, and a queue of
/// samples that the drain side empties. Losses are counted.
///
/// This class has the thread, and its interface to other threads; its work with the devices is in
/// sampled_devices.
class PmSampler final : private SamplingOwner {
 public:
  using Options = SamplingOptions;
  /// Approximate time that starting takes with the devices known so far: the vendor's libraries are loaded
  /// the first time, and devices are set up one after the other.
  Nanoseconds start_time() const noexcept;

  explicit PmSampler(Options options);
  ~PmSampler();
  PmSampler(const PmSampler&) = delete;
  PmSampler& operator=(const PmSampler&) = delete;

  /// CUPTI is attached: sampling starts soon. Returns at once.
  void start(const CuptiApi& cupti) noexcept;
  /// Waits until every device that the program uses is being sampled, or can't be. False if that takes longer
  /// than `most`.
  bool wait_started(Nanoseconds most) noexcept;
  /// Once this returns true, no CUPTI call is made until start() is called. False if a call has not returned
  /// within `most`. Waits for nothing else, even if a signal handler has interrupted another member function.
  bool stop(Nanoseconds most) noexcept;
  /// The same if the program is about to finalize CUPTI. start() does nothing until resume(), and the results
  /// of a call that has not returned are not touched any more.
  bool suspend(Nanoseconds most) noexcept;
  void resume() noexcept;
  /// The program is about to initialise CUPTI's profiler itself, which exists once per process and counts no
  /// users, or to deinitialise it (`initialize` false): like stop(), but permanently.
  bool yield_cupti(bool initialize, Nanoseconds most) noexcept;
  /// The same before there is a sampler.
  static void note_foreign_profiler() noexcept;
  bool running() const noexcept;
  /// True if CUPTI is attached, and what start() requested is not being sampled yet.
  bool starting() const noexcept;
  /// A window has begun at `begin`, or ended: its time before sampling began is counted as lost.
  void note_window(Nanoseconds begin) noexcept;
  void note_window_end(Nanoseconds end) noexcept;
  /// True if CUPTI has refused to switch the sampling of a device off: it can't be finalized any more.
  bool still_on() const noexcept { return still_on_.load(std::memory_order_acquire); }
  /// Grows as long as the thread makes progress: a thread that did not stop in time may just be slow.
  std::uint64_t passes() const noexcept { return passes_.load(std::memory_order_relaxed); }

  /// The program has used these devices, one bit each. Devices with a primary context need not be noted.
  void note_devices(std::uint64_t devices) noexcept;

  /// The samples since the last call, oldest first per device; `window` is not known here.
  std::vector<MetricSample> take() noexcept;
  /// Information on the sampling. Its columns are those of the samples: empty until the first device has been
  /// configured, the same from then on.
  MetricsInfo info() const;

 private:
  static void* entry(void* sampler) noexcept;
  void run() noexcept;
  void sample();
  void shut_down() noexcept;
  void log_lost_samples();
  void count_unsampled_until(Nanoseconds time) noexcept INJECT_REQUIRES(mutex_);

  void add_device(std::uint32_t device, const MetricChoice& choice) override;
  void leave_out(const std::vector<std::string>& titles) override;
  void hand_over(SamplingReport& report) override;
  void refuse_for_good() noexcept override;
  void leave_on() noexcept override;

  const Options options_;
  std::atomic<std::uint64_t> noted_devices_{0};
  std::atomic<std::uint64_t> passes_{0};

  mutable Mutex mutex_;  // innermost lock; never held while CUPTI is called
  std::condition_variable wake_;
  std::condition_variable changed_;
  bool running_ INJECT_GUARDED_BY(mutex_) = false;             // there is a thread
  bool wanted_ INJECT_GUARDED_BY(mutex_) = false;              // CUPTI is attached
  bool attached_ INJECT_GUARDED_BY(mutex_) = false;            // the thread may be inside CUPTI
  bool started_ INJECT_GUARDED_BY(mutex_) = false;             // what was to be started has been, or can't be
  bool refused_ INJECT_GUARDED_BY(mutex_) = false;             // permanently
  bool suspended_ INJECT_GUARDED_BY(mutex_) = false;           // the program is finalizing CUPTI
  bool keep_profiler_ INJECT_GUARDED_BY(mutex_) = false;       // the program ends its own profiler
  std::uint64_t stopped_ INJECT_GUARDED_BY(mutex_) = 0;        // calls of stop() that have been obeyed
  Nanoseconds unsampled_since_ INJECT_GUARDED_BY(mutex_) = 0;  // a window has begun, sampling has not
  std::vector<MetricSample> queue_ INJECT_GUARDED_BY(mutex_);
  MetricsInfo info_ INJECT_GUARDED_BY(mutex_);
  std::atomic<bool> still_on_{false};

  SamplingStop stop_;
  // start() sets CUPTI in it while there is no thread; then used only by the thread, like the reasons.
  SampledDevices devices_;
  LoggedReasons logged_;
};

}  // namespace inject
