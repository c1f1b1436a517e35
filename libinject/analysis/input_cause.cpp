// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/input_cause.h"

#include <algorithm>

namespace inject {

namespace {

// Workers that compute, or want to, for at least this share of their lives are what the program waits for.
constexpr double kBusyWorkers = 0.7;
// The share of the moments at which the training thread waits that must show no worker at work, and the
// number of moments required.
constexpr double kMostlyAsleep = 0.5;
constexpr std::uint64_t kEnoughMoments = 10;

double part(std::uint64_t of, std::uint64_t all) {
  return all == 0 ? 0.0 : static_cast<double>(of) / static_cast<double>(all);
}

/// Neither the main thread, nor a loader worker, nor one of ours.
bool is_other(HostRole role) {
  return role != HostRole::kMain && role != HostRole::kOurs && role != HostRole::kProcess &&
         role != HostRole::kLoaderWorker;
}

}  // namespace

std::string_view input_cause_name(InputCause cause) {
  switch (cause) {
    case InputCause::kWorkers:
      return "workers";
    case InputCause::kProcessors:
      return "processors";
    case InputCause::kStorage:
      return "storage";
    case InputCause::kMain:
      return "main thread";
    case InputCause::kUnknown:
      break;
  }
  return {};
}

std::string_view input_cause_advice(InputCause cause) {
  switch (cause) {
    case InputCause::kWorkers:
      return "the loader's workers compute all the time: use more workers while processors are free, cheaper "
             "decoding and augmentation, or decoding on the GPU";
    case InputCause::kProcessors:
      return "the input waits for processors: allow more of them (affinity, control group, the job's "
             "request), run fewer competing threads, or decode on the GPU; more workers do not help";
    case InputCause::kStorage:
      return "the loader's workers wait for storage or the network: use faster or nearer storage, larger "
             "files read in sequence, a cache, or more workers, which can wait in parallel";
    case InputCause::kMain:
      return "the launching thread makes the batches itself: decode and collate in worker processes "
             "(num_workers), pass tensors rather than objects to unpickle";
    case InputCause::kUnknown:
      break;
  }
  return {};
}

double HostSum::allowed() const {
  if (affinity == 0 || !quota_thousandths) return 0;
  const auto by_affinity = static_cast<double>(affinity);
  if (*quota_thousandths == 0) return by_affinity;
  return std::min(static_cast<double>(*quota_thousandths) / 1000, by_affinity);
}

HostSum host_sum(std::span<const HostWindow> windows) {
  HostSum sum;
  if (!windows.empty()) {
    sum.affinity = windows.front().affinity;
    sum.quota_thousandths = windows.front().quota_thousandths;
  }
  for (const HostWindow& window : windows) {
    sum.time += window.span();
    if (window.affinity != sum.affinity) sum.affinity = 0;
    if (window.quota_thousandths != sum.quota_thousandths) sum.quota_thousandths.reset();
    sum.workers = std::max(sum.workers, window.workers);
    sum.worker_life += window.worker_life;
    sum.worker_time += window.worker_time;
    sum.worker_wait += window.worker_wait;
    sum.moments.all += window.moments.all;
    sum.moments.asleep += window.moments.asleep;
    sum.moments.blocked += window.moments.blocked;
    for (const HostRoleUse& row : window.roles) {
      const std::uint64_t time = row.use.of(HostAmount::kProcessorTime).value_or(0);
      const std::uint64_t wait = row.use.of(HostAmount::kRunQueueWait).value_or(0);
      sum.times_known = sum.times_known && row.use.of(HostAmount::kProcessorTime);
      const bool ended = row.role == HostRole::kRest || row.role == HostRole::kEndedChildren;
      sum.waits_known = sum.waits_known && (ended || row.use.of(HostAmount::kRunQueueWait));
      if (is_other(row.role)) sum.others += time + wait;
      if (row.role == HostRole::kMain) {
        sum.main_time += time;
        sum.main_wait += wait;
      }
      if (row.role == HostRole::kProcess) {
        sum.process_time += time;
        sum.wait += wait;
      }
      if (row.role <= HostRole::kProcess) continue;
      sum.children_time += time;
      sum.wait += wait;
      if (row.role != HostRole::kLoaderWorker) continue;
      sum.read_bytes += row.use.of(HostAmount::kReadBytes).value_or(0);
      sum.reads_known = sum.reads_known && row.use.of(HostAmount::kReadBytes);
    }
  }
  return sum;
}

InputCause input_cause(const InputTimes& times, const HostSum& host) {
  if (times.all == 0 || host.time == 0) return InputCause::kUnknown;
  if (2 * times.own_work >= times.all) {
    const bool waits = times.own_work_on_main && host.main_wait > host.main_time;
    return waits ? InputCause::kProcessors : InputCause::kMain;
  }
  if (times.fetches_known && 2 * times.fetching < times.all) return InputCause::kUnknown;
  const double computing = part(host.worker_time, host.worker_life);
  const double waiting = part(host.worker_wait, host.worker_life);
  if (computing + waiting < kBusyWorkers) {
    // All CPU time of others may have been in that time: a thread that pins the batches, a child that decodes
    // for a worker.
    const double fetching = part(times.fetching, times.span);
    const double asleep = fetching * part(host.moments.asleep, host.moments.all);
    const bool all_asleep = host.moments.all >= kEnoughMoments && host.times_known &&
                            asleep - host.share_of_time(host.others) >= kMostlyAsleep * fetching;
    return all_asleep ? InputCause::kStorage : InputCause::kUnknown;
  }
  return waiting > computing ? InputCause::kProcessors : InputCause::kWorkers;
}

}  // namespace inject
