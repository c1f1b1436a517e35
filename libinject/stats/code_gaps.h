// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libinject/analysis/idle_time.h"
#include "libinject/analysis/place_join.h"

namespace inject {

/// Where a gap is counted.
struct GapPlace {
  enum class Kind : std::uint8_t {
    kUnknown,
    kDevice,  ///< not caused by the host
    kLaunch,  ///< `number` is the place of a launch or wait
    kStack,   ///< `number` is the node of a sampled stack
  };
  Kind kind = Kind::kUnknown;
  std::uint32_t number = 0;
  IdleCause cause = IdleCause::kUnknown;
  bool own_work = false;  ///< IdleGap::own_work

  auto operator<=>(const GapPlace&) const = default;
};

struct GapTimes {
  std::uint64_t gaps = 0;
  std::uint64_t time = 0;
};

/// A kernel, copy or memset as it was launched.
struct CodeLaunch {
  Nanoseconds time = 0;
  Nanoseconds end = 0;  ///< when the call returned; used only for named launches, like `place`, `device` and
                        ///< the flags
  std::uint32_t thread = 0;
  std::uint32_t place = 0;
  std::uint32_t device = 0;
  bool is_copy = false;  ///< not a memset
  bool waits = false;    ///< a copy to the host so small that it serves as a synchronization
};

/// The devices' idle time in windows by the line of Python that they waited for (docs/code.md). Memory is
/// bounded: what does not fit is counted as unknown. One thread at a time; may throw std::bad_alloc.
class CodeGaps {
 public:
  static constexpr std::size_t kMaxHeld = std::size_t{1} << 19;
  static constexpr std::size_t kMaxSamples = std::size_t{1} << 16;
  static constexpr std::size_t kMaxWaits = std::size_t{1} << 16;

  void gap(std::uint32_t window, const IdleGap& gap);

  // The following come from the iterations whose launches are named.
  /// A call that waited for the device; `place` is 0 if unknown.
  void wait(std::uint32_t thread, Nanoseconds begin, Nanoseconds end, std::uint32_t place);
  /// A sample of a thread's Python stack.
  void sample(std::uint32_t thread, Nanoseconds time, std::uint32_t stack);
  /// All named launches in order of time, and first_alike() of them. `window`: the one before them; `end`:
  /// where the next iteration begins, if they were recorded up to their end.
  void named(std::span<const CodeLaunch> launches, std::span<const std::uint32_t> alike, std::uint32_t window,
             std::optional<Nanoseconds> end);

  /// Nothing more will come for `window`. `joined` has the places of `launches`, which were made in it.
  void settle(std::uint32_t window, std::span<const CodeLaunch> launches,
              std::span<const JoinedPlace> joined);

  const std::map<GapPlace, GapTimes>& sums() const { return sums_; }

 private:
  struct Sample {
    Nanoseconds time;
    std::uint32_t thread;
    std::uint32_t stack;
  };
  struct Wait {
    Nanoseconds begin;
    Nanoseconds end;
    std::uint32_t thread;
    std::uint32_t place;
  };
  /// What the host did before a launch, summed over all launches that are alike.
  struct Before {
    PlaceVote waited;      ///< place of the last wait of the launching thread
    PlaceVote any_waited;  ///< place of the last wait to end, over all threads
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> samples;  ///< by thread and stack
  };

  void note_waits(const std::vector<std::uint32_t>& order);
  void note_samples(const std::vector<std::uint32_t>& order, std::optional<Nanoseconds> end);
  const CodeLaunch* first_named(std::uint32_t device) const;
  void count(const GapPlace& place, std::uint64_t gaps, std::uint64_t time);
  void attribute(const IdleGap& gap, std::uint32_t place, const CodeLaunch* named, std::uint32_t call_place);
  bool split(const IdleGap& gap, const Before& before);

  std::map<std::uint32_t, std::vector<IdleGap>> held_;  // by window
  std::vector<Wait> waits_;
  bool lost_waits_ = false;
  std::vector<Sample> samples_;
  std::set<std::uint32_t> sampled_;  // threads
  std::vector<CodeLaunch> named_;
  std::vector<std::uint32_t> alike_;
  std::unordered_map<std::uint32_t, Before> before_;  // by the first of the launches that are alike
  std::uint32_t named_window_ = 0;
  std::map<GapPlace, GapTimes> sums_;
};

}  // namespace inject
