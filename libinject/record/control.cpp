// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/control.h"

#include <sys/mman.h>
#include <unistd.h>

namespace inject {

constinit RecordingControl recording_control;

// Adjacent, because a hooked call in a window reads nearly all of these.
constinit std::atomic<std::uint32_t> inside_cupti{0};
constinit std::atomic<std::uint16_t> current_generation{0};
constinit std::atomic<std::uint32_t> recorded_groups{~0u};
constinit std::atomic<bool> plans_watched{false};
constinit std::atomic<bool> record_plain_calls{true};
constinit std::atomic<bool> short_calls_together{false};
constinit TickPeriod tick_period;
constinit std::atomic<bool> record_inner_calls{false};
constinit std::atomic<bool> collecting_activity{false};
constinit LaunchTrigger launch_trigger;

void wipe_control_in_children() noexcept {
#ifdef MADV_WIPEONFORK
  // Since Linux 4.14. A larger page has other variables as well: then only fork()'s handlers switch it off.
  if (sysconf(_SC_PAGESIZE) != static_cast<long>(sizeof(recording_control))) return;
  if (madvise(&recording_control, sizeof(recording_control), MADV_WIPEONFORK) == 0)
    recording_control.kept.store(true, std::memory_order_relaxed);
#endif
}

}  // namespace inject
