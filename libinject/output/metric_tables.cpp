// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/metric_tables.h"

#include <algorithm>
#include <utility>

#include "libinject/output/measured_kernels.h"

namespace inject {

namespace {

constexpr int kDecimals = 2;

/// The studies' utilization is that of what multiplies: null for any other metric.
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

/// With its comma, as a field of CSV: users name metrics as they like.
void append_column(std::string& columns, const std::string& title) {
  columns += ',';
  CsvRow(columns).text(title);
}

void optional_cell(CsvRow& row, const std::optional<double>& value) {
  if (value) {
    row.decimal(*value, kDecimals);
  } else {
    row.empty();
  }
}

/// From Theoretical Occupancy to Roofline.
void measured_cells(CsvRow& row, const MeasuredKernel& kernel) {
  if (kernel.theoretical_occupancy) {
    row.decimal(*kernel.theoretical_occupancy, 1);
  } else {
    row.empty();
  }
  row.text(kernel.busiest);
  optional_cell(row, kernel.utilization);
  if (kernel.unused_time) {
    row.number(*kernel.unused_time);
  } else {
    row.empty();
  }
  if (!kernel.place) {
    for (int i = 0; i < 5; ++i) row.empty();
    return;
  }
  const MeasuredRoofline& place = *kernel.place;
  row.decimal(place.bytes / 1e6, 3);
  if (place.rate > 0) {
    row.decimal(place.rate / 1e12, 3);
  } else {
    row.empty();
  }
  if (place.roof.intensity > 0) {
    row.decimal(place.roof.intensity, 2);
  } else {
    row.empty();
  }
  row.text(bound_name(place.roof.bound));
  if (place.share) {
    row.decimal(100 * *place.share, 1);
  } else {
    row.empty();
  }
}

}  // namespace

bool takes_metrics(const Statistics& statistics) {
  return statistics.metrics().active();
}

std::string kernel_metric_columns(const Statistics& statistics) {
  std::string columns;
  for (const MetricInfo& metric : statistics.metrics().metrics()) {
    append_column(columns, metric.title);
    append_column(columns, "± " + metric.title);
  }
  return columns +
         ",Theoretical Occupancy (%),Busiest Unit,Utilization (%),Unused Time (ns),DRAM Traffic (MB),TFLOP/s,"
         "FLOP/Byte,Bound,Roofline (%),Name";
}

void kernel_metric_rows(const Statistics& statistics, const RunInfo& run, std::string& text,
                        const TextSink& sink) {
  for (const MeasuredKernel& kernel : measured_kernels(statistics, run)) {
    const KernelMetricRow& entry = kernel.row;
    const KernelMetricEntry& measured = entry.measured;
    CsvRow row(text);
    if (entry.detail.other) {
      for (int i = 0; i < 7; ++i) row.empty();
    } else {
      row.number(entry.detail.device);
      for (const std::int32_t size : entry.detail.grid) row.number(size);
      for (const std::int32_t size : entry.detail.block) row.number(size);
    }
    row.number(measured.time).number(measured.instances).number(measured.samples);
    if (measured.sampled_time == 0) {
      row.empty();
    } else {
      row.decimal(
          100.0 * static_cast<double>(measured.shared_time) / static_cast<double>(measured.sampled_time), 1);
    }
    row.text(measured.reliable() ? "yes" : "no");
    for (const MetricEstimate& metric : measured.metrics) {
      if (metric.reliable) {
        row.decimal(metric.value, kDecimals).decimal(metric.error, kDecimals);
      } else {
        row.empty().empty();
      }
    }
    measured_cells(row, kernel);
    row.text(entry.detail.name).end();
    sink(text);
  }
}

std::string window_metric_columns(const Statistics& statistics) {
  std::string columns;
  for (const MetricInfo& metric : statistics.metrics().metrics()) append_column(columns, metric.title);
  for (const MetricInfo& metric : statistics.metrics().metrics()) {
    if (const char* const title = utilization_title(metric.quantity)) append_column(columns, title);
  }
  return columns;
}

std::string iteration_metric_columns(const Statistics& statistics) {
  std::string columns;
  for (const MetricInfo& metric : statistics.metrics().metrics()) append_column(columns, metric.title);
  return columns;
}

void iteration_metric_cells(CsvRow& row, const Statistics& statistics, const IterationRow& iteration,
                            std::span<const IterationDeviceRow> devices) {
  std::vector<WeightedMean> means(statistics.metrics().metrics().size());
  if (iteration.kind == IterationRow::Kind::kPhase) {
    for (const IterationDeviceRow& device : devices) {
      const std::span<const WeightedMean> more = statistics.iteration_metrics(iteration, device.device);
      for (std::size_t m = 0; m < std::min(means.size(), more.size()); ++m) means[m].add(more[m]);
    }
  }
  for (const WeightedMean& mean : means) optional_cell(row, mean.value());
}

WindowMetricCells::WindowMetricCells(const Statistics& statistics)
    : metrics_(statistics.metrics().metrics().size()), windows_(statistics.metrics().windows()) {
  for (std::size_t m = 0; m < metrics_; ++m) {
    if (utilization_title(statistics.metrics().metrics()[m].quantity) != nullptr) summed_.push_back(m);
  }
}

void WindowMetricCells::append(CsvRow& row, std::uint32_t window, std::span<const WindowDeviceRow> devices,
                               std::uint64_t duration) const {
  std::vector<WeightedMean> means(metrics_);
  std::vector<WeightedMean> utilizations(metrics_);
  std::vector<bool> unknown(metrics_, duration == 0);
  for (const WindowDeviceRow& device : devices) {
    const auto found = std::lower_bound(windows_.begin(), windows_.end(), std::pair(window, device.device),
                                        [](const WindowMetrics& entry, const auto& key) {
                                          return std::pair(entry.window, entry.device) < key;
                                        });
    // A device that was not sampled has no part in the means.
    if (found == windows_.end() || found->window != window || found->device != device.device) continue;
    // Nor those that came before there was a sample: too few of the others tell nothing of all.
    const bool known = static_cast<double>(found->kernel_time) >=
                       KernelMetrics::kLeastKnown * static_cast<double>(device.work.kernels.sum);
    for (std::size_t m = 0; m < metrics_; ++m) {
      means[m].add(found->means[m]);
      utilizations[m].weight += static_cast<double>(device.time(duration));
      utilizations[m].sum += found->kernel_sums[m].value_or(0);
      unknown[m] = unknown[m] || !found->kernel_sums[m] || !known;
    }
  }
  for (const WeightedMean& mean : means) optional_cell(row, mean.value());
  for (const std::size_t m : summed_) optional_cell(row, unknown[m] ? std::nullopt : utilizations[m].value());
}

}  // namespace inject
