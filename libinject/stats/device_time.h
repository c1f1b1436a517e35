// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "libinject/analysis/device_times.h"
#include "libinject/analysis/idle_time.h"
#include "libinject/model/records.h"

namespace inject {

enum class TimedWorkKind : std::uint8_t { kKernel, kCollective, kUpload, kDownload, kOtherCopy, kMemset };

/// A kernel, copy or memset and the call that submitted it.
struct TimedWork {
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  Nanoseconds launch_begin = 0;
  Nanoseconds launch_end = 0;
  std::uint32_t thread = 0;
  std::uint64_t stream = 0;  ///< with its context: ids of streams are unique in one
  FunctionId function = kNoFunction;
  TimedWorkKind kind = TimedWorkKind::kKernel;
  bool launch_known = false;
  std::uint32_t blocks = 0;  ///< of a collective's grid
  bool copy_call = false;    ///< the call is one that copies, which graphs' launches and libraries' are not
};

/// Idle time that one call, or one thread outside of calls, is the cause of.
struct IdleShare {
  IdleCause cause = IdleCause::kUnknown;
  FunctionId function = kNoFunction;
  std::uint32_t thread = 0;  ///< 0: none
  bool own_work = false;     ///< host compute that is not the way to a launch
  std::uint64_t gaps = 0;
  std::uint64_t time = 0;
};

struct DeviceTimeRow {
  std::uint32_t window = 0;
  std::uint32_t device = 0;
  DeviceTimes times;
  std::vector<IdleShare> shares;  ///< by descending time, the largest kMaxShares
};

/// Tells, for each window and device, when it worked and why it did not. Exact in whatever order records
/// come, up to `most_held` of them in windows that are not settled; then the older half of the fullest
/// window's work is judged by what has come, and what comes later for that time is left out and counted. One
/// thread at a time; may throw std::bad_alloc.
class DeviceTimeStatistics {
 public:
  static constexpr std::size_t kMaxHeld = 262'144;
  static constexpr std::size_t kMaxRows = 10'000;
  static constexpr std::size_t kMaxUnsettled = 4096;  // windows
  static constexpr std::size_t kMaxShares = 24;

  explicit DeviceTimeStatistics(std::size_t most_held = kMaxHeld) : most_held_(most_held) {}

  void work(std::uint32_t window, std::uint32_t device, const TimedWork& work);
  /// Outermost calls, those of a thread in order.
  void call(std::uint32_t window, std::uint32_t thread, const HostCall& call);
  void reading(std::uint32_t window, std::uint32_t thread, const ProcessorReading& reading);
  /// A copy to the host, of so little that its call was made for the sake of waiting.
  void small_download(std::uint32_t window, std::uint32_t thread, Nanoseconds call_begin);
  /// Nothing more comes for this window, nor for any before it: what is held of those is given up. Once a
  /// window; a second time does nothing.
  void settle_window(std::uint32_t window, Nanoseconds begin, Nanoseconds end);

  /// Of the settled windows, in their order; of the first kMaxRows, as the table of windows has them.
  const std::vector<DeviceTimeRow>& rows() const { return rows_; }
  /// The row of a window and device; null if there is none.
  const DeviceTimeRow* row(std::uint32_t window, std::uint32_t device) const;
  /// By device, of all settled windows together; `window` means nothing.
  std::vector<DeviceTimeRow> totals() const;
  /// The latest window that is settled, 0 if none is.
  std::uint32_t settled_through() const { return settled_through_; }
  /// Records that came too late to be judged, or had to make room.
  std::uint64_t left_out() const { return left_out_; }
  /// Records that take memory.
  std::size_t held() const { return held_; }

 private:
  /// Length of a union of intervals that come by ascending begin.
  struct Union {
    Nanoseconds end = 0;
    std::uint64_t time = 0;
    void add(Nanoseconds begin, Nanoseconds until);
  };
  struct Share {
    std::uint64_t gaps = 0;
    std::uint64_t time = 0;
  };
  using ShareKey = std::tuple<IdleCause, FunctionId, std::uint32_t, bool>;
  using Shares = std::map<ShareKey, Share>;
  /// A device in a window.
  struct Timeline {
    std::vector<TimedWork> pending;
    Nanoseconds judged_until = 0;
    Nanoseconds first = 0;
    std::uint64_t started = 0;         // pieces of work that are judged …
    std::uint64_t started_before = 0;  // … before those that are being judged
    TimedWork last;                    // of what ended last
    TimedWork last_launch;             // of what was launched last
    bool any = false;
    bool any_launch = false;
    Union all;
    Union kernels;
    Union computes;
    Union copies;
    Union copies_and_kernels;
    Union uploads;
    Union downloads;
    struct Collective {
      Nanoseconds end = 0;
      std::uint64_t blocks = 0;
    };
    std::vector<Collective> collectives;  // under way
    std::uint64_t collective_block_time = 0;
    std::uint64_t kernel_time = 0;
    std::array<DeviceTimes::Idle, kIdleCauses> idle{};
    std::uint64_t own_work = 0;
    Lead lead;
    Nanoseconds lead_until = 0;  // waits that were over by then are in `lead`
    Shares shares;
  };
  struct Window {
    std::map<std::uint32_t, Timeline> devices;
    std::map<std::uint32_t, HostThread> threads;
    std::size_t held = 0;
  };
  struct Total {
    DeviceTimes times;
    Shares shares;
  };

  Window* window(std::uint32_t number);
  void hold(Window& window);
  void bound();
  void forget_calls(Window& window, Nanoseconds needed);
  void recount(Window& window);
  static void judge(Window& window, Timeline& timeline, Nanoseconds until);
  static void compute(Timeline& timeline, const TimedWork& kernel);
  static void collective(Timeline& timeline, const TimedWork& kernel);
  static void gap(Window& window, Timeline& timeline, Nanoseconds begin, const TimedWork& next,
                  const TimedWork* launched_before, std::span<const TimedWork> work);
  static void add_waits(const Window& window, Timeline& timeline, Nanoseconds until,
                        std::span<const TimedWork> work);
  static void blame(Timeline& timeline, std::uint64_t time, const IdleShare& share);
  static void add_share(Shares& shares, const ShareKey& key, const Share& share);
  static std::vector<IdleShare> largest(const Shares& shares);

  std::size_t most_held_;
  std::map<std::uint32_t, Window> windows_;
  std::uint32_t last_number_ = 0;
  Window* last_window_ = nullptr;
  std::vector<DeviceTimeRow> rows_;
  std::map<std::uint32_t, Total> totals_;
  std::size_t held_ = 0;
  std::uint64_t left_out_ = 0;
  std::uint32_t settled_through_ = 0;
};

}  // namespace inject
