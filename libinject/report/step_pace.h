// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "libinject/analysis/sample_stats.h"
#include "libinject/stats/device_pace.h"
#include "libinject/stats/iterations.h"

namespace inject {

/// What steps show about the program's pace. While the host runs ahead of the device, a step takes as long as
/// launching it does: such steps don't count, or are averaged with the one that waits for the device
/// (docs/iterations.md#where-the-host-runs-ahead).
class StepPace {
 public:
  struct Step {
    const UnprofiledStep* step = nullptr;
    bool counts = false;
    /// The step's time; for averaged steps it is the mean, stored in the last of them.
    std::optional<double> time;
  };

  /// `steps`: in order; must outlive this. If nothing is known about the device's pace, all steps count
  /// unchanged.
  StepPace(const std::deque<UnprofiledStep>& steps, const DeviceLoad& load);

  /// In the same order.
  const std::vector<Step>& steps() const { return steps_; }
  /// True if all steps count, each by itself.
  bool plain() const { return plain_; }
  SampleStats times() const;

 private:
  std::vector<Step> steps_;
  bool plain_ = true;
};

}  // namespace inject
