// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "tests/sim/core/counters.h"
#include "tests/sim/core/report.h"
#include "tests/sim/core/trace.h"

namespace inject::sim {
namespace {

// Leaked: see base.cpp.
struct State {
  std::mutex mutex;
  std::set<Context*> contexts;
  std::map<int, Context*> primaries;
  std::set<Event*> events;
  std::map<std::uintptr_t, Allocation> memory;
  std::map<int, std::size_t> used;
  std::map<std::string, Kernel*, std::less<>> kernels;
  std::set<std::shared_ptr<Capture>> captures;
  std::uint32_t next_context = 1;
  std::uint32_t next_stream = 13;  // as CUPTI numbers them: 7 is the default stream of a context
  std::uint64_t next_node = 1;
  std::uint32_t next_graph = 1;
  std::uint64_t next_capture = 1;
  std::size_t traced_graphs = 0;
  bool graphs_broken = false;
  std::atomic<CUresult> sticky_error{CUDA_SUCCESS};
};

State& state() {
  static State& instance = *new State;
  return instance;
}

// Leaked: exit handlers and static destructors call into CUDA after the main thread's thread-local objects
// are gone.
std::vector<Context*>& contexts_of_thread() {
  thread_local std::vector<Context*>& contexts = *new std::vector<Context*>;
  return contexts;
}
// Streams of the per-thread default stream (handle 2), by context.
std::map<Context*, Stream*>& default_streams_of_thread() {
  thread_local std::map<Context*, Stream*>& streams = *new std::map<Context*, Stream*>;
  return streams;
}

constexpr std::uint32_t kLegacyStreamId = 7;

bool blocking(const Stream& stream) {
  return (stream.flags & CU_STREAM_NON_BLOCKING) == 0;
}

void add_if_unfinished(std::vector<OpRef>& list, const OpRef& op, Nanoseconds now) {
  if (op != nullptr && !op->ended_by(now)) list.push_back(op);
}

// Legacy default-stream semantics: it waits for every blocking stream of its context, and they for it.
std::vector<OpRef> dependencies(const Stream& stream, Nanoseconds now) {
  std::vector<OpRef> list;
  if (stream.legacy) {
    for (const Stream* other : stream.context->streams)
      if (blocking(*other)) add_if_unfinished(list, other->tail, now);
  } else {
    add_if_unfinished(list, stream.tail, now);
    if (blocking(stream)) add_if_unfinished(list, stream.context->legacy_stream->tail, now);
  }
  return list;
}

// What a record says about the graph that the work is part of.
struct GraphPlace {
  std::uint32_t graph = 0;
  std::uint64_t node = 0;
};

struct Placement {
  Stream* stream = nullptr;
  std::vector<OpRef> after;
  GraphPlace graph;
};

CUpti_ActivityMemoryKind memory_kind(MemoryType type) {
  switch (type) {
    case MemoryType::kPageable:
      return CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
    case MemoryType::kPinned:
      return CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
    case MemoryType::kDevice:
      return CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    case MemoryType::kManaged:
      return CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
    case MemoryType::kArray:
      return CUPTI_ACTIVITY_MEMORY_KIND_ARRAY;
  }
  return CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN;
}

struct Place {
  MemoryType type = MemoryType::kPageable;
  int device = -1;
  Context* context = nullptr;
  bool on_device() const { return type == MemoryType::kDevice || type == MemoryType::kManaged; }
};

Place place_of(const void* pointer) {
  Allocation found;
  if (!find_allocation(pointer, found)) return {};
  return {found.type, found.device, found.context};
}

void report_work(const char* kind, const char* name, const Stream& stream, Nanoseconds host,
                 std::uint64_t bytes, const OpRef& op) {
  if (!report::enabled()) return;
  report::add({kind, name, stream.context->device, stream.context->uid, stream.id,
               trace::current_correlation(), host, bytes, op});
}

OpRef submit_kernel(const KernelWork& work, Placement place, Nanoseconds host) {
  KernelBehaviour behaviour = work.kernel->behaviour();
  auto op = std::make_shared<Op>();
  op->earliest = host + settings().launch_latency;
  op->duration = behaviour.duration;
  op->hangs = behaviour.hangs;
  op->waits_for = behaviour.waits_for;
  op->sets = std::move(behaviour.sets);
  op->after = std::move(place.after);
  OpRef submitted = timeline::submit(std::move(op));
  counters::note_kernel(place.stream->context->device, work.kernel->name, submitted);
  return submitted;
}

// A graph's node has run again: records of it that wait for that get its end. One more may be among them.
void overwrite_ends(const trace::ActivityRef& activity, std::uint64_t node, const OpRef& op) {
  static std::mutex mutex;
  static auto& waiting = *new std::map<std::uint64_t, trace::ActivityRef>;
  const std::lock_guard lock(mutex);
  if (const auto found = waiting.find(node); found != waiting.end()) {
    trace::overwrite_end(found->second, op);
    waiting.erase(found);
  }
  if (activity == nullptr || !Faults::take(faults().overwritten_end)) return;
  activity->overwritten = true;
  waiting.emplace(node, activity);
}

void commit_kernel(const trace::ActivityRef& activity, const KernelWork& work, const Stream& stream,
                   GraphPlace graph, const OpRef& op) {
  if (graph.node != 0) overwrite_ends(activity, graph.node, op);
  if (activity == nullptr) return;
  CUpti_ActivityKernel10 record{};
  record.kind = activity->kind;
  record.registersPerThread = 32;
  record.deviceId = static_cast<std::uint32_t>(stream.context->device);
  record.contextId = stream.context->uid;
  record.streamId = stream.id;
  record.gridX = work.grid.x;
  record.gridY = work.grid.y;
  record.gridZ = work.grid.z;
  record.blockX = work.block.x;
  record.blockY = work.block.y;
  record.blockZ = work.block.z;
  record.dynamicSharedMemory = static_cast<std::int32_t>(work.shared_bytes);
  record.correlationId = trace::current_correlation();
  record.gridId = static_cast<std::int64_t>(record.correlationId);
  record.name = work.kernel->name;
  record.launchType = CUPTI_ACTIVITY_LAUNCH_TYPE_REGULAR;
  record.graphNodeId = graph.node;
  record.graphId = graph.graph;
  record.clusterX = record.clusterY = record.clusterZ = 0;
  trace::commit(activity, record, op);
}

trace::ActivityRef reserve_kernel() {
  if (trace::ActivityRef activity = trace::reserve(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) return activity;
  return trace::reserve(CUPTI_ACTIVITY_KIND_KERNEL);
}

// A copy as a record describes it.
struct CopyClass {
  CUpti_ActivityMemcpyKind kind = CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN;
  Rate rate = Rate::kDeviceToDevice;
  Place source, target;
  bool peer = false;
};

CopyClass classify(const CopyWork& work) {
  CopyClass copy;
  copy.source = place_of(work.source);
  copy.target = place_of(work.target);
  bool from_device = copy.source.on_device();
  bool to_device = copy.target.on_device();
  if (from_device && to_device) {
    copy.peer = copy.source.device != copy.target.device;
    copy.kind = copy.peer ? CUPTI_ACTIVITY_MEMCPY_KIND_PTOP : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    copy.rate = copy.peer ? Rate::kPeer : Rate::kDeviceToDevice;
  } else if (from_device) {
    copy.kind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
    copy.rate = Rate::kDeviceToHost;
  } else if (to_device) {
    copy.kind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    copy.rate = Rate::kHostToDevice;
  } else {
    copy.kind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
    copy.rate = Rate::kDeviceToDevice;
  }
  return copy;
}

void move_bytes(const CopyWork& work) {
  if (work.height == 1 && work.depth == 1) {
    std::memmove(work.target, work.source, work.width);
    return;
  }
  auto* target = static_cast<std::byte*>(work.target);
  const auto* source = static_cast<const std::byte*>(work.source);
  for (std::size_t z = 0; z < work.depth; ++z)
    for (std::size_t y = 0; y < work.height; ++y)
      std::memmove(target + z * work.target_slice + y * work.target_pitch,
                   source + z * work.source_slice + y * work.source_pitch, work.width);
}

void set_bytes(const SetWork& work) {
  auto* target = static_cast<std::byte*>(work.target);
  for (std::size_t y = 0; y < work.height; ++y) {
    std::byte* row = target + y * work.pitch;
    if (work.element == 1) {
      std::memset(row, static_cast<int>(work.value), work.width);
      continue;
    }
    for (std::size_t x = 0; x < work.width; ++x)
      std::memcpy(row + x * work.element, &work.value, work.element);
  }
}

trace::ActivityRef reserve_copy(const CopyClass& copy) {
  return trace::reserve(copy.peer ? CUPTI_ACTIVITY_KIND_MEMCPY2 : CUPTI_ACTIVITY_KIND_MEMCPY);
}

void commit_copy(const trace::ActivityRef& activity, const CopyWork& work, const CopyClass& copy,
                 const Stream& stream, GraphPlace graph, const OpRef& op) {
  if (activity == nullptr) return;
  auto fill = [&](auto& record) {
    record.kind = activity->kind;
    record.copyKind = static_cast<std::uint8_t>(copy.kind);
    record.srcKind = static_cast<std::uint8_t>(memory_kind(copy.source.type));
    record.dstKind = static_cast<std::uint8_t>(memory_kind(copy.target.type));
    record.flags = work.async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : CUPTI_ACTIVITY_FLAG_NONE;
    record.bytes = work.bytes();
    record.deviceId = static_cast<std::uint32_t>(stream.context->device);
    record.contextId = stream.context->uid;
    record.streamId = stream.id;
    record.correlationId = trace::current_correlation();
    record.graphNodeId = graph.node;
    record.graphId = graph.graph;
  };
  if (copy.peer) {
    CUpti_ActivityMemcpyPtoP4 record{};
    fill(record);
    record.srcDeviceId = static_cast<std::uint32_t>(copy.source.device);
    record.srcContextId = copy.source.context->uid;
    record.dstDeviceId = static_cast<std::uint32_t>(copy.target.device);
    record.dstContextId = copy.target.context->uid;
    trace::commit(activity, record, op);
    return;
  }
  CUpti_ActivityMemcpy6 record{};
  fill(record);
  record.copyCount = 1;
  trace::commit(activity, record, op);
}

void commit_set(const trace::ActivityRef& activity, const SetWork& work, const Stream& stream,
                GraphPlace graph, const OpRef& op) {
  if (activity == nullptr) return;
  CUpti_ActivityMemset4 record{};
  record.kind = activity->kind;
  record.value = work.value;
  record.bytes = work.bytes();
  record.deviceId = static_cast<std::uint32_t>(stream.context->device);
  record.contextId = stream.context->uid;
  record.streamId = stream.id;
  record.correlationId = trace::current_correlation();
  record.flags = work.async ? CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC : CUPTI_ACTIVITY_FLAG_NONE;
  record.memoryKind = static_cast<std::uint16_t>(memory_kind(place_of(work.target).type));
  record.graphNodeId = graph.node;
  record.graphId = graph.graph;
  trace::commit(activity, record, op);
}

const char* copy_name(const CopyClass& copy) {
  switch (copy.kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "PtoP";
    default:
      return "HtoH";
  }
}

// Work on a stream: its dependencies are looked up and its end becomes the stream's under one lock, so that
// the order of submission is the order on the stream. Dependencies as of the call, `host`: the thread may
// come to here much later, and the work begins when it would have begun.
template <class Submit>
OpRef on_stream(Stream* stream, Nanoseconds host, Submit&& submit) {
  std::lock_guard lock(world());
  Placement place{stream, dependencies(*stream, host), {}};
  OpRef op = submit(std::move(place));
  stream->tail = op;
  return op;
}

// Adds a node for work on a captured stream; null if the stream is not captured.
Node* capture_node(Stream* stream, CUgraphNodeType type) {
  std::lock_guard lock(world());
  if (stream->capture == nullptr) return nullptr;
  Node* node = add_node(stream->capture->graph, type, stream->capture_tail);
  stream->capture_tail = {node};
  return node;
}

bool is_captured(Stream* stream) {
  std::lock_guard lock(world());
  return stream->capture != nullptr;
}

}  // namespace

KernelBehaviour Kernel::behaviour() {
  std::lock_guard lock(mutex_);
  std::uint32_t now = settings_generation();
  if (generation_ != now) {
    cached_ = kernel_behaviour(name);
    generation_ = now;
  }
  return cached_;
}

Kernel& kernel_by_name(std::string_view name) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto found = shared.kernels.find(name);
  if (found == shared.kernels.end()) {
    found = shared.kernels.emplace(std::string(name), new Kernel).first;
    found->second->name = intern(name);
  }
  return *found->second;
}

std::mutex& world() {
  return state().mutex;
}

std::vector<Context*>& context_stack() {
  return contexts_of_thread();
}

Context* current_context() {
  return contexts_of_thread().empty() ? nullptr : contexts_of_thread().back();
}

void set_current_context(Context* context) {
  if (contexts_of_thread().empty()) {
    if (context != nullptr) contexts_of_thread().push_back(context);
    return;
  }
  if (context == nullptr)
    contexts_of_thread().pop_back();
  else
    contexts_of_thread().back() = context;
}

CUcontext current_context_handle() {
  Context* context = current_context();
  return context != nullptr ? context->handle() : nullptr;
}

std::uint32_t current_context_uid() {
  Context* context = current_context();
  return context != nullptr ? context->uid : 0;
}

Context* create_context(int device, bool primary) {
  State& shared = state();
  auto* context = new Context;  // never freed: handles of destroyed contexts stay recognisable
  {
    std::lock_guard lock(shared.mutex);
    context->device = device;
    context->primary = primary;
    context->uid = shared.next_context++;
    auto* stream = new Stream;
    stream->context = context;
    stream->id = kLegacyStreamId;
    stream->legacy = true;
    context->legacy_stream = stream;
    context->streams.insert(stream);
    shared.contexts.insert(context);
    if (primary) shared.primaries[device] = context;
  }
  trace::fire_resource(CUPTI_CBID_RESOURCE_CONTEXT_CREATED, context->handle(), nullptr, nullptr);
  trace::fire_resource(CUPTI_CBID_RESOURCE_STREAM_CREATED, context->handle(), nullptr, nullptr);
  return context;
}

void destroy_context(Context* context) {
  trace::fire_resource(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, context->handle(), nullptr, nullptr);
  timeline::wait(context_tail(context));
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  context->alive = false;
  shared.contexts.erase(context);
  if (context->primary) shared.primaries.erase(context->device);
  // Its memory goes with it; what the program allocated itself does not.
  std::erase_if(shared.memory, [&](const auto& entry) {
    const Allocation& allocation = entry.second;
    if (allocation.context != context || allocation.registered) return false;
    if (allocation.type == MemoryType::kDevice || allocation.type == MemoryType::kArray)
      shared.used[allocation.device] -= allocation.bytes;
    munmap(reinterpret_cast<void*>(allocation.base), allocation.bytes);
    return true;
  });
}

bool is_context(CUcontext handle) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  return shared.contexts.count(reinterpret_cast<Context*>(handle)) != 0;
}

