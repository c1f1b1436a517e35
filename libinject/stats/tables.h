// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What Statistics keeps: for statistics.cpp, which fills it, and reports.cpp, which reads it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "libinject/stats/busy_time.h"
#include "libinject/stats/overlap.h"
#include "libinject/stats/statistics.h"

namespace inject {

static_assert(KeyIndex<1>::kNone == kNoIndex && KeyIndex<1>::kOther == kOtherIndex);

/// In the place of a range's number: launched outside any range.
inline constexpr std::uint32_t kOutsideRanges = kOtherIndex - 1;

/// Copies by CUpti_ActivityMemcpyKind, in words as Nsight Systems has them; the last one is ours for memsets.
inline constexpr std::array<std::string_view, 12> kOperations{
    "[CUDA memcpy Unknown]",         "[CUDA memcpy Host-to-Device]",  "[CUDA memcpy Device-to-Host]",
    "[CUDA memcpy Host-to-Array]",   "[CUDA memcpy Array-to-Host]",   "[CUDA memcpy Array-to-Array]",
    "[CUDA memcpy Array-to-Device]", "[CUDA memcpy Device-to-Array]", "[CUDA memcpy Device-to-Device]",
    "[CUDA memcpy Host-to-Host]",    "[CUDA memcpy Peer-to-Peer]",    "[CUDA memset]"};

inline KeyIndex<2>::Key chain_key(CallChain chain) {
  return {static_cast<std::uint32_t>(chain), static_cast<std::uint32_t>(chain >> 32)};
}

inline CallChain key_chain(const KeyIndex<2>::Key& key) {
  return static_cast<CallChain>(key[1]) << 32 | key[0];
}

/// `chain` without its innermost call.
inline CallChain chain_parent(CallChain chain) {
  const unsigned depth = chain_depth(chain);
  return depth <= 1 ? 0 : chain & ((CallChain{1} << (16 * (depth - 1))) - 1);
}

/// Rows of a table beside its KeyIndex: one per key, and the one of all keys that found no room.
template <typename Row>
class Rows {
 public:
  explicit Rows(Row empty) : other_(std::move(empty)) {}
  template <typename... Args>
  Row& at(std::uint32_t index, Args&&... args) {
    if (index == kOtherIndex) {
      other_used_ = true;
      return other_;
    }
    if (index == rows_.size()) rows_.emplace_back(std::forward<Args>(args)...);
    return rows_[index];
  }
  bool has(std::uint32_t index) const { return index == kOtherIndex ? other_used_ : index < rows_.size(); }
  /// Makes rows for all indices below `size`.
  template <typename... Args>
  void fill(std::uint32_t size, const Args&... args) {
    while (rows_.size() < size) rows_.emplace_back(args...);
  }
  const Row& operator[](std::uint32_t index) const { return index == kOtherIndex ? other_ : rows_[index]; }
  /// All indices, kOtherIndex at the end if it was used.
  std::vector<std::uint32_t> indices() const {
    std::vector<std::uint32_t> result(rows_.size());
    for (std::uint32_t i = 0; i < result.size(); ++i) result[i] = i;
    if (other_used_) result.push_back(kOtherIndex);
    return result;
  }

 private:
  std::vector<Row> rows_;
  Row other_;
  bool other_used_ = false;
};

/// Counts distinct range instances. Kernels come back nearly in the order of their launches: an instance that
/// comes more than 63 after a later one is taken for counted.
struct InstanceCounter {
  std::uint64_t count = 0;
  std::uint64_t latest = 0;
  std::uint64_t seen = 0;  // bit i: latest - i

