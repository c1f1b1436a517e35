// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// All entry points of the library except the hooks: the loader's, the CUDA driver's, NVTX's, and the
// program's own.
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>

#include "inject/inject.h"
#include "libinject/base/caller_state.h"
#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/base/host_io.h"
#include "libinject/base/process.h"
#include "libinject/capture/cupti/foreign_client.h"
#include "libinject/capture/cupti/holder.h"
#include "libinject/capture/driver.h"
#include "libinject/capture/hooks/observers.h"
#include "libinject/capture/nvtx/injection.h"
#include "libinject/config/options.h"
#include "libinject/entry/command_end.h"
#include "libinject/entry/companions.h"
#include "libinject/entry/injection_slot.h"
#include "libinject/record/core.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/record/thread_registry.h"
#include "libinject/session/session.h"

#define INJECT_ENTRY extern "C" __attribute__((visibility("default")))

namespace {

// The driver will call another tool's library (nsys, ncu, compute-sanitizer) in our place: the first call
// that shows CUDA to be initialised creates the session.
constinit std::atomic<bool> start_by_hooks{false};

// The driver and NVTX call us in a process that was started without the preload, only because a parent had
// it: we return success and do nothing. The program's own calls (inject.h) still count.
constinit bool only_inherited = false;

// Runs in every process that the preload reaches: no allocation except the environment's own, no thread, no
// file, and no message except the help text if requested.
__attribute__((constructor)) void on_load();

// If a process has the library twice (two copies in LD_PRELOAD, or a parent's copy named by the environment),
// the one to which the program's symbols resolve works: returns a function of that one, nullptr if it is this
// one.
template <typename Function>
Function* of_leading_copy(const char* name) {
  Dl_info ours;
  Dl_info leading;
  const void* first = dlsym(RTLD_DEFAULT, "inject_is_open");
  if (first == nullptr || dladdr(reinterpret_cast<const void*>(&on_load), &ours) == 0 ||
      dladdr(first, &leading) == 0 || leading.dli_fbase == ours.dli_fbase) {
    return nullptr;
  }
  void* library = dlopen(leading.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

void on_load() {
  const inject::CallerState caller;
  if (inject::is_secure_execution()) return;
  inject::DynamicLoaderGuard::count_in_this_process();
  inject::remember_working_directory();
  inject::register_companions();
  inject::note_stderr();
  Dl_info self;
  // The absolute path: a relative one would break after a chdir.
  if (dladdr(reinterpret_cast<const void*>(&on_load), &self) != 0 && self.dli_fname != nullptr) {
    char resolved[4096];
    const char* path = self.dli_fname[0] == '/' ? self.dli_fname : realpath(self.dli_fname, resolved);
    only_inherited = path != nullptr && inject::is_only_inherited(path);
    if (path != nullptr && !only_inherited)
      start_by_hooks.store(!inject::claim_injection_slot(path), std::memory_order_relaxed);
  }
  if (only_inherited) return;
  inject::note_command();
  if (const char* help = getenv("INJECT_HELP"); help != nullptr && std::strcmp(help, "1") == 0) {
    try {
      inject::write_quietly(STDERR_FILENO, inject::options_help());
    } catch (...) {
      // Out of memory for a help text.
    }
  }
}

}  // namespace

// Called by the driver inside cuInit. Returns 1, success: anything else makes cuInit fail, which we must
// never cause.
INJECT_ENTRY int InitializeInjection() {
  const inject::CallerState caller;
  inject::note_cuda();
  if (auto* leading = of_leading_copy<int()>("InitializeInjection"); leading != nullptr) return leading();
  inject::note_initialization();
  if (!only_inherited) inject::Session::start(true);
  return 1;
}

// Called by each library that uses NVTX on its first NVTX call.
INJECT_ENTRY int InitializeInjectionNvtx2(const void* (*get_export_table)(uint32_t)) {
  const inject::CallerState caller;
  using Attach = int(const void* (*)(uint32_t));
  if (auto* leading = of_leading_copy<Attach>("InitializeInjectionNvtx2"); leading != nullptr)
    return leading(get_export_table);
  return only_inherited ? 1 : inject::nvtx_attach(get_export_table);
}

INJECT_ENTRY int inject_start() {
  const inject::CallerState caller;
  inject::note_cuda();
  inject::Session* session = inject::Session::start();
  return session != nullptr && session->user_start() ? 0 : -1;
}

INJECT_ENTRY int inject_stop() {
  const inject::CallerState caller;
  inject::Session* session = inject::Session::get();
  return session != nullptr && session->user_stop() ? 0 : -1;
}

INJECT_ENTRY int inject_flush() {
  const inject::CallerState caller;
  inject::Session* session = inject::Session::get();
  return session != nullptr && session->user_flush() ? 0 : -1;
}

INJECT_ENTRY int inject_is_open() {
  const inject::Session* session = inject::Session::get();
  return session != nullptr && session->is_open() ? 1 : 0;
}

INJECT_ENTRY int inject_units(double units) {
  const inject::CallerState caller;
  if (only_inherited) return -1;
  const inject::Core* core = inject::Core::get_if_any();
  if (core != nullptr && core->configuration.options.unit_source() != inject::UnitSource::kCalled) return -1;
  inject::emit_units(units, inject::UnitSource::kCalled);
  return inject::is_units(units) ? 0 : -1;
}

namespace inject {

void on_profiler_starting() noexcept {
  inside_cupti.fetch_add(1, std::memory_order_relaxed);
  this_thread_starts_profiler = true;
}

void on_profiler_start(int status) noexcept {
  this_thread_starts_profiler = false;
  inside_cupti.fetch_sub(1, std::memory_order_release);
  const CallerState caller;
  if (status == 0) note_cuda();
  // If the call fails, CUDA may not be there at all; the session is then not created.
  Session* session = status == 0 ? Session::start() : Session::get();
  if (session != nullptr) session->profiler_start(false);
}

// Counted before the window is closed, because our thread begins to detach CUPTI at once.
void on_profiler_stopping() noexcept {
  inside_cupti.fetch_add(1, std::memory_order_seq_cst);
  const CallerState caller;
  if (Session* session = Session::get()) session->profiler_stop(false);
}

void on_profiler_stop(int /*status*/) noexcept {
  inside_cupti.fetch_sub(1, std::memory_order_release);
}

bool on_uncounted_allocation() noexcept {
  if (!start_by_hooks.load(std::memory_order_relaxed) ||
      !start_by_hooks.exchange(false, std::memory_order_relaxed)) {
    return false;
  }
  const CallerState caller;
  note_cuda();
  return Session::start() != nullptr;
}

void on_foreign_cupti(ForeignCall call, const void* caller) noexcept {
  const CallerState state;
  try {
    foreign_client.note_caller(describe_library(object_containing(caller)));
  } catch (...) {
    // Out of memory for its name.
  }
  if (Session* session = Session::get()) session->arbiter().on_call(call);
}

void on_foreign_cupti_finalized(int status) noexcept {
  const CallerState caller;
  if (Session* session = Session::get()) session->arbiter().on_finalized(status == 0);
}

void on_foreign_cupti_left(bool for_good) noexcept {
  const CallerState caller;
  if (Session* session = Session::get()) session->arbiter().on_left(for_good);
}

void on_foreign_cupti_profiler(bool initialize) noexcept {
  const CallerState caller;
  // Also before there is a session.
  PmSampler::note_foreign_profiler();
  if (Session* session = Session::get()) session->arbiter().on_profiler(initialize);
}

}  // namespace inject
