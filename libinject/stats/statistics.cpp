// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/statistics.h"

#include "libinject/analysis/copies.h"
#include "libinject/stats/tables.h"

namespace inject {

namespace {

// Of kOperations, after the copies.
constexpr std::uint32_t kMemset = kPeerToPeer + 1;
static_assert(kMemset + 1 == kOperations.size());

constexpr std::array<std::string_view, kMemoryKinds> kMemoryKindNames{
    "Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"};

std::uint32_t operation_of(const TransferEvent& event) {
  if (event.memset) return kMemset;
  if (event.copy_kind == 0 && event.peer) return kPeerToPeer;
  return event.copy_kind <= kPeerToPeer ? event.copy_kind : 0;
}

std::uint64_t duration(Nanoseconds begin, Nanoseconds end) {
  return end > begin ? end - begin : 0;
}

/// The library calls of a chain, without what lies between them.
CallChain library_chain(CallChain chain) {
  CallChain path = 0;
  for (unsigned level = 0; level < chain_depth(chain); ++level) {
    if (is_library_function(chain_at(chain, level))) path = chain_push(path, chain_at(chain, level));
  }
  return path;
}

/// The path of library calls that an activity was launched in.
CallChain library_path(const Attribution& launch) {
  if (launch.chain == 0 && !is_library_function(launch.function)) return 0;
  const CallChain path = library_chain(launch.chain);
  return is_library_function(launch.function) ? chain_push(path, launch.function) : path;
}

/// Counts what `event` stands for into `work`.
void count(DeviceWork& work, const KernelEvent& event) {
  work.kernels.add(duration(event.start, event.end));
  if (!event.launch.known) ++work.unattributed;
}

void count(DeviceWork& work, const TransferEvent& event) {
  (event.memset ? work.memsets : work.copies) += 1;
  (event.memset ? work.memset_time : work.copy_time) += duration(event.start, event.end);
  (event.memset ? work.memset_bytes : work.copy_bytes) += event.bytes;
  if (!event.launch.known) ++work.unattributed;
}

IterationActivity iteration_activity(const Attribution& launch, std::uint32_t device, Nanoseconds start,
                                     Nanoseconds end) {
  IterationActivity activity;
  activity.launch_begin = launch.known ? launch.host_begin : 0;
  activity.start = start;
  activity.end = end;
  activity.window = launch.window;
  activity.device = static_cast<std::uint16_t>(device);
  return activity;
}

/// `call`: of the call that submitted it.
template <typename Event>
TimedWork timed_work(const Event& event, TimedWorkKind kind, HostState call) {
  const Attribution& launch = event.launch;
  TimedWork work;
  work.start = event.start;
  work.end = event.end;
  work.stream = std::uint64_t{event.context} << 32 | event.stream;
  work.kind = kind;
  work.launch_known = launch.known;
  if (!launch.known) return work;
  work.launch_begin = launch.host_begin;
  work.launch_end = launch.host_end;
  work.thread = launch.thread;
  work.function = launch.function;
  work.copy_call = call == HostState::kCopy;
  return work;
}

std::uint32_t blocks_of(const KernelEvent& event) {
  std::uint64_t blocks = 1;
  for (const std::int32_t size : event.grid) blocks *= static_cast<std::uint64_t>(std::max(size, 0));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, ~std::uint32_t{0}));
}

template <typename Event>
PhasedWork phased_work(const Event& event) {
  PhasedWork work;
  work.launch_known = event.launch.known;
  work.launch_begin = event.launch.known ? event.launch.host_begin : event.start;
  work.duration = duration(event.start, event.end);
  work.thread = event.launch.thread;
  work.device = static_cast<std::uint16_t>(event.device);
  return work;
}

TimedWorkKind kind_of(const TransferEvent& event) {
  if (event.memset) return TimedWorkKind::kMemset;
  switch (event.copy_kind) {
    case kHostToDevice:
      return TimedWorkKind::kUpload;
    case kDeviceToHost:
      return TimedWorkKind::kDownload;
    default:
      return TimedWorkKind::kOtherCopy;
  }
}

}  // namespace

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
}

