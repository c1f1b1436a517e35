// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/metrics/pm_sampler.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "libinject/cupti/tracer.h"
#include "libinject/loader_use.h"
#include "libinject/lock_within.h"
#include "libinject/log.h"
#include "libinject/metrics/counter_holder.h"
#include "libinject/own_thread.h"
#include "libinject/process.h"
#include "libinject/record/clock.h"

namespace inject {

namespace {

// How often the thread looks whether a device is due, has come into use, or is no longer to be sampled.
constexpr Nanoseconds kIntervalsALook = 100;
constexpr Nanoseconds kMinPause = 2 * kMillisecond;
constexpr Nanoseconds kLook = 20 * kMillisecond;
// A decode costs by what the hardware has written since the last, and next to nothing by the call (H200): it
// is done well before the hardware's buffer is full, sooner at first, as samples may turn out to be of no
// use.
constexpr Nanoseconds kMaxPause = 100 * kMillisecond;
// Where samples were missing all the same it is done twice as often, down to this.
constexpr Nanoseconds kMinDecodePause = 10 * kMillisecond;
constexpr std::uint64_t kMinMissing = 4;  // fewer can have other reasons
// Per device, 50 MB together. A sample of the automatic set takes some 46 kilobytes in CUPTI's image: 35 for
// each counter of each of the device's units.
constexpr std::size_t kHardwareBuffer = std::size_t{32} << 20;
constexpr std::size_t kMaxImageBytes = std::size_t{16} << 20;
// In the hardware's buffer a unit's counters share records of 32 bytes: a quarter of that where many are
// sampled, all of it where one is.
constexpr std::size_t kPartInBuffer = 4;
constexpr std::size_t kMaxInBufferOfOne = 8192;
// Beyond a sample's own records as many come each time so much of it has passed, whatever its length: on an
// H200 150 us in a product in bfloat16, between 40 and 80 in one in fp32 or where memory is the limit, and
// much more while it idles.
constexpr Nanoseconds kRecordsRepeat = 40'000;
// Both have to hold what comes between two decodes, and as much again where our thread comes late: what finds
// no room is lost. Emptying the image takes ten microseconds for each sample that it has room for: it has
// room for more.
constexpr std::size_t kRoomOfPauses = 2;
constexpr std::size_t kImageOfPauses = 8;
constexpr std::uint32_t kMinImageSamples = 16;
// Where so many samples have begun to come and not one could be used, none will be: some of the device's
// units, as links that are switched off, tell nothing of theirs.
constexpr std::size_t kMaxFruitless = 64;
// A sample whose time is further from ours is on a clock that is not known.
constexpr Nanoseconds kFarthest = 60 * kSecond;
// Images that are decoded in a row.
constexpr int kMaxRounds = 8;
// A device whose buffer overflows so often samples faster than it can be decoded.
constexpr int kMaxOverflows = 8;
// … within this time of each other.
constexpr Nanoseconds kOverflowsForgotten = 10 * kSecond;
// The driver is asked so often which devices are in use, once one is.
constexpr Nanoseconds kAskInterval = 100 * kMillisecond;
// The wall clock may be set.
constexpr Nanoseconds kClockInterval = kSecond;
// Samples of all devices that the drain side has not taken yet: 120 bytes each.
constexpr std::size_t kMaxQueued = std::size_t{1} << 15;
// What is left in the hardware's buffer when sampling stops is decoded for this long at most.
constexpr Nanoseconds kMaxRest = kSecond;
constexpr std::size_t kMaxNotedDevices = 64;
// For our lock, which nobody holds for long: it is held for good only by a thread that a signal handler has
// interrupted.
constexpr Nanoseconds kMaxLockWait = kSecond;

constinit std::atomic<bool> foreign_profiler{false};

constexpr const char* kForeignProfiler =
    "no hardware metrics from here on: the program uses CUPTI's profiler itself";

// Chips without a timer for sampling: by the system clock's cycles instead, whose frequency may vary.
bool lacks_timer(const std::string& chip) {
  return chip.rfind("TU", 0) == 0 || chip == "GA100";
}

Nanoseconds look_pause(Nanoseconds interval) {
  return std::clamp(kIntervalsALook * interval, kMinPause, kLook);
}

// How long the hardware's buffer can wait, however busy the device, by what a sample takes in CUPTI's image.
Nanoseconds pause_of_buffer(std::size_t bytes_in_image, Nanoseconds interval) {
  const std::size_t records =
      std::max(bytes_in_image / kPartInBuffer, std::min(bytes_in_image, kMaxInBufferOfOne));
  return kHardwareBuffer / records / kRoomOfPauses * interval * kRecordsRepeat / (interval + kRecordsRepeat);
}

std::uint64_t clock_cycles(Nanoseconds interval, std::uint32_t device) {
  constexpr std::uint64_t kUsualKhz = 1'500'000;
  std::uint64_t khz = kUsualKhz;
  for (const DeviceInfo& info : devices()) {
    if (info.id == device && info.clock_khz > 0) khz = static_cast<std::uint64_t>(info.clock_khz);
  }
  return std::max<std::uint64_t>(interval * khz / 1'000'000, 1);
}

constexpr const char* kEnable = "cuptiPmSamplingEnable";
constexpr const char* kBusy = "another profiler uses its counters";

// What a user or administrator can do about it; nullptr where only CUPTI's own name for the error says more.
const char* reason_of(CUptiResult result, std::string_view action = {}) {
  // Elsewhere it is a call out of order.
  if (result == CUPTI_ERROR_INVALID_OPERATION && action != kEnable) return nullptr;
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "the driver lets only administrators read its counters; an administrator can load it with "
             "NVreg_RestrictProfilingToAdminUsers=0, or run the program with CAP_SYS_ADMIN (in a container "
             "--cap-add=SYS_ADMIN)";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "the hypervisor does not let this virtual GPU be profiled";
    case CUPTI_ERROR_HARDWARE_BUSY:
    case CUPTI_ERROR_INVALID_OPERATION:
      return kBusy;
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
      return "it is a virtual GPU, whose counters can't be sampled";
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
      return "its counters can't be read with confidential computing";
    case CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED:
      return "it is a mining processor, whose counters can't be sampled";
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
      return "it is partitioned (MIG), and an instance's counters can't be sampled";
    case CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED:
      return "it is in an SLI group, whose counters can't be sampled";
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
      return "counters can't be sampled under WSL";
    case CUPTI_ERROR_INVALID_CHIP_NAME:
      return "this CUPTI does not know its chip";
    default:
      return nullptr;
  }
}

// It would be the same the next time.
bool is_lasting(CUptiResult result) {
  return result != CUPTI_ERROR_HARDWARE_BUSY && reason_of(result) != nullptr;
}

// Of all devices, not of one.
bool concerns_all(CUptiResult result) {
  return result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ||
         result == CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES;
}

}  // namespace

