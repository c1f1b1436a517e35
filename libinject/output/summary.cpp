// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "libinject/output/csv.h"
#include "libinject/report/display_text.h"

namespace inject {

namespace {

constexpr std::size_t kColumns = 120;
constexpr std::size_t kMaxRows = 10;

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

/// Right-aligned cells, then a name that takes what is left of the line.
class Table {
 public:
  Table(std::string& out, std::vector<std::string_view> titles, std::string_view name_title)
      : out_(out), titles_(std::move(titles)), name_title_(name_title) {}

  void row(std::vector<std::string> cells, std::string_view name) {
    rows_.push_back({std::move(cells), name});
  }

  /// `more` rows were left out.
  void print(std::size_t more) {
    if (rows_.empty()) return;
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < titles_.size(); ++i) {
      std::size_t width = titles_[i].size();
      for (const Row& row : rows_) width = std::max(width, row.cells[i].size());
      widths.push_back(width);
    }
    out_ += '\n';
    std::size_t used = 2;
    for (std::size_t i = 0; i < titles_.size(); ++i) {
      cell(titles_[i], widths[i]);
      used += widths[i] + 2;
    }
    out_.append("  ").append(name_title_) += '\n';
    for (const Row& row : rows_) {
      for (std::size_t i = 0; i < titles_.size(); ++i) cell(row.cells[i], widths[i]);
      out_.append("  ").append(shortened(row.name, kColumns - used)) += '\n';
    }
    if (more != 0) out_ += "  ... and " + std::to_string(more) + " more\n";
  }

 private:
  struct Row {
    std::vector<std::string> cells;
    std::string_view name;
  };
  void cell(std::string_view text, std::size_t width) {
    out_.append(2 + width - text.size(), ' ');
    out_.append(text);
  }

  std::string& out_;
  std::vector<std::string_view> titles_;
  std::string_view name_title_;
  std::vector<Row> rows_;
};

std::size_t left_out(std::size_t rows) {
  return rows > kMaxRows ? rows - kMaxRows : 0;
}

void time_table(std::string& out, const std::vector<TimeRow>& rows, std::string_view title) {
  std::uint64_t total = 0;
  for (const TimeRow& row : rows) total += row.stats->sum();
  Table table(out, {"Time(%)", "Time", "Calls", "Avg", "Min", "Max"}, title);
  for (std::size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i) {
    const SampleStats& stats = *rows[i].stats;
    table.row({percent_text(ratio(stats.sum(), total)), time_text(static_cast<double>(stats.sum())),
               std::to_string(stats.count()), time_text(stats.mean()),
               time_text(static_cast<double>(stats.min())), time_text(static_cast<double>(stats.max()))},
              rows[i].name);
  }
  table.print(left_out(rows.size()));
}

void library_table(std::string& out, const std::vector<LibraryRow>& rows, std::uint64_t kernel_time) {
  Table table(out, {"GPU(%)", "GPU time", "Kernels", "Calls", "Host time", "Avg"},
              "Library call (with the calls inside it)");
  std::size_t outer = 0;
  for (const LibraryRow& row : rows) {
    // The calls inside are in the outer ones' figures.
    if (row.depth != 0 || row.host.count == 0) continue;
    if (++outer > kMaxRows) continue;
    table.row({percent_text(ratio(row.inclusive.kernels.sum, kernel_time)),
               time_text(static_cast<double>(row.inclusive.kernels.sum)),
               std::to_string(row.inclusive.kernels.count), std::to_string(row.host.count),
               time_text(static_cast<double>(row.host.sum)), time_text(row.host.mean())},
              row.path);
  }
  table.print(left_out(outer));
}

void operation_table(std::string& out, const Statistics& statistics) {
  const std::vector<TimeRow> times = statistics.operation_times();
  const std::vector<TimeRow> sizes = statistics.operation_sizes();
  Table table(out, {"Time", "Calls", "Size", "Avg size", "Throughput"}, "Copies and memsets");
  for (std::size_t i = 0; i < std::min(times.size(), kMaxRows); ++i) {
    const auto size = std::find_if(sizes.begin(), sizes.end(),
                                   [&](const TimeRow& row) { return row.name == times[i].name; });
    const auto time = static_cast<double>(times[i].stats->sum());
    const double bytes = size == sizes.end() ? 0.0 : static_cast<double>(size->stats->sum());
    const double count = static_cast<double>(times[i].stats->count());
    table.row({time_text(time), std::to_string(times[i].stats->count()), size_text(bytes),
               size_text(bytes / count), time > 0 ? size_text(bytes / time * 1e9) + "/s" : "-"},
              times[i].name);
  }
  table.print(left_out(times.size()));
}

/// One line, cut to the width.
void line(std::string& out, std::string_view text) {
  out.append(shortened(text, kColumns)) += '\n';
}

std::string command_text(const RunInfo& run) {
  std::string text;
  for (const std::string& argument : run.command_line) {
    if (!text.empty()) text += ' ';
    text += argument;
    if (text.size() > 4 * kColumns) break;
  }
  return text;
}

std::string windows_text(const RunInfo& run) {
  std::uint64_t total = 0;
  std::vector<std::string_view> reasons;
  bool open = false;
  for (const WindowInfo& window : run.windows) {
    if (window.end != 0) {
      total += window.end - window.start;
    } else {
      open = open || window.times_known();
    }
    if (reasons.size() < 3 && std::find(reasons.begin(), reasons.end(), window.reason) == reasons.end()) {
      reasons.push_back(window.reason);
    }
  }
  std::string text = plural(run.windows.size() + run.windows_not_listed, "window");
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    text.append(i == 0 ? " (" : ", ").append(reasons[i]);
  }
  if (!reasons.empty()) text += ')';
  text += ", " + time_text(static_cast<double>(std::max(total, run.windows_time)));
  if (open) text += ", still open";
  return text;
}

