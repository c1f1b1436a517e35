// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/measured_kernels.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "libinject/analysis/product_shares.h"
#include "libinject/analysis/shape_work.h"
#include "libinject/report/device_specs.h"
#include "libinject/stats/kernel_use.h"

namespace inject {

namespace {

/// Share of a kernel name's time that must lie in calls of known work for that work to count as the kernel's.
constexpr double kMinInCalls = 0.9;

/// Maximum ratio between the rates of calls that share a kernel name, for each launch shape to count as
/// having the overall rate.
constexpr double kAlike = 1.1;

/// What the kernels of one name compute, according to the library calls that launched them.
struct NamedWork {
  double flops = 0;
  std::uint64_t time = 0;  // in calls of known work
  std::uint64_t all = 0;   // in total
  const ShapeWork* most = nullptr;
  std::uint64_t most_time = 0;
  // Rates of single calls, in FLOPs per nanosecond.
  double slowest = 0;
  double fastest = 0;
  std::map<std::uint32_t, std::size_t> launch_shapes;  // by device

  /// True if each launch of the name on this device computes as fast as all of them together.
  bool is_alike(std::uint32_t device) const {
    const auto shapes = launch_shapes.find(device);
    return shapes == launch_shapes.end() || shapes->second <= 1 || slowest * kAlike >= fastest;
  }
};

std::unordered_map<std::string_view, NamedWork> work_by_name(const Statistics& statistics) {
  std::unordered_map<std::string_view, NamedWork> names;
  for (const KernelFamilyRow& row : statistics.kernel_families()) names[row.name].all = row.time.sum;
  for (const DetailRow& detail : statistics.kernel_details()) {
    if (const auto found = names.find(detail.name); found != names.end() && !detail.other)
      ++found->second.launch_shapes[detail.device];
  }
  for (const CallShapeRow& call : statistics.call_shapes()) {
    if (call.entry.other || !call.entry.is_timed() || call.work.flops == 0 || call.entry.gpu.sum == 0)
      continue;
    std::vector<KernelInCalls> kernels;
    kernels.reserve(call.kernels.size());
    for (const auto& [name, share] : call.kernels) kernels.push_back({name, share.count, share.time});
    const auto shares = product_shares(kernels, static_cast<double>(call.work.flops),
                                       std::min(call.entry.executed(), call.entry.gpu.count));
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const auto found = names.find(kernels[i].name);
      if (found == names.end() || !shares[i] || *shares[i] == 0) continue;
      NamedWork& work = found->second;
      work.flops += *shares[i];
      work.time += kernels[i].time;
      if (kernels[i].time == 0) continue;
      const double rate = *shares[i] / static_cast<double>(kernels[i].time);
      work.slowest = work.slowest == 0 ? rate : std::min(work.slowest, rate);
      work.fastest = std::max(work.fastest, rate);
      if (kernels[i].time <= work.most_time) continue;
      work.most = &call.work;
      work.most_time = kernels[i].time;
    }
  }
  return names;
}

/// The metrics of a kernel by quantity.
class Measured {
 public:
  Measured(const std::vector<MetricInfo>& metrics, const KernelMetricEntry& entry)
      : metrics_(metrics), entry_(entry) {}

  bool was_measured(Quantity quantity) const {
    const MetricEstimate* const metric = find(quantity);
    return metric != nullptr && metric->measured;
  }
  std::optional<double> value(Quantity quantity) const {
    const MetricEstimate* const metric = find(quantity);
    return metric != nullptr && metric->reliable ? std::optional(metric->value) : std::nullopt;
  }
  /// Percentage of the memory's peak bandwidth, reads and writes together.
  std::optional<double> dram() const {
    const auto read = value(Quantity::kDramRead);
    const auto write = value(Quantity::kDramWrite);
    return read && write ? std::optional(std::min(*read + *write, 100.0)) : std::nullopt;
  }
  const std::string& title(Quantity quantity) const { return metrics_[index(quantity)].title; }

 private:
  std::size_t index(Quantity quantity) const {
    const auto found = std::find_if(metrics_.begin(), metrics_.end(), [quantity](const MetricInfo& metric) {
      return metric.quantity == quantity;
    });
    return static_cast<std::size_t>(found - metrics_.begin());
  }
  const MetricEstimate* find(Quantity quantity) const {
    const std::size_t i = index(quantity);
    return i < entry_.metrics.size() ? &entry_.metrics[i] : nullptr;
  }

  const std::vector<MetricInfo>& metrics_;
  const KernelMetricEntry& entry_;
};

/// A title without its unit.
std::string unit_name(std::string_view title) {
  const std::size_t unit = title.find(" (");
  return std::string(title.substr(0, unit));
}

/// The busiest unit so far.
struct Busiest {
  std::string name;
  std::optional<double> value;
  bool known = true;