Nanoseconds clock_ahead_of_ours(Nanoseconds time, Nanoseconds monotonic, Nanoseconds realtime) noexcept {
  const auto distance = [time](Nanoseconds other) { return time > other ? time - other : other - time; };
  return distance(realtime) < distance(monotonic) ? realtime - monotonic : 0;
}

std::uint64_t samples_between(Nanoseconds end, Nanoseconds next_start, Nanoseconds interval) noexcept {
  if (interval == 0 || next_start <= end) return 0;
  return (next_start - end + interval / 2) / interval;
}

struct PmSampler::Device {
  Device(const PmApi& api, std::uint32_t number, std::string name)
      : index(number), chip(std::move(name)), host(api, chip) {}

  std::uint32_t index;
  std::string chip;
  MetricHost host;
  MetricChoice choice;
  CUpti_PmSampling_Object* object = nullptr;
  std::vector<std::uint8_t> config;
  std::vector<std::uint8_t> image;
  std::vector<double> measured;
  struct Placed {
    std::size_t index;
    MetricSample sample;
    MetricSampleTimes times;
  };
  std::vector<Placed> placed;  // samples of the image that have times
  std::size_t taken = 0;       // samples of the image that have been read
  Nanoseconds taken_end = 0;   // the end of the last of them, as CUPTI has it
  std::size_t waiting = 0;     // samples of the image that are not complete
  std::size_t torn = 0;        // samples still to come, a part of which went with the image before
  std::size_t fruitless = 0;   // samples that came, since sampling began, before one could be used
  bool useful = false;         // one could be
  // Samples that came and could not be used since the latest that could, and how many in all, by MetricLoss.
  std::array<std::uint64_t, kMetricLosses> unusable{};
  std::array<std::uint64_t, kMetricLosses> unusable_ever{};
  MetricSampleTimes suspect;  // the first of them
  MetricLoss suspect_by = MetricLoss::kMissing;
  std::string suspect_error;
  Nanoseconds last_end = 0;     // on CUPTI's clock
  Nanoseconds clock_ahead = 0;  // CUPTI's clock beyond ours
  Nanoseconds opened = 0;       // on ours; 0: it has not been sampled
  bool clock_known = false;
  Nanoseconds clock_read = 0;
  Nanoseconds overflowed_at = 0;
  Nanoseconds retried_at = 0;     // 0: never
  Nanoseconds decode_at = 0;      // on ours, when it is due
  Nanoseconds pause = 0;          // from one decode to the next …
  Nanoseconds longest_pause = 0;  // … at most
  std::uint64_t missing = 0;      // samples, without a trace, at the latest decode
  bool started = false;
  bool runs_on = false;   // could not be stopped
  bool held_up = false;   // another one was set up while its buffer filled
  bool sampled = false;   // there have been samples
  bool reopened = false;  // what lies before its first sample is lost
  bool first = true;      // the next sample is the first since sampling started
  int overflows = 0;
  bool overflowed = false;  // and there will be no further sample
  bool unplaced = false;    // the newest found no room
  bool broken = false;
};

PmSampler::PmSampler(Options options) : options_(std::move(options)) {
  info_.on = options_.on;
  info_.interval = options_.on ? options_.interval : 0;
}

// Here, where Device is known.
PmSampler::~PmSampler() = default;

void PmSampler::start(const CuptiApi& cupti) noexcept {
  if (!options_.on) return;
  try {
    const std::lock_guard lock(mutex_);
    if (refused_ || suspended_) return;
    if (foreign_profiler.load(std::memory_order_acquire)) {
      refused_ = true;
      Log::warn(kForeignProfiler);
      return;
    }
    // A thread that is to stop, and goes on instead, begins anew: what it had started does not count.
    if (!std::exchange(wanted_, true)) started_ = false;
    if (running_) return;
    cupti_ = cupti;
    running_ = start_own_thread(&entry, this) == 0;
    if (running_) return;
    wanted_ = false;
    refused_ = true;
    Log::warn("no hardware metrics: a thread can't be started");
  } catch (...) {
    // No memory: no metrics.
  }
}

Nanoseconds PmSampler::start_time() const noexcept {
  constexpr Nanoseconds kLoading = 300 * kMillisecond;
  constexpr Nanoseconds kDevice = 300 * kMillisecond;
  const auto noted = static_cast<std::size_t>(std::popcount(noted_devices_.load(std::memory_order_relaxed)));
  const std::lock_guard lock(mutex_);
  return kLoading + kDevice * std::max<std::size_t>({noted, info_.devices.size(), 1});
}

bool PmSampler::wait_started(Nanoseconds most) noexcept {
  if (!options_.on) return true;
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::nanoseconds(most), [this] { return !running_ || started_; });
}

std::unique_lock<std::mutex> PmSampler::lock_within(Nanoseconds most) const noexcept {
  return inject::lock_within(mutex_, most);
}

bool PmSampler::stop(Nanoseconds most) noexcept {
  if (!options_.on) return true;
  std::unique_lock lock = lock_within(kMaxLockWait);
  if (!lock.owns_lock()) return false;
  if (wanted_) stops_.fetch_add(1, std::memory_order_release);
  wanted_ = false;
  wake_.notify_one();
  // Somebody may call start() meanwhile: then the thread goes on, but has been out of CUPTI.
  return changed_.wait_for(lock, std::chrono::nanoseconds(most), [this, stop = stops_.load()] {
    return !attached_ || stopped_ >= stop;
  }) && !still_on();
}

bool PmSampler::suspend(Nanoseconds most) noexcept {
  if (!options_.on) return true;
  {
    const std::unique_lock lock = lock_within(kMaxLockWait);
    if (!lock.owns_lock()) return false;
    suspended_ = true;
  }
  if (stop(most)) return true;
  const std::unique_lock lock = lock_within(kMaxLockWait);
  if (lock.owns_lock()) abandoned_ = attached_;
  return false;
}

void PmSampler::resume() noexcept {
  const std::unique_lock lock = lock_within(kMaxLockWait);
  if (lock.owns_lock()) suspended_ = false;
}

void PmSampler::note_foreign_profiler() noexcept {
  foreign_profiler.store(true, std::memory_order_release);
}

bool PmSampler::yield_cupti(bool initialize, Nanoseconds most) noexcept {
  if (!options_.on) return true;
  {
    const std::unique_lock lock = lock_within(kMaxLockWait);
    if (!lock.owns_lock()) return false;
    // Where its beginning was not seen, it is the program's to end.
    if (!initialize) keep_profiler_ = true;
    if (!std::exchange(refused_, true)) Log::warn(kForeignProfiler);
  }
  if (stop(most)) return true;
  const std::unique_lock lock = lock_within(kMaxLockWait);
  if (lock.owns_lock()) keep_profiler_ = true;
  return false;
}

bool PmSampler::running() const noexcept {
  if (!options_.on) return false;
  const std::lock_guard lock(mutex_);
  return attached_ || wanted_;
}

bool PmSampler::starting() const noexcept {
  if (!options_.on) return false;
  const std::unique_lock lock = lock_within(kMaxLockWait);
  return lock.owns_lock() && !refused_ && !suspended_ && !(wanted_ && started_);
}

