// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Contexts, and which of them each thread works in.
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "tests/sim/core/device/shared.h"
#include "tests/sim/core/trace.h"

namespace inject::sim {
namespace {

struct State {
  std::set<Context*> contexts;
  std::map<int, Context*> primaries;
  std::uint32_t next_context = 1;
};
// Leaked: see base.cpp.
State& state() {
  static State& instance = *new State;
  return instance;
}

constexpr std::uint32_t kLegacyStreamId = 7;  // as CUPTI numbers them

}  // namespace

std::mutex& world() {
  static std::mutex& instance = *new std::mutex;
  return instance;
}

const std::set<Context*>& internal::contexts() {
  return state().contexts;
}

// Leaked: exit handlers and static destructors call into CUDA after the main thread's thread-local objects
// are gone.
std::vector<Context*>& context_stack() {
  thread_local std::vector<Context*>& contexts = *new std::vector<Context*>;
  return contexts;
}

Context* current_context() {
  return context_stack().empty() ? nullptr : context_stack().back();
}

void set_current_context(Context* context) {
  if (context_stack().empty()) {
    if (context != nullptr) context_stack().push_back(context);
    return;
  }
  if (context == nullptr)
    context_stack().pop_back();
  else
    context_stack().back() = context;
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
    std::lock_guard lock(world());
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
  std::lock_guard lock(world());
  context->alive = false;
  shared.contexts.erase(context);
  if (context->primary) shared.primaries.erase(context->device);
  internal::release_memory_of(context);
}

bool is_context(CUcontext handle) {
  std::lock_guard lock(world());
  return state().contexts.count(reinterpret_cast<Context*>(handle)) != 0;
}

Context* existing_primary_context(int device) {
  State& shared = state();
  std::lock_guard lock(world());
  auto found = shared.primaries.find(device);
  return found != shared.primaries.end() ? found->second : nullptr;
}

namespace {
std::mutex& primary_creation() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}
}  // namespace

Context* primary_context(int device) {
  std::lock_guard one_creator(primary_creation());
  if (Context* context = existing_primary_context(device); context != nullptr) return context;
  const trace::ContextCreation creation;
  if (const std::uint32_t ms = faults().context_ms; ms != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  return create_context(device, true);
}

bool primary_context_active(int device) {
  // Seen on hardware: the answer waits for one that is being created.
  std::lock_guard one_creator(primary_creation());
  return existing_primary_context(device) != nullptr;
}

}  // namespace inject::sim
