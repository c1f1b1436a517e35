// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "libinject/capture/metrics/decode_pace.h"
#include "libinject/capture/metrics/metric_choice.h"
#include "libinject/capture/metrics/pm_api.h"
#include "libinject/capture/metrics/pm_device.h"
#include "libinject/capture/metrics/sample_account.h"
#include "libinject/capture/metrics/sampling_stop.h"
#include "libinject/model/run_info.h"

namespace inject {

/// The devices' samples and what they cost: a part of it since it was last taken, the rest since the
/// beginning.
struct SamplingReport {
  SampleTotals totals;
  std::uint64_t overflows = 0;  ///< until taken
  Nanoseconds cpu = 0;          ///< until taken: processor time of decoding
  MetricDecoding decoding;      ///< since the beginning
};

/// A call of CUPTI's and what it returned.
struct CuptiCall {
  const char* function = "";
  CUptiResult result = CUPTI_SUCCESS;

  bool failed() const { return result != CUPTI_SUCCESS; }
};

/// One sampled device, from set-up to end: PmDevice makes the calls, SampleAccount says which samples count,
/// DecodePace when to decode. The sampling thread's alone; calls nothing more where `stop` says so. What to
/// do about a failure or an overflow is for SampledDevices, which has the other devices as well.
class SampledDevice {
 public:
  /// All but the chip's name outlive it.
  SampledDevice(const PmApi& api, const CuptiApi& cupti, const SamplingStop& stop, std::uint32_t index,
                const char* chip, Nanoseconds interval, SamplingReport& report);

  /// What is measured: before set_up().
  void choose(const MetricChoice& choice);
  const MetricChoice& choice() const { return choice_; }

  /// After pm.enable(): buffers and configuration. No decode is later than `max_pause` after the one before.
  CuptiCall set_up(Nanoseconds max_pause);
  CuptiCall start();

  /// Decodes once; `failed` is the call that failed, if one did. True if there is more than has been decoded.
  bool decode_image(CuptiCall& failed);

  /// False: CUPTI keeps on sampling it.
  bool disable() noexcept;
  /// Stops and disables it, to be set up again: samples that have not come until now are lost. As disable().
  bool close_for_restart();

  /// Stops it for good. Whether it was being sampled.
  bool end() noexcept;
  /// At end(). If not, for instance between a restart's set_up() and start(), there is nothing to decode.
  bool was_started() const { return was_started_; }
  /// After the last decode_image(), which returned `more`: what has not come is lost. Samples were taken
  /// until the call that stopped it had ended, some time after it began if this thread lost its processor:
  /// where all of them came, there is no need to know.
  void note_end(bool more);

  PmDevice pm;
  SampleAccount account;
  DecodePace pace;
  bool started = false;
  bool held_up = false;     // another one was set up while its buffer filled
  bool overflowed = false;  // and there will be no further sample
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
  // When end() was called: it was being sampled, the call that stops it was begun, it had returned.
  bool was_started_ = false;
  Nanoseconds stop_begun_ = 0;
  Nanoseconds stopped_ = 0;
};

}  // namespace inject
