// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libinject/capture/metrics/logged_reasons.h"
#include "libinject/capture/metrics/metric_choice.h"
#include "libinject/capture/metrics/pm_api.h"
#include "libinject/capture/metrics/sampled_device.h"
#include "libinject/capture/metrics/sampling_stop.h"

namespace inject {

struct SamplingOptions {
  bool on = false;
  std::vector<std::string> names;  ///< the user's; empty: a set chosen for the chip
  Nanoseconds interval = 0;
  /// Called on the sampling thread when each of the vendor's libraries has been loaded, because their exit
  /// handlers run before those registered earlier.
  void (*loaded)() = nullptr;
};

/// The receiver of samples and events. Called on the sampling thread, never inside CUPTI.
class SamplingOwner {
 public:
  SamplingOwner() = default;
  SamplingOwner(const SamplingOwner&) = delete;
  SamplingOwner& operator=(const SamplingOwner&) = delete;

  /// A device is sampled from now on, with these metrics.
  virtual void add_device(std::uint32_t device, const MetricChoice& choice) = 0;
  /// Columns of these titles stay without values.
  virtual void leave_out(const std::vector<std::string>& titles) = 0;
  /// Takes those parts of the report that count until they are taken.
  virtual void hand_over(SamplingReport& report) = 0;
  /// No device can ever be sampled.
  virtual void refuse_for_good() noexcept = 0;
  /// CUPTI can't stop sampling a device, and must not be finalized.
  virtual void leave_on() noexcept = 0;

 protected:
  ~SamplingOwner() = default;
};

/// The devices that are sampled while CUPTI is attached: sets them up one after the other, has each decoded
/// when it is due, restarts them all if a buffer overflows or nothing arrives, and logs failures. Used only
/// by the sampling thread; calls CUPTI, and returns early if `stop` says so.
class SampledDevices {
 public:
  /// All of these must outlive it.
  SampledDevices(const SamplingOptions& options, const SamplingStop& stop, SamplingOwner& owner);
  SampledDevices(const SampledDevices&) = delete;
  SampledDevices& operator=(const SampledDevices&) = delete;

  /// Call while there is no thread.
  void use(const CuptiApi& cupti) { cupti_ = cupti; }

  /// CUPTI has been attached again.
  void begin();
  /// Opens the devices that have come into use. Those in `noted`, one bit each, are in use; the driver is
  /// queried for others. Returns the time it took.
  Nanoseconds open(const std::atomic<std::uint64_t>& noted);
  /// True if nothing can be sampled until CUPTI is attached again.
  bool refused() const { return refused_; }
  void decode_due();
  /// Time until the next device is due, at most `max`.
  Nanoseconds until_due(Nanoseconds max) const;

  /// The end, in this order. stop(): true if any was being sampled.
  bool stop() noexcept;
  void decode_rest(Nanoseconds deadline) noexcept;
  /// `usable`: CUPTI may be called. `end_profiler`: we have initialised the profiler and have to end it.
  void close(bool usable, bool end_profiler) noexcept;

 private:
  void initialize();
  std::vector<std::uint32_t> devices_to_open(const std::atomic<std::uint64_t>& noted);
  bool prepare(std::uint32_t index);
  bool begin_sampling(std::uint32_t index);
  const MetricChoice* choice_for(SampledDevice& device);
  MetricChoice choose(SampledDevice& device, std::vector<std::string> base_names);
  CuptiCall set_up(SampledDevice& device);
  void decode(SampledDevice& device);
  bool decode_image(SampledDevice& device);
  void shorten_pause(SampledDevice& device);
  void restart_after_overflow(SampledDevice& device);
  void drop_least_metrics(SampledDevice& device);
  void restart_with(SampledDevice& due);
  void disable(SampledDevice& device) noexcept;
  void leave_on() noexcept;
  void notify_loaded(bool& notified) const;
  void give_up(SampledDevice& device, const CuptiCall& failed);
  bool log_failure(std::uint32_t device, const CuptiCall& failed);
  void log_refusal(const std::string& reason, std::uint32_t device);
  void refuse(const std::string& reason, bool for_good);

  const SamplingOptions& options_;
  const SamplingStop& stop_;
  SamplingOwner& owner_;
  CuptiApi cupti_;
  PmApi api_;
  bool found_api_ = false;
  bool initialized_ = false;
  bool metrics_loaded_ = false;   // the vendor's metrics library has been loaded and reported
  bool sampling_loaded_ = false;  // the same for the sampling library
  Nanoseconds asked_at_ = 0;      // when the driver was last queried for devices in use
  bool refused_ = false;          // until CUPTI is attached again
  bool left_on_ = false;          // CUPTI keeps on sampling
  LoggedReasons logged_;
  std::map<std::string, MetricChoice> choices_;  // by chip
  std::vector<std::unique_ptr<SampledDevice>> devices_;
  std::vector<std::uint32_t> failed_;        // devices, until CUPTI is attached again
  std::vector<std::uint32_t> never_;         // permanently
  Nanoseconds max_pause_ = ~Nanoseconds{0};  // between decodes, after the hardware's buffer was full
  SamplingReport report_;
};

}  // namespace inject
