// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/graph_capture.h"

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libinject/base/caller_state.h"
#include "libinject/base/clock.h"
#include "libinject/base/log.h"
#include "libinject/base/mutex.h"
#include "libinject/capture/hooks/real_symbol.h"
#include "libinject/capture/launch_place.h"
#include "libinject/model/code_place.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/record/thread_registry.h"

namespace inject {

namespace {

/// Functions of the driver; all of them exist since 12.3.
struct GraphDriver {
  decltype(&cuStreamGetCaptureInfo) capture_info = nullptr;
  decltype(&cuGraphGetNodes) nodes = nullptr;
  decltype(&cuGraphNodeGetDependencies) dependencies = nullptr;
  decltype(&cuGraphNodeGetType) type = nullptr;
  decltype(&cuGraphKernelNodeGetParams) kernel = nullptr;
  decltype(&cuGraphChildGraphNodeGetGraph) child = nullptr;
  decltype(&cuFuncGetName) function_name = nullptr;
  decltype(&cuKernelGetName) kernel_name = nullptr;
};
/// Written before `driver_known`.
constinit GraphDriver driver;
constinit std::atomic<bool> driver_known{false};

/// A call that has been captured: its nodes are those that `after` depends on and `before` does not.
struct Captured {
  std::vector<CUgraphNode> before;
  std::vector<CUgraphNode> after;
  std::uint32_t place = 0;
  CapturedGraphs::Graph launched;  ///< if it is the launch of a graph
};

struct Capture {
  CUstream stream = nullptr;  ///< on which it was begun
  CUgraph graph = nullptr;
  pid_t thread = 0;  ///< that has begun it
  Nanoseconds begin = 0;
  std::vector<Captured> calls;
};

constexpr std::size_t kMaxCaptures = 16;
constexpr std::size_t kMaxCalls = std::size_t{1} << 16;
constexpr std::size_t kMaxNodes = std::size_t{1} << 17;
/// A capture that takes longer has been abandoned: its stream was destroyed.
constexpr Nanoseconds kLongestCapture = 300 * kSecond;
/// No thread holds the lock for long, except one that a signal handler has interrupted.
constexpr Nanoseconds kLongestWait = 100 * kMillisecond;

constinit Mutex captures_mutex;
/// Never destroyed.
std::vector<Capture>& captures() INJECT_REQUIRES(captures_mutex) {
  static std::vector<Capture>* const running = new std::vector<Capture>;
  return *running;
}
/// Incremented each time that a first capture begins, one ends, or a stream is about to be destroyed: the
/// streams into which threads captured before are not queried any more.
constinit std::atomic<std::uint32_t> capture_period{0};

/// True if captures are named, so that hooks may query the driver.
bool can_ask() noexcept {
  return driver_known.load(std::memory_order_acquire) && captures_are_named();
}

pid_t capturing_thread() noexcept {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

CaptureTail tail_of(CUstream stream) noexcept {
  CaptureTail tail;
  // The legacy stream can't be captured, and must not be queried while another one is being captured.
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return tail;
  const UnrecordedScope unrecorded;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  if (driver.capture_info(stream, &status, &id, &graph, &nodes, &edges, &count) != CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_ACTIVE || count > CaptureTail::kMost)
    return tail;
  tail.graph = graph;
  tail.count = static_cast<std::uint32_t>(count);
  if (count != 0) std::copy_n(nodes, count, tail.nodes.begin());
  return tail;
}

bool same_nodes(const CaptureTail& one, const CaptureTail& other) noexcept {
  return one.count == other.count &&
         std::equal(one.nodes.begin(), one.nodes.begin() + one.count, other.nodes.begin());
}

std::vector<CUgraphNode> nodes_of(const CaptureTail& tail) {
  return {tail.nodes.begin(), tail.nodes.begin() + tail.count};
}

void set_running(bool running) noexcept {
  if (running) {
    capture_period.fetch_add(1, std::memory_order_relaxed);
    control_word.fetch_or(kControlCapture, std::memory_order_release);
  } else {
    control_word.fetch_and(~static_cast<std::uint32_t>(kControlCapture), std::memory_order_release);
  }
  set_capturing(running);
}

/// Streams are about to be destroyed: `forget` forgets what is captured into them. A guess of before, or one
/// that was made until then, is not queried any more.
template <typename Forget>
void without_captures(Forget forget) noexcept {
  if (capture_period.load(std::memory_order_relaxed) == 0) return;  // nothing has been captured
  if (!can_ask() || ThreadRegistry::this_thread_is_ignored()) return;
  const CallerState caller;
  capture_period.fetch_add(1, std::memory_order_relaxed);
  if (!captures_mutex.try_lock_within(kLongestWait)) return;
  const MutexLock lock(captures_mutex, std::adopt_lock);
  forget();
  capture_period.fetch_add(1, std::memory_order_relaxed);
}

std::optional<Capture> take_capture(CUstream stream) INJECT_REQUIRES(captures_mutex) {
  std::vector<Capture>& running = captures();
  const auto found = std::find_if(running.begin(), running.end(), [&](const Capture& one) {
    return one.stream == stream && (stream != CU_STREAM_PER_THREAD || one.thread == capturing_thread());
  });
  if (found == running.end()) return std::nullopt;
  Capture taken = std::move(*found);
  running.erase(found);
  if (running.empty()) set_running(false);
  return taken;
}

/// The stream into which a call without a stream argument is taken to capture: the one into which the thread
/// has captured last or, if it has not captured yet, that of the capture that it began last. If it is another
/// one, nothing changes there. Never a stream that only other threads use: the driver's answer points to
/// memory that their next call may free.
CUstream guessed_stream(std::uint32_t period) INJECT_REQUIRES(captures_mutex) {
  const ThreadState* thread = ThreadRegistry::current_if_any();
  if (thread != nullptr && thread->capture_period == period)
    return static_cast<CUstream>(thread->capture_stream);
  const std::vector<Capture>& running = captures();
  const pid_t self = capturing_thread();
  const auto own =
      std::find_if(running.rbegin(), running.rend(), [&](const Capture& one) { return one.thread == self; });
  return own == running.rend() ? nullptr : own->stream;
}

void forget_old_captures() INJECT_REQUIRES(captures_mutex) {
  std::vector<Capture>& running = captures();
  const Nanoseconds time = now();
  if (std::erase_if(running, [&](const Capture& one) { return one.begin + kLongestCapture < time; }) != 0 &&
      running.empty())
    set_running(false);
}

/// Reads the contents of a graph.
class GraphReader {
 public:
  explicit GraphReader(Core& core) : core_(core) {}

  /// Null if they can't be read. `calls`: in the order in which they ended.
  std::unique_ptr<CapturedGraph> read(CUgraph graph, const std::vector<Captured>& calls) {
    std::vector<CUgraphNode> nodes;
    if (!list(graph, nodes)) return nullptr;
    auto found = std::make_unique<CapturedGraph>();
    found->nodes = nodes.size();
    found->is_chain = true;
    Level level;
    if (!link(nodes, level)) return nullptr;
    found->as_made = mark(level, calls);
    if (!add(nodes, level, &calls, *found)) return nullptr;
    return found;
  }

 private:
  static constexpr std::uint32_t kNobody = 0;
  static constexpr std::uint32_t kUnseen = ~std::uint32_t{0};

  /// The nodes of one graph, by their positions in the driver's list.
  struct Level {
    std::unordered_map<CUgraphNode, std::uint32_t> places;
    std::vector<std::vector<std::uint32_t>> before;  // what each depends on
    std::vector<std::uint32_t> made_by;              // number of the call, from 1 on
    std::vector<std::uint32_t> order;                // a chain's order, else that of the list
    bool is_chain = false;
  };

  bool list(CUgraph graph, std::vector<CUgraphNode>& nodes) {
    std::size_t count = 0;
    const UnrecordedScope unrecorded;
    if (driver.nodes(graph, nullptr, &count) != CUDA_SUCCESS) return false;
    read_ += count;
    if (read_ > kMaxNodes) {
      core_.captured_graphs.note_lost(count);
      return false;
    }
    nodes.resize(count);
    return count == 0 || driver.nodes(graph, nodes.data(), &count) == CUDA_SUCCESS;
  }

  static bool link(const std::vector<CUgraphNode>& nodes, Level& level) {
    const UnrecordedScope unrecorded;
    for (std::size_t i = 0; i < nodes.size(); ++i)
      level.places.emplace(nodes[i], static_cast<std::uint32_t>(i));
    level.before.resize(nodes.size());
    level.made_by.assign(nodes.size(), kNobody);
    std::vector<CUgraphNode> waits;
    std::vector<CUgraphEdgeData> edges;
    std::vector<std::uint32_t> next(nodes.size(), kUnseen);
    std::size_t first = nodes.size();
    level.is_chain = true;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      std::size_t count = 0;
      if (driver.dependencies(nodes[i], nullptr, nullptr, &count) != CUDA_SUCCESS) return false;
      waits.resize(count);
      edges.resize(count);
      if (count != 0 && driver.dependencies(nodes[i], waits.data(), edges.data(), &count) != CUDA_SUCCESS)
        return false;
      if (count == 0 && first != nodes.size()) level.is_chain = false;
      if (count == 0) first = i;
      if (count > 1) level.is_chain = false;
      for (CUgraphNode other : waits) {
        const auto place = level.places.find(other);
        if (place == level.places.end()) return false;
        level.before[i].push_back(place->second);
        if (next[place->second] != kUnseen) level.is_chain = false;
        next[place->second] = static_cast<std::uint32_t>(i);
      }
    }
    level.order.reserve(nodes.size());
    if (level.is_chain) {
      for (std::size_t at = first; at < nodes.size(); at = next[at])
        level.order.push_back(static_cast<std::uint32_t>(at));
    } else {
      for (std::size_t i = 0; i < nodes.size(); ++i) level.order.push_back(static_cast<std::uint32_t>(i));
    }
    return level.order.size() == nodes.size();
  }

  /// Marks the nodes that `tail` depends on and that are not attributed yet as made by `call`.
  static void mark(Level& level, const std::vector<CUgraphNode>& tail, std::uint32_t call) {
    std::vector<std::uint32_t> open;
    const auto visit = [&](std::uint32_t place) {
      if (std::exchange(level.made_by[place],
                        level.made_by[place] == kNobody ? call : level.made_by[place]) == kNobody)
        open.push_back(place);
    };
    for (CUgraphNode node : tail)
      if (const auto place = level.places.find(node); place != level.places.end()) visit(place->second);
    while (!open.empty()) {
      const std::uint32_t place = open.back();
      open.pop_back();
      for (const std::uint32_t other : level.before[place]) visit(other);
    }
  }

  /// False if the driver's list has another order than that in which nodes were made.
  static bool mark(Level& level, const std::vector<Captured>& calls) {
    std::uint32_t number = 0;
    std::uint32_t last = 0;
    bool ascending = true;
    for (const Captured& call : calls) {
      mark(level, call.before, kUnseen);  // no hook has seen the calls that made these
      mark(level, call.after, ++number);
      for (CUgraphNode node : call.after) {
        const auto place = level.places.find(node);
        if (place == level.places.end() || level.made_by[place->second] != number) continue;
        ascending = ascending && place->second >= last;
        last = std::max(last, place->second);
      }
    }
    return ascending;
  }

  /// `calls` is null in a child graph, which has been copied as a whole.
  bool add(const std::vector<CUgraphNode>& nodes, const Level& level, const std::vector<Captured>* calls,
           CapturedGraph& found) {
    found.is_chain = found.is_chain && level.is_chain;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> kernels(nodes.size());  // of each node: from … to
    for (const std::uint32_t place : level.order) {
      const Captured* call = nullptr;
      const std::uint32_t made_by = level.made_by[place];
      if (calls != nullptr && made_by != kNobody && made_by != kUnseen) call = &(*calls)[made_by - 1];
      const auto first = static_cast<std::uint32_t>(found.kernels.size());
      if (!add(nodes[place], call, found)) return false;
      kernels[place] = {first, static_cast<std::uint32_t>(found.kernels.size())};
    }
    for (std::size_t i = 0; i < nodes.size() && !level.is_chain; ++i)
      for (const std::uint32_t other : level.before[i])
        if (kernels[other].first != kernels[other].second && kernels[i].first != kernels[i].second)
          found.waits.emplace_back(kernels[other].first, kernels[i].first);
    return true;
  }

  bool add(CUgraphNode node, const Captured* call, CapturedGraph& found) {
    CUgraphNodeType type{};
    CUgraph child = nullptr;
    {
      const UnrecordedScope unrecorded;
      if (driver.type(node, &type) != CUDA_SUCCESS) return false;
      if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return false;  // what it contains runs any number of times
      if (type == CU_GRAPH_NODE_TYPE_GRAPH && driver.child(node, &child) != CUDA_SUCCESS) return false;
    }
    const std::size_t first = found.kernels.size();
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      std::optional<CapturedKernel> kernel = kernel_of(node);
      if (!kernel) return false;
      found.kernels.push_back(*kernel);
    }
    if (child != nullptr) {
      found.as_made = false;  // a copy, made when its place in this graph was
      std::vector<CUgraphNode> nodes;
      Level level;
      if (!list(child, nodes) || !link(nodes, level) || !add(nodes, level, nullptr, found)) return false;
    }
    if (call == nullptr) return true;
    if (child != nullptr && call->launched != nullptr) take_places(*call->launched, first, found);
    for (std::size_t i = first; i < found.kernels.size(); ++i)
      found.kernels[i].place = core_.places.replayed(found.kernels[i].place, call->place);
    return true;
  }

