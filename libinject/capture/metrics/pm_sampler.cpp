// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/pm_sampler.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/format.h"
#include "libinject/base/log.h"
#include "libinject/capture/metrics/decode_schedule.h"
#include "libinject/record/internal_thread.h"

namespace inject {

namespace {

// Samples of all devices that the drain side has not taken yet: 120 bytes each.
constexpr std::size_t kMaxQueued = std::size_t{1} << 15;
// Time limit for decoding what is left in the hardware's buffer when sampling stops.
constexpr Nanoseconds kMaxRest = kSecond;
// For our lock, which is held only briefly, unless a signal handler has interrupted the thread that holds
// it.
constexpr Nanoseconds kMaxLockWait = kSecond;

constinit std::atomic<bool> foreign_profiler{false};

constexpr const char* kForeignProfiler =
    "no further hardware metrics: the program uses CUPTI's profiler itself";

}  // namespace

PmSampler::PmSampler(Options options) : options_(std::move(options)), devices_(options_, stop_, *this) {
  info_.on = options_.on;
  info_.interval = options_.on ? options_.interval : 0;
}

PmSampler::~PmSampler() = default;

void PmSampler::start(const CuptiApi& cupti) noexcept {
  if (!options_.on) return;
  try {
    const MutexLock lock(mutex_);
    if (refused_ || suspended_) return;
    if (foreign_profiler.load(std::memory_order_acquire)) {
      refused_ = true;
      Log::warn(kForeignProfiler);
      return;
    }
    // A thread that was asked to stop, and now continues, starts again: what it had started does not count.
    if (!std::exchange(wanted_, true)) started_ = false;
    if (running_) return;
    devices_.use(cupti);
    running_ = start_internal_thread(&entry, this) == 0;
    if (running_) return;
    wanted_ = false;
    refused_ = true;
    Log::warn("no hardware metrics: a thread can't be started");
  } catch (...) {
    // Out of memory: no metrics.
  }
}

Nanoseconds PmSampler::start_time() const noexcept {
  constexpr Nanoseconds kLoading = 300 * kMillisecond;
  constexpr Nanoseconds kDevice = 300 * kMillisecond;
  const auto noted = static_cast<std::size_t>(std::popcount(noted_devices_.load(std::memory_order_relaxed)));
  const MutexLock lock(mutex_);
  return kLoading + kDevice * std::max<std::size_t>({noted, info_.devices.size(), 1});
}

bool PmSampler::wait_started(Nanoseconds most) noexcept {
  if (!options_.on) return true;
  MutexLock lock(mutex_);
  return lock.wait_for(changed_, most, [this]() INJECT_REQUIRES(mutex_) { return !running_ || started_; });
}

bool PmSampler::stop(Nanoseconds most) noexcept {
  if (!options_.on) return true;
  if (!mutex_.try_lock_within(kMaxLockWait)) return false;
  MutexLock lock(mutex_, std::adopt_lock);
  if (wanted_) stop_.request();
  wanted_ = false;
  wake_.notify_one();
  // start() may be called in the meantime: then the thread continues, but has been outside CUPTI.
  const auto out_of_cupti = [this, asked = stop_.requests()]()
                                INJECT_REQUIRES(mutex_) { return !attached_ || stopped_ >= asked; };
  return lock.wait_for(changed_, most, out_of_cupti) && !still_on();
}

bool PmSampler::suspend(Nanoseconds most) noexcept {
  if (!options_.on) return true;
  {
    if (!mutex_.try_lock_within(kMaxLockWait)) return false;
    const MutexLock lock(mutex_, std::adopt_lock);
    suspended_ = true;
  }
  if (stop(most)) return true;
  if (!mutex_.try_lock_within(kMaxLockWait)) return false;
  const MutexLock lock(mutex_, std::adopt_lock);
  stop_.abandon(attached_);
  return false;
}

void PmSampler::resume() noexcept {
  if (!mutex_.try_lock_within(kMaxLockWait)) return;
  const MutexLock lock(mutex_, std::adopt_lock);
  suspended_ = false;
}

void PmSampler::note_foreign_profiler() noexcept {
  foreign_profiler.store(true, std::memory_order_release);
}

bool PmSampler::yield_cupti(bool initialize, Nanoseconds most) noexcept {
  if (!options_.on) return true;
  {
    if (!mutex_.try_lock_within(kMaxLockWait)) return false;
    const MutexLock lock(mutex_, std::adopt_lock);
    // Its initialisation was not seen, so the profiler is the program's to end.
    if (!initialize) keep_profiler_ = true;
    if (!std::exchange(refused_, true)) Log::warn(kForeignProfiler);
  }
  if (stop(most)) return true;
  if (!mutex_.try_lock_within(kMaxLockWait)) return false;
  const MutexLock lock(mutex_, std::adopt_lock);
  keep_profiler_ = true;
  return false;
}

bool PmSampler::running() const noexcept {
  if (!options_.on) return false;
  const MutexLock lock(mutex_);
  return attached_ || wanted_;
}

bool PmSampler::starting() const noexcept {
  if (!options_.on) return false;
  if (!mutex_.try_lock_within(kMaxLockWait)) return false;
  const MutexLock lock(mutex_, std::adopt_lock);
  return !refused_ && !suspended_ && !(wanted_ && started_);
}

void PmSampler::note_window(Nanoseconds begin) noexcept {
  if (!options_.on) return;
  if (!mutex_.try_lock_within(kMaxLockWait)) return;
  const MutexLock lock(mutex_, std::adopt_lock);
  if (running_ && wanted_ && !started_) unsampled_since_ = begin;
}

void PmSampler::note_window_end(Nanoseconds end) noexcept {
  if (!options_.on) return;
  if (!mutex_.try_lock_within(kMaxLockWait)) return;
  const MutexLock lock(mutex_, std::adopt_lock);
  count_unsampled_until(end);
}

// Counts them for devices that have been sampled, or that the program is known to use.
void PmSampler::count_unsampled_until(Nanoseconds time) noexcept {
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
  const MutexLock lock(mutex_);
  return std::exchange(queue_, {});
}

MetricsInfo PmSampler::info() const {
  const MutexLock lock(mutex_);
  return info_;
}

void* PmSampler::entry(void* sampler) noexcept {
  enter_internal_thread();
  static_cast<PmSampler*>(sampler)->run();
  return nullptr;
}

void PmSampler::run() noexcept {
  MutexLock lock(mutex_);
  while (wanted_) {
    stop_.begin();
    attached_ = true;
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
    stopped_ = stop_.requests();
    started_ = !stop_.requested();
    // If nothing can be sampled, which has been logged, nothing counts as lost.
    if (started_) unsampled_since_ = 0;
    changed_.notify_all();
    // What can't be sampled now will not be possible until CUPTI has been detached and attached again.
    lock.wait(wake_, [this] { return stop_.requested(); });
  }
  running_ = false;
  started_ = false;
  changed_.notify_all();
}

void PmSampler::sample() {
  devices_.begin();
  const Nanoseconds pause = poll_interval(options_.interval);
  for (;;) {
    passes_.fetch_add(1, std::memory_order_relaxed);
    if (stop_.cupti_failed()) return;
    const Nanoseconds starting = devices_.open(noted_devices_);
    if (devices_.refused() || stop_.must_stop()) return;
    {
      const MutexLock lock(mutex_);
      info_.start += starting;
      // Not if start() has been called since: another begin follows.
      if (stop_.requested()) return;
      if (!std::exchange(started_, true)) {
        count_unsampled_until(now());
        changed_.notify_all();
      }
    }
    devices_.decode_due();
    const Nanoseconds wait = devices_.until_due(pause);
    MutexLock lock(mutex_);
    if (lock.wait_for(wake_, wait, [this] { return stop_.requested(); })) return;
  }
}

void PmSampler::shut_down() noexcept {
  const Nanoseconds begin = now();
  bool usable = false;
  bool end_profiler = false;
  {
    const MutexLock lock(mutex_);
    // CUPTI that gave up with an error has finalized itself.
    usable = !stop_.cupti_failed() && !stop_.abandoned();
    end_profiler = usable && !keep_profiler_;
  }
  if (usable) {
    if (devices_.stop()) {
      // A window that has begun since has had samples until now.
      const MutexLock lock(mutex_);
      if (unsampled_since_ != 0) unsampled_since_ = std::max(unsampled_since_, now());
    }
    devices_.decode_rest(begin + kMaxRest);
  }
  devices_.close(usable, end_profiler);
  try {
    log_lost_samples();
  } catch (...) {
    // Out of memory for a message: run.json has the numbers.
  }
  const MutexLock lock(mutex_);
  info_.stop += now() - begin;
}

// Logs losses of more than one percent.
void PmSampler::log_lost_samples() {
  const MetricsInfo about = info();
  if (about.lost == 0 || about.lost * 100 <= about.lost + about.samples) return;
  const std::string reason(loss_text(main_loss(about.lost_by)));
  if (!logged_.add(reason)) return;
  Log::info(str_format("{} of {} samples of hardware metrics lost: {}", about.lost,
                       about.lost + about.samples, reason));
}

void PmSampler::add_device(std::uint32_t device, const MetricChoice& choice) {
  const MutexLock lock(mutex_);
  if (info_.columns.empty()) {
    info_.columns = choice.metrics;
    info_.left_out = choice.left_out;
  }
  if (std::find(info_.devices.begin(), info_.devices.end(), device) == info_.devices.end())
    info_.devices.push_back(device);
}

void PmSampler::leave_out(const std::vector<std::string>& titles) {
  const MutexLock lock(mutex_);
  for (const std::string& title : titles) {
    if (std::find(info_.left_out.begin(), info_.left_out.end(), title) == info_.left_out.end())
      info_.left_out.push_back(title);
  }
}

void PmSampler::hand_over(SamplingReport& report) {
  SampleTotals& totals = report.totals;
  const MutexLock lock(mutex_);
  const std::size_t room = kMaxQueued - std::min(queue_.size(), kMaxQueued);
  const std::size_t fit = std::min(room, totals.samples.size());
  queue_.insert(queue_.end(), totals.samples.begin(),
                totals.samples.begin() + static_cast<std::ptrdiff_t>(fit));
  info_.samples += fit;
  totals.lost[static_cast<std::size_t>(MetricLoss::kQueueFull)] += totals.samples.size() - fit;
  for (std::size_t i = 0; i < kMetricLosses; ++i) {
    info_.lost += totals.lost[i];
    info_.lost_by[i] += std::exchange(totals.lost[i], 0);
  }
  info_.decode = report.decoding;
  info_.decode_cpu += std::exchange(report.cpu, 0);
  info_.first = totals.first;
  if (info_.first_lost.read == 0 && totals.first_lost.read != 0) {
    info_.first_lost = totals.first_lost;
    info_.first_lost_by = totals.first_lost_by;
    info_.first_lost_error = totals.first_lost_error;
  }
  info_.overflows += std::exchange(report.overflows, 0);
  totals.samples.clear();
}

void PmSampler::refuse_for_good() noexcept {
  const MutexLock lock(mutex_);
  refused_ = true;
}

void PmSampler::leave_on() noexcept {
  still_on_.store(true, std::memory_order_release);
  const MutexLock lock(mutex_);
  refused_ = true;
}

}  // namespace inject
