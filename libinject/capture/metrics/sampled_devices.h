// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libinject/capture/metrics/metric_choice.h"
#include "libinject/capture/metrics/pm_api.h"
#include "libinject/capture/metrics/sample_account.h"
#include "libinject/capture/metrics/sampling_stop.h"
#include "libinject/model/run_info.h"

namespace inject {

struct SamplingOptions {
  bool on = false;
  std::vector<std::string> names;  ///< the user's; none: a set chosen for the chip
  Nanoseconds interval = 0;
  /// Called on the sampling thread, once for each, when the vendor's libraries have been loaded: their exit
  /// handlers run before those that were registered earlier.
  void (*loaded)() = nullptr;
};

/// What devices' samples came to: some of it until somebody takes it, some since the beginning.
struct SamplingReport {
  SampleTotals totals;
  std::uint64_t overflows = 0;  ///< until taken
  Nanoseconds cpu = 0;          ///< until taken: processor time of decoding
  MetricDecoding decoding;      ///< since the beginning
};

/// Who has devices sampled. Called on the sampling thread, never inside CUPTI.
class SamplingOwner {
 public:
  SamplingOwner() = default;
  SamplingOwner(const SamplingOwner&) = delete;
  SamplingOwner& operator=(const SamplingOwner&) = delete;

  /// A device is sampled from now on, with these metrics.
  virtual void add_device(std::uint32_t device, const MetricChoice& choice) = 0;
  /// Columns of these titles stay without values.
  virtual void leave_out(const std::vector<std::string>& titles) = 0;
  /// Takes what is in it until somebody does.
  virtual void hand_over(SamplingReport& report) = 0;
  /// No device can ever be sampled.
  virtual void refuse_for_good() noexcept = 0;
  /// CUPTI keeps on sampling a device, and has to be left as it is.
  virtual void leave_on() noexcept = 0;

 protected:
  ~SamplingOwner() = default;
};

/// Keeps reasons that have been said, to say each once.
class SaidReasons {
 public:
  /// False: it has been said before.
  bool add(const std::string& reason);

 private:
  std::vector<std::string> said_;
};

/// The devices that are sampled while CUPTI is attached: sets them up, has what they sampled decoded, and
/// begins anew where buffers overflow or nothing comes. The sampling thread's alone; calls CUPTI, and
/// returns early where `stop` says so.
class SampledDevices {
 public:
  /// All of these outlive it.
  SampledDevices(const SamplingOptions& options, const SamplingStop& stop, SamplingOwner& owner);
  ~SampledDevices();
  SampledDevices(const SampledDevices&) = delete;
  SampledDevices& operator=(const SampledDevices&) = delete;

  /// While there is no thread.
  void use(const CuptiApi& cupti) { cupti_ = cupti; }

  /// CUPTI has been attached anew.
  void begin();
  /// Opens the devices that have come into use. Those in `noted`, a bit each, are; others the driver is asked
  /// for. How long it took.
  Nanoseconds open(const std::atomic<std::uint64_t>& noted);
  /// Nothing can be sampled until CUPTI is attached anew.
  bool refused() const { return refused_; }
  void decode_due();
  /// Until the next one is due, `most` at most.
  Nanoseconds until_due(Nanoseconds most) const;

  /// The end, in this order. stop(): whether any was being sampled.
  bool stop() noexcept;
  void decode_rest(Nanoseconds deadline) noexcept;
  /// `usable`: CUPTI may be called. `end_profiler`: what we have initialised is ours to end.
  void close(bool usable, bool end_profiler) noexcept;

 private:
  struct Device;
  class Image;

  void initialize();
  std::vector<std::uint32_t> devices_to_open(const std::atomic<std::uint64_t>& noted);
  bool prepare(std::uint32_t index);
  bool begin_sampling(std::uint32_t index);
  const MetricChoice* choice_for(Device& device);
  MetricChoice choose(Device& device, std::vector<std::string> base_names);
  CUptiResult set_up(Device& device, const char*& action);
  CUptiResult start(Device& device, const char*& action);
  void decode(Device& device);
  bool decode_image(Device& device);
  void take_samples(Device& device, std::size_t completed);
  void empty(Device& device);
  void decode_sooner(Device& device);
  void reopen(Device& device);
  void measure_less(Device& device);
  void begin_anew(Device& device);
  void stop_device(Device& device) noexcept;
  void disable(Device& device) noexcept;
  void give_up() noexcept;
  void tell_loaded(bool& told) const;
  bool fail(std::uint32_t device, const char* action, CUptiResult result);
  void break_off(Device& device, const char* action, CUptiResult result);
  void say(const std::string& reason, std::uint32_t device);
  void refuse(const std::string& reason, bool for_good);

  const SamplingOptions& options_;
  const SamplingStop& stop_;
  SamplingOwner& owner_;
  CuptiApi cupti_;
  PmApi api_;
  bool found_api_ = false;
  bool initialized_ = false;
  bool told_loaded_ = false;   // that the library of metrics has been loaded
  bool told_enabled_ = false;  // … and the one that samples
  Nanoseconds asked_at_ = 0;   // the driver, for the devices in use
  bool refused_ = false;       // until CUPTI is attached anew
  bool left_on_ = false;       // CUPTI keeps on sampling
  SaidReasons said_;
  std::map<std::string, MetricChoice> choices_;  // by chip
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::uint32_t> failed_;         // devices, until CUPTI is attached anew
  std::vector<std::uint32_t> never_;          // … for good
  Nanoseconds most_pause_ = ~Nanoseconds{0};  // between decodes, where the hardware's buffer was full
  SamplingReport report_;
};

}  // namespace inject
