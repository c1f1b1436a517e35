// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/cupti_attachment.h"

#include <array>
#include <cstdio>
#include <mutex>

#include "libinject/base/clock.h"
#include "libinject/capture/cupti/foreign_client.h"
#include "libinject/capture/gate.h"

namespace inject {

namespace {

// Sampling stops in some 50 ms per device; a call that takes longer than this hangs.
constexpr Nanoseconds kMaxSamplerStop = 2 * kSecond;

}  // namespace

CuptiAttachment::CuptiAttachment(const Options& options, SessionState& state, OnceLog& once,
                                 ProfiledTimes& times, Tracer::Events events, void (*register_exit_handler)())
    : options_(options),
      state_(state),
      once_(once),
      times_(times),
      register_exit_handler_(register_exit_handler),
      buffers_(options.buffer_bytes),
      tracer_(buffers_, events),
      sampler_({options.metrics, options.metric_names, options.metrics_interval, register_exit_handler}) {}

bool CuptiAttachment::raise(TracerLevel level, bool may_gate, const std::string& refusal) noexcept {
  const bool raised = try_raise(level, may_gate, refusal);
  if (raised && level == TracerLevel::kActivity) {
    foreign_client.displace();
    sampler_.start(tracer_.api());
  }
  return raised;
}

bool CuptiAttachment::try_raise(TracerLevel level, bool may_gate, const std::string& refusal) noexcept {
  try {
    std::string error;
    if (!refusal.empty()) {
      warn_no_device_activity(refusal);
      return false;
    }
    if (tracer_.level() >= level) {
      if (tracer_.holds()) return true;
      // CUPTI was finalized by a call that no hook saw.
      tracer_.forget();
      buffers_.reclaim_outstanding();
    }
    // A context that is being created is waited for (Tracer::raise_to), with no launch held meanwhile.
    const auto contexts = may_gate ? ContextWait::kMay : ContextWait::kNo;
    if (may_gate && level == TracerLevel::kActivity) ContextHold::wait_for_creations();
    const Nanoseconds begin = now();
    times_.begin(begin);
    bool raised;
    {
      const LaunchGate gate(may_gate && tracer_.level() < TracerLevel::kActivity);
      inside_.store(true, std::memory_order_relaxed);
      raised = tracer_.raise(level, options_.api == ApiStatistics::kFull, error, contexts);
      inside_.store(false, std::memory_order_relaxed);
    }
    const Nanoseconds end = now();
    attaching_time_ += end - begin;
    if (tracer_.level() < TracerLevel::kActivity && !lingers_) times_.end(end);
    if (!raised) {
      warn_no_device_activity(error);
      return false;
    }
    if (!error.empty() && error != problem_) {
      problem_ = error;
      state_.warn("device activity is incomplete: " + error);
    }
    // Exit handlers run last in, first out: registered again now that CUPTI is loaded, ours runs before
    // CUPTI's.
    if (attachments_++ == 0) {
      first_attached_ = begin;
      register_exit_handler_();
    }
    return true;
  } catch (...) {
    once_.no_memory_for("no device activity is recorded");
    return false;
  }
}

// Logs each reason once.
void CuptiAttachment::warn_no_device_activity(const std::string& why) {
  untraced_ = why;
  if (why.empty() || why == problem_) return;
  problem_ = why;
  state_.warn("no device activity is recorded: " + why);
}

bool CuptiAttachment::detach(const Detachment& how) noexcept {
  if (tracer_.level() == TracerLevel::kDetached) {
    detach_owed_ = false;
    return true;
  }
  if (!how.sampler_out) {
    tracer_.stop_activity();
    cupti_kept_ = detach_owed_ = true;
    return false;
  }
  std::unique_lock<std::mutex> alone;
  if (how.contexts == ContextWait::kMay) alone = Tracer::no_switch(0);
  if (how.contexts == ContextWait::kMay && how.may_finalize && (!how.has_context || !alone.owns_lock())) {
    tracer_.keep_launches();
    lingers_ = detach_owed_ = true;
    return false;
  }
  const Nanoseconds begin = now();
  const bool due = how.spare_none || FinalizationBudget::allows(finalizations_, begin - first_attached_);
  {
    const LaunchGate gate(true);
    inside_.store(true, std::memory_order_relaxed);
    tracer_.detach(due && !cupti_kept_ && how.may_finalize && !foreign_client.minds_finalize(), how.contexts);
    inside_.store(false, std::memory_order_relaxed);
  }
  if (tracer_.finalized()) {
    ++finalizations_;
    foreign_client.displace();
  } else if (tracer_.threads_left() == GracePeriod::kUnknown) {
    if (once_.first(OnceLog::Topic::kThreadsUnknown)) {
      state_.warn(
          "CUPTI is not finalized because one of the program's threads may still be inside it, and /proc "
          "does not list them: launches remain about 0.4 us slower");
    }
  } else if (tracer_.threads_left() == GracePeriod::kTooLong && once_.first(OnceLog::Topic::kThreadInCupti)) {
    state_.warn(
        "CUPTI is not finalized because one of the program's threads is still inside it: launches remain "
        "about 0.4 us slower until another window has ended");
  } else if (!due && once_.first(OnceLog::Topic::kStaysInitialised)) {
    std::array<char, 256> line;  // needs no memory
    std::snprintf(
        line.data(), line.size(),
        "CUPTI has been attached and finalized %llu times, and keeps some memory each time: it is "
        "finalized once an hour now, and after the last window; launches stay some 0.4 us slower in "
        "between",
        static_cast<unsigned long long>(finalizations_.load()));
    state_.warn(line.data());
  }
  detach_owed_ = false;
  const Nanoseconds end = now();
  detaching_time_ += end - begin;
  // As long as it is not finalized, it makes launches slower.
  lingers_ = !tracer_.finalized();
  if (!lingers_) times_.end(end);
  return true;
}

void CuptiAttachment::keep_launches() noexcept {
  tracer_.keep_launches();
  // With INJECT_API=full there are callbacks for all other calls as well.
  lingers_ = options_.api == ApiStatistics::kFull;
  if (!lingers_) times_.end(now());
}

void CuptiAttachment::forget(bool window_open) noexcept {
  // Attached after the program's finalization.
  if (tracer_.level() != TracerLevel::kDetached && !tracer_.holds()) {
    if (window_open) {
      state_.warn(
          "the program has finalized CUPTI in an open window: device activity and hardware metrics are "
          "missing from here on");
    }
    tracer_.forget();
    detach_owed_ = false;
  }
  if (!tracer_.holds()) {
    lingers_ = false;
    times_.end(now());
  }
  // CUPTI does not return them any more.
  if (tracer_.level() == TracerLevel::kDetached) buffers_.reclaim_outstanding();
  if (options_.metrics) sampler_.resume();
}

bool CuptiAttachment::forget_if_owed(bool window_open) noexcept {
  if (!forget_owed_.exchange(false, std::memory_order_acq_rel)) return false;
  forget(window_open);
  return true;
}

void CuptiAttachment::reclaim_idle_buffers(std::uint64_t gone) {
  const std::uint64_t refusals = buffers_.refusals();
  const bool ended =
      buffers_.outstanding() >= buffers_.count() / 2 && gone - seen_gone_ >= buffers_.count() / 8;
  if (!ended && refusals == seen_refusals_) return;
  seen_refusals_ = refusals;
  seen_gone_ = gone;
  tracer_.flush(false);
}

// CUPTI must not be finalized during a call to it. A hanging call is not waited for a second time, unless the
// sampler has made progress since.
bool CuptiAttachment::stop_sampler() noexcept {
  const bool out = sampler_.stop(longest_sampler_stop());
  if (!out && once_.first(OnceLog::Topic::kSamplerStuck))
    state_.warn("sampling of hardware metrics does not stop: CUPTI stays attached");
  note_sampler(out);
  return out;
}

void CuptiAttachment::suspend_sampler() noexcept {
  if (options_.metrics) note_sampler(sampler_.suspend(longest_sampler_stop()));
}

void CuptiAttachment::yield_sampler(bool initialize) noexcept {
  if (options_.metrics) note_sampler(sampler_.yield_cupti(initialize, longest_sampler_stop()));
}

bool CuptiAttachment::sampler_hangs() const noexcept {
  return sampler_stuck_.load(std::memory_order_relaxed) &&
         sampler_stuck_at_.load(std::memory_order_relaxed) == sampler_.passes();
}

Nanoseconds CuptiAttachment::longest_sampler_stop() const noexcept {
  return sampler_hangs() ? 0 : kMaxSamplerStop;
}

void CuptiAttachment::note_sampler(bool out) noexcept {
  sampler_stuck_at_.store(sampler_.passes(), std::memory_order_relaxed);
  sampler_stuck_.store(!out, std::memory_order_relaxed);
}

void CuptiAttachment::add_overhead(Overhead& overhead) const noexcept {
  overhead.open = attaching_time_;
  overhead.close = detaching_time_;
  overhead.attachments = attachments_;
  overhead.finalizations = finalizations_;
}

}  // namespace inject
