// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <string>

#include "libinject/base/mutex.h"
#include "libinject/base/time.h"
#include "libinject/capture/cupti/tracer.h"
#include "libinject/capture/hooks/observers.h"
#include "libinject/session/session_state.h"

namespace inject {

struct SessionParts;

/// Takes turns with other users of CUPTI (docs/reliability.md). CUPTI has one subscriber: it refuses a second
/// one and reports who the first is; a window then opens with the hooks alone. The program's own clients are
/// also seen by hooks (capture/cupti/foreign_client.h): before such a client's call that claims CUPTI is
/// made, the open window is closed and CUPTI released, and no window attaches CUPTI until the clients are
/// done.
class ClientArbiter {
 public:
  explicit ClientArbiter(SessionParts& parts) : parts_(parts) {}

  // A client's calls, on its thread, which may hold any of the program's locks and be inside one of that
  // client's own callbacks: every wait is bounded, and the call is made in any case.
  /// The client is about to take CUPTI, or part of it.
  void on_call(ForeignCall call) noexcept INJECT_EXCLUDES(session_mutex);
  /// The client has finalized CUPTI (`done`), or failed to.
  void on_finalized(bool done) noexcept INJECT_EXCLUDES(session_mutex);
  /// The client is done with part of CUPTI; `for_good`: with all of it.
  void on_left(bool for_good) noexcept INJECT_EXCLUDES(session_mutex);
  /// The client is about to initialise CUPTI's profiler itself, or to deinitialise it.
  void on_profiler(bool initialize) noexcept;

  /// True if no client is using CUPTI or waiting for us to release it.
  bool may_attach() const noexcept;
  /// Attaches CUPTI unless a client is in the way (CuptiAttachment::raise()).
  bool raise(TracerLevel level, bool may_gate) noexcept;
  bool detach(bool sampler_out, ContextWait contexts = ContextWait::kNo, bool has_context = true) noexcept
      INJECT_REQUIRES(session_mutex);
  /// If no hook sees the profiler API, we have to stay subscribed to CUPTI for it between windows.
  void watch_profiler_calls() noexcept INJECT_REQUIRES(session_mutex);
  void resume_profiler_calls() noexcept INJECT_REQUIRES(session_mutex);

  /// Whether a client is waiting for us to release CUPTI. Any thread.
  bool yielding() const noexcept { return yielding_.load(std::memory_order_acquire); }
  /// An `always` window that was closed for a client is to be reopened.
  bool resumes_always() const INJECT_REQUIRES(session_mutex) { return resume_always_; }
  /// The program opens windows itself from here on.
  void resume_nothing() INJECT_REQUIRES(session_mutex) { resume_always_ = false; }

  // Called on our own thread.
  void step_yield() INJECT_REQUIRES(session_mutex);
  void step_resume() INJECT_REQUIRES(session_mutex);
  Nanoseconds next_wake(Nanoseconds time) const INJECT_REQUIRES(session_mutex);
  /// Releases session_mutex while the sampling of metrics is being stopped. False if that call hangs.
  bool stop_sampler() noexcept INJECT_REQUIRES(session_mutex);

 private:
  void yield_cupti(ForeignCall call) INJECT_REQUIRES(session_mutex);
  void close_windows(const std::string& why) INJECT_REQUIRES(session_mutex);
  /// False if no client is waiting for it any more.
  bool collect_for_client() INJECT_REQUIRES(session_mutex);

  SessionParts& parts_;
  std::atomic<bool> yielding_{false};
  Nanoseconds yield_since_ INJECT_GUARDED_BY(session_mutex) = 0;
  bool may_finalize_ INJECT_GUARDED_BY(session_mutex) = true;  // false if the client is about to do so
  bool watch_profiler_calls_ INJECT_GUARDED_BY(session_mutex) = false;
  bool resume_always_ INJECT_GUARDED_BY(session_mutex) = false;
  Nanoseconds resume_at_ INJECT_GUARDED_BY(session_mutex) = 0;  // when it is our turn; 0: nothing to resume
};

}  // namespace inject
