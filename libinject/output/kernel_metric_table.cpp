// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// kernel_metrics.csv (docs/metrics.md).
#include "libinject/output/metric_columns.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

using namespace units;

bool has_metrics(const Report& report) {
  return report.statistics->metrics().active();
}

Columns<MeasuredKernel> kernel_metric_columns(const Report& report) {
  Columns<MeasuredKernel> columns;
  add_launch_columns(columns, [](const MeasuredKernel& kernel) {
    return kernel.row.detail.other ? nullptr : &kernel.row.detail;
  });
  const auto measured = columns.of([](const MeasuredKernel& kernel) { return &kernel.row.measured; });
  measured
      .add("Total Time (ns)", kTime, &KernelMetricEntry::time,
           "Time of all executions, with or without samples.")
      .add("Instances", kCount, &KernelMetricEntry::instances, "Executions.")
      .add("Samples", kCount, &KernelMetricEntry::samples, "Samples in which any of them ran.")
      .add(
          "Shared (%)", kPercent,
          [](const KernelMetricEntry& entry) {
            return cell_if(entry.sampled_time != 0, percent(entry.shared_time, entry.sampled_time));
          },
          "Share of the sampled time in which a kernel of another row ran as well.", "no sampled time")
      .add(
          "Reliable", kText, [](const KernelMetricEntry& entry) { return entry.reliable() ? "yes" : "no"; },
          "`yes`: every metric that was measured has a value, except those of links.");
  const std::vector<MetricInfo>& metrics = report.statistics->metrics().metrics();
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    columns
        .of(
            [m](const MeasuredKernel& kernel) {
              const MetricEstimate& estimate = kernel.row.measured.metrics[m];
              return estimate.reliable ? &estimate : nullptr;
            },
            "fewer than 10 samples, the error is too large, or there is more occupancy than possible "
            "(metrics.md)")
        .add(metrics[m].title, kMetric, &MetricEstimate::value, "What the device did while the kernel ran.")
        .add("± " + metrics[m].title, kMetric, &MetricEstimate::error,
             "Half the width of the interval that contains the true value in 95 of 100 cases.");
  }
  columns
      .add("Theoretical Occupancy (%)", kPercent, &MeasuredKernel::theoretical_occupancy,
           "As in kernel_detail.csv.", "the device's limits are not known")
      .add("Busiest Unit", kText, &MeasuredKernel::busiest,
           "The one with the largest value among the tensor, FMA and FP64 pipes, L2 cache and memory.",
           "one of them has no value")
      .add("Utilization (%)", {"%", "0 … 100", 2}, &MeasuredKernel::utilization,
           "The value of the busiest unit.", "as Busiest Unit")
      .add("Unused Time (ns)", kTime, &MeasuredKernel::unused_time, "Total Time · (1 - Utilization).",
           "as Busiest Unit");
  using Roofline = MeasuredRoofline;
  columns
      .of(&MeasuredKernel::place, "memory traffic was not measured; nothing is known about what is computed")
      .add(
          "DRAM Traffic (MB)", kMegabytes, [](const Roofline& of) { return megabytes(of.bytes); },
          "Traffic to and from device memory, over all executions.")
      .add(
          "TFLOP/s", kTeraflops, [](const Roofline& of) { return cell_if(of.rate > 0, of.rate / 1e12); },
          "FLOPs of the kernel's library calls / the kernel's time.")
      .add(
          "FLOP/Byte", kIntensity,
          [](const Roofline& of) { return cell_if(of.roof.intensity > 0, of.roof.intensity); },
          "Based on the measured traffic.")
      .add(
          "Bound", kText, [](const Roofline& of) { return bound_name(of.roof.bound); },
          "`memory` or `compute`, based on the measured traffic.")
      .add(
          "Roofline (%)", kRateShare, [](const Roofline& of) { return percent(of.share); },
          "Rate as a share of the attainable rate; without a rate, the share of the peak memory bandwidth.");
  columns.add(
      "Name", kText, [](const MeasuredKernel& kernel) { return kernel.row.detail.name; },
      "The kernel's fully demangled name.");
  return columns;
}

const std::vector<MeasuredKernel>& kernel_metric_rows(const Report& report) {
  return report.measured_kernels;
}

}  // namespace

TableFile kernel_metric_table() {
  return make_table<kernel_metric_columns, kernel_metric_rows>(
      "kernel_metrics.csv", "Hardware metrics of a kernel with one launch shape (metrics.md).", has_metrics,
      "with `INJECT_METRICS`");
}

}  // namespace inject
