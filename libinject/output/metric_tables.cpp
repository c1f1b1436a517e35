// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/metric_tables.h"

#include <algorithm>
#include <utility>

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
  return columns + ",Name";
}

void kernel_metric_rows(const Statistics& statistics, const RunInfo&, std::string& text,
                        const TextSink& sink) {
  for (const KernelMetricRow& entry : statistics.kernel_metrics()) {
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

WindowMetricCells::WindowMetricCells(const Statistics& statistics)
    : metrics_(statistics.metrics().metrics().size()), windows_(statistics.metrics().windows()) {
  for (std::size_t m = 0; m < metrics_; ++m) {
    if (utilization_title(statistics.metrics().metrics()[m].quantity) != nullptr) summed_.push_back(m);
  }
}

void WindowMetricCells::append(CsvRow& row, std::uint32_t window, std::span<const WindowDeviceRow> devices,
                               std::uint64_t duration) const {
  struct Mean {
    double sum = 0;
    double weight = 0;
    std::optional<double> value() const { return weight > 0 ? std::optional(sum / weight) : std::nullopt; }
  };
  std::vector<Mean> means(metrics_);
  std::vector<Mean> utilizations(metrics_);
  std::vector<bool> unknown(metrics_, duration == 0);
  for (const WindowDeviceRow& device : devices) {
    const auto found = std::lower_bound(windows_.begin(), windows_.end(), std::pair(window, device.device),
                                        [](const WindowMetrics& entry, const auto& key) {
                                          return std::pair(entry.window, entry.device) < key;
                                        });
    // A device that was not sampled has no part in the means.
    if (found == windows_.end() || found->window != window || found->device != device.device) continue;
    for (std::size_t m = 0; m < metrics_; ++m) {
      if (found->means[m]) {
        means[m].sum += *found->means[m] * static_cast<double>(found->sampled_time);
        means[m].weight += static_cast<double>(found->sampled_time);
      }
      utilizations[m].weight += static_cast<double>(device.time(duration));
      utilizations[m].sum += found->kernel_sums[m].value_or(0);
      unknown[m] = unknown[m] || !found->kernel_sums[m];
    }
  }
  for (const Mean& mean : means) optional_cell(row, mean.value());
  for (const std::size_t m : summed_) optional_cell(row, unknown[m] ? std::nullopt : utilizations[m].value());
}

}  // namespace inject
