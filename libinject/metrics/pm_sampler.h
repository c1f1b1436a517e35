// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "libinject/metrics/metric_choice.h"
#include "libinject/metrics/metric_host.h"
#include "libinject/metrics/pm_api.h"
#include "libinject/stats/metric_samples.h"
#include "libinject/stats/run_info.h"

namespace inject {

/// Hardware metrics, sampled while the program runs at full speed (CUPTI's PM sampling). All of it on a
/// thread of our own, which is there only while CUPTI is attached for windows:
///   start() → ProfilerInitialize, for each device that the program uses: Enable, SetConfig, Start
///           → decode, evaluate, decode, …
///   stop()  → Stop, the rest, Disable, ProfilerDeInitialize
/// Between cuptiSubscribe and cuptiUnsubscribe, in this order: a sampling call after cuptiFinalize and before
/// the next cuptiSubscribe ends the program (H200, CUDA 13.0).
///
/// Memory is bounded whatever a window's length: CUPTI's hardware buffer and image per device, and a queue of
/// samples that the drain side empties. What is lost on the way is counted.
class PmSampler {
 public:
  struct Options {
    bool on = false;
    std::vector<std::string> names;  ///< the user's; none: a set chosen for the chip
    Nanoseconds interval = 0;
    /// Called on the sampling thread, once, when the vendor's libraries have been loaded: their exit handlers
    /// run before those that were registered earlier.
    void (*loaded)() = nullptr;
  };
  /// What starting takes, some: the vendor's libraries are loaded the first time, and devices follow each
  /// other. By the devices that are known of.
  Nanoseconds start_time() const noexcept;

  explicit PmSampler(Options options);
  ~PmSampler();
  PmSampler(const PmSampler&) = delete;
  PmSampler& operator=(const PmSampler&) = delete;

  /// CUPTI is attached: samples are taken from soon on. Returns at once.
  void start(const CuptiApi& cupti) noexcept;
  /// Waits until sampling runs on every device that the program uses, or can't. False: not yet.
  bool wait_started(Nanoseconds most) noexcept;
  /// No CUPTI call from here on, once this returns true, unless start() is called. False: a call has not
  /// returned within `most`. Waits for nothing else, also where a signal handler has interrupted another
  /// member.
  bool stop(Nanoseconds most) noexcept;
  /// The same where the program is about to finalize CUPTI. start() does nothing until resume(), and what a
  /// call that has not returned leaves is not touched any more.
  bool suspend(Nanoseconds most) noexcept;
  void resume() noexcept;
  /// The program is about to initialise CUPTI's profiler itself, which is one for the whole process and
  /// counts no users, or to end that (`initialize` false): as stop(), for good.
  bool yield_cupti(bool initialize, Nanoseconds most) noexcept;
  /// Likewise before there is a sampler.
  static void note_foreign_profiler() noexcept;
  bool running() const noexcept;
  /// CUPTI is attached, and what start() would begin is not sampled yet.
  bool starting() const noexcept;
  /// A window has begun at `begin`, or ended: what it has of time before sampling began is counted as lost.
  void note_window(Nanoseconds begin) noexcept;
  void note_window_end(Nanoseconds end) noexcept;
  /// CUPTI has refused to switch the sampling of a device off: it can't be finalized any more.
  bool still_on() const noexcept { return still_on_.load(std::memory_order_acquire); }
  /// Grows while the thread gets on: one that did not stop in time may have been slow.
  std::uint64_t passes() const noexcept { return passes_.load(std::memory_order_relaxed); }

  /// The program has used these devices, a bit each. What has a primary context needs not be told.
  void note_devices(std::uint64_t devices) noexcept;

  /// What has been sampled since the last call, oldest first per device; `window` is not known here.
  std::vector<MetricSample> take() noexcept;
  /// Its columns are those of samples: empty until the first device has been configured, the same from then
  /// on.
  MetricsInfo info() const;

 private:
  struct Device;

