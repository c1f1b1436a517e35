// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/sampled_devices.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/base/format.h"
#include "libinject/base/log.h"
#include "libinject/capture/driver.h"
#include "libinject/capture/metrics/pm_device.h"
#include "libinject/capture/metrics/pm_refusal.h"

namespace inject {

namespace {

// Maximum number of images decoded in a row.
constexpr int kMaxRounds = 8;
// How often the driver is queried for the devices in use, once there is one.
constexpr Nanoseconds kAskInterval = 100 * kMillisecond;
constexpr std::size_t kMaxNotedDevices = 64;

}  // namespace

SampledDevices::SampledDevices(const SamplingOptions& options, const SamplingStop& stop, SamplingOwner& owner)
    : options_(options), stop_(stop), owner_(owner) {}

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
  const DynamicLoaderGuard guard;
  const CUptiResult result = api_.ProfilerInitialize(&params);
  initialized_ = result == CUPTI_SUCCESS;
  if (initialized_) return;
  const char* known = reason_of(result);
  refuse(str_format("{} ({})", known != nullptr ? known : "cuptiProfilerInitialize failed",
                    cupti_.describe(result)),
         affects_all_devices(result));
}

std::vector<std::uint32_t> SampledDevices::devices_to_open(const std::atomic<std::uint64_t>& noted) {
  // 1 + 2 calls per device, which may have to wait for a context that is being created.
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

// Devices appear when the program uses them. Nothing is started before there is one, because we may be inside
// cuInit.
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
      if (device->started && !stop_.must_stop() && device->schedule.due(now())) decode(*device);
    }
  }
  // Setting one up takes up to 0.3 s (H200), during which earlier devices' samples are not decoded.
  for (const std::uint32_t index : prepared) {
    if (stop_.must_stop() || refused_) break;  // those prepared end with the others
    const Nanoseconds begin = now();
    if (!begin_sampling(index)) failed_.push_back(index);
    took += now() - begin;
  }
  return took;
}

bool SampledDevices::prepare(std::uint32_t index) {
  const char* chip = nullptr;
  if (const CUptiResult result = PmDevice::chip_name(api_, index, chip); chip == nullptr)
    return log_failure(index, {"cuptiDeviceGetChipName", result});
  devices_.push_back(
      std::make_unique<SampledDevice>(api_, cupti_, stop_, index, chip, options_.interval, report_));
  SampledDevice& device = *devices_.back();
  device.pm.read_availability();
  CuptiCall last;
  const MetricChoice* choice = choice_for(device);
  if (choice != nullptr) {
    device.choose(*choice);
    last = set_up(device);
  }
  if (stop_.must_stop()) return true;
  if (choice == nullptr || last.failed()) {
    disable(device);
    devices_.pop_back();
    return choice != nullptr && log_failure(index, last);
  }
  return true;
}

bool SampledDevices::begin_sampling(std::uint32_t index) {
  const auto found = std::find_if(devices_.begin(), devices_.end(),
                                  [index](const auto& device) { return device->pm.index() == index; });
  SampledDevice& device = **found;
  if (const CuptiCall last = device.start(); last.failed()) {
    disable(device);
    devices_.erase(found);
    return log_failure(index, last);
  }
  owner_.add_device(index, device.choice());
  return true;
}

const MetricChoice* SampledDevices::choice_for(SampledDevice& device) {
  const std::string& chip = device.pm.chip();
  const auto known = choices_.find(chip);
  if (known != choices_.end()) return &known->second;
  std::vector<std::string> names;
  std::optional<DynamicLoaderGuard> use(std::in_place);
  const CUptiResult result = device.pm.host().base_names(names);
  use.reset();
  notify_loaded(metrics_loaded_);
  if (stop_.must_stop()) return nullptr;
  if (result != CUPTI_SUCCESS) {
    std::string reason = "libnvperf_host can't be used";
    if (result == CUPTI_ERROR_INVALID_CHIP_NAME) {
      never_.push_back(device.pm.index());
      reason = "this CUPTI has no metrics for its chip, " + chip;
    }
    log_refusal(str_format("{} ({})", reason, cupti_.describe(result)), device.pm.index());
    return nullptr;
  }
  MetricChoice choice = choose(device, std::move(names));
  if (!choice.error.empty()) {
    if (options_.names.empty() || !choices_.empty()) {
      if (!choice.temporary) never_.push_back(device.pm.index());
      log_refusal(choice.error + "; its chip is " + chip, device.pm.index());
    } else {
      refuse("INJECT_METRICS: " + choice.error + "; the chip is " + chip, !choice.temporary);
    }
    return nullptr;
  }
  Log::debug(str_format("hardware metrics of {} in one pass: {}{}{}", chip, choice.measured.size(),
                        choice.left_out.empty() ? "" : "; left out: ", str_join(choice.left_out, ", ")));
  if (!choices_.empty()) choice = with_columns_of(choices_.begin()->second, choice);
  return &choices_.emplace(chip, std::move(choice)).first->second;
}