  /// The launched graph has been copied: takes over its places.
  static void take_places(const CapturedGraph& graph, std::size_t first, CapturedGraph& found) {
    const auto same = [](CapturedKernel one, const CapturedKernel& other) {
      one.place = other.place;
      return one == other;
    };
    if (found.kernels.size() - first != graph.kernels.size() ||
        !std::equal(graph.kernels.begin(), graph.kernels.end(),
                    found.kernels.begin() + static_cast<std::ptrdiff_t>(first), same))
      return;
    for (std::size_t i = 0; i < graph.kernels.size(); ++i)
      found.kernels[first + i].place = graph.kernels[i].place;
  }

  std::optional<CapturedKernel> kernel_of(CUgraphNode node) {
    const UnrecordedScope unrecorded;
    CUDA_KERNEL_NODE_PARAMS parameters{};
    const char* name = nullptr;
    if (driver.kernel(node, &parameters) != CUDA_SUCCESS) return std::nullopt;
    const CUresult named = parameters.func != nullptr ? driver.function_name(&name, parameters.func)
                                                      : driver.kernel_name(&name, parameters.kern);
    if (named != CUDA_SUCCESS || name == nullptr) return std::nullopt;
    CapturedKernel kernel;
    kernel.name = core_.mangled.intern(name);
    kernel.grid = {parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ};
    kernel.block = {parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ};
    return kernel;
  }

