// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/statistics.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "libinject/analysis/copies.h"
#include "libinject/stats/call_times.h"
#include "libinject/stats/collective_table.h"
#include "libinject/stats/collector_input.h"
#include "libinject/stats/family_table.h"
#include "libinject/stats/iteration_metrics.h"
#include "libinject/stats/kernel_tables.h"
#include "libinject/stats/library_table.h"
#include "libinject/stats/range_phases.h"
#include "libinject/stats/range_tables.h"
#include "libinject/stats/table_rows.h"
#include "libinject/stats/window_totals.h"

namespace inject {

struct Statistics::Collectors {
  Collectors(const NameTable& names, const RangeTree& tree, const ShapeTable& shapes)
      : ranges(budget, names, tree), families(names), range_phases(names, tree), code_times(names, shapes) {}

  SampleBudget budget;
  KernelTables kernels{budget};
  ApiTable apis{budget};
  OperationTable operations{budget};
  RangeTables ranges;
  LibraryTable libraries;
  CallShapeStatistics call_shapes;
  CollectiveTable collectives;
  FamilyTable families;
  WindowTotals windows;
  IterationStatistics iterations;
  FetchStatistics fetches;
  PhaseStatistics phases;
  RangePhases range_phases;
  DeviceTimeStatistics device_times;
  CopyStatistics copies;
  CodeTimes code_times;
  KernelMetrics metrics;  // its rows are those of the kernels' details
  static_assert(KernelMetrics::kMaxRows == kMaxRows);
  IterationMetrics iteration_metrics;
  FunctionKinds functions;