  void add(std::uint64_t instance) {
    if (count == 0) {
      latest = instance;
      seen = 1;
      count = 1;
    } else if (instance > latest) {
      const std::uint64_t distance = instance - latest;
      seen = distance < 64 ? seen << distance | 1 : 1;
      latest = instance;
      ++count;
    } else {
      const std::uint64_t distance = latest - instance;
      if (distance < 64 && (seen >> distance & 1) == 0) {
        seen |= std::uint64_t{1} << distance;
        ++count;
      }
    }
  }
};

struct DetailEntry {
  std::uint32_t shape = 0;  // of KernelShapes
  Totals time;
};

struct RangeKernelEntry {
  explicit RangeKernelEntry(SampleBudget* budget) : time(budget) {}
  SampleStats time;
  InstanceCounter instances;
};

/// Kernels of one name, launched in one category of library calls.
struct FamilyEntry {
  Family family = Family::kOther;
  TensorCores cores = TensorCores::kUnknown;
  Totals time;
  std::uint64_t attributed = 0;
  Totals unshaped;  ///< of kernels launched in no call whose shape is known

  void add(std::uint64_t duration, bool in_call, bool shaped) {
    time.add(duration);
    if (in_call) attributed += duration;
    if (!shaped) unshaped.add(duration);
  }
};

struct LibraryEntry {
  Totals host;
  std::uint64_t failed = 0;
  DeviceWork work;
};

/// When the instances of one range on one thread ended, ascending: the instance that a launch lies in is the
/// number of those that ended before it.
struct EndedRanges {
  std::vector<Nanoseconds> ends;
  std::uint64_t dropped = 0;  // older ones, no longer kept
};
inline constexpr std::size_t kMaxEnds = 16 * 1024;  // of one range and thread
inline constexpr std::size_t kMinEnds = 256;
inline constexpr std::size_t kEndsTogether = 1u << 20;  // 8 MiB
// Intervals behind the busy times of windows that are not settled; beyond, those of the oldest become sums.
inline constexpr std::size_t kMaxIntervals = 262'144;
// Deeper nesting of ranges of different names is left out of nvtx_kern_sum.
inline constexpr std::size_t kMaxNesting = 64;

/// The category of a function's calls of that kind: cuDNN's graphs are run by one function, whatever they
/// compute.
inline Category call_category(FunctionId function, ShapeKind kind) {
  if (function != kFn_cudnnBackendExecute) return function_category(function);
  switch (kind) {
    case ShapeKind::kGemm:
      return Category::kGemm;
    case ShapeKind::kAttention:
      return Category::kAttention;
    case ShapeKind::kNormalization:
      return Category::kNorm;
    case ShapeKind::kOtherGraph:
      return Category::kPlan;  // by the kernels' names
    default:
      return function_category(function);
  }
}

/// Of the innermost of these library calls; kOther where there is none.
inline Category call_category(CallChain path, ShapeKind kind) {
  const unsigned depth = chain_depth(path);
  return depth == 0 ? Category::kOther : call_category(chain_at(path, depth - 1), kind);
}

struct Statistics::Tables {
  SampleBudget budget;

  // Kernels by name: names are small integers, so that the row is found without hashing.
  std::vector<std::uint32_t> kernel_of_name;
  std::vector<std::uint32_t> kernel_names;
  Rows<SampleStats> kernels{SampleStats(&budget)};

  // name, grid, block
  KeyIndex<7> shape_keys{kMaxRows};
  Rows<SampleStats> shapes{SampleStats(&budget)};

  // name, grid, block, device, registers, static and dynamic shared memory, local memory
  KeyIndex<12> detail_keys{kMaxRows};
  Rows<DetailEntry> details{{}};

  KeyIndex<1> api_keys{kMaxRows};
  Rows<SampleStats> apis{SampleStats(&budget)};

  std::vector<SampleStats> operation_times;
  std::vector<SampleStats> operation_sizes;

  // name, style
  KeyIndex<2> range_keys{kMaxRows};
  Rows<SampleStats> range_times{SampleStats(&budget)};
  bool any_range = false;

  // The ranges (of range_keys) around a node of the range tree, itself included, each once.
  struct Around {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
    bool known = false;
  };
  std::vector<Around> around;
  std::vector<std::uint32_t> around_ranges;

