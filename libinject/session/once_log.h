// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>

namespace inject {

/// Messages that are logged once per run, however often they occur. From any thread.
class OnceLog {
 public:
  enum class Topic : std::uint8_t {
    kNoMemory,
    kNoThread,
    kSamplerStuck,
    kStaysInitialised,
    kGraphsKeepCupti,
    kThreadInCupti,
    kCuptiFailed,
    kNothingFound,
    kLateWindow,
    kStuck,
    kFolder,
    kSlowFolder,
    kMixedIterations,
    kThreadsUnknown,
  };

  /// True the first time.
  bool first(Topic topic) noexcept {
    return (said_.fetch_or(bit(topic), std::memory_order_relaxed) & bit(topic)) == 0;
  }
  bool said(Topic topic) const noexcept { return (said_.load(std::memory_order_relaxed) & bit(topic)) != 0; }

  /// Logs one out-of-memory error for all topics: once memory has run out, many allocations will fail.
  void no_memory_for(const char* lost) noexcept;

 private:
  static constexpr std::uint32_t bit(Topic topic) noexcept {
    return std::uint32_t{1} << static_cast<unsigned>(topic);
  }
  std::atomic<std::uint32_t> said_{0};
};

}  // namespace inject
