// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/run_json.h"

#include <time.h>

#include <array>
#include <optional>
#include <string_view>

#include "libinject/base/format.h"
#include "libinject/base/json_text.h"
#include "libinject/base/text.h"
#include "libinject/output/table_cells.h"

namespace inject {

namespace {

/// ISO 8601 with nanoseconds.
std::string utc_text(std::uint64_t nanoseconds) {
  const auto seconds = static_cast<time_t>(nanoseconds / 1'000'000'000u);
  tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return {};
  return str_format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                    parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, nanoseconds % 1'000'000'000u);
}

std::array<LostCount, 5> counts_of(const Losses& losses) {
  return {{{"host_records", losses.host_records},
           {"range_records", losses.range_records},
           {"activity_records", losses.activity_records},
           {"invalid_timestamps", losses.invalid_times},
           {"missing_activity_records", losses.missing_records}}};
}

void lost_json(JsonText& json, std::span<const LostCount> counts) {
  json.name("lost").open_object();
  for (const LostCount& lost : counts) json.member(lost.kind, lost.count);
  json.close_object();
}

void pairs_json(JsonText& json, std::string_view name,
                const std::vector<std::pair<std::string, std::string>>& pairs) {
  json.name(name).open_object();
  for (const auto& [key, value] : pairs) json.member(key, value);
  json.close_object();
}

void job_json(JsonText& json, const std::optional<JobPlace>& job) {
  json.name("job");
  if (!job) {
    json.null();
    return;
  }
  const auto number = [&json](std::string_view name, std::optional<std::uint32_t> value) {
    json.name(name);
    if (value) {
      json.number(*value);
    } else {
      json.null();
    }
  };
  json.open_object().member("launcher", job->launcher).name("id");
  if (job->id.empty()) {
    json.null();
  } else {
    json.text(job->id);
  }
  number("rank", job->rank);
  number("world_size", job->world_size);
  number("local_rank", job->local_rank);
  number("local_size", job->local_size);
  number("node", job->node);
  number("nodes", job->nodes);
  json.close_object();
}

void device_json(JsonText& json, const DeviceInfo& device) {
  json.open_object()
      .member("id", device.id)
      .member("name", device.name)
      .member("uuid", device.uuid)
      .member("pci_bus", device.pci_bus)
      .member("compute_capability", str_format("{}.{}", device.compute_major, device.compute_minor))
      .member("multiprocessors", device.multiprocessors)
      .member("memory_bytes", device.memory_bytes)
      .member("clock_khz", device.clock_khz)
      .member("memory_clock_khz", device.memory_clock_khz)
      .member("memory_bus_bits", device.memory_bus_bits)
      .member("warp_size", device.warp_size)
      .member("threads_per_block", device.threads_per_block)
      .member("threads_per_multiprocessor", device.threads_per_multiprocessor)
      .member("blocks_per_multiprocessor", device.blocks_per_multiprocessor)
      .member("registers_per_block", device.registers_per_block)
      .member("registers_per_multiprocessor", device.registers_per_multiprocessor)
      .member("shared_bytes_per_block", device.shared_per_block)
      .member("shared_bytes_per_block_optin", device.shared_per_block_optin)
      .member("shared_bytes_per_multiprocessor", device.shared_per_multiprocessor)
      .member("reserved_shared_bytes_per_block", device.reserved_shared_per_block)
      .member("pcie_generation", device.pcie_generation)
      .member("pcie_width", device.pcie_width)
      .member("pcie_max_generation", device.pcie_max_generation)
      .member("pcie_max_width", device.pcie_max_width)
      .close_object();
}

void window_json(JsonText& json, const WindowInfo& window, const RunInfo& run) {
  constexpr std::array<const char*, 3> kStates{"open", "closing", "closed"};
  json.open_object()
      .member("number", window.number)
      .member("reason", window.reason)
      .member("state", kStates[static_cast<std::size_t>(window.state)]);
  if (window.times_known()) json.member("start_ns", since_base(window.start, run));
  if (!window.ended_by.empty()) json.member("ended_by", window.ended_by);
  if (!window.untraced.empty()) json.member("no_device_activity", window.untraced);
  if (window.end != 0) {
    json.member("end_ns", since_base(window.end, run)).member("duration_ns", window.end - window.start);
  }
  if (window.detached != 0) {
    json.member("detached_ns", since_base(window.detached, run));
    if (window.last_activity != 0) json.member("last_activity_ns", since_base(window.last_activity, run));
  }
  lost_json(json, counts_of(window.losses));
  json.close_object();
}

void iterations_json(JsonText& json, const IterationInfo& iterations, bool signs_lost) {
  json.name("iterations").open_object().member("source", iterations.source).member("found", iterations.found);
  if (!iterations.found) {
    json.member("report", iterations.report).close_object();
    return;
  }
  json.member("recognised_by", iterations.steps != 0  ? "optimizer steps"
                               : iterations.optimizer ? "optimizer"
                                                      : "repetition")
      .member("told_apart_by", iterations.by_shape ? "function and launch shape" : "function")
      .member("certainty", to_string(certainty_of(iterations, signs_lost)));
  if (iterations.steps != 0) json.member("optimizer_steps_per_iteration", iterations.steps);
  json.member("locked_after", iterations.locked_after)
      .member("changes", iterations.changes)
      .member("events_per_iteration", iterations.events)
      .member("begins_with", iterations.begins_with)
      .member("anchor", iterations.anchor)
      .member("iterations_run", iterations.begun)
      .close_object();
}

// In the order of MetricLoss.
constexpr std::array<std::string_view, kMetricLosses> kMetricLossNames{
    "incomplete", "without_times", "bad_times", "not_evaluated", "contradictory", "queue_full", "missing"};

void sample_times_json(JsonText& json, const MetricSampleTimes& times) {
  json.member("cupti_start_ns", times.cupti_start)
      .member("cupti_end_ns", times.cupti_end)
      .member("clock_monotonic_start_ns", times.start)
      .member("clock_monotonic_end_ns", times.end)
      .member("read_clock_monotonic_ns", times.read);
}

void metrics_lost_json(JsonText& json, const MetricsInfo& metrics) {
  json.name("lost").open_object();
  for (std::size_t i = 0; i < kMetricLosses; ++i) json.member(kMetricLossNames[i], metrics.lost_by[i]);
  json.close_object();
  if (metrics.first.read != 0) {
    json.name("first_sample").open_object();
    sample_times_json(json, metrics.first);
    json.close_object();
  }
  if (metrics.first_lost.read == 0) return;
  json.name("first_lost").open_object();
  json.member("reason", kMetricLossNames[static_cast<std::size_t>(metrics.first_lost_by)])
      .member("error", metrics.first_lost_error);
  sample_times_json(json, metrics.first_lost);
  json.close_object();
}

void metrics_json(JsonText& json, const MetricsInfo& metrics) {
  json.name("metrics").open_object().member("interval_ns", metrics.interval);
  json.name("columns").open_array();
  for (const MetricInfo& column : metrics.columns)
    json.open_object().member("title", column.title).member("name", column.name).close_object();
  json.close_array().texts("left_out", metrics.left_out);
  json.name("devices").open_array();
  for (const std::uint32_t device : metrics.devices) json.number(device);
  json.close_array()
      .member("samples", metrics.samples)
      .member("overflows", metrics.overflows)
      .member("start_ns", metrics.start)
      .member("stop_ns", metrics.stop)
      .member("decode_cpu_ns", metrics.decode_cpu);
  const MetricDecoding& decode = metrics.decode;
  json.name("decode")
      .open_object()
      .member("calls", decode.calls)
      .member("samples", decode.samples)
      .member("full", decode.full)
      .member("emptied", decode.emptied)
      .member("buffer_bytes", decode.buffer_bytes)
      .member("pause_ns", decode.pause)
      .member("shortened", decode.shortened)
      .member("image_bytes", decode.image_bytes)
      .member("image_samples", decode.image_samples)
      .member("data_cpu_ns", decode.data)
      .member("times_cpu_ns", decode.times)
      .member("evaluate_cpu_ns", decode.evaluate)
      .member("empty_cpu_ns", decode.empty)
      .close_object();
  metrics_lost_json(json, metrics);
  json.close_object();
}

void energy_json(JsonText& json, const EnergyInfo& energy) {
  json.name("energy")
      .open_object()
      .member("readings_ns", energy.time)
      .member("readings_cpu_ns", energy.cpu)
      .name("devices")
      .open_array();
  for (const DeviceReadings& device : energy.devices) {
    json.open_object()
        .member("device", device.device)
        .member("energy_readings", device.energy_readings)
        .member("clock_readings", device.clock_readings);
    if (device.step != 0) json.member("counter_step_ns", device.step);
    json.member("counter_resets", device.resets)
        .member("left_out", device.left_out)
        .member("power_limit_mw", device.limit_mw)
        .member("max_sm_clock_mhz", device.max_sm_mhz)
        .texts("missing", device.missing)
        .close_object();
  }
  json.close_array().close_object();
}

void prometheus_json(JsonText& json, const PrometheusInfo& prometheus) {
  json.name("prometheus")
      .open_object()
      .member("file", prometheus.file)
      .member("written", prometheus.written)
      .member("failed", prometheus.failed)
      .close_object();
}

void host_readings_json(JsonText& json, const HostReadings& host) {
  json.name("host_readings")
      .open_object()
      .member("readings", host.readings)
      .member("windows_not_read", host.windows_not_read)
      .member("threads_beyond", host.threads_beyond)
      .member("children_beyond", host.children_beyond)
      .member("processor_time_ns", host.processor_time)
      .close_object();
}

void memory_reading_json(JsonText& json, const MemoryPurposes& memory) {
  std::uint64_t unplaced = 0;
  for (const std::uint64_t tensors : memory.unplaced) unplaced += tensors;
  json.name("memory_reading")
      .open_object()
      .member("asked_at", std::string_view(memory.at_step ? "optimizer step" : "iteration"))
      .member("objects", memory.objects)
      .member("time_ns", memory.time)
      .member("processor_time_ns", memory.cpu)
      .member("unfinished", memory.is_unfinished)
      .member("error", memory.error)
      .member("tensors_not_placed", unplaced)
      .close_object();
}

void overhead_json(JsonText& json, const Overhead& overhead) {
  json.name("overhead")
      .open_object()
      .member("open_ns", overhead.open)
      .member("close_ns", overhead.close)
      .member("write_ns", overhead.write)
      .member("drain_cpu_ns", overhead.drain_cpu)
      .member("buffer_callbacks_ns", overhead.buffer_callbacks)
      .member("gate_ns", overhead.gate)
      .member("gate_holds", overhead.gate_holds)
      .member("attachments", overhead.attachments)
      .member("finalizations", overhead.finalizations)
      .member("activity_buffers", overhead.buffers)
      .member("device_readings_ns", overhead.device_readings)
      .close_object();
}

// `idle_ns` has no entries for causes without time.
void diagnosis_json(JsonText& json, const DeviceDiagnosis& entry) {
  const DeviceTimes& times = entry.times;
  json.open_object()
      .member("device", entry.device)
      .member("verdict", bottleneck_name(entry.diagnosis.verdict))
      .member("device_time_ns", times.span)
      .member("kernel_busy_ns", times.kernel_busy)
      .member("copy_only_ns", times.copy_only)
      .member("exposed_collective_ns", times.exposed_collective())
      .member("taken_by_collectives_ns", entry.taken_by_collectives);
  if (entry.diagnosis.gain) json.member("potential_gain_ns", *entry.diagnosis.gain);
  json.member("judged_time_ns", entry.diagnosis.device_time);
  json.name("idle_ns").open_object();
  for (std::size_t i = 0; i < kIdleCauses; ++i) {
    if (times.idle_by_cause[i].time != 0)
      json.member(idle_cause_name(static_cast<IdleCause>(i)), times.idle_by_cause[i].time);
  }
  json.close_object().name("evidence").open_array();
  for (const Evidence& evidence : entry.evidence) {
    json.open_object()
        .member("kind", bottleneck_name(evidence.kind))
        .member("time_ns", evidence.time)
        .member("text", evidence.text)
        .member("advice", evidence_advice(evidence));
    if (evidence.cause != InputCause::kUnknown) json.member("cause", input_cause_name(evidence.cause));
    json.close_object();
  }
  json.close_array();
  if (!entry.clocks.empty()) json.member("clocks", entry.clocks);
  json.close_object();
}

// Reads only the members that follow `"state"`.
void recovered_json(JsonText& json, const RecoveredInfo& recovered) {
  json.name("recovered")
      .open_object()
      .member("journal_blocks", recovered.journal_blocks)
      .member("journal_cut", recovered.journal_cut)
      .member("journal_full", recovered.journal_full)
      .member("info_damaged", recovered.info_damaged)
      .member("tables_kept", recovered.tables_kept)
      .member("records_from_queues", recovered.queue_records)
      .member("records_from_buffers", recovered.buffer_records)
      .member("calls_not_kept", recovered.calls_not_kept)
      .member("submissions_after_full", recovered.beyond_submissions)
      .member("records_after_full", recovered.beyond_records)
      .member("records_without_call", recovered.unattributed)
      .member("names_missing", recovered.names_missing)
      .member("records_refused", recovered.refused)
      .member("bytes_unread", recovered.unread_bytes)
      .close_object();
}

// No window is still open, or closing, in a run that was killed. In texts, quotation marks are escaped.
void cut_windows(std::string& text) {
  const std::size_t windows = text.find("\"windows\": [");
  for (const std::string_view state : {"\"state\": \"open\"", "\"state\": \"closing\""}) {
    for (std::size_t at = windows; (at = text.find(state, at)) != std::string::npos;)
      text.replace(at, state.size(), "\"state\": \"cut\"");
  }
}

}  // namespace

std::vector<LostCount> lost_counts(const RunInfo& run) {
  Losses records = run.losses_outside;
  for (const WindowInfo& window : run.windows) records.add(window.losses);
  const auto of_records = counts_of(records);
  std::vector<LostCount> counts(of_records.begin(), of_records.end());
  counts.insert(counts.end(), {{"window_times", run.windows_without_times},
                               {"names", run.name_overflows},
                               {"shapes", run.shape_overflows},
                               {"impossible_rates", run.impossible_rates},
                               {"code_places", run.places_lost},
                               {"range_paths", run.range_overflows},
                               {"trace_rows", run.trace_rows_left_out},
                               {"trace_events", run.trace_events_left_out},
                               {"iteration_records", run.iteration_records_lost},
                               {"iteration_signs", run.iteration_signs_lost},
                               {"busy_time_records", run.busy_records_late},
                               {"device_time_records", run.device_time_records_lost},
                               {"graph_nodes", run.graph_nodes_lost},
                               {"live_allocations", run.allocations_not_held},
                               {"memory_lines", run.memory_lines_lost},
                               {"metric_samples", run.metrics.lost},
                               {"metric_records", run.metric_records_lost},
                               {"metric_rows", run.metrics.rows_left_out}});
  return counts;
}

bool mark_recovered(std::string& text, const RecoveredInfo& recovered) {
  for (const std::string_view state : {"\"state\": \"open\",\n", "\"state\": \"closed\",\n"}) {
    const std::size_t at = text.find(state);
    // It is one of the first members, before any text from the program.
    if (at == std::string::npos || text.substr(0, at).find('[') != std::string::npos) continue;
    std::string object;
    JsonText json(object);
    json.open_object();
    recovered_json(json, recovered);
    json.close_object();
    const std::size_t begin = object.find('"');
    const std::size_t end = object.rfind('\n');
    text.replace(at, state.size(),
                 "\"state\": \"recovered\",\n  " + object.substr(begin, end - begin) + ",\n");
    if (recovered.tables_kept) cut_windows(text);
    return true;
  }
  return false;
}

std::string run_json_text(const RunInfo& run, std::span<const std::string> files,
                          std::span<const std::string> errors, std::span<const DeviceDiagnosis> diagnoses,
                          std::span<const std::string> stale) {
  std::string text;
  JsonText json(text);
  json.open_object()
      .member("libinject", run.version)
      .member("schema_version", kRunSchemaVersion)
      .member("state", run.state);
  if (run.recovered) recovered_json(json, *run.recovered);
  json.texts("command_line", run.command_line);
  json.member("working_directory", run.working_directory).member("host", run.host).member("pid", run.pid);
  json.name("rank");
  if (run.rank.empty()) {
    json.null();
  } else {
    json.text(run.rank);
  }
  job_json(json, run.job);
  json.name("time_zero")
      .open_object()
      .member("utc", utc_text(run.base_utc))
      .member("utc_ns", run.base_utc)
      .member("clock_monotonic_ns", run.base)
      .close_object();
  pairs_json(json, "versions", run.versions);
  pairs_json(json, "options", run.options);
  json.texts("hooks_left_out_of_the_build", run.groups_left_out);
  json.name("devices").open_array();
  for (const DeviceInfo& device : run.devices) device_json(json, device);
  json.close_array().name("threads").open_array();
  for (const ThreadInfo& thread : run.threads) {
    if (thread.tid == 0) continue;  // reserved for events without a thread
    json.open_object().member("tid", thread.tid).member("name", thread.name).close_object();
  }
  json.close_array().name("windows").open_array();
  for (const WindowInfo& window : run.windows) window_json(json, window, run);
  json.close_array().member("windows_not_listed", run.windows_not_listed);
  if (run.iterations) iterations_json(json, *run.iterations, run.iteration_signs_lost != 0);
  if (run.metrics.on) metrics_json(json, run.metrics);
  if (!run.energy.devices.empty()) energy_json(json, run.energy);
  if (run.prometheus) prometheus_json(json, *run.prometheus);
  host_readings_json(json, run.host_readings);
  if (run.memory_purposes) memory_reading_json(json, *run.memory_purposes);
  overhead_json(json, run.overhead);
  json.name("diagnosis").open_array();
  for (const DeviceDiagnosis& entry : diagnoses) diagnosis_json(json, entry);
  json.close_array();
  lost_json(json, lost_counts(run));
  json.member("repeated_activity_records", run.repeated_records)
      .member("graph_kernels_without_call", run.graph_kernels_without_call)
      .member("graph_launches_without_records", run.graph_launches_without_records)
      .member("unknown_frees", run.unknown_frees);
  json.texts("messages", run.messages).texts("files", files);
  if (!stale.empty()) json.texts("stale_files", stale);
  json.texts("write_errors", errors);
  json.close_object();
  return text + "\n";
}

std::string short_run_json_text(RunInfo run, std::span<const std::string> files,
                                std::span<const std::string> errors,
                                std::span<const DeviceDiagnosis> diagnoses,
                                std::span<const std::string> stale, std::size_t max_bytes) {
  std::vector<std::string> problems(errors.begin(), errors.end());
  problems.emplace_back("run.json has no room for its windows and threads");
  for (const WindowInfo& window : run.windows) run.losses_outside.add(window.losses);
  run.windows_not_listed += run.windows.size();
  run.windows.clear();
  run.threads.clear();
  std::string text = run_json_text(run, files, problems, diagnoses, stale);
  if (text.size() <= max_bytes) return text;

  // Clears everything whose length depends on the program, its environment or the machine.
  constexpr std::size_t kMaxText = 500;
  run.command_line.clear();
  run.working_directory.clear();
  run.rank = run.rank.substr(0, kMaxText);
  run.versions.clear();
  run.options.clear();
  run.messages.clear();
  run.devices.clear();
  run.iterations.reset();
  run.metrics.on = false;
  run.energy.devices.clear();
  run.prometheus.reset();
  problems.erase(problems.begin() + (errors.empty() ? 0 : 1), problems.end() - 1);
  for (std::string& problem : problems) problem = one_line(problem, kMaxText);
  return run_json_text(run, files, problems, {}, stale);
}

}  // namespace inject