  Core& core_;
  std::size_t read_ = 0;
};

/// Runs `action` in a program thread with our own resources; not without memory, or in a signal handler that
/// interrupts another one.
template <typename Action>
void with_graphs(Action action) noexcept {
  if (!can_ask() || ThreadRegistry::this_thread_is_ignored()) return;
  const CallerState caller;
  Core* core = Core::get_if_any();
  if (core == nullptr) return;
  try {
    action(*core);
  } catch (...) {
    Log::error_without_allocation("kernels of a CUDA graph have no place in the program: out of memory");
  }
}

}  // namespace

void find_graph_functions() noexcept {
  if (driver_known.load(std::memory_order_relaxed)) return;
  GraphDriver found;
  const auto find = [](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(next_symbol(name));
    return function != nullptr;
  };
  const bool all =
      find(found.capture_info, "cuStreamGetCaptureInfo_v3") && find(found.nodes, "cuGraphGetNodes") &&
      find(found.dependencies, "cuGraphNodeGetDependencies_v2") && find(found.type, "cuGraphNodeGetType") &&
      find(found.kernel, "cuGraphKernelNodeGetParams_v2") &&
      find(found.child, "cuGraphChildGraphNodeGetGraph") && find(found.function_name, "cuFuncGetName") &&
      find(found.kernel_name, "cuKernelGetName");
  if (!all) return;
  driver = found;
  driver_known.store(true, std::memory_order_release);
}

