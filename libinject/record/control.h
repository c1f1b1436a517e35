// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The few variables that the window controller writes and hooks and callbacks read. Constant-initialised:
// hooks run before our static initialisers do.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "libinject/base/ticks.h"
#include "libinject/record/launch_trigger.h"

namespace inject {

class BlockPool;

/// What hooks have to do beyond forwarding. Every hook reads control_word first; 0 means: forward at once.
enum ControlBits : std::uint32_t {
  kControlRecord = 1u << 0,   ///< a window is open: record calls
  kControlGate = 1u << 1,     ///< CUPTI is being attached or detached: hold new launches for a moment
  kControlSearch = 1u << 2,   ///< the search for iterations is on: emit signs (record/iteration_watch.h)
  kControlCapture = 1u << 3,  ///< graphs are captured, whose kernels are named (capture/graph_capture.h)
};

/// What switches recording on. Alone on its page, which is zeroed in children (wipe_control_in_children()).
struct alignas(4096) RecordingControl {
  std::atomic<std::uint32_t> word{0};
  std::atomic<std::uint32_t> window{0};
  std::atomic<BlockPool*> pool{nullptr};
  std::atomic<bool> kept{false};  ///< not wiped
};
extern RecordingControl recording_control;

inline constinit std::atomic<std::uint32_t>& control_word = recording_control.word;

/// The window that is open now, 0 if none; with kNamingWindow (model/code_place.h) while what follows it is
/// being named. A call belongs to the window that it reads here when it begins.
inline constinit std::atomic<std::uint32_t>& current_window = recording_control.window;

/// The blocks that records go into; nullptr if none are made (any more).
inline constinit std::atomic<BlockPool*>& published_pool = recording_control.pool;

/// From now on, children with memory of their own find recording switched off: the blocks are in shared
/// memory, and _Fork() and clone() run no handlers of pthread_atfork().
void wipe_control_in_children() noexcept;

/// The process that has made an object, as opposed to a copy of it. The id alone does not tell: the first
/// process of each PID namespace has the same.
class OwnProcess {
 public:
  bool is_this() const noexcept {
    return id_ == getpid() && (!kept_ || recording_control.kept.load(std::memory_order_relaxed));
  }

 private:
  pid_t id_ = getpid();
  bool kept_ = recording_control.kept.load(std::memory_order_relaxed);
};

/// Counts CUPTI attachments, to tell correlation ids of different attachments apart.
extern std::atomic<std::uint16_t> current_generation;

/// One bit per FunctionGroup (model/functions.h) whose hooks record: INJECT_HOOKS.
extern std::atomic<std::uint32_t> recorded_groups;

/// cuDNN plans are read when they are made: there may be windows, and INJECT_HOOKS has cudnn.
extern std::atomic<bool> plans_watched;

/// Runtime calls that submitted no device work are recorded too (INJECT_API is not `off`).
extern std::atomic<bool> record_plain_calls;

/// Only the durations of short calls (model/records.h, kShortCall) are kept, because neither their times
/// (INJECT_TRACE) nor the calls inside them (INJECT_API is `full`) are needed.
extern std::atomic<bool> short_calls_together;

/// Tick length of the counter that times short calls. Set when a window opens.
extern TickPeriod tick_period;

/// Driver calls inside hooked runtime calls are recorded too (INJECT_API is `full`).
extern std::atomic<bool> record_inner_calls;

/// CUPTI is collecting activity: launches outside every window are then recorded too, so that their kernels
/// are not attributed to a window. At other times they are not: a program that launches continuously while
/// its last window is being collected would fill the rings with them.
extern std::atomic<bool> collecting_activity;

/// Number of threads known to be inside CUPTI, where they may sleep: in cudaProfilerStart or
/// cudaProfilerStop, as seen by hooks, or in one of our callbacks that waits for the session
/// (Tracer::thread_inside).
extern std::atomic<std::uint32_t> inside_cupti;

/// The trigger of `launch:` windows.
extern LaunchTrigger launch_trigger;

}  // namespace inject
