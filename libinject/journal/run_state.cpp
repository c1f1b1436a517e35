// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/journal/run_state.h"

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "libinject/journal/codec.h"

namespace inject::recovery {

namespace {

constexpr std::size_t kMaxTextLength = 64 * 1024;
constexpr std::size_t kMaxOfAll = 100'000;    // elements of a list
constexpr std::size_t kMaxMemoryLines = 128;  // three per device, and one for the host

class Writer {
 public:
  void field(const std::string& value) { to_.text(std::string_view(value).substr(0, kMaxTextLength)); }
  template <typename Number>
  requires std::integral<Number> || std::is_enum_v<Number>
  void field(const Number& value) { to_.number(static_cast<std::uint64_t>(value)); }
  template <typename First, typename Second>
  void field(const std::pair<First, Second>& value) {
    field(value.first);
    field(value.second);
  }
  template <typename Value, typename Each>
  void list(std::vector<Value>& values, Each&& each) {
    to_.number(values.size());
    for (Value& value : values) each(*this, value);
  }
  template <typename Value>
  bool has(const std::optional<Value>& value) {
    to_.number(value.has_value());
    return value.has_value();
  }
  std::string take() const { return std::string(to_.bytes()); }

 private:
  Encoder to_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : from_(text) {}
  void field(std::string& value) { value = from_.text(kMaxTextLength); }
  template <typename Number>
  requires std::integral<Number> || std::is_enum_v<Number>
  void field(Number& value) { value = static_cast<Number>(from_.number()); }
  template <typename First, typename Second>
  void field(std::pair<First, Second>& value) {
    field(value.first);
    field(value.second);
  }
  template <typename Value, typename Each>
  void list(std::vector<Value>& values, Each&& each) {
    const std::uint64_t count = from_.number(kMaxOfAll);
    for (std::uint64_t i = 0; i < count && from_.ok(); ++i) {
      Value value{};
      each(*this, value);
      if (from_.ok()) values.push_back(std::move(value));
    }
  }
  template <typename Value>
  bool has(std::optional<Value>& value) {
    value.reset();
    if (from_.number(1) == 1) value.emplace();
    return value.has_value();
  }
  bool good() const { return from_.ok() && from_.at_end(); }

