// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a program's input waits for, judged by how its threads and loader workers used the host:
// docs/diagnosis.md has the rules.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "libinject/model/host_use.h"

namespace inject {

enum class InputCause : std::uint8_t {
  kUnknown,
  kWorkers,     ///< the workers compute all the time
  kProcessors,  ///< workers, or the main thread, wait for a processor
  kStorage,     ///< the workers wait for storage, the network or other processes
  kMain,        ///< the launching thread makes the batches itself
};

/// `workers`, `processors`, `storage`, `main thread`; empty for kUnknown.
std::string_view input_cause_name(InputCause cause);
/// What to do about it; empty for kUnknown.
std::string_view input_cause_advice(InputCause cause);

/// What all windows that were read have, together.
struct HostSum {
  std::uint64_t time = 0;
  std::uint64_t process_time = 0;   ///< processor time of the process
  std::uint64_t children_time = 0;  ///< … and of its children, as far as it is known
  std::uint64_t wait = 0;           ///< of both in the run queue
  std::uint64_t main_time = 0;
  std::uint64_t main_wait = 0;
  std::uint64_t workers = 0;  ///< at most in a window
  std::uint64_t worker_life = 0;
  std::uint64_t worker_time = 0;
  std::uint64_t worker_wait = 0;
  std::uint64_t others = 0;      ///< processor time and wait of all but main thread, workers and libinject
  bool times_known = true;       ///< of all threads and children
  bool waits_known = true;       ///< likewise, but for those that ended
  std::uint64_t read_bytes = 0;  ///< of the workers, where it is known
  std::uint64_t affinity = 0;    ///< processors; the latest window's. 0: not known
  std::uint64_t quota_thousandths = 0;
  LoaderMoments moments;

  /// By affinity and quota, in processors; 0: not known.
  double allowed() const;
  double share_of_time(std::uint64_t part) const {
    return time == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(time);
  }
  /// Processors' worth of time that process and children got, and that they would have taken.
  double used() const { return share_of_time(process_time + children_time); }
  double wanted() const { return share_of_time(process_time + children_time + wait); }
};
HostSum host_sum(std::span<const HostWindow> windows);

/// Idle time of a device that waited for its input, and the parts of it in which the launching thread
/// computed, and in which it fetched a batch.
struct InputTimes {
  std::uint64_t span = 0;  ///< the device's time
  std::uint64_t all = 0;
  std::uint64_t own_work = 0;
  std::uint64_t fetching = 0;  ///< in DataLoader.__next__ of a loader with workers
  bool fetches_known = false;  ///< PyTorch tells of fetches
};
InputCause input_cause(const InputTimes& times, const HostSum& host);

}  // namespace inject
