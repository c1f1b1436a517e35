// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the outputs say about a run beyond its statistics: plain data, filled in by the session.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libinject/model/device_limits.h"
#include "libinject/model/device_readings.h"
#include "libinject/model/events.h"
#include "libinject/model/host_use.h"
#include "libinject/model/job_place.h"
#include "libinject/model/memory_purposes.h"
#include "libinject/model/memory_row.h"
#include "libinject/model/memory_timeline.h"
#include "libinject/model/metric_samples.h"
#include "libinject/model/records.h"

namespace inject {

/// A thread of the program that made calls; its place in RunInfo::threads is the `thread` of events.
struct ThreadInfo {
  std::uint64_t tid = 0;
  std::string name;

  bool operator==(const ThreadInfo&) const = default;
};

/// With its limits, since the tables need them of the devices of a run.
struct DeviceInfo : DeviceLimits {
  std::uint32_t id = 0;  ///< the `device` of events
  std::string name;
  std::string uuid;
  std::string pci_bus;
  std::uint64_t memory_bytes = 0;
  int clock_khz = 0;
  int memory_clock_khz = 0;
  int memory_bus_bits = 0;
  // The PCIe link as it was in a window, and the most that device and slot can do; 0: not known.
  int pcie_generation = 0;
  int pcie_width = 0;
  int pcie_max_generation = 0;
  int pcie_max_width = 0;
};

enum class WindowState : std::uint8_t { kOpen, kClosing, kClosed };

/// What is missing from the tables, in records.
struct Losses {
  std::uint64_t host_records = 0;      ///< calls that found the ring full
  std::uint64_t range_records = 0;     ///< NVTX ranges that found the ring full
  std::uint64_t activity_records = 0;  ///< CUPTI had no buffer for
  std::uint64_t invalid_times = 0;     ///< activity without usable times
  std::uint64_t missing_records = 0;   ///< launches whose activity never came

  /// Whether device work is missing: it would pass for idle time.
  bool device_work() const { return activity_records + invalid_times + missing_records != 0; }
  std::uint64_t total() const {
    return host_records + range_records + activity_records + invalid_times + missing_records;
  }
  void add(const Losses& other) {
    host_records += other.host_records;
    range_records += other.range_records;
    activity_records += other.activity_records;
    invalid_times += other.invalid_times;
    missing_records += other.missing_records;
  }
};

/// Memory in use on a device, by all processes, as the driver reports it; none where it was not asked in
/// time.
struct WindowMemory {
  std::uint32_t device = 0;
  std::optional<std::uint64_t> at_start;
  std::optional<std::uint64_t> at_end;
};

struct WindowInfo {
  std::uint32_t number = 0;
  std::string reason;    ///< the trigger, such as `api` or `time:20s+5s`
  std::string ended_by;  ///< who took CUPTI, or what iterations turned out to be; empty: its trigger did
  std::string untraced;  ///< why it has only what the hooks saw, no device activity; empty: it has
  WindowState state = WindowState::kOpen;
  Nanoseconds start = 0;  ///< 0 where its times are not known
  Nanoseconds end = 0;    ///< 0 while the window is open, and where its times are not known
  /// When CUPTI had been given up after it, and when the last device work of any window so far ended: 0 where
  /// not known (CUPTI stayed attached for the next window, or to the end of the process).
  Nanoseconds detached = 0;
  Nanoseconds last_activity = 0;
  Losses losses;
  std::vector<WindowMemory> memory;

