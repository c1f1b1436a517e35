// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/profiler_overhead.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "libinject/analysis/block_means.h"
#include "libinject/analysis/diagnosis.h"

namespace inject {

namespace {

// Two intervals with 97.5 % confidence each contain both medians with 95 %.
constexpr double kMissProbability = 0.025;

/// How many of `count` values may lie on either side of the interval: the largest number such that, with a
/// probability of at most kMissProbability / 2, fewer than that many values lie below the true median.
std::uint64_t left_out(std::uint64_t count) {
  // P(X = k) of a binomial distribution with p = 1/2, from the middle down, because 2^-count soon underflows
  // a double. The weights are normalised by the sum over both halves.
  const std::uint64_t middle = count / 2;
  const auto below = [](std::uint64_t of, std::uint64_t k) {  // P(k - 1) / P(k)
    return static_cast<double>(k) / static_cast<double>(of - k + 1);
  };
  double weight = 1;
  double all = 0;
  for (std::uint64_t k = middle;; --k) {
    all += weight;
    if (k == 0 || weight < 1e-12) break;
    weight *= below(count, k);
  }
  const bool even = count % 2 == 0;
  all = even ? 2 * all - 1 : 2 * all;
  // Down from the middle again, until the remaining tail is small enough.
  double tail = even ? (all - 1) / 2 + 1 : all / 2;  // P(X <= middle), as a weight
  weight = 1;
  for (std::uint64_t k = middle;; --k) {
    if (tail <= kMissProbability / 2 * all) return k + 1;
    if (k == 0) return 0;
    tail -= weight;
    weight *= below(count, k);
  }
}

}  // namespace

std::optional<MedianInterval> median_interval(const SampleStats& values) {
  const std::uint64_t count = values.count();
  const std::uint64_t out = left_out(count);
  if (out == 0 || 2 * out > count) return std::nullopt;
  // Once values are no longer kept individually, quantiles have an error of their own.
  const double error = values.median_error();
  return MedianInterval{values.median(), static_cast<double>(values.value_at(out - 1)) * (1 - error),
                        static_cast<double>(values.value_at(count - out)) * (1 + error)};
}

namespace {

Moments typical_steps(const SampleStats& steps, double median) {
  return steps.moments_up_to(static_cast<std::uint64_t>(kOtherKind * median));
}

double variance(const Moments& steps) {
  const auto count = static_cast<double>(steps.count);
  const double mean = steps.sum / count;
  return std::max(0.0, steps.squares / count - mean * mean) * count / (count - 1);
}

// Both means have an error. It follows from the larger variance, because rare slow steps may, by chance, be
// all on one side. Once values are no longer kept individually, both sums have the error of their values.
AddedTime added_time(const Moments& outside, double outside_error, const Moments& inside, double inside_error,
                     double inside_sum) {
  const auto without = static_cast<double>(outside.count);
  const auto with = static_cast<double>(inside.count);
  const double mean = outside.sum / without;
  const double square = std::max(variance(outside), variance(inside)) * (1 / without + 1 / with);
  const double error =
      confidence_factor(std::min(outside.count, inside.count) - 1) * std::sqrt(square) + mean * outside_error;
  const double of_inside = inside_error * inside.sum / inside_sum;
  const auto share = [&](double step) { return (inside.sum - with * step) / inside_sum; };
  return {share(mean), share(mean + error) - of_inside, share(mean - error) + of_inside, inside_sum};
}

}  // namespace

std::optional<OverheadEstimate> profiler_overhead(const SampleStats& outside, const SampleStats& inside) {
  const auto without = median_interval(outside);
  const auto with = median_interval(inside);
  if (!without || !with || with->low <= 0) return std::nullopt;
  return OverheadEstimate{1 - without->median / with->median, 1 - without->high / with->low,
                          1 - without->low / with->high, without->median,
                          added_time(typical_steps(outside, without->median), outside.median_error(),
                                     typical_steps(inside, with->median), inside.median_error(),
                                     static_cast<double>(inside.sum()))};
}

namespace {

DeviceTimes shortened(const DeviceTimes& times, double taken) {
  DeviceTimes rest = times;
  const auto idle = [&rest](IdleCause cause) -> std::uint64_t& {
    return rest.idle_by_cause[static_cast<std::size_t>(cause)].time;
  };
  std::uint64_t& compute = idle(IdleCause::kHostCompute);
  const std::uint64_t host =
      idle(IdleCause::kLaunchCall) + idle(IdleCause::kOtherCall) + compute - times.own_work;
  const double from_host = std::min(taken, static_cast<double>(host));
  const double elsewhere = static_cast<double>(times.idle() - host);
  const double from_elsewhere = std::min(taken - from_host, elsewhere);
  const auto shorten = [](std::uint64_t& time, double part, double of) {
    if (of > 0) time -= std::min(time, static_cast<std::uint64_t>(static_cast<double>(time) * part / of));
  };
  std::uint64_t computing = compute - times.own_work;
  shorten(computing, from_host, static_cast<double>(host));
  shorten(rest.own_work, from_elsewhere, elsewhere);
  for (std::size_t i = 0; i < kIdleCauses; ++i) {
    const auto cause = static_cast<IdleCause>(i);
    if (cause == IdleCause::kHostCompute) continue;
    const bool hosts = cause == IdleCause::kLaunchCall || cause == IdleCause::kOtherCall;
    shorten(idle(cause), hosts ? from_host : from_elsewhere, hosts ? static_cast<double>(host) : elsewhere);
  }
  compute = computing + rest.own_work;
  rest.span = rest.kernel_busy + rest.copy_only + rest.idle();
  return rest;
}

/// The same, but taken from the host's own work and waits first.
DeviceTimes shortened_input(const DeviceTimes& times, double taken) {
  DeviceTimes rest = times;
  std::uint64_t& waits = rest.idle_by_cause[static_cast<std::size_t>(IdleCause::kHostWait)].time;
  const auto input = static_cast<double>(times.input_idle());
  const double from_input = std::min(taken, input);
  if (input > 0) {
    const double left = 1 - from_input / input;
    waits = static_cast<std::uint64_t>(static_cast<double>(waits) * left);
    rest.own_work = static_cast<std::uint64_t>(static_cast<double>(rest.own_work) * left);
    rest.idle_by_cause[static_cast<std::size_t>(IdleCause::kHostCompute)].time -=
        times.own_work - rest.own_work;
  }
  return shortened(rest, taken - from_input);
}

double launch_bound_share(const DeviceTimes& times) {
  const Diagnosis diagnosis = diagnose(times, {});
  return diagnosis.share(time_of(diagnosis, Bottleneck::kLaunch));
}

}  // namespace

std::optional<WithoutProfiler> without_profiler(const DeviceTimes& times, const AddedTime& added,
                                                std::size_t devices) {
  if (times.span == 0) return std::nullopt;
  const double steps = std::min(static_cast<double>(times.span), added.steps * static_cast<double>(devices));
  const auto idle = static_cast<double>(times.idle());
  // Steps in windows may be shorter, by chance or because they run ahead of an idle device.
  const double share = std::max(added.share, 0.0);
  if (share * steps > idle || times.idle() == times.span) return std::nullopt;
  // One slow step in the window would pass for overhead.
  if (added.low <= 0 && share * steps > kMuchLonger * static_cast<double>(times.span)) return std::nullopt;
  const DeviceTimes least = shortened(times, std::clamp(added.low, 0.0, share) * steps);
  const DeviceTimes most = shortened(times, std::clamp(added.high * steps, share * steps, idle));
  WithoutProfiler result;
  result.times = shortened(times, share * steps);
  const auto utilization = [](const DeviceTimes& of) {
    return static_cast<double>(of.kernel_busy) / static_cast<double>(of.span);
  };
  // Times are whole nanoseconds: for very short ones, the shares are not in order.
  const auto in_order = [](double low, double value, double high) {
    return CorrectedShare{value, std::min(low, value), std::max(high, value)};
  };
  result.utilization = in_order(utilization(least), utilization(result.times), utilization(most));
  result.launch_bound =
      in_order(launch_bound_share(most), launch_bound_share(result.times), launch_bound_share(least));
  return result;
}

DeviceTimes judged_times(const DeviceTimes& times, const std::optional<OverheadEstimate>& overhead,
                         std::size_t devices) {
  if (!overhead) return times;
  const std::optional<WithoutProfiler> without = without_profiler(times, overhead->added, devices);
  return without ? without->times : times;
}

Diagnosis judge(const DeviceTimes& times, const std::optional<OverheadEstimate>& overhead,
                std::size_t devices, const KernelLimits& limits, int multiprocessors) {
  const DeviceTimes judged = judged_times(times, overhead, devices);
  Diagnosis found = diagnose(judged, limits, multiprocessors);
  const std::uint64_t taken = times.span - judged.span;
  const bool blames_input =
      std::any_of(found.parts.begin(), found.parts.begin() + static_cast<std::ptrdiff_t>(found.leading),
                  [](const BottleneckPart& part) { return part.kind == Bottleneck::kInput; });
  if (!blames_input || static_cast<double>(taken) <= kMuchLonger * static_cast<double>(times.span))
    return found;
  const Diagnosis other =
      diagnose(shortened_input(times, static_cast<double>(taken)), limits, multiprocessors);
  if (other.verdict == found.verdict) return found;
  if (other.leading == 0) {
    found.verdict = Bottleneck::kUndetermined;
    found.leading = 0;
    found.gain.reset();
    return found;
  }
  // What leads in either, each with the larger of its gains.
  std::vector<BottleneckPart> leading;
  for (const Diagnosis& one : {found, other}) {
    for (std::size_t i = 0; i < one.leading; ++i) {
      const BottleneckPart& part = one.parts[i];
      const auto known = std::find_if(leading.begin(), leading.end(), [&part](const BottleneckPart& before) {
        return before.kind == part.kind;
      });
      if (known == leading.end()) {
        leading.push_back(part);
      } else {
        known->time = std::max(known->time, part.time);
        known->gain = std::max(known->gain, part.gain);
      }
    }
  }
  std::stable_sort(leading.begin(), leading.end(), [](const BottleneckPart& one, const BottleneckPart& than) {
    return one.gain > than.gain;
  });
  std::uint64_t gain = 0;
  for (const BottleneckPart& part : leading) {
    gain += part.gain;
    std::erase_if(found.parts, [&part](const BottleneckPart& rest) { return rest.kind == part.kind; });
  }
  found.verdict = Bottleneck::kMixed;
  found.leading = leading.size();
  // Together they save no more than all the time in which nothing computes.
  found.gain =
      std::min(gain, judged.span - judged.compute_busy + judged.taken_by_collectives(multiprocessors));
  found.parts.insert(found.parts.begin(), leading.begin(), leading.end());
  return found;
}

}  // namespace inject
