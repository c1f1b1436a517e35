// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a program's input waits for, based on how its threads and loader workers used the host:
// docs/diagnosis.md has the rules.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "libinject/model/host_use.h"

namespace inject {

enum class InputCause : std::uint8_t {
  kUnknown,
  kWorkers,     ///< the workers compute all the time
  kProcessors,  ///< workers, or the main thread, wait for a CPU
  kStorage,     ///< the workers wait for storage, the network or other processes
  kMain,        ///< the launching thread makes the batches itself
};

/// `workers`, `processors`, `storage`, `main thread`; empty for kUnknown.
std::string_view input_cause_name(InputCause cause);
/// The remedy; empty for kUnknown.
std::string_view input_cause_advice(InputCause cause);

/// Sums over all windows with readings.
struct HostSum {
  std::uint64_t time = 0;
  std::uint64_t process_time = 0;   ///< CPU time of the process
  std::uint64_t children_time = 0;  ///< … and of its children, as far as known
  std::uint64_t wait = 0;           ///< time of both in the run queue
  std::uint64_t main_time = 0;
  std::uint64_t main_wait = 0;
  std::uint64_t workers = 0;  ///< the maximum over windows; only those that did anything
  std::uint64_t worker_life = 0;
  std::uint64_t worker_time = 0;
  std::uint64_t worker_wait = 0;
  std::uint64_t others = 0;      ///< CPU time and wait of all but main thread, workers and libinject
  bool times_known = true;       ///< for all threads and children
  bool waits_known = true;       ///< likewise, except for those that ended
  std::uint64_t read_bytes = 0;  ///< by the workers
  bool reads_known = true;       ///< of all of them
  std::uint64_t affinity = 0;    ///< number of CPUs; 0: unknown, or not the same in all windows
  std::optional<std::uint64_t> quota_thousandths;  ///< likewise; empty: unknown; 0: no limit
  LoaderMoments moments;

  /// Number of CPUs allowed by affinity and quota; 0: unknown.
  double allowed() const;
  double share_of_time(std::uint64_t part) const {
    return time == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(time);
  }
  /// Number of CPUs that the process and its children used, and would have used without waiting.
  double used() const { return share_of_time(process_time + children_time); }
  double wanted() const { return share_of_time(process_time + children_time + wait); }
};
HostSum host_sum(std::span<const HostWindow> windows);

/// Idle time of a device that waited for its input, and the parts of it in which the launching thread
/// computed or fetched a batch.
struct InputTimes {
  std::uint64_t span = 0;  ///< the device's time
  std::uint64_t all = 0;
  std::uint64_t own_work = 0;
  bool own_work_on_main = false;  ///< at least half of it was on the process's first thread
  std::uint64_t fetching = 0;     ///< in DataLoader.__next__ of a loader with workers
  bool fetches_known = false;     ///< PyTorch reports fetches
};
InputCause input_cause(const InputTimes& times, const HostSum& host);

}  // namespace inject
