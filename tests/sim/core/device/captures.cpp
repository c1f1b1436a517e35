// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Streams captured into graphs.
#include <algorithm>
#include <mutex>
#include <set>

#include "tests/sim/core/device/shared.h"

namespace inject::sim {
namespace {

struct State {
  std::set<std::shared_ptr<Capture>> captures;
  std::uint64_t next_capture = 1;
};
// Leaked: see base.cpp.
State& state() {
  static State& instance = *new State;
  return instance;
}

thread_local unsigned captures_of_thread = 0;  // thread-local ones begun here

}  // namespace

Node* internal::capture_node(Stream* stream, CUgraphNodeType type) {
  std::lock_guard lock(world());
  if (stream->capture == nullptr) return nullptr;
  Node* node = add_node(stream->capture->graph, type, stream->capture_tail);
  stream->capture_tail = {node};
  return node;
}

bool capture_forbids_unsafe_call() {
  State& shared = state();
  std::lock_guard lock(world());
  if (captures_of_thread > 0) return true;
  return std::any_of(shared.captures.begin(), shared.captures.end(),
                     [](const auto& capture) { return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL; });
}

CUresult begin_capture(Stream* stream, CUstreamCaptureMode mode) {
  State& shared = state();
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  {
    std::lock_guard lock(world());
    if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  }
  Graph* graph = create_graph();
  std::lock_guard lock(world());
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
  std::lock_guard lock(world());
  std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr || capture->origin != stream) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && captures_of_thread > 0) --captures_of_thread;
  shared.captures.erase(capture);
  for (Context* context : internal::contexts())
    for (Stream* other : context->streams)
      if (other->capture == capture) {
        other->capture = nullptr;
        other->capture_tail.clear();
      }
  *graph = capture->invalidated ? nullptr : capture->graph;
  return capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

}  // namespace inject::sim