  // range, thread, kernel name
  KeyIndex<3> range_kernel_keys{kMaxRows};
  Rows<RangeKernelEntry> range_kernels{RangeKernelEntry(&budget)};

  // thread, range
  KeyIndex<2> ended_keys{kMaxRows};
  std::vector<EndedRanges> ended;
  std::size_t ends_kept = 0;
  // The search in EndedRanges, remembered: [begin, end) lies in `instance`.
  struct InstanceCache {
    std::uint32_t thread = kNoIndex;
    std::uint32_t range = kNoIndex;
    Nanoseconds begin = 0;
    Nanoseconds end = 0;
    std::uint64_t instance = 0;
  };
  std::array<InstanceCache, 16> instance_cache{};

  // path of library calls
  KeyIndex<2> library_keys{kMaxRows};
  Rows<LibraryEntry> libraries{{}};
  CallChain last_chain = 0;
  std::uint32_t last_library = kNoIndex;

  CallShapeStatistics call_shapes;
  // What Statistics::call_shapes(), kernel_details() and kernel_families() made, until something changes.
  std::optional<std::vector<CallShapeRow>> call_shape_rows;
  std::optional<std::vector<DetailRow>> detail_rows;
  std::optional<std::vector<KernelFamilyRow>> kernel_family_rows;

  // Collectives' kernels; rows are shapes, 0 for those without one.
  OverlapStatistics overlap;
  Totals unknown_collectives;
  std::vector<KernelShare> unknown_collective_names;

  // kernel name, category of the innermost library call
  KeyIndex<2> family_keys{kMaxRows};
  Rows<FamilyEntry> families{{}};

  // thread, device
  KeyIndex<2> thread_keys{kMaxRows};
  Rows<SampleStats> threads{SampleStats(&budget)};

  // window, device
  KeyIndex<2> window_device_keys{kMaxRows};
  Rows<DeviceWork> window_devices{{}};
  // Beside them; those of windows that are not settled hold intervals.
  Rows<BusyTime> window_busy{{}};
  std::vector<std::uint32_t> unsettled_busy;
  std::size_t intervals_held = 0;
  std::uint64_t late_for_busy = 0;
  KeyIndex<1> window_host_keys{kMaxRows};
  Rows<HostWork> window_hosts{{}};

  IterationStatistics iterations;

  PhaseStatistics phases;
  // By node of the range tree: 0 not asked, else the phase + 1.
  std::vector<std::uint8_t> node_phases;

  /// Of the innermost range that stands for a phase.
  Phase phase_of_node(const RangeTree& tree, const NameTable& names, std::uint32_t node) {
    if (node == 0) return Phase::kOther;
    if (node >= node_phases.size()) node_phases.resize(std::bit_ceil(std::size_t{node} + 1), 0);
    if (node_phases[node] == 0) {
      Phase phase = Phase::kOther;
      std::uint32_t id = node;
      for (std::size_t depth = 0; id != 0 && depth < kMaxNesting && phase == Phase::kOther; ++depth) {
        const RangeTree::Node entry = tree.node(id);
        phase = phase_of_range(names.name(entry.name));
        if (entry.parent >= id) break;  // as in ranges_around()
        id = entry.parent;
      }
      node_phases[node] = static_cast<std::uint8_t>(static_cast<unsigned>(phase) + 1);
    }
    return static_cast<Phase>(node_phases[node] - 1);
  }

  DeviceTimeStatistics device_times;
  CopyStatistics copies;
  // Rows are those of `details`.
  KernelMetrics metrics;
  static_assert(KernelMetrics::kMaxRows == kMaxRows);
  // By window, begin of the iteration and device; the oldest go first.
  using IterationKey = std::array<std::uint64_t, 3>;
  static constexpr std::size_t kMaxIterationMetrics = 16'384;
  std::map<IterationKey, std::vector<WeightedMean>> iteration_metrics;