MetricChoice SampledDevices::choose(SampledDevice& device, std::vector<std::string> base_names) {
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

void SampledDevices::notify_loaded(bool& notified) const {
  if (!std::exchange(notified, true) && options_.loaded != nullptr) options_.loaded();
}

// Returns the last call made.
CuptiCall SampledDevices::set_up(SampledDevice& device) {
  std::optional<DynamicLoaderGuard> use;
  if (!sampling_loaded_) use.emplace();
  if (const CUptiResult result = device.pm.enable(); result != CUPTI_SUCCESS) return {kPmEnable, result};
  use.reset();
  notify_loaded(sampling_loaded_);
  return stop_.must_stop() ? CuptiCall() : device.set_up(max_pause_);
}

void SampledDevices::decode_due() {
  for (const auto& device : devices_) {
    if (!stop_.must_stop() && device->schedule.due(now())) decode(*device);
  }
}

Nanoseconds SampledDevices::until_due(Nanoseconds max) const {
  for (const auto& device : devices_) max = std::min(max, device->schedule.until_due(now()));
  return max;
}

// Decodes the contents of the hardware's buffer.
void SampledDevices::decode(SampledDevice& device) {
  const Nanoseconds begin = now();
  device.account.begin_decode();
  const bool held_up = std::exchange(device.held_up, false);
  for (int round = 0; round < kMaxRounds && !stop_.must_stop() && decode_image(device); ++round) {
  }
  // If it was held up, that says nothing about its own pauses.
  if (!held_up && (device.overflowed || device.account.missing() >= DecodeSchedule::kMinMissing))
    shorten_pause(device);
  if (held_up && device.overflowed) device.schedule.forgive_overflow();
  owner_.hand_over(report_);
  device.schedule.decoded(begin);
  if (device.broken || stop_.must_stop()) return;
  if (device.overflowed)
    restart_after_overflow(device);
  else if (device.account.fruitless())
    drop_least_metrics(device);
}

// The hardware's buffer was full: CUPTI reports it, or samples are missing between two decodes.
void SampledDevices::shorten_pause(SampledDevice& device) {
  if (!device.schedule.shorten()) return;
  const Nanoseconds pause = device.schedule.longest_pause();
  max_pause_ = std::min(max_pause_, pause);
  ++report_.decoding.shortened;
  report_.decoding.pause = pause;
  Log::info(str_format(
      "the hardware metrics buffer of device {} was full: it is now decoded every {} ms; measure fewer "
      "metrics (INJECT_METRICS) to fill it more slowly",
      device.pm.index(), pause / kMillisecond));
}

bool SampledDevices::decode_image(SampledDevice& device) {
  CuptiCall failed;
  const bool more = device.decode_image(failed);
  if (failed.failed()) give_up(device, failed);
  return more;
}

// After an overflow no more samples arrive, whatever is decoded: start again.
void SampledDevices::restart_after_overflow(SampledDevice& device) {
  if (device.schedule.too_fast()) {
    device.broken = true;
    log_refusal(
        "samples come faster than they can be decoded; measure fewer metrics (INJECT_METRICS), or raise "
        "INJECT_METRICS_INTERVAL",
        device.pm.index());
    return;
  }
  restart_with(device);
}

// None of many samples was usable. CUPTI does not report which units' part is missing: drop the least
// important metrics first.
void SampledDevices::drop_least_metrics(SampledDevice& device) {
  const std::string reason(loss_text(device.account.main_reason()));
  MetricChoice choice = device.choice();
  const std::vector<std::string> titles = leave_out_least_important(choice);
  if (titles.empty()) {
    device.broken = true;
    log_refusal("no sample was usable: " + reason, device.pm.index());
    return;
  }
  Log::info(str_format("device {} is sampled without {}, because no sample with it was usable: {}",
                       device.pm.index(), str_join(titles, ", "), reason));
  // Other devices of its kind will have the same problem, so they restart with it.
  for (const auto& other : devices_) {
    if (other.get() != &device && (other->pm.chip() != device.pm.chip() || other->account.useful())) continue;
    other->choose(choice);
  }
  choices_.insert_or_assign(device.pm.chip(), std::move(choice));
  owner_.leave_out(titles);
  restart_with(device);
}

// Setting up one device takes longer than the others' buffers last, which would then overflow and restart in
// turn: so all of them restart at once.
void SampledDevices::restart_with(SampledDevice& due) {
  std::vector<SampledDevice*> all;
  for (const auto& device : devices_) {
    if (device.get() != &due && (!device->started || device->broken)) continue;
    all.push_back(device.get());
    if (device.get() != &due) {
      for (int round = 0; round < kMaxRounds && !stop_.requested() && decode_image(*device); ++round) {
      }
    }
    if (!device->close_for_restart()) leave_on();
  }
  owner_.hand_over(report_);
  for (SampledDevice* const device : all) {
    if (device->broken) continue;
    if (const CuptiCall last = set_up(*device); last.failed()) give_up(*device, last);
  }
  for (SampledDevice* const device : all) {
    if (device->broken || stop_.requested()) continue;
    if (const CuptiCall last = device->start(); last.failed()) give_up(*device, last);
  }
}

void SampledDevices::disable(SampledDevice& device) noexcept {
  if (!device.disable()) leave_on();
}

void SampledDevices::leave_on() noexcept {
  refused_ = left_on_ = true;
  owner_.leave_on();
}

// Stops all of them first: samples that arrive in between would have to be decoded as well.
bool SampledDevices::stop() noexcept {
  bool any = false;
  for (const auto& device : devices_) any = device->end() || any;
  return any;
}

void SampledDevices::decode_rest(Nanoseconds deadline) noexcept {
  std::size_t left = devices_.size();
  for (const auto& pointer : devices_) {
    SampledDevice& device = *pointer;
    const std::size_t sharing = left--;
    // Also if it could not be restarted: what has not arrived since is lost.
    if (device.account.opened() == 0) continue;
    try {
      // Each gets its share of the remaining time.
      const Nanoseconds time = now();
      const Nanoseconds until = deadline > time ? time + (deadline - time) / sharing : time;
      bool more = device.was_started();
      while (more && now() < until) {
        more = decode_image(device);
        owner_.hand_over(report_);
      }
      device.note_end(more);
      owner_.hand_over(report_);
    } catch (...) {
      // Out of memory for the last samples.
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

void SampledDevices::give_up(SampledDevice& device, const CuptiCall& failed) {
  device.broken = true;
  log_failure(device.pm.index(), failed);
}

bool SampledDevices::log_failure(std::uint32_t device, const CuptiCall& failed) {
  const std::string reason = str_format("{} ({})", refusal(api_, device, failed.function, failed.result),
                                        cupti_.describe(failed.result));
  if (affects_all_devices(failed.result)) {
    refuse(reason, true);
  } else {
    if (is_permanent(failed.result)) never_.push_back(device);
    log_refusal(reason, device);
  }
  return false;
}

// One line per reason, not per device or window.
void SampledDevices::log_refusal(const std::string& reason, std::uint32_t device) {
  if (!logged_.add(reason)) return;
  const bool sampled = std::any_of(devices_.begin(), devices_.end(), [device](const auto& known) {
    return known->pm.index() == device && known->account.sampled();
  });
  Log::warn(
      str_format("{} hardware metrics of device {}: {}", sampled ? "no further" : "no", device, reason));
}

void SampledDevices::refuse(const std::string& reason, bool for_good) {
  refused_ = true;
  if (logged_.add(reason)) Log::warn("no hardware metrics: " + reason);
  if (for_good) owner_.refuse_for_good();
}

}  // namespace inject