bool is_library_function(FunctionId function) {
  switch (function_group(function)) {
    case FunctionGroup::kCublas:
    case FunctionGroup::kCublasLt:
    case FunctionGroup::kCudnn:
    case FunctionGroup::kNccl:
      return function != kNoFunction;
    case FunctionGroup::kCudart:
    case FunctionGroup::kCupti:
    case FunctionGroup::kDriver:
      return false;
  }
  return false;
}

unsigned library_depth(CallChain chain) {
  return chain_depth(library_chain(chain));
}

bool is_api_function(FunctionId function) {
  const FunctionGroup group = function_group(function);
  return group == FunctionGroup::kCudart || group == FunctionGroup::kDriver;
}

std::string_view operation_name(const TransferEvent& event) {
  return kOperations[operation_of(event)];
}

std::string_view direction_name(std::uint32_t operation) {
  constexpr std::string_view kBefore = "[CUDA memcpy ";
  if (operation >= kMemset) return {};
  const std::string_view name = kOperations[operation];
  return name.substr(kBefore.size(), name.size() - kBefore.size() - 1);
}

std::string_view memory_kind_name(std::uint8_t kind) {
  return kMemoryKindNames[kind < kMemoryKinds ? kind : 0];
}

Statistics::Statistics(const NameTable& names, const RangeTree& ranges, const ShapeTable& shapes)
    : tables_(std::make_unique<Tables>()), names_(names), range_tree_(ranges), shapes_(shapes) {}

Statistics::~Statistics() = default;

void Statistics::add(const KernelEvent& event) {
  Tables& t = *tables_;
  const std::uint64_t time = duration(event.start, event.end);
  const auto word = [](std::int32_t value) { return static_cast<std::uint32_t>(value); };

  t.kernel_row(event.name).add(time);

  const KeyIndex<7>::Key shape{event.name,          word(event.grid[0]),  word(event.grid[1]),
                               word(event.grid[2]), word(event.block[0]), word(event.block[1]),
                               word(event.block[2])};
  const KeyIndex<12>::Key detail{shape[0],
                                 shape[1],
                                 shape[2],
                                 shape[3],
                                 shape[4],
                                 shape[5],
                                 shape[6],
                                 event.device,
                                 event.registers_per_thread,
                                 event.static_shared_bytes,
                                 event.dynamic_shared_bytes,
                                 event.local_bytes_per_thread};
  const std::uint32_t details_known = t.detail_keys.size();
  const std::uint32_t detail_index = t.detail_keys.find_or_add(detail);
  DetailEntry& entry = t.details.at(detail_index);
  // A launch's details name its shape: the second lookup is needed for new details only.
  std::uint32_t shape_index = entry.shape;
  if (detail_index == details_known || detail_index == kOtherIndex) {
    shape_index = t.shape_keys.find_or_add(shape);
    entry.shape = shape_index;
  }
  entry.time.add(time);
  if (t.metrics.active())
    t.metrics.kernel(event.launch.window, event.device, detail_index, event.start, event.end);
  t.shapes.at(shape_index, &t.budget).add(time);

  const std::uint32_t thread = event.launch.known ? event.launch.thread : kNoIndex;
  t.threads.at(t.thread_keys.find_or_add({thread, event.device}), &t.budget).add(time);
  const std::uint32_t window = t.window_device_keys.find_or_add({event.launch.window, event.device});
  count(t.window_devices.at(window), event);
  t.window_worked(window, event.start, event.end);
  t.iterations.activity(iteration_activity(event.launch, event.device, event.start, event.end));

  const CallChain path = library_path(event.launch);
  if (path != 0) count(t.libraries.at(t.library_row(path)).work, event);
  t.call_shape_rows.reset();
  t.detail_rows.reset();
  t.kernel_family_rows.reset();
  if (t.call_shapes.add(event)) {
    const ShapeWork work = work_of(shapes_.shape(event.launch.shape));
    t.window_host(event.launch.window).flops.add(best_arithmetic(work), work.flops);
    // By the end of the graph's launch, as other calls.
    t.iterations.flops(event.launch.window, event.launch.host_end, best_arithmetic(work), work.flops);
  }
  FamilyEntry& family =
      t.family_entry(event.name, call_category(path, shapes_.kind(event.launch.shape)), names_);
  family.add(time, path != 0, event.launch.known && event.launch.shape != ShapeTable::kNone);
  const bool collective = is_collective(family.family);
  TimedWork timed = timed_work(event, collective ? TimedWorkKind::kCollective : TimedWorkKind::kKernel,
                               t.function_kind(event.launch.function).state);
  if (collective) timed.blocks = blocks_of(event);
  t.device_times.work(event.launch.window, event.device, timed);
  PhasedWork phased = phased_work(event);
  phased.told = t.phase_of_node(range_tree_, names_, event.launch.range);
  phased.optimizer = family.family == Family::kOptimizer;
  t.phases.work(event.launch.window, phased);
  t.copies.kernel(event.launch.window, event.device, event.start, event.end);
  if (collective) {
    t.overlap.work(event.launch.window, event.device, event.launch.shape, event.start, event.end);
    if (event.launch.shape == ShapeTable::kNone) {
      t.unknown_collectives.add(time);
      add_share(t.unknown_collective_names, {event.name, 1, time});
    }
  } else {
    t.overlap.beside(event.launch.window, event.device, event.start, event.end);
  }

  if (!event.launch.known || event.launch.range == 0) {
    t.range_kernel_row(kOutsideRanges, thread, event.name).time.add(time);
    return;
  }
  t.any_range = true;
  const Tables::Around around = t.ranges_around(range_tree_, event.launch.range);
  for (std::uint32_t i = around.begin; i < around.begin + around.size; ++i) {
    const std::uint32_t range = t.around_ranges[i];
    RangeKernelEntry& row = t.range_kernel_row(range, thread, event.name);
    row.time.add(time);
    row.instances.add(t.instance_at(thread, range, event.launch.host_begin));
  }
}

