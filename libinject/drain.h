// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <variant>
#include <vector>

#include "libinject/core.h"
#include "libinject/cupti/api.h"
#include "libinject/cupti/buffers.h"
#include "libinject/nvtx/range_tracker.h"
#include "libinject/output/chrome_trace.h"
#include "libinject/output/trace.h"
#include "libinject/recovery/journal.h"
#include "libinject/stats/first_launches.h"
#include "libinject/stats/graph_times.h"
#include "libinject/stats/launch_table.h"
#include "libinject/stats/statistics.h"
#include "libinject/window/iteration_search.h"
#include "libinject/window/window_log.h"

namespace inject {

/// Empties the threads' rings and CUPTI's completed buffers, joins device records to their launches and hands
/// the result to the statistics and the traces. One thread at a time. A kernel belongs to the window in which
/// it was launched; where the launch's record was dropped, to the window that its start lies in.
class Drain {
 public:
  /// `note_windows` enters windows into the log that have opened by themselves (`launch:`); called when a
  /// record names a window that the log does not know yet.
  Drain(Core& core, ActivityBuffers& buffers, WindowLog& windows, Statistics& statistics,
        std::function<void()> note_windows);

  void trace_to(TraceWriter* trace) { trace_ = trace; }
  void timeline_to(ChromeTrace* timeline) { timeline_ = timeline; }
  /// What is taken is kept there for the case that the process is killed.
  void journal_to(recovery::Journal* journal) { journal_ = journal; }
  /// Signs of launches go there.
  void search_with(IterationSearch* search) { search_ = search; }

  /// Everything published and completed so far. `cupti` is null while no CUPTI is loaded.
  /// `hold_signs`: signs of launches are taken, but not looked at yet, unless there are very many.
  void pass(const CuptiApi* cupti, bool hold_signs = false);

  // What pass() is made of, for what comes from elsewhere.
  /// A record of a thread's queue.
  void take(std::uint32_t thread, const Slot& slot);
  /// A device's record. `name`: the kernel's as the driver has it.
  void take(KernelEvent event, std::string_view name, std::uint16_t generation);
  void take(TransferEvent event, std::uint16_t generation);
  /// Launches have come since device records did without one.
  void retry_pending();
  /// So many calls and ranges of the window found the ring full.
  void take_drops(std::uint32_t window, HostDrops drops);
  void iteration_boundary(const IterationBoundary& boundary);

  /// No further device record will come for what was launched so far: judges what has no launch record by its
  /// time, counts the launches that got no record, because CUPTI dropped it or for reasons unknown, and clips
  /// the ranges of the windows that are closing.
  /// `dropped`: records that CUPTI has dropped since the last time. `delivered`: CUPTI has handed over all
  /// others.
  void settle(std::uint64_t dropped, bool delivered);
  /// The same, of those that CUPTI tells of.
  void settle(bool delivered);
  /// Of the windows that ended before `until`, and whose launches all have their records: judges how their
  /// time was spent, so that a program that opens one after the other needs no memory for all of them.
  void settle_times(Nanoseconds until);

  /// Every kernel of a window that starts before that time has been handed on, as far as launches tell.
  Nanoseconds told_until() const;

  /// Launches in a window whose device record has not come.
  std::size_t waiting() const { return launches_.waiting(); }
  /// Device records that no launch record was found for, over the run.
  std::uint64_t unattributed() const { return unattributed_; }
  /// Device records that came a second time and were passed over, over the run.
  std::uint64_t repeated() const { return repeated_; }
  /// Kernels of graph launches whose nodes were not captured in a window, so that their calls are not known,
  /// over the run.
  std::uint64_t graph_kernels_without_call() const { return graph_kernels_without_call_; }
  /// Launches of graphs that seem to have neither kernels nor copies, as no record has come of them, over the
  /// run.
  std::uint64_t graph_launches_without_records() const { return launches_.graphs_without_work(); }
  /// Kernels of graph launches were among what came since the last settle().
  bool saw_graphs() const { return saw_graphs_; }
  /// Devices that kernels ran on, a bit each.
  std::uint64_t devices_seen() const { return devices_seen_; }
  Nanoseconds last_in_window_end() const { return last_in_window_end_; }

 private:
  struct Pending {
    std::uint16_t generation;
    std::variant<KernelEvent, TransferEvent> event;
  };

  void know_window(std::uint32_t window);
  void on_call(std::uint32_t thread, const CallRecord& record);
  void on_processor_time(std::uint32_t thread, const ProcessorTimeRecord& record);
  void on_buffer(const CuptiApi& cupti, std::uint8_t* buffer, std::size_t valid, std::uint16_t generation);
  void keep_size(const CUpti_Activity& record, const CUpti_Activity& next);
  template <typename Event>
  void on_activity(Event& event, std::uint16_t generation);
  template <typename Event>
  bool deliver_by_launch(Event& event, std::uint16_t generation);
  template <typename Event>
  void note_outside(const Event& event);
  template <typename Event>
  void deliver(Event& event, std::uint16_t generation);
  void deliver(const RangeEvent& event);
  template <typename Event>
  void hand_on(Event& event, std::uint16_t generation);
  template <typename Event>
  void leave_out(const Event& event);
  void attribute_to_captured(KernelEvent& event);
  template <typename Event>
  void deliver_by_time(Event& event, std::uint16_t generation);
  void note_drops();
  void note_missing(std::uint64_t dropped, bool delivered);
  std::uint32_t demangled_name(std::uint32_t mangled);

  Core& core_;
  ActivityBuffers& buffers_;
  WindowLog& windows_;
  Statistics& statistics_;
  std::function<void()> note_windows_;
  std::uint32_t known_windows_ = 0;
  TraceWriter* trace_ = nullptr;
  ChromeTrace* timeline_ = nullptr;
  IterationSearch* search_ = nullptr;
  recovery::Journal* journal_ = nullptr;
  LaunchTable launches_;
  RangeTracker ranges_;
  std::vector<Pending> pending_;
  FirstLaunches first_launches_;
  GraphTimes graph_times_;
  std::vector<std::uint32_t> demangled_;  // by id in core_.mangled
  std::uint64_t unattributed_ = 0;
  std::uint64_t repeated_ = 0;
  std::uint64_t graph_kernels_without_call_ = 0;
  HostDrops seen_drops_;
  std::uint64_t told_activity_drops_ = 0;
  Nanoseconds last_in_window_end_ = 0;
  Nanoseconds pass_begin_ = 0;
  std::uint64_t devices_seen_ = 0;
  bool saw_graphs_ = false;
};

}  // namespace inject
