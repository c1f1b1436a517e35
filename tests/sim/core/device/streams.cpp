// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Streams, and what work on them waits for.
#include <map>
#include <mutex>

#include "tests/sim/core/device/shared.h"
#include "tests/sim/core/trace.h"

namespace inject::sim {
namespace {

std::uint32_t next_stream = 13;  // as CUPTI numbers them: 7 is the default stream of a context

// Streams of the per-thread default stream (handle 2), by context. Leaked: exit handlers and static
// destructors call into CUDA after the main thread's thread-local objects are gone.
std::map<Context*, Stream*>& default_streams_of_thread() {
  thread_local std::map<Context*, Stream*>& streams = *new std::map<Context*, Stream*>;
  return streams;
}

bool blocking(const Stream& stream) {
  return (stream.flags & CU_STREAM_NON_BLOCKING) == 0;
}

void add_if_unfinished(std::vector<OpRef>& list, const OpRef& op, Nanoseconds now) {
  if (op != nullptr && !op->ended_by(now)) list.push_back(op);
}

}  // namespace

// Legacy default-stream semantics: it waits for every blocking stream of its context, and they for it.
std::vector<OpRef> internal::dependencies(const Stream& stream, Nanoseconds now) {
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

Stream* find_stream(CUstream handle, bool per_thread_default) {
  Context* context = current_context();
  if (context == nullptr) return nullptr;
  if (handle == CU_STREAM_LEGACY || (handle == nullptr && !per_thread_default)) return context->legacy_stream;
  if (handle == CU_STREAM_PER_THREAD || handle == nullptr) {
    Stream*& stream = default_streams_of_thread()[context];
    if (stream == nullptr) stream = create_stream(context, CU_STREAM_DEFAULT, 0);
    return stream;
  }
  std::lock_guard lock(world());
  auto* stream = reinterpret_cast<Stream*>(handle);
  for (Context* candidate : internal::contexts())
    if (candidate->streams.count(stream) != 0) return stream;
  return nullptr;
}

std::uint32_t per_thread_stream_id(Context* context) {
  auto found = default_streams_of_thread().find(context);
  return found != default_streams_of_thread().end() ? found->second->id : 0;
}

Stream* create_stream(Context* context, unsigned flags, int priority) {
  auto* stream = new Stream;
  {
    std::lock_guard lock(world());
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = next_stream++;
    context->streams.insert(stream);
  }
  trace::fire_resource(CUPTI_CBID_RESOURCE_STREAM_CREATED, context->handle(), stream->handle(), nullptr);
  return stream;
}

void destroy_stream(Stream* stream) {
  trace::fire_resource(CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING, stream->context->handle(),
                       stream->handle(), nullptr);
  std::lock_guard lock(world());
  // Work already on the stream goes on; the object is kept, as records and captures may still point at it.
  stream->context->streams.erase(stream);
}

OpRef stream_tail(Stream* stream) {
  std::lock_guard lock(world());
  return timeline::submit(0, 0, internal::dependencies(*stream, now_ns()));
}

OpRef context_tail(Context* context) {
  std::lock_guard lock(world());
  std::vector<OpRef> tails;
  Nanoseconds now = now_ns();
  for (const Stream* stream : context->streams) add_if_unfinished(tails, stream->tail, now);
  return timeline::submit(0, 0, std::move(tails));
}

}  // namespace inject::sim
