// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The beginning and end of the timeline: the run, its devices, and the rows' names.

#include <algorithm>
#include <array>
#include <utility>

#include "libinject/base/format.h"
#include "libinject/output/chrome_trace.h"
#include "libinject/output/timeline_text.h"

namespace inject {

using namespace timeline;

namespace {

// A number in JSON's syntax, without leading zeros.
std::string number_or(const std::string& text, std::string_view otherwise) {
  const bool number = !text.empty() && text.size() < 10 &&
                      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  return number ? std::to_string(std::stoul(text)) : std::string(otherwise);
}

/// The name, or another property, of a row or a group of rows.
void append_property(std::string& out, std::string_view property, std::uint64_t process, std::uint64_t row,
                     std::string_view key, std::string_view value) {
  append_format(out,
                R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"{}":{}}}}},)"
                "\n",
                property, process, row, key, value);
}

void append_sort_index(std::string& out, std::string_view property, std::uint64_t process, std::uint64_t row,
                       std::uint64_t index) {
  append_property(out, property, process, row, "sort_index", std::to_string(index));
}

std::string microseconds(std::uint64_t nanoseconds) {
  return str_format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

}  // namespace

// HolisticTraceAnalysis searches for the rank line by line, with a space before it, and may stop reading at
// the events.
void ChromeTrace::begin() {
  begun_ = true;
  const std::string size = number_or(context_.world_size, context_.rank.empty() ? "1" : "");
  file_.add(str_format(
      "{{\n\"schemaVersion\": 1,\n{}\"distributedInfo\": {{\"rank\": {}{}}},\n\"displayTimeUnit\": \"ns\",\n"
      "\"baseTimeNanoseconds\": {},\n\"traceName\": \"{}\",\n\"traceEvents\": [\n",
      devices_text(), number_or(context_.rank, "0"),
      size.empty() ? "" : str_format(", \"world_size\": {}", size), context_.base_utc, kFileName));
}

std::string ChromeTrace::devices_text() {
  std::string out;
  for (const DeviceInfo& info : context_.devices()) {
    out += out.empty() ? "\"deviceProperties\": [\n" : ",\n";
    append_format(out, R"({{"id": {}, "name": {}, "totalGlobalMem": {})", info.id, quoted_text(info.name),
                  info.memory_bytes);
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
    for (const auto& [name, value] : members) append_format(out, R"(, "{}": {})", name, value);
    out += '}';
  }
  if (!out.empty()) out += "\n],\n";
  has_devices_ = !out.empty();
  return out;
}

// An extra row of a stream comes after the stream's own: its number is greater, and both have the same sort
// index.
void ChromeTrace::append_stream_rows(std::string& out) {
  const StreamRows::Row* last = nullptr;
  unsigned beside = 0;
  const std::vector<StreamRows::Row> rows = streams_.rows();
  std::set<std::uint32_t> devices = counted_devices_;
  for (const StreamRows::Row& row : rows) devices.insert(row.device);
  for (const std::uint32_t id : devices) {
    const DeviceInfo* info = device(id);
    append_property(out, "process_name", id, 0, "name",
                    quoted_text(info == nullptr || info->name.empty() ? "GPU" : info->name));
    append_property(out, "process_labels", id, 0, "labels", str_format("\"GPU {}\"", id));
    append_sort_index(out, "process_sort_index", id, 0, 1000 + id);
  }
  for (const StreamRows::Row& row : rows) {
    beside = last != nullptr && last->device == row.device && last->stream == row.stream ? beside + 1 : 0;
    std::string name = str_format("\"stream {}", row.stream);
    if (beside != 0) name += beside == 1 ? " (overlapping)" : str_format(" (overlapping {})", beside);
    append_property(out, "thread_name", row.device, row.number, "name", name + '"');
    append_sort_index(out, "thread_sort_index", row.device, row.number, row.stream);
    last = &row;
  }
}

// Below the thread's own row: their numbers are greater, and they have the same sort index.
void ChromeTrace::append_place_rows(std::string& out) {
  constexpr std::array<std::string_view, kPlaceRows> kNames{"lines", "modules", "operators"};
  for (std::size_t row = 0; row < place_rows_.size(); ++row) {
    if (!place_rows_[row]) continue;
    const std::size_t thread = row / kPlaceRows;
    append_property(
        out, "thread_name", host_pid_, kFirstPlaceRow + row, "name",
        quoted_text(str_format("{} of thread {}", kNames[row % kPlaceRows], threads_[thread].tid)));
    append_sort_index(out, "thread_sort_index", host_pid_, kFirstPlaceRow + row, thread + 2);
  }
}

// The names of rows, the windows, and whatever else is known only at the end.
std::string ChromeTrace::end_text(std::span<const WindowInfo> windows) {
  std::string out;
  for (const WindowInfo& window : windows) {
    if (window.end == 0) continue;
    append_format(out,
                  R"({{"ph":"X","cat":"Trace","name":{},"pid":{},"tid":{},"ts":{},"dur":{}}},)"
                  "\n",
                  quoted_text(str_format("window {} ({})", window.number, window.reason)), host_pid_,
                  kWindowRow, microseconds(since(window.start)),
                  microseconds(length(window.start, window.end)));
  }
  append_property(out, "thread_name", host_pid_, kWindowRow, "name", "\"windows\"");
  append_sort_index(out, "thread_sort_index", host_pid_, kWindowRow, 0);
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (!threads_known_[i]) continue;
    // Threads often get their names after their first call.
    if (context_.thread) threads_[i] = context_.thread(static_cast<std::uint32_t>(i));
    const ThreadInfo& thread = threads_[i];
    append_property(out, "thread_name", host_pid_, thread.tid, "name",
                    quoted_text(str_format("thread {} ({})", thread.tid, thread.name)));
    append_sort_index(out, "thread_sort_index", host_pid_, thread.tid, i + 2);
  }
  append_place_rows(out);
  if (has_iterations_) {
    append_property(out, "thread_name", host_pid_, kIterationRow, "name", "\"iterations\"");
    append_sort_index(out, "thread_sort_index", host_pid_, kIterationRow, 1);
  }
  append_stream_rows(out);
  append_property(out, "process_name", host_pid_, 0, "name", quoted_text(context_.program));
  append_property(out, "process_labels", host_pid_, 0, "labels", "\"CPU\"");
  append_sort_index(out, "process_sort_index", host_pid_, 0, 0);
  out.resize(out.size() - 2);  // there is no comma after the last one
  out += "\n]";
  if (!has_devices_) {
    std::string late = devices_text();
    has_devices_ = false;  // the next end includes them again
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
