// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libinject/base/gzip_file.h"
#include "libinject/model/event_sink.h"
#include "libinject/model/metric_samples.h"
#include "libinject/model/run_info.h"
#include "libinject/output/event_text.h"
#include "libinject/output/place_boxes.h"
#include "libinject/output/stream_rows.h"
#include "libinject/record/name_table.h"
#include "libinject/record/range_tree.h"
#include "libinject/stats/iterations.h"

namespace inject {

/// INJECT_TRACE=chrome: trace.json.gz, in Chrome's trace-event format with the categories and arguments of
/// PyTorch's Kineto (docs/timeline.md). Events are written as they arrive, so memory is bounded. The number
/// of events and the file's size are bounded too; further events are counted. The file exists only while it
/// is complete (GzipFile): after complete(), until something is added. For one thread, with all signals
/// blocked.
class ChromeTrace final : public EventSink {
 public:
  static constexpr const char* kFileName = "trace.json.gz";

  struct Context {
    const NameTable* names = nullptr;
    const RangeTree* ranges = nullptr;
    /// Returns the thread that events refer to by this index.
    std::function<ThreadInfo(std::uint32_t thread)> thread;
    /// The devices known by now, in order.
    std::function<std::span<const DeviceInfo>()> devices;
    std::string program;
    int pid = 0;
    Nanoseconds base = 0;        ///< RunInfo::base: times in the file are relative to it
    std::uint64_t base_utc = 0;  ///< the same moment in nanoseconds since 1970
    std::string rank;            ///< empty outside a distributed job
    std::string world_size;      ///< empty if unknown
  };
  struct Limits {
    /// Limit on kernels, copies, calls, ranges, samples' values, readings and iterations, and the arrows
    /// between them.
    std::uint64_t events = 20'000'000;
    std::uint64_t bytes = std::uint64_t{1} << 30;
  };

  explicit ChromeTrace(Context context) : ChromeTrace(std::move(context), Limits()) {}
  ChromeTrace(Context context, Limits limits);

  /// Call before open(); as in WriteBehindFile.
  void write_behind(FileQueue* queue) { file_.write_behind(queue); }
  /// Creates the file. False on failure: see error().
  bool open(const std::string& folder);
  bool is_open() const { return file_.is_open(); }

  using EventSink::add;
  void add(const KernelEvent& event, std::uint16_t attachment) override;
  void add(const TransferEvent& event, std::uint16_t attachment) override;
  void add(const CallEvent& event, std::uint16_t attachment) override;
  void add(const RangeEvent& event) override;
  void add(const IterationBoundary& boundary) override;
  /// `columns` describe the sample's values.
  void add(const MetricSample& sample, std::span<const MetricInfo> columns);
  /// Adds readings of the devices and of memory in those windows that have ended since the last call.
  void add_readings(const RunInfo& run, std::span<const WindowInfo> windows);
  /// Adds a window's launches, in the order required by PlaceBoxes.
  void add(std::span<const PlacedLaunch> launches, const CodePlaces& places) noexcept;

  /// Completes the file, with the windows that have ended.
  bool complete(std::span<const WindowInfo> windows);

  /// Number of kernels, copies, calls, ranges, samples, readings and iterations that are not in the file.
  std::uint64_t left_out() const { return left_out_; }
  bool fell_behind() const { return fell_behind_; }
  /// The file stays as it is: nothing can be added from here on.
  void close() { file_.close(); }
  std::string error() const { return file_.error(); }

 private:
  /// The text that many events share, before the time and after the duration, cached.
  struct Frame {
    std::string before;
    std::string after;
  };
  struct KernelKey {
    std::uint32_t name = 0;
    std::uint32_t device = 0;
    std::uint32_t context = 0;
    std::uint32_t stream = 0;
    std::uint32_t row = 0;
    std::uint32_t registers_per_thread = 0;
    std::uint32_t static_shared_bytes = 0;
    std::uint32_t dynamic_shared_bytes = 0;
    std::array<std::int32_t, 3> grid{};
    std::array<std::int32_t, 3> block{};

    bool operator==(const KernelKey&) const = default;
  };
  struct KernelFrame {
    bool used = false;
    KernelKey key;
    Frame frame;
  };
  struct CallFrame {
    std::uint64_t key = 0;
    std::string before;
  };

  bool take(unsigned events);
  void begin();
  void end_event();
  std::string devices_text();
  std::uint64_t since(Nanoseconds time) const { return time > context_.base ? time - context_.base : 0; }
  std::uint64_t unique(std::uint32_t correlation, std::uint16_t attachment);
  std::uint64_t call_id(std::uint32_t thread, std::uint32_t call) const;
  std::string_view name_text(std::uint32_t name);
  std::uint64_t tid_of(std::uint32_t thread);
  const DeviceInfo* device(std::uint32_t id) const;
  unsigned ranges_around(RangeTree::Node node) const;
  template <typename Event>
  std::uint32_t row_of(const Event& event);
  const Frame& kernel_frame(const KernelEvent& event, std::uint32_t row);
  void fill(Frame& frame, const KernelEvent& event, std::uint32_t row);
  const std::string& call_frame(const CallEvent& event);
  void append_occupancy(std::string& out, const KernelEvent& event) const;
  template <typename Event>
  bool draws_arrow(const Event& event, std::uint64_t correlation);
  template <typename Event>
  void arrow(const Event& event, std::uint32_t row, std::uint64_t correlation);
  void counter(std::string_view quoted_name, std::uint64_t process, Nanoseconds time, double value);
  void add(const ClockReading& reading, std::uint32_t device);
  void add(const MemoryLine& line, const WindowInfo& window);
  void append_stream_rows(std::string& out);
  void add(const PlaceBox& box, const CodePlaces& places);
  void link(const PlaceBox& forward, const PlaceBox& backward);
  std::uint64_t place_row(const PlaceBox& box);
  void append_place_rows(std::string& out);
  std::string end_text(std::span<const WindowInfo> windows);

  Context context_;
  std::uint64_t host_pid_;
  std::uint64_t events_left_;
  std::uint64_t max_bytes_;
  std::uint64_t left_out_ = 0;
  bool fell_behind_ = false;
  GzipFile file_;
  EventText text_;
  bool begun_ = false;
  bool has_devices_ = false;
  std::uint16_t first_attachment_ = 0;
  std::uint64_t asynchronous_ = 0;  // ids of ranges that need not nest
  IterationBoundary last_boundary_;
  bool in_iteration_ = false;
  bool has_iterations_ = false;
  std::string scratch_;
  std::vector<std::string> names_;  // quoted, by id
  std::vector<ThreadInfo> threads_;
  std::vector<bool> threads_known_;
  std::vector<KernelFrame> kernels_;
  std::vector<CallFrame> calls_;
  std::vector<std::uint64_t> drawn_;  // the latest launches with an arrow
  StreamRows streams_;
  std::set<std::uint32_t> counted_devices_;  // devices with counters
  std::uint32_t read_window_ = 0;            // the latest one whose readings are in the file
  std::vector<bool> place_rows_;             // by thread and PlaceRow: whether the row exists
  std::uint64_t links_ = 0;
};

}  // namespace inject