/// What a device did in all windows.
struct DeviceSum {
  DeviceWork work;
  // Of the windows that have closed and are listed.
  std::uint64_t busy = 0;
  std::uint64_t time = 0;
};

std::map<std::uint32_t, DeviceSum> sums_by_device(const Statistics& statistics, const RunInfo& run) {
  std::map<std::uint32_t, const WindowInfo*> closed;
  std::uint64_t windows_time = 0;
  for (const WindowInfo& window : run.windows) {
    if (window.end == 0) continue;
    closed[window.number] = &window;
    windows_time += window.end - window.start;
  }
  std::map<std::uint32_t, DeviceSum> devices;
  for (const WindowDeviceRow& row : statistics.window_devices()) {
    // Windows without any work of the device's are part of its time, too.
    DeviceSum& device = devices.try_emplace(row.device, DeviceSum{{}, 0, windows_time}).first->second;
    device.work.merge(row.work);
    const auto window = closed.find(row.window);
    if (window == closed.end()) continue;
    device.busy += row.busy;
    const std::uint64_t duration = window->second->end - window->second->start;
    device.time += row.time(duration) - duration;
  }
  return devices;
}

/// What was allocated on a device; `row` is that of all functions together.
std::string memory_text(const MemoryRow& row, const RunInfo& run) {
  const MemoryCounts& counts = row.counts;
  const auto size = [](std::uint64_t bytes) { return size_text(static_cast<double>(bytes)); };
  std::string text =
      "    memory: peak " + size(counts.peak) + " allocated by " + plural(counts.allocations, "call");
  for (auto window = run.windows.rbegin(); window != run.windows.rend(); ++window) {
    const auto memory = std::find_if(window->memory.begin(), window->memory.end(),
                                     [&](const WindowMemory& of) { return of.device == row.device; });
    if (memory == window->memory.end() || !memory->at_end) continue;
    text += ", " + size(*memory->at_end) + " in use on the GPU at the end";
    break;
  }
  if (counts.failed != 0) {
    text += "; " + std::to_string(counts.failed) + " failed" +
            (counts.failed == 1 ? ", of " : ", the largest of ") + size(counts.largest_failed);
  }
  return text;
}

std::map<std::uint32_t, std::string> memory_texts(const RunInfo& run) {
  std::map<std::uint32_t, std::string> texts;
  for (const MemoryRow& row : run.memory) {
    if (!row.api && row.device < MemoryUse::kDevices) texts[row.device] = memory_text(row, run);
  }
  return texts;
}

