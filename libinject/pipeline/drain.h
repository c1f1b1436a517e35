// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <variant>
#include <vector>

#include "libinject/iterations/iteration_search.h"
#include "libinject/model/event_sink.h"
#include "libinject/pipeline/intake_log.h"
#include "libinject/pipeline/range_tracker.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/record/core.h"
#include "libinject/stats/first_launches.h"
#include "libinject/stats/graph_times.h"
#include "libinject/stats/launch_table.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// Joins device records to their launches and passes the result to the statistics and the sinks. One thread
/// at a time. A kernel belongs to the window in which it was launched or, if the launch's record was dropped,
/// to the window that contains its start.
class Drain {
 public:
  /// `note_windows` adds windows that opened by themselves (`launch:`) to the log; called when a record names
  /// a window that the log does not know yet.
  Drain(Core& core, WindowLog& windows, Statistics& statistics, std::function<void()> note_windows);

  /// Raw events are also passed to `sink` from here on; sinks receive them in the order of these calls.
  void add_sink(EventSink& sink) { sinks_.push_back(&sink); }
  /// The drain's input is also logged there, in case the process is killed.
  void log_to(IntakeLog& log) { log_ = &log; }
  /// Signs of launches are passed to this search.
  void search_with(IterationSearch* search) { search_ = search; }

  /// A pass over the sources begins; their contents are passed next.
  void begin_pass(Nanoseconds time) { pass_begin_ = time; }
  /// A record of a thread's queue.
  void take(std::uint32_t thread, const Slot& slot);
  /// A device's record. `name`: the kernel's, as reported by the driver; returns its number in Core::mangled.
  std::uint32_t take(KernelEvent event, std::string_view name, std::uint16_t generation);
  void take(TransferEvent event, std::uint16_t generation);
  /// Not all launches of the windows so far are known: none is assumed to be a window's first.
  void forget_first_launches() { first_launches_.clear(); }
  /// New launches have arrived: retries the device records that had none.
  void retry_pending();
  /// The threads' queues have been read. `hold_signs`: signs are not processed yet, unless there are very
  /// many.
  void advance_search(const SignPass& pass, bool hold_signs);
  /// Graph kernels that wait for a replay that does not come must not hold up those that wait for earlier
  /// work.
  void end_pass();
  /// This many calls and ranges of the window found the ring full.
  void take_drops(std::uint32_t window, HostDrops drops);
  void iteration_boundary(const IterationBoundary& boundary);

  /// No further device records will come for work launched so far: assigns records without a launch by their
  /// time, counts the launches that got no record, whether CUPTI dropped it or for unknown reasons, and clips
  /// the ranges of the windows that are closing. `dropped`: records that CUPTI dropped since the last call.
  /// `delivered`: CUPTI has delivered all others. `last`: later windows are not settled.
  void settle(std::uint64_t dropped, bool delivered, std::uint32_t last = kAllWindows);
  /// For the windows that ended before `until`, and whose launches all have their records: determines how
  /// their time was spent, so that a program that opens one after the other needs no memory for all of them.
  void settle_times(Nanoseconds until);

  /// All kernels of windows that start before that time have been passed on, as far as launches show.
  Nanoseconds told_until() const;

  /// Launches in a window whose device record has not arrived.
  std::size_t waiting() const { return launches_.waiting(); }
  /// The first window with such launches, 0 if there are none.
  std::uint32_t first_waiting_window() const { return launches_.first_waiting_window(); }
  /// Device records without a launch record, over the run.
  std::uint64_t unattributed() const { return unattributed_; }
  /// Duplicate device records, which were ignored, over the run.
  std::uint64_t repeated() const { return repeated_; }
  /// Kernels of graph launches whose nodes were not captured in a window, so that their calls are unknown,
  /// over the run.
  std::uint64_t graph_kernels_without_call() const { return graph_kernels_without_call_; }
  /// Launches of graphs that appear to have neither kernels nor copies, since they had no records, over the
  /// run.
  std::uint64_t graph_launches_without_records() const { return launches_.graphs_without_work(); }
  /// Whether kernels of graph launches have arrived since the last settle().
  bool saw_graphs() const { return saw_graphs_; }
  /// Devices that ran kernels, one bit each.
  std::uint64_t devices_seen() const { return devices_seen_; }
  Nanoseconds last_in_window_end() const { return last_in_window_end_; }

 private:
  struct Pending {
    std::uint16_t generation;
    std::variant<KernelEvent, TransferEvent> event;
  };

  void note_window(std::uint32_t window);
  void on_call(std::uint32_t thread, const CallRecord& record);
  void add_launch(std::uint32_t thread, const CallRecord& record);
  void on_short_calls(const ShortCallsRecord& record);
  void on_fetch(std::uint32_t thread, const FetchRecord& record);
  void on_processor_time(std::uint32_t thread, const ProcessorTimeRecord& record);
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
  void note_missing(std::uint64_t dropped, bool delivered);
  void lose_unattributed(const Losses& losses);
  std::uint32_t demangled_name(std::uint32_t mangled);

  Core& core_;
  WindowLog& windows_;
  Statistics& statistics_;
  std::function<void()> note_windows_;
  std::uint32_t settling_until_ = kAllWindows;
  std::uint64_t invalid_times_ = 0;  // of work whose launch is not known, since the last settle()
  std::uint32_t known_windows_ = 0;
  std::vector<EventSink*> sinks_;
  IntakeLog no_log_;
  IntakeLog* log_ = &no_log_;
  IterationSearch* search_ = nullptr;
  LaunchTable launches_;
  RangeTracker ranges_;
  std::vector<Pending> pending_;
  FirstLaunches first_launches_;
  GraphTimes graph_times_;
  std::vector<std::uint32_t> demangled_;  // by id in core_.mangled
  std::uint64_t unattributed_ = 0;
  std::uint64_t repeated_ = 0;
  std::uint64_t graph_kernels_without_call_ = 0;
  Nanoseconds last_in_window_end_ = 0;
  Nanoseconds pass_begin_ = 0;
  std::uint64_t devices_seen_ = 0;
  bool saw_graphs_ = false;
};

}  // namespace inject