  /// Samples are forgotten once their window is settled: what they say of its iterations is kept.
  void note_iteration_metrics(std::uint32_t window) {
    const std::size_t count = metrics.metrics().size();
    for (const IterationRow& row : iterations.rows_of(window)) {
      const std::uint64_t duration = row.end > row.begin ? row.end - row.begin : 0;
      for (const IterationDeviceRow& device : row.devices) {
        if (device.last <= device.first) continue;
        const Nanoseconds until = device.first + device.time(duration);
        std::vector<WeightedMean> means;
        means.reserve(count);
        for (std::size_t m = 0; m < count; ++m)
          means.push_back(metrics.mean_between(device.device, m, device.first, until));
        if (std::none_of(means.begin(), means.end(),
                         [](const WeightedMean& mean) { return mean.weight > 0; }))
          continue;
        iteration_metrics[{row.window, row.begin, device.device}] = std::move(means);
        if (iteration_metrics.size() > kMaxIterationMetrics)
          iteration_metrics.erase(iteration_metrics.begin());
      }
    }
  }
  // What a thread does in a function, by function, as far as it was asked for.
  struct FunctionKind {
    bool known = false;
    HostState state = HostState::kOther;
    bool asks = false;
  };
  std::vector<FunctionKind> function_kinds;

  const FunctionKind& function_kind(FunctionId function) {
    if (function >= function_kinds.size()) function_kinds.resize(std::bit_ceil(function + 1u));
    FunctionKind& kind = function_kinds[function];
    if (!kind.known) {
      const std::string_view name = function_name(function);
      kind = {true, host_state_of(name, is_library_function(function)), asks_for_work(name)};
    }
    return kind;
  }

  Tables() {
    for (std::size_t i = 0; i < kOperations.size(); ++i) {
      operation_times.emplace_back(&budget);
      operation_sizes.emplace_back(&budget);
    }
  }

  SampleStats& kernel_row(std::uint32_t name) {
    if (name == NameTable::kOther) return kernels.at(kOtherIndex);
    if (name >= kernel_of_name.size()) kernel_of_name.resize(std::bit_ceil(std::size_t{name} + 1), kNoIndex);
    std::uint32_t& index = kernel_of_name[name];
    if (index == kNoIndex) {
      if (kernel_names.size() == kMaxRows) return kernels.at(kOtherIndex);
      index = static_cast<std::uint32_t>(kernel_names.size());
      kernel_names.push_back(name);
    }
    return kernels.at(index, &budget);
  }

  /// The row of a path of library calls, and those of the calls around it.
  std::uint32_t library_row(CallChain path) {
    if (path == last_chain && last_library != kNoIndex) return last_library;
    const std::uint32_t known = library_keys.size();
    const std::uint32_t index = library_keys.find_or_add(chain_key(path));
    libraries.at(index);
    if (index == known) {
      for (CallChain outer = chain_parent(path); outer != 0; outer = chain_parent(outer)) {
        libraries.at(library_keys.find_or_add(chain_key(outer)));
      }
    }
    last_chain = path;
    last_library = index;
    return index;
  }

  FamilyEntry& family_entry(std::uint32_t name, Category category, const NameTable& names) {
    const std::uint32_t known = family_keys.size();
    const std::uint32_t index = family_keys.find_or_add({name, static_cast<std::uint32_t>(category)});
    FamilyEntry& entry = families.at(index);
    if (index == known) {
      entry.family = family_of(names.name(name), category);
      entry.cores = tensor_cores_of(names.name(name)).cores;
    }
    return entry;
  }

  std::uint32_t range_of(const RangeTree::Node& node) {
    return range_keys.find_or_add({node.name, static_cast<std::uint32_t>(node.style)});
  }

