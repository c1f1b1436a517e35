// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/device_times.h"

#include <algorithm>

namespace inject {

std::uint64_t DeviceTimes::idle() const {
  std::uint64_t sum = 0;
  for (const Idle& cause : idle_by_cause) sum += cause.time;
  return sum;
}

std::uint64_t DeviceTimes::taken_by_collectives(int multiprocessors) const {
  if (multiprocessors <= 0) return 0;
  return std::min(compute_busy, collective_block_time / static_cast<std::uint64_t>(multiprocessors));
}

void DeviceTimes::merge(const DeviceTimes& more) {
  span += more.span;
  kernel_busy += more.kernel_busy;
  compute_busy += more.compute_busy;
  kernel_time += more.kernel_time;
  copy_only += more.copy_only;
  copy_busy += more.copy_busy;
  upload_busy += more.upload_busy;
  download_busy += more.download_busy;
  copy_overlapped += more.copy_overlapped;
  for (std::size_t i = 0; i < kFetchKinds; ++i) fetch_idle[i] += more.fetch_idle[i];
  own_work += more.own_work;
  collective_block_time += more.collective_block_time;
  for (std::size_t i = 0; i < kIdleCauses; ++i) {
    idle_by_cause[i].time += more.idle_by_cause[i].time;
    idle_by_cause[i].gaps += more.idle_by_cause[i].gaps;
  }
}

void DeviceTimes::remove(const DeviceTimes& part) {
  span -= part.span;
  kernel_busy -= part.kernel_busy;
  compute_busy -= part.compute_busy;
  kernel_time -= part.kernel_time;
  copy_only -= part.copy_only;
  copy_busy -= part.copy_busy;
  upload_busy -= part.upload_busy;
  download_busy -= part.download_busy;
  copy_overlapped -= part.copy_overlapped;
  for (std::size_t i = 0; i < kFetchKinds; ++i) fetch_idle[i] -= part.fetch_idle[i];
  own_work -= part.own_work;
  collective_block_time -= part.collective_block_time;
  for (std::size_t i = 0; i < kIdleCauses; ++i) {
    idle_by_cause[i].time -= part.idle_by_cause[i].time;
    idle_by_cause[i].gaps -= part.idle_by_cause[i].gaps;
  }
}

}  // namespace inject
