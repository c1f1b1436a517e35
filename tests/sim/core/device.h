// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Devices, contexts, streams, events, memory, kernels, graphs, and how work gets onto a stream.
#pragma once

#include <cuda.h>
#include <cupti.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "tests/sim/core/base.h"
#include "tests/sim/core/timeline.h"

namespace inject::sim {

struct Context;
struct Stream;
struct Graph;

/// A kernel by name; stands behind CUfunction, CUkernel and cudaKernel_t.
struct Kernel {
  const char* name = nullptr;  ///< as in the binary: mangled
  /// Duration and faults of a launch under the present settings.
  KernelBehaviour behaviour();

 private:
  std::mutex mutex_;
  std::uint32_t generation_ = 0;
  KernelBehaviour cached_;
};
Kernel& kernel_by_name(std::string_view name);

struct Extent3 {
  std::int32_t x = 1, y = 1, z = 1;
};

struct KernelWork {
  Kernel* kernel = nullptr;
  Extent3 grid, block;
  unsigned shared_bytes = 0;
};

struct CopyWork {
  void* target = nullptr;
  const void* source = nullptr;
  std::size_t width = 0, height = 1, depth = 1;  ///< bytes a row, rows, slices
  std::size_t target_pitch = 0, source_pitch = 0, target_slice = 0, source_slice = 0;
  bool async = true;
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(width) * height * depth; }
};

struct SetWork {
  void* target = nullptr;
  std::uint32_t value = 0;
  unsigned element = 1;               ///< bytes: 1, 2 or 4
  std::size_t width = 0, height = 1;  ///< elements a row, rows
  std::size_t pitch = 0;
  bool async = true;
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(width) * height * element; }
};

struct HostWork {
  void (*function)(void*) = nullptr;
  void* data = nullptr;
};

struct Node {
  std::uint64_t id = 0;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Graph* graph = nullptr;
  std::vector<Node*> after;
  KernelWork kernel;
  CopyWork copy;
  SetWork set;
  HostWork host;
  Graph* child = nullptr;
  bool enabled = true;
  CUgraphNode handle() { return reinterpret_cast<CUgraphNode>(this); }
};

struct Graph {
  std::uint32_t id = 0;
  std::vector<std::unique_ptr<Node>> nodes;
  CUgraph handle() { return reinterpret_cast<CUgraph>(this); }
};

struct GraphExec {
  std::uint32_t id = 0;
  Graph* graph = nullptr;  ///< a clone of its own
  Context* context = nullptr;
  bool traced = false;  ///< has been launched while CUPTI recorded kernels
};

struct Capture {
  std::uint64_t id = 0;
  Graph* graph = nullptr;
  Stream* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool invalidated = false;
};

struct Stream {
  Context* context = nullptr;
  std::uint32_t id = 0;
  unsigned flags = CU_STREAM_DEFAULT;
  int priority = 0;
  bool legacy = false;
  OpRef tail;
  std::shared_ptr<Capture> capture;
  std::vector<Node*> capture_tail;
  CUstream handle() { return legacy ? nullptr : reinterpret_cast<CUstream>(this); }
};

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  bool recorded = false;
  OpRef op;
  std::shared_ptr<Capture> capture;
  std::vector<Node*> capture_nodes;
};

struct Context {
  int device = 0;
  std::uint32_t uid = 0;
  bool primary = false;
  bool alive = true;
  Stream* legacy_stream = nullptr;
  std::set<Stream*> streams;  ///< all, the legacy one included
  CUcontext handle() { return reinterpret_cast<CUcontext>(this); }
};

enum class MemoryType { kPageable, kPinned, kDevice, kManaged, kArray };

struct Allocation {
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  MemoryType type = MemoryType::kDevice;
  Context* context = nullptr;
  int device = 0;
  bool registered = false;  ///< the program's own memory, pinned by it
};

/// One lock for the lists below: held for microseconds, never while a client's callback runs.
std::mutex& world();

Context* current_context();
void set_current_context(Context* context);
CUcontext current_context_handle();
std::uint32_t current_context_uid();
std::vector<Context*>& context_stack();  ///< of this thread, the innermost last

Context* create_context(int device, bool primary);
void destroy_context(Context* context);
bool is_context(CUcontext handle);
/// The device's primary context, created if need be.
Context* primary_context(int device);
Context* existing_primary_context(int device);
bool primary_context_active(int device);

/// Null for a handle that names no stream of a living context.
Stream* find_stream(CUstream handle, bool per_thread_default);
Stream* create_stream(Context* context, unsigned flags, int priority);
void destroy_stream(Stream* stream);
std::uint32_t per_thread_stream_id(Context* context);

Event* create_event(Context* context, unsigned flags);
Event* find_event(CUevent handle);
void destroy_event(Event* event);

/// Host memory stands in for the device's. Null if the device is full.
void* allocate(std::size_t bytes, MemoryType type, Context* context);
bool release(void* pointer, MemoryType type);
bool find_allocation(const void* pointer, Allocation& found);
bool register_host(void* pointer, std::size_t bytes, Context* context);
bool unregister_host(void* pointer);
std::size_t used_bytes(int device);
/// Taken from each device that has a context, for good.
void lose_bytes(std::size_t bytes);
inline constexpr std::size_t kDeviceMemory = std::size_t{80} << 30;

/// Puts work on a stream, or into the graph that the stream is captured into.
CUresult enqueue(Stream* stream, const KernelWork& work);
CUresult enqueue(Stream* stream, const CopyWork& work, OpRef* submitted = nullptr);
CUresult enqueue(Stream* stream, const SetWork& work, OpRef* submitted = nullptr);
CUresult enqueue(Stream* stream, const HostWork& work);
CUresult enqueue(Stream* stream, GraphExec& graph);
/// What the next work on the stream would wait for.
OpRef stream_tail(Stream* stream);
OpRef context_tail(Context* context);
CUresult record_event(Event* event, Stream* stream);
CUresult wait_event(Stream* stream, Event* event);

/// Calls that a capture forbids fail while one is open that forbids them to this thread.
bool capture_forbids_unsafe_call();

CUresult begin_capture(Stream* stream, CUstreamCaptureMode mode);
CUresult end_capture(Stream* stream, Graph** graph);

Graph* create_graph();
void destroy_graph(Graph* graph);
/// `executable`: to instantiate it.
Graph* clone_graph(const Graph& graph, std::map<const Node*, Node*>& copies, bool executable = false);
Node* add_node(Graph* graph, CUgraphNodeType type, std::vector<Node*> after);
void announce_node(Node* node);
std::uint32_t next_graph_id();
void forget_graph(GraphExec& graph);

/// Seen on hardware: where graphs were traced, cuptiFinalize leaves them broken, and the next attachment or
/// the next update of a graph fails with CUDA_ERROR_LAUNCH_FAILED, as does everything after it.
void break_traced_graphs();
void touch_broken_graphs();
/// The error that a context is left with; CUDA_SUCCESS if none.
CUresult sticky_error();

}  // namespace inject::sim
