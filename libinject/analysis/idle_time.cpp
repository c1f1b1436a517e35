// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/idle_time.h"

#include <algorithm>
#include <iterator>

namespace inject {

namespace {

// Shorter waits are handovers between threads, and part of the launch.
constexpr std::uint64_t kShortWait = 500'000;
// A thread that makes no call for longer than this does work of its own: no framework needs that long for a
// launch.
constexpr std::uint64_t kOwnWork = 1'000'000;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// The time of an interval by state and, for each state, the call that took the most.
class Shares {
 public:
  void add(HostState state, std::uint64_t time, const HostCall* call, bool on_thread_before) {
    Share& share = shares_[static_cast<std::size_t>(state)];
    share.time += time;
    if (time < share.longest) return;
    share.longest = time;
    share.function = call == nullptr ? kNoFunction : call->function;
    share.call = call == nullptr ? 0 : call->begin;
    share.on_thread_before = on_thread_before;
  }
  void add_launch(HostState state, std::uint64_t time, Nanoseconds begin, FunctionId function) {
    const HostCall call{begin, 0, function, state};
    if (time != 0) add(state, time, &call, false);
  }
  void waits_are_computing() {
    Share& waiting = shares_[static_cast<std::size_t>(HostState::kWait)];
    Share& computing = shares_[static_cast<std::size_t>(HostState::kCompute)];
    if (waiting.longest > computing.longest) computing.on_thread_before = waiting.on_thread_before;
    computing.time += waiting.time;
    waiting = {};
  }
  std::uint64_t time(HostState state) const { return shares_[static_cast<std::size_t>(state)].time; }
  HostState largest() const {
    const auto most = std::max_element(shares_.begin(), shares_.end(),
                                       [](const Share& a, const Share& b) { return a.time < b.time; });
    return static_cast<HostState>(most - shares_.begin());
  }
  LateCause cause(IdleCause cause, HostState state) const {
    const Share& share = shares_[static_cast<std::size_t>(state)];
    const bool own_work = cause == IdleCause::kHostCompute && share.longest >= kOwnWork;
    return {cause, share.function, share.on_thread_before, own_work, share.call};
  }