Context* existing_primary_context(int device) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto found = shared.primaries.find(device);
  return found != shared.primaries.end() ? found->second : nullptr;
}

Context* primary_context(int device) {
  static std::mutex& creating = *new std::mutex;
  std::lock_guard one_creator(creating);
  Context* context = existing_primary_context(device);
  return context != nullptr ? context : create_context(device, true);
}

Stream* find_stream(CUstream handle, bool per_thread_default) {
  Context* context = current_context();
  if (context == nullptr) return nullptr;
  if (handle == CU_STREAM_LEGACY || (handle == nullptr && !per_thread_default)) return context->legacy_stream;
  if (handle == CU_STREAM_PER_THREAD || handle == nullptr) {
    Stream*& stream = default_streams_of_thread()[context];
    if (stream == nullptr) stream = create_stream(context, CU_STREAM_DEFAULT, 0);
    return stream;
  }
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto* stream = reinterpret_cast<Stream*>(handle);
  for (Context* candidate : shared.contexts)
    if (candidate->streams.count(stream) != 0) return stream;
  return nullptr;
}

std::uint32_t per_thread_stream_id(Context* context) {
  auto found = default_streams_of_thread().find(context);
  return found != default_streams_of_thread().end() ? found->second->id : 0;
}

Stream* create_stream(Context* context, unsigned flags, int priority) {
  State& shared = state();
  auto* stream = new Stream;
  {
    std::lock_guard lock(shared.mutex);
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = shared.next_stream++;
    context->streams.insert(stream);
  }
  trace::fire_resource(CUPTI_CBID_RESOURCE_STREAM_CREATED, context->handle(), stream->handle(), nullptr);
  return stream;
}