void device_lines(std::string& out, const Statistics& statistics, const RunInfo& run) {
  const std::map<std::uint32_t, DeviceSum> devices = sums_by_device(statistics, run);
  std::map<std::uint32_t, std::string> memory = memory_texts(run);
  const auto name_of = [&run](std::uint32_t device) {
    std::string text = "  GPU ";
    text += device == kOtherIndex ? "[other]" : std::to_string(device);
    for (const DeviceInfo& info : run.devices) {
      if (info.id == device) text += " " + info.name;
    }
    return text;
  };
  for (const auto& [device, sum] : devices) {
    const DeviceWork& work = sum.work;
    std::string text = name_of(device);
    text +=
        ": " + plural(work.kernels.count, "kernel") + " " + time_text(static_cast<double>(work.kernels.sum));
    if (sum.time != 0) text += ", busy " + percent_text(ratio(sum.busy, sum.time)) + " of the windows' time";
    line(out, text);
    // A line of its own: with a GPU's full name before it, it would not fit.
    if (work.copies + work.memsets != 0) {
      line(out, "    " + plural(work.copies, "copy") + " " + time_text(static_cast<double>(work.copy_time)) +
                    " (" + size_text(static_cast<double>(work.copy_bytes)) + "), " +
                    plural(work.memsets, "memset") + " " + time_text(static_cast<double>(work.memset_time)));
    }
    if (const auto found = memory.extract(device)) line(out, found.mapped());
  }
  const bool traced = std::any_of(run.windows.begin(), run.windows.end(),
                                  [](const WindowInfo& window) { return window.untraced.empty(); });
  if (devices.empty() && (traced || run.windows.empty())) line(out, "  no GPU work was launched in a window");
  for (const auto& [device, text] : memory) {
    line(out, name_of(device) + (devices.empty() ? "" : ": no work in a window"));
    line(out, text);
  }
}

/// `text` in lines of at most the width, broken at spaces; those after the first are indented further.
void paragraph(std::string& out, std::string_view indent, std::string_view text) {
  const std::string all = printable(text);
  std::string_view left = all;
  std::string begin(indent);
  while (true) {
    const std::size_t room = kColumns - begin.size();
    std::string_view part = beginning(left, room);
    if (part.size() < left.size()) {
      if (const std::size_t space = part.rfind(' '); space != std::string_view::npos && space > room / 2)
        part = part.substr(0, space);
    }
    if (part.empty()) return;
    out.append(begin).append(part) += '\n';
    left.remove_prefix(part.size());
    while (!left.empty() && left.front() == ' ') left.remove_prefix(1);
    if (left.empty()) return;
    begin = std::string(indent.size() + 2, ' ');
  }
}

/// How well the kernels fill the device, and those that lose most by not filling it.
void kernel_use_lines(std::string& out, const Report& report, std::uint32_t device) {
  const std::vector<DetailRow>& details = report.statistics->kernel_details();
  const RunInfo& run = *report.run;
  const auto use = device_use(details, run.devices, device);
  if (!use) return;
  std::string text = "    while kernels run, their grids keep ";
  append_decimal(text, 100 * use->sm_efficiency, 1);
  text += "% of the multiprocessors busy, at a theoretical occupancy of ";
  append_decimal(text, 100 * use->occupancy, 1);
  line(out, text + "%");
  constexpr std::size_t kMaxNamed = 3;
  std::size_t named = 0;
  for (const RankedKernel& kernel : kernels_by_lost_time(details, run.devices)) {
    if (kernel.detail.device != device) continue;
    // What is lost by less than a hundredth of the kernels' time is nothing to look at.
    if (named == kMaxNamed || *kernel.use.lost_time * 100 < use->known_time + use->unknown_time) break;
    ++named;
    text = "      " + time_text(static_cast<double>(*kernel.use.lost_time)) + " lost in grids of ";
    double blocks = 1;
    for (const std::int32_t size : kernel.detail.grid) blocks *= size;
    append_decimal(text, blocks, 0);
    text += blocks == 1 ? " block: " : " blocks: ";
    line(out, text + shortened(kernel.detail.name, kColumns - text.size()));
  }
}