  void add(bool measured, const std::optional<double>& more, std::string_view called) {
    if (!measured) return;
    known = known && more.has_value();
    if (!more || (value && *more <= *value)) return;
    value = more;
    name = called;
  }
};

void find_busiest(MeasuredKernel& kernel, const Measured& measured) {
  Busiest busiest;
  const auto add = [&](Quantity quantity) {
    if (measured.was_measured(quantity))
      busiest.add(true, measured.value(quantity), unit_name(measured.title(quantity)));
  };
  for (const Quantity pipe : {Quantity::kTensor, Quantity::kFma, Quantity::kFp64}) add(pipe);
  // The unit that the chip cannot measure may do the kernel's main work.
  const TensorCoreUse use = tensor_cores_of(kernel.row.detail.name);
  if (!measured.was_measured(Quantity::kTensor) && use.cores == TensorCores::kUsed) busiest.known = false;
  if (!measured.was_measured(Quantity::kFp64) && use.operand == Operand::kFp64) busiest.known = false;
  if (busiest.known) kernel.arithmetic = busiest.value;
  add(Quantity::kL2);
  busiest.add(measured.was_measured(Quantity::kDramRead) || measured.was_measured(Quantity::kDramWrite),
              kernel.dram, "DRAM");
  if (!busiest.known || !busiest.value) return;
  kernel.utilization = std::min(*busiest.value, 100.0);
  kernel.busiest = std::move(busiest.name);
  const std::uint64_t time = kernel.row.measured.time;
  const auto used = static_cast<std::uint64_t>(static_cast<double>(time) * *kernel.utilization / 100);
  kernel.unused_time = time - std::min(time, used);
}

std::optional<MeasuredRoofline> place_of(const KernelMetricRow& row, const std::optional<double>& dram,
                                         const std::unordered_map<std::string_view, NamedWork>& names,
                                         const RunInfo& run) {
  const DeviceSpecs specs = specs_of(run, row.detail.device);
  const double seconds = static_cast<double>(row.measured.time) * 1e-9;
  double flops = 0;
  std::optional<Arithmetic> arithmetic;
  if (const auto found = names.find(row.detail.name); found != names.end()) {
    const NamedWork& work = found->second;
    if (work.most != nullptr &&
        static_cast<double>(work.time) >= kMinInCalls * static_cast<double>(work.all) &&
        work.is_alike(row.detail.device)) {
      flops = work.flops / static_cast<double>(work.time) * static_cast<double>(row.measured.time);
      arithmetic = arithmetic_of(*work.most, tensor_cores_of(row.detail.name).cores, specs);
    }
  }
  auto place = measured_roofline(seconds, dram, flops, arithmetic, specs);
  if (place && place->share) {
    const double each = static_cast<double>(row.measured.time) / static_cast<double>(row.measured.instances);
    const PeakShare share = possible_share(*place->share, each);
    place->share = share.value;
    place->impossible = share.impossible;
    // The operations can't be right either.
    if (share.impossible) {
      place->rate = 0;
      place->roof = {};
    }
  }
  return place;
}

/// No launch has more warps than fit. A slightly higher value is clamped. A value that errors can't explain
/// has been attributed to the wrong kernel, and then all figures of this one are in doubt.
void hold_to_theoretical_occupancy(double most, const std::vector<MetricInfo>& metrics,
                                   KernelMetricEntry& entry) {
  // The error bound contains the true value in 95 of 100 cases, and there are many kernels.
  constexpr double kErrors = 2;
  constexpr double kRounding = KernelEstimates::kMaxRounded / 100;
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    const Quantity quantity = metrics[m].quantity;
    if (quantity != Quantity::kOccupancy && quantity != Quantity::kWarpsActive) continue;
    MetricEstimate& estimate = entry.metrics[m];
    if (!estimate.reliable) continue;
    if (estimate.value - kErrors * estimate.error > kRounding * most) {
      for (MetricEstimate& each : entry.metrics) each.reliable = false;
      return;
    }
    estimate.value = std::min(estimate.value, most);
  }
}

}  // namespace

std::vector<MeasuredKernel> measured_kernels(const Statistics& statistics, const RunInfo& run) {
  const std::vector<MetricInfo>& metrics = statistics.metrics().metrics();
  std::vector<MeasuredKernel> kernels;
  if (metrics.empty()) return kernels;
  const auto names = work_by_name(statistics);
  for (KernelMetricRow& row : statistics.kernel_metrics()) {
    MeasuredKernel& kernel = kernels.emplace_back();
    kernel.row = std::move(row);
    if (kernel.row.detail.other) continue;
    if (const KernelUse use = kernel_use(kernel.row.detail, run.devices); use.occupancy) {
      kernel.theoretical_occupancy = 100 * use.occupancy->share;
      if (kernel.row.measured.shared_time == 0)
        hold_to_theoretical_occupancy(*kernel.theoretical_occupancy, metrics, kernel.row.measured);
    }
    const Measured measured(metrics, kernel.row.measured);
    kernel.sm_active = measured.value(Quantity::kSmActive);
    kernel.dram = measured.dram();
    kernel.achieved_occupancy = measured.value(Quantity::kOccupancy);
    find_busiest(kernel, measured);
    kernel.place = place_of(kernel.row, kernel.dram, names, run);
  }
  return kernels;
}

std::vector<MeasuredKernel> kernels_by_unused_time(std::vector<MeasuredKernel> kernels) {
  std::erase_if(kernels, [](const MeasuredKernel& kernel) { return !kernel.unused_time; });
  std::stable_sort(kernels.begin(), kernels.end(), [](const MeasuredKernel& a, const MeasuredKernel& b) {
    return *a.unused_time > *b.unused_time;
  });
  return kernels;
}

}  // namespace inject
