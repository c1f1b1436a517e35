// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "libinject/capture/metrics/decode_schedule.h"
#include "libinject/capture/metrics/metric_choice.h"
#include "libinject/capture/metrics/pm_api.h"
#include "libinject/capture/metrics/pm_device.h"
#include "libinject/capture/metrics/sample_account.h"
#include "libinject/capture/metrics/sampling_stop.h"
#include "libinject/model/run_info.h"

namespace inject {

/// The devices' samples and their cost: some counts since the report was last taken, the rest since the
/// beginning.
struct SamplingReport {
  SampleTotals totals;
  std::uint64_t overflows = 0;  ///< until taken
  Nanoseconds cpu = 0;          ///< until taken: processor time of decoding
  MetricDecoding decoding;      ///< since the beginning
};

/// A call to CUPTI and its result.
struct CuptiCall {
  const char* function = "";
  CUptiResult result = CUPTI_SUCCESS;

  bool failed() const { return result != CUPTI_SUCCESS; }
};

/// One sampled device, from set-up to end: PmDevice makes the calls, SampleAccount decides which samples
/// count, DecodeSchedule when to decode. Used only by the sampling thread; makes no further calls once `stop`
/// says so. What to do about a failure or an overflow is decided by SampledDevices, which has the other
/// devices as well.
class SampledDevice {
 public:
  /// All but the chip's name must outlive it.
  SampledDevice(const PmApi& api, const CuptiApi& cupti, const SamplingStop& stop, std::uint32_t index,
                const char* chip, Nanoseconds interval, SamplingReport& report);

  /// Sets what is measured: before set_up().
  void choose(const MetricChoice& choice);
  const MetricChoice& choice() const { return choice_; }

  /// After pm.enable(): prepares buffers and configuration. Decodes are at most `max_pause` apart.
  CuptiCall set_up(Nanoseconds max_pause);
  CuptiCall start();

  /// Decodes once; `failed` is the call that failed, if any. True if there is more to decode.
  bool decode_image(CuptiCall& failed);

  /// False if CUPTI keeps sampling it.
  bool disable() noexcept;
  /// Stops and disables it, to be set up again: samples that have not arrived by now are lost. Returns as
  /// disable().
  bool close_for_restart();

  /// Stops it permanently. True if it was being sampled.
  bool end() noexcept;
  /// State at end(). If false, for instance between a restart's set_up() and start(), there is nothing to
  /// decode.
  bool was_started() const { return was_started_; }
  /// After the last decode_image(), which returned `more`: what has not arrived is lost. Samples were taken
  /// until the call that stopped it had returned, some time after it began if this thread was preempted; if
  /// all of them have arrived, that makes no difference.
  void note_end(bool more);

  PmDevice pm;
  SampleAccount account;
  DecodeSchedule schedule;
  bool started = false;
  bool held_up = false;     // another device was set up while its buffer filled
  bool overflowed = false;  // there will be no further samples
  bool broken = false;

 private:
  void take_samples(std::size_t completed);
  CuptiCall empty_image();
  void stop() noexcept;

  const CuptiApi& cupti_;
  const SamplingStop& stop_;
  const Nanoseconds interval_;
  SamplingReport& report_;
  MetricChoice choice_;
  std::vector<double> measured_;
  bool unstoppable_ = false;
  // At end(): whether it was being sampled, when the stopping call began, when it returned.
  bool was_started_ = false;
  Nanoseconds stop_begun_ = 0;
  Nanoseconds stopped_ = 0;
};

}  // namespace inject
