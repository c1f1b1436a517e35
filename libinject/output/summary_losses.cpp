// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/format.h"
#include "libinject/output/summary_parts.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libinject/report/display_text.h"

namespace inject {

// Windows that were ended before their trigger did, or that have no device activity: each reason is shown
// once.
void write_interruptions(TextPage& page, const RunInfo& run) {
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
      page.paragraph("  ", str_format("incomplete: {}{}{}", plural(reasons[i].second, "window"), turn.what,
                                      reasons[i].first));
    }
  }
}

void write_losses(TextPage& page, const Report& report) {
  const RunInfo& run = *report.run;
  Losses lost = run.losses_outside;
  for (const WindowInfo& window : run.windows) lost.add(window.losses);
  struct Loss {
    std::uint64_t count;
    std::string_view noun;
    std::string_view why;
  };
  const std::string metrics_lost =
      str_format("of hardware metrics lost: {}", loss_text(main_loss(run.metrics.lost_by)));
  const std::array<Loss, 25> losses{{
      {run.stale_files.size(), "stale file", "that could not be rewritten"},
      {lost.host_records, "API call", "lost: the ring was full, raise INJECT_RING"},
      {lost.range_records, "NVTX range", "lost: the ring was full, raise INJECT_RING"},
      {lost.activity_records, "GPU record", "lost: CUPTI's buffers were full, raise INJECT_BUFFERS"},
      {lost.invalid_times, "GPU record", "left out: without usable times"},
      {lost.missing_records, "launch", "whose GPU record never arrived"},
      {report.statistics->device_total().unattributed, "GPU record",
       "whose launch was not seen (still counted)"},
      {run.windows_without_times, "window", "without timestamps: they followed one another too fast"},
      {run.name_overflows, "name", "counted as [other]"},
      {run.shape_overflows, "library call", "whose shape is counted as [other]"},
      {run.places_lost, "launch", "without operator, module or line: beyond the limit"},
      {run.impossible_rates, "rate", "left out: above the device's peak"},
      {run.range_overflows, "nested NVTX range", "counted as the enclosing range"},
      {run.trace_rows_left_out, "row", "left out of the raw traces"},
      {run.trace_events_left_out, "event", "left out of the timeline"},
      {run.iteration_records_lost, "GPU record",
       "not assigned to an iteration: too many arrived before it was known"},
      {run.iteration_signs_lost, "call",
       "missed by the iteration search, so iteration numbers may be off: raise INJECT_RING"},
      {run.busy_records_late, "GPU record", "too late for the busy times"},
      {run.device_time_records_lost, "record", "left out of the idle time by cause: too late or too many"},
      {run.metric_records_lost, "record",
       "left out of the metrics: too late, too many for a sample, or impossible"},
      {run.graph_nodes_lost, "node", "of CUDA graphs beyond the limit: their kernels have no library call"},
      {run.allocations_not_held, "allocation", "beyond the limit: not in live and peak bytes"},
      {run.memory_lines_lost, "device", "without a timeline of its allocations"},
      {run.metrics.lost, "sample", metrics_lost},
      {run.metrics.rows_left_out, "row", "left out of metric_samples.csv"},
  }};
  for (const Loss& loss : losses) {
    if (loss.count == 0) continue;
    page.line(str_format("  incomplete: {} {}", plural(loss.count, loss.noun), loss.why));
  }
}

void write_recovered(TextPage& page, const RunInfo& run) {
  if (!run.recovered) return;
  const RecoveredInfo& recovered = *run.recovered;
  page.line("  recovered: the process was killed; hardware metrics could not be recovered");
  const auto lacks = [&page](std::uint64_t count, std::string_view noun, std::string_view why) {
    if (count != 0) page.line(str_format("  incomplete: {} {}", plural(count, noun), why));
  };
  lacks(recovered.calls_not_kept, "API call", "not in the file when the process was killed");
  lacks(recovered.beyond_submissions, "submission", "after the journal was full: raise INJECT_RING");
  lacks(recovered.beyond_records, "GPU record", "after the journal was full");
  lacks(recovered.names_missing, "name", "shown as [not recovered]");
  lacks(recovered.refused, "record", "left out: damaged");
  lacks(recovered.unread_bytes, "byte", "of CUPTI's buffers that can't be read");
  if (recovered.info_damaged)
    page.line("  incomplete: command, devices, options and memory: that part of the file is damaged");
  if (recovered.journal_cut)
    page.line("  incomplete: the journal is damaged; everything after that point is missing");
}

}  // namespace inject