void diagnosis_lines(std::string& out, const Report& report) {
  const std::vector<DeviceDiagnosis>& devices = report.diagnoses;
  constexpr std::size_t kMaxEvidence = 3;
  for (const DeviceDiagnosis& entry : devices) {
    const Diagnosis& diagnosis = entry.diagnosis;
    const DeviceTimes& times = entry.times;
    if (diagnosis.verdict == Bottleneck::kNone) continue;
    out += '\n';
    const bool too_short = diagnosis.verdict == Bottleneck::kTooShort;
    std::string text = too_short ? "  windows too short for a verdict"
                                 : "  " + std::string(bottleneck_name(diagnosis.verdict));
    if (devices.size() > 1) text += ", GPU " + std::to_string(entry.device);
    text += ": a kernel runs " + share_text(times.kernel_busy, times.span) + " of the time";
    if (times.kernel_busy != 0) {
      text += " (";
      append_decimal(text, static_cast<double>(times.kernel_time) / static_cast<double>(times.kernel_busy),
                     2);
      text += " at once)";
    }
    text += ", copies alone " + share_text(times.copy_only, times.span) + ", idle " +
            share_text(times.idle(), times.span);
    line(out, text);
    // A line of its own: it is neither for nor against the program, and may be most of the time.
    const std::uint64_t start_up = times.idle(IdleCause::kStartUp);
    std::size_t told = 0;
    for (const Evidence& evidence : entry.evidence) {
      const std::uint64_t time = evidence.time - (evidence.kind == Bottleneck::kNone ? start_up : 0);
      // Small change is left out, but for what the verdict is about.
      const bool leading =
          told < std::max<std::size_t>(diagnosis.verdict == Bottleneck::kUndetermined || too_short ? 0 : 1,
                                       diagnosis.leading);
      if (!leading && (told >= kMaxEvidence || diagnosis.share(time) < 0.01)) break;
      ++told;
      std::string_view name = bottleneck_name(evidence.kind);
      if (const std::size_t bound = name.find("-bound"); bound != std::string_view::npos)
        name = name.substr(0, bound);
      paragraph(out, "    ",
                share_text(time, times.span) + " " +
                    (name.empty() ? std::string("other idle time") : std::string(name)) +
                    (evidence.text.empty() ? std::string() : ": " + evidence.text));
      if (leading && !bottleneck_advice(evidence.kind).empty()) {
        std::string advice(bottleneck_advice(evidence.kind));
        if (diagnosis.leading != 0 || diagnosis.gain != 0) {
          advice += " (at most " + share_text(evidence.gain, times.span) + " of the time)";
        }
        paragraph(out, "    -> ", advice);
      }
    }
    if (diagnosis.share(start_up) >= 0.01)
      line(out,
           "    " + share_text(start_up, times.span) + " start-up: before the first GPU work of a window");
    if (diagnosis.leading == 0 && !too_short) kernel_use_lines(out, report, entry.device);
  }
}

/// Means over the windows, and the long kernels that leave most of the device unused.
void metric_lines(std::string& out, const Report& report) {
  const Statistics& statistics = *report.statistics;
  const std::vector<MetricInfo>& metrics = statistics.metrics().metrics();
  if (metrics.empty()) return;
  std::map<std::uint32_t, std::vector<WeightedMean>> devices;
  for (const WindowMetrics& window : statistics.metrics().windows()) {
    std::vector<WeightedMean>& means = devices[window.device];
    means.resize(metrics.size());
    for (std::size_t m = 0; m < metrics.size(); ++m) means[m].add(window.means[m]);
  }
  const std::vector<MeasuredKernel> kernels = kernels_by_unused_time(report.measured_kernels);
  for (const auto& [device, means] : devices) {
    std::string text = "measured";
    if (devices.size() > 1) text += " on GPU " + std::to_string(device);
    std::string_view between = ": ";
    for (std::size_t m = 0; m < metrics.size(); ++m) {
      if (!is_percentage(metrics[m]) || !means[m].value()) continue;
      const std::string_view title = metrics[m].title;
      text.append(between).append(title.substr(0, title.find(" ("))).append(" ");
      text += percent_text(*means[m].value());
      between = ", ";
    }
    out += '\n';
    paragraph(out, "  ", text);
    std::uint64_t total = 0;
    for (const MeasuredKernel& kernel : kernels) {
      if (kernel.row.detail.device == device) total += kernel.row.measured.time;
    }
    constexpr std::size_t kMaxNamed = 3;
    std::size_t named = 0;
    for (const MeasuredKernel& kernel : kernels) {
      if (kernel.row.detail.device != device) continue;
      // As with grids: less than a hundredth is nothing to look at.
      if (named == kMaxNamed || *kernel.unused_time * 100 < total) break;
      ++named;
      text = "    " + time_text(static_cast<double>(*kernel.unused_time)) + " unused, " + kernel.busiest +
             " at " + percent_text(*kernel.utilization);
      if (kernel.achieved_occupancy && kernel.theoretical_occupancy) {
        text += ", occupancy " + percent_text(*kernel.achieved_occupancy) + " of " +
                percent_text(*kernel.theoretical_occupancy);
      }
      text += ": ";
      line(out, text + shortened(kernel.row.detail.name, kColumns - text.size()));
    }
  }
}

