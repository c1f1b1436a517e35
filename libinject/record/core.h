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

/// Everything that must exist before anything can be recorded: made on the first NVTX range or at CUDA's
/// initialisation, whichever comes first, and never freed (hooks may run until the process is gone). Memory
/// only: no thread, no file, no message.
struct Core {
  ParseResult configuration;
  NameTable names;                 ///< NVTX messages, demangled kernel names
  NameTable mangled;               ///< kernel names as the driver has them
  ShapeTable shapes;               ///< what library calls compute
  GraphNodes graph_nodes;          ///< the calls that were captured into CUDA graphs
  CapturedGraphs captured_graphs;  ///< the places that were captured into them
  RangeTree ranges;
  CodePlaces places;  ///< where in the program work is launched
  BlockPool ring;
  ThreadRegistry threads;
  TickClock clock;           ///< its first reading is older than any record
  NvtxTrigger nvtx_trigger;  ///< here because ranges may be open before there is a session
  RangeNames unit_ranges;    ///< Options::unit_ranges

  /// Gives hooks the tick length that they need to time calls by the CPU's counter, as exact as it is by now.
  void set_tick_length() const noexcept;

  /// The one Core, made if there is none yet; nullptr if memory is short, and in a process with more
  /// privileges than its user (process.h), where libinject does nothing.
  static Core* get() noexcept;
  /// The same; if another thread is making it, waits for that.
  static Core* get_or_wait() noexcept;
  /// The message that says why there is none.
  static const char* why_none() noexcept;
  /// The one Core if it has been made.
  static Core* get_if_any() noexcept;

  /// A second one, for the records of another process.
  explicit Core(ParseResult parsed);
};

}  // namespace inject
