// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/metric_tables.h"

#include <utility>

#include "libinject/output/table_cells.h"

namespace inject {

const char* utilization_title(Quantity quantity) {
  switch (quantity) {
    case Quantity::kFma:
      return "FP32 Utilization (%)";
    case Quantity::kTensor:
      return "Tensor Utilization (%)";
    default:
      return nullptr;
  }
}

bool takes_metrics(const Report& report) {
  return report.statistics->metrics().active();
}

Columns<MeasuredKernel> kernel_metric_columns(const Report& report) {
  using namespace units;
  static constexpr std::string_view kOther = "the row `[other]`";
  Columns<MeasuredKernel> columns;
  const auto launch = [&columns](std::string header, auto of, std::string_view meaning) {
    columns.add(
        std::move(header), kCount,
        [of](const MeasuredKernel& kernel) {
          return cell_if(!kernel.row.detail.other, of(kernel.row.detail));
        },
        meaning, kOther);
  };
  const auto size = [](auto side, std::size_t i) {
    return [side, i](const DetailRow& row) { return (row.*side)[i]; };
  };
  launch(
      "Device", [](const DetailRow& row) { return row.device; }, "The GPU, as the process numbers them.");
  launch("GrdX", size(&DetailRow::grid, 0), "Blocks in x.");
  launch("GrdY", size(&DetailRow::grid, 1), "Blocks in y.");
  launch("GrdZ", size(&DetailRow::grid, 2), "Blocks in z.");
  launch("BlkX", size(&DetailRow::block, 0), "Threads of a block in x.");
  launch("BlkY", size(&DetailRow::block, 1), "Threads of a block in y.");
  launch("BlkZ", size(&DetailRow::block, 2), "Threads of a block in z.");
  const auto measured = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning,
                                   std::string_view empty = {}) {
    columns.add(
        std::move(header), unit, [of](const MeasuredKernel& kernel) { return of(kernel.row.measured); },
        meaning, empty);
  };
  measured(
      "Total Time (ns)", kTime, [](const KernelMetricEntry& entry) { return entry.time; },
      "Of all executions, with samples or without.");
  measured(
      "Instances", kCount, [](const KernelMetricEntry& entry) { return entry.instances; }, "Executions.");
  measured(
      "Samples", kCount, [](const KernelMetricEntry& entry) { return entry.samples; },
      "Samples in which any of them ran.");
  measured(
      "Shared (%)", kPercent,
      [](const KernelMetricEntry& entry) {
        return cell_if(entry.sampled_time != 0, percent(entry.shared_time, entry.sampled_time));
      },
      "Share of the sampled time in which a kernel of another row ran as well.", "no sampled time");
  measured(
      "Reliable", kText, [](const KernelMetricEntry& entry) { return entry.reliable() ? "yes" : "no"; },
      "`yes`: every metric that was measured has a value, links' aside.");
  const std::vector<MetricInfo>& metrics = report.statistics->metrics().metrics();
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    const auto estimate = [&columns, m](std::string header, double MetricEstimate::*member,
                                        std::string_view meaning) {
      columns.add(
          std::move(header), kMetric,
          [m, member](const MeasuredKernel& kernel) {
            const MetricEstimate& metric = kernel.row.measured.metrics[m];
            return cell_if(metric.reliable, metric.*member);
          },
          meaning, "fewer than 10 samples, or the error is too large (metrics.md)");
    };
    estimate(metrics[m].title, &MetricEstimate::value, "What the device did while the kernel ran.");
    estimate("± " + metrics[m].title, &MetricEstimate::error,
             "Half the width of the interval that holds the true value in 95 of 100 cases.");
  }
  const auto add = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning,
                              std::string_view empty) {
    columns.add(
        std::move(header), unit, [of](const MeasuredKernel& kernel) { return of(kernel); }, meaning, empty);
  };
  const auto place = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning) {
    columns.add(
        std::move(header), unit,
        [of](const MeasuredKernel& kernel) { return kernel.place ? Cell(of(*kernel.place)) : Cell(); },
        meaning, "the memory's traffic was not measured; nothing is known of what is computed");
  };
  add(
      "Theoretical Occupancy (%)", kPercent,
      [](const MeasuredKernel& kernel) { return kernel.theoretical_occupancy; }, "As in kernel_detail.csv.",
      "the device's limits are not known");
  add(
      "Busiest Unit", kText, [](const MeasuredKernel& kernel) { return std::string_view(kernel.busiest); },
      "Of tensor, FMA and FP64 pipe, L2 cache and memory, the one with the largest value.",
      "one has no value");
  add(
      "Utilization (%)", {"%", "0 … 100", 2}, [](const MeasuredKernel& kernel) { return kernel.utilization; },
      "Its value.", "as Busiest Unit");
  add(
      "Unused Time (ns)", kTime, [](const MeasuredKernel& kernel) { return kernel.unused_time; },
      "Total Time · (1 - Utilization).", "as Busiest Unit");
  place(
      "DRAM Traffic (MB)", kMegabytes, [](const MeasuredRoofline& at) { return megabytes(at.bytes); },
      "To and from the device's memory, of all executions.");
  place(
      "TFLOP/s", kTeraflops, [](const MeasuredRoofline& at) { return cell_if(at.rate > 0, at.rate / 1e12); },
      "What the kernel's library calls compute, by its time.");
  place(
      "FLOP/Byte", kIntensity,
      [](const MeasuredRoofline& at) { return cell_if(at.roof.intensity > 0, at.roof.intensity); },
      "By the measured traffic.");
  place(
      "Bound", kText, [](const MeasuredRoofline& at) { return bound_name(at.roof.bound); },
      "`memory` or `compute`, by the measured traffic.");
  place(
      "Roofline (%)", kRateShare, [](const MeasuredRoofline& at) { return percent(at.share); },
      "Rate by what is attainable; without a rate, the share of the memory's peak bandwidth.");
  columns.add(
      "Name", kText, [](const MeasuredKernel& kernel) { return kernel.row.detail.name; },
      "The kernel, demangled in full.");
  return columns;
}

const std::vector<MeasuredKernel>& kernel_metric_rows(const Report& report) {
  return report.measured_kernels;
}

}  // namespace inject