void capture_began(CUstream stream) noexcept {
  with_graphs([&](Core&) {
    const CaptureTail tail = tail_of(stream);
    if (tail.graph == nullptr || !captures_mutex.try_lock_within(kLongestWait)) return;
    const MutexLock lock(captures_mutex, std::adopt_lock);
    take_capture(stream);
    forget_old_captures();
    std::vector<Capture>& running = captures();
    if (running.size() == kMaxCaptures) return;
    Capture capture;
    capture.stream = stream;
    capture.graph = tail.graph;
    capture.thread = capturing_thread();
    capture.begin = now();
    running.push_back(std::move(capture));
    if (running.size() == 1) set_running(true);
  });
}

void capture_ended(CUstream stream, bool successfully, CUgraph graph) noexcept {
  with_graphs([&](Core& core) {
    std::optional<Capture> capture;
    {
      if (!captures_mutex.try_lock_within(kLongestWait)) return;
      const MutexLock lock(captures_mutex, std::adopt_lock);
      capture = take_capture(stream);
      capture_period.fetch_add(1, std::memory_order_relaxed);
    }
    if (!capture || !successfully) return;
    if (graph == nullptr) graph = capture->graph;
    core.captured_graphs.set(graph, GraphReader(core).read(graph, capture->calls));
  });
}

