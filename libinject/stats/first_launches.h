// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

namespace inject {

/// The first launch of each unsettled window. A program that brackets every iteration may open windows for
/// days before one is settled, so only the latest are kept: a record without a launch is only looked up in
/// recent ones.
class FirstLaunches {
 public:
  static constexpr std::size_t kMaxWindows = 4096;

  void add(std::uint32_t window, std::uint16_t generation, std::uint32_t correlation) {
    const auto [first, fresh] = launches_.try_emplace(window, Launch{generation, correlation});
    if (!fresh && first->second.generation == generation) {
      first->second.correlation = std::min(first->second.correlation, correlation);
    }
    limit();
  }
  /// Launches of the window were lost, and may have come before all that are known.
  void lost(std::uint32_t window) {
    launches_[window].correlation = 0;
    limit();
  }
  /// Whether a launch with this id is known to precede all of the window's launches. Ids ascend within a
  /// generation.
  bool is_older(std::uint32_t window, std::uint16_t generation, std::uint32_t correlation) const {
    const auto first = launches_.find(window);
    return first != launches_.end() && first->second.generation == generation &&
           correlation < first->second.correlation;
  }
  /// Windows up to `last` will not be queried any more.
  void settled(std::uint32_t last) { launches_.erase(launches_.begin(), launches_.upper_bound(last)); }
  void clear() { launches_.clear(); }
  std::size_t windows() const { return launches_.size(); }

 private:
  struct Launch {
    std::uint16_t generation = 0;
    std::uint32_t correlation = 0;
  };
  void limit() {
    if (launches_.size() > kMaxWindows) launches_.erase(launches_.begin());
  }

  std::map<std::uint32_t, Launch> launches_;
};

}  // namespace inject
