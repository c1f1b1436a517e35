// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/step_pace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace inject {

namespace {

// Some 1,020 launches fit in a queue of an H200, and a program may have several queues.
constexpr double kMostWaiting = 4096;
constexpr std::size_t kBlocks = 20;

/// Steps [begin, end) of a period without a pause for the profiler.
struct Stretch {
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<Stretch> stretches_of(const std::deque<UnprofiledStep>& steps) {
  std::vector<Stretch> stretches;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool follows = i != 0 && steps[i].begin == steps[i - 1].begin + steps[i - 1].duration;
    if (!follows) stretches.push_back({i, i});
    stretches.back().end = i + 1;
  }
  return stretches;
}

/// How many steps the host must have been ahead of the device at some time, if a step takes `work` there.
double most_ahead(const std::deque<UnprofiledStep>& steps, const Stretch& stretch, double work) {
  double ahead = 0;
  double most = 0;
  for (std::size_t i = stretch.begin; i < stretch.end; ++i) {
    ahead = std::max(0.0, ahead + work - static_cast<double>(steps[i].duration));
    most = std::max(most, ahead);
  }
  return most / work;
}

bool is_long(const UnprofiledStep& step, double least) {
  return static_cast<double>(step.duration) >= least;
}

/// From where the host first waited for the device, if it ran ahead before, to where it last did.
std::vector<Stretch> kept(const std::deque<UnprofiledStep>& steps, std::vector<Stretch> stretches,
                          double paced, double least) {
  for (Stretch& stretch : stretches) {
    std::size_t first = stretch.begin;
    if (first < stretch.end && !is_long(steps[first], least)) {
      while (first < stretch.end && !is_long(steps[first], paced)) ++first;
      ++first;
    }
    while (stretch.end > first && !is_long(steps[stretch.end - 1], least)) --stretch.end;
    stretch.begin = std::min(first, stretch.end);
  }
  return stretches;
}

SampleStats durations_of(const std::deque<UnprofiledStep>& steps, const std::vector<Stretch>& stretches) {
  SampleStats durations;
  for (const Stretch& stretch : stretches) {
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) durations.add(steps[i].duration);
  }
  return durations;
}

}  // namespace

StepPace::StepPace(const std::deque<UnprofiledStep>& steps, const DeviceLoad& load) {
  for (const UnprofiledStep& step : steps) steps_.push_back({&step, false, std::nullopt});
  const std::vector<Stretch> all = stretches_of(steps);
  double least = load.least_step;
  // If this is more than fits in queues, the estimate is wrong: the device needs less time.
  if (std::any_of(all.begin(), all.end(), [&](const Stretch& stretch) {
        return least > 0 &&
               most_ahead(steps, stretch, load.work) * std::max(1.0, load.launches) > kMostWaiting;
      }))
    least = 0;  // and no step is too short

  std::vector<Stretch> stretches = kept(steps, all, load.paced_step, least);
  SampleStats durations = durations_of(steps, stretches);
  std::size_t block = 1;
  double wait = least;
  if (durations.count() != 0 && durations.median() < least) {
    // Most steps run ahead, and are compensated by those in which the host waits for the device.
    wait = std::max(least, static_cast<double>(durations.max()) / 2);
    stretches = kept(steps, all, wait, wait);
    durations = durations_of(steps, stretches);
    block = std::max<std::size_t>(2, (durations.count() + kBlocks - 1) / kBlocks);
  }
  plain_ = block == 1 && durations.count() == steps.size();
  // The mean can't be less than the device's time either.
  if (durations.count() == 0 || durations.mean() < least) return;
  for (const Stretch& stretch : stretches) {
    double sum = 0;
    std::size_t count = 0;
    for (std::size_t i = stretch.begin; i < stretch.end; ++i) {
      steps_[i].counts = true;
      sum += static_cast<double>(steps[i].duration);
      ++count;
      if (count < block || (block > 1 && !is_long(steps[i], wait))) continue;
      steps_[i].time = std::floor(sum / static_cast<double>(count) + 0.5);
      sum = 0;
      count = 0;
    }
    // Too few for their own block.
    for (std::size_t i = stretch.end - count; i < stretch.end; ++i) steps_[i].counts = false;
  }
}

SampleStats StepPace::times() const {
  SampleStats times;
  for (const Step& step : steps_) {
    if (step.time) times.add(static_cast<std::uint64_t>(*step.time));
  }
  return times;
}

}  // namespace inject