void PmSampler::note_window(Nanoseconds begin) noexcept {
  if (!options_.on) return;
  const std::unique_lock lock = lock_within(kMaxLockWait);
  if (lock.owns_lock() && running_ && wanted_ && !started_) unsampled_since_ = begin;
}

void PmSampler::note_window_end(Nanoseconds end) noexcept {
  if (!options_.on) return;
  const std::unique_lock lock = lock_within(kMaxLockWait);
  if (lock.owns_lock()) lose_until(end);
}

// With mutex_ held. Of the devices that have been sampled, or that the program is known to use.
void PmSampler::lose_until(Nanoseconds time) noexcept {
  const Nanoseconds since = std::exchange(unsampled_since_, 0);
  if (since == 0 || time <= since) return;
  const auto noted = static_cast<std::size_t>(std::popcount(noted_devices_.load(std::memory_order_relaxed)));
  const std::uint64_t missing = (time - since) / options_.interval * std::max(info_.devices.size(), noted);
  info_.lost += missing;
  info_.lost_by[static_cast<std::size_t>(MetricLoss::kMissing)] += missing;
}

void PmSampler::note_devices(std::uint64_t devices) noexcept {
  noted_devices_.fetch_or(devices, std::memory_order_relaxed);
}

std::vector<MetricSample> PmSampler::take() noexcept {
  if (!options_.on) return {};
  const std::lock_guard lock(mutex_);
  return std::exchange(queue_, {});
}

MetricsInfo PmSampler::info() const {
  const std::lock_guard lock(mutex_);
  return info_;
}

void* PmSampler::entry(void* sampler) noexcept {
  enter_own_thread();
  static_cast<PmSampler*>(sampler)->run();
  return nullptr;
}

void PmSampler::run() noexcept {
  std::unique_lock lock(mutex_);
  while (wanted_) {
    followed_ = stops_.load();
    failures_before_ = Tracer::failures();
    attached_ = true;
    abandoned_ = false;
    lock.unlock();
    try {
      sample();
    } catch (...) {
      Log::warn("no hardware metrics: out of memory");
    }
    shut_down();
    passes_.fetch_add(1, std::memory_order_relaxed);
    lock.lock();
    attached_ = false;
    stopped_ = stops_.load();
    started_ = !stop_asked();
    // Where nothing can be sampled, which has been said, there is nothing to lose.
    if (started_) unsampled_since_ = 0;
    changed_.notify_all();
    // What can't be sampled now can't until CUPTI has been detached and attached anew.
    wake_.wait(lock, [this] { return stop_asked(); });
  }
  running_ = false;
  started_ = false;
  changed_.notify_all();
}

// Also where CUPTI has been attached anew since.
bool PmSampler::cupti_failed() const noexcept {
  return Tracer::failures() != failures_before_;
}

bool PmSampler::must_stop() const noexcept {
  return stop_asked() || cupti_failed();
}

void PmSampler::sample() {
  refused_now_ = false;
  failed_ = never_;
  const Nanoseconds pause = look_pause(options_.interval);
  asked_at_ = 0;
  for (;;) {
    passes_.fetch_add(1, std::memory_order_relaxed);
    if (cupti_failed()) return;
    const Nanoseconds starting = open_devices();
    if (refused_now_ || must_stop()) return;
    {
      const std::lock_guard lock(mutex_);
      info_.start += starting;
      // Not where start() has been called since: that is followed by another beginning.
      if (stop_asked()) return;
      if (!std::exchange(started_, true)) {
        lose_until(now());
        changed_.notify_all();
      }
    }
    for (const auto& device : devices_) {
      if (!must_stop() && now() >= device->decode_at) decode(*device);
    }
    Nanoseconds wait = pause;
    for (const auto& device : devices_) {
      const Nanoseconds time = now();
      wait = std::min(wait, device->decode_at > time ? device->decode_at - time : kMinPause);
    }
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, std::chrono::nanoseconds(wait), [this] { return stop_asked(); })) return;
  }
}

