// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <memory>
#include <string>

#include "libinject/config/options.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/record/core.h"
#include "libinject/session/client_arbiter.h"
#include "libinject/session/collector.h"
#include "libinject/session/cupti_attachment.h"
#include "libinject/session/device_reader.h"
#include "libinject/session/host_reader.h"
#include "libinject/session/iteration_windows.h"
#include "libinject/session/launch_control.h"
#include "libinject/session/once_log.h"
#include "libinject/session/pipeline.h"
#include "libinject/session/session_state.h"
#include "libinject/session/trigger.h"
#include "libinject/session/window_controller.h"
#include "libinject/session/worker.h"

namespace inject {

/// The parts of a session, through which each reaches the others; created once and leaked with the session.
struct SessionParts {
  struct Callbacks {
    Tracer::Events profiler_calls;          ///< the profiler API's, seen by CUPTI
    IterationWatch::OnStop iteration_stop;  ///< the watch's, for IterationWindows::at_boundary()
    void (*register_exit_handler)();        ///< CuptiAttachment's
    void (*last_window_closed)();           ///< no window is open, and none will open; with session_mutex
  };

  SessionParts(Core& core_state, const Callbacks& called);
  SessionParts(const SessionParts&) = delete;
  SessionParts& operator=(const SessionParts&) = delete;

  Core& core;
  const Options& options;
  const Nanoseconds base;          ///< CUDA's initialisation
  const Nanoseconds base_utc;      ///< the same since the epoch
  const std::string trigger_text;  ///< INJECT_WINDOW
  const Callbacks callbacks;

  OnceLog once;
  SessionState state;
  WindowLog log;
  ProfiledTimes profiled;
  CuptiAttachment cupti;
  DeviceReader devices;
  HostReader host;
  std::unique_ptr<Trigger> trigger;

  Worker worker;
  WindowController windows;
  LaunchControl launches;
  IterationWindows iterations;
  ClientArbiter arbiter;
  Collector collector;
  Pipeline pipeline;
};

}  // namespace inject
