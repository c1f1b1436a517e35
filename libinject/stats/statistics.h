// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/analysis/collective.h"
#include "libinject/analysis/kernel_class.h"
#include "libinject/analysis/sample_stats.h"
#include "libinject/analysis/shape_work.h"
#include "libinject/model/events.h"
#include "libinject/model/functions.h"
#include "libinject/record/name_table.h"
#include "libinject/record/range_tree.h"
#include "libinject/record/shape_table.h"
#include "libinject/stats/call_shapes.h"
#include "libinject/stats/code_times.h"
#include "libinject/stats/copies.h"
#include "libinject/stats/device_time.h"
#include "libinject/stats/device_work.h"
#include "libinject/stats/fetches.h"
#include "libinject/stats/iterations.h"
#include "libinject/stats/kernel_metrics.h"
#include "libinject/stats/key_index.h"
#include "libinject/stats/phases.h"

namespace inject {

/// Stands for an unknown thread, device or window, or for the row of all keys that did not fit.
inline constexpr std::uint32_t kNoIndex = ~std::uint32_t{0};
inline constexpr std::uint32_t kOtherIndex = kNoIndex - 1;

/// A kernel name, API function or memory operation.
struct TimeRow {
  std::string_view name;
  const SampleStats* stats = nullptr;
};

struct ShapeRow {
  std::string_view name;
  std::array<std::int32_t, 3> grid{};
  std::array<std::int32_t, 3> block{};
  bool other = false;  ///< row of many shapes: grid and block are meaningless
  const SampleStats* stats = nullptr;
};

struct DetailRow {
  std::uint32_t number = kNoIndex;  ///< of the row; never changes
  std::string_view name;
  bool other = false;  ///< row of many launch shapes: only name and time are meaningful
  std::uint32_t device = 0;
  std::array<std::int32_t, 3> grid{};
  std::array<std::int32_t, 3> block{};
  std::uint32_t registers_per_thread = 0;
  std::uint32_t static_shared_bytes = 0;
  std::uint32_t dynamic_shared_bytes = 0;
  std::uint32_t local_bytes_per_thread = 0;
  TensorCores cores = TensorCores::kUnknown;
  Totals time;
};

struct KernelMetricRow {
  DetailRow detail;
  KernelMetricEntry measured;
};

struct RangeRow {
  std::string_view name;
  RangeStyle style = RangeStyle::kPushPop;
  bool other = false;
  const SampleStats* stats = nullptr;
};

struct RangeKernelRow {
  std::string_view range;  ///< empty: launched outside any range
  RangeStyle style = RangeStyle::kPushPop;
  bool in_range = false;
  bool other = false;
  std::uint32_t thread = kNoIndex;  ///< kNoIndex: the launch was not seen
  std::uint64_t range_instances = 0;
  std::string_view kernel;
  const SampleStats* stats = nullptr;
};

struct LibraryRow {
  std::string path;  ///< for example `cublasGemmEx > cublasLtMatmul`
  FunctionGroup group{};
  unsigned depth = 0;  ///< library calls around this one
  bool other = false;
  Totals host;
  std::uint64_t failed = 0;
  DeviceWork self;       ///< work whose innermost library call is this one; can be added up over rows
  DeviceWork inclusive;  ///< including the work of library calls inside it
};

struct ThreadRow {
  std::uint32_t thread = kNoIndex;
  std::uint32_t device = 0;
  const SampleStats* stats = nullptr;
};

/// Library calls of one function with one shape, joined to their kernels.
struct CallShapeRow {
  std::string_view function;  ///< empty if unknown: the calls' records were lost
  CallShape shape;
  ShapeWork work;  ///< of one call
  CallShapeEntry entry;
  std::vector<std::pair<std::string_view, KernelShare>> kernels;  ///< by descending time
};

/// Kernels that belong to no call of known shape.
struct UnshapedWork {
  Totals in_calls;   ///< launched in a library call whose arguments are not, or could not be, read
  Totals by_itself;  ///< launched in no known library call
};

/// Kernels of one family.
struct FamilyRow {
  Family family{};
  Totals time;
  std::uint64_t names = 0;            ///< of kernels
  std::uint64_t on_tensor_cores = 0;  ///< time of kernels known to use tensor cores …
  std::uint64_t unknown_cores = 0;    ///< … and of kernels for which this is unknown
  std::uint64_t attributed = 0;       ///< time of kernels launched inside a library call
};

/// What the host did in a window.
struct HostWork {
  std::uint64_t api_calls = 0;
  std::uint64_t api_time = 0;  ///< nested calls count both by themselves and in the call around them
  std::uint64_t library_calls = 0;
  std::uint64_t submissions = 0;  ///< calls that submitted device work
  std::uint64_t ranges = 0;
  std::uint64_t clipped_ranges = 0;
  FlopCount flops;  ///< of library calls whose shape is known
  /// Records of calls, or of work of captured or unknown ones, were lost. Then `flops` may lack some: those
  /// of captured calls count by their kernels.
  bool lost = false;

