// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Events, recorded on streams and waited for by them.
#include <algorithm>
#include <mutex>
#include <set>

#include "tests/sim/core/device/shared.h"

namespace inject::sim {
namespace {

// Leaked: see base.cpp.
std::set<Event*>& events() {
  static std::set<Event*>& instance = *new std::set<Event*>;
  return instance;
}

}  // namespace

Event* create_event(Context* context, unsigned flags) {
  auto* event = new Event;
  event->context = context;
  event->flags = flags;
  std::lock_guard lock(world());
  events().insert(event);
  return event;
}

Event* find_event(CUevent handle) {
  std::lock_guard lock(world());
  auto* event = reinterpret_cast<Event*>(handle);
  return events().count(event) != 0 ? event : nullptr;
}

void destroy_event(Event* event) {
  std::lock_guard lock(world());
  events().erase(event);
  delete event;
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
  event->op = timeline::submit(now, 0, internal::dependencies(*stream, now));
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
  std::vector<OpRef> after = internal::dependencies(*stream, now);
  after.push_back(event->op);
  stream->tail = timeline::submit(now, 0, std::move(after));
  return CUDA_SUCCESS;
}

}  // namespace inject::sim
