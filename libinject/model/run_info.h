// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the outputs report about a run besides its statistics: plain data, filled in by the session.
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

/// A thread of the program that made calls; its index in RunInfo::threads is the `thread` of events.
struct ThreadInfo {
  std::uint64_t tid = 0;
  std::string name;

  bool operator==(const ThreadInfo&) const = default;
};

/// Includes the device's limits, since the tables need them for the devices of a run.
struct DeviceInfo : DeviceLimits {
  std::uint32_t id = 0;  ///< the `device` of events
  std::string name;
  std::string uuid;
  std::string pci_bus;
  std::uint64_t memory_bytes = 0;
  int clock_khz = 0;
  int memory_clock_khz = 0;
  int memory_bus_bits = 0;
  // The PCIe link as it was in a window, and the maximum of device and slot; 0: unknown.
  int pcie_generation = 0;
  int pcie_width = 0;
  int pcie_max_generation = 0;
  int pcie_max_width = 0;
};

enum class WindowState : std::uint8_t { kOpen, kClosing, kClosed };

/// What is missing from the tables, in records.
struct Losses {
  std::uint64_t host_records = 0;      ///< calls for which the ring was full
  std::uint64_t range_records = 0;     ///< NVTX ranges for which the ring was full
  std::uint64_t activity_records = 0;  ///< dropped by CUPTI for lack of a buffer
  std::uint64_t invalid_times = 0;     ///< activity without usable times
  std::uint64_t missing_records = 0;   ///< launches whose activity never came
  /// Some of the activity counted as lost in another window, which was settled together with this one, may
  /// have been this window's.
  bool perhaps_more = false;

  /// Whether device work is missing, or may be, which would look like idle time.
  bool device_work() const { return perhaps_more || activity_records + invalid_times + missing_records != 0; }
  std::uint64_t total() const {
    return host_records + range_records + activity_records + invalid_times + missing_records;
  }
  void add(const Losses& other) {
    host_records += other.host_records;
    range_records += other.range_records;
    activity_records += other.activity_records;
    invalid_times += other.invalid_times;
    missing_records += other.missing_records;
    perhaps_more = perhaps_more || other.perhaps_more;
  }
};

/// Memory in use on a device, by all processes, as reported by the driver; empty if it was not queried in
/// time.
struct WindowMemory {
  std::uint32_t device = 0;
  std::optional<std::uint64_t> at_start;
  std::optional<std::uint64_t> at_end;
};

struct WindowInfo {
  std::uint32_t number = 0;
  std::string reason;    ///< the trigger, such as `api` or `time:20s+5s`
  std::string ended_by;  ///< who took CUPTI, or what iterations turned out to be; empty: the window's trigger
  std::string untraced;  ///< why it has only what the hooks saw, no device activity; empty: it has device
                         ///< activity
  WindowState state = WindowState::kOpen;
  Nanoseconds start = 0;  ///< 0 if the window's times are unknown
  Nanoseconds end = 0;    ///< 0 while the window is open, and if its times are unknown
  /// When CUPTI had been detached after it, and when the last device work of any window so far ended: 0 if
  /// unknown (CUPTI stayed attached for the next window, or to the end of the process).
  Nanoseconds detached = 0;
  Nanoseconds last_activity = 0;
  Losses losses;
  std::vector<WindowMemory> memory;

  /// While the window is open, only its start is known.
  bool times_known() const { return start != 0; }
};

/// The result of the search for training iterations, or why there is none.
struct IterationInfo {
  std::string source;  ///< of the launches: `hooks` or `callbacks`
  bool found = false;
  std::string report;  ///< what was seen, if nothing was found
  // If they were found:
  bool optimizer = false;          ///< by an optimizer's kernels, otherwise by repetition alone
  std::uint64_t steps = 0;         ///< optimizer steps in each, if the program reports them
  bool doubtful = false;           ///< … and there may be others in between, or they do not fit
  bool by_shape = false;           ///< calls were also distinguished by launch shape
  bool rough = false;              ///< where they begin, or their number, is a guess
  std::uint64_t locked_after = 0;  ///< iterations that had run when they were found
  std::uint64_t changes = 0;       ///< changes of the result after that
  std::uint64_t events = 0;        ///< launches, copies and synchronizations in an iteration
  std::string begins_with;         ///< name of its first call …
  std::string anchor;              ///< … after this one, at the end of the previous iteration
  std::uint64_t begun = 0;         ///< iterations begun, as long as they were followed
};

/// How certain it is that these are the program's iterations; docs/iterations.md has how often each level was
/// right.
enum class Certainty : std::uint8_t { kLow, kMedium, kHigh };

