// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/chrome_trace.h"

#include <algorithm>
#include <cmath>

#include "libinject/analysis/occupancy.h"
#include "libinject/base/csv.h"
#include "libinject/base/format.h"
#include "libinject/base/mapping.h"
#include "libinject/model/functions.h"
#include "libinject/output/timeline_text.h"
#include "libinject/stats/statistics.h"

namespace inject {

using namespace timeline;

namespace {

constexpr std::size_t kFull = 64 * 1024;
// A number that a run gives to its threads stays small; a damaged record must not cost memory.
constexpr std::uint32_t kMaxThreads = 1u << 20;
// Powers of two. A training step has some hundreds of launch shapes; what shares a place is made anew.
constexpr std::size_t kKernelFrames = 4096;
constexpr std::size_t kCallFrames = 1024;
constexpr std::size_t kDrawn = 4096;

// Kineto's words, which tools look for.
std::string_view direction(const TransferEvent& event) {
  constexpr std::array<std::string_view, 11> kDirections{"Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                         "AtoD",    "DtoA", "DtoD", "HtoH", "PtoP"};
  if (event.copy_kind == 0 && event.peer) return kDirections.back();
  return kDirections.at(event.copy_kind < kDirections.size() ? event.copy_kind : 0);
}

std::string_view category(FunctionId function) {
  if (is_library_function(function)) return "cpu_op";
  return function_group(function) == FunctionGroup::kDriver ? "cuda_driver" : "cuda_runtime";
}

// What nvcc's code calls is, in CUPTI and in the tools, the function that the program's source calls.
std::string_view shown_name(FunctionId function) {
  std::string_view name = function_name(function);
  if (name.starts_with("__")) name.remove_prefix(2);
  return name;
}

}  // namespace

ChromeTrace::ChromeTrace(Context context, Limits limits)
    : context_(std::move(context)),
      host_pid_(static_cast<std::uint64_t>(context_.pid)),
      events_left_(limits.events),
      max_bytes_(limits.bytes) {
  if (!context_.devices) context_.devices = [] { return std::span<const DeviceInfo>(); };
  if (host_pid_ < kMaxDevices) host_pid_ += kOtherPid;
}

bool ChromeTrace::open(const std::string& folder) {
  text_ = EventText(kFull);
  kernels_.resize(kKernelFrames);
  calls_.resize(kCallFrames);
  drawn_.resize(kDrawn);
  return file_.open(folder, kFileName);
}

bool ChromeTrace::take(unsigned events) {
  if (events_left_ < events || !file_.is_open() || file_.bytes() >= max_bytes_) {
    ++left_out_;
    return false;
  }
  events_left_ -= events;
  if (!begun_) begin();
  return true;
}

void ChromeTrace::end_event() {
  text_.text("},\n");
  if (!text_.is_full()) return;
  file_.add(text_.view());
  text_.clear();
}

// A new attachment counts from the beginning again.
std::uint64_t ChromeTrace::unique(std::uint32_t correlation, std::uint16_t attachment) {
  if (first_attachment_ == 0) first_attachment_ = attachment;
  const auto turn = static_cast<std::uint16_t>(attachment - first_attachment_);
  return (std::uint64_t{turn} << 32) + correlation;
}

std::uint64_t ChromeTrace::call_id(std::uint32_t thread, std::uint32_t call) const {
  return (std::uint64_t{thread % kMaxThreads} << 32) + call;
}

std::string_view ChromeTrace::name_text(std::uint32_t name) {
  if (name >= context_.names->size()) return "\"\"";
  if (name >= names_.size()) names_.resize(name + 1);
  if (names_[name].empty()) names_[name] = quoted_text(context_.names->name(name));
  return names_[name];
}

std::uint64_t ChromeTrace::tid_of(std::uint32_t thread) {
  if (thread >= kMaxThreads) return 0;
  if (thread >= threads_.size()) {
    threads_.resize(thread + 1);
    threads_known_.resize(thread + 1);
  }
  if (!threads_known_[thread]) {
    threads_known_[thread] = true;
    if (context_.thread) threads_[thread] = context_.thread(thread);
  }
  return threads_[thread].tid;
}

const DeviceInfo* ChromeTrace::device(std::uint32_t id) const {
  for (const DeviceInfo& info : context_.devices()) {
    if (info.id == id) return &info;
  }
  return nullptr;
}

// By the times that are shown.
template <typename Event>
std::uint32_t ChromeTrace::row_of(const Event& event) {
  const std::uint64_t begin = since(event.start);
  return streams_.place(event.device, event.stream, begin, begin + length(event.start, event.end));
}

// As Kineto computes them: what a multiprocessor gets of the grid, and what of that is there at once.
void ChromeTrace::append_occupancy(std::string& out, const KernelEvent& event) const {
  const DeviceInfo* info = device(event.device);
  if (info == nullptr || info->multiprocessors <= 0 || info->warp_size <= 0) return;
  const auto product = [](const std::array<std::int32_t, 3>& sizes) {
    return static_cast<double>(sizes[0]) * sizes[1] * sizes[2];
  };
  const double threads = product(event.block);
  const double blocks = product(event.grid) / info->multiprocessors;
  out += ",\"blocks per SM\":";
  append_decimal(out, blocks, 3);
  out += ",\"warps per SM\":";
  append_decimal(out, blocks * threads / info->warp_size, 3);
  LaunchResources launch;
  launch.block_threads = threads > 0 ? static_cast<std::uint64_t>(threads) : 0;
  launch.registers_per_thread = event.registers_per_thread;
  launch.static_shared_bytes = event.static_shared_bytes;
  launch.dynamic_shared_bytes = event.dynamic_shared_bytes;
  const auto occupancy = occupancy_of(*info, launch);
  if (!occupancy || info->threads_per_multiprocessor <= 0) return;
  const double resident = std::min<double>(blocks, occupancy->blocks) * threads;
  out += ",\"est. achieved occupancy %\":";
  append_decimal(out, 100 * resident / info->threads_per_multiprocessor, 0);
}

void ChromeTrace::fill(Frame& frame, const KernelEvent& event, std::uint32_t row) {
  frame.before = str_format(R"({{"ph":"X","cat":"kernel","name":{},"pid":{},"tid":{},"ts":)",
                            name_text(event.name), event.device, row);
  frame.after = str_format(
      R"(,"args":{{"device":{},"context":{},"stream":{},"registers per thread":{},"shared memory":{},"grid":[{},{},{}],"block":[{},{},{}])",
      event.device, event.context, event.stream, event.registers_per_thread,
      std::uint64_t{event.static_shared_bytes} + event.dynamic_shared_bytes, event.grid[0], event.grid[1],
      event.grid[2], event.block[0], event.block[1], event.block[2]);
  append_occupancy(frame.after, event);
  frame.after += R"(,"correlation":)";
}

const ChromeTrace::Frame& ChromeTrace::kernel_frame(const KernelEvent& event, std::uint32_t row) {
  const KernelKey key{event.name,
                      event.device,
                      event.context,
                      event.stream,
                      row,
                      event.registers_per_thread,
                      event.static_shared_bytes,
                      event.dynamic_shared_bytes,
                      event.grid,
                      event.block};
  std::uint64_t hash = kHashSeed;
  const auto mix = [&hash](std::uint32_t a, std::uint32_t b) {
    hash = hash_mix(hash ^ (std::uint64_t{a} << 32 | b));
  };
  const auto word = [](std::int32_t value) { return static_cast<std::uint32_t>(value); };
  mix(key.name, key.device);
  mix(key.context, key.row);
  mix(key.dynamic_shared_bytes, word(key.grid[0]));
  mix(word(key.grid[1]), word(key.grid[2]));
  mix(word(key.block[0]), word(key.block[1]));
  KernelFrame& place = kernels_[hash & (kKernelFrames - 1)];
  if (place.used && place.key == key) return place.frame;
  fill(place.frame, event, row);
  place.key = key;
  // Not kept before it can be told how many of its blocks fit on this device.
  place.used = !context_.devices().empty();
  return place.frame;
}

/// One arrow a launch: a graph's has one to the first kernel that is known, as viewers end an arrow there.
template <typename Event>
bool ChromeTrace::draws_arrow(const Event& event, std::uint64_t correlation) {
  if (!event.launch.known || event.launch.host_begin == 0 || correlation == 0) return false;
  std::uint64_t& place = drawn_[correlation & (kDrawn - 1)];
  if (place == correlation + 1) return false;
  place = correlation + 1;
  return true;
}

// What does not change from one to the next comes first: fewer pieces to compress.
template <typename Event>
void ChromeTrace::arrow(const Event& event, std::uint32_t row, std::uint64_t correlation) {
  text_.text(R"({"ph":"s","cat":"ac2g","name":"ac2g","pid":)").number(host_pid_);
  text_.text(R"(,"tid":)").number(tid_of(event.launch.thread)).text(R"(,"id":)").number(correlation);
  text_.text(R"(,"ts":)").microseconds(since(event.launch.host_begin));
  end_event();
  text_.text(R"({"ph":"f","bp":"e","cat":"ac2g","name":"ac2g","pid":)").number(event.device);
  text_.text(R"(,"tid":)").number(row).text(R"(,"id":)").number(correlation);
  text_.text(R"(,"ts":)").microseconds(since(event.start));
  end_event();
}

void ChromeTrace::add(const KernelEvent& event, std::uint16_t attachment) {
  const std::uint64_t correlation = unique(event.correlation, attachment);
  if (!take(3)) return;
  const bool drawn = draws_arrow(event, correlation);
  if (!drawn) events_left_ += 2;
  const std::uint32_t row = row_of(event);
  const Frame& frame = kernel_frame(event, row);
  text_.text(frame.before).microseconds(since(event.start));
  text_.text(R"(,"dur":)").microseconds(length(event.start, event.end));
  text_.text(frame.after).number(correlation);
  if (event.launch.owner != 0)
    text_.text(R"(,"External id":)").number(call_id(event.launch.thread, event.launch.owner));
  text_.text("}");
  end_event();
  if (drawn) arrow(event, row, correlation);
}

void ChromeTrace::add(const TransferEvent& event, std::uint16_t attachment) {
  const std::uint64_t correlation = unique(event.correlation, attachment);
  if (!take(3)) return;
  const bool drawn = draws_arrow(event, correlation);
  if (!drawn) events_left_ += 2;
  const std::uint32_t row = row_of(event);
  const std::uint64_t duration = length(event.start, event.end);
  if (event.memset) {
    text_.text(R"({"ph":"X","cat":"gpu_memset","name":"Memset )").text("(");
  } else {
    text_.text(R"({"ph":"X","cat":"gpu_memcpy","name":"Memcpy )").text(direction(event));
    text_.text(" (").text(memory_kind_name(event.source_memory)).text(" -> ");
  }
  text_.text(memory_kind_name(event.target_memory)).text(")\"");
  text_.text(R"(,"pid":)").number(event.device).text(R"(,"tid":)").number(row);
  text_.text(R"(,"ts":)").microseconds(since(event.start)).text(R"(,"dur":)").microseconds(duration);
  text_.text(R"(,"args":{"device":)").number(event.device).text(R"(,"context":)").number(event.context);
  text_.text(R"(,"stream":)").number(event.stream).text(R"(,"correlation":)").number(correlation);
  if (event.peer) {
    text_.text(R"(,"fromDevice":)").number(event.source_device);
    text_.text(R"(,"inDevice":)").number(event.device);
    text_.text(R"(,"toDevice":)").number(event.target_device);
  }
  text_.text(R"(,"bytes":)").number(event.bytes);
  if (duration != 0) {
    text_.text(",\"memory bandwidth (GB/s)\":");
    text_.decimal(static_cast<double>(event.bytes) / static_cast<double>(duration));
  }
  if (event.launch.owner != 0)
    text_.text(R"(,"External id":)").number(call_id(event.launch.thread, event.launch.owner));
  text_.text("}");
  end_event();
  if (drawn) arrow(event, row, correlation);
}

const std::string& ChromeTrace::call_frame(const CallEvent& event) {
  const std::uint64_t key = (std::uint64_t{event.thread} << 16 | event.function) + 1;
  CallFrame& place = calls_[hash_mix(key) & (kCallFrames - 1)];
  if (place.key == key) return place.before;
  place.key = key;
  place.before =
      str_format(R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":)", category(event.function),
                 quoted_text(shown_name(event.function)), host_pid_, tid_of(event.thread));
  return place.before;
}

void ChromeTrace::add(const CallEvent& event, std::uint16_t attachment) {
  const bool library = is_library_function(event.function);
  if (!library && !is_api_function(event.function)) return;
  const std::uint64_t correlation = event.correlation == 0 ? 0 : unique(event.correlation, attachment);
  if (!take(1)) return;
  text_.text(call_frame(event)).microseconds(since(event.begin));
  text_.text(R"(,"dur":)").microseconds(length(event.begin, event.end));
  std::string_view next = R"(,"args":{)";
  const auto argument = [&](std::string_view name, auto value) {
    text_.text(next).text(name).number(value);
    next = ",";
  };
  if (correlation != 0) argument(R"("correlation":)", correlation);
  if (library) {
    argument(R"("External id":)", call_id(event.thread, event.call));
  } else if (event.owner != 0) {
    argument(R"("External id":)", call_id(event.thread, event.owner));
  }
  if (event.status != 0) argument(R"("status":)", event.status);
  if (next == ",") text_.text("}");
  end_event();
}

unsigned ChromeTrace::ranges_around(RangeTree::Node node) const {
  constexpr unsigned kMax = 64;
  unsigned count = 0;
  for (; node.parent != 0 && count < kMax; ++count) node = context_.ranges->node(node.parent);
  return count;
}

void ChromeTrace::add(const RangeEvent& event) {
  const RangeTree::Node node = context_.ranges->node(event.node);
  const bool nests = node.style == RangeStyle::kPushPop;
  if (!take(nests ? 1 : 2)) return;
  std::string_view name = context_.names->name(node.name);
  if (node.domain == 0 && name.starts_with(':')) name.remove_prefix(1);
  scratch_ = quoted_text(name);
  const auto head = [&](std::string_view phase, Nanoseconds time) {
    text_.text(R"({"ph":")").text(phase).text(R"(","cat":"user_annotation","name":)").text(scratch_);
    text_.text(R"(,"pid":)").number(host_pid_).text(R"(,"tid":)").number(tid_of(event.thread));
    text_.text(R"(,"ts":)").microseconds(since(time));
  };
  if (nests) {
    // Ranges that were open when the window opened begin with it, all at once, and the innermost ends, and is
    // written, first. Viewers put what begins at the same time inside what came before it.
    const Nanoseconds begin =
        event.clipped ? std::min(event.begin + ranges_around(node), event.end) : event.begin;
    head("X", begin);
    text_.text(R"(,"dur":)").microseconds(length(begin, event.end));
    end_event();
    return;
  }
  // Ranges that start and end anywhere need not lie within each other: rows of their own.
  ++asynchronous_;
  for (const char* phase : {"b", "e"}) {
    head(phase, *phase == 'b' ? event.begin : std::max(event.begin, event.end));
    text_.text(R"(,"id":)").number(asynchronous_);
    end_event();
  }
}

// What begins at one boundary ends at the next one, and is shown as a nanosecond shorter: tools that add time
// and duration in floating point would take it to reach into the next. What lies outside of windows is not
// shown.
void ChromeTrace::add(const IterationBoundary& boundary) {
  const IterationBoundary begun = std::exchange(last_boundary_, boundary);
  const bool shown = in_iteration_ && begun.window != 0 && boundary.begin > begun.begin;
  in_iteration_ = true;
  if (!shown || !take(1)) return;
  has_iterations_ = true;
  text_.text(R"({"ph":"X","cat":"user_annotation","name":")");
  if (begun.label == IterationLabel::kIteration) {
    text_.text("ProfilerStep#").number(begun.number);
  } else {
    text_.text(begun.label == IterationLabel::kCheckpoint ? "checkpoint" : "validation");
  }
  text_.text(R"(","pid":)").number(host_pid_).text(R"(,"tid":)").number(kIterationRow);
  text_.text(R"(,"ts":)").microseconds(since(begun.begin));
  text_.text(R"(,"dur":)").microseconds(boundary.begin - begun.begin - 1);
  end_event();
}

void ChromeTrace::add(const MetricSample& sample, std::span<const MetricInfo> columns) {
  const std::size_t values = std::min(columns.size(), sample.values.size());
  if (!take(static_cast<unsigned>(values))) return;
  constexpr float kMax = 1e15f;
  for (std::size_t i = 0; i < values; ++i) {
    if (!(std::abs(sample.values[i]) < kMax)) continue;  // not measured
    scratch_ = quoted_text(columns[i].title);
    text_.text(R"({"ph":"C","name":)").text(scratch_);
    text_.text(R"(,"pid":)").number(sample.device).text(R"(,"ts":)").microseconds(since(sample.start));
    text_.text(R"(,"args":{"value":)").decimal(static_cast<double>(sample.values[i])).text("}");
    end_event();
  }
}

}  // namespace inject
