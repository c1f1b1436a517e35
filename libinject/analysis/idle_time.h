// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Why a device was idle: docs/diagnosis.md has the rules. Pure functions of the host threads' activity and of
// the work on either side of a gap. All times are nanoseconds on CLOCK_MONOTONIC.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "libinject/analysis/fetch_times.h"
#include "libinject/model/records.h"

namespace inject {

enum class IdleCause : std::uint8_t {
  kStartUp,
  kSynchronization,
  kCopyCall,
  kLaunchCall,
  kOtherCall,
  kHostCompute,
  kHostWait,
  kOtherStream,
  kCollective,
  kQueue,
  kGraph,
  kUnknown,
};
inline constexpr std::size_t kIdleCauses = 12;

/// For example `Host Compute`, as in the columns and the text summary.
std::string_view idle_cause_name(IdleCause cause);

/// What a thread does: in a call of some kind, or outside of any. The order decides ties.
enum class HostState : std::uint8_t { kSynchronization, kCopy, kLaunch, kOther, kCompute, kWait };
inline constexpr std::size_t kHostStates = 6;

/// The state of a thread inside a call of this name; `library`: whether it is a call of cuBLAS, cuBLASLt,
/// cuDNN or NCCL.
HostState host_state_of(std::string_view function, bool library);

/// Whether a call of this name queries if work is done. A thread that makes such calls repeatedly is waiting.
bool asks_for_work(std::string_view function);

/// Whether a call of this name waits for all work on a device, on whichever stream.
bool waits_for_all_work(std::string_view function);

/// An outermost call.
struct HostCall {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  FunctionId function = kNoFunction;
  HostState state = HostState::kOther;
  bool asks = false;            ///< asks_for_work()
  bool waited_for_all = false;  ///< waits_for_all_work(), and it succeeded
};

struct ProcessorReading {
  Nanoseconds time = 0;
  Nanoseconds processor = 0;  ///< CPU time used by the thread until then
  std::uint64_t waits = 0;    ///< number of voluntary context switches until then
};

/// What is known about one thread in a window. All lists are ascending, and calls are disjoint.
struct HostThread {
  std::vector<HostCall> calls;
  std::vector<ProcessorReading> readings;
  std::vector<HostFetch> fetches;
  std::vector<Nanoseconds> small_downloads;  ///< begin times of calls that copied little to the host
  bool launches = false;                     ///< whether it submitted device work
  Nanoseconds closing = 0;                   ///< when the window closed; 0 while unknown
  Nanoseconds waited_for_all = 0;            ///< the end of its first call that did; 0: none

  /// Records held in memory.
  std::size_t held() const {
    return calls.size() + readings.size() + fetches.size() + small_downloads.size();
  }
  /// The call in progress at `time`; null if there is none.
  const HostCall* call_at(Nanoseconds time) const;
  /// The thread's state between two of its calls; `begin` or `end` is 0 if there is no call on that side.
  HostState state_between(Nanoseconds begin, Nanoseconds end) const;
  /// A synchronization, or a copy that serves as one.
  bool waits_for_device(const HostCall& call) const;
};

/// How much earlier launches would have come if nothing had waited for the device. Each wait adds a part; the
/// oldest is used first, and each expires after a number of pieces of work (kQueue), since a queue of
/// launches is no longer than that. As long as expire() is called, this number also bounds memory.
class Lead {
 public:
  static constexpr std::uint64_t kQueue = 1024;

  std::uint64_t time() const { return time_; }
  /// A wait of this length was over when the `position`-th piece of work had started. May be called in any
  /// order.
  void add(std::uint64_t position, std::uint64_t time);
  /// Drops parts that are too old for the piece of work at `position`.
  void expire(std::uint64_t position);
  void take(std::uint64_t time);
  void clear();

 private:
  struct Part {
    std::uint64_t position;
    std::uint64_t time;
  };
  std::deque<Part> parts_;
  std::uint64_t time_ = 0;
};

/// The launch that came too late and so left a gap, with its thread and, if different, that of the previous
/// launch.
struct LateLaunch {
  Nanoseconds begin = 0;
  HostState state = HostState::kLaunch;  ///< of the launching call itself
  FunctionId function = kNoFunction;
  const HostThread* thread = nullptr;
  const HostThread* before = nullptr;
};

struct LateCause {
  IdleCause cause = IdleCause::kHostCompute;
  FunctionId function = kNoFunction;  ///< the call that took the time, if any
  bool on_thread_before = false;      ///< the thread was LateLaunch::before, not the launching one
  bool own_work = false;              ///< a stretch of host compute too long to be launch preparation
  Nanoseconds call = 0;               ///< when `function` was called; 0 if unknown
};

/// Why the host was late for a gap from `begin` to `end`: rule 4 of docs/diagnosis.md. Updates `lead`.
LateCause late_cause(Nanoseconds begin, Nanoseconds end, const LateLaunch& launch, Lead& lead);

/// A gap with its cause, and what ended it.
struct IdleGap {
  std::uint64_t time = 0;
  IdleCause cause = IdleCause::kUnknown;
  std::uint32_t delayed_by = 0;  ///< the thread that caused it, if the host did
  Nanoseconds call = 0;          ///< begin of the call on that thread that took the time; 0 if none
  std::uint32_t device = 0;
  // The launch of the work that ended the gap; if `is_closing`, there is none, and the thread is that of the
  // window's last launch.
  std::uint32_t thread = 0;
  Nanoseconds launched = 0;
  bool is_closing = false;  ///< lasted to the window's end
  bool own_work = false;    ///< LateCause::own_work
};

}  // namespace inject