/// Reported by the program, recognised by kernels' names, or neither. Names are weak evidence where launch
/// shapes keep changing, so that calls are distinguished by function alone. `signs_lost`: the search missed
/// calls, one of which may have ended an iteration.
inline Certainty certainty_of(const IterationInfo& iterations, bool signs_lost) {
  if (iterations.rough || !iterations.optimizer) return Certainty::kLow;
  const bool sure = !iterations.doubtful && !signs_lost;
  if (iterations.steps != 0) return sure ? Certainty::kHigh : Certainty::kMedium;
  return sure && iterations.by_shape ? Certainty::kMedium : Certainty::kLow;
}
constexpr std::string_view to_string(Certainty certainty) {
  return certainty == Certainty::kHigh ? "high" : certainty == Certainty::kMedium ? "medium" : "low";
}

/// The steps of converting the hardware's records into values, and the CPU time of each.
struct MetricDecoding {
  std::uint64_t calls = 0;
  std::uint64_t samples = 0;        ///< complete ones
  std::uint64_t full = 0;           ///< calls that ended because CUPTI's image was full
  std::uint64_t emptied = 0;        ///< how often the image was reinitialised
  std::uint64_t buffer_bytes = 0;   ///< of the hardware's buffer
  Nanoseconds pause = 0;            ///< maximum between two decodes
  std::uint64_t shortened = 0;      ///< how often the pause was halved
  std::uint64_t image_bytes = 0;    ///< of the largest image
  std::uint64_t image_samples = 0;  ///< capacity of that image
  Nanoseconds data = 0;             ///< cuptiPmSamplingDecodeData
  Nanoseconds times = 0;            ///< cuptiPmSamplingCounterDataGetSampleInfo
  Nanoseconds evaluate = 0;         ///< cuptiProfilerHostEvaluateToGpuValues
  Nanoseconds empty = 0;            ///< cuptiPmSamplingCounterDataImageInitialize
};

/// How hardware metrics were sampled (capture/metrics/pm_sampler.h).
struct MetricsInfo {
  bool on = false;           ///< requested; there may be no samples nevertheless
  Nanoseconds interval = 0;  ///< requested interval between two samples
  std::vector<MetricInfo> columns;
  std::vector<std::string> left_out;   ///< titles of metrics that the chip can't measure in the same pass
  std::vector<std::uint32_t> devices;  ///< sampled devices
  std::uint64_t samples = 0;
  std::uint64_t lost = 0;                              ///< samples that did not arrive, or were unusable
  std::array<std::uint64_t, kMetricLosses> lost_by{};  ///< the same by MetricLoss
  MetricSampleTimes first;                             ///< of the first sample
  MetricSampleTimes first_lost;                        ///< … and of the first that arrived but was unusable
  MetricLoss first_lost_by = MetricLoss::kMissing;
  std::string first_lost_error;     ///< from CUPTI; may be empty
  std::uint64_t overflows = 0;      ///< of the hardware's buffer
  std::uint64_t rows_left_out = 0;  ///< of metric_samples.csv
  // The profiler's own overhead.
  Nanoseconds start = 0;       ///< on the sampling thread: starting, summed over devices and windows
  Nanoseconds stop = 0;        ///< … stopping
  Nanoseconds decode_cpu = 0;  ///< CPU time of decoding; its parts are in `decode`
  MetricDecoding decode;
};

/// The profiler's own overhead.
struct Overhead {
  Nanoseconds open = 0;              ///< attaching CUPTI, all windows together
  Nanoseconds close = 0;             ///< detaching it
  Nanoseconds write = 0;             ///< writing files
  Nanoseconds drain_cpu = 0;         ///< CPU time of the drain thread
  Nanoseconds buffer_callbacks = 0;  ///< in CUPTI's buffer callbacks, summed over threads
  Nanoseconds gate = 0;              ///< launches held at the gate, summed over threads
  std::uint64_t gate_holds = 0;
  std::uint64_t attachments = 0;    ///< of CUPTI
  std::uint64_t finalizations = 0;  ///< … of these, the ones followed by finalization
  std::uint64_t buffers = 0;        ///< completed buffers of CUPTI
  Nanoseconds device_readings = 0;  ///< querying NVML, on a thread of its own
};

/// The file named by INJECT_PROM.
struct PrometheusInfo {
  std::string file;
  std::uint64_t written = 0;  ///< successful writes
  std::uint64_t failed = 0;   ///< failed writes
};