void destroy_stream(Stream* stream) {
  trace::fire_resource(CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING, stream->context->handle(),
                       stream->handle(), nullptr);
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  // Work already on the stream goes on; the object is kept, as records and captures may still point at it.
  stream->context->streams.erase(stream);
}

Event* create_event(Context* context, unsigned flags) {
  State& shared = state();
  auto* event = new Event;
  event->context = context;
  event->flags = flags;
  std::lock_guard lock(shared.mutex);
  shared.events.insert(event);
  return event;
}

Event* find_event(CUevent handle) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto* event = reinterpret_cast<Event*>(handle);
  return shared.events.count(event) != 0 ? event : nullptr;
}

void destroy_event(Event* event) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.events.erase(event);
  delete event;
}

void* allocate(std::size_t bytes, MemoryType type, Context* context) {
  State& shared = state();
  std::size_t size = std::max<std::size_t>(bytes, 1);
  bool on_device = type == MemoryType::kDevice || type == MemoryType::kArray;
  std::lock_guard lock(shared.mutex);
  if (on_device && shared.used[context->device] + size > kDeviceMemory) return nullptr;
  // Reserved, not touched: a program may allocate more device memory than this host has.
  void* pointer =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pointer == MAP_FAILED) return nullptr;
  auto base = reinterpret_cast<std::uintptr_t>(pointer);
  shared.memory[base] = {base, size, type, context, context->device, false};
  if (on_device) shared.used[context->device] += size;
  return pointer;
}