void PmSampler::initialize() {
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

// Devices come as the program uses them. Nothing is begun before there is one: we may be inside cuInit.
Nanoseconds PmSampler::open_devices() {
  // 1 + 2 calls a device, which may have to wait for a context that is being created.
  std::vector<std::uint32_t> wanted;
  if (devices_.empty() || now() - asked_at_ >= kAskInterval) {
    wanted = devices_in_use();
    asked_at_ = now();
  }
  const std::uint64_t noted = noted_devices_.load(std::memory_order_relaxed);
  for (std::uint32_t index = 0; index < kMaxNotedDevices; ++index) {
    if ((noted >> index & 1u) != 0) wanted.push_back(index);
  }
  Nanoseconds took = 0;
  std::vector<std::uint32_t> prepared;
  for (const std::uint32_t index : wanted) {
    const bool known = std::find(failed_.begin(), failed_.end(), index) != failed_.end() ||
                       std::any_of(devices_.begin(), devices_.end(),
                                   [index](const auto& device) { return device->index == index; });
    if (known || refused_now_ || must_stop()) continue;
    const Nanoseconds begin = now();
    if (!initialized_) initialize();
    if (refused_now_ || !prepare_device(index))
      failed_.push_back(index);
    else
      prepared.push_back(index);
    took += now() - begin;
    for (const auto& device : devices_) device->held_up = device->started;
    // The next one may take as long as the others can wait.
    for (const auto& device : devices_) {
      if (device->started && !must_stop() && now() >= device->decode_at) decode(*device);
    }
  }
  // Setting one up takes up to 0.3 s (H200), for which nobody would decode what those before it sample.
  for (const std::uint32_t index : prepared) {
    if (must_stop() || refused_now_) break;  // what there is of them ends with the others
    const Nanoseconds begin = now();
    if (!begin_device(index)) failed_.push_back(index);
    took += now() - begin;
  }
  return took;
}

/// What the board has of its chip's counters, for CUPTI's host side; empty where that is not told, which is
/// no reason to go without metrics. It may not be asked of a device that is being sampled.
std::vector<std::uint8_t> PmSampler::counter_availability(std::uint32_t index) const {
  constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
  if (api_.PmSamplingGetCounterAvailability == nullptr) return {};
  INJECT_PM_PARAMS(params, CUpti_PmSampling_GetCounterAvailability);
  params.deviceIndex = index;
  if (api_.PmSamplingGetCounterAvailability(&params) != CUPTI_SUCCESS ||
      params.counterAvailabilityImageSize == 0 || params.counterAvailabilityImageSize > kMaxBytes) {
    return {};
  }
  std::vector<std::uint8_t> image(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = image.data();
  if (api_.PmSamplingGetCounterAvailability(&params) != CUPTI_SUCCESS) return {};
  return image;
}

bool PmSampler::prepare_device(std::uint32_t index) {
  INJECT_PM_PARAMS(name, CUpti_Device_GetChipName);
  name.deviceIndex = index;
  if (const CUptiResult result = api_.DeviceGetChipName(&name);
      result != CUPTI_SUCCESS || name.pChipName == nullptr) {
    return fail(index, "cuptiDeviceGetChipName", result);
  }
  devices_.push_back(std::make_unique<Device>(api_, index, name.pChipName));
  Device& device = *devices_.back();
  device.host.availability(counter_availability(index));
  const char* action = "";
  CUptiResult result = CUPTI_SUCCESS;
  const MetricChoice* choice = choice_for(device);
  if (choice != nullptr) {
    device.choice = *choice;
    device.measured.resize(choice->measured.size());
    result = set_up(device, action);
  }
  if (must_stop()) return true;
  if (choice == nullptr || result != CUPTI_SUCCESS) {
    disable(device);
    devices_.pop_back();
    return choice != nullptr && fail(index, action, result);
  }
  return true;
}

bool PmSampler::begin_device(std::uint32_t index) {
  const auto found = std::find_if(devices_.begin(), devices_.end(),
                                  [index](const auto& device) { return device->index == index; });
  Device& device = **found;
  const char* action = "";
  if (const CUptiResult result = begin_sampling(device, action); result != CUPTI_SUCCESS) {
    disable(device);
    devices_.erase(found);
    return fail(index, action, result);
  }
  const std::lock_guard lock(mutex_);
  if (info_.columns.empty()) {
    info_.columns = device.choice.metrics;
    info_.left_out = device.choice.left_out;
  }
  if (std::find(info_.devices.begin(), info_.devices.end(), index) == info_.devices.end())
    info_.devices.push_back(index);
  return true;
}

const MetricChoice* PmSampler::choice_for(Device& device) {
  const auto known = choices_.find(device.chip);
  if (known != choices_.end()) return &known->second;
  std::vector<std::string> names;
  std::optional<LoaderUse> use(std::in_place);
  const CUptiResult result = device.host.base_names(names);
  use.reset();
  if (!std::exchange(told_loaded_, true) && options_.loaded != nullptr) options_.loaded();
  if (must_stop()) return nullptr;
  if (result != CUPTI_SUCCESS) {
    std::string reason = "libnvperf_host can't be used";
    if (result == CUPTI_ERROR_INVALID_CHIP_NAME) {
      never_.push_back(device.index);
      reason = "this CUPTI has no metrics of its chip, " + device.chip;
    }
    say(reason + " (" + cupti_.describe(result) + ")", device.index);
    return nullptr;
  }
  ChipMetrics chip = chip_metrics(device.host, std::move(names));
  chip.problem = [this, &device]() -> std::string {
    const CUptiResult asked = device.host.result_of_passes();
    const bool unknown = asked == CUPTI_SUCCESS || asked == CUPTI_ERROR_INVALID_METRIC_NAME ||
                         asked == CUPTI_ERROR_INVALID_PARAMETER;
    return unknown ? std::string() : cupti_.describe(asked);
  };
  MetricChoice choice = options_.names.empty() ? choose_metrics(chip) : check_metrics(chip, options_.names);
  if (!choice.error.empty()) {
    if (options_.names.empty() || !choices_.empty()) {
      if (!choice.passing) never_.push_back(device.index);
      say(choice.error + "; its chip is " + device.chip, device.index);
    } else {
      refuse("INJECT_METRICS: " + choice.error + "; the chip is " + device.chip, !choice.passing);
    }
    return nullptr;
  }
  std::string line =
      "hardware metrics of " + device.chip + " in one pass: " + std::to_string(choice.measured.size());
  for (std::size_t i = 0; i < choice.left_out.size(); ++i)
    line += (i == 0 ? "; left out: " : ", ") + choice.left_out[i];
  Log::debug(line);
  if (!choices_.empty()) choice = with_columns_of(choices_.begin()->second, choice);
  return &choices_.emplace(device.chip, std::move(choice)).first->second;
}

CUptiResult PmSampler::set_up(Device& device, const char*& action) {
  const std::vector<std::string>& names = device.choice.measured;
  INJECT_PM_PARAMS(enable, CUpti_PmSampling_Enable);
  enable.deviceIndex = device.index;
  action = kEnable;
  std::optional<LoaderUse> use;
  if (!told_enabled_) use.emplace();
  if (const CUptiResult result = api_.PmSamplingEnable(&enable); result != CUPTI_SUCCESS) return result;
  use.reset();
  if (!std::exchange(told_enabled_, true) && options_.loaded != nullptr) options_.loaded();
  device.object = enable.pPmSamplingObject;
  if (must_stop()) return CUPTI_SUCCESS;
  action = "cuptiProfilerHostGetConfigImage";
  if (const CUptiResult result = device.host.open(names, device.config); result != CUPTI_SUCCESS)
    return result;
  action = "cuptiPmSamplingSetConfig";
  if (const CUptiResult result = configure(device); result != CUPTI_SUCCESS) return result;
  if (must_stop()) return CUPTI_SUCCESS;
  action = "cuptiPmSamplingGetCounterDataSize";
  INJECT_PM_PARAMS(size, CUpti_PmSampling_GetCounterDataSize);
  size.pPmSamplingObject = device.object;
  size.pMetricNames = device.host.names().data();
  size.numMetrics = names.size();
  size.maxSamples = kMinImageSamples;
  if (const CUptiResult result = api_.PmSamplingGetCounterDataSize(&size); result != CUPTI_SUCCESS)
    return result;
  const std::size_t each = std::max<std::size_t>(size.counterDataSize / kMinImageSamples, 1);
  const Nanoseconds buffer = std::min(pause_of_buffer(each, options_.interval), kMaxPause);
  size.maxSamples = static_cast<std::uint32_t>(
      std::clamp<std::size_t>(kImageOfPauses * (buffer / options_.interval), kMinImageSamples,
                              std::max<std::size_t>(kMaxImageBytes / each, kMinImageSamples)));
  // Beyond its room for what comes late, so that it needs not be emptied each time.
  const Nanoseconds image = size.maxSamples / (kRoomOfPauses + 1) * options_.interval;
  device.longest_pause = std::max(std::min({buffer, image, most_pause_}), kMinPause);
  if (const CUptiResult result = api_.PmSamplingGetCounterDataSize(&size); result != CUPTI_SUCCESS)
    return result;
  device.image.resize(size.counterDataSize);
  if (device.image.size() > decoding_.image_bytes) {
    decoding_.image_bytes = device.image.size();
    decoding_.image_samples = size.maxSamples;
  }
  decoding_.buffer_bytes = kHardwareBuffer;
  decoding_.pause = device.longest_pause;
  device.taken = 0;
  device.torn = 0;
  device.fruitless = 0;
  device.useful = false;
  // The image's pages have taken some milliseconds.
  if (must_stop()) return CUPTI_SUCCESS;
  action = "cuptiPmSamplingCounterDataImageInitialize";
  return empty_image(device);
}

CUptiResult PmSampler::begin_sampling(Device& device, const char*& action) {
  action = "cuptiPmSamplingStart";
  INJECT_PM_PARAMS(start, CUpti_PmSampling_Start);
  start.pPmSamplingObject = device.object;
  const Nanoseconds begin = now();
  const CUptiResult result = api_.PmSamplingStart(&start);
  device.started = result == CUPTI_SUCCESS;
  if (device.started && device.opened == 0) device.opened = begin;
  device.pause = std::min(look_pause(options_.interval), device.longest_pause);
  device.decode_at = begin + device.pause;
  return result;
}

CUptiResult PmSampler::configure(Device& device) {
  INJECT_PM_PARAMS(params, CUpti_PmSampling_SetConfig);
  params.pPmSamplingObject = device.object;
  params.configSize = device.config.size();
  params.pConfig = device.config.data();
  params.hardwareBufferSize = kHardwareBuffer;
  // The other mode is not for all chips, and what it keeps are the newest samples: a gap in the middle of a
  // window instead of one at its end.
  params.hwBufferAppendMode = CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
  if (!lacks_timer(device.chip)) {
    params.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    params.samplingInterval = options_.interval;
    const CUptiResult result = api_.PmSamplingSetConfig(&params);
    if (result != CUPTI_ERROR_NOT_SUPPORTED) return result;
    Log::debug(device.chip + " has no timer for sampling: by its system clock's cycles");
  }
  params.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL;
  params.samplingInterval = clock_cycles(options_.interval, device.index);
  return api_.PmSamplingSetConfig(&params);
}

CUptiResult PmSampler::empty_image(Device& device) {
  INJECT_PM_PARAMS(params, CUpti_PmSampling_CounterDataImage_Initialize);
  params.pPmSamplingObject = device.object;
  params.counterDataSize = device.image.size();
  params.pCounterData = device.image.data();
  return api_.PmSamplingCounterDataImageInitialize(&params);
}

// What the hardware's buffer holds.
void PmSampler::decode(Device& device) {
  const Nanoseconds begin = now();
  device.missing = 0;
  const bool held_up = std::exchange(device.held_up, false);
  for (int round = 0; round < kMaxRounds && !must_stop() && decode_image(device); ++round) {
  }
  // Which says nothing of its own pauses.
  if (held_up)
    device.overflows -= device.overflowed && device.overflows > 0 ? 1 : 0;
  else if (device.overflowed || device.missing >= kMinMissing)
    decode_sooner(device);
  hand_over();
  device.pause = std::min(2 * device.pause, device.longest_pause);
  device.decode_at = begin + device.pause;
  if (device.broken || must_stop()) return;
  if (device.overflowed)
    reopen(device);
  else if (!device.useful && device.fruitless + device.waiting > kMaxFruitless)
    measure_less(device);
}

// The hardware's buffer was full: CUPTI says so, or samples are missing between two decodes.
void PmSampler::decode_sooner(Device& device) {
  const Nanoseconds pause = std::max(device.pause / 2, std::min(kMinDecodePause, device.longest_pause));
  if (pause >= device.longest_pause) return;
  most_pause_ = std::min(most_pause_, pause);
  device.longest_pause = pause;
  ++decoding_.shortened;
  decoding_.pause = pause;
  Log::info("the buffer for hardware metrics of device " + std::to_string(device.index) +
            " was full: it is decoded every " + std::to_string(pause / kMillisecond) +
            " ms from here on; to have less in it, measure fewer metrics (INJECT_METRICS)");
}

// True if there is more of it than has been decoded.
bool PmSampler::decode_image(Device& device) {
  if (device.broken || device.overflowed || device.object == nullptr) return false;
  const Nanoseconds begin = thread_cpu_time();
  INJECT_PM_PARAMS(params, CUpti_PmSampling_DecodeData);
  params.pPmSamplingObject = device.object;
  params.pCounterDataImage = device.image.data();
  params.counterDataImageSize = device.image.size();
  const CUptiResult result = api_.PmSamplingDecodeData(&params);
  if (abandoned_.load(std::memory_order_acquire)) return false;
  const Nanoseconds decoded = thread_cpu_time();
  ++decoding_.calls;
  decoding_.data += decoded - begin;
  fresh_cpu_ += decoded - begin;
  device.overflowed = result == CUPTI_ERROR_OUT_OF_MEMORY || params.overflow != 0;
  if (result != CUPTI_SUCCESS && !device.overflowed) {
    // Once more from the beginning.
    const Nanoseconds before = std::exchange(device.retried_at, now());
    device.broken = before != 0 && device.retried_at - before < kOverflowsForgotten;
    if (!device.broken) {
      device.overflowed = true;
      return false;
    }
    fail(device.index, "cuptiPmSamplingDecodeData", result);
    return false;
  }
  if (device.overflowed) {
    if (now() - std::exchange(device.overflowed_at, now()) > kOverflowsForgotten) device.overflows = 0;
    ++device.overflows;
    ++fresh_overflows_;
  }
  const bool full = params.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL;
  decoding_.full += full ? 1 : 0;
  INJECT_PM_PARAMS(info, CUpti_PmSampling_GetCounterDataInfo);
  info.pCounterDataImage = device.image.data();
  info.counterDataImageSize = device.image.size();
  if (const CUptiResult asked = api_.PmSamplingGetCounterDataInfo(&info); asked != CUPTI_SUCCESS) {
    device.broken = true;
    fail(device.index, "cuptiPmSamplingGetCounterDataInfo", asked);
    return false;
  }
  if (info.numPopulatedSamples == 0) return false;
  take_samples(device, info.numCompletedSamples);
  device.waiting = info.numPopulatedSamples - std::min(info.numPopulatedSamples, info.numCompletedSamples);
  // Units tell their parts of a sample one after the other: what is not complete yet will be, in the same
  // image. That takes as long to be made anew as all that it has room for, however little it holds; but it
  // has to have room for what comes until the next time, and where that is late.
  const std::size_t left = info.numTotalSamples - std::min(info.numTotalSamples, info.numPopulatedSamples);
  if (full || left < kRoomOfPauses * (device.longest_pause / options_.interval + 1)) empty(device);
  fresh_cpu_ += thread_cpu_time() - decoded;
  return full;
}

// From the beginning, without those that are not complete. What their other units tell comes into the new
// image, where CUPTI calls it complete: on an H100 that was each image's first sample, with 1 to 6 % of what
// the SMs counted and all of the rest. No image is without one that has begun, whatever CUPTI says of it.
void PmSampler::empty(Device& device) {
  const Nanoseconds begin = thread_cpu_time();
  device.torn = std::max<std::size_t>(device.waiting, 1);
  wait_no_more(device);
  device.taken = 0;
  if (const CUptiResult emptied = empty_image(device); emptied != CUPTI_SUCCESS) {
    device.broken = true;
    fail(device.index, "cuptiPmSamplingCounterDataImageInitialize", emptied);
  }
  ++decoding_.emptied;
  decoding_.empty += thread_cpu_time() - begin;
}

// What the image holds beyond the complete samples will not be completed.
void PmSampler::wait_no_more(Device& device) {
  const std::size_t given_up = std::exchange(device.waiting, 0);
  if (given_up == 0) return;
  device.fruitless += given_up;
  device.unusable[static_cast<std::size_t>(MetricLoss::kIncomplete)] += given_up;
  device.unusable_ever[static_cast<std::size_t>(MetricLoss::kIncomplete)] += given_up;
  INJECT_PM_PARAMS(info, CUpti_PmSampling_CounterData_GetSampleInfo);
  info.pPmSamplingObject = device.object;
  info.pCounterDataImage = device.image.data();
  info.counterDataImageSize = device.image.size();
  info.sampleIndex = device.taken;
  const CUptiResult result = api_.PmSamplingCounterDataGetSampleInfo(&info);
  suspect(device, MetricLoss::kIncomplete, info, result);
}

// Whether the image holds other samples in the place of those that have been taken from it.
bool PmSampler::begins_anew(Device& device, std::size_t completed) const {
  if (device.taken == 0) return false;
  if (completed < device.taken) return true;
  INJECT_PM_PARAMS(info, CUpti_PmSampling_CounterData_GetSampleInfo);
  info.pPmSamplingObject = device.object;
  info.pCounterDataImage = device.image.data();
  info.counterDataImageSize = device.image.size();
  info.sampleIndex = device.taken - 1;
  api_.PmSamplingCounterDataGetSampleInfo(&info);
  if (info.endTimestamp == device.taken_end) return false;
  // CUPTI may compare clocks between two decodes, and the sample that was taken last then be a microsecond
  // later (seen on an H200): it is the same one.
  const Nanoseconds moved = info.endTimestamp > device.taken_end ? info.endTimestamp - device.taken_end
                                                                 : device.taken_end - info.endTimestamp;
  if (2 * moved >= info.endTimestamp - info.startTimestamp) return true;
  if (device.last_end == device.taken_end) device.last_end = info.endTimestamp;
  device.taken_end = info.endTimestamp;
  return false;
}

void PmSampler::take_samples(Device& device, std::size_t completed) {
  const Nanoseconds begin = thread_cpu_time();
  place_samples(device, completed);
  const Nanoseconds placed = thread_cpu_time();
  for (Device::Placed& one : device.placed) {
    const CUptiResult result = device.host.evaluate(device.image, one.index, device.measured);
    if (result != CUPTI_SUCCESS) {
      drop(device, one.times, MetricLoss::kNotEvaluated, cupti_.describe(result));
      continue;
    }
    one.sample.values = device.choice.values(device.measured);
    // Which of its counters is wrong can't be known.
    if (device.choice.contradictory(one.sample.values)) {
      drop(device, one.times, MetricLoss::kContradictory);
      continue;
    }
    fresh_.push_back(one.sample);
    if (first_.read == 0) first_ = one.times;
    device.sampled = device.useful = true;
  }
  decoding_.times += placed - begin;
  decoding_.evaluate += thread_cpu_time() - placed;
}

// Those of the image that have been completed since the last call, as far as their times can be.
void PmSampler::place_samples(Device& device, std::size_t completed) {
  device.placed.clear();
  if (begins_anew(device, completed)) {
    device.taken = 0;
    device.torn = std::max<std::size_t>(device.torn, 1);
  }
  decoding_.samples += completed - std::min(completed, device.taken);
  for (; device.taken < completed; ++device.taken) {
    INJECT_PM_PARAMS(info, CUpti_PmSampling_CounterData_GetSampleInfo);
    info.pPmSamplingObject = device.object;
    info.pCounterDataImage = device.image.data();
    info.counterDataImageSize = device.image.size();
    info.sampleIndex = device.taken;
    const CUptiResult result = api_.PmSamplingCounterDataGetSampleInfo(&info);
    device.taken_end = info.endTimestamp;
    // There are samples without times, or with the time of the set-up as both: where others found no room in
    // the image before it, and once sampling has stopped. They have no time to lose: if there was one, it is
    // missing between those that have both.
    if (result != CUPTI_SUCCESS || info.startTimestamp == 0 || info.endTimestamp == info.startTimestamp) {
      device.unplaced = true;
      suspect(device, MetricLoss::kTimeless, info, result);
      continue;
    }
    const Nanoseconds time = now();
    if (!device.clock_known) {
      device.clock_read = time;
      device.clock_ahead = clock_ahead_of_ours(info.endTimestamp, time, time + realtime_ahead());
    }
    if (device.clock_ahead != 0 && time - device.clock_read >= kClockInterval) {
      device.clock_read = time;
      device.clock_ahead = realtime_ahead();
    }
    const Nanoseconds expected = time + device.clock_ahead;
    const Nanoseconds off =
        info.endTimestamp > expected ? info.endTimestamp - expected : expected - info.endTimestamp;
    if (info.endTimestamp <= info.startTimestamp || info.endTimestamp <= device.last_end || off > kFarthest) {
      suspect(device, MetricLoss::kMistimed, info, result);
      continue;
    }
    if (!std::exchange(device.clock_known, true) && device.clock_ahead != 0)
      Log::debug("CUPTI's samples have the wall clock's times");
    device.unplaced = false;
    const bool torn = device.torn != 0;
    if (torn) --device.torn;
    const Nanoseconds before = std::exchange(device.last_end, info.endTimestamp);
    const Nanoseconds end = info.endTimestamp - device.clock_ahead;
    // The first one spans the set-up; where sampling has been started again, what lies before it is lost.
    if (std::exchange(device.first, false)) {
      if (device.reopened) note_gap(device, before, end);
    } else {
      Device::Placed placed{device.taken, {}, {}};
      placed.sample.start = info.startTimestamp - device.clock_ahead;
      placed.sample.end = end;
      placed.sample.device = device.index;
      placed.times = {info.startTimestamp, info.endTimestamp, placed.sample.start, end, time};
      // It has been noted among those that were given up, and is not another one.
      std::uint64_t& incomplete = device.unusable[static_cast<std::size_t>(MetricLoss::kIncomplete)];
      if (torn && incomplete != 0) --incomplete;
      lose_gap(device, samples_between(before, info.startTimestamp, info.endTimestamp - info.startTimestamp));
      if (torn) {
        device.suspect = {};
        drop(device, placed.times, MetricLoss::kIncomplete);
      } else {
        device.placed.push_back(placed);
      }
    }
    device.unusable = {};
    device.suspect = {};
  }
}

// A sample that came and can't be used. Whether it is one that is missing shows at the next that can.
void PmSampler::suspect(Device& device, MetricLoss loss,
                        const CUpti_PmSampling_CounterData_GetSampleInfo_Params& info, CUptiResult result) {
  if (loss != MetricLoss::kIncomplete) {
    ++device.fruitless;
    ++device.unusable[static_cast<std::size_t>(loss)];
    ++device.unusable_ever[static_cast<std::size_t>(loss)];
  }
  if (device.suspect.read != 0) return;
  const Nanoseconds time = now();
  const Nanoseconds ahead = device.clock_known
                                ? device.clock_ahead
                                : clock_ahead_of_ours(info.endTimestamp, time, time + realtime_ahead());
  const auto ours = [ahead](Nanoseconds on_cupti) { return on_cupti > ahead ? on_cupti - ahead : 0; };
  device.suspect = {info.startTimestamp, info.endTimestamp, ours(info.startTimestamp),
                    ours(info.endTimestamp), time};
  device.suspect_by = loss;
  device.suspect_error = result == CUPTI_SUCCESS ? std::string() : cupti_.describe(result);
}

// A sample whose time is known, and that is of no use.
void PmSampler::drop(Device& device, const MetricSampleTimes& times, MetricLoss loss, std::string error) {
  ++device.fruitless;
  ++device.unusable_ever[static_cast<std::size_t>(loss)];
  if (device.suspect.read == 0) {
    device.suspect = times;
    device.suspect_by = loss;
    device.suspect_error = std::move(error);
  }
  lose(device, loss, 1);
}

void PmSampler::lose(Device& device, MetricLoss loss, std::uint64_t count) {
  if (count == 0) return;
  fresh_lost_[static_cast<std::size_t>(loss)] += count;
  if (first_lost_.read != 0 || device.suspect.read == 0) return;
  first_lost_ = device.suspect;
  first_lost_by_ = device.suspect_by;
  first_lost_error_ = device.suspect_error;
}

// What is missing up to here, by what came instead of it.
void PmSampler::lose_gap(Device& device, std::uint64_t count) {
  for (std::size_t loss = 0; loss < kMetricLosses && count != 0; ++loss) {
    const std::uint64_t known = std::min(count, device.unusable[loss]);
    lose(device, static_cast<MetricLoss>(loss), known);
    count -= known;
  }
  lose(device, MetricLoss::kMissing, count);
  device.missing += count;
}

// No samples from `since` on CUPTI's clock, or from the beginning where that is 0, until `until` on ours.
void PmSampler::note_gap(Device& device, Nanoseconds since, Nanoseconds until) {
  lose_gap(device, samples_between(since == 0 ? device.opened : since - device.clock_ahead, until,
                                   options_.interval));
}

// … until sampling stopped. One sample more or less that was under way is none that is lost.
void PmSampler::note_end(Device& device, Nanoseconds until) {
  const Nanoseconds since = device.last_end == 0 ? device.opened : device.last_end - device.clock_ahead;
  if (since == 0 || until <= since) return;
  const std::uint64_t missing = (until - since) / options_.interval;
  if (missing <= 1) return;
  wait_no_more(device);
  lose_gap(device, missing);
}

// After an overflow nothing comes any more, whatever is decoded: from the beginning.
void PmSampler::reopen(Device& device) {
  if (device.overflows == kMaxOverflows) {
    device.broken = true;
    say("samples come faster than they can be decoded; measure fewer metrics (INJECT_METRICS), or raise "
        "INJECT_METRICS_INTERVAL",
        device.index);
    return;
  }
  begin_anew(device);
}

// Not one of many samples could be used. Whose part of them is missing can't be asked: with fewer from the
// least important on.
void PmSampler::measure_less(Device& device) {
  auto reasons = device.unusable_ever;
  reasons[static_cast<std::size_t>(MetricLoss::kIncomplete)] += device.waiting;
  const std::string reason(loss_text(main_loss(reasons)));
  MetricChoice choice = device.choice;
  const std::vector<std::string> titles = leave_out_least(choice);
  if (titles.empty()) {
    device.broken = true;
    say("not one sample could be used: " + reason, device.index);
    return;
  }
  std::string line = "device " + std::to_string(device.index) + " is sampled without ";
  for (std::size_t i = 0; i < titles.size(); ++i) line += (i == 0 ? "" : ", ") + titles[i];
  Log::info(line + ", as no sample could be used with it: " + reason);
  // Others of its kind will fare alike, and begin anew with it.
  for (const auto& other : devices_) {
    if (other.get() != &device && (other->chip != device.chip || other->useful)) continue;
    other->choice = choice;
    other->measured.resize(choice.measured.size());
  }
  choices_.insert_or_assign(device.chip, std::move(choice));
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& title : titles) {
      if (std::find(info_.left_out.begin(), info_.left_out.end(), title) == info_.left_out.end())
        info_.left_out.push_back(title);
    }
  }
  begin_anew(device);
}

