// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Why a device was idle: docs/diagnosis.md has the rules. Pure functions of what the host's threads did and
// of the work on either side of a gap. All times are nanoseconds on CLOCK_MONOTONIC.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

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
  kUnknown,
};
inline constexpr std::size_t kIdleCauses = 11;

/// `Host Compute`, as the columns and the text summary have it.
std::string_view idle_cause_name(IdleCause cause);

/// What a thread does: in a call of some kind, or outside of any. In the order in which ties are decided.
enum class HostState : std::uint8_t { kSynchronization, kCopy, kLaunch, kOther, kCompute, kWait };
inline constexpr std::size_t kHostStates = 6;

/// Of a thread inside a call of that name; `library`: of cuBLAS, cuBLASLt, cuDNN or NCCL.
HostState host_state_of(std::string_view function, bool library);

/// Whether a call of that name asks if work is done. A thread that makes one after the other waits.
bool asks_for_work(std::string_view function);

/// An outermost call.
struct HostCall {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  FunctionId function = kNoFunction;
  HostState state = HostState::kOther;
  bool asks = false;  ///< asks_for_work()
};

struct ProcessorReading {
  Nanoseconds time = 0;
  Nanoseconds processor = 0;  ///< used by the thread until then
  std::uint64_t waits = 0;    ///< how often it had given the processor up by itself
};

/// What is known of one thread in a window: all ascending, the calls disjoint.
struct HostThread {
  std::vector<HostCall> calls;
  std::vector<ProcessorReading> readings;
  std::vector<Nanoseconds> small_downloads;  ///< begins of calls that copied little to the host
  bool launches = false;                     ///< it gave a device work
  Nanoseconds closing = 0;                   ///< of the window; 0 while that is not known

  /// Records that it takes memory for.
  std::size_t held() const { return calls.size() + readings.size() + small_downloads.size(); }
  /// The call under way at `time`; null if there is none.
  const HostCall* call_at(Nanoseconds time) const;
  /// What the thread does between two of its calls; `begin` or `end` is 0 where there is no call on that
  /// side.
  HostState state_between(Nanoseconds begin, Nanoseconds end) const;
  /// A synchronization, or a copy that serves as one.
  bool waits_for_device(const HostCall& call) const;
};

/// What the launches would have come earlier, had nothing waited for the device. It is kept by what waits
/// gave, oldest first, and for so many pieces of work only: a queue of launches is not longer. Takes memory
/// for so many of them at most, as long as it is asked to expire.
class Lead {
 public:
  static constexpr std::uint64_t kQueue = 1024;

  std::uint64_t time() const { return time_; }
  /// A wait of that long was over when the `position`-th piece of work had started. In any order.
  void add(std::uint64_t position, std::uint64_t time);
  /// Forgets what is too old for the piece of work at `position`.
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

/// The launch that was late for a gap. Its thread, and, if it is another, that of the launch before it.
struct LateLaunch {
  Nanoseconds begin = 0;
  HostState state = HostState::kLaunch;  ///< of the launching call itself
  FunctionId function = kNoFunction;
  const HostThread* thread = nullptr;
  const HostThread* before = nullptr;
};

struct LateCause {
  IdleCause cause = IdleCause::kHostCompute;
  FunctionId function = kNoFunction;  ///< the call that took the time, where it is one
  bool on_thread_before = false;      ///< of the two threads, the one that it is about
  bool own_work = false;  ///< host compute in one stretch so long that it is not the way to a launch
};

/// Why the host was late for a gap from `begin` to `end`: rule 4. `lead` is what launches would have come
/// earlier had nothing waited for the device; it is updated.
LateCause late_cause(Nanoseconds begin, Nanoseconds end, const LateLaunch& launch, Lead& lead);

}  // namespace inject