bool release(void* pointer, MemoryType type) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto found = shared.memory.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == shared.memory.end() || found->second.registered) return false;
  const Allocation& allocation = found->second;
  bool host = allocation.type == MemoryType::kPinned;
  if (host != (type == MemoryType::kPinned)) return false;
  if (allocation.type == MemoryType::kDevice || allocation.type == MemoryType::kArray)
    shared.used[allocation.device] -= allocation.bytes;
  munmap(pointer, allocation.bytes);
  shared.memory.erase(found);
  return true;
}

bool find_allocation(const void* pointer, Allocation& found) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto next = shared.memory.upper_bound(address);
  if (next == shared.memory.begin()) return false;
  const Allocation& candidate = std::prev(next)->second;
  if (address - candidate.base >= candidate.bytes) return false;
  found = candidate;
  return true;
}

bool register_host(void* pointer, std::size_t bytes, Context* context) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto base = reinterpret_cast<std::uintptr_t>(pointer);
  return shared.memory
      .emplace(base, Allocation{base, bytes, MemoryType::kPinned, context, context->device, true})
      .second;
}

bool unregister_host(void* pointer) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto found = shared.memory.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == shared.memory.end() || !found->second.registered) return false;
  shared.memory.erase(found);
  return true;
}

std::size_t used_bytes(int device) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  return shared.used[device];
}