// Setting one up takes longer than the others' buffers hold, which would then have to begin anew themselves,
// and so on: all of them at once.
void PmSampler::begin_anew(Device& due) {
  std::vector<Device*> all;
  for (const auto& device : devices_) {
    if (device.get() != &due && (!device->started || device->broken)) continue;
    all.push_back(device.get());
    if (device.get() != &due) {
      for (int round = 0; round < kMaxRounds && !stop_asked() && decode_image(*device); ++round) {
      }
    }
    stop_device(*device);
    wait_no_more(*device);
    disable(*device);
    device->overflowed = false;
    device->first = device->reopened = true;
  }
  hand_over();
  for (const auto& [step, last] :
       {std::pair(&PmSampler::set_up, false), {&PmSampler::begin_sampling, true}}) {
    for (Device* const device : all) {
      if (device->broken || (last && stop_asked())) continue;
      const char* action = "";
      const CUptiResult result = (this->*step)(*device, action);
      if (result == CUPTI_SUCCESS) continue;
      device->broken = true;
      fail(device->index, action, result);
    }
  }
}

void PmSampler::stop_device(Device& device) noexcept {
  if (!std::exchange(device.started, false) || abandoned_.load(std::memory_order_acquire)) return;
  INJECT_PM_PARAMS(stop, CUpti_PmSampling_Stop);
  stop.pPmSamplingObject = device.object;
  if (api_.PmSamplingStop(&stop) != CUPTI_SUCCESS && api_.PmSamplingStop(&stop) != CUPTI_SUCCESS)
    device.runs_on = true;
}

