// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/chrome_trace.h"

#include <algorithm>
#include <cmath>

#include "libinject/analysis/occupancy.h"
#include "libinject/base/csv.h"
#include "libinject/base/json_text.h"
#include "libinject/base/mapping.h"
#include "libinject/model/functions.h"
#include "libinject/stats/statistics.h"

namespace inject {

namespace {

constexpr std::size_t kFull = 64 * 1024;
// A number that a run gives to its devices and threads stays small; a damaged record must not cost memory.
constexpr std::uint32_t kMaxDevices = 1u << 10;
constexpr std::uint32_t kMaxThreads = 1u << 20;
// Powers of two. A training step has some hundreds of launch shapes; what shares a place is made anew.
constexpr std::size_t kKernelFrames = 4096;
constexpr std::size_t kCallFrames = 1024;
constexpr std::size_t kDrawn = 4096;
// Linux numbers no process and no thread above 2^22. Devices are processes by their own numbers, as with
// Kineto, so that a program with such a small number, as in a container, gets another one.
constexpr std::uint64_t kOtherPid = std::uint64_t{1} << 22;
constexpr std::uint64_t kWindowRow = kOtherPid + 1;
constexpr std::uint64_t kIterationRow = kOtherPid + 2;
// Escaped, that is six times as long at most, a name fits into an event.
constexpr std::size_t kMaxNameLength = 16 * 1024;
static_assert(6 * kMaxNameLength + 4096 < EventText::kMaxEvent);

std::string quoted_text(std::string_view text) {
  std::string quoted;
  if (text.size() < kMaxNameLength) {
    append_json_string(quoted, text);
  } else {
    append_json_string(quoted, std::string(text.substr(0, kMaxNameLength - 3)) + "...");
  }
  return quoted;
}

void append_number(std::string& out, std::uint64_t value) {
  out += std::to_string(value);
}

void append_microseconds(std::string& out, std::uint64_t nanoseconds) {
  std::array<char, EventText::kMaxNumberLength> digits;
  out.append(digits.data(), EventText::put_microseconds(digits.data(), nanoseconds));
}

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

std::string number_or(const std::string& text, std::string_view otherwise) {
  const bool number = !text.empty() && text.size() < 10 &&
                      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  // JSON has no leading zeros.
  return number ? std::to_string(std::stoul(text)) : std::string(otherwise);
}

std::uint64_t length(Nanoseconds begin, Nanoseconds end) {
  return end > begin ? end - begin : 0;
}

/// Metadata: the name, or another property, of a row or a group of rows.
void append_property(std::string& out, std::string_view property, std::string_view process, std::uint64_t tid,
                     std::string_view key, std::string_view value) {
  out.append(R"({"ph":"M","name":")").append(property).append(R"(","pid":)").append(process);
  out.append(R"(,"tid":)");
  append_number(out, tid);
  out.append(R"(,"args":{")").append(key).append("\":").append(value).append("}},\n");
}

}  // namespace

ChromeTrace::ChromeTrace(Context context, Limits limits)
    : context_(std::move(context)),
      host_pid_(static_cast<std::uint64_t>(context_.pid)),
      events_left_(limits.events),
      bytes_most_(limits.bytes) {
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
  if (events_left_ < events || !file_.is_open() || file_.bytes() >= bytes_most_) {
    ++left_out_;
    return false;
  }
  events_left_ -= events;
  if (!begun_) begin();
  return true;
}

// HolisticTraceAnalysis looks for the rank line by line, with a space before it, and may read no further than
// to the events.
void ChromeTrace::begin() {
  begun_ = true;
  std::string head = "{\n\"schemaVersion\": 1,\n";
  head += devices_text();
  head += "\"distributedInfo\": {\"rank\": " + number_or(context_.rank, "0");
  const std::string size = number_or(context_.world_size, context_.rank.empty() ? "1" : "");
  if (!size.empty()) head += ", \"world_size\": " + size;
  head += "},\n\"displayTimeUnit\": \"ns\",\n\"baseTimeNanoseconds\": " + std::to_string(context_.base_utc) +
          ",\n\"traceName\": \"" + kFileName + "\",\n\"traceEvents\": [\n";
  file_.add(head);
}