void lose_bytes(std::size_t bytes) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  std::set<int> devices;
  for (const Context* context : shared.contexts) devices.insert(context->device);
  for (const int device : devices) shared.used[device] += bytes;
}

CUresult enqueue(Stream* stream, const KernelWork& work) {
  if (is_captured(stream)) {
    Node* node = capture_node(stream, CU_GRAPH_NODE_TYPE_KERNEL);
    node->kernel = work;
    announce_node(node);
    return CUDA_SUCCESS;
  }
  Nanoseconds host = now_ns();
  trace::ActivityRef activity = reserve_kernel();
  OpRef op =
      on_stream(stream, host, [&](Placement place) { return submit_kernel(work, std::move(place), host); });
  commit_kernel(activity, work, *stream, {}, op);
  report_work("kernel", work.kernel->name, *stream, host, 0, op);
  return CUDA_SUCCESS;
}

CUresult enqueue(Stream* stream, const CopyWork& work, OpRef* submitted) {
  if (is_captured(stream)) {
    Node* node = capture_node(stream, CU_GRAPH_NODE_TYPE_MEMCPY);
    node->copy = work;
    announce_node(node);
    return CUDA_SUCCESS;
  }
  if (work.bytes() == 0) return CUDA_SUCCESS;
  Nanoseconds host = now_ns();
  CopyClass copy = classify(work);
  trace::ActivityRef activity = reserve_copy(copy);
  Nanoseconds duration = transfer_duration(copy.rate, work.bytes());
  OpRef op = on_stream(stream, host, [&](Placement place) {
    return timeline::submit(host + settings().launch_latency, duration, std::move(place.after));
  });
  move_bytes(work);
  commit_copy(activity, work, copy, *stream, {}, op);
  report_work(copy.peer ? "memcpy_peer" : "memcpy", copy_name(copy), *stream, host, work.bytes(), op);
  if (submitted != nullptr) *submitted = op;
  return CUDA_SUCCESS;
}