void PmSampler::disable(Device& device) noexcept {
  if (abandoned_.load(std::memory_order_acquire) || device.runs_on || cupti_failed()) {
    device.host.forget();
    device.object = nullptr;
    if (device.runs_on) give_up();
    return;
  }
  device.host.close();
  if (device.object == nullptr) return;
  INJECT_PM_PARAMS(params, CUpti_PmSampling_Disable);
  params.pPmSamplingObject = std::exchange(device.object, nullptr);
  // CUPTI that is finalized with its sampling on ends the program.
  if (api_.PmSamplingDisable(&params) != CUPTI_SUCCESS && api_.PmSamplingDisable(&params) != CUPTI_SUCCESS)
    give_up();
}

// CUPTI keeps on sampling a device, and has to be left as it is.
void PmSampler::give_up() noexcept {
  refused_now_ = true;
  still_on_.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  refused_ = true;
}

void PmSampler::shut_down() noexcept {
  const Nanoseconds begin = now();
  bool usable = false;
  bool end_profiler = false;
  {
    const std::lock_guard lock(mutex_);
    // CUPTI that gave up with an error has finalized itself.
    usable = !cupti_failed() && !abandoned_;
    end_profiler = usable && initialized_ && !keep_profiler_;
  }
  struct Stop {
    Nanoseconds asked = 0;
    Nanoseconds done = 0;
    bool started = false;
  };
  // All of them first: what comes meanwhile would have to be decoded as well.
  std::vector<Stop> stops;
  std::size_t left = devices_.size();
  try {
    stops.resize(left);
  } catch (...) {
    left = 0;  // no memory for the last samples
  }
  for (const auto& device : devices_) {
    if (!usable) {
      device->host.forget();
      continue;
    }
    const Nanoseconds asked = now();
    const bool started = device->started;
    stop_device(*device);
    if (left != 0) stops[static_cast<std::size_t>(&device - devices_.data())] = {asked, now(), started};
  }
  if (std::any_of(stops.begin(), stops.end(), [](const Stop& stop) { return stop.started; })) {
    // A window that has begun meanwhile has had samples until now.
    const std::lock_guard lock(mutex_);
    if (unsampled_since_ != 0) unsampled_since_ = std::max(unsampled_since_, now());
  }
  for (std::size_t i = 0; usable && i < stops.size(); ++i, --left) {
    Device& device = *devices_[i];
    // Also where it could not be started again: what has not come since is lost.
    if (device.opened == 0) continue;
    try {
      // Each its share of what is left of the time.
      const Nanoseconds time = now();
      const Nanoseconds until = begin + kMaxRest > time ? time + (begin + kMaxRest - time) / left : time;
      // Where it has been set up anew, and not started yet, there is nothing to decode.
      bool more = stops[i].started;
      while (more && now() < until) {
        more = decode_image(device);
        hand_over();
      }
      // Samples were taken until the call had ended, some time after it began if this thread lost its
      // processor: where all of them came, there is no need to know.
      const bool complete = !more && !device.unplaced && !device.overflowed && !device.broken;
      note_end(device, complete ? stops[i].asked : stops[i].done);
      hand_over();
    } catch (...) {
      // No memory for the last samples.
    }
  }
  if (usable) {
    for (const auto& device : devices_) disable(*device);
  }
  devices_.clear();
  if (end_profiler && !still_on()) {
    INJECT_PM_PARAMS(params, CUpti_Profiler_DeInitialize);
    api_.ProfilerDeInitialize(&params);
  }
  initialized_ = false;
  try {
    log_lost_samples();
  } catch (...) {
    // No memory for a line: run.json has the numbers.
  }
  const std::lock_guard lock(mutex_);
  info_.stop += now() - begin;
}

