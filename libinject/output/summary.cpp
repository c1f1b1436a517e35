// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/summary.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "libinject/base/format.h"
#include "libinject/base/text.h"
#include "libinject/output/summary_parts.h"
#include "libinject/report/display_text.h"

namespace inject {

namespace {

std::string command_text(const RunInfo& run) {
  std::string text;
  for (const std::string& argument : run.command_line) {
    if (!text.empty()) text += ' ';
    text += argument;
    if (text.size() > 4 * kPageColumns) break;
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

std::string title(const RunInfo& run) {
  return str_format("libinject: {}; process {} on {}{}", windows_text(run), run.pid, run.host,
                    run.rank.empty() ? "" : ", rank " + run.rank);
}

/// The folder in a form that can be typed where the program was started. (Whoever recovers a run may be
/// elsewhere.)
std::string typed(std::string_view folder, const RunInfo& run) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:@%,";
  std::string_view name = folder;
  const std::string_view above = run.working_directory;
  if (!run.recovered && above.size() > 1 && name.size() > above.size() + 1 && name.starts_with(above) &&
      name[above.size()] == '/')
    name.remove_prefix(above.size() + 1);
  // A name that begins with a dash would be taken for an option.
  std::string path = (name.starts_with('-') ? "./" : "") + one_line(name, name.size());
  if (path.find_first_not_of(kPlain) == std::string::npos) return path;
  std::string text = "'";
  for (const char c : path) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string summary_text(const Report& report, std::string_view folder, std::size_t columns) {
  const Statistics& statistics = *report.statistics;
  const RunInfo& run = *report.run;
  TextPage page(columns);
  page.line(title(run));
  page.cut_line("  " + command_text(run));
  write_disturbance(page, report);
  write_recovered(page, run);
  write_devices(page, report);
  write_host(page, run);
  write_iterations(page, report);
  write_phases(page, statistics);
  write_interruptions(page, run);
  write_losses(page, report);
  write_diagnoses(page, report);
  write_metrics(page, report);
  write_code(page, report);
  write_tables(page, statistics);
  page.empty_line();
  page.whole_line("  tables: " + one_line(folder, folder.size()) +
                  (run.files_not_written == 0
                       ? std::string()
                       : " (not all: " + plural(run.files_not_written, "file") + " could not be written)"));
  if (!folder.empty()) page.whole_line("  next: inject report " + typed(folder, run) + " -o report.html");
  return page.text();
}

}  // namespace inject