  void merge(const HostWork& more);
};

/// Kernels of one name.
struct KernelFamilyRow {
  std::string_view name;
  Family family = Family::kOther;  ///< the family in which they spent most of their time
  TensorCores cores = TensorCores::kUnknown;
  Totals time;
};

struct WindowDeviceRow {
  std::uint32_t window = 0;
  std::uint32_t device = 0;
  DeviceWork work;
  std::uint64_t busy = 0;  ///< time in which at least one kernel, copy or memset ran
  Nanoseconds first = 0;   ///< earliest start and latest end of them
  Nanoseconds last = 0;
  const DeviceTimeRow* times = nullptr;  ///< null while the window is not settled

  /// The time of which `busy` is a share: the window's, or that from the first work to the end of the last if
  /// longer, since a device that lags behind the host is still working after the window's end.
  std::uint64_t time(std::uint64_t window_duration) const {
    return window_duration > last - first ? window_duration : last - first;
  }
};

struct WindowHostRow {
  std::uint32_t window = 0;
  HostWork work;
};

/// Turns events into the rows of the tables: passes each event to the collectors concerned, each of which
/// makes a family of tables. Memory is bounded: each table has at most kMaxRows distinct keys; all others
/// share a row named `[other]`. A kernel costs a few hash lookups and usually no allocation. Used by one
/// thread at a time; add() may throw std::bad_alloc, after which the tables may be inconsistent by that
/// event.
class Statistics {
 public:
  static constexpr std::uint32_t kMaxRows = 10'000;

  /// All arguments must outlive the statistics: rows refer to their names.
  Statistics(const NameTable& names, const RangeTree& ranges, const ShapeTable& shapes);
  ~Statistics();
  Statistics(const Statistics&) = delete;
  Statistics& operator=(const Statistics&) = delete;

  /// A kernel counts in every range around its launch. For the number of range instances, the ranges that a
  /// thread closed before the launch must have been added before.
  void add(const KernelEvent& event);
  void add(const TransferEvent& event);
  void add(const CallEvent& event);
  /// Calls of which only the duration is known, or matters.
  void add_short_calls(std::uint32_t window, std::span<const ShortCallsRecord::Call> calls);
  void add(const RangeEvent& event);
  void add(const ProcessorTimeEvent& event);
  void add(const FetchEvent& event);
  /// A sample of a device's hardware counters, in the order of set_metrics().
  void add(const MetricSample& sample);
  /// A kernel launched outside all windows, which contributes to samples as well.
  void add_other_kernel(std::uint32_t device, Nanoseconds start, Nanoseconds end);
  /// A kernel of an iteration whose launches are named (record/code_places.h).
  void add_named(const KernelEvent& event);
  void add_named(const TransferEvent& event);
  /// A call in a named iteration in which a thread waited for the device, with its place.
  void add_named_wait(std::uint32_t thread, Nanoseconds begin, Nanoseconds end, std::uint32_t place);
  /// A sample of a thread's Python stack in a named iteration, as the node of the stack.
  void add_stack(std::uint32_t thread, Nanoseconds time, std::uint32_t stack);
  /// Announces that iterations may be named. To be called before any kernel is added.
  void expect_names(CodePlaces& places);
  /// A graph that was launched in a window; to be called before its kernels are added. `demangled` returns
  /// the id of a demangled name.
  void add_graph(std::uint32_t window, std::uint16_t number, const CapturedGraph& graph,
                 const std::function<std::uint32_t(std::uint32_t)>& demangled);
  /// Whether that graph is still unknown and needed.
  bool wants_graph(std::uint32_t window, std::uint16_t number) const;
  void tell_places(std::function<void(std::span<const PlacedLaunch>)> tell);
  /// Sets the sampled metrics from now on. To be called before the kernels to be joined are added.
  void set_metrics(std::vector<MetricInfo> list);
  /// All kernels that start before that time have been added: samples need not wait for them any longer.
  void join_samples_until(Nanoseconds time);
  /// `name` returns the name of an event's thread; needed for the phases.
  void threads_are_named_by(std::function<std::string(std::uint32_t thread)> name);

