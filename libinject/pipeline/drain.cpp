// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/pipeline/drain.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "libinject/analysis/kernel_class.h"
#include "libinject/base/demangle.h"
#include "libinject/base/mapping.h"
#include "libinject/model/functions.h"
#include "libinject/pipeline/decode.h"

namespace inject {

namespace {
// Launches that are remembered: as many as CUPTI's default buffers hold records, and more, about 23 MB when
// full; with a larger INJECT_RING as many as that holds, since launches read from it at once would otherwise
// evict each other before their records are processed.
constexpr std::size_t kMinLaunches = 1u << 18;
constexpr std::size_t kMaxLaunches = 1u << 21;

std::size_t most_launches(const BlockPool& ring) {
  return std::clamp(std::size_t{ring.capacity()} * Block::kSlots, kMinLaunches, kMaxLaunches);
}

// Device records kept while their launch is still in its thread's queue (a blocking copy publishes its record
// when it returns, which may be after its activity has arrived).
constexpr std::size_t kMaxPending = 1u << 16;
// A launch is published when its call returns; one that takes longer has lost its CPU, or waits for room
// behind queued kernels.
constexpr Nanoseconds kOnItsWay = 20 * kMillisecond;
// A graph's kernel waits this long for the next replay of its node, which shows whether its end is its own.
constexpr Nanoseconds kHeldForGraphs = kSecond;

// Distinguishes the records of one launch: a graph's kernels differ in their node, and one that runs twice in
// a launch differs in its times.
std::uint64_t identity(const KernelEvent& event) {
  return hash_mix(hash_mix(event.start * kHashSeed ^ event.end) ^ event.graph_node ^
                  (std::uint64_t{event.device} << 48)) |
         1;
}
std::uint64_t identity(const TransferEvent& event) {
  return hash_mix(hash_mix(event.start * kHashSeed ^ event.end) ^ event.bytes ^
                  (std::uint64_t{event.device} << 48)) |
         1;
}
}  // namespace

Drain::Drain(Core& core, WindowLog& windows, Statistics& statistics, std::function<void()> note_windows)
    : core_(core),
      windows_(windows),
      statistics_(statistics),
      note_windows_(std::move(note_windows)),
      launches_(most_launches(core.ring)),
      ranges_(
          core.ranges, [&windows](std::uint32_t number) { return windows.span(number); },
          [this](const RangeEvent& event) { deliver(event); }),
      graph_times_({[this](KernelEvent& event, std::uint16_t generation, bool usable) {
                      if (usable)
                        hand_on(event, generation);
                      else
                        leave_out(event);
                    },
                    [&windows](std::uint32_t number) { return windows.span(number).end; },
                    [this](std::uint32_t name) {
                      return is_collective(family_of(core_.names.name(name), Category::kOther));
                    }}) {}

void Drain::take(std::uint32_t thread, const Slot& slot) {
  switch (slot.kind()) {
    case RecordKind::kCall: {
      const auto record = slot.as<CallRecord>();
      if (!is_naming(record.window)) return on_call(thread, record);
      add_launch(thread, record);
      // Even if its place is unknown: an earlier one is then not the last.
      if (record.correlation == 0 && function_category(record.function) == Category::kSync)
        statistics_.add_named_wait(thread, record.begin, record.end, record.range);
      return;
    }
    case RecordKind::kShortCalls: {
      const auto record = slot.as<ShortCallsRecord>();
      if (!is_naming(record.window)) on_short_calls(record);
      return;
    }
    case RecordKind::kRange: {
      const auto record = slot.as<RangeRecord>();
      if (is_naming(record.window)) return;
      note_window(record.window);
      return ranges_.edge(thread, record);
    }
    case RecordKind::kProcessorTime: {
      const auto record = slot.as<ProcessorTimeRecord>();
      if (!is_naming(record.window)) on_processor_time(thread, record);
      return;
    }
    case RecordKind::kFetch: {
      const auto record = slot.as<FetchRecord>();
      if (!is_naming(record.window)) on_fetch(thread, record);
      return;
    }
    case RecordKind::kSign:
      if (search_ != nullptr) search_->take(thread, slot.as<SignRecord>());
      return;
    case RecordKind::kNone:
      return;
  }
}

Nanoseconds Drain::told_until() const {
  const Nanoseconds taken = pass_begin_ > kOnItsWay ? pass_begin_ - kOnItsWay : 0;
  return std::min({taken, launches_.first_waiting_begin().value_or(taken), graph_times_.first_start()});
}

void Drain::note_window(std::uint32_t window) {
  if (window <= known_windows_) return;
  note_windows_();
  known_windows_ = windows_.opened();
}

void Drain::add_launch(std::uint32_t thread, const CallRecord& record) {
  if (record.correlation == 0) return;
  std::optional<std::uint16_t> graph;
  if ((record.flags & kCallGraph) != 0) graph = static_cast<std::uint16_t>(record.status);
  const bool submitted = (graph || record.status == 0) && (record.flags & (kCallNoWork | kCallCaptured)) == 0;
  Attribution launch;
  launch.function = record.function;
  launch.window = record.window;
  launch.thread = thread;
  launch.range = record.range;
  launch.owner = record.owner;
  launch.shape = record.shape;
  launch.chain = record.chain;
  launch.stream_handle = record.stream;
  launch.host_begin = record.begin;
  launch.host_end = record.end;
  if (graph && *graph < CapturedGraphs::kNumbers && open_window(record.window) != 0) {
    launch.graph = *graph;
    if (statistics_.wants_graph(record.window, *graph)) {
      if (const CapturedGraphs::Graph captured = core_.captured_graphs.find(*graph); captured != nullptr)
        statistics_.add_graph(record.window, *graph, *captured,
                              [this](std::uint32_t mangled) { return demangled_name(mangled); });
    }
  }
  launches_.add(record.generation, record.correlation, launch, submitted, graph);
}

void Drain::on_call(std::uint32_t thread, const CallRecord& record) {
  note_window(record.window);
  add_launch(thread, record);
  if (record.window == 0) return;
  if (record.correlation != 0) first_launches_.add(record.window, record.generation, record.correlation);
  const bool no_work = (record.flags & kCallNoWork) != 0;
  ranges_.context(thread, record.window, record.range);
  CallEvent event;
  event.function = record.function;
  event.status = (record.flags & kCallGraph) != 0 ? std::int16_t{0} : record.status;
  event.captured = (record.flags & kCallCaptured) != 0;
  event.owns_shape = (record.flags & kCallOwnsShape) != 0;
  event.shared = (record.flags & kCallShared) != 0;
  event.shape = record.shape;
  event.owner = record.owner;
  event.call = record.call;
  event.window = record.window;
  event.thread = thread;
  event.range = record.range;
  event.correlation = no_work ? 0 : record.correlation;
  event.chain = record.chain;
  event.begin = record.begin;
  event.end = record.end;
  statistics_.add(event);
  for (EventSink* sink : sinks_) sink->add(event, record.generation);
}

void Drain::on_short_calls(const ShortCallsRecord& record) {
  note_window(record.window);
  statistics_.add_short_calls(record.window, {record.calls, record.count});
}

void Drain::on_processor_time(std::uint32_t thread, const ProcessorTimeRecord& record) {
  note_window(record.window);
  const ProcessorTimeEvent event{record.window, thread, record.time, record.processor, record.waits};
  statistics_.add(event);
  for (EventSink* sink : sinks_) sink->add(event);
}

void Drain::on_fetch(std::uint32_t thread, const FetchRecord& record) {
  note_window(record.window);
  statistics_.add(FetchEvent{record.window, thread, record.fetch, record.by, record.begin, record.end});
}

std::uint32_t Drain::demangled_name(std::uint32_t mangled) {
  if (mangled <= NameTable::kOther) return mangled;
  if (mangled >= demangled_.size()) demangled_.resize(mangled + 1, 0);
  if (demangled_[mangled] == 0)
    demangled_[mangled] = core_.names.intern(demangle(core_.mangled.name(mangled)));
  return demangled_[mangled];
}

std::uint32_t Drain::take(KernelEvent event, std::string_view name, std::uint16_t generation) {
  const std::uint32_t mangled = core_.mangled.intern(name);
  event.name = demangled_name(mangled);
  saw_graphs_ = saw_graphs_ || event.graph != 0;
  if (event.device < 64) devices_seen_ |= std::uint64_t{1} << event.device;
  on_activity(event, generation);
  return mangled;
}

void Drain::take(TransferEvent event, std::uint16_t generation) {
  on_activity(event, generation);
}

void Drain::iteration_boundary(const IterationBoundary& boundary) {
  statistics_.iteration_boundary(boundary);
  for (EventSink* sink : sinks_) sink->add(boundary);
  log_->boundary(boundary);
}

template <typename Event>
bool Drain::deliver_by_launch(Event& event, std::uint16_t generation) {
  const LaunchTable::Found found = launches_.find(generation, event.correlation, identity(event));
  if (found.launch == nullptr) return false;
  if (found.repeated) {
    ++repeated_;
    return true;
  }
  event.launch = *found.launch;
  deliver(event, generation);
  return true;
}

template <typename Event>
void Drain::on_activity(Event& event, std::uint16_t generation) {
  if (deliver_by_launch(event, generation)) return;
  if (pending_.size() < kMaxPending) {
    pending_.push_back({generation, event});
  } else {
    deliver_by_time(event, generation);
  }
}

// The kernels of a graph launch also belong to the calls that were captured.
void Drain::attribute_to_captured(KernelEvent& event) {
  Attribution& launch = event.launch;
  if ((event.graph == 0 && event.graph_node == 0) || !launch.known) return;
  CapturedCall call;
  if (!core_.graph_nodes.find(event.graph_node, call)) {
    if (library_depth(launch.chain) == 0) ++graph_kernels_without_call_;
    return;
  }
  // If a library launches a graph of its own inside a call, that call has the work.
  if (launch.shape != ShapeTable::kNone) return;
  for (unsigned level = 0; level < chain_depth(call.chain); ++level) {
    if (const FunctionId function = chain_at(call.chain, level); is_library_function(function))
      launch.chain = chain_push(launch.chain, function);
  }
  if (call.shape == ShapeTable::kNone) return;
  launch.shape = call.shape;
  event.replayed = {call.function, call.thread, call.owner};
}

// Launched outside of all windows: in no table, but included in the device's counters.
template <typename Event>
void Drain::note_outside(const Event& event) {
  if constexpr (std::is_same_v<Event, KernelEvent>) {
    if (times_valid(event.start, event.end))
      statistics_.add_other_kernel(event.device, event.start, event.end);
  }
}

template <typename Event>
void Drain::deliver(Event& event, std::uint16_t generation) {
  if (!times_valid(event.start, event.end)) {
    leave_out(event);
    return;
  }
  if constexpr (std::is_same_v<Event, KernelEvent>) {
    if (event.graph_node != 0 && !is_naming(event.launch.window)) {
      graph_times_.kernel(event, generation);
      return;
    }
  }
  graph_times_.work(event.device, event.context, event.stream, event.correlation, generation, event.start,
                    event.end);
  hand_on(event, generation);
}

template <typename Event>
void Drain::leave_out(const Event& event) {
  if (open_window(event.launch.window) == 0) return;
  Losses losses;
  losses.invalid_times = 1;
  windows_.add_losses(event.launch.window, losses);
  statistics_.lost_work(event.launch);
}

template <typename Event>
void Drain::hand_on(Event& event, std::uint16_t generation) {
  if (open_window(event.launch.window) == 0) {
    note_outside(event);
    if (is_naming(event.launch.window)) statistics_.add_named(event);
    return;
  }
  last_in_window_end_ = std::max(last_in_window_end_, event.end);
  if constexpr (std::is_same_v<Event, KernelEvent>) attribute_to_captured(event);
  statistics_.add(event);
  for (EventSink* sink : sinks_) sink->add(event, generation);
}

// A clipped range takes its times from the window; it has none if these are unknown.
void Drain::deliver(const RangeEvent& event) {
  if (event.clipped && (event.begin == 0 || windows_.span(event.window).begin == 0)) {
    Losses losses;
    losses.range_records = 1;
    windows_.add_losses(event.window, losses);
    return;
  }
  statistics_.add(event);
  for (EventSink* sink : sinks_) sink->add(event);
}

// A record without a launch. Ids ascend: a record from before the window's first launch belongs to a call
// that was in progress when the window opened, and ran into it. The launches of the others were missed; in
// that case, the first known launch need not be the first.
template <typename Event>
void Drain::deliver_by_time(Event& event, std::uint16_t generation) {
  if (!times_valid(event.start, event.end)) {
    ++invalid_times_;
    return;
  }
  event.launch = Attribution{};
  event.launch.window = windows_.at(event.start);
  if (event.launch.window == 0 ||
      first_launches_.is_older(event.launch.window, generation, event.correlation)) {
    note_outside(event);
    return;
  }
  ++unattributed_;
  deliver(event, generation);
}

void Drain::retry_pending() {
  std::erase_if(pending_, [this](Pending& pending) {
    return std::visit([&](auto& event) { return deliver_by_launch(event, pending.generation); },
                      pending.event);
  });
}

void Drain::advance_search(const SignPass& pass, bool hold_signs) {
  if (search_ != nullptr) search_->advance(pass, hold_signs);
}

void Drain::end_pass() {
  if (pass_begin_ > kHeldForGraphs) graph_times_.release_ended(pass_begin_ - kHeldForGraphs);
}

void Drain::take_drops(std::uint32_t window, HostDrops drops) {
  Losses losses;
  losses.host_records = drops.calls;
  losses.range_records = drops.ranges;
  windows_.add_losses(window, losses);
  if (drops.calls > 0) {
    first_launches_.lost(window);
    statistics_.lost_launches(window);
  }
  log_->drops(window, drops);
}

// CUPTI reports how many records it dropped, not which. Launches without a record are counted among these as
// long as there are any; the rest were kernels of graphs, or of launches without any record.
void Drain::note_missing(std::uint64_t dropped, bool delivered) {
  const auto lost = [this](const Attribution& launch) {
    if (!is_naming(launch.window)) statistics_.lost_work(launch);
  };
  for (const auto& [window, count] : launches_.give_up_waiting(delivered, lost)) {
    Losses losses;
    losses.activity_records = std::min(count, dropped);
    losses.missing_records = count - losses.activity_records;
    dropped -= losses.activity_records;
    if (is_naming(window)) continue;  // its kernels have no name
    windows_.add_losses(window, losses);
  }
  if (dropped == 0) return;
  Losses losses;
  losses.activity_records = dropped;
  lose_unattributed(losses);
}

// Any of the windows that are settled together may be the one. The last of them has the count.
void Drain::lose_unattributed(const Losses& losses) {
  Attribution unknown;
  unknown.window = std::min(windows_.opened(), settling_until_);
  windows_.add_losses(unknown.window, losses);
  statistics_.lost_work(unknown);
  Losses perhaps;
  perhaps.perhaps_more = true;
  for (const std::uint32_t window : windows_.closing(settling_until_)) {
    if (window == unknown.window) continue;
    windows_.add_losses(window, perhaps);
    Attribution other;
    other.window = window;
    statistics_.lost_work(other);
  }
}

void Drain::settle_times(Nanoseconds until) {
  log_->settle_times(until);
  const std::uint32_t waiting = launches_.first_waiting_window();
  std::vector<std::uint32_t> closing = windows_.closing();
  std::sort(closing.begin(), closing.end());
  const auto end = std::find_if(closing.begin(), closing.end(), [&](std::uint32_t window) {
    return (waiting != 0 && window >= waiting) || windows_.span(window).end >= until;
  });
  if (end == closing.begin()) return;
  graph_times_.release_windows(*(end - 1));
  for (auto window = closing.begin(); window != end; ++window) {
    const RangeTracker::Span span = windows_.span(*window);
    statistics_.settle_times(*window, span.begin, span.end);
  }
}

void Drain::settle(std::uint64_t dropped, bool delivered, std::uint32_t last) {
  log_->settle(dropped, delivered, last);
  settling_until_ = last;
  saw_graphs_ = false;
  retry_pending();
  for (Pending& pending : pending_) {
    std::visit([&](auto& event) { deliver_by_time(event, pending.generation); }, pending.event);
  }
  pending_.clear();
  if (invalid_times_ != 0) {
    Losses losses;
    losses.invalid_times = std::exchange(invalid_times_, 0);
    lose_unattributed(losses);
  }
  graph_times_.release_all();
  first_launches_.settled(last);
  note_missing(dropped, delivered);
  std::vector<std::uint32_t> closing = windows_.closing(last);
  std::sort(closing.begin(), closing.end());
  ranges_.close_windows(closing);
  for (const std::uint32_t window : closing) {
    const RangeTracker::Span span = windows_.span(window);
    statistics_.settle_window(window, span.begin, span.end);
  }
  settling_until_ = kAllWindows;
}

}  // namespace inject