 private:
  Decoder from_;
};

template <typename Way, typename... Fields>
void fields(Way& way, Fields&... all) {
  (way.field(all), ...);
}

template <typename Way>
void device_fields(Way& way, DeviceInfo& d) {
  fields(way, d.compute_major, d.compute_minor, d.multiprocessors, d.warp_size, d.threads_per_block,
         d.threads_per_multiprocessor, d.blocks_per_multiprocessor, d.registers_per_block,
         d.registers_per_multiprocessor, d.shared_per_block, d.shared_per_block_optin,
         d.shared_per_multiprocessor, d.reserved_shared_per_block);
  fields(way, d.id, d.name, d.uuid, d.pci_bus, d.memory_bytes, d.clock_khz, d.memory_clock_khz,
         d.memory_bus_bits, d.pcie_generation, d.pcie_width, d.pcie_max_generation, d.pcie_max_width);
}

template <typename Way>
void memory_fields(Way& way, MemoryRow& row) {
  way.field(row.device);
  if (way.has(row.api)) way.field(*row.api);
  MemoryCounts& c = row.counts;
  fields(way, c.allocations, c.frees, c.allocated, c.live, c.peak, c.largest, c.failed, c.failed_bytes,
         c.largest_failed, c.last_failed, c.peak_at);
}

// As differences, most of which are small: a line may have many intervals.
template <typename Way>
void interval_fields(Way& way, MemoryInterval& interval, Nanoseconds& before) {
  const auto difference = [&way](std::uint64_t& value, std::uint64_t from) {
    std::uint64_t by = value - from;
    way.field(by);
    value = from + by;
  };
  difference(interval.begin, before);
  difference(interval.last_at, interval.begin);
  difference(interval.highest_at, interval.begin);
  way.field(interval.lowest);
  difference(interval.highest, interval.lowest);
  difference(interval.last, interval.lowest);
  way.field(interval.window);
  before = interval.begin;
}

template <typename Way>
void line_fields(Way& way, MemoryLine& line) {
  fields(way, line.device, line.of);
  Nanoseconds before = 0;
  way.list(line.intervals,
           [&before](Way& each, MemoryInterval& interval) { interval_fields(each, interval, before); });
}

template <typename Way>
void host_fields(Way& way, HostWindow& w) {
  fields(way, w.window, w.begin, w.end, w.reading, w.affinity, w.workers, w.worker_life, w.worker_time,
         w.worker_wait, w.moments.all, w.moments.asleep, w.moments.blocked);
  if (way.has(w.quota_thousandths)) way.field(*w.quota_thousandths);
  way.list(w.roles, [](Way& each, HostRoleUse& row) {
    fields(each, row.role, row.count);
    for (std::optional<std::uint64_t>& amount : row.use.amounts) {
      if (each.has(amount)) each.field(*amount);
    }
  });
}

template <typename Way>
void optional_field(Way& way, std::optional<std::uint32_t>& value) {
  if (way.has(value)) way.field(*value);
}

template <typename Way>
void job_fields(Way& way, JobPlace& job) {
  fields(way, job.launcher, job.id, job.rank);
  for (auto* value : {&job.world_size, &job.local_rank, &job.local_size, &job.node, &job.nodes})
    optional_field(way, *value);
}

template <typename Way>
void run_fields(Way& way, RunInfo& run) {
  const auto plain = [](Way& w, auto& value) { w.field(value); };
  fields(way, run.version, run.working_directory, run.host, run.pid, run.rank, run.base, run.base_utc);
  if (way.has(run.job)) job_fields(way, *run.job);
  way.list(run.command_line, plain);
  way.list(run.versions, plain);
  way.list(run.options, plain);
  way.list(run.groups_left_out, plain);
  way.list(run.messages, plain);
  way.list(run.devices, [](Way& w, DeviceInfo& device) { device_fields(w, device); });
  fields(way, run.name_overflows, run.shape_overflows, run.range_overflows, run.trace_rows_left_out,
         run.iteration_signs_lost, run.graph_nodes_lost, run.batch, run.unit_source);
  way.list(run.memory, [](Way& w, MemoryRow& row) { memory_fields(w, row); });
  way.list(run.memory_lines, [](Way& w, MemoryLine& line) { line_fields(w, line); });
  fields(way, run.memory_lines_lost, run.memory_until, run.allocations_not_held, run.unknown_frees);
  way.list(run.host_windows, [](Way& w, HostWindow& window) { host_fields(w, window); });
  HostReadings& h = run.host_readings;
  fields(way, h.readings, h.windows_not_read, h.threads_beyond, h.children_beyond, h.processor_time);
  Overhead& o = run.overhead;
  fields(way, o.open, o.close, o.write, o.drain_cpu, o.buffer_callbacks, o.gate, o.gate_holds, o.attachments,
         o.finalizations, o.buffers, o.device_readings);
  if (!way.has(run.iterations)) return;
  IterationInfo& i = *run.iterations;
  fields(way, i.source, i.found, i.report, i.optimizer, i.steps, i.doubtful, i.by_shape, i.rough,
         i.locked_after, i.changes, i.events, i.begins_with, i.anchor, i.begun);
}

bool in_order(const std::vector<MemoryInterval>& intervals) {
  Nanoseconds end = 0;
  for (const MemoryInterval& one : intervals) {
    if (one.begin < end || one.last_at < one.begin || one.highest_at < one.begin ||
        one.highest < one.lowest || one.last < one.lowest || one.last > one.highest)
      return false;
    end = one.last_at;
  }
  return true;
}

}  // namespace

std::string encode_run(RunInfo run) {
  Writer writer;
  run_fields(writer, run);
  return writer.take();
}

bool decode_run(std::string_view text, RunInfo& run) {
  Reader reader(text);
  run_fields(reader, run);
  for (MemoryRow& row : run.memory) {
    if (row.api && static_cast<std::size_t>(*row.api) >= kAllocationApis) row.api.reset();
  }
  std::erase_if(run.memory_lines, [](const MemoryLine& line) {
    return line.of == MemoryLine::Of::kInUse || line.of > MemoryLine::Of::kTorchAllocated ||
           !in_order(line.intervals);
  });
  if (run.memory_lines.size() > kMaxMemoryLines) run.memory_lines.resize(kMaxMemoryLines);
  if (static_cast<std::size_t>(run.unit_source) >= kUnitSources) run.unit_source = UnitSource::kCalled;
  std::erase_if(run.host_windows, [](const HostWindow& window) { return window.end < window.begin; });
  for (HostWindow& window : run.host_windows) {
    std::erase_if(window.roles,
                  [](const HostRoleUse& row) { return static_cast<std::size_t>(row.role) >= kHostRoles; });
  }
  return reader.good();
}

}  // namespace inject::recovery