std::string ChromeTrace::devices_text() {
  std::string out;
  for (const DeviceInfo& info : context_.devices()) {
    out += out.empty() ? "\"deviceProperties\": [\n" : ",\n";
    out += "{\"id\": " + std::to_string(info.id) + ", \"name\": " + quoted_text(info.name) +
           ", \"totalGlobalMem\": " + std::to_string(info.memory_bytes);
    const std::array<std::pair<std::string_view, int>, 11> members{
        {{"computeMajor", info.compute_major},
         {"computeMinor", info.compute_minor},
         {"maxThreadsPerBlock", info.threads_per_block},
         {"maxThreadsPerMultiprocessor", info.threads_per_multiprocessor},
         {"regsPerBlock", info.registers_per_block},
         {"warpSize", info.warp_size},
         {"sharedMemPerBlock", info.shared_per_block},
         {"numSms", info.multiprocessors},
         {"regsPerMultiprocessor", info.registers_per_multiprocessor},
         {"sharedMemPerBlockOptin", info.shared_per_block_optin},
         {"sharedMemPerMultiprocessor", info.shared_per_multiprocessor}}};
    for (const auto& [name, value] : members)
      out.append(", \"").append(name).append("\": ").append(std::to_string(value));
    out += '}';
  }
  if (!out.empty()) out += "\n],\n";
  has_devices_ = !out.empty();
  return out;
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
  frame.before.assign(R"({"ph":"X","cat":"kernel","name":)").append(name_text(event.name));
  frame.before.append(R"(,"pid":)").append(std::to_string(event.device));
  frame.before.append(R"(,"tid":)").append(std::to_string(row)).append(R"(,"ts":)");
  std::string& after = frame.after;
  after.assign(R"(,"args":{"device":)").append(std::to_string(event.device));
  after.append(R"(,"context":)").append(std::to_string(event.context));
  after.append(R"(,"stream":)").append(std::to_string(event.stream));
  after.append(R"(,"registers per thread":)").append(std::to_string(event.registers_per_thread));
  after.append(R"(,"shared memory":)");
  append_number(after, std::uint64_t{event.static_shared_bytes} + event.dynamic_shared_bytes);
  for (const auto& [name, sizes] : {std::pair{"grid", &event.grid}, std::pair{"block", &event.block}}) {
    after.append(",\"").append(name).append("\":[").append(std::to_string((*sizes)[0]));
    after.append(",").append(std::to_string((*sizes)[1]));
    after.append(",").append(std::to_string((*sizes)[2])).append("]");
  }
  append_occupancy(after, event);
  after.append(R"(,"correlation":)");
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
  place.before.assign(R"({"ph":"X","cat":")").append(category(event.function)).append(R"(","name":)");
  append_json_string(place.before, shown_name(event.function));
  place.before.append(R"(,"pid":)").append(std::to_string(host_pid_));
  place.before.append(R"(,"tid":)").append(std::to_string(tid_of(event.thread))).append(R"(,"ts":)");
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

// A row beside a stream's comes after it: its number is greater, where both are sorted alike.
void ChromeTrace::append_stream_rows(std::string& out) {
  const StreamRows::Row* last = nullptr;
  unsigned beside = 0;
  const std::vector<StreamRows::Row> rows = streams_.rows();
  for (const StreamRows::Row& row : rows) {
    const std::string process = std::to_string(row.device);
    const bool device_known = last != nullptr && last->device == row.device;
    if (!device_known) {
      const DeviceInfo* info = device(row.device);
      append_property(out, "process_name", process, 0, "name",
                      quoted_text(info == nullptr || info->name.empty() ? "GPU" : info->name));
      append_property(out, "process_labels", process, 0, "labels", "\"GPU " + process + "\"");
      append_property(out, "process_sort_index", process, 0, "sort_index", std::to_string(1000 + row.device));
    }
    beside = device_known && last->stream == row.stream ? beside + 1 : 0;
    std::string name = "\"stream " + std::to_string(row.stream);
    if (beside != 0) name += beside == 1 ? " (overlapping)" : " (overlapping " + std::to_string(beside) + ")";
    append_property(out, "thread_name", process, row.number, "name", name + "\"");
    append_property(out, "thread_sort_index", process, row.number, "sort_index", std::to_string(row.stream));
    last = &row;
  }
}

// The names of rows, windows, and what else is known at the end alone.
std::string ChromeTrace::end_text(std::span<const WindowInfo> windows) {
  std::string out;
  const std::string host = std::to_string(host_pid_);
  for (const WindowInfo& window : windows) {
    if (window.end == 0) continue;
    out.append(R"({"ph":"X","cat":"Trace","name":)");
    out.append(quoted_text("window " + std::to_string(window.number) + " (" + window.reason + ")"));
    out.append(R"(,"pid":)").append(host).append(R"(,"tid":)").append(std::to_string(kWindowRow));
    out.append(R"(,"ts":)");
    append_microseconds(out, since(window.start));
    out.append(R"(,"dur":)");
    append_microseconds(out, length(window.start, window.end));
    out.append("},\n");
  }
  append_property(out, "thread_name", host, kWindowRow, "name", "\"windows\"");
  append_property(out, "thread_sort_index", host, kWindowRow, "sort_index", "0");
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (!threads_known_[i]) continue;
    // Threads are often named after their first call.
    if (context_.thread) threads_[i] = context_.thread(static_cast<std::uint32_t>(i));
    const std::string name = "thread " + std::to_string(threads_[i].tid) + " (" + threads_[i].name + ")";
    append_property(out, "thread_name", host, threads_[i].tid, "name", quoted_text(name));
    append_property(out, "thread_sort_index", host, threads_[i].tid, "sort_index", std::to_string(i + 2));
  }
  if (has_iterations_) {
    append_property(out, "thread_name", host, kIterationRow, "name", "\"iterations\"");
    append_property(out, "thread_sort_index", host, kIterationRow, "sort_index", "1");
  }
  append_stream_rows(out);
  append_property(out, "process_name", host, 0, "name", quoted_text(context_.program));
  append_property(out, "process_labels", host, 0, "labels", "\"CPU\"");
  append_property(out, "process_sort_index", host, 0, "sort_index", "0");
  out.resize(out.size() - 2);  // there is no comma after the last one
  out += "\n]";
  if (!has_devices_) {
    std::string late = devices_text();
    has_devices_ = false;  // the next end has them, too
    if (!late.empty()) out.append(",\n").append(late, 0, late.size() - 2);
  }
  return out + "\n}\n";
}

bool ChromeTrace::complete(std::span<const WindowInfo> windows) {
  if (!file_.is_open()) return false;
  if (!begun_) begin();
  file_.add(text_.view());
  text_.clear();
  return file_.complete(end_text(windows));
}

}  // namespace inject