  /// While the window is open, its start is.
  bool times_known() const { return start != 0; }
};

/// What the search for training iterations found, or why it did not.
struct IterationInfo {
  std::string source;  ///< of the launches: `hooks` or `callbacks`
  bool found = false;
  std::string report;  ///< what was seen, where nothing was found
  // Where they were found:
  bool optimizer = false;          ///< by an optimizer's kernels, else by repetition alone
  std::uint64_t steps = 0;         ///< optimizer steps of each, where the program tells of them
  bool doubtful = false;           ///< … and there may be others between them, or they do not fit
  bool by_shape = false;           ///< calls were told apart by launch shape, too
  bool rough = false;              ///< where they begin, or their number, is a guess
  std::uint64_t locked_after = 0;  ///< iterations that had run by then
  std::uint64_t changes = 0;       ///< of mind, after that
  std::uint64_t events = 0;        ///< of an iteration: launches, copies, synchronizations
  std::string begins_with;         ///< its first call …
  std::string anchor;              ///< … after this one, at the end of the one before
  std::uint64_t begun = 0;         ///< iterations, as long as they were followed
};

/// How sure it is that these are the program's iterations; docs/iterations.md has how often each was right.
enum class Certainty : std::uint8_t { kLow, kMedium, kHigh };

/// Told by the program, known by kernels' names, or neither. Names tell little where launch shapes keep
/// changing, so that calls are told apart by function alone. `signs_lost`: the search missed calls, one of
/// which may have ended an iteration.
inline Certainty certainty_of(const IterationInfo& iterations, bool signs_lost) {
  if (iterations.rough || !iterations.optimizer) return Certainty::kLow;
  const bool sure = !iterations.doubtful && !signs_lost;
  if (iterations.steps != 0) return sure ? Certainty::kHigh : Certainty::kMedium;
  return sure && iterations.by_shape ? Certainty::kMedium : Certainty::kLow;
}
constexpr std::string_view to_string(Certainty certainty) {
  return certainty == Certainty::kHigh ? "high" : certainty == Certainty::kMedium ? "medium" : "low";
}

/// The steps of turning the hardware's records into values, and the processor time of each.
struct MetricDecoding {
  std::uint64_t calls = 0;
  std::uint64_t samples = 0;        ///< that were complete
  std::uint64_t full = 0;           ///< calls that ended where CUPTI's image was full
  std::uint64_t emptied = 0;        ///< how often the image was made anew
  std::uint64_t buffer_bytes = 0;   ///< the hardware's
  Nanoseconds pause = 0;            ///< between two decodes, at most
  std::uint64_t shortened = 0;      ///< how often that was halved
  std::uint64_t image_bytes = 0;    ///< the largest
  std::uint64_t image_samples = 0;  ///< that it has room for
  Nanoseconds data = 0;             ///< cuptiPmSamplingDecodeData
  Nanoseconds times = 0;            ///< cuptiPmSamplingCounterDataGetSampleInfo
  Nanoseconds evaluate = 0;         ///< cuptiProfilerHostEvaluateToGpuValues
  Nanoseconds empty = 0;            ///< cuptiPmSamplingCounterDataImageInitialize
};

/// How hardware metrics were sampled (capture/metrics/pm_sampler.h).
struct MetricsInfo {
  bool on = false;           ///< asked for; whether there were samples is another matter
  Nanoseconds interval = 0;  ///< between two samples, as asked for
  std::vector<MetricInfo> columns;
  std::vector<std::string> left_out;   ///< titles of what the chip can't measure in the same pass
  std::vector<std::uint32_t> devices;  ///< that were sampled
  std::uint64_t samples = 0;
  std::uint64_t lost = 0;                              ///< samples that did not come, or could not be used
  std::array<std::uint64_t, kMetricLosses> lost_by{};  ///< the same by MetricLoss
  MetricSampleTimes first;                             ///< of the first sample
  MetricSampleTimes first_lost;                        ///< … that came, and could not be used
  MetricLoss first_lost_by = MetricLoss::kMissing;
  std::string first_lost_error;     ///< CUPTI's; may be empty
  std::uint64_t overflows = 0;      ///< of the hardware's buffer
  std::uint64_t rows_left_out = 0;  ///< of metric_samples.csv
  // The profiler's own share.
  Nanoseconds start = 0;       ///< on the sampling thread: starting, all devices and windows together
  Nanoseconds stop = 0;        ///< … stopping
  Nanoseconds decode_cpu = 0;  ///< processor time of decoding; its parts are in `decode`
  MetricDecoding decode;
};

/// The profiler's own share.
struct Overhead {
  Nanoseconds open = 0;              ///< attaching CUPTI, all windows together
  Nanoseconds close = 0;             ///< detaching it
  Nanoseconds write = 0;             ///< writing files
  Nanoseconds drain_cpu = 0;         ///< processor time of the drain thread
  Nanoseconds buffer_callbacks = 0;  ///< in CUPTI's buffer callbacks, summed over threads
  Nanoseconds gate = 0;              ///< launches held at the gate, summed over threads
  std::uint64_t gate_holds = 0;
  std::uint64_t attachments = 0;    ///< of CUPTI
  std::uint64_t finalizations = 0;  ///< … after which it was finalized
  std::uint64_t buffers = 0;        ///< of CUPTI, completed
  Nanoseconds device_readings = 0;  ///< asking NVML, on a thread of its own
};

/// The file that INJECT_PROM names.
struct PrometheusInfo {
  std::string file;
  std::uint64_t written = 0;  ///< times
  std::uint64_t failed = 0;   ///< times that it could not be
};

/// A run whose process was killed: what its tables were made of (replay/replay.h), and what they lack.
struct RecoveredInfo {
  std::uint64_t journal_blocks = 0;  ///< that were as they had been written
  bool journal_cut = false;          ///< … and one that was not, after them
  bool journal_full = false;         ///< what came after it had filled up is missing
  bool tables_kept = false;          ///< those that the process had written itself: they had more
  std::uint64_t queue_records = 0;   ///< of threads, that the process had not looked at yet
  std::uint64_t buffer_records = 0;  ///< of CUPTI, likewise
  // What is missing, or without its name:
  std::uint64_t calls_not_kept = 0;      ///< that had returned and are in no table; ring full: Losses
  std::uint64_t beyond_submissions = 0;  ///< launches, copies and memsets after the journal was full …
  std::uint64_t beyond_records = 0;      ///< … and their GPU records
  std::uint64_t unattributed = 0;        ///< GPU records whose call the process had not finished writing
  std::uint64_t names_missing = 0;       ///< ranges, shapes and kernels named after the last block
  std::uint64_t refused = 0;             ///< records that make no sense
  std::uint64_t unread_bytes = 0;        ///< of CUPTI's buffers
};

struct RunInfo {
  std::string version;  ///< libinject's
  std::string state;    ///< "open" until the last window is written, then "closed"; "recovered"
  std::vector<std::string> command_line;
  std::string working_directory;
  std::string host;
  int pid = 0;
  std::string rank;  ///< empty outside a distributed job
  std::optional<JobPlace> job;
  /// Two clocks read at the same moment, CUDA's initialisation. Times in the tables count from it.
  Nanoseconds base = 0;                                       ///< CLOCK_MONOTONIC
  std::uint64_t base_utc = 0;                                 ///< nanoseconds since 1970
  std::vector<std::pair<std::string, std::string>> versions;  ///< of driver, runtime, CUPTI, libraries
  std::vector<std::pair<std::string, std::string>> options;   ///< Options::in_force
  std::vector<std::string> groups_left_out;                   ///< hooks that this build lacks
  std::vector<std::string> messages;                          ///< what the user was warned of
  std::vector<DeviceInfo> devices;
  std::vector<ThreadInfo> threads;
  std::vector<WindowInfo> windows;  ///< ascending numbers
  std::uint64_t windows_not_listed = 0;
  Nanoseconds windows_time = 0;                  ///< of all windows that have ended, listed or not
  std::uint64_t windows_without_times = 0;       ///< that followed one another too fast, likewise
  Losses losses_outside;                         ///< not in any listed window
  std::uint64_t name_overflows = 0;              ///< names that became [other]
  std::uint64_t places_lost = 0;                 ///< launches whose place (CodePlace) found no room
  std::uint64_t shape_overflows = 0;             ///< calls whose shape found no number
  std::uint64_t impossible_rates = 0;            ///< rows whose share of a peak can't be, and is left out
  std::uint64_t range_overflows = 0;             ///< NVTX paths that became their parent
  std::vector<std::string> stale_files;          ///< tables of an earlier write, which could not be replaced
  std::uint64_t files_not_written = 0;           ///< by the latest write, stale ones among them
  std::uint64_t trace_rows_left_out = 0;         ///< of the raw records' tables
  std::uint64_t trace_events_left_out = 0;       ///< of trace.json.gz
  std::uint64_t repeated_records = 0;            ///< activity that came twice and is counted once
  std::uint64_t iteration_records_lost = 0;      ///< device records that no iteration could be told of
  std::uint64_t iteration_signs_lost = 0;        ///< calls that the search for iterations was not told of
  std::uint64_t busy_records_late = 0;           ///< device records that came too late for a busy time
  std::uint64_t device_time_records_lost = 0;    ///< records left out of idle times and their causes
  std::uint64_t metric_records_lost = 0;         ///< samples and kernels left out of kernel_metrics.csv
  std::uint64_t graph_nodes_lost = 0;            ///< captured kernels whose calls found no room
  std::uint64_t graph_kernels_without_call = 0;  ///< kernels of graph launches whose calls are not known
  std::uint64_t graph_launches_without_records = 0;  ///< of graphs that seem to have no GPU work
  std::uint64_t batch = 0;                           ///< samples per iteration, 0 if not told
  UnitSource unit_source = UnitSource::kCalled;      ///< of an iteration's units of work
  std::vector<MemoryRow> memory;                     ///< allocations since CUDA's initialisation
  std::vector<MemoryLine> memory_lines;              ///< … over time
  Nanoseconds memory_until = 0;                      ///< when the allocations were looked at
  std::uint64_t memory_lines_lost = 0;               ///< devices, and the host, that have none of them
  std::uint64_t allocations_not_held = 0;            ///< too many at once: live and peak bytes lack them
  std::uint64_t unknown_frees = 0;                   ///< frees of what no hook has seen allocated
  std::vector<HostWindow> host_windows;              ///< those that were read, ascending
  HostReadings host_readings;
  std::optional<MemoryPurposes> memory_purposes;  ///< where PyTorch was asked
  Overhead overhead;
  EnergyInfo energy;
  std::optional<IterationInfo> iterations;  ///< where they were looked for
  std::optional<RecoveredInfo> recovered;   ///< where the tables are not the process's own work
  MetricsInfo metrics;
  std::optional<PrometheusInfo> prometheus;  ///< where it was asked for
};

}  // namespace inject