  static void* entry(void* sampler) noexcept;
  void run() noexcept;
  void sample();
  void give_up() noexcept;
  bool stop_asked() const noexcept { return stops_.load(std::memory_order_acquire) != followed_; }
  /// CUPTI gave up with an error since the devices were opened: it has finalized itself, and no more of it
  /// may be called.
  bool cupti_failed() const noexcept;
  bool must_stop() const noexcept;
  std::unique_lock<std::mutex> lock_within(Nanoseconds most) const noexcept;
  void initialize();
  Nanoseconds open_devices();
  std::vector<std::uint8_t> counter_availability(std::uint32_t index) const;
  bool prepare_device(std::uint32_t index);
  bool begin_device(std::uint32_t index);
  const MetricChoice* choice_for(Device& device);
  CUptiResult set_up(Device& device, const char*& action);
  CUptiResult begin_sampling(Device& device, const char*& action);
  CUptiResult configure(Device& device);
  CUptiResult empty_image(Device& device);
  void decode(Device& device);
  void decode_sooner(Device& device);
  bool decode_image(Device& device);
  void take_samples(Device& device, std::size_t completed);
  void place_samples(Device& device, std::size_t completed);
  bool begins_anew(Device& device, std::size_t completed) const;
  void empty(Device& device);
  void wait_no_more(Device& device);
  void suspect(Device& device, MetricLoss loss, const CUpti_PmSampling_CounterData_GetSampleInfo_Params& info,
               CUptiResult result);
  void drop(Device& device, const MetricSampleTimes& times, MetricLoss loss, std::string error = {});
  void lose(Device& device, MetricLoss loss, std::uint64_t count);
  void lose_gap(Device& device, std::uint64_t count);
  void lose_until(Nanoseconds time) noexcept;
  void note_gap(Device& device, Nanoseconds since, Nanoseconds until);
  void note_end(Device& device, Nanoseconds until);
  void reopen(Device& device);
  void measure_less(Device& device);
  void begin_anew(Device& device);
  void stop_device(Device& device) noexcept;
  void disable(Device& device) noexcept;
  void shut_down() noexcept;
  void hand_over();
  bool fail(std::uint32_t device, const char* action, CUptiResult result);
  std::string support_level(std::uint32_t device);
  void say(const std::string& reason, std::uint32_t device);
  void log_lost_samples();
  void refuse(const std::string& reason, bool for_good);

  const Options options_;
  std::atomic<std::uint64_t> noted_devices_{0};
  std::atomic<std::uint64_t> passes_{0};

  mutable std::mutex mutex_;  // innermost; never held while CUPTI is called
  std::condition_variable wake_;
  std::condition_variable changed_;
  bool running_ = false;    // there is a thread
  bool wanted_ = false;     // CUPTI is attached
  bool attached_ = false;   // the thread may be in CUPTI
  bool started_ = false;    // what was to be started has been, or can't be
  bool refused_ = false;    // for good
  bool suspended_ = false;  // the program finalizes CUPTI
  // … under a call of ours, which did not return: nothing is called any more once it does.
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> still_on_{false};
  bool keep_profiler_ = false;           // the program ends what it has initialised itself
  std::atomic<std::uint64_t> stops_{0};  // calls of stop()
  std::uint64_t stopped_ = 0;            // those that have been followed
  Nanoseconds unsampled_since_ = 0;      // a window has begun, sampling has not
  std::vector<MetricSample> queue_;
  MetricsInfo info_;

  // Written by start() while there is no thread, then the thread's alone, like the rest.
  std::uint64_t followed_ = 0;  // stops_ when CUPTI was attached
  std::uint32_t failures_before_ = 0;
  CuptiApi cupti_;
  PmApi api_;
  bool found_api_ = false;
  bool initialized_ = false;
  bool told_loaded_ = false;                     // that the library of metrics has been loaded
  bool told_enabled_ = false;                    // … and the one that samples
  Nanoseconds asked_at_ = 0;                     // the driver, for the devices in use
  bool refused_now_ = false;                     // until CUPTI is attached anew
  std::vector<std::string> said_;                // reasons
  std::map<std::string, MetricChoice> choices_;  // by chip
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::uint32_t> failed_;  // devices, until CUPTI is attached anew
  std::vector<std::uint32_t> never_;   // … for good
  std::vector<MetricSample> fresh_;
  std::array<std::uint64_t, kMetricLosses> fresh_lost_{};
  std::uint64_t fresh_overflows_ = 0;
  Nanoseconds fresh_cpu_ = 0;
  MetricDecoding decoding_;                   // all of it so far
  Nanoseconds most_pause_ = ~Nanoseconds{0};  // between decodes, where the hardware's buffer was full
  MetricSampleTimes first_;
  MetricSampleTimes first_lost_;
  MetricLoss first_lost_by_ = MetricLoss::kMissing;
  std::string first_lost_error_;
};

/// Where `time`, just taken by CUPTI, lies nearer: its clock's time beyond CLOCK_MONOTONIC, 0 if that is its
/// clock.
Nanoseconds clock_ahead_of_ours(Nanoseconds time, Nanoseconds monotonic, Nanoseconds realtime) noexcept;

/// Samples that should have come between two times that follow each other.
std::uint64_t samples_between(Nanoseconds end, Nanoseconds next_start, Nanoseconds interval) noexcept;

}  // namespace inject