// Where it is more than one in a hundred.
void PmSampler::log_lost_samples() {
  const MetricsInfo about = info();
  if (about.lost == 0 || about.lost * 100 <= about.lost + about.samples) return;
  const std::string reason(loss_text(main_loss(about.lost_by)));
  if (std::find(said_.begin(), said_.end(), reason) != said_.end()) return;
  said_.push_back(reason);
  Log::info(std::to_string(about.lost) + " of " + std::to_string(about.lost + about.samples) +
            " samples of hardware metrics lost: " + reason);
}

void PmSampler::hand_over() {
  const std::lock_guard lock(mutex_);
  const std::size_t room = kMaxQueued - std::min(queue_.size(), kMaxQueued);
  const std::size_t fit = std::min(room, fresh_.size());
  queue_.insert(queue_.end(), fresh_.begin(), fresh_.begin() + static_cast<std::ptrdiff_t>(fit));
  info_.samples += fit;
  fresh_lost_[static_cast<std::size_t>(MetricLoss::kQueueFull)] += fresh_.size() - fit;
  for (std::size_t i = 0; i < kMetricLosses; ++i) {
    info_.lost += fresh_lost_[i];
    info_.lost_by[i] += std::exchange(fresh_lost_[i], 0);
  }
  info_.decode = decoding_;
  info_.decode_cpu += std::exchange(fresh_cpu_, 0);
  info_.first = first_;
  if (info_.first_lost.read == 0 && first_lost_.read != 0) {
    info_.first_lost = first_lost_;
    info_.first_lost_by = first_lost_by_;
    info_.first_lost_error = first_lost_error_;
  }
  info_.overflows += std::exchange(fresh_overflows_, 0);
  fresh_.clear();
}

