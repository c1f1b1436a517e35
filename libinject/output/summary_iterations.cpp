// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/summary_parts.h"

#include <algorithm>
#include <array>
#include <string>

#include "libinject/base/csv.h"
#include "libinject/output/window_columns.h"
#include "libinject/report/display_text.h"

namespace inject {
namespace {

/// How much longer a step in a window takes than one without the profiler: `23.1% (18.0 to 30.1)`, or `on
/// average 23.1% (18.0 to 30.1)` if only a few steps are that much slower. Empty: not measurably.
std::string longer_text(const OverheadEstimate& overhead) {
  const auto text = [](double share, double low, double high) {
    return bounded_share_text(longer_by(share), longer_by(low), longer_by(high));
  };
  if (overhead.seen()) return text(overhead.share, overhead.low, overhead.high);
  const AddedTime& added = overhead.added;
  // An interval without an upper end says too little.
  if (longer_by(added.low) <= kMuchLonger || added.high >= 1) return {};
  return "on average " + text(added.share, added.low, added.high);
}

/// Small numbers have three digits.
void append_rate(std::string& text, double rate) {
  append_decimal(text, rate, rate > 0 ? std::max(1, decimals_for(rate, 3)) : 1);
}

/// The rate of units that the user has not stated, and that would therefore not be in samples.
std::string units_text(const Report& report, const WorkUnits& units) {
  const std::optional<double> rate = units.per_second();
  if (!rate || report.run->unit_source == UnitSource::kStated) return {};
  std::string text = "; ";
  append_rate(text, *rate);
  return text + " units/s";
}

}  // namespace

void write_phases(TextPage& page, const Statistics& statistics) {
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
            share_text(time[i], total);
  }
  if (of(Phase::kForward) != 0 && of(Phase::kBackward) != 0) {
    text += "; forward : backward = 1 : ";
    append_decimal(text, static_cast<double>(of(Phase::kBackward)) / static_cast<double>(of(Phase::kForward)),
                   2);
  }
  page.line(text);
}

void write_disturbance(TextPage& page, const Report& report) {
  const auto& overhead = report.steps.overhead;
  if (!overhead || (overhead->seen() && longer_by(overhead->share) <= kMuchLonger)) return;
  const std::string longer = longer_text(*overhead);
  if (longer.empty()) return;
  page.paragraph("  ",
                 "steps in windows took " + longer +
                     " longer than without the profiler: part of their idle time is profiling overhead");
}

void write_iterations(TextPage& page, const Report& report) {
  const IterationStatistics& iterations = report.statistics->iterations();
  const StepReport& all = report.steps;
  const SampleStats& steps = all.inside;
  if (steps.count() == 0 && iterations.incomplete() == 0 && !all.time) return;
  if (all.time) {
    std::string text = "  step time " + time_text(all.time->median) + " (" + time_text(all.time->low) +
                       " to " + time_text(all.time->high) + "): median of " +
                       plural(all.iterations, "iteration") + " without the profiler";
    if (all.samples_per_second) {
      text += "; ";
      append_rate(text, *all.samples_per_second);
      text += " samples/s";
    }
    page.line(text + units_text(report, all.units));
  } else if (all.ahead != 0) {
    page.paragraph("  ", "no step time: the host ran ahead of the GPU in the " +
                             plural(all.ahead, "iteration") + " without the profiler");
  }
  std::string text = all.time ? "    in windows: " : "  in windows: ";
  const std::uint64_t complete = iterations.step_times().count();
  if (complete == 0) {
    text += "no complete iteration";
  } else if (steps.count() == 0) {
    text += plural(complete, "iteration") + " whose time is unknown";
  } else {
    text += plural(steps.count(), "iteration") + ", median " + time_text(steps.median()) + ", mean " +
            time_text(steps.mean()) + ", 95th percentile " +
            time_text(static_cast<double>(steps.percentile(0.95)));
    if (const auto rate = samples_per_second(report.run->batch, steps.median()); rate && !all.time) {
      text += "; ";
      append_rate(text, *rate);
      text += " samples/s";
    }
    if (!all.units.per_second()) text += units_text(report, all.units_inside);
  }
  page.line(text);
  text.clear();
  const auto also = [&text](std::uint64_t count, std::string_view noun) {
    if (count != 0) text += (text.empty() ? "    also " : ", ") + plural(count, noun);
  };
  also(iterations.incomplete(), "incomplete iteration");
  also(iterations.phases(IterationLabel::kValidation), "validation phase");
  also(iterations.phases(IterationLabel::kCheckpoint), "checkpoint");
  if (!text.empty()) page.line(text);
  if (const auto& overhead = all.overhead) {
    const std::string longer = longer_text(*overhead);
    page.line("    " + (longer.empty() ? "not measurably" : longer) + " longer than without the profiler");
  }
}

}  // namespace inject
