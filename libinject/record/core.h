// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include "libinject/base/ticks.h"
#include "libinject/config/options.h"
#include "libinject/record/block_pool.h"
#include "libinject/record/captured_graphs.h"
#include "libinject/record/code_places.h"
#include "libinject/record/graph_nodes.h"
#include "libinject/record/name_table.h"
#include "libinject/record/nvtx_trigger.h"
#include "libinject/record/range_tree.h"
#include "libinject/record/shape_table.h"
#include "libinject/record/thread_registry.h"

namespace inject {

/// Everything that must exist before anything can be recorded: created on the first NVTX range or at CUDA's
/// initialisation, whichever comes first, and never freed (hooks may run until the process is gone). Memory
/// only: no thread, no file, no message.
struct Core {
  ParseResult configuration;
  NameTable names;                 ///< kernel names as the driver reports them
  NameTable mangled;               ///< kernel names as the driver has them
  ShapeTable shapes;               ///< what library calls compute
  GraphNodes graph_nodes;          ///< the calls captured into CUDA graphs
  CapturedGraphs captured_graphs;  ///< the places captured into them
  RangeTree ranges;
  CodePlaces places;  ///< where in the program work is launched
  BlockPool ring;
  ThreadRegistry threads;
  TickClock clock;           ///< its first reading is older than any record
  NvtxTrigger nvtx_trigger;  ///< here because ranges may be open before there is a session
  RangeNames unit_ranges;    ///< Options::unit_ranges

  /// Provides hooks with the tick length that they need to time calls by the CPU's counter, as precisely as
  /// it is known by now.
  void set_tick_period() const noexcept;

  /// The process's Core, created if there is none yet; nullptr if memory is short, with INJECT_WINDOW=off,
  /// and in a process with more privileges than its user (process.h), where libinject does nothing.
  static Core* get() noexcept;
  /// The same; if another thread is creating it, waits for that.
  static Core* get_or_wait() noexcept;
  /// The message explaining why there is none, unless the window is off.
  static const char* why_none() noexcept;
  /// The process's Core, or nullptr if it has not been created.
  static Core* get_if_any() noexcept;

  /// A further one, for the records of another process.
  explicit Core(ParseResult parsed);
};

}  // namespace inject
