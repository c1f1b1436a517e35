// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/power.h"

#include <time.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace inject::sim::power {

namespace {

struct Use {
  std::vector<OpRef> kernels;  // that are not all in `busy`
  Nanoseconds until = 0;       // what `busy` covers
  Nanoseconds busy = 0;        // in which a kernel ran
  std::uint64_t resets = 0;
  double forgotten = 0;  // mJ, before the latest reset
};

// Leaked: see base.cpp.
struct State {
  std::mutex mutex;
  std::map<int, Use> devices;
};

State& state() {
  static State& instance = *new State;
  return instance;
}

void advance(Use& use, Nanoseconds until) {
  std::vector<std::pair<Nanoseconds, Nanoseconds>> spans;
  for (const OpRef& kernel : use.kernels) {
    const Nanoseconds start = kernel->start.load();
    if (start != kUnknown && start < until) spans.emplace_back(start, kernel->end.load());
  }
  std::sort(spans.begin(), spans.end());
  Nanoseconds reached = use.until;
  for (const auto& [start, end] : spans) {
    const Nanoseconds from = std::max(start, reached);
    const Nanoseconds to = std::min(end, until);
    if (to <= from) continue;
    use.busy += to - from;
    reached = to;
  }
  use.until = until;
  std::erase_if(use.kernels, [until](const OpRef& kernel) { return kernel->ended_by(until); });
}

Nanoseconds processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * 1'000'000'000 + static_cast<Nanoseconds>(time.tv_nsec);
}

}  // namespace

bool simulated() {
  return settings().power.step != 0;
}

void note_kernel(int device, const OpRef& op) {
  if (!simulated()) return;
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  shared.devices[device].kernels.push_back(op);
}

std::uint64_t counter(int device) {
  const PowerSettings& power = settings().power;
  for (const Nanoseconds until = processor_time() + power.energy_cost; processor_time() < until;) {
  }
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  Use& use = shared.devices[device];
  const Nanoseconds step = now_ns() / power.step * power.step;
  if (step > use.until) advance(use, step);
  const double all =
      (static_cast<double>(use.until) * static_cast<double>(power.idle) +
       static_cast<double>(use.busy) * (static_cast<double>(power.busy) - static_cast<double>(power.idle))) *
      1e-9;
  if (const std::uint64_t resets = faults().energy_resets; resets != use.resets) {
    use.resets = resets;
    use.forgotten = all;
  }
  return static_cast<std::uint64_t>(all - use.forgotten);
}

std::uint64_t present(int device) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  const Nanoseconds now = now_ns();
  const std::vector<OpRef>& kernels = shared.devices[device].kernels;
  const bool busy = std::any_of(kernels.begin(), kernels.end(), [now](const OpRef& kernel) {
    return kernel->started_by(now) && !kernel->ended_by(now);
  });
  return busy ? settings().power.busy : settings().power.idle;
}

}  // namespace inject::sim::power
