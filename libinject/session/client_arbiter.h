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

/// Takes turns with other users of CUPTI (docs/reliability.md), which has one subscriber: it refuses a second
/// one, and says who the first is; a window then opens with the hooks alone. The program's own
/// clients are also seen by hooks (capture/cupti/foreign_client.h): before a call of theirs that claims
/// CUPTI is made, the open window is closed and CUPTI released, and no window attaches it until they
/// are done.
class ClientArbiter {
 public:
  explicit ClientArbiter(SessionParts& parts) : parts_(parts) {}

  // A client's calls, on its thread, which may hold any lock of the program's and be in one of that client's
  // own callbacks: every wait is bounded, and the call is made in any case.
  /// It is about to take CUPTI, or part of it.
  void on_call(ForeignCall call) noexcept INJECT_EXCLUDES(session_mutex);
  /// It has finalized CUPTI, or could not.
  void on_finalized(bool done) noexcept INJECT_EXCLUDES(session_mutex);
  /// It is done with something; `for_good`: with all.
  void on_left(bool for_good) noexcept INJECT_EXCLUDES(session_mutex);
  /// It is about to initialise CUPTI's profiler itself, or to end that.
  void on_profiler(bool initialize) noexcept;

  /// Whether no client is using CUPTI, or waiting for us to release it.
  bool may_attach() const noexcept;
  /// Attaches CUPTI where no client is in the way (CuptiAttachment::raise()).
  bool raise(TracerLevel level, bool may_gate) noexcept;
  bool detach(bool may_gate, bool sampler_out, ContextWait contexts = ContextWait::kNo,
              bool has_context = true) noexcept INJECT_REQUIRES(session_mutex);
  /// If no hook sees the profiler API, we have to stay subscribed to CUPTI for it between windows.
  void watch_profiler_calls() noexcept INJECT_REQUIRES(session_mutex);
  void resume_profiler_calls() noexcept INJECT_REQUIRES(session_mutex);

  /// Whether a client is waiting for us to release CUPTI. Any thread.
  bool yielding() const noexcept { return yielding_.load(std::memory_order_acquire); }
  /// An `always` window that was closed for a client is to be reopened.
  bool resumes_always() const INJECT_REQUIRES(session_mutex) { return resume_always_; }
  /// The program opens windows itself from here on.
  void resume_nothing() INJECT_REQUIRES(session_mutex) { resume_always_ = false; }

  // Our own thread's.
  void step_yield() INJECT_REQUIRES(session_mutex);
  void step_resume() INJECT_REQUIRES(session_mutex);
  Nanoseconds next_wake(Nanoseconds time) const INJECT_REQUIRES(session_mutex);
  /// Releases session_mutex while the sampling of metrics is being stopped. False if that hangs.
  bool stop_sampler() noexcept INJECT_REQUIRES(session_mutex);

 private:
  void yield_cupti(ForeignCall call) INJECT_REQUIRES(session_mutex);
  void close_windows(const std::string& why) INJECT_REQUIRES(session_mutex);
  /// False where nobody waits for that any more.
  bool collect_for_client() INJECT_REQUIRES(session_mutex);

  SessionParts& parts_;
  std::atomic<bool> yielding_{false};
  Nanoseconds yield_since_ INJECT_GUARDED_BY(session_mutex) = 0;
  bool may_finalize_ INJECT_GUARDED_BY(session_mutex) = true;  // false where the client is about to do so
  bool watch_profiler_calls_ INJECT_GUARDED_BY(session_mutex) = false;
  bool resume_always_ INJECT_GUARDED_BY(session_mutex) = false;
  Nanoseconds resume_at_ INJECT_GUARDED_BY(session_mutex) = 0;  // our turn again; 0: nothing to resume
};

}  // namespace inject
