// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/collector_input.h"

#include <algorithm>
#include <bit>

#include "libinject/analysis/copies.h"
#include "libinject/analysis/sample_stats.h"
#include "libinject/model/functions.h"
#include "libinject/stats/statistics.h"
#include "libinject/stats/table_rows.h"

namespace inject {

namespace {

template <typename Event>
IterationActivity activity_of(const Event& event) {
  const Attribution& launch = event.launch;
  IterationActivity activity;
  activity.launch_begin = launch.known ? launch.host_begin : 0;
  activity.start = event.start;
  activity.end = event.end;
  activity.window = launch.window;
  activity.device = static_cast<std::uint16_t>(event.device);
  return activity;
}

template <typename Event>
TimedWork timed(const Event& event, TimedWorkKind kind, HostState call) {
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
PhasedWork phased(const Event& event) {
  PhasedWork work;
  work.launch_known = event.launch.known;
  work.launch_begin = event.launch.known ? event.launch.host_begin : event.start;
  work.duration = duration_between(event.start, event.end);
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

void count(DeviceWork& work, const KernelEvent& event) {
  work.kernels.add(duration_between(event.start, event.end));
  if (!event.launch.known) ++work.unattributed;
}

void count(DeviceWork& work, const TransferEvent& event) {
  (event.memset ? work.memsets : work.copies) += 1;
  (event.memset ? work.memset_time : work.copy_time) += duration_between(event.start, event.end);
  (event.memset ? work.memset_bytes : work.copy_bytes) += event.bytes;
  if (!event.launch.known) ++work.unattributed;
}

IterationActivity iteration_activity(const KernelEvent& event) {
  return activity_of(event);
}

IterationActivity iteration_activity(const TransferEvent& event) {
  IterationActivity activity = activity_of(event);
  activity.kind = event.memset ? WorkKind::kMemset : WorkKind::kCopy;
  activity.bytes = event.bytes;
  return activity;
}

TimedWork timed_work(const KernelEvent& event, bool collective, HostState call) {
  TimedWork work = timed(event, collective ? TimedWorkKind::kCollective : TimedWorkKind::kKernel, call);
  if (collective) work.blocks = blocks_of(event);
  return work;
}

TimedWork timed_work(const TransferEvent& event, HostState call) {
  return timed(event, kind_of(event), call);
}

PhasedWork phased_work(const KernelEvent& event) {
  return phased(event);
}

PhasedWork phased_work(const TransferEvent& event) {
  PhasedWork work = phased(event);
  (event.memset ? work.memset : work.copy) = true;
  work.bytes = event.bytes;
  return work;
}

const FunctionKinds::Kind& FunctionKinds::of(FunctionId function) {
  if (function >= kinds_.size()) kinds_.resize(std::bit_ceil(function + 1u));
  Kind& kind = kinds_[function];
  if (!kind.known) {
    const std::string_view name = function_name(function);
    kind = {true, host_state_of(name, is_library_function(function)), asks_for_work(name),
            waits_for_all_work(name)};
  }
  return kind;
}

}  // namespace inject