  /// An iteration begins. Boundaries come in ascending order of time, and before their window is settled.
  void iteration_boundary(const IterationBoundary& boundary);
  /// Device work submitted by this launch has no usable record: its iteration and its library call are
  /// incomplete (if the launch is unknown, all of its window), and the devices' busy time is known only up to
  /// there.
  void lost_work(const Attribution& launch);
  /// Some calls in that window have no record: any of its iterations, and library calls, may lack some.
  void lost_launches(std::uint32_t window);
  /// Nothing more will come for this window, which was open from `begin` to `end`. To be called in ascending
  /// order.
  void settle_window(std::uint32_t window, Nanoseconds begin, Nanoseconds end);
  /// The part of settle_window() that needs no iterations: device times and phases. When windows follow each
  /// other for days, each is settled this way as it ends. Without its times (`end` 0), a window has no shares
  /// of time.
  void settle_times(std::uint32_t window, Nanoseconds begin, Nanoseconds end);

  // The rows of a table, by descending total and then by name; pointers are valid until the next add().
  std::vector<TimeRow> kernels() const;
  std::vector<ShapeRow> kernel_shapes() const;
  /// Cached, like call_shapes() and kernel_families(), and valid until the next add() or settle_window():
  /// many rows are slow to build, and several tables of one write need them.
  const std::vector<DetailRow>& kernel_details() const;
  /// The kernels that ran since set_metrics(), by descending time; empty without metrics.
  std::vector<KernelMetricRow> kernel_metrics() const;
  std::vector<TimeRow> api_calls() const;
  std::vector<TimeRow> operation_times() const;
  std::vector<TimeRow> operation_sizes() const;
  std::vector<RangeRow> ranges() const;
  /// By range name, thread and descending time, as Nsight Systems sorts it. Launches outside any range have
  /// rows only if the program has ranges at all.
  std::vector<RangeKernelRow> range_kernels() const;
  std::vector<LibraryRow> library_calls() const;
  std::vector<ThreadRow> threads() const;
  /// Library calls by what they compute.
  const std::vector<CallShapeRow>& call_shapes() const;
  std::vector<FamilyRow> families() const;
  /// By kernel name.
  const std::vector<KernelFamilyRow>& kernel_families() const;
  /// Kernels of one family that were launched in no library call whose shape is known, by descending time.
  std::vector<std::pair<std::string_view, Totals>> unshaped_kernels(Family family) const;
  /// The same for several families together.
  UnshapedWork unshaped_work(bool (*of)(Family)) const;
  /// NCCL's calls by what they move; if there are kernels that belong to no known call, these come last.
  std::vector<CollectiveRow> collectives() const;
  /// By window and device.
  std::vector<WindowDeviceRow> window_devices() const;
  std::vector<WindowHostRow> window_hosts() const;

  const IterationStatistics& iterations() const;
  const FetchStatistics& fetches() const;
  const DeviceTimeStatistics& device_times() const;
  const KernelMetrics& metrics() const;
  /// By metric: mean over the iteration's time on the device (IterationDeviceRow::time), weighted by how much
  /// of it was sampled. Empty if nothing was sampled, and until its window is settled.
  std::span<const WeightedMean> iteration_metrics(const IterationRow& row, std::uint32_t device) const;
  /// By window, device and phase.
  std::vector<PhaseRow> phases() const;
  const CopyStatistics& copies() const;
  const CodeTimes& code_times() const;

  /// Totals over all windows.
  DeviceWork device_total() const;
  HostWork host_total() const;
  /// Device records that came too late to be counted in full in a window's or iteration's busy time, or in
  /// the overlap of collectives or copies.
  std::uint64_t late_for_busy_time() const;
  /// Records that came too late, or did not fit, for device_times().
  std::uint64_t left_out_of_device_times() const;

 private:
  /// Adds the FLOPs of a call with that shape, at that time.
  void add_flops(std::uint32_t shape, std::uint32_t window, Nanoseconds time);

  struct Collectors;
  std::unique_ptr<Collectors> collectors_;
  const NameTable& names_;
  const ShapeTable& shapes_;
};

/// `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`, …
std::string_view operation_name(const TransferEvent& event);
/// `Host-to-Device`, …: the name of a CopyRow's `operation`.
std::string_view direction_name(std::uint32_t operation);
/// `Pageable`, `Device`, …: the name of a CUpti_ActivityMemoryKind, in Nsight Systems' wording.
std::string_view memory_kind_name(std::uint8_t kind);

/// Whether calls of this function are rows of library_sum.csv.
bool is_library_function(FunctionId function);
/// Number of library calls in a chain.
unsigned library_depth(CallChain chain);
/// Whether calls of this function are rows of cuda_api_sum.csv.
bool is_api_function(FunctionId function);

}  // namespace inject