void phase_line(std::string& out, const Statistics& statistics) {
  std::array<std::uint64_t, kPhases> time{};
  std::uint64_t total = 0;
  for (const PhaseRow& row : statistics.phases()) {
    time[static_cast<std::size_t>(row.phase)] += row.work.kernels.sum;
    total += row.work.kernels.sum;
  }
  const auto of = [&time](Phase phase) { return time[static_cast<std::size_t>(phase)]; };
  if (of(Phase::kBackward) + of(Phase::kOptimizer) == 0) return;
  std::string text = "  kernel time:";
  for (std::size_t i = 0; i < kPhases; ++i) {
    if (time[i] == 0) continue;
    text += (text.back() == ':' ? " " : ", ") + std::string(phase_name(static_cast<Phase>(i))) + " " +
            percent_text(ratio(time[i], total));
  }
  if (of(Phase::kForward) != 0 && of(Phase::kBackward) != 0) {
    text += "; forward : backward = 1 : ";
    append_decimal(text, static_cast<double>(of(Phase::kBackward)) / static_cast<double>(of(Phase::kForward)),
                   2);
  }
  line(out, text);
}

void iteration_lines(std::string& out, const Report& report) {
  const IterationStatistics& iterations = report.statistics->iterations();
  const SampleStats& steps = *report.steps.inside;
  if (steps.count() == 0 && iterations.incomplete() == 0) return;
  std::string text = "  no complete iteration";
  if (steps.count() != 0) {
    text = "  " + plural(steps.count(), "iteration") + ": median " + time_text(steps.median()) + ", mean " +
           time_text(steps.mean()) + ", 95th percentile " +
           time_text(static_cast<double>(steps.percentile(0.95)));
    if (report.steps.samples_per_second) {
      text += "; ";
      append_decimal(text, *report.steps.samples_per_second, 1);
      text += " samples/s";
    }
  }
  line(out, text);
  text.clear();
  const auto also = [&text](std::uint64_t count, std::string_view noun) {
    if (count != 0) text += (text.empty() ? "    also " : ", ") + plural(count, noun);
  };
  also(iterations.incomplete(), "incomplete iteration");
  also(iterations.phases(IterationLabel::kValidation), "validation phase");
  also(iterations.phases(IterationLabel::kCheckpoint), "checkpoint");
  if (!text.empty()) line(out, text);
  if (const auto& overhead = report.steps.overhead) {
    text = "    " + time_text(overhead->outside) + " outside windows: the profiler's own share is ";
    if (overhead->seen()) {
      append_decimal(text, 100 * overhead->share, 1);
      text += "% (";
      append_decimal(text, 100 * overhead->low, 1);
      text += " to ";
      append_decimal(text, 100 * overhead->high, 1);
      text += ')';
    } else {
      text += "not seen";
    }
    line(out, text);
  }
}

// Windows that somebody else's use of CUPTI ended, or kept without device activity: each reason once.
void turn_lines(std::string& out, const RunInfo& run) {
  struct Turn {
    std::string WindowInfo::*why;
    std::string_view what;
  };
  constexpr std::size_t kMaxReasons = 3;
  for (const Turn& turn : {Turn{&WindowInfo::ended_by, " closed early: "},
                           Turn{&WindowInfo::untraced, " without GPU records: "}}) {
    std::vector<std::pair<std::string_view, std::uint64_t>> reasons;
    for (const WindowInfo& window : run.windows) {
      const std::string& why = window.*turn.why;
      if (why.empty()) continue;
      const auto known = std::find_if(reasons.begin(), reasons.end(),
                                      [&](const auto& reason) { return reason.first == why; });
      if (known != reasons.end()) {
        ++known->second;
      } else {
        reasons.emplace_back(why, 1);
      }
    }
    for (std::size_t i = 0; i < std::min(reasons.size(), kMaxReasons); ++i) {
      paragraph(out, "  ",
                "incomplete: " + plural(reasons[i].second, "window") + std::string(turn.what) +
                    std::string(reasons[i].first));
    }
  }
}