CUresult enqueue(Stream* stream, const SetWork& work, OpRef* submitted) {
  if (is_captured(stream)) {
    Node* node = capture_node(stream, CU_GRAPH_NODE_TYPE_MEMSET);
    node->set = work;
    announce_node(node);
    return CUDA_SUCCESS;
  }
  if (work.bytes() == 0) return CUDA_SUCCESS;
  Nanoseconds host = now_ns();
  trace::ActivityRef activity = trace::reserve(CUPTI_ACTIVITY_KIND_MEMSET);
  Nanoseconds duration = transfer_duration(Rate::kMemset, work.bytes());
  OpRef op = on_stream(stream, host, [&](Placement place) {
    return timeline::submit(host + settings().launch_latency, duration, std::move(place.after));
  });
  set_bytes(work);
  commit_set(activity, work, *stream, {}, op);
  report_work("memset", "memset", *stream, host, work.bytes(), op);
  if (submitted != nullptr) *submitted = op;
  return CUDA_SUCCESS;
}

CUresult enqueue(Stream* stream, const HostWork& work) {
  if (is_captured(stream)) {
    Node* node = capture_node(stream, CU_GRAPH_NODE_TYPE_HOST);
    node->host = work;
    announce_node(node);
    return CUDA_SUCCESS;
  }
  Nanoseconds host = now_ns();
  on_stream(stream, host, [&](Placement place) {
    auto op = std::make_shared<Op>();
    op->earliest = host;
    op->after = std::move(place.after);
    op->host = [work] { work.function(work.data); };
    return timeline::submit(std::move(op));
  });
  return CUDA_SUCCESS;
}

namespace {

// Nodes in an order that respects their dependencies: by insertion unless edges were added afterwards.
std::vector<Node*> in_order(const Graph& graph) {
  std::vector<Node*> order;
  std::set<const Node*> placed;
  while (order.size() < graph.nodes.size()) {
    std::size_t before = order.size();
    for (const auto& node : graph.nodes) {
      if (placed.count(node.get()) != 0) continue;
      bool ready = std::all_of(node->after.begin(), node->after.end(),
                               [&](const Node* previous) { return placed.count(previous) != 0; });
      if (!ready) continue;
      order.push_back(node.get());
      placed.insert(node.get());
    }
    if (order.size() == before) break;  // a cycle, which instantiation refuses
  }
  return order;
}

// Submits the graph's work behind `roots`; returns the ends of its last nodes.
std::vector<OpRef> launch_graph(const Graph& graph, std::uint32_t graph_id, Stream* stream,
                                const std::vector<OpRef>& roots, Nanoseconds host) {
  std::map<const Node*, std::vector<OpRef>> ends;
  std::set<const Node*> inner;
  for (Node* node : in_order(graph)) {
    Placement place{stream, {}, {graph_id, node->id}};
    for (const Node* previous : node->after) {
      inner.insert(previous);
      place.after.insert(place.after.end(), ends[previous].begin(), ends[previous].end());
    }
    if (node->after.empty()) place.after = roots;
    GraphPlace in_graph = place.graph;
    std::vector<OpRef>& node_ends = ends[node];
    switch (node->enabled ? node->type : CU_GRAPH_NODE_TYPE_EMPTY) {
      case CU_GRAPH_NODE_TYPE_KERNEL: {
        trace::ActivityRef activity = reserve_kernel();
        OpRef op = submit_kernel(node->kernel, std::move(place), host);
        commit_kernel(activity, node->kernel, *stream, in_graph, op);
        report_work("kernel", node->kernel.kernel->name, *stream, host, 0, op);
        node_ends = {op};
        break;
      }
      case CU_GRAPH_NODE_TYPE_MEMCPY: {
        CopyClass copy = classify(node->copy);
        trace::ActivityRef activity = reserve_copy(copy);
        OpRef op =
            timeline::submit(host, transfer_duration(copy.rate, node->copy.bytes()), std::move(place.after));
        move_bytes(node->copy);
        commit_copy(activity, node->copy, copy, *stream, in_graph, op);
        report_work(copy.peer ? "memcpy_peer" : "memcpy", copy_name(copy), *stream, host, node->copy.bytes(),
                    op);
        node_ends = {op};
        break;
      }
      case CU_GRAPH_NODE_TYPE_MEMSET: {
        trace::ActivityRef activity = trace::reserve(CUPTI_ACTIVITY_KIND_MEMSET);
        OpRef op = timeline::submit(host, transfer_duration(Rate::kMemset, node->set.bytes()),
                                    std::move(place.after));
        set_bytes(node->set);
        commit_set(activity, node->set, *stream, in_graph, op);
        report_work("memset", "memset", *stream, host, node->set.bytes(), op);
        node_ends = {op};
        break;
      }
      case CU_GRAPH_NODE_TYPE_HOST: {
        auto op = std::make_shared<Op>();
        op->earliest = host;
        op->after = std::move(place.after);
        op->host = [work = node->host] { work.function(work.data); };
        node_ends = {timeline::submit(std::move(op))};
        break;
      }
      case CU_GRAPH_NODE_TYPE_GRAPH:
        node_ends = launch_graph(*node->child, graph_id, stream, place.after, host);
        break;
      default:
        node_ends = std::move(place.after);
        break;
    }
  }
  std::vector<OpRef> last;
  for (const auto& node : graph.nodes)
    if (inner.count(node.get()) == 0)
      last.insert(last.end(), ends[node.get()].begin(), ends[node.get()].end());
  return last;
}

}  // namespace