  // The results of Statistics::call_shapes(), kernel_details() and kernel_families(), until something
  // changes.
  std::optional<std::vector<CallShapeRow>> call_shape_rows;
  std::optional<std::vector<DetailRow>> detail_rows;
  std::optional<std::vector<KernelFamilyRow>> kernel_family_rows;
};

void DeviceWork::merge(const DeviceWork& more) {
  kernels.merge(more.kernels);
  copies += more.copies;
  copy_time += more.copy_time;
  copy_bytes += more.copy_bytes;
  memsets += more.memsets;
  memset_time += more.memset_time;
  memset_bytes += more.memset_bytes;
  unattributed += more.unattributed;
}

void HostWork::merge(const HostWork& more) {
  api_calls += more.api_calls;
  api_time += more.api_time;
  library_calls += more.library_calls;
  submissions += more.submissions;
  ranges += more.ranges;
  clipped_ranges += more.clipped_ranges;
  flops.merge(more.flops);
  lost = lost || more.lost;
}

bool is_api_function(FunctionId function) {
  const FunctionGroup group = function_group(function);
  return group == FunctionGroup::kCudart || group == FunctionGroup::kDriver;
}

Statistics::Statistics(const NameTable& names, const RangeTree& ranges, const ShapeTable& shapes)
    : collectors_(std::make_unique<Collectors>(names, ranges, shapes)), names_(names), shapes_(shapes) {}

Statistics::~Statistics() = default;

void Statistics::add(const KernelEvent& event) {
  Collectors& c = *collectors_;
  const Attribution& launch = event.launch;
  const std::uint64_t time = duration_between(event.start, event.end);
  const CallChain path = library_path(launch);
  c.call_shape_rows.reset();
  c.detail_rows.reset();
  c.kernel_family_rows.reset();

  const std::uint32_t detail = c.kernels.add(event, time);
  if (c.metrics.active()) c.metrics.kernel(launch.window, event.device, detail, event.start, event.end);
  count(c.windows.work(launch.window, event.device, event.start, event.end), event);
  c.iterations.activity(iteration_activity(event));
  if (path != 0) count(c.libraries.work(path), event);
  if (c.call_shapes.add(event)) {
    // At the end of the graph launch, as for other calls.
    add_flops(launch.shape, launch.window, launch.host_end);
  }

  if (launch.known) c.fetches.kernel(launch.window, launch.thread);
  const Family family = c.families.add(event, path, shapes_.kind(launch.shape), time);
  const bool collective = is_collective(family);
  c.device_times.work(launch.window, event.device,
                      timed_work(event, collective, c.functions.of(launch.function).state));
  PhasedWork phased = phased_work(event);
  phased.range_phase = c.range_phases.of(launch.range);
  phased.optimizer = family == Family::kOptimizer;
  c.phases.work(launch.window, phased);
  c.copies.kernel(launch.window, event.device, event.start, event.end);
  c.collectives.add(event, collective, time);
  c.ranges.add(event, time);
  c.code_times.kernel(event, detail);
}

void Statistics::add(const TransferEvent& event) {
  Collectors& c = *collectors_;
  const Attribution& launch = event.launch;
  const std::uint32_t operation = operation_of(event);
  if (!event.memset) c.copies.add(event, operation);
  c.operations.add(operation, duration_between(event.start, event.end), event.bytes);
  count(c.windows.work(launch.window, event.device, event.start, event.end), event);
  c.iterations.activity(iteration_activity(event));
  const TimedWork timed = timed_work(event, c.functions.of(launch.function).state);
  c.device_times.work(launch.window, event.device, timed);
  PhasedWork phased = phased_work(event);
  phased.range_phase = c.range_phases.of(launch.range);
  c.phases.work(launch.window, phased);
  // Copied to read a value, as loss.item() does, rather than for the data.
  if (timed.kind == TimedWorkKind::kDownload && event.bytes < kSmallCopy && launch.known)
    c.device_times.small_download(launch.window, launch.thread, launch.host_begin);
  if (const CallChain path = library_path(launch); path != 0) count(c.libraries.work(path), event);
  c.code_times.copy(event);
}

void Statistics::add(const CallEvent& event) {
  Collectors& c = *collectors_;
  c.call_shape_rows.reset();
  c.call_shapes.add(event);
  const std::uint64_t time = duration_between(event.begin, event.end);
  if (event.chain == 0) {
    const FunctionKinds::Kind& kind = c.functions.of(event.function);
    c.device_times.call(event.window, event.thread,
                        {event.begin, event.end, event.function, kind.state, kind.asks,
                         kind.waits_for_all && event.status == 0});
    c.copies.call(event, kind.state);
  }
  HostWork& window = c.windows.host(event.window);
  if (event.correlation != 0 && event.status == 0 && !event.captured) {
    ++window.submissions;
    c.iterations.launch(event.window, event.begin);
  }
  if (is_library_function(event.function)) {
    ++window.library_calls;
    if (function_group(event.function) == FunctionGroup::kNccl) c.collectives.expect();
    if (event.owns_shape && event.status == 0 && !c.call_shapes.is_captured(event)) {
      // At the call's end: its first launch may be the one that begins the iteration.
      add_flops(event.shape, event.window, event.end);
    }
    c.libraries.add_call(event, time);
  } else if (is_api_function(event.function)) {
    ++window.api_calls;
    window.api_time += time;
    c.apis.add(event.function, time);
  }
}

void Statistics::add_short_calls(std::uint32_t window, std::span<const ShortCallsRecord::Call> calls) {
  Collectors& c = *collectors_;
  HostWork& host = c.windows.host(window);
  host.api_calls += calls.size();
  for (const ShortCallsRecord::Call& call : calls) {
    host.api_time += call.duration;
    c.apis.add(call.function, call.duration);
  }
}

void Statistics::add(const RangeEvent& event) {
  Collectors& c = *collectors_;
  c.ranges.add(event, duration_between(event.begin, event.end));
  HostWork& window = c.windows.host(event.window);
  ++window.ranges;
  if (event.clipped) ++window.clipped_ranges;
}

void Statistics::add_flops(std::uint32_t shape, std::uint32_t window, Nanoseconds time) {
  const ShapeWork work = work_of(shapes_.shape(shape));
  collectors_->windows.host(window).flops.add(best_arithmetic(work), work.flops);
  collectors_->iterations.flops(window, time, best_arithmetic(work), work.flops);
}

void Statistics::add(const ProcessorTimeEvent& event) {
  collectors_->device_times.reading(event.window, event.thread, {event.time, event.processor, event.waits});
}

void Statistics::add(const FetchEvent& event) {
  collectors_->fetches.fetch(event);
  collectors_->device_times.fetch(event.window, event.thread, {event.begin, event.end, event.kind});
}

void Statistics::add(const MetricSample& sample) {
  collectors_->metrics.sample(sample);
}

void Statistics::add_other_kernel(std::uint32_t device, Nanoseconds start, Nanoseconds end) {
  collectors_->metrics.other_kernel(device, start, end);
}

void Statistics::add_named(const KernelEvent& event) {
  collectors_->code_times.named(event);
}

void Statistics::add_named(const TransferEvent& event) {
  collectors_->code_times.named(event);
}

void Statistics::add_named_wait(std::uint32_t thread, Nanoseconds begin, Nanoseconds end,
                                std::uint32_t place) {
  collectors_->code_times.named_wait(thread, begin, end, place);
}

void Statistics::add_stack(std::uint32_t thread, Nanoseconds time, std::uint32_t stack) {
  collectors_->code_times.sample(thread, time, stack);
}

void Statistics::add_graph(std::uint32_t window, std::uint16_t number, const CapturedGraph& graph,
                           const std::function<std::uint32_t(std::uint32_t)>& demangled) {
  collectors_->code_times.graph(window, number, graph, demangled);
}

bool Statistics::wants_graph(std::uint32_t window, std::uint16_t number) const {
  return collectors_->code_times.wants_graph(window, number);
}

void Statistics::expect_names(CodePlaces& places) {
  Collectors& c = *collectors_;
  c.code_times.expect(places);
  c.device_times.tell_gaps([&c](std::uint32_t window, const IdleGap& gap) { c.code_times.gap(window, gap); });
}

void Statistics::tell_places(std::function<void(std::span<const PlacedLaunch>)> tell) {
  collectors_->code_times.tell_places(std::move(tell));
}

void Statistics::join_samples_until(Nanoseconds time) {
  collectors_->metrics.join_until(time);
}

void Statistics::set_metrics(std::vector<MetricInfo> list) {
  collectors_->metrics.metrics(std::move(list));
}

void Statistics::threads_are_named_by(std::function<std::string(std::uint32_t)> name) {
  collectors_->phases.threads_are_named_by(std::move(name));
}

void Statistics::iteration_boundary(const IterationBoundary& boundary) {
  collectors_->iterations.boundary(boundary);
  collectors_->code_times.boundary(boundary.begin);
}

void Statistics::lost_work(const Attribution& launch) {
  if (launch.window == 0) return;
  const Nanoseconds begin = launch.known ? launch.host_begin : 0;
  // FLOPs are counted by calls, and only those of captured ones by kernels.
  if (!launch.known || launch.graph != 0) collectors_->windows.host(launch.window).lost = true;
  collectors_->call_shape_rows.reset();
  collectors_->call_shapes.lost_work(launch);
  collectors_->iterations.lost_work(launch.window, begin);
  collectors_->device_times.lost_work(launch.window, begin);
  collectors_->copies.lost_work(launch.window);
  collectors_->collectives.lost_work(launch.window);
}

void Statistics::lost_launches(std::uint32_t window) {
  if (window == 0) return;
  collectors_->windows.host(window).lost = true;
  // Without the record of its launch, a kernel belongs to no call.
  Attribution unknown;
  unknown.window = window;
  collectors_->call_shape_rows.reset();
  collectors_->call_shapes.lost_work(unknown);
  collectors_->iterations.lost_work(window, 0);
}

void Statistics::settle_times(std::uint32_t window, Nanoseconds begin, Nanoseconds end) {
  collectors_->device_times.settle_window(window, begin, end);
  collectors_->phases.settle_window(window);
}

void Statistics::settle_window(std::uint32_t window, Nanoseconds begin, Nanoseconds end) {
  Collectors& c = *collectors_;
  settle_times(window, begin, end);
  c.windows.settle(window);
  c.iterations.settle_window(window, begin, end);
  c.fetches.settle_window(window, begin, end, c.iterations);
  c.call_shape_rows.reset();
  c.call_shapes.settle(window);
  c.collectives.settle(window);
  c.copies.settle_window(window);
  c.code_times.settle_window(window);
  if (c.metrics.active()) c.iteration_metrics.note(window, c.iterations, c.metrics);
  c.metrics.settle_window(window);
}

std::vector<TimeRow> Statistics::kernels() const {
  return collectors_->kernels.kernels(names_);
}

std::vector<ShapeRow> Statistics::kernel_shapes() const {
  return collectors_->kernels.shapes(names_);
}

const std::vector<DetailRow>& Statistics::kernel_details() const {
  Collectors& c = *collectors_;
  if (c.detail_rows) return *c.detail_rows;
  // The table of families has already classified most names.
  const auto known = c.families.tensor_cores();
  return c.detail_rows.emplace(c.kernels.details(names_, [&](std::uint32_t name) {
    const auto found = known.find(name);
    return found != known.end() ? found->second : tensor_cores_of(names_.name(name)).cores;
  }));
}

std::vector<KernelMetricRow> Statistics::kernel_metrics() const {
  return collectors_->kernels.with_details(collectors_->metrics.rows(), names_);
}

std::vector<TimeRow> Statistics::api_calls() const {
  return collectors_->apis.rows();
}

std::vector<TimeRow> Statistics::operation_times() const {
  return collectors_->operations.times();
}

std::vector<TimeRow> Statistics::operation_sizes() const {
  return collectors_->operations.sizes();
}

std::vector<RangeRow> Statistics::ranges() const {
  return collectors_->ranges.ranges();
}

std::vector<RangeKernelRow> Statistics::range_kernels() const {
  return collectors_->ranges.kernels();
}

std::vector<LibraryRow> Statistics::library_calls() const {
  return collectors_->libraries.rows();
}

std::vector<ThreadRow> Statistics::threads() const {
  return collectors_->kernels.threads();
}

const std::vector<CallShapeRow>& Statistics::call_shapes() const {
  Collectors& c = *collectors_;
  if (c.call_shape_rows) return *c.call_shape_rows;
  std::vector<CallShapeRow> rows;
  for (CallShapeEntry& entry : c.call_shapes.rows()) {
    CallShapeRow& row = rows.emplace_back();
    if (entry.other) {
      row.function = kOtherName;
    } else {
      row.function = entry.function == kNoFunction ? std::string_view() : function_name(entry.function);
      row.shape = shapes_.shape(entry.shape);
      row.work = work_of(row.shape);
    }
    for (const KernelShare& share : entry.names)
      row.kernels.emplace_back(share.name == 0 ? kOtherName : names_.name(share.name), share);
    row.entry = std::move(entry);
  }
  return c.call_shape_rows.emplace(std::move(rows));
}

std::vector<FamilyRow> Statistics::families() const {
  return collectors_->families.families();
}

const std::vector<KernelFamilyRow>& Statistics::kernel_families() const {
  Collectors& c = *collectors_;
  if (!c.kernel_family_rows) c.kernel_family_rows = c.families.by_name();
  return *c.kernel_family_rows;
}

std::vector<std::pair<std::string_view, Totals>> Statistics::unshaped_kernels(Family family) const {
  return collectors_->families.unshaped_kernels(family);
}

UnshapedWork Statistics::unshaped_work(bool (*of)(Family)) const {
  return collectors_->families.unshaped_work(of);
}

std::vector<CollectiveRow> Statistics::collectives() const {
  return collectors_->collectives.rows(call_shapes(), names_);
}

std::vector<WindowDeviceRow> Statistics::window_devices() const {
  std::vector<WindowDeviceRow> rows = collectors_->windows.device_rows();
  for (WindowDeviceRow& row : rows) row.times = collectors_->device_times.row(row.window, row.device);
  return rows;
}

std::vector<WindowHostRow> Statistics::window_hosts() const {
  return collectors_->windows.host_rows();
}

const IterationStatistics& Statistics::iterations() const {
  return collectors_->iterations;
}

const FetchStatistics& Statistics::fetches() const {
  return collectors_->fetches;
}

const DeviceTimeStatistics& Statistics::device_times() const {
  return collectors_->device_times;
}

const KernelMetrics& Statistics::metrics() const {
  return collectors_->metrics;
}

std::span<const WeightedMean> Statistics::iteration_metrics(const IterationRow& row,
                                                            std::uint32_t device) const {
  return collectors_->iteration_metrics.means(row, device);
}

std::vector<PhaseRow> Statistics::phases() const {
  return collectors_->phases.rows();
}

const CopyStatistics& Statistics::copies() const {
  return collectors_->copies;
}

const CodeTimes& Statistics::code_times() const {
  return collectors_->code_times;
}

std::uint64_t Statistics::late_for_busy_time() const {
  return collectors_->windows.late() + collectors_->iterations.late() + collectors_->collectives.late() +
         collectors_->copies.late();
}

std::uint64_t Statistics::left_out_of_device_times() const {
  return collectors_->device_times.left_out();
}

DeviceWork Statistics::device_total() const {
  return collectors_->windows.device_total();
}

HostWork Statistics::host_total() const {
  return collectors_->windows.host_total();
}

}  // namespace inject
