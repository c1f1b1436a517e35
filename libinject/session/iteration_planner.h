// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>

#include "libinject/base/time.h"
#include "libinject/config/window_spec.h"
#include "libinject/session/iteration_tracker.h"
#include "libinject/session/schedule.h"

namespace inject {

/// The next window, in numbers of iterations.
struct IterationPlan {
  enum class Result : std::uint8_t {
    kNotYet,  ///< what was found is not trusted enough yet
    kNoMore,  ///< no window is left
    kPlanned,
  };
  Result result = Result::kNotYet;
  std::uint64_t begin = 0;
  std::uint64_t length = 0;
  std::uint64_t lead = 0;                  ///< CUPTI is attached this many iterations earlier
  std::optional<std::uint64_t> asked_for;  ///< the window was to begin here, which is over

  std::uint64_t end() const { return begin + length; }
  std::uint64_t lead_at() const { return begin > lead ? begin - lead : 0; }
};

/// The input of a plan.
struct IterationPlanInput {
  std::uint64_t soonest = 0;  ///< the first iteration that has not begun
  Nanoseconds time = 0;       ///< now
  Nanoseconds attaching = 0;  ///< what sampling hardware metrics adds to the time that attaching CUPTI takes
  bool first = true;          ///< no window has opened at an iteration yet
};

/// Plans the iteration before which the next window opens; moves `schedule` on to it.
IterationPlan plan_iterations(const WindowSpec& spec, Schedule& schedule, const FoundIterations& known,
                              const IterationPlanInput& input);

}  // namespace inject
