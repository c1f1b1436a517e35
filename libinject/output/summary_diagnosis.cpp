// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/format.h"
#include "libinject/output/summary_parts.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/base/csv.h"
#include "libinject/report/display_text.h"

namespace inject {

namespace {

/// How well the kernels fill the device, and which lose the most time by not filling it.
void kernel_use_lines(TextPage& page, const Report& report, std::uint32_t device) {
  const std::vector<DetailRow>& details = report.statistics->kernel_details();
  const RunInfo& run = *report.run;
  const auto use = device_use(details, run.devices, device);
  if (!use) return;
  std::string text = "    while kernels run, their grids can keep ";
  append_decimal(text, 100 * use->sm_efficiency, 1);
  text += "% of the SMs busy (estimate); theoretical occupancy ";
  append_decimal(text, 100 * use->occupancy, 1);
  page.line(text + "%");
  constexpr std::size_t kMaxNamed = 3;
  std::size_t named = 0;
  for (const RankedKernel& kernel : kernels_by_lost_time(details, run.devices)) {
    if (kernel.detail.device != device) continue;
    // Less than 1 % of the kernels' time is not worth mentioning.
    if (named == kMaxNamed || *kernel.use.lost_time * 100 < use->known_time + use->unknown_time) break;
    ++named;
    text = "      " + time_text(static_cast<double>(*kernel.use.lost_time)) + " lost to grids of ";
    double blocks = 1;
    for (const std::int32_t size : kernel.detail.grid) blocks *= size;
    append_decimal(text, blocks, 0);
    text += blocks == 1 ? " block with a partial last wave: " : " blocks with a partial last wave: ";
    page.named_line(text, kernel.detail.name);
  }
}

std::string headline(const DeviceDiagnosis& entry, bool names_device) {
  const DeviceTimes& times = entry.times;
  std::string text = entry.diagnosis.verdict == Bottleneck::kTooShort
                         ? "  windows too short for a verdict"
                         : "  " + std::string(bottleneck_name(entry.diagnosis.verdict));
  if (names_device) text += str_format(", GPU {}", entry.device);
  text += ": kernels run " + share_text(times.kernel_busy, times.span) + " of the time";
  if (times.kernel_busy != 0) {
    text += " (";
    append_decimal(text, static_cast<double>(times.kernel_time) / static_cast<double>(times.kernel_busy), 2);
    text += " concurrent on average)";
  }
  return text + ", only copies " + share_text(times.copy_only, times.span) + ", idle " +
         share_text(times.idle(), times.span);
}

bool launches_graphs(const Statistics& statistics) {
  const std::vector<TimeRow> calls = statistics.api_calls();
  return std::any_of(calls.begin(), calls.end(), [](const TimeRow& call) {
    return call.name.find("GraphLaunch") != std::string_view::npos;
  });
}

/// Shown if the profiler has lengthened the steps by a hundredth or more. In graphs and in ranks that wait
/// for each other it lengthens kernels as well: the estimate is a bound.
void without_profiler_line(TextPage& page, const Report& report, const DeviceDiagnosis& entry) {
  const auto& overhead = report.steps.overhead;
  if (!entry.without_profiler || !overhead || overhead->added.share < 0.01) return;
  const bool bound = entry.times.exposed_collective() != 0 || entry.times.collective_block_time != 0 ||
                     launches_graphs(*report.statistics);
  const auto share = [](const CorrectedShare& of) { return bounded_share_text(of.value, of.low, of.high); };
  page.paragraph("    ", std::string("without the profiler: kernels run ") + (bound ? "at most " : "") +
                             share(entry.without_profiler->utilization) + " of the time; launch-bound " +
                             (bound ? "at least " : "") + share(entry.without_profiler->launch_bound));
}

/// The evidence for the verdict comes first, with its advice.
void evidence_lines(TextPage& page, const DeviceDiagnosis& entry) {
  const Diagnosis& diagnosis = entry.diagnosis;
  const std::uint64_t span = entry.times.span;
  const std::uint64_t start_up = entry.times.idle(IdleCause::kStartUp);
  constexpr std::size_t kMaxEvidence = 3;
  const bool undecided =
      diagnosis.verdict == Bottleneck::kUndetermined || diagnosis.verdict == Bottleneck::kTooShort;
  const std::size_t leads = std::max<std::size_t>(undecided ? 0 : 1, diagnosis.leading);
  const auto too_small = [span](std::uint64_t time) {
    return static_cast<double>(time) < 0.01 * static_cast<double>(span);
  };
  std::size_t shown = 0;
  for (const Evidence& evidence : entry.evidence) {
    const std::uint64_t time = evidence.time - (evidence.kind == Bottleneck::kNone ? start_up : 0);
    // Small shares are left out, except for the verdict's own.
    const bool leading = shown < leads;
    if (!leading && (shown >= kMaxEvidence || too_small(time))) break;
    ++shown;
    std::string_view name = bottleneck_name(evidence.kind);
    name = name.substr(0, name.find("-bound"));
    page.paragraph("    ", share_text(time, span) + " " +
                               (name.empty() ? std::string("other idle time") : std::string(name)) +
                               (evidence.text.empty() ? std::string() : ": " + evidence.text));
    if (leading && !evidence_advice(evidence).empty()) {
      std::string advice(evidence_advice(evidence));
      if (evidence.gain) {
        advice += " (saves at most " + share_text(*evidence.gain, diagnosis.device_time) + " of the time" +
                  (diagnosis.device_time < span ? " without the profiler)" : ")");
      }
      page.paragraph("    -> ", advice);
    }
  }
  // On a separate line: start-up says nothing about the program, and may be most of the time.
  if (!too_small(start_up))
    page.line("    " + share_text(start_up, span) + " start-up: before the first GPU work of a window");
}

}  // namespace

void write_diagnoses(TextPage& page, const Report& report) {
  for (const DeviceDiagnosis& entry : report.diagnoses) {
    const Bottleneck verdict = entry.diagnosis.verdict;
    if (verdict == Bottleneck::kNone) continue;
    page.empty_line();
    page.line(headline(entry, report.diagnoses.size() > 1));
    if (verdict != Bottleneck::kTooShort) without_profiler_line(page, report, entry);
    evidence_lines(page, entry);
    if (!entry.clocks.empty()) page.paragraph("    ", entry.clocks);
    if (entry.diagnosis.leading == 0 && verdict != Bottleneck::kTooShort)
      kernel_use_lines(page, report, entry.device);
  }
}

}  // namespace inject
