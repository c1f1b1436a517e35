// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/sampled_device.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/log.h"

namespace inject {

namespace {

/// A device's image, as its account reads it.
class Image final : public ImageReader {
 public:
  Image(PmDevice& device, const CuptiApi& cupti) : device_(device), cupti_(cupti) {}

  bool times(std::size_t sample, Nanoseconds& start, Nanoseconds& end) override {
    result_ = device_.times(sample, start, end);
    return result_ == CUPTI_SUCCESS;
  }
  std::string error() override { return result_ == CUPTI_SUCCESS ? std::string() : cupti_.describe(result_); }
  Nanoseconds now() override { return inject::now(); }
  Nanoseconds wall_clock_ahead() override { return realtime_ahead(); }

 private:
  PmDevice& device_;
  const CuptiApi& cupti_;
  CUptiResult result_ = CUPTI_SUCCESS;
};

}  // namespace

SampledDevice::SampledDevice(const PmApi& api, const CuptiApi& cupti, const SamplingStop& stop,
                             std::uint32_t index, const char* chip, Nanoseconds interval,
                             SamplingReport& report)
    : pm(api, index, chip),
      account(index, interval, report.totals),
      cupti_(cupti),
      stop_(stop),
      interval_(interval),
      report_(report) {}

void SampledDevice::choose(const MetricChoice& choice) {
  choice_ = choice;
  measured_.resize(choice.measured.size());
}

CuptiCall SampledDevice::set_up(Nanoseconds max_pause) {
  if (const CUptiResult result = pm.open(choice_.measured); result != CUPTI_SUCCESS)
    return {"cuptiProfilerHostGetConfigImage", result};
  if (const CUptiResult result = pm.configure(interval_); result != CUPTI_SUCCESS)
    return {"cuptiPmSamplingSetConfig", result};
  if (stop_.must_stop()) return {};
  constexpr const char* kImageSize = "cuptiPmSamplingGetCounterDataSize";
  std::size_t bytes = 0;
  if (const CUptiResult result = pm.image_size(kMinImageSamples, bytes); result != CUPTI_SUCCESS)
    return {kImageSize, result};
  const DecodePlan plan =
      plan_decoding(bytes / kMinImageSamples, PmDevice::kHardwareBuffer, interval_, max_pause);
  schedule.limit(plan.pause);
  if (const CUptiResult result = pm.image_size(plan.image_samples, bytes); result != CUPTI_SUCCESS)
    return {kImageSize, result};
  pm.make_image(bytes);
  MetricDecoding& decoding = report_.decoding;
  if (bytes > decoding.image_bytes) {
    decoding.image_bytes = bytes;
    decoding.image_samples = plan.image_samples;
  }
  decoding.buffer_bytes = PmDevice::kHardwareBuffer;
  decoding.pause = plan.pause;
  account.set_up();
  // Making the image takes milliseconds, during which CUPTI may have given up.
  if (stop_.must_stop()) return {};
  return {"cuptiPmSamplingCounterDataImageInitialize", pm.empty_image()};
}

CuptiCall SampledDevice::start() {
  const Nanoseconds begin = now();
  const CUptiResult result = pm.start();
  started = result == CUPTI_SUCCESS;
  if (started) account.start(begin);
  schedule.start(begin, interval_);
  return {"cuptiPmSamplingStart", result};
}

bool SampledDevice::decode_image(CuptiCall& failed) {
  if (broken || overflowed || !pm.enabled()) return false;
  MetricDecoding& decoding = report_.decoding;
  const Nanoseconds begin = thread_cpu_time();
  const PmDevice::Decoded decoded = pm.decode();
  if (stop_.abandoned()) return false;
  const Nanoseconds called = thread_cpu_time();
  ++decoding.calls;
  decoding.data += called - begin;
  report_.cpu += called - begin;
  overflowed = decoded.overflow;
  if (decoded.result != CUPTI_SUCCESS && !overflowed) {
    // Start over.
    overflowed = schedule.may_retry(now());
    if (!overflowed) failed = {"cuptiPmSamplingDecodeData", decoded.result};
    return false;
  }
  if (overflowed) {
    schedule.note_overflow(now());
    ++report_.overflows;
  }
  decoding.full += decoded.full ? 1 : 0;
  PmDevice::ImageState state;
  if (const CUptiResult asked = pm.image_state(state); asked != CUPTI_SUCCESS) {
    failed = {"cuptiPmSamplingGetCounterDataInfo", asked};
    return false;
  }
  if (state.populated == 0) return false;
  take_samples(state.completed);
  account.wait_for(state.populated - std::min(state.populated, state.completed));
  // Units report their parts of a sample one after the other: what is incomplete will be completed in the
  // same image. So it is not emptied each time, which would also take time for all that it can hold.
  const std::size_t left = state.room - std::min(state.room, state.populated);
  if (decoded.full || schedule.is_tight(left, interval_)) failed = empty_image();
  report_.cpu += thread_cpu_time() - called;
  return decoded.full;
}

void SampledDevice::take_samples(std::size_t completed) {
  const Nanoseconds begin = thread_cpu_time();
  const bool on_wall_clock = account.on_wall_clock();
  Image image(pm, cupti_);
  report_.decoding.samples += account.take(image, completed);
  if (!on_wall_clock && account.on_wall_clock()) Log::debug("CUPTI's sample times are on the wall clock");
  const Nanoseconds placed = thread_cpu_time();
  for (const SampleAccount::Placed& one : account.placed()) {
    const CUptiResult result = pm.evaluate(one.index, measured_);
    if (result != CUPTI_SUCCESS) {
      account.drop(one.times, MetricLoss::kNotEvaluated, cupti_.describe(result));
      continue;
    }
    const std::array<float, kMaxMetrics> values = choice_.values(measured_);
    // It is unknown which of its counters is wrong.
    if (choice_.contradictory(values))
      account.drop(one.times, MetricLoss::kContradictory);
    else
      account.use(one, values);
  }
  report_.decoding.times += placed - begin;
  report_.decoding.evaluate += thread_cpu_time() - placed;
}

CuptiCall SampledDevice::empty_image() {
  const Nanoseconds begin = thread_cpu_time();
  Image image(pm, cupti_);
  account.empty_image(image);
  const CUptiResult emptied = pm.empty_image();
  ++report_.decoding.emptied;
  report_.decoding.empty += thread_cpu_time() - begin;
  return {"cuptiPmSamplingCounterDataImageInitialize", emptied};
}

void SampledDevice::stop() noexcept {
  if (!std::exchange(started, false) || stop_.abandoned()) return;
  unstoppable_ = !pm.stop() || unstoppable_;
}

bool SampledDevice::disable() noexcept {
  if (!stop_.abandoned() && !unstoppable_ && !stop_.cupti_failed()) return pm.disable();
  pm.forget();
  return !unstoppable_;
}

bool SampledDevice::close_for_restart() {
  stop();
  Image image(pm, cupti_);
  account.stop_waiting(image);
  const bool disabled = disable();
  overflowed = false;
  account.restart();
  return disabled;
}

bool SampledDevice::end() noexcept {
  stop_begun_ = now();
  was_started_ = started;
  stop();
  stopped_ = now();
  return was_started_;
}

void SampledDevice::note_end(bool more) {
  const bool complete = !more && !account.unplaced() && !overflowed && !broken;
  Image image(pm, cupti_);
  account.note_end(image, complete ? stop_begun_ : stopped_);
}

}  // namespace inject