void Statistics::add(const TransferEvent& event) {
  Tables& t = *tables_;
  const std::uint32_t operation = operation_of(event);
  if (!event.memset) t.copies.add(event, operation);
  t.operation_times[operation].add(duration(event.start, event.end));
  t.operation_sizes[operation].add(event.bytes);
  const std::uint32_t window = t.window_device_keys.find_or_add({event.launch.window, event.device});
  count(t.window_devices.at(window), event);
  t.window_worked(window, event.start, event.end);
  IterationActivity activity = iteration_activity(event.launch, event.device, event.start, event.end);
  activity.kind = event.memset ? WorkKind::kMemset : WorkKind::kCopy;
  activity.bytes = event.bytes;
  t.iterations.activity(activity);
  const TimedWorkKind kind = kind_of(event);
  t.device_times.work(event.launch.window, event.device,
                      timed_work(event, kind, t.function_kind(event.launch.function).state));
  PhasedWork phased = phased_work(event);
  (event.memset ? phased.memset : phased.copy) = true;
  phased.bytes = event.bytes;
  phased.told = t.phase_of_node(range_tree_, names_, event.launch.range);
  t.phases.work(event.launch.window, phased);
  // Copied for a value to look at, as loss.item() does, rather than for the data.
  if (kind == TimedWorkKind::kDownload && event.bytes < kSmallCopy && event.launch.known)
    t.device_times.small_download(event.launch.window, event.launch.thread, event.launch.host_begin);
  if (const CallChain path = library_path(event.launch); path != 0)
    count(t.libraries.at(t.library_row(path)).work, event);
}

