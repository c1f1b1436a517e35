// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "libinject/analysis/device_times.h"
#include "libinject/analysis/energy.h"
#include "libinject/analysis/idle_time.h"
#include "libinject/model/records.h"
#include "libinject/stats/idle_shares.h"

namespace inject {

enum class TimedWorkKind : std::uint8_t { kKernel, kCollective, kUpload, kDownload, kOtherCopy, kMemset };

/// A kernel, copy or memset and the call that submitted it.
struct TimedWork {
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  Nanoseconds launch_begin = 0;
  Nanoseconds launch_end = 0;
  std::uint32_t thread = 0;
  std::uint64_t stream = 0;  ///< combined with its context: stream ids are unique within one
  FunctionId function = kNoFunction;
  TimedWorkKind kind = TimedWorkKind::kKernel;
  bool launch_known = false;
  std::uint32_t blocks = 0;  ///< in a collective's grid
  bool closing = false;      ///< no work: marks the window's end, with its last launch
  bool copy_call = false;    ///< the call itself copies, unlike graph launches and library calls
};

/// The threads of a window, by their index.
using HostThreads = std::map<std::uint32_t, HostThread>;

/// A call in which a thread that launches waited for the device.
struct DeviceWait {
  Nanoseconds end = 0;
  std::uint64_t time = 0;
};

/// The waits of all threads, sorted by end. Also sorts the threads' `small_downloads`.
std::vector<DeviceWait> waits_of(HostThreads& threads);
/// Those that ended after `begin`, up to and including `end`.
std::span<const DeviceWait> waits_between(std::span<const DeviceWait> waits, Nanoseconds begin,
                                          Nanoseconds end);

/// One device in one window: its work in order, and why it was idle in between. Work is pending until it is
/// judged, with what is known about the threads by then.
class DeviceTimeline {
 public:
  /// False if work of that time has already been judged.
  bool add(const TimedWork& work);
  const std::vector<TimedWork>& pending() const { return pending_; }
  /// Drops work launched at `launch` or later. Returns false if some of that was already judged, or may have
  /// run beside the remaining work on another stream.
  bool cut(Nanoseconds launch);

  // In the following, `waits` are waits_of(threads).
  /// Judges the work that started before `until`, and drops it.
  void judge(const HostThreads& threads, std::span<const DeviceWait> waits, Nanoseconds until);
  /// Waits that ended by `until` give later launches a lead. To be called before their calls are dropped.
  void add_waits(std::span<const DeviceWait> waits, Nanoseconds until) { add_waits(waits, until, {}); }
  /// The latest end of judged work, 0 if there is none.
  Nanoseconds end() const { return all_.end; }
  /// No gap that remains to be judged begins before this.
  Nanoseconds earliest_gap() const;

  /// Judges everything, for a window from `begin` to `end`. Empty if the device had no work.
  std::optional<DeviceTimes> settle(const HostThreads& threads, std::span<const DeviceWait> waits,
                                    Nanoseconds begin, Nanoseconds end);
  /// The causes of the device's idle time.
  const IdleShares& shares() const { return shares_; }
  /// The times when no kernel ran.
  KernelPauses take_pauses() { return std::exchange(pauses_, {}); }
  /// Gaps are kept until they are taken; otherwise they are not kept.
  void keep_gaps() { keeps_gaps_ = true; }
  std::vector<IdleGap> take_gaps();

 private:
  /// Length of the union of intervals added in ascending order of begin.
  struct Union {
    Nanoseconds end = 0;
    std::uint64_t time = 0;
    void add(Nanoseconds begin, Nanoseconds until);
  };
  struct Collective {
    Nanoseconds end = 0;
    std::uint64_t blocks = 0;
  };

  bool ends_earlier_work(const TimedWork& work) const;
  void begin_with(const TimedWork& kernel);
  void count(const TimedWork& work);
  // The following take a device's kernels in order of start.
  void compute(const TimedWork& kernel);
  void collective(const TimedWork& kernel);
  // The device was idle from `begin` until `next` started. `launched_before`: the launch before that of
  // `next`; may be null.
  void gap(const HostThreads& threads, std::span<const DeviceWait> waits, Nanoseconds begin,
           const TimedWork& next, const TimedWork* launched_before, std::span<const TimedWork> work);
  void add_waits(std::span<const DeviceWait> waits, Nanoseconds until, std::span<const TimedWork> work);
  // `next` ended the gap; `call`: IdleGap::call.
  void blame(std::uint64_t time, const IdleShare& share, const TimedWork* next = nullptr,
             Nanoseconds call = 0);

  std::vector<TimedWork> pending_;
  Nanoseconds judged_until_ = 0;
  Nanoseconds first_ = 0;
  Nanoseconds first_kernel_ = 0;
  std::uint64_t started_ = 0;         // pieces of work judged …
  std::uint64_t started_before_ = 0;  // … before the current judge()
  TimedWork last_;                    // the work that ended last
  TimedWork last_launch_;             // the work launched last
  bool any_ = false;
  bool any_launch_ = false;
  std::vector<std::uint64_t> copied_on_;  // streams of the work before the first kernel
  bool told_ = false;                     // the gaps before the first kernel have been taken
  Union all_;
  Union kernels_;
  KernelPauses pauses_;
  Union computes_;
  Union copies_;
  Union copies_and_kernels_;
  Union uploads_;
  Union downloads_;
  std::vector<Collective> collectives_;  // in flight
  std::uint64_t collective_block_time_ = 0;
  std::uint64_t kernel_time_ = 0;
  std::array<DeviceTimes::Idle, kIdleCauses> idle_{};
  std::uint64_t own_work_ = 0;
  FetchTimes fetch_idle_{};
  Lead lead_;
  Nanoseconds lead_until_ = 0;  // waits that ended by then are in `lead_`
  IdleShares shares_;
  bool keeps_gaps_ = false;
  std::vector<IdleGap> gaps_;
};

}  // namespace inject
