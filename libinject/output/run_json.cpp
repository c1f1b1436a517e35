// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/run_json.h"

#include <time.h>

#include <array>
#include <cstdio>

// Without the stream operators, which would bring iostream's static initialisers into the program.
#define JSON_NO_IO
#include <nlohmann/json.hpp>

namespace inject {

namespace {

using Json = nlohmann::ordered_json;

/// ISO 8601 with nanoseconds.
std::string utc_text(std::uint64_t nanoseconds) {
  const auto seconds = static_cast<time_t>(nanoseconds / 1'000'000'000u);
  tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return {};
  std::array<char, 80> text{};
  const int length =
      std::snprintf(text.data(), text.size(), "%04d-%02d-%02dT%02d:%02d:%02d.%09uZ", parts.tm_year + 1900,
                    parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                    static_cast<unsigned>(nanoseconds % 1'000'000'000u));
  return {text.data(), static_cast<std::size_t>(length)};
}

std::int64_t since_base(Nanoseconds time, const RunInfo& run) {
  return static_cast<std::int64_t>(time - run.base);
}

Json losses_json(const Losses& losses) {
  return {{"host_records", losses.host_records},
          {"range_records", losses.range_records},
          {"activity_records", losses.activity_records},
          {"invalid_timestamps", losses.invalid_times},
          {"missing_activity_records", losses.missing_records}};
}

Json pairs_json(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Json json = Json::object();
  for (const auto& [name, value] : pairs) json[name] = value;
  return json;
}

Json device_json(const DeviceInfo& device) {
  return {{"id", device.id},
          {"name", device.name},
          {"uuid", device.uuid},
          {"pci_bus", device.pci_bus},
          {"compute_capability",
           std::to_string(device.compute_major) + "." + std::to_string(device.compute_minor)},
          {"multiprocessors", device.multiprocessors},
          {"memory_bytes", device.memory_bytes},
          {"clock_khz", device.clock_khz},
          {"memory_clock_khz", device.memory_clock_khz},
          {"memory_bus_bits", device.memory_bus_bits}};
}

Json window_json(const WindowInfo& window, const RunInfo& run) {
  constexpr std::array<const char*, 3> kStates{"open", "closing", "closed"};
  Json json{{"number", window.number},
            {"reason", window.reason},
            {"state", kStates[static_cast<std::size_t>(window.state)]},
            {"start_ns", since_base(window.start, run)}};
  if (window.end != 0) {
    json["end_ns"] = since_base(window.end, run);
    json["duration_ns"] = window.end - window.start;
  }
  if (window.detached != 0) {
    json["detached_ns"] = since_base(window.detached, run);
    json["last_activity_ns"] = since_base(window.last_activity, run);
  }
  json["lost"] = losses_json(window.losses);
  return json;
}

Json overhead_json(const Overhead& overhead) {
  return {{"open_ns", overhead.open},
          {"close_ns", overhead.close},
          {"write_ns", overhead.write},
          {"drain_cpu_ns", overhead.drain_cpu},
          {"buffer_callbacks_ns", overhead.buffer_callbacks},
          {"gate_ns", overhead.gate},
          {"gate_holds", overhead.gate_holds},
          {"attachments", overhead.attachments},
          {"activity_buffers", overhead.buffers}};
}

}  // namespace

std::string run_json_text(const RunInfo& run, std::span<const std::string> files,
                          std::span<const std::string> errors) {
  Json json;
  json["libinject"] = run.version;
  json["state"] = run.state;
  json["command_line"] = run.command_line;
  json["working_directory"] = run.working_directory;
  json["host"] = run.host;
  json["pid"] = run.pid;
  json["rank"] = run.rank.empty() ? Json(nullptr) : Json(run.rank);
  json["time_zero"] = {
      {"utc", utc_text(run.base_utc)}, {"utc_ns", run.base_utc}, {"clock_monotonic_ns", run.base}};
  json["versions"] = pairs_json(run.versions);
  json["options"] = pairs_json(run.options);
  json["hooks_left_out_of_the_build"] = run.groups_left_out;
  json["devices"] = Json::array();
  for (const DeviceInfo& device : run.devices) json["devices"].push_back(device_json(device));
  json["threads"] = Json::array();
  for (const ThreadInfo& thread : run.threads) {
    if (thread.tid == 0) continue;  // the index of events without a thread
    json["threads"].push_back({{"tid", thread.tid}, {"name", thread.name}});
  }
  json["windows"] = Json::array();
  Losses lost = run.losses_outside;
  for (const WindowInfo& window : run.windows) {
    json["windows"].push_back(window_json(window, run));
    lost.add(window.losses);
  }
  json["windows_not_listed"] = run.windows_not_listed;
  json["overhead"] = overhead_json(run.overhead);
  json["lost"] = losses_json(lost);
  json["lost"]["names"] = run.name_overflows;
  json["lost"]["range_paths"] = run.range_overflows;
  json["lost"]["trace_rows"] = run.trace_rows_left_out;
  json["repeated_activity_records"] = run.repeated_records;
  json["messages"] = run.messages;
  json["files"] = files;
  json["write_errors"] = errors;
  // Names come from the program as they are: a byte that is not UTF-8 is replaced, not thrown on.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace inject