void forget_graph(GraphExec& graph) {
  std::lock_guard lock(world());
  if (graph.traced) --state().traced_graphs;
}

void break_traced_graphs() {
  std::lock_guard lock(world());
  if (state().traced_graphs > 0) state().graphs_broken = true;
}

void touch_broken_graphs() {
  std::lock_guard lock(world());
  if (state().graphs_broken) state().sticky_error = CUDA_ERROR_LAUNCH_FAILED;
}

CUresult sticky_error() {
  return state().sticky_error.load(std::memory_order_relaxed);
}

CUresult enqueue(Stream* stream, GraphExec& graph) {
  if (is_captured(stream)) {
    Node* node = capture_node(stream, CU_GRAPH_NODE_TYPE_GRAPH);
    std::map<const Node*, Node*> copies;
    node->child = clone_graph(*graph.graph, copies);
    announce_node(node);
    return CUDA_SUCCESS;
  }
  Nanoseconds host = now_ns();
  std::vector<OpRef> roots;
  {
    std::lock_guard lock(world());
    roots = dependencies(*stream, host);
    if (!graph.traced && trace::recording_kernels()) {
      graph.traced = true;
      ++state().traced_graphs;
    }
  }
  std::vector<OpRef> last =
      launch_graph(*graph.graph, graph.id, stream, roots, host + settings().launch_latency);
  if (last.empty()) last = roots;
  OpRef join = timeline::submit(host, 0, std::move(last));
  std::lock_guard lock(world());
  stream->tail = join;
  return CUDA_SUCCESS;
}

OpRef stream_tail(Stream* stream) {
  std::lock_guard lock(world());
  return timeline::submit(0, 0, dependencies(*stream, now_ns()));
}

OpRef context_tail(Context* context) {
  std::lock_guard lock(world());
  std::vector<OpRef> tails;
  Nanoseconds now = now_ns();
  for (const Stream* stream : context->streams) add_if_unfinished(tails, stream->tail, now);
  return timeline::submit(0, 0, std::move(tails));
}

CUresult record_event(Event* event, Stream* stream) {
  std::lock_guard lock(world());
  event->recorded = true;
  if (stream->capture != nullptr) {
    event->capture = stream->capture;
    event->capture_nodes = stream->capture_tail;
    return CUDA_SUCCESS;
  }
  event->capture = nullptr;
  Nanoseconds now = now_ns();
  event->op = timeline::submit(now, 0, dependencies(*stream, now));
  return CUDA_SUCCESS;
}