  Around ranges_around(const RangeTree& tree, std::uint32_t node) {
    if (node >= around.size()) around.resize(std::bit_ceil(std::size_t{node} + 1));
    if (around[node].known) return around[node];
    const auto begin = static_cast<std::uint32_t>(around_ranges.size());
    // A parent is always older than its child; the bound only guards against a damaged tree.
    std::uint32_t id = node;
    while (id != 0 && around_ranges.size() - begin < kMaxNesting) {
      const RangeTree::Node entry = tree.node(id);
      const std::uint32_t range = range_of(entry);
      const auto first = around_ranges.begin() + begin;
      if (std::find(first, around_ranges.end(), range) == around_ranges.end()) around_ranges.push_back(range);
      if (entry.parent >= id) break;
      id = entry.parent;
    }
    around[node] = {begin, static_cast<std::uint32_t>(around_ranges.size()) - begin, true};
    return around[node];
  }

  InstanceCache& cache_of(std::uint32_t thread, std::uint32_t range) {
    return instance_cache[(thread * 5 + range) % instance_cache.size()];
  }

  void range_ended(std::uint32_t thread, std::uint32_t range, Nanoseconds end) {
    const std::uint32_t index = ended_keys.find_or_add({thread, range});
    if (index == kOtherIndex) return;
    if (index == ended.size()) ended.emplace_back();
    EndedRanges& entry = ended[index];
    if (entry.ends.size() >= kMaxEnds || (ends_kept >= kEndsTogether && entry.ends.size() >= kMinEnds)) {
      const std::size_t half = entry.ends.size() / 2;
      entry.ends.erase(entry.ends.begin(), entry.ends.begin() + static_cast<std::ptrdiff_t>(half));
      entry.dropped += half;
      ends_kept -= half;
    }
    // A range that another thread ended may come late: keep the order.
    if (!entry.ends.empty()) end = std::max(end, entry.ends.back());
    entry.ends.push_back(end);
    ++ends_kept;
    InstanceCache& cache = cache_of(thread, range);
    if (cache.thread == thread && cache.range == range) cache = {};
  }

  std::uint64_t instance_at(std::uint32_t thread, std::uint32_t range, Nanoseconds time) {
    InstanceCache& cache = cache_of(thread, range);
    if (cache.thread == thread && cache.range == range && time >= cache.begin && time < cache.end) {
      return cache.instance;
    }
    cache = {thread, range, 0, std::numeric_limits<Nanoseconds>::max(), 0};
    const std::uint32_t index = ended_keys.find({thread, range});
    if (index == kNoIndex) return 0;
    const EndedRanges& entry = ended[index];
    const auto next = std::upper_bound(entry.ends.begin(), entry.ends.end(), time);
    if (next != entry.ends.begin()) cache.begin = *(next - 1);
    if (next != entry.ends.end()) cache.end = *next;
    cache.instance = entry.dropped + static_cast<std::uint64_t>(next - entry.ends.begin());
    return cache.instance;
  }

  RangeKernelEntry& range_kernel_row(std::uint32_t range, std::uint32_t thread, std::uint32_t name) {
    return range_kernels.at(range_kernel_keys.find_or_add({range, thread, name}), &budget);
  }

  void window_worked(std::uint32_t index, Nanoseconds start, Nanoseconds end) {
    const bool is_new = !window_busy.has(index);
    BusyTime& busy = window_busy.at(index);
    if (is_new) unsettled_busy.push_back(index);
    const std::size_t held = busy.held();
    const std::uint64_t late = busy.late();
    busy.add(start, end);
    late_for_busy += busy.late() - late;
    intervals_held += busy.held() - held;
    for (std::size_t i = 0; i < unsettled_busy.size() && intervals_held > kMaxIntervals; ++i) {
      settle_busy(unsettled_busy[i]);
    }
  }

  void settle_busy(std::uint32_t index) {
    BusyTime& busy = window_busy.at(index);
    intervals_held -= busy.held();
    busy.settle();
  }

  HostWork& window_host(std::uint32_t window) {
    return window_hosts.at(window_host_keys.find_or_add({window}));
  }
};

}  // namespace inject