void graph_copied(CUgraph graph, CUgraph original) noexcept {
  with_graphs([&](Core& core) { core.captured_graphs.copy(graph, original); });
}

void graph_instantiated(CUgraphExec executable, CUgraph graph) noexcept {
  with_graphs([&](Core& core) {
    std::size_t count = 0;
    {
      const UnrecordedScope unrecorded;
      if (driver.nodes(graph, nullptr, &count) != CUDA_SUCCESS) count = 0;
    }
    core.captured_graphs.set_executable(executable, graph, count);
  });
}

void graph_destroyed(CUgraph graph) noexcept {
  with_graphs([&](Core& core) { core.captured_graphs.forget(graph); });
}

void executable_destroyed(CUgraphExec executable) noexcept {
  with_graphs([&](Core& core) { core.captured_graphs.forget_executable(executable); });
}

void stream_destroyed(CUstream stream) noexcept {
  without_captures([stream]() INJECT_REQUIRES(captures_mutex) { take_capture(stream); });
}

void streams_destroyed() noexcept {
  without_captures([]() INJECT_REQUIRES(captures_mutex) {
    if (captures().empty()) return;
    captures().clear();
    set_running(false);
  });
}

CapturableCall::CapturableCall(std::optional<CUstream> stream, CUgraphExec launched) noexcept
    : stream_(stream.value_or(nullptr)), launched_(launched) {
  if (!can_ask() || ThreadRegistry::this_thread_is_ignored()) return;
  const CallerState caller;
  period_ = capture_period.load(std::memory_order_relaxed);
  if (stream) {
    before_ = tail_of(stream_);
    return;
  }
  // The stream is a library's own setting. Under the lock, so that it is not destroyed in between.
  if (!captures_mutex.try_lock_within(kLongestWait)) return;
  const MutexLock lock(captures_mutex, std::adopt_lock);
  guessed_ = true;
  period_ = capture_period.load(std::memory_order_relaxed);
  stream_ = guessed_stream(period_);
  before_ = tail_of(stream_);
}

CaptureTail CapturableCall::tail_after() const {
  if (!guessed_) return tail_of(stream_);
  if (!captures_mutex.try_lock_within(kLongestWait)) return {};
  const MutexLock lock(captures_mutex, std::adopt_lock);
  return period_ == capture_period.load(std::memory_order_relaxed) ? tail_of(stream_) : CaptureTail{};
}

void CapturableCall::made() noexcept {
  if (before_.graph == nullptr) return;
  with_graphs([&](Core& core) {
    const CaptureTail after = tail_after();
    if (after.graph != before_.graph) return;
    ThreadState* thread = ThreadRegistry::current();
    if (thread == nullptr) return;
    thread->capture_period = period_;
    thread->capture_stream = stream_;
    if (same_nodes(before_, after)) return;
    Captured call{nodes_of(before_), nodes_of(after), launch_place(*thread) & ~kIncompletePlace, nullptr};
    if (launched_ != nullptr)
      call.launched = core.captured_graphs.find(core.captured_graphs.number(launched_));
    if (!captures_mutex.try_lock_within(kLongestWait)) return;
    const MutexLock lock(captures_mutex, std::adopt_lock);
    forget_old_captures();
    for (Capture& capture : captures()) {
      if (capture.graph != after.graph) continue;
      if (capture.calls.size() < kMaxCalls) {
        capture.calls.push_back(std::move(call));
      } else {
        core.captured_graphs.note_lost(1);
      }
      break;
    }
  });
}

}  // namespace inject
