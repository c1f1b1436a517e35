// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/summary_parts.h"

#include <array>
#include <string>

#include "libinject/base/csv.h"
#include "libinject/report/display_text.h"

namespace inject {

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

void write_iterations(TextPage& page, const Report& report) {
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
  page.line(text);
  text.clear();
  const auto also = [&text](std::uint64_t count, std::string_view noun) {
    if (count != 0) text += (text.empty() ? "    also " : ", ") + plural(count, noun);
  };
  also(iterations.incomplete(), "incomplete iteration");
  also(iterations.phases(IterationLabel::kValidation), "validation phase");
  also(iterations.phases(IterationLabel::kCheckpoint), "checkpoint");
  if (!text.empty()) page.line(text);
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
    page.line(text);
  }
}

}  // namespace inject
