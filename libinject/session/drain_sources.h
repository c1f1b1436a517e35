// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "libinject/capture/cupti/api.h"
#include "libinject/pipeline/drain.h"
#include "libinject/pipeline/intake_log.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/record/buffers.h"
#include "libinject/record/core.h"

namespace inject {

/// Drains the threads' queues and CUPTI's completed buffers of this process. One thread at a time.
class DrainSources {
 public:
  /// `note_windows` enters windows that have opened by themselves (`launch:`) into the log.
  DrainSources(Core& core, ActivityBuffers& buffers, WindowLog& windows, Drain& drain,
               std::function<void()> note_windows);

  /// Keeps what is drained in `log`, in case the process is killed.
  void log_to(IntakeLog& log);

  /// Drains everything published and completed so far. `cupti` is null while CUPTI is not loaded.
  /// `hold_signs`: launch signs are taken, but not evaluated yet, unless there are very many.
  void pass(const CuptiApi* cupti, bool hold_signs = false);
  /// Drain::settle, with the number of records that CUPTI reports as dropped.
  void settle(bool delivered, std::uint32_t last = kAllWindows);
  /// CUPTI's drops so far belong to the windows that are settled next.
  void note_activity_drops() noexcept;

 private:
  void take_buffer(const CuptiApi& cupti, std::uint8_t* buffer, std::size_t valid, std::uint16_t generation);
  void keep_size(const CUpti_Activity& record, const CUpti_Activity& next);
  void note_drops();

  Core& core_;
  ActivityBuffers& buffers_;
  WindowLog& windows_;
  Drain& drain_;
  std::function<void()> note_windows_;
  IntakeLog no_log_;
  IntakeLog* log_ = &no_log_;
  HostDrops seen_drops_;
  std::uint64_t activity_drops_ = 0;
  std::uint64_t told_activity_drops_ = 0;
};

}  // namespace inject