void loss_lines(std::string& out, const Statistics& statistics, const RunInfo& run) {
  Losses lost = run.losses_outside;
  for (const WindowInfo& window : run.windows) lost.add(window.losses);
  struct Loss {
    std::uint64_t count;
    std::string_view noun;
    std::string_view why;
  };
  const std::string metrics_lost =
      "of hardware metrics lost: " + std::string(loss_text(main_loss(run.metrics.lost_by)));
  const std::array<Loss, 22> losses{{
      {lost.host_records, "API call", "lost: the ring was full, raise INJECT_RING"},
      {lost.range_records, "NVTX range", "lost: the ring was full, raise INJECT_RING"},
      {lost.activity_records, "GPU record", "lost: CUPTI's buffers were full, raise INJECT_BUFFERS"},
      {lost.invalid_times, "GPU record", "left out: without usable times"},
      {lost.missing_records, "launch", "whose GPU record never came"},
      {statistics.device_total().unattributed, "GPU record",
       "whose launch was not seen (counted all the same)"},
      {run.windows_without_times, "window", "without times of their own: they followed one another too fast"},
      {run.name_overflows, "name", "counted as [other]"},
      {run.shape_overflows, "library call", "whose shape is counted as [other]"},
      {run.impossible_rates, "rate", "beyond the device's peak, whose share is left out"},
      {run.range_overflows, "nested NVTX range", "counted as the range around it"},
      {run.trace_rows_left_out, "row", "left out of the raw traces"},
      {run.trace_events_left_out, "event", "left out of the timeline"},
      {run.iteration_records_lost, "GPU record", "in no iteration: too many came before it was known"},
      {run.iteration_signs_lost, "call",
       "unseen in the search for iterations, whose numbers may be off: raise INJECT_RING"},
      {run.busy_records_late, "GPU record", "too late for the busy times"},
      {run.device_time_records_lost, "record", "too late, or too many, for the causes of idle time"},
      {run.metric_records_lost, "record",
       "left out of the metrics: too late, too many for a sample, or impossible"},
      {run.graph_nodes_lost, "node", "of CUDA graphs too many: their kernels have no library call"},
      {run.allocations_not_held, "allocation", "too many at once: live and peak bytes lack them"},
      {run.metrics.lost, "sample", metrics_lost},
      {run.metrics.rows_left_out, "row", "left out of metric_samples.csv"},
  }};
  for (const Loss& loss : losses) {
    if (loss.count == 0) continue;
    // launch, launches
    std::string text = plural(loss.count, loss.noun);
    if (loss.count != 1 && loss.noun == "launch") text = std::to_string(loss.count) + " launches";
    line(out, "  incomplete: " + text + " " + std::string(loss.why));
  }
}

void recovered_lines(std::string& out, const RunInfo& run) {
  if (!run.recovered) return;
  const RecoveredInfo& recovered = *run.recovered;
  line(out, "  recovered: the process was killed; hardware metrics are not among what it left");
  const auto lacks = [&out](std::uint64_t count, std::string_view noun, std::string_view why) {
    if (count != 0) line(out, "  incomplete: " + plural(count, noun) + " " + std::string(why));
  };
  lacks(recovered.beyond_submissions, "submission", "after the journal was full: raise INJECT_RING");
  lacks(recovered.beyond_records, "GPU record", "after the journal was full");
  lacks(recovered.names_missing, "name", "shown as [not recovered]");
  lacks(recovered.refused, "record", "left out: damaged");
  lacks(recovered.unread_bytes, "byte", "of CUPTI's buffers that can't be read");
  if (recovered.journal_cut)
    line(out, "  incomplete: the journal is damaged; what came after that is missing");
}

}  // namespace

std::string summary_text(const Report& report, std::string_view folder) {
  const Statistics& statistics = *report.statistics;
  const RunInfo& run = *report.run;
  std::string out;
  std::string title =
      "libinject: " + windows_text(run) + "; process " + std::to_string(run.pid) + " on " + run.host;
  if (!run.rank.empty()) title += ", rank " + run.rank;
  line(out, title);
  line(out, "  " + command_text(run));
  recovered_lines(out, run);
  device_lines(out, statistics, run);
  iteration_lines(out, report);
  phase_line(out, statistics);
  turn_lines(out, run);
  loss_lines(out, statistics, run);
  diagnosis_lines(out, report);
  metric_lines(out, report);
  time_table(out, statistics.kernels(), "Kernel");
  library_table(out, statistics.library_calls(), statistics.device_total().kernels.sum);
  operation_table(out, statistics);
  time_table(out, statistics.api_calls(), "API call");
  out += '\n';
  // Never shortened: it is there to be copied.
  out += "  tables: ";
  append_utf8(out, folder);
  out += '\n';
  return out;
}

}  // namespace inject