/// A run whose process was killed: what its tables were made from (replay/replay.h), and what is missing.
struct RecoveredInfo {
  std::uint64_t journal_blocks = 0;  ///< intact blocks
  bool journal_cut = false;          ///< … followed by a damaged one
  bool journal_full = false;         ///< what came after the journal was full is missing
  bool info_damaged = false;         ///< command, devices, options and memory, or some of them, are missing
  bool tables_kept = false;          ///< the tables written by the process itself were kept: they had more
  std::uint64_t queue_records = 0;   ///< in the threads' queues, not yet read by the process
  std::uint64_t buffer_records = 0;  ///< in CUPTI's buffers, likewise
  // What is missing, or lacks its name:
  std::uint64_t calls_not_kept = 0;      ///< calls that returned but are in no table; ring full: see Losses
  std::uint64_t beyond_submissions = 0;  ///< launches, copies and memsets after the journal was full …
  std::uint64_t beyond_records = 0;      ///< … and their GPU records
  std::uint64_t unattributed = 0;        ///< GPU records whose call record was incomplete
  std::uint64_t names_missing = 0;       ///< ranges, shapes and kernels first named after the last block
  std::uint64_t refused = 0;             ///< invalid records
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
  /// Two clocks read at the same moment, CUDA's initialisation. Times in the tables are relative to it.
  Nanoseconds base = 0;                                       ///< CLOCK_MONOTONIC
  std::uint64_t base_utc = 0;                                 ///< nanoseconds since 1970
  std::vector<std::pair<std::string, std::string>> versions;  ///< of driver, runtime, CUPTI, libraries
  std::vector<std::pair<std::string, std::string>> options;   ///< Options::in_force
  std::vector<std::string> groups_left_out;                   ///< hooks that this build lacks
  std::vector<std::string> messages;                          ///< warnings to the user
  std::vector<DeviceInfo> devices;
  std::vector<ThreadInfo> threads;
  std::vector<WindowInfo> windows;  ///< ascending numbers
  std::uint64_t windows_not_listed = 0;
  Nanoseconds windows_time = 0;                  ///< of all windows that have ended, whether listed or not
  std::uint64_t windows_without_times = 0;       ///< windows that followed each other too quickly, likewise
  Losses losses_outside;                         ///< not in any listed window
  std::uint64_t name_overflows = 0;              ///< names that became [other]
  std::uint64_t places_lost = 0;                 ///< launches whose place (CodePlace) did not fit
  std::uint64_t shape_overflows = 0;             ///< calls whose shape got no number
  std::uint64_t impossible_rates = 0;            ///< rows whose share of a peak is impossible, and left out
  std::uint64_t range_overflows = 0;             ///< NVTX paths that became their parent
  std::vector<std::string> stale_files;          ///< tables of an earlier write that could not be replaced
  std::uint64_t files_not_written = 0;           ///< by the latest write, including stale ones
  std::uint64_t trace_rows_left_out = 0;         ///< of the raw records' tables
  std::uint64_t trace_events_left_out = 0;       ///< of trace.json.gz
  std::uint64_t repeated_records = 0;            ///< activity records that came twice and were counted once
  std::uint64_t iteration_records_lost = 0;      ///< device records not assigned to any iteration
  std::uint64_t iteration_signs_lost = 0;        ///< calls missed by the search for iterations
  std::uint64_t busy_records_late = 0;           ///< device records too late for a busy time
  std::uint64_t device_time_records_lost = 0;    ///< records left out of idle times and their causes
  std::uint64_t metric_records_lost = 0;         ///< samples and kernels left out of kernel_metrics.csv
  std::uint64_t graph_nodes_lost = 0;            ///< captured kernels whose calls did not fit
  std::uint64_t graph_kernels_without_call = 0;  ///< kernels of graph launches whose calls are unknown
  std::uint64_t graph_launches_without_records = 0;  ///< of graphs that appear to have no GPU work
  std::uint64_t batch = 0;                           ///< samples per iteration, 0 if not given
  UnitSource unit_source = UnitSource::kCalled;      ///< of an iteration's units of work
  std::vector<MemoryRow> memory;                     ///< allocations since CUDA's initialisation
  std::vector<MemoryLine> memory_lines;              ///< … over time
  Nanoseconds memory_until = 0;                      ///< when the allocations were read
  std::uint64_t memory_lines_lost = 0;               ///< devices, and the host, that have no lines
  std::uint64_t allocations_not_held = 0;            ///< too many at once: missing from live and peak bytes
  std::uint64_t unknown_frees = 0;                   ///< frees of memory whose allocation no hook has seen
  std::vector<HostWindow> host_windows;              ///< windows that were read, ascending
  HostReadings host_readings;
  std::optional<MemoryPurposes> memory_purposes;  ///< if PyTorch was queried
  Overhead overhead;
  EnergyInfo energy;
  std::optional<IterationInfo> iterations;  ///< if they were searched for
  std::optional<RecoveredInfo> recovered;   ///< if the tables were not written by the process itself
  MetricsInfo metrics;
  std::optional<PrometheusInfo> prometheus;  ///< if requested
};

}  // namespace inject