 private:
  struct Share {
    std::uint64_t time = 0;
    std::uint64_t longest = 0;
    FunctionId function = kNoFunction;
    Nanoseconds call = 0;
    bool on_thread_before = false;
  };
  std::array<Share, kHostStates> shares_{};
};

/// Calls `use(begin, end, state, call)` for each part of [begin, end) in which the thread's state is
/// constant.
template <typename Use>
void walk(const HostThread& thread, Nanoseconds begin, Nanoseconds end, const Use& use) {
  auto next = std::upper_bound(thread.calls.begin(), thread.calls.end(), begin,
                               [](Nanoseconds time, const HostCall& call) { return time < call.end; });
  Nanoseconds at = begin;
  while (at < end) {
    if (next != thread.calls.end() && next->begin <= at) {
      const Nanoseconds until = std::min(end, next->end);
      use(at, until, next->state, &*next);
      at = until;
      ++next;
      continue;
    }
    const Nanoseconds pause_begin = next == thread.calls.begin() ? 0 : std::prev(next)->end;
    const bool last = next == thread.calls.end();
    // When a window closes, the CPU time of the closing thread is read without a call of the window beginning
    // there. Work may start later, but the thread's activity is known only until then.
    const Nanoseconds pause_end = last ? thread.closing : next->begin;
    const Nanoseconds until = last ? end : std::min(end, pause_end);
    use(at, until, thread.state_between(pause_begin, pause_end), nullptr);
    at = until;
  }
}

IdleCause cause_of(HostState state) {
  switch (state) {
    case HostState::kSynchronization:
      return IdleCause::kSynchronization;
    case HostState::kCopy:
      return IdleCause::kCopyCall;
    case HostState::kLaunch:
      return IdleCause::kLaunchCall;
    case HostState::kOther:
      return IdleCause::kOtherCall;
    case HostState::kCompute:
      return IdleCause::kHostCompute;
    case HostState::kWait:
      break;
  }
  return IdleCause::kHostWait;
}

}  // namespace

std::string_view idle_cause_name(IdleCause cause) {
  constexpr std::array<std::string_view, kIdleCauses> kNames{
      "Start-up",  "Synchronization", "Copy Call",  "Launch Call", "Other Call", "Host Compute",
      "Host Wait", "Other Stream",    "Collective", "Queue",       "Graph",      "Unknown"};
  return kNames[static_cast<std::size_t>(cause)];
}

HostState host_state_of(std::string_view function, bool library) {
  if (library) {
    constexpr std::array<std::string_view, 4> kCopying{"GetVector", "SetVector", "GetMatrix", "SetMatrix"};
    if (function.starts_with("cublas") &&
        std::any_of(kCopying.begin(), kCopying.end(),
                    [&](std::string_view part) { return contains(function, part); }))
      return HostState::kCopy;
    constexpr std::array<std::string_view, 10> kPreparing{"Create", "Destroy", "Finalize", "Find",  "Get",
                                                          "Init",   "Make",    "Build",    "Check", "Abort"};
    const bool prepares = std::any_of(kPreparing.begin(), kPreparing.end(),
                                      [&](std::string_view part) { return contains(function, part); });
    return prepares ? HostState::kOther : HostState::kLaunch;
  }
  if (contains(function, "Synchronize")) return HostState::kSynchronization;
  // Creates or changes a copy node of a graph: nothing is copied now.
  if (contains(function, "Graph") && contains(function, "Node")) return HostState::kOther;
  if (contains(function, "Memcpy")) return HostState::kCopy;
  if (contains(function, "Launch") || contains(function, "Memset")) return HostState::kLaunch;
  return HostState::kOther;
}

bool asks_for_work(std::string_view function) {
  return contains(function, "Query");
}

bool waits_for_all_work(std::string_view function) {
  return function == "cudaDeviceSynchronize";
}

const HostCall* HostThread::call_at(Nanoseconds time) const {
  const auto next = std::upper_bound(calls.begin(), calls.end(), time,
                                     [](Nanoseconds at, const HostCall& call) { return at < call.end; });
  return next != calls.end() && next->begin <= time ? &*next : nullptr;
}

HostState HostThread::state_between(Nanoseconds begin, Nanoseconds end) const {
  if (begin == 0 || end < begin + kProcessorTimeApart) return HostState::kCompute;
  const auto last =
      std::lower_bound(readings.begin(), readings.end(), end,
                       [](const ProcessorReading& reading, Nanoseconds time) { return reading.time < time; });
  if (last == readings.end() || last->time != end || last == readings.begin()) return HostState::kCompute;
  const ProcessorReading& before = *std::prev(last);
  // Without a voluntary wait, the thread lost the CPU to others. Where waits are not counted, all are 0.
  if (last->waits != 0 && last->waits == before.waits) return HostState::kCompute;
  std::uint64_t used = last->processor - before.processor;
  // The calls since that reading came in quick succession, so their thread was running.
  if (before.time < begin) used -= std::min<std::uint64_t>(used, begin - before.time);
  return 2 * used <= end - begin ? HostState::kWait : HostState::kCompute;
}

bool HostThread::waits_for_device(const HostCall& call) const {
  return call.state == HostState::kSynchronization ||
         (call.state == HostState::kCopy &&
          std::binary_search(small_downloads.begin(), small_downloads.end(), call.begin));
}

void Lead::add(std::uint64_t position, std::uint64_t time) {
  if (time == 0) return;
  time_ += time;
  // Waits come thread by thread, so they are inserted in order; those of the first thread are appended.
  const auto after =
      std::upper_bound(parts_.begin(), parts_.end(), position,
                       [](std::uint64_t wanted, const Part& part) { return wanted < part.position; });
  if (after != parts_.begin() && std::prev(after)->position == position) {
    std::prev(after)->time += time;
  } else {
    parts_.insert(after, {position, time});
  }
}

void Lead::expire(std::uint64_t position) {
  while (!parts_.empty() && parts_.front().position + kQueue < position) {
    time_ -= parts_.front().time;
    parts_.pop_front();
  }
}

void Lead::take(std::uint64_t time) {
  while (time != 0 && !parts_.empty()) {
    const std::uint64_t taken = std::min(time, parts_.front().time);
    parts_.front().time -= taken;
    time_ -= taken;
    time -= taken;
    if (parts_.front().time == 0) parts_.pop_front();
  }
}

void Lead::clear() {
  parts_.clear();
  time_ = 0;
}

LateCause late_cause(Nanoseconds begin, Nanoseconds end, const LateLaunch& launch, Lead& lead) {
  const std::uint64_t gap = end - begin;
  const Nanoseconds called = std::clamp(launch.begin, begin, end);
  static const HostThread& nobody = *new HostThread;  // never destroyed: the last tables are written at exit
  const HostThread& thread = launch.thread == nullptr ? nobody : *launch.thread;
  const HostThread* before = launch.before == launch.thread ? nullptr : launch.before;

  Shares shares;
  walk(thread, begin, called, [&](Nanoseconds from, Nanoseconds to, HostState state, const HostCall* call) {
    if (state != HostState::kWait || before == nullptr) {
      shares.add(state, to - from, call, false);
      return;
    }
    walk(*before, from, to, [&](Nanoseconds a, Nanoseconds b, HostState other, const HostCall* other_call) {
      shares.add(other, b - a, other_call, true);
    });
  });
  shares.add_launch(launch.state, end - called, launch.begin, launch.function);

  const std::uint64_t waited = shares.time(HostState::kWait);
  if (2 * waited >= gap && waited >= kShortWait) {
    lead.clear();
    return shares.cause(IdleCause::kHostWait, HostState::kWait);
  }

  // The call that the host was in when the device ran out of work.
  const HostCall* under_way = thread.call_at(begin);
  bool on_thread_before = false;
  if (under_way == nullptr && before != nullptr) {
    walk(thread, begin, begin + 1, [&](Nanoseconds, Nanoseconds, HostState state, const HostCall*) {
      if (state == HostState::kWait) under_way = before->call_at(begin);
    });
    on_thread_before = under_way != nullptr;
  }
  // Whatever the cause, the gap would have been shorter by the lead if the host had not waited before.
  const bool within_lead = gap <= lead.time();
  lead.take(gap);
  if (under_way != nullptr && 2 * (under_way->end - under_way->begin) >= gap) {
    if ((on_thread_before ? *before : thread).waits_for_device(*under_way))
      return {IdleCause::kSynchronization, under_way->function, on_thread_before, false, under_way->begin};
    if (under_way->state == HostState::kCopy)
      return {IdleCause::kCopyCall, under_way->function, on_thread_before, false, under_way->begin};
  }
  if (within_lead) return {IdleCause::kSynchronization};
  if (waited < kShortWait) shares.waits_are_computing();
  const HostState largest = shares.largest();
  const LateCause cause = shares.cause(cause_of(largest), largest);
  if (cause.cause == IdleCause::kHostWait) lead.clear();
  return cause;
}

}  // namespace inject
