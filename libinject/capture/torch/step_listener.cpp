// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The callback for user scope stays registered: a function that is in progress when it is removed would still
// call its end. So it checks iteration_watch.source, which is kNone outside of the search and in a forked
// child.
//
// at::clearCallbacks() is public and removes everybody's callbacks, including ours. PyTorch notifies nobody,
// so if PyTorch has been silent, it is tested again, and the callback registered again if it is gone.
#include "libinject/capture/torch/step_listener.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "libinject/base/caller_state.h"
#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/base/format.h"
#include "libinject/base/log.h"
#include "libinject/base/mapping.h"
#include "libinject/capture/python/frame_reader.h"
#include "libinject/capture/python/program_python.h"
#include "libinject/capture/torch/loader_fetch.h"
#include "libinject/capture/torch/op_listener.h"
#include "libinject/capture/torch/record_function.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/record/thread_registry.h"

namespace inject {

namespace {

constexpr std::string_view kStepPrefix = "Optimizer.step#";
constexpr std::size_t kMaxRangeName = 256;
/// Maximum distance of the wrapper around step(): between it and PyTorch are the frames of record_function
/// and of the operator that it calls.
constexpr int kMaxFramesOut = 8;
/// Maximum number of times the callback is registered again in vain.
constexpr unsigned kMaxRefusals = 8;

std::atomic<const char* (*)(const void*)> read_name{nullptr};
/// PyTorch has called back since our thread last checked.
std::atomic<bool> heard{false};
CallbackTest test;

/// Which optimizer steps, as a hash of its address (LaunchSign::optimizer): the first argument of the
/// innermost Python function whose first argument is an object of the class in the mark's name. 0 if there is
/// none, as in C++.
std::uint32_t stepping_optimizer(const char* name) noexcept {
  const std::string_view text(name, ::strnlen(name, kMaxRangeName));
  const std::size_t end = text.rfind(".step");
  if (end == std::string_view::npos || end <= kStepPrefix.size()) return 0;
  const std::string_view type = text.substr(kStepPrefix.size(), end - kStepPrefix.size());
  PythonFrame frame = innermost_frame();
  for (int depth = 0; frame && depth < kMaxFramesOut; ++depth, frame = caller_of(frame)) {
    const void* object = first_argument(frame);
    std::array<char, kMaxRangeName> found{};
    const std::size_t length = copy_type_name(object, found.data(), found.size());
    if (std::string_view(found.data(), length) != type) continue;
    const auto hash =
        static_cast<std::uint32_t>(hash_mix(reinterpret_cast<std::uintptr_t>(object) * kHashSeed) >> 32);
    return hash != 0 ? hash : 1;
  }
  return 0;
}

// PyTorch calls these on its threads, at every function of user scope. They neither wait, allocate nor throw,
// and the only data of the interpreter that they read are their own thread's frames.
NoContext on_start(const void* function) noexcept {
  if (CallbackTest::counts(function, test.starts)) return {};
  if (!heard.load(std::memory_order_relaxed)) heard.store(true, std::memory_order_relaxed);
  // Ignored until the test has been passed.
  if (!iteration_watch.steps_told.load(std::memory_order_acquire) ||
      iteration_watch.source.load(std::memory_order_acquire) == SignSource::kNone) {
    return {};
  }
  const char* name = read_name.load(std::memory_order_relaxed)(function);
  if (name == nullptr) return {};
  if (const auto fetch = fetch_kind(name)) fetch_begins(function, *fetch);
  if (std::strncmp(name, kStepPrefix.data(), kStepPrefix.size()) != 0) return {};
  if (ThreadRegistry::this_thread_is_ignored()) return {};
  const CallerState caller;
  ThreadState* thread = ThreadRegistry::current();
  // Of nested steps, such as a wrapper's around the wrapped one's, the outermost counts.
  if (thread == nullptr || thread->step != nullptr) return {};
  std::uint64_t hash = kHashSeed;
  for (std::size_t i = 0; i < kMaxRangeName && name[i] != '\0'; ++i)
    hash = hash_mix((hash ^ static_cast<unsigned char>(name[i])) * kHashSeed);
  thread->step = function;
  thread->step_level = thread->operators.depth();
  thread->step_calls_model = false;
  thread->step_function = hash;
  thread->step_optimizer = stepping_optimizer(name);
  thread->step_sum = thread->sign_sum;
  thread->step_count = thread->sign_count;
  // Parameters, gradients and the optimizer's state all exist now.
  if (memory_is_expected()) reading_is_due(true);
  // The name belongs to this object, so it is copied while the object lives.
  if (function_is_new(hash)) emit_name(hash, name);
  return {};
}

// Also if the search has ended in the meantime.
void on_end(const void* function, void* /*context*/) noexcept {
  if (CallbackTest::counts(function, test.ends)) return;
  fetch_ends(function);
  ThreadState* thread = ThreadRegistry::current_if_any();
  if (thread == nullptr || thread->step != function) return;
  thread->step = nullptr;
  thread->has_stepped = true;
  iteration_watch.stepped.store(true, std::memory_order_relaxed);
  if (iteration_watch.source.load(std::memory_order_acquire) == SignSource::kNone) return;
  const CallerState caller;
  const std::uint64_t launched = thread->sign_sum - thread->step_sum;
  emit_sign(SignKind::kStep, thread->step_function, hash_mix((thread->step_function ^ launched) * kHashSeed),
            thread->sign_count - thread->step_count, false);
}

/// True if our callback is called for functions of user scope, and for no others.
bool is_registered(const RecordFunctionApi& torch) {
  return comes(torch, test, RecordScope::kUser, 1) && comes(torch, test, RecordScope::kFunction, 0);
}

/// Registers the callback; removes it and returns false if it is not called as expected.
bool register_callback(const RecordFunctionApi& torch) {
  RecordCallback callback;
  callback.start = &on_start;
  callback.end = &on_end;
  callback.scopes[static_cast<std::size_t>(RecordScope::kUser)] = true;
  const std::uint64_t handle = torch.add_global_callback(callback);
  if (is_registered(torch)) return true;
  torch.remove_callback(handle);
  return false;
}

/// The interface with which the callback is registered. Used only by our thread, once steps are reported.
RecordFunctionApi listening_to;

void listen(const LoadedTorch& torch) {
  if (!torch.is_known_version()) {
    Log::debug(str_format("{} is PyTorch {}.{}: optimizer steps are recorded only for 1.12 to 2.15",
                          torch.library, torch.version.first, torch.version.second));
    return;
  }
  if (!torch.api.complete()) {
    Log::debug(torch.library + " lacks functions that report its optimizers' steps");
    return;
  }
  read_name = torch.api.name;
  if (!register_callback(torch.api)) {
    Log::debug("this PyTorch's callbacks have an unknown form: optimizer steps are not recorded");
    return;
  }
  listening_to = torch.api;
  iteration_watch.steps_told.store(true, std::memory_order_release);
  Log::debug("PyTorch reports its optimizers' steps");
  prepare_operators(torch.api);
}

/// Registers the callback again if the program has cleared it. Steps may have been missed until now.
void listen_again() noexcept {
  static unsigned refused = 0;
  if (heard.exchange(false, std::memory_order_relaxed) || refused == kMaxRefusals) return;
  if (comes(listening_to, test, RecordScope::kUser, 1)) return;
  iteration_watch.steps_missed.store(true, std::memory_order_release);
  if (register_callback(listening_to)) {
    Log::debug("the program has cleared PyTorch's callbacks: ours is registered again");
  } else if (++refused == kMaxRefusals) {
    Log::debug("PyTorch no longer calls back: its optimizers' steps are no longer recorded");
  }
}

/// Looks for PyTorch among what has been loaded since the last time; true once it has been found.
bool look_for_torch(unsigned long long& adds_seen) noexcept {
  try {
    const std::optional<LoadedTorch> torch = find_torch(adds_seen);
    if (!torch) return false;
    if (torch->held != nullptr) listen(*torch);
    // Otherwise it stays loaded, because its functions are called again later.
    if (torch->held != nullptr && !iteration_watch.steps_told.load(std::memory_order_relaxed))
      dlclose(torch->held);
  } catch (...) {
    Log::error_without_allocation("PyTorch's optimizer steps are not recorded: out of memory");
  }
  return true;
}

}  // namespace

void listen_to_steps() noexcept {
  static std::atomic<bool> busy{false};
  // Used by whichever thread has set `busy`:
  static bool found = false;
  static unsigned long long adds_seen = 0;
  if (busy.exchange(true, std::memory_order_acq_rel)) return;
  {
    // A fork waits as well: PyTorch's mutex must not be left locked in the child by a thread that does not
    // exist there.
    const DynamicLoaderGuard guard;
    if (!found) {
      found = look_for_torch(adds_seen);
    } else if (iteration_watch.steps_told.load(std::memory_order_relaxed)) {
      listen_again();
    }
    prepare_operator_inputs();
    // Python's frames show which optimizer steps.
    if (iteration_watch.steps_told.load(std::memory_order_relaxed)) find_python();
  }
  busy.store(false, std::memory_order_release);
}

}  // namespace inject