CUresult wait_event(Stream* stream, Event* event) {
  std::lock_guard lock(world());
  if (!event->recorded) return CUDA_SUCCESS;
  if (event->capture != nullptr) {
    // A captured event draws the waiting stream into the capture.
    if (stream->capture == nullptr) stream->capture = event->capture;
    for (Node* node : event->capture_nodes)
      if (std::find(stream->capture_tail.begin(), stream->capture_tail.end(), node) ==
          stream->capture_tail.end())
        stream->capture_tail.push_back(node);
    return CUDA_SUCCESS;
  }
  if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  Nanoseconds now = now_ns();
  if (event->op->ended_by(now)) return CUDA_SUCCESS;
  std::vector<OpRef> after = dependencies(*stream, now);
  after.push_back(event->op);
  stream->tail = timeline::submit(now, 0, std::move(after));
  return CUDA_SUCCESS;
}

namespace {
thread_local unsigned captures_of_thread = 0;  // thread-local ones begun here
}

bool capture_forbids_unsafe_call() {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (captures_of_thread > 0) return true;
  return std::any_of(shared.captures.begin(), shared.captures.end(),
                     [](const auto& capture) { return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL; });
}

CUresult begin_capture(Stream* stream, CUstreamCaptureMode mode) {
  State& shared = state();
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  {
    std::lock_guard lock(shared.mutex);
    if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  }
  Graph* graph = create_graph();
  std::lock_guard lock(shared.mutex);
  auto capture = std::make_shared<Capture>();
  capture->id = shared.next_capture++;
  capture->graph = graph;
  capture->origin = stream;
  capture->mode = mode;
  stream->capture = capture;
  stream->capture_tail.clear();
  shared.captures.insert(capture);
  if (mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ++captures_of_thread;
  return CUDA_SUCCESS;
}

CUresult end_capture(Stream* stream, Graph** graph) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr || capture->origin != stream) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && captures_of_thread > 0) --captures_of_thread;
  shared.captures.erase(capture);
  for (Context* context : shared.contexts)
    for (Stream* other : context->streams)
      if (other->capture == capture) {
        other->capture = nullptr;
        other->capture_tail.clear();
      }
  *graph = capture->invalidated ? nullptr : capture->graph;
  return capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

std::uint32_t next_graph_id() {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  return shared.next_graph++;
}

Graph* create_graph() {
  auto* graph = new Graph;
  graph->id = next_graph_id();
  CUpti_GraphData data{};
  data.graph = graph->handle();
  trace::fire_resource(CUPTI_CBID_RESOURCE_GRAPH_CREATED, current_context_handle(), nullptr, &data);
  return graph;
}

void destroy_graph(Graph* graph) {
  CUpti_GraphData data{};
  data.graph = graph->handle();
  trace::fire_resource(CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING, current_context_handle(), nullptr, &data);
  delete graph;
}

// The caller holds world().
Node* add_node(Graph* graph, CUgraphNodeType type, std::vector<Node*> after) {
  auto node = std::make_unique<Node>();
  node->id = state().next_node++;
  node->type = type;
  node->graph = graph;
  node->after = std::move(after);
  graph->nodes.push_back(std::move(node));
  return graph->nodes.back().get();
}

void announce_node(Node* node) {
  CUpti_GraphData data{};
  data.graph = node->graph->handle();
  data.node = node->handle();
  data.nodeType = node->type;
  trace::fire_resource(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, current_context_handle(), nullptr, &data);
}

Graph* clone_graph(const Graph& graph, std::map<const Node*, Node*>& copies, bool executable) {
  auto* clone = new Graph;
  clone->id = next_graph_id();
  {
    std::lock_guard lock(world());
    for (const auto& node : graph.nodes) {
      Node* copy = add_node(clone, node->type, {});
      std::uint64_t id = copy->id;
      *copy = *node;
      copy->id = id;
      copy->graph = clone;
      copies[node.get()] = copy;
    }
    for (const auto& node : clone->nodes)
      for (Node*& previous : node->after) previous = copies[previous];
  }
  for (const auto& node : graph.nodes) {
    Node* copy = copies[node.get()];
    if (node->child != nullptr) copy->child = clone_graph(*node->child, copies, executable);
    // The driver makes an executable graph's nodes and copies the others' into them: CUPTI tells of both.
    if (executable) announce_node(copy);
    CUpti_GraphData data{};
    data.graph = clone->handle();
    data.originalGraph = const_cast<Graph&>(graph).handle();
    data.node = copy->handle();
    data.originalNode = node->handle();
    data.nodeType = node->type;
    trace::fire_resource(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, current_context_handle(), nullptr, &data);
  }
  return clone;
}

}  // namespace inject::sim
