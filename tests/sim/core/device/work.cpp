// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/device/work.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "tests/sim/core/counters.h"
#include "tests/sim/core/device/shared.h"
#include "tests/sim/core/power.h"
#include "tests/sim/core/report.h"

namespace inject::sim {
namespace {

using internal::Destination;

void report_work(const char* kind, const char* name, const Stream& stream, Nanoseconds host,
                 std::uint64_t bytes, const OpRef& op) {
  if (!report::enabled()) return;
  report::add({kind, name, stream.context->device, stream.context->uid, stream.id,
               trace::current_correlation(), host, bytes, op});
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

OpRef submit(OpRef op, Destination& to) {
  if (to.graph.node != 0) {
    op->after = std::move(to.after);
    return timeline::submit(std::move(op));
  }
  // The dependencies are looked up and the work's end becomes the stream's under one lock, so that the order
  // of submission is the order on the stream.
  std::lock_guard lock(world());
  op->after = internal::dependencies(*to.stream, to.host);
  to.stream->tail = timeline::submit(std::move(op));
  return to.stream->tail;
}

OpRef submit_transfer(Rate rate, std::uint64_t bytes, Destination& to) {
  auto op = std::make_shared<Op>();
  op->earliest = to.host + to.latency;
  op->duration = transfer_duration(rate, bytes);
  return submit(std::move(op), to);
}

// True if the stream is captured: the work is a node of that graph then.
template <class Work>
bool captured(Stream* stream, CUgraphNodeType type, Work Node::*of_node, const Work& work) {
  Node* node = internal::capture_node(stream, type);
  if (node == nullptr) return false;
  node->*of_node = work;
  announce_node(node);
  return true;
}

Destination on_stream(Stream* stream) {
  return {stream, now_ns(), settings().launch_latency, {}, {}};
}

}  // namespace

OpRef internal::carry_out(const KernelWork& work, Destination to) {
  trace::ActivityRef activity = reserve_kernel();
  KernelBehaviour behaviour = work.kernel->behaviour();
  auto planned = std::make_shared<Op>();
  // Not in a sample that has been taken: between the launch's time and here this thread may have waited.
  planned->earliest = std::max(to.host + settings().launch_latency,
                               counters::note_kernel(to.stream->context->device, work.kernel->name, planned));
  planned->duration = behaviour.duration;
  planned->hangs = behaviour.hangs;
  planned->waits_for = behaviour.waits_for;
  planned->sets = std::move(behaviour.sets);
  OpRef op = submit(std::move(planned), to);
  power::note_kernel(to.stream->context->device, op);
  commit_kernel(activity, work, *to.stream, to.graph, op);
  report_work("kernel", work.kernel->name, *to.stream, to.host, 0, op);
  return op;
}

OpRef internal::carry_out(const CopyWork& work, Destination to) {
  CopyClass copy = classify(work);
  trace::ActivityRef activity = reserve_copy(copy);
  OpRef op = submit_transfer(copy.rate, work.bytes(), to);
  move_bytes(work);
  commit_copy(activity, work, copy, *to.stream, to.graph, op);
  report_work(copy.peer ? "memcpy_peer" : "memcpy", copy_name(copy), *to.stream, to.host, work.bytes(), op);
  return op;
}

OpRef internal::carry_out(const SetWork& work, Destination to) {
  trace::ActivityRef activity = reserve_set();
  OpRef op = submit_transfer(Rate::kMemset, work.bytes(), to);
  set_bytes(work);
  commit_set(activity, work, *to.stream, to.graph, op);
  report_work("memset", "memset", *to.stream, to.host, work.bytes(), op);
  return op;
}

OpRef internal::carry_out(const HostWork& work, Destination to) {
  auto op = std::make_shared<Op>();
  op->earliest = to.host;
  op->host = [work] { work.function(work.data); };
  return submit(std::move(op), to);
}

CUresult enqueue(Stream* stream, const KernelWork& work) {
  if (!captured(stream, CU_GRAPH_NODE_TYPE_KERNEL, &Node::kernel, work)) carry_out(work, on_stream(stream));
  return CUDA_SUCCESS;
}

CUresult enqueue(Stream* stream, const CopyWork& work, OpRef* submitted) {
  if (captured(stream, CU_GRAPH_NODE_TYPE_MEMCPY, &Node::copy, work) || work.bytes() == 0)
    return CUDA_SUCCESS;
  OpRef op = carry_out(work, on_stream(stream));
  if (submitted != nullptr) *submitted = op;
  return CUDA_SUCCESS;
}

CUresult enqueue(Stream* stream, const SetWork& work, OpRef* submitted) {
  if (captured(stream, CU_GRAPH_NODE_TYPE_MEMSET, &Node::set, work) || work.bytes() == 0) return CUDA_SUCCESS;
  OpRef op = carry_out(work, on_stream(stream));
  if (submitted != nullptr) *submitted = op;
  return CUDA_SUCCESS;
}

CUresult enqueue(Stream* stream, const HostWork& work) {
  if (!captured(stream, CU_GRAPH_NODE_TYPE_HOST, &Node::host, work)) carry_out(work, on_stream(stream));
  return CUDA_SUCCESS;
}

}  // namespace inject::sim
