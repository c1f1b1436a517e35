// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/sampled_devices.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/loader_use.h"
#include "libinject/base/log.h"
#include "libinject/capture/driver.h"
#include "libinject/capture/metrics/decode_pace.h"
#include "libinject/capture/metrics/pm_device.h"
#include "libinject/capture/metrics/pm_refusal.h"

namespace inject {

namespace {

// Images that are decoded in a row.
constexpr int kMaxRounds = 8;
// The driver is asked so often which devices are in use, once one is.
constexpr Nanoseconds kAskInterval = 100 * kMillisecond;
constexpr std::size_t kMaxNotedDevices = 64;

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

}  // namespace

bool SaidReasons::add(const std::string& reason) {
  if (std::find(said_.begin(), said_.end(), reason) != said_.end()) return false;
  said_.push_back(reason);
  return true;
}

struct SampledDevices::Device {
  Device(const PmApi& api, std::uint32_t index, const char* chip, Nanoseconds interval, SampleTotals& totals)
      : pm(api, index, chip), account(index, interval, totals) {}

  PmDevice pm;
  MetricChoice choice;
  std::vector<double> measured;
  SampleAccount account;
  DecodePace pace;
  bool started = false;
  bool runs_on = false;     // could not be stopped
  bool held_up = false;     // another one was set up while its buffer filled
  bool overflowed = false;  // and there will be no further sample
  bool broken = false;
  // When sampling ended: it was under way, the call was begun, it had returned.
  bool was_started = false;
  Nanoseconds stop_begun = 0;
  Nanoseconds stopped = 0;
};

/// A device's image, for its account.
class SampledDevices::Image final : public ImageReader {
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

SampledDevices::SampledDevices(const SamplingOptions& options, const SamplingStop& stop, SamplingOwner& owner)
    : options_(options), stop_(stop), owner_(owner) {}

// Here, where Device is known.
SampledDevices::~SampledDevices() = default;

void SampledDevices::begin() {
  refused_ = false;
  failed_ = never_;
  asked_at_ = 0;
}

void SampledDevices::initialize() {
  std::string error;
  if (!found_api_ && !find_pm_api(cupti_, api_, error)) {
    refuse(error, true);
    return;
  }
  found_api_ = true;
  INJECT_PM_PARAMS(params, CUpti_Profiler_Initialize);
  const LoaderUse use;
  const CUptiResult result = api_.ProfilerInitialize(&params);
  initialized_ = result == CUPTI_SUCCESS;
  if (initialized_) return;
  const char* known = reason_of(result);
  refuse((known != nullptr ? std::string(known) : "cuptiProfilerInitialize failed") + " (" +
             cupti_.describe(result) + ")",
         concerns_all(result));
}

std::vector<std::uint32_t> SampledDevices::devices_to_open(const std::atomic<std::uint64_t>& noted) {
  // 1 + 2 calls a device, which may have to wait for a context that is being created.
  std::vector<std::uint32_t> wanted;
  if (devices_.empty() || now() - asked_at_ >= kAskInterval) {
    wanted = devices_in_use();
    asked_at_ = now();
  }
  const std::uint64_t bits = noted.load(std::memory_order_relaxed);
  for (std::uint32_t index = 0; index < kMaxNotedDevices; ++index) {
    if ((bits >> index & 1u) != 0) wanted.push_back(index);
  }
  return wanted;
}

// Devices come as the program uses them. Nothing is begun before there is one: we may be inside cuInit.
Nanoseconds SampledDevices::open(const std::atomic<std::uint64_t>& noted) {
  Nanoseconds took = 0;
  std::vector<std::uint32_t> prepared;
  for (const std::uint32_t index : devices_to_open(noted)) {
    const bool known = std::find(failed_.begin(), failed_.end(), index) != failed_.end() ||
                       std::any_of(devices_.begin(), devices_.end(),
                                   [index](const auto& device) { return device->pm.index() == index; });
    if (known || refused_ || stop_.must_stop()) continue;
    const Nanoseconds begin = now();
    if (!initialized_) initialize();
    if (refused_ || !prepare(index))
      failed_.push_back(index);
    else
      prepared.push_back(index);
    took += now() - begin;
    for (const auto& device : devices_) device->held_up = device->started;
    // The next one may take as long as the others can wait.
    for (const auto& device : devices_) {
      if (device->started && !stop_.must_stop() && device->pace.due(now())) decode(*device);
    }
  }
  // Setting one up takes up to 0.3 s (H200), for which nobody would decode what those before it sample.
  for (const std::uint32_t index : prepared) {
    if (stop_.must_stop() || refused_) break;  // what there is of them ends with the others
    const Nanoseconds begin = now();
    if (!begin_sampling(index)) failed_.push_back(index);
    took += now() - begin;
  }
  return took;
}

bool SampledDevices::prepare(std::uint32_t index) {
  const char* chip = nullptr;
  if (const CUptiResult result = PmDevice::chip_name(api_, index, chip); chip == nullptr)
    return fail(index, "cuptiDeviceGetChipName", result);
  devices_.push_back(std::make_unique<Device>(api_, index, chip, options_.interval, report_.totals));
  Device& device = *devices_.back();
  device.pm.ask_availability();
  const char* action = "";
  CUptiResult result = CUPTI_SUCCESS;
  const MetricChoice* choice = choice_for(device);
  if (choice != nullptr) {
    device.choice = *choice;
    device.measured.resize(choice->measured.size());
    result = set_up(device, action);
  }
  if (stop_.must_stop()) return true;
  if (choice == nullptr || result != CUPTI_SUCCESS) {
    disable(device);
    devices_.pop_back();
    return choice != nullptr && fail(index, action, result);
  }
  return true;
}

bool SampledDevices::begin_sampling(std::uint32_t index) {
  const auto found = std::find_if(devices_.begin(), devices_.end(),
                                  [index](const auto& device) { return device->pm.index() == index; });
  Device& device = **found;
  const char* action = "";
  if (const CUptiResult result = start(device, action); result != CUPTI_SUCCESS) {
    disable(device);
    devices_.erase(found);
    return fail(index, action, result);
  }
  owner_.add_device(index, device.choice);
  return true;
}

const MetricChoice* SampledDevices::choice_for(Device& device) {
  const std::string& chip = device.pm.chip();
  const auto known = choices_.find(chip);
  if (known != choices_.end()) return &known->second;
  std::vector<std::string> names;
  std::optional<LoaderUse> use(std::in_place);
  const CUptiResult result = device.pm.host().base_names(names);
  use.reset();
  tell_loaded(told_loaded_);
  if (stop_.must_stop()) return nullptr;
  if (result != CUPTI_SUCCESS) {
    std::string reason = "libnvperf_host can't be used";
    if (result == CUPTI_ERROR_INVALID_CHIP_NAME) {
      never_.push_back(device.pm.index());
      reason = "this CUPTI has no metrics of its chip, " + chip;
    }
    say(reason + " (" + cupti_.describe(result) + ")", device.pm.index());
    return nullptr;
  }
  MetricChoice choice = choose(device, std::move(names));
  if (!choice.error.empty()) {
    if (options_.names.empty() || !choices_.empty()) {
      if (!choice.passing) never_.push_back(device.pm.index());
      say(choice.error + "; its chip is " + chip, device.pm.index());
    } else {
      refuse("INJECT_METRICS: " + choice.error + "; the chip is " + chip, !choice.passing);
    }
    return nullptr;
  }
  std::string line =
      "hardware metrics of " + chip + " in one pass: " + std::to_string(choice.measured.size());
  if (!choice.left_out.empty()) line += "; left out: " + joined(choice.left_out);
  Log::debug(line);
  if (!choices_.empty()) choice = with_columns_of(choices_.begin()->second, choice);
  return &choices_.emplace(chip, std::move(choice)).first->second;
}

MetricChoice SampledDevices::choose(Device& device, std::vector<std::string> base_names) {
  MetricHost& host = device.pm.host();
  ChipMetrics chip = chip_metrics(host, std::move(base_names));
  chip.problem = [this, &host]() -> std::string {
    const CUptiResult asked = host.result_of_passes();
    const bool unknown = asked == CUPTI_SUCCESS || asked == CUPTI_ERROR_INVALID_METRIC_NAME ||
                         asked == CUPTI_ERROR_INVALID_PARAMETER;
    return unknown ? std::string() : cupti_.describe(asked);
  };
  return options_.names.empty() ? choose_metrics(chip) : check_metrics(chip, options_.names);
}

void SampledDevices::tell_loaded(bool& told) const {
  if (!std::exchange(told, true) && options_.loaded != nullptr) options_.loaded();
}

// `action` is the call that failed, if one did.
CUptiResult SampledDevices::set_up(Device& device, const char*& action) {
  PmDevice& pm = device.pm;
  action = kPmEnable;
  std::optional<LoaderUse> use;
  if (!told_enabled_) use.emplace();
  if (const CUptiResult result = pm.enable(); result != CUPTI_SUCCESS) return result;
  use.reset();
  tell_loaded(told_enabled_);
  if (stop_.must_stop()) return CUPTI_SUCCESS;
  action = "cuptiProfilerHostGetConfigImage";
  if (const CUptiResult result = pm.open(device.choice.measured); result != CUPTI_SUCCESS) return result;
  action = "cuptiPmSamplingSetConfig";
  if (const CUptiResult result = pm.configure(options_.interval); result != CUPTI_SUCCESS) return result;
  if (stop_.must_stop()) return CUPTI_SUCCESS;
  action = "cuptiPmSamplingGetCounterDataSize";
  std::size_t bytes = 0;
  if (const CUptiResult result = pm.image_size(kMinImageSamples, bytes); result != CUPTI_SUCCESS)
    return result;
  const DecodePlan plan =
      plan_decoding(bytes / kMinImageSamples, PmDevice::kHardwareBuffer, options_.interval, most_pause_);
  device.pace.limit(plan.pause);
  if (const CUptiResult result = pm.image_size(plan.image_samples, bytes); result != CUPTI_SUCCESS)
    return result;
  pm.make_image(bytes);
  MetricDecoding& decoding = report_.decoding;
  if (bytes > decoding.image_bytes) {
    decoding.image_bytes = bytes;
    decoding.image_samples = plan.image_samples;
  }
  decoding.buffer_bytes = PmDevice::kHardwareBuffer;
  decoding.pause = plan.pause;
  device.account.set_up();
  // Making the image takes milliseconds, in which CUPTI may have given up.
  if (stop_.must_stop()) return CUPTI_SUCCESS;
  action = "cuptiPmSamplingCounterDataImageInitialize";
  return pm.empty_image();
}

CUptiResult SampledDevices::start(Device& device, const char*& action) {
  action = "cuptiPmSamplingStart";
  const Nanoseconds begin = now();
  const CUptiResult result = device.pm.start();
  device.started = result == CUPTI_SUCCESS;
  if (device.started) device.account.start(begin);
  device.pace.start(begin, options_.interval);
  return result;
}

void SampledDevices::decode_due() {
  for (const auto& device : devices_) {
    if (!stop_.must_stop() && device->pace.due(now())) decode(*device);
  }
}

Nanoseconds SampledDevices::until_due(Nanoseconds most) const {
  for (const auto& device : devices_) most = std::min(most, device->pace.until_due(now()));
  return most;
}

// What the hardware's buffer holds.
void SampledDevices::decode(Device& device) {
  const Nanoseconds begin = now();
  device.account.begin_decode();
  const bool held_up = std::exchange(device.held_up, false);
  for (int round = 0; round < kMaxRounds && !stop_.must_stop() && decode_image(device); ++round) {
  }
  // Where it was held up, that says nothing of its own pauses.
  if (!held_up && (device.overflowed || device.account.missing() >= DecodePace::kMinMissing))
    decode_sooner(device);
  if (held_up && device.overflowed) device.pace.forgive_overflow();
  owner_.hand_over(report_);
  device.pace.decoded(begin);
  if (device.broken || stop_.must_stop()) return;
  if (device.overflowed)
    reopen(device);
  else if (device.account.fruitless())
    measure_less(device);
}

// The hardware's buffer was full: CUPTI says so, or samples are missing between two decodes.
void SampledDevices::decode_sooner(Device& device) {
  if (!device.pace.shorten()) return;
  const Nanoseconds pause = device.pace.longest_pause();
  most_pause_ = std::min(most_pause_, pause);
  ++report_.decoding.shortened;
  report_.decoding.pause = pause;
  Log::info("the buffer for hardware metrics of device " + std::to_string(device.pm.index()) +
            " was full: it is decoded every " + std::to_string(pause / kMillisecond) +
            " ms from here on; to have less in it, measure fewer metrics (INJECT_METRICS)");
}

// True if there is more of it than has been decoded.
bool SampledDevices::decode_image(Device& device) {
  if (device.broken || device.overflowed || !device.pm.enabled()) return false;
  MetricDecoding& decoding = report_.decoding;
  const Nanoseconds begin = thread_cpu_time();
  const PmDevice::Decoded decoded = device.pm.decode();
  if (stop_.abandoned()) return false;
  const Nanoseconds called = thread_cpu_time();
  ++decoding.calls;
  decoding.data += called - begin;
  report_.cpu += called - begin;
  device.overflowed = decoded.overflow;
  if (decoded.result != CUPTI_SUCCESS && !device.overflowed) {
    // Once more from the beginning.
    device.overflowed = device.pace.may_retry(now());
    if (!device.overflowed) break_off(device, "cuptiPmSamplingDecodeData", decoded.result);
    return false;
  }
  if (device.overflowed) {
    device.pace.note_overflow(now());
    ++report_.overflows;
  }
  decoding.full += decoded.full ? 1 : 0;
  PmDevice::ImageState state;
  if (const CUptiResult asked = device.pm.image_state(state); asked != CUPTI_SUCCESS) {
    break_off(device, "cuptiPmSamplingGetCounterDataInfo", asked);
    return false;
  }
  if (state.populated == 0) return false;
  take_samples(device, state.completed);
  device.account.wait_for(state.populated - std::min(state.populated, state.completed));
  // Units tell their parts of a sample one after the other: what is not complete yet will be, in the same
  // image. So it is not emptied each time, which takes as long as all that it has room for would.
  const std::size_t left = state.room - std::min(state.room, state.populated);
  if (decoded.full || device.pace.is_tight(left, options_.interval)) empty(device);
  report_.cpu += thread_cpu_time() - called;
  return decoded.full;
}

void SampledDevices::empty(Device& device) {
  const Nanoseconds begin = thread_cpu_time();
  Image image(device.pm, cupti_);
  device.account.empty_image(image);
  if (const CUptiResult emptied = device.pm.empty_image(); emptied != CUPTI_SUCCESS)
    break_off(device, "cuptiPmSamplingCounterDataImageInitialize", emptied);
  ++report_.decoding.emptied;
  report_.decoding.empty += thread_cpu_time() - begin;
}

void SampledDevices::take_samples(Device& device, std::size_t completed) {
  const Nanoseconds begin = thread_cpu_time();
  const bool on_wall_clock = device.account.on_wall_clock();
  Image image(device.pm, cupti_);
  report_.decoding.samples += device.account.take(image, completed);
  if (!on_wall_clock && device.account.on_wall_clock())
    Log::debug("CUPTI's samples have the wall clock's times");
  const Nanoseconds placed = thread_cpu_time();
  for (const SampleAccount::Placed& one : device.account.placed()) {
    const CUptiResult result = device.pm.evaluate(one.index, device.measured);
    if (result != CUPTI_SUCCESS) {
      device.account.drop(one.times, MetricLoss::kNotEvaluated, cupti_.describe(result));
      continue;
    }
    const std::array<float, kMaxMetrics> values = device.choice.values(device.measured);
    // Which of its counters is wrong can't be known.
    if (device.choice.contradictory(values))
      device.account.drop(one.times, MetricLoss::kContradictory);
    else
      device.account.use(one, values);
  }
  report_.decoding.times += placed - begin;
  report_.decoding.evaluate += thread_cpu_time() - placed;
}

// After an overflow nothing comes any more, whatever is decoded: from the beginning.
void SampledDevices::reopen(Device& device) {
  if (device.pace.too_fast()) {
    device.broken = true;
    say("samples come faster than they can be decoded; measure fewer metrics (INJECT_METRICS), or raise "
        "INJECT_METRICS_INTERVAL",
        device.pm.index());
    return;
  }
  begin_anew(device);
}

// Not one of many samples could be used. Whose part of them is missing can't be asked: with fewer from the
// least important on.
void SampledDevices::measure_less(Device& device) {
  const std::string reason(loss_text(device.account.main_reason()));
  MetricChoice choice = device.choice;
  const std::vector<std::string> titles = leave_out_least(choice);
  if (titles.empty()) {
    device.broken = true;
    say("not one sample could be used: " + reason, device.pm.index());
    return;
  }
  Log::info("device " + std::to_string(device.pm.index()) + " is sampled without " + joined(titles) +
            ", as no sample could be used with it: " + reason);
  // Others of its kind will fare alike, and begin anew with it.
  for (const auto& other : devices_) {
    if (other.get() != &device && (other->pm.chip() != device.pm.chip() || other->account.useful())) continue;
    other->choice = choice;
    other->measured.resize(choice.measured.size());
  }
  choices_.insert_or_assign(device.pm.chip(), std::move(choice));
  owner_.leave_out(titles);
  begin_anew(device);
}

// Setting one up takes longer than the others' buffers hold, which would then have to begin anew themselves,
// and so on: all of them at once.
void SampledDevices::begin_anew(Device& due) {
  std::vector<Device*> all;
  for (const auto& device : devices_) {
    if (device.get() != &due && (!device->started || device->broken)) continue;
    all.push_back(device.get());
    if (device.get() != &due) {
      for (int round = 0; round < kMaxRounds && !stop_.asked() && decode_image(*device); ++round) {
      }
    }
    stop_device(*device);
    Image image(device->pm, cupti_);
    device->account.wait_no_more(image);
    disable(*device);
    device->overflowed = false;
    device->account.restart();
  }
  owner_.hand_over(report_);
  for (const auto& [step, last] :
       {std::pair(&SampledDevices::set_up, false), {&SampledDevices::start, true}}) {
    for (Device* const device : all) {
      if (device->broken || (last && stop_.asked())) continue;
      const char* action = "";
      if (const CUptiResult result = (this->*step)(*device, action); result != CUPTI_SUCCESS)
        break_off(*device, action, result);
    }
  }
}

void SampledDevices::stop_device(Device& device) noexcept {
  if (!std::exchange(device.started, false) || stop_.abandoned()) return;
  if (!device.pm.stop()) device.runs_on = true;
}

void SampledDevices::disable(Device& device) noexcept {
  if (stop_.abandoned() || device.runs_on || stop_.cupti_failed()) {
    device.pm.forget();
    if (device.runs_on) give_up();
  } else if (!device.pm.disable()) {
    give_up();
  }
}

void SampledDevices::give_up() noexcept {
  refused_ = left_on_ = true;
  owner_.leave_on();
}

// All of them first: what comes meanwhile would have to be decoded as well.
bool SampledDevices::stop() noexcept {
  bool any = false;
  for (const auto& device : devices_) {
    device->stop_begun = now();
    device->was_started = device->started;
    stop_device(*device);
    device->stopped = now();
    any = any || device->was_started;
  }
  return any;
}

void SampledDevices::decode_rest(Nanoseconds deadline) noexcept {
  std::size_t left = devices_.size();
  for (const auto& pointer : devices_) {
    Device& device = *pointer;
    const std::size_t sharing = left--;
    // Also where it could not be started again: what has not come since is lost.
    if (device.account.opened() == 0) continue;
    try {
      // Each its share of what is left of the time.
      const Nanoseconds time = now();
      const Nanoseconds until = deadline > time ? time + (deadline - time) / sharing : time;
      // Where it has been set up anew, and not started yet, there is nothing to decode.
      bool more = device.was_started;
      while (more && now() < until) {
        more = decode_image(device);
        owner_.hand_over(report_);
      }
      // Samples were taken until the call had ended, some time after it began if this thread lost its
      // processor: where all of them came, there is no need to know.
      const bool complete = !more && !device.account.unplaced() && !device.overflowed && !device.broken;
      Image image(device.pm, cupti_);
      device.account.note_end(image, complete ? device.stop_begun : device.stopped);
      owner_.hand_over(report_);
    } catch (...) {
      // No memory for the last samples.
    }
  }
}

void SampledDevices::close(bool usable, bool end_profiler) noexcept {
  for (const auto& device : devices_) {
    if (usable)
      disable(*device);
    else
      device->pm.forget();
  }
  devices_.clear();
  if (end_profiler && initialized_ && !left_on_) {
    INJECT_PM_PARAMS(params, CUpti_Profiler_DeInitialize);
    api_.ProfilerDeInitialize(&params);
  }
  initialized_ = false;
}

void SampledDevices::break_off(Device& device, const char* action, CUptiResult result) {
  device.broken = true;
  fail(device.pm.index(), action, result);
}

bool SampledDevices::fail(std::uint32_t device, const char* action, CUptiResult result) {
  const std::string reason = refusal(api_, device, action, result) + " (" + cupti_.describe(result) + ")";
  if (concerns_all(result)) {
    refuse(reason, true);
  } else {
    if (is_lasting(result)) never_.push_back(device);
    say(reason, device);
  }
  return false;
}

// One line for each reason, not for each device or window.
void SampledDevices::say(const std::string& reason, std::uint32_t device) {
  if (!said_.add(reason)) return;
  const bool sampled = std::any_of(devices_.begin(), devices_.end(), [device](const auto& known) {
    return known->pm.index() == device && known->account.sampled();
  });
  Log::warn(std::string(sampled ? "no further" : "no") + " hardware metrics of device " +
            std::to_string(device) + ": " + reason);
}

void SampledDevices::refuse(const std::string& reason, bool for_good) {
  refused_ = true;
  if (said_.add(reason)) Log::warn("no hardware metrics: " + reason);
  if (for_good) owner_.refuse_for_good();
}

}  // namespace inject