bool PmSampler::fail(std::uint32_t device, const char* action, CUptiResult result) {
  std::string reason;
  if (const char* known = reason_of(result, action); known != nullptr) {
    reason = known;
    if (known == kBusy) reason += counter_holder();
  } else if (std::string level = support_level(device); !level.empty()) {
    reason = std::move(level);
  } else {
    reason = std::string(action) + " failed";
  }
  reason += " (" + cupti_.describe(result) + ")";
  if (concerns_all(result)) {
    refuse(reason, true);
  } else {
    if (is_lasting(result)) never_.push_back(device);
    say(reason, device);
  }
  return false;
}

// CUPTI's own word on why a device can't be profiled; empty if it has none.
std::string PmSampler::support_level(std::uint32_t device) {
  INJECT_PM_PARAMS(params, CUpti_Profiler_DeviceSupported);
  params.cuDevice = static_cast<CUdevice>(device);
  params.api = CUPTI_PROFILER_PM_SAMPLING;
  if (api_.ProfilerDeviceSupported(&params) != CUPTI_SUCCESS ||
      params.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED) {
    return {};
  }
  const auto lacks = [](CUpti_Profiler_Support_Level level) {
    return level == CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED ||
           level == CUPTI_PROFILER_CONFIGURATION_DISABLED;
  };
  if (lacks(params.architecture)) return "its architecture is too old: counters are sampled from Turing on";
  if (lacks(params.sli)) return reason_of(CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED);
  if (params.vGpu == CUPTI_PROFILER_CONFIGURATION_DISABLED)
    return reason_of(CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES);
  if (lacks(params.vGpu)) return reason_of(CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED);
  if (lacks(params.confidentialCompute)) return reason_of(CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED);
  if (lacks(params.cmp)) return reason_of(CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED);
  if (lacks(params.wsl)) return reason_of(CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED);
  return {};
}

// One line for each reason, not for each device or window.
void PmSampler::say(const std::string& reason, std::uint32_t device) {
  if (std::find(said_.begin(), said_.end(), reason) != said_.end()) return;
  said_.push_back(reason);
  const bool sampled = std::any_of(devices_.begin(), devices_.end(), [device](const auto& known) {
    return known->index == device && known->sampled;
  });
  Log::warn(std::string(sampled ? "no further" : "no") + " hardware metrics of device " +
            std::to_string(device) + ": " + reason);
}

void PmSampler::refuse(const std::string& reason, bool for_good) {
  refused_now_ = true;
  if (std::find(said_.begin(), said_.end(), reason) == said_.end()) {
    said_.push_back(reason);
    Log::warn("no hardware metrics: " + reason);
  }
  const std::lock_guard lock(mutex_);
  refused_ = refused_ || for_good;
}

}  // namespace inject