void Statistics::add(const CallEvent& event) {
  Tables& t = *tables_;
  t.call_shape_rows.reset();
  t.call_shapes.add(event);
  const std::uint64_t time = duration(event.begin, event.end);
  if (event.chain == 0) {
    const Tables::FunctionKind& kind = t.function_kind(event.function);
    t.device_times.call(event.window, event.thread,
                        {event.begin, event.end, event.function, kind.state, kind.asks});
    t.copies.call(event, kind.state);
  }
  HostWork& window = t.window_host(event.window);
  if (event.correlation != 0 && event.status == 0 && !event.captured) {
    ++window.submissions;
    t.iterations.launch(event.window, event.begin);
  }
  if (is_library_function(event.function)) {
    ++window.library_calls;
    if (function_group(event.function) == FunctionGroup::kNccl) t.overlap.expect_work();
    if (event.owns_shape && event.status == 0 && !t.call_shapes.is_captured(event)) {
      const ShapeWork work = work_of(shapes_.shape(event.shape));
      window.flops.add(best_arithmetic(work), work.flops);
      // By the call's end: its first launch may be what begins the iteration.
      t.iterations.flops(event.window, event.end, best_arithmetic(work), work.flops);
    }
    LibraryEntry& row = t.libraries.at(t.library_row(chain_push(library_chain(event.chain), event.function)));
    row.host.add(time);
    if (event.status != 0) ++row.failed;
  } else if (is_api_function(event.function)) {
    ++window.api_calls;
    window.api_time += time;
    t.apis.at(t.api_keys.find_or_add({event.function}), &t.budget).add(time);
  }
}

void Statistics::add(const RangeEvent& event) {
  Tables& t = *tables_;
  t.any_range = true;
  const std::uint32_t range = t.range_of(range_tree_.node(event.node));
  // Kernels may have named ranges that have not ended yet.
  t.range_times.fill(t.range_keys.size(), &t.budget);
  t.range_times.at(range, &t.budget).add(duration(event.begin, event.end));
  t.range_ended(event.thread, range, event.end);
  HostWork& window = t.window_host(event.window);
  ++window.ranges;
  if (event.clipped) ++window.clipped_ranges;
}

void Statistics::add(const ProcessorTimeEvent& event) {
  tables_->device_times.reading(event.window, event.thread, {event.time, event.processor, event.waits});
}

void Statistics::add(const MetricSample& sample) {
  tables_->metrics.sample(sample);
}

void Statistics::add_other_kernel(std::uint32_t device, Nanoseconds start, Nanoseconds end) {
  tables_->metrics.other_kernel(device, start, end);
}

void Statistics::join_samples_until(Nanoseconds time) {
  tables_->metrics.join_until(time);
}

void Statistics::set_metrics(std::vector<MetricInfo> list) {
  tables_->metrics.metrics(std::move(list));
}

void Statistics::threads_are_named_by(std::function<std::string(std::uint32_t)> name) {
  tables_->phases.threads_are_named_by(std::move(name));
}

void Statistics::iteration_boundary(const IterationBoundary& boundary) {
  tables_->iterations.boundary(boundary);
}

void Statistics::settle_times(std::uint32_t window, Nanoseconds begin, Nanoseconds end) {
  tables_->device_times.settle_window(window, begin, end);
  tables_->phases.settle_window(window);
}

void Statistics::settle_window(std::uint32_t window, Nanoseconds begin, Nanoseconds end) {
  Tables& t = *tables_;
  settle_times(window, begin, end);
  std::erase_if(t.unsettled_busy, [&](std::uint32_t index) {
    if (index == kOtherIndex || t.window_device_keys.key(index)[0] > window) return false;
    t.settle_busy(index);
    return true;
  });
  t.iterations.settle_window(window, begin, end);
  t.call_shape_rows.reset();
  t.call_shapes.settle(window);
  t.overlap.settle_window(window);
  t.copies.settle_window(window);
  if (t.metrics.active()) t.note_iteration_metrics(window);
  t.metrics.settle_window(window);
}

}  // namespace inject
