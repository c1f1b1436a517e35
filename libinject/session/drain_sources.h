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

/// Empties the threads' queues and CUPTI's completed buffers of this process into the drain. One thread at a
/// time.
class DrainSources {
 public:
  /// `note_windows` enters windows into the log that have opened by themselves (`launch:`).
  DrainSources(Core& core, ActivityBuffers& buffers, WindowLog& windows, Drain& drain,
               std::function<void()> note_windows);

  /// What is taken is kept there for the case that the process is killed.
  void log_to(IntakeLog& log);

  /// Everything published and completed so far. `cupti` is null while no CUPTI is loaded.
  /// `hold_signs`: signs of launches are taken, but not looked at yet, unless there are very many.
  void pass(const CuptiApi* cupti, bool hold_signs = false);
  /// Drain::settle, with the records that CUPTI says it has dropped.
  void settle(bool delivered, std::uint32_t last = kAllWindows);
  /// Of CUPTI's drops, those so far are of the windows that are settled next.
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
