// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <algorithm>
#include <string>
#include <vector>

#include "libinject/base/format.h"
#include "libinject/output/summary_parts.h"
#include "libinject/report/display_text.h"

namespace inject {

namespace {

constexpr std::size_t kShown = 5;
/// Copies are shown by line if their time is at least this percentage of the kernels' time.
constexpr std::uint64_t kCopiesShownFrom = 5;  // %

/// `memory 81%`: what limits most of the kernels' time, if that is known for half of it.
std::string bound_text(std::uint64_t time, const KernelLimits& limits) {
  struct Bound {
    std::uint64_t time;
    std::string_view name;
  };
  const auto bound = std::max(
      {Bound{limits.compute, "compute"}, Bound{limits.memory, "memory"}, Bound{limits.latency, "latency"}},
      [](const Bound& one, const Bound& other) { return one.time < other.time; });
  if (2 * bound.time < time || bound.time == 0) return "-";
  return str_format("{} {}%", bound.name, 100 * bound.time / time);
}

template <typename Line>
std::string place_of(const Line& line) {
  if (line.file.empty()) return std::string(line.function);
  const std::size_t slash = line.file.rfind('/');
  return str_format("{}:{} {}", line.file.substr(slash == std::string_view::npos ? 0 : slash + 1), line.line,
                    line.function);
}

}  // namespace

void write_code(TextPage& page, const Report& report) {
  const CodeReport& code = report.code;
  if (code.empty() || code.all.time == 0) return;
  const auto cells = [&](std::uint64_t time, const KernelLimits& limits) {
    return std::vector<std::string>{share_text(time, code.all.time), time_text(static_cast<double>(time)),
                                    bound_text(time, limits)};
  };
  std::vector<const ModuleRow*> modules;
  for (const ModuleRow& module : code.modules)
    if (module.type != "" && module.self.time != 0) modules.push_back(&module);
  std::stable_sort(modules.begin(), modules.end(), [](const ModuleRow* one, const ModuleRow* other) {
    return one->self.time > other->self.time;
  });
  if (const auto& model = report.model_flops; model) {
    std::string text = "model FLOPs " + flops_text(model->per_iteration) + " an iteration";
    if (const PeakShare& share = model->utilization; share.value)
      text += ", utilization " + percent_text(100 * *share.value) + (model->in_windows ? " in windows" : "");
    else if (share.impossible)
      text += ", utilization left out: beyond the peak";
    page.paragraph("  ", text + " (of library calls and operators of known shape, " +
                             share_text(code.all.flop_time, code.all.time) + " of the kernels' time)");
  } else if (!code.recomputation_known) {
    page.paragraph("  ", "model FLOPs unknown: an unknown part of them may be recomputation");
  }
  TextTable by_module({"Kernels", "Time", "Bound by"}, "Module (module_sum.csv)");
  for (std::size_t i = 0; i < std::min(kShown, modules.size()); ++i)
    by_module.row(cells(modules[i]->self.time, modules[i]->self.limits), modules[i]->path);
  page.table(by_module, std::min(kShown, modules.size()));

  std::vector<std::string> places;
  for (const LineRow& line : code.lines) {
    if (places.size() == kShown || line.user_time == 0) break;
    places.push_back(place_of(line));
  }
  TextTable by_line({"Kernels", "Time", "Bound by"}, "Line of the program (line_sum.csv)");
  for (std::size_t i = 0; i < places.size(); ++i)
    by_line.row(cells(code.lines[i].user_time, code.lines[i].user_limits), places[i]);
  page.table(by_line, places.size());

  std::vector<const LineRow*> copying;
  std::uint64_t copy_time = 0;
  for (const LineRow& line : code.lines) {
    copy_time += line.copy_time;
    if (line.copy_time != 0) copying.push_back(&line);
  }
  std::stable_sort(copying.begin(), copying.end(), [](const LineRow* one, const LineRow* other) {
    return one->copy_time > other->copy_time;
  });
  if (100 * copy_time < kCopiesShownFrom * code.all.time) copying.clear();
  copying.resize(std::min(kShown, copying.size()));
  std::vector<std::string> copying_places;
  copying_places.reserve(copying.size());
  for (const LineRow* line : copying) copying_places.push_back(place_of(*line));
  TextTable by_copies({"Copies", "Time"}, "Line of the program that copies (line_sum.csv)");
  for (std::size_t i = 0; i < copying.size(); ++i)
    by_copies.row(
        {share_text(copying[i]->copy_time, copy_time), time_text(static_cast<double>(copying[i]->copy_time))},
        copying_places[i]);
  page.table(by_copies, copying.size());

  std::vector<const GapLineRow*> late;
  std::vector<std::string> late_places;
  for (const GapLineRow& line : code.gaps) {
    // If the host was not late, no line helps.
    const bool is_line = line.function != kDeviceGap && line.function != kUnattributed;
    if (late.size() == kShown || line.time == 0 || !is_line) continue;
    late.push_back(&line);
    late_places.push_back(place_of(line));
  }
  TextTable waited_for({"GPU idle", "Time"},
                       "Line of the program that the GPU waited for (gap_line_sum.csv)");
  for (std::size_t i = 0; i < late.size(); ++i)
    waited_for.row({share_text(late[i]->time, code.idle), time_text(static_cast<double>(late[i]->time))},
                   late_places[i]);
  page.table(waited_for, late.size());
}

}  // namespace inject
