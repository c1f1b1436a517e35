// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>

#include "libinject/report/call_report.h"
#include "libinject/report/device_specs.h"
#include "libinject/stats/family_table.h"

namespace inject {

namespace {

// The minimum number of steps for a step time.
constexpr std::uint64_t kFewestUnprofiled = 7;
// Without iterations, a window's work may end this much later than the window, as a share of its duration.
constexpr std::uint64_t kShortTail = 10;
// By how much the FLOPs of iterations may differ that compute the same, and the mean of their times from the
// median, as a share.
constexpr double kAlikeFlops = 0.02;
constexpr double kAlikeTimes = 0.05;

std::optional<double> share_of(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

/// The number of rows of devices on which kernels ran: a copy to another device computes nothing.
template <typename Row>
std::size_t computing(const std::vector<Row>& devices) {
  return static_cast<std::size_t>(
      std::ranges::count_if(devices, [](const Row& row) { return row.work.kernels.count != 0; }));
}

/// `duration`: 0 if unknown; `devices`: those known to have run kernels in that time.
FlopRate host_flop_rate(const FlopCount& flops, double duration, std::size_t devices, const RunInfo& run) {
  return flop_rate(flops, duration, specs_of(run, 0), devices != 0 ? devices : run.devices.size());
}

std::uint64_t duration_of(const WindowInfo* window) {
  return window == nullptr || window->end == 0 ? 0 : window->end - window->start;
}

/// Values of metrics in windows: means over the samples, and the utilizations to which the kernels' own
/// figures add up.
class WindowMetricValues {
 public:
  explicit WindowMetricValues(const Statistics& statistics)
      : metrics_(statistics.metrics().metrics().size()), windows_(statistics.metrics().windows()) {}

  /// Fills in a window for these devices together. `duration`: the window's, 0 if unknown. `whole`: no record
  /// of its device work is missing.
  void fill(WindowReport& report, std::span<const WindowDeviceRow> devices, std::uint64_t duration,
            bool whole) const {
    std::vector<WeightedMean> means(metrics_);
    std::vector<WeightedMean> utilizations(metrics_);
    std::vector<bool> unknown(metrics_, duration == 0 || !whole);
    for (const WindowDeviceRow& device : devices) {
      const auto found =
          std::lower_bound(windows_.begin(), windows_.end(), std::pair(report.window, device.device),
                           [](const WindowMetrics& entry, const auto& key) {
                             return std::pair(entry.window, entry.device) < key;
                           });
      // A device that was not sampled does not count in the means.
      if (found == windows_.end() || found->window != report.window || found->device != device.device)
        continue;
      // Nor do kernels from before the first sample count; if too few are left, nothing can be said about the
      // total.
      const bool known = static_cast<double>(found->kernel_time) >=
                         KernelMetrics::kMinKnown * static_cast<double>(device.work.kernels.sum);
      for (std::size_t m = 0; m < metrics_; ++m) {
        means[m].add(found->means[m]);
        utilizations[m].weight += static_cast<double>(device.time(duration));
        utilizations[m].sum += found->kernel_sums[m].value_or(0);
        unknown[m] = unknown[m] || !found->kernel_sums[m] || !known;
      }
    }
    for (const WeightedMean& mean : means) report.metrics.push_back(mean.value());
    for (std::size_t m = 0; m < metrics_; ++m)
      report.utilizations.push_back(unknown[m] ? std::nullopt : utilizations[m].value());
  }

 private:
  std::size_t metrics_;
  std::vector<WindowMetrics> windows_;
};

/// `durations`: of steps on the host.
bool ran_ahead(const SampleStats& durations, const DevicePace& pace) {
  return durations.count() != 0 && durations.median() < pace.load().least_step;
}

bool lost_device_work(const WindowInfo* window) {
  return window != nullptr && window->losses.device_work();
}

class WindowReports {
 public:
  WindowReports(const Statistics& statistics, const RunInfo& run, Report& report)
      : statistics_(statistics), run_(run), report_(report), metrics_(statistics) {
    for (const IterationRow& row : report.iteration_rows) {
      rows_[row.window].push_back(row);
      if (row.label == IterationLabel::kIteration)
        units_[row.window].add(units_of(run, row), row.end - row.begin, row.devices);
    }
  }

  /// Builds the windows; returns the pace of those in which it is not the host's.
  std::map<std::uint32_t, Pace> build() {
    for (const WindowInfo& info : run_.windows) windows_[info.number].info = &info;
    for (const WindowHostRow& entry : statistics_.window_hosts()) {
      windows_[entry.window].host = entry.work;
      windows_[entry.window].known = true;
    }
    for (const WindowDeviceRow& entry : statistics_.window_devices()) {
      windows_[entry.window].devices.push_back(entry);
      windows_[entry.window].known = true;
    }
    // Windows after the last one that has rows are in the row of others: they get no rows of zeros.
    const bool full = windows_.count(kOtherIndex) != 0;
    std::uint32_t last = 0;
    for (const auto& [number, window] : windows_) {
      if (window.known && number != kOtherIndex) last = number;
    }
    for (const auto& [number, window] : windows_) {
      if (full && number > last && number != kOtherIndex) continue;
      add(number, window);
    }
    return std::move(paces_);
  }
  /// Times of the complete iterations of all windows, by each window's pace; after build().
  const SampleStats& step_times() const { return step_times_; }

 private:
  struct Window {
    bool known = false;  // has rows in the statistics
    const WindowInfo* info = nullptr;
    HostWork host;
    std::vector<WindowDeviceRow> devices;
  };

  /// What all rows of the window share.
  WindowReport report_of(std::uint32_t number, const Window& window) const {
    WindowReport report;
    report.window = number;
    report.info = window.info;
    return report;
  }

  DeviceTimeReport times_report(const DeviceTimes& times, const KernelLimits& limits, int multiprocessors,
                                const std::optional<OverheadEstimate>& overhead, std::size_t devices) const {
    DeviceTimeReport report;
    report.times = times;
    report.taken_by_collectives = times.taken_by_collectives(multiprocessors);
    report.diagnosis = judge(times, overhead, devices, limits, multiprocessors);
    report.utilization = share_of(times.kernel_busy, times.span);
    report.overhead = overhead;
    report.launch_bound = share_of(time_of(diagnose(times, limits), Bottleneck::kLaunch), times.span);
    if (overhead) report.without_profiler = without_profiler(times, overhead->added, devices);
    if (statistics_.fetches().any() || total(times.fetch_idle) != 0) report.fetch_idle = times.fetch_idle;
    return report;
  }

  static Pace pace_of(const Window& window, const SampleStats* durations, const DevicePace& pace) {
    if (durations != nullptr && ran_ahead(*durations, pace)) return Pace::kDevice;
    // If device work is missing, there may be no evidence that the host ran ahead.
    if (lost_device_work(window.info) && pace.times().count() == 0) return Pace::kUnknown;
    return Pace::kHost;
  }

  /// Without iterations: whether the host submitted more than the device could do meanwhile.
  static bool outlasts(const Window& window, Nanoseconds last) {
    if (window.info == nullptr || window.info->end == 0) return false;
    return last > window.info->end + duration_of(window.info) / kShortTail;
  }

  void add(std::uint32_t number, const Window& window) {
    const std::uint64_t duration = duration_of(window.info);
    const SampleStats* const durations = statistics_.iterations().window_step_times(number);
    const DevicePace device_pace(rows_[number], statistics_.device_times());
    const Pace pace = pace_of(window, durations, device_pace);
    if (pace != Pace::kHost) paces_[number] = pace;
    const SampleStats* steps = pace == Pace::kHost ? durations : nullptr;
    if (pace == Pace::kDevice && device_pace.times().count() != 0) steps = &device_pace.times();
    if (steps != nullptr) step_times_.merge(*steps);
    const std::optional<OverheadEstimate> overhead =
        steps != nullptr ? profiler_overhead(report_.steps.unprofiled, *steps) : std::nullopt;
    // Work without a record would count as idle time.
    const bool traced = window.info == nullptr || window.info->untraced.empty();
    const bool whole = traced && !lost_device_work(window.info);
    WindowReport& all = report_.windows.emplace_back(report_of(number, window));
    DeviceWork work;
    std::uint64_t busy = 0;
    std::uint64_t device_time = 0;
    Nanoseconds first = 0;
    Nanoseconds last = 0;
    DeviceTimes times;
    std::size_t timed_devices = 0;
    KernelLimits limits;
    for (const WindowDeviceRow& device : window.devices) {
      work.merge(device.work);
      busy += device.busy;
      first = &device == window.devices.data() ? device.first : std::min(first, device.first);
      last = std::max(last, device.last);
      if (duration != 0) device_time += device.time(duration);
      if (device.times == nullptr) continue;
      times.merge(device.times->times);
      ++timed_devices;
      limits.merge(report_.limits_of(device.device));
    }
    if (traced) all.work = work;
    if (whole) {
      all.busy = busy;
      all.span = last - first;
      all.busy_share = share_of(busy, device_time);
    }
    // While the host runs ahead, the device also does a window's work after its end.
    const bool in_time = durations != nullptr ? pace == Pace::kHost : whole && !outlasts(window, last);
    all.host = host_of(number, window, in_time ? duration : 0);
    all.host->pace = pace;
    if (durations != nullptr) all.host->iterations = durations->count();
    if (steps != nullptr) {
      all.host->step_time = steps->median();
      all.host->samples_per_second = samples_per_second(run_.batch, steps->median());
    }
    if (times.span != 0)
      all.times = times_report(times, limits, specs_of(run_, 0).multiprocessors, overhead, timed_devices);
    metrics_.fill(all, window.devices, duration, whole);
    for (const WindowDeviceRow& device : window.devices) {
      if (device.device == kOtherIndex) continue;
      WindowReport& report = report_.windows.emplace_back(report_of(number, window));
      report.device = device.device;
      if (traced) report.work = device.work;
      if (whole) {
        report.busy = device.busy;
        report.span = device.last - device.first;
        report.busy_share = share_of(device.busy, duration == 0 ? 0 : device.time(duration));
      }
      if (device.times != nullptr)
        report.times = times_report(device.times->times, report_.limits_of(device.device),
                                    specs_of(run_, device.device).multiprocessors, overhead, 1);
      if (window.info != nullptr) {
        for (const WindowMemory& memory : window.info->memory) {
          if (memory.device == device.device) report.memory = &memory;
        }
      }
      metrics_.fill(report, {&device, 1}, duration, whole);
    }
  }

  WindowReport::Host host_of(std::uint32_t number, const Window& window, std::uint64_t duration) const {
    WindowReport::Host host;
    host.work = window.host;
    if (number != kOtherIndex) host.iterations = 0;
    if (const auto units = units_.find(number); units != units_.end()) host.units = units->second;
    if (!window.host.lost)
      host.flops =
          host_flop_rate(window.host.flops, static_cast<double>(duration), computing(window.devices), run_);
    host.fetches = statistics_.fetches().of_window(number);
    if (window.info != nullptr) host.losses = window.info->losses;
    return host;
  }

  const Statistics& statistics_;
  const RunInfo& run_;
  Report& report_;
  WindowMetricValues metrics_;
  std::map<std::uint32_t, Window> windows_;
  // By window:
  std::map<std::uint32_t, WorkUnits> units_;
  std::map<std::uint32_t, std::vector<IterationRow>> rows_;
  std::map<std::uint32_t, Pace> paces_;
  SampleStats step_times_;
};

MetricValues iteration_metrics(const Statistics& statistics, const IterationRow& iteration,
                               std::span<const IterationDeviceRow> devices) {
  std::vector<WeightedMean> means(statistics.metrics().metrics().size());
  if (iteration.kind == IterationRow::Kind::kPhase) {
    for (const IterationDeviceRow& device : devices) {
      const std::span<const WeightedMean> more = statistics.iteration_metrics(iteration, device.device);
      for (std::size_t m = 0; m < std::min(means.size(), more.size()); ++m) means[m].add(more[m]);
    }
  }
  MetricValues values;
  for (const WeightedMean& mean : means) values.push_back(mean.value());
  return values;
}

/// Of the window of an iteration.
struct WindowFacts {
  Pace pace = Pace::kHost;
  bool traced = true;      // device activity was recorded
  bool flops_lost = true;  // work of captured or unknown calls may have no record
};

/// `next`: the next row, null if there is none.
void add_iteration(Report& report, const IterationRow& row, const IterationRow* next,
                   const WindowFacts& window) {
  const bool phase = row.kind == IterationRow::Kind::kPhase;
  const std::uint64_t duration = phase && row.end != 0 ? row.end - row.begin : 0;
  IterationReport all;
  all.row = &row;
  if (phase && row.end != 0) all.duration = duration;
  all.pace = window.pace;
  if (row.complete && row.label == IterationLabel::kIteration) {
    if (window.pace == Pace::kHost) all.step_time = all.duration;
    if (window.pace == Pace::kDevice)
      all.step_time = DevicePace::time_of(row, next, report.statistics->device_times());
  }
  if (all.step_time) all.samples_per_second = samples_per_second(report.run->batch, *all.step_time);
  IterationReport each = all;
  std::uint64_t device_time = 0;
  std::uint64_t busy = 0;
  std::uint64_t kernel_busy = 0;
  DeviceWork work;
  bool overlapped = false;
  for (const IterationDeviceRow& device : row.devices) {
    work.merge(device.work);
    busy += device.busy;
    kernel_busy += device.kernel_busy;
    if (all.duration) device_time += device.time(duration);
    overlapped = overlapped || device.overlapped;
  }
  all.units.add(units_of(*report.run, row), duration, row.devices);
  if (!row.lost || !window.flops_lost)
    all.flops = host_flop_rate(
        row.flops, window.pace == Pace::kHost ? static_cast<double>(duration) : all.step_time.value_or(0),
        computing(row.devices), *report.run);
  all.fetches = report.statistics->fetches().of(row);
  // Work without a record would count as idle time.
  const bool known = window.traced && !row.lost;
  if (window.traced) all.work = work;
  if (known) {
    all.busy = busy;
    all.kernel_busy = kernel_busy;
  }
  const bool next_known = known && (next == nullptr || next->window != row.window || !next->lost);
  if (next_known) {
    all.gap = row.gap;
    all.utilization = share_of(kernel_busy, overlapped ? 0 : device_time);
  }
  all.metrics = iteration_metrics(*report.statistics, row, row.devices);
  report.iterations.push_back(std::move(all));
  for (const IterationDeviceRow& device : row.devices) {
    IterationReport& entry = report.iterations.emplace_back(each);
    entry.device = device.device;
    if (window.traced) entry.work = device.work;
    if (known) {
      entry.busy = device.busy;
      entry.kernel_busy = device.kernel_busy;
    }
    if (next_known) {
      entry.gap = device.gap;
      entry.utilization =
          share_of(device.kernel_busy, each.duration && !device.overlapped ? device.time(duration) : 0);
    }
    entry.metrics = iteration_metrics(*report.statistics, row, {&device, 1});
  }
}

/// The mean of the step times without CUPTI, if the iterations whose FLOPs are known, which are others, may
/// stand for them; otherwise empty. If all FLOPs are alike, and the mean is that of a typical step, neither
/// depends on which of several kinds of iterations are how frequent.
std::optional<double> comparable_step_time(const StepReport& steps, double least_flops, double most_flops) {
  if (!steps.time || most_flops > (1 + kAlikeFlops) * least_flops) return std::nullopt;
  const double mean = steps.unprofiled.mean();
  const double median = steps.time->median;
  if (std::abs(mean - median) > kAlikeTimes * median) return std::nullopt;
  return mean;
}

/// The model's share of the peaks, in the complete iterations. If operators count, in those whose operators
/// are known.
std::optional<ModelFlops> model_flops(const Report& report) {
  const CodeTimes& times = report.statistics->code_times();
  const DeviceSpecs device = specs_of(*report.run, 0);
  double flops = 0;
  double fewest = 0;
  double most = 0;
  std::size_t count = 0;
  double all_least = 0;    // ns at the peaks
  double all_devices = 0;  // that ran kernels, added up
  // The same, of the iterations whose time is known:
  double least = 0;
  double devices = 0;
  double time = 0;  // ns, added up over these devices
  bool peaks_known = true;
  for (const IterationReport& iteration : report.iterations) {
    const IterationRow& row = *iteration.row;
    if (iteration.device || !row.complete || row.label != IterationLabel::kIteration || !iteration.duration)
      continue;
    const CodeTimes::IterationFlops* computed = times.iteration_flops(row.begin);
    if (computed == nullptr || (times.any_operator_flops() && !computed->operators_known)) continue;
    const auto own = static_cast<double>(computed->flops.total());
    fewest = count == 0 ? own : std::min(fewest, own);
    most = std::max(most, own);
    ++count;
    flops += own;
    const std::optional<double> seconds = computed->flops.least_time(device);
    peaks_known = peaks_known && seconds;
    const auto computed_by = static_cast<double>(std::max<std::size_t>(computing(row.devices), 1));
    all_least += 1e9 * seconds.value_or(0);
    all_devices += computed_by;
    if (!iteration.step_time) continue;
    least += 1e9 * seconds.value_or(0);
    devices += computed_by;
    time += computed_by * *iteration.step_time;
  }
  const FlopSum all = report.code.all.flops.total();
  if (count == 0 || flops == 0 || all == 0 || !report.code.recomputation_known) return std::nullopt;
  // Recomputation is not part of the model's work.
  const FlopSum again = report.code.recomputed.total();
  const double part = 1 - static_cast<double>(again) / static_cast<double>(all);
  ModelFlops model;
  model.per_iteration = flops * part / static_cast<double>(count);
  const std::optional<double> step = comparable_step_time(report.steps, fewest, most);
  model.in_windows = !step;
  if (step) {
    least = all_least;
    devices = all_devices;
    time = *step * devices;
  }
  if (peaks_known && time > 0) model.utilization = possible_share(least * part / time, time / devices);
  return model;
}

std::vector<FamilyReport> family_reports(const Statistics& statistics, const std::vector<CallReport>& calls) {
  struct Work {
    FlopSum flops = 0;
    double measured = 0;  // of calls whose rate is known …
    double time = 0;      // … and the time of all kernels of these, ns
    bool impossible = false;
  };
  std::map<Family, Work> works;
  // A call belongs to the family of its kernels, which may have no record.
  bool lost = statistics.host_total().lost;
  for (const CallReport& call : calls) lost = lost || call.call->entry.incomplete;
  for (const CallReport& call : calls) {
    const std::optional<Family> family = family_of_call(*call.call);
    if (!family || call.call->work.flops == 0) continue;
    Work& work = works[*family];
    work.flops += FlopSum{call.call->work.flops} * call.call->entry.executed();
    work.impossible = work.impossible || call.peak_share.impossible;
    if (!call.rate) continue;
    work.measured += static_cast<double>(call.call->work.flops) * static_cast<double>(call.calls_on_gpu);
    work.time += static_cast<double>(call.call->entry.gpu.sum);
  }
  std::vector<FamilyReport> families;
  for (const FamilyRow& row : statistics.families()) {
    FamilyReport& report = families.emplace_back(FamilyReport{row, std::nullopt, std::nullopt});
    const Work& work = works[row.family];
    if (!lost) report.flops = work.flops;
    if (!work.impossible && work.time > 0) report.teraflops = work.measured / work.time / 1e3;
  }
  return families;
}

std::uint64_t count_impossible_rates(const Report& report) {
  std::uint64_t count = 0;
  const auto add = [&count](bool impossible) { count += impossible ? 1 : 0; };
  for (const CallReport& call : report.calls) add(call.peak_share.impossible);
  for (const DerivedProducts& products : report.derived_products) add(products.report.peak_share.impossible);
  for (const MeasuredKernel& kernel : report.measured_kernels) add(kernel.place && kernel.place->impossible);
  for (const WindowReport& window : report.windows)
    add(window.host && window.host->flops && window.host->flops->peak_share.impossible);
  for (const IterationReport& iteration : report.iterations)
    add(iteration.flops && iteration.flops->peak_share.impossible);
  // Excluding those by operator, module and line, whose attention counts what a causal mask leaves out.
  return count;
}

}  // namespace

std::optional<double> samples_per_second(std::uint64_t batch, double step_time) {
  if (batch == 0 || !(step_time > 0)) return std::nullopt;
  return static_cast<double>(batch) / (step_time * 1e-9);
}

KernelLimits Report::limits_of(std::uint32_t device) const {
  const auto found = limits.find(device);
  return found == limits.end() ? KernelLimits{} : found->second;
}

Report build_report(const Statistics& statistics, const RunInfo& run, const CodePlaces* places) {
  Report report;
  report.statistics = &statistics;
  report.run = &run;
  report.calls = call_reports(statistics, run);
  report.derived_products = derived_products(report.calls, run);
  report.families = family_reports(statistics, report.calls);
  for (const DetailRow& detail : statistics.kernel_details())
    report.kernels.push_back({&detail, kernel_use(detail, run.devices)});
  report.measured_kernels = measured_kernels(statistics, run);
  const DeviceDiagnoser diagnoser(statistics, run, report.calls, report.measured_kernels);
  if (places != nullptr && statistics.code_times().any_places()) {
    std::unordered_map<std::uint32_t, const DetailRow*> details;
    for (const KernelReport& kernel : report.kernels) details[kernel.detail->number] = kernel.detail;
    report.code = build_code_report(statistics.code_times(), *places,
                                    {specs_of(run, 0), [&](std::uint32_t detail, std::uint64_t time) {
                                       KernelLimits limits;
                                       const auto found = details.find(detail);
                                       if (found != details.end())
                                         limits = diagnoser.limits_of(*found->second, time);
                                       else
                                         limits.unknown = time;
                                       return limits;
                                     }});
  }
  for (const KernelReport& kernel : report.kernels) {
    if (!kernel.detail->other) report.limits.try_emplace(kernel.detail->device);
  }
  for (const DeviceTimeRow& device : statistics.device_times().totals())
    report.limits.try_emplace(device.device);
  for (auto& [device, limits] : report.limits) limits = diagnoser.limits(device);
  const IterationStatistics& iterations = statistics.iterations();
  report.iteration_rows = iterations.rows();
  const DevicePace pace(report.iteration_rows, statistics.device_times());
  const StepPace steps(iterations.unprofiled_steps(), pace.load());
  report.steps.steps = steps.steps();
  report.steps.unprofiled = steps.plain() ? iterations.unprofiled_step_times() : steps.times();
  for (const StepPace::Step& step : report.steps.steps)
    ++(step.counts ? report.steps.iterations : report.steps.ahead);
  if (steps.plain()) report.steps.iterations = report.steps.unprofiled.count();
  report.steps.time = median_interval(report.steps.unprofiled);
  if (report.steps.time)
    report.steps.samples_per_second = samples_per_second(run.batch, report.steps.time->median);
  for (const StepPace::Step& step : report.steps.steps) {
    if (step.counts) report.steps.units.add(units_of(run, *step.step), step.step->duration);
  }
  if (report.steps.units.iterations < kFewestUnprofiled) report.steps.units = {};
  WindowReports window_reports(statistics, run, report);
  const std::map<std::uint32_t, Pace> paces = window_reports.build();
  if (!paces.empty()) {
    report.steps.inside = window_reports.step_times();
  } else if (!ran_ahead(iterations.step_times(), pace)) {
    report.steps.inside = iterations.step_times();
  }  // else windows are too short, or not listed, to tell
  report.steps.overhead = profiler_overhead(report.steps.unprofiled, report.steps.inside);
  for (const DeviceTimeRow& device : statistics.device_times().totals()) {
    report.diagnoses.push_back(
        diagnoser.diagnose(device, report.limits_of(device.device), report.steps.overhead));
  }
  std::map<std::uint32_t, WindowFacts> windows;
  for (const WindowInfo& window : run.windows) windows[window.number].traced = window.untraced.empty();
  for (const auto& [window, other] : paces) windows[window].pace = other;
  for (const WindowReport& window : report.windows)
    if (window.host) windows[window.window].flops_lost = window.host->work.lost;
  for (const IterationRow& row : report.iteration_rows) {
    const WindowFacts& window = windows[row.window];
    add_iteration(report, row, &row == &report.iteration_rows.back() ? nullptr : &row + 1, window);
    if (window.pace == Pace::kHost && row.label == IterationLabel::kIteration)
      report.steps.units_inside.add(units_of(run, row), row.end - row.begin, row.devices);
  }
  const auto by_host_pace = [&paces](std::uint32_t window) { return !paces.contains(window); };
  report.energy = energy_report(statistics, run, report.iteration_rows, by_host_pace);
  report.memory_timeline = memory_timeline(statistics, run, report.iteration_rows);
  for (DeviceDiagnosis& diagnosis : report.diagnoses) {
    const DeviceEnergy* energy = report.energy.device(diagnosis.device);
    if (energy != nullptr) diagnosis.clocks = throttle_text(*energy);
  }
  if (!report.code.empty()) report.model_flops = model_flops(report);
  report.impossible_rates = count_impossible_rates(report);
  return report;
}

}  // namespace inject
