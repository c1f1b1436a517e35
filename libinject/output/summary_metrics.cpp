// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/format.h"
#include "libinject/output/summary_parts.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/report/display_text.h"

namespace inject {

/// Means over the windows, and the long kernels that leave most of the device unused.
void write_metrics(TextPage& page, const Report& report) {
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
    if (devices.size() > 1) text += str_format(" on GPU {}", device);
    std::string_view between = ": ";
    for (std::size_t m = 0; m < metrics.size(); ++m) {
      if (!is_percentage(metrics[m]) || !means[m].value()) continue;
      const std::string_view title = metrics[m].title;
      text.append(between).append(title.substr(0, title.find(" ("))).append(" ");
      text += percent_text(*means[m].value());
      between = ", ";
    }
    page.empty_line();
    page.paragraph("  ", text);
    std::uint64_t total = 0;
    for (const MeasuredKernel& kernel : kernels) {
      if (kernel.row.detail.device == device) total += kernel.row.measured.time;
    }
    constexpr std::size_t kMaxNamed = 3;
    std::size_t named = 0;
    for (const MeasuredKernel& kernel : kernels) {
      if (kernel.row.detail.device != device) continue;
      // As with grids, less than 1 % is not worth mentioning.
      if (named == kMaxNamed || *kernel.unused_time * 100 < total) break;
      ++named;
      text = str_format("    {} unused, {} at {}", time_text(static_cast<double>(*kernel.unused_time)),
                        kernel.busiest, percent_text(*kernel.utilization));
      if (kernel.achieved_occupancy && kernel.theoretical_occupancy) {
        text += ", occupancy " + percent_text(*kernel.achieved_occupancy) + " of " +
                percent_text(*kernel.theoretical_occupancy);
      }
      text += ": ";
      page.named_line(text, kernel.row.detail.name);
    }
  }
}

}  // namespace inject
