// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/shutdown/process_terminator.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>

#include "libinject/base/clock.h"
#include "libinject/base/format.h"
#include "libinject/base/log.h"
#include "libinject/base/process.h"
#include "libinject/control/endpoint.h"
#include "libinject/record/internal_thread.h"
#include "libinject/session/session.h"
#include "libinject/shutdown/process_tree.h"
#include "libinject/shutdown/rank_barrier.h"

namespace inject {

namespace {

// Condition variables use clocks that can't represent the largest option values.
constexpr Nanoseconds kMaxSleep = 3'600 * kSecond;
// How often the session is asked whether the steps after the last window have been timed.
constexpr Nanoseconds kSoon = 20 * kMillisecond;
constexpr Nanoseconds kRankPatience = 10 * kSecond;

enum class OnInterrupt { kIgnored, kEnds, kHandled };

void end_with_descendants(void (*before_end)() noexcept) {
  before_end();
  if (end_descendants()) return;
  Log::warn(
      "the program's child processes are not ended: /proc is missing or another PID namespace's, and does "
      "not show which they are");
}

OnInterrupt on_interrupt() {
  struct sigaction action {};
  if (sigaction(SIGINT, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) != 0)
    return OnInterrupt::kHandled;
  if (action.sa_handler == SIG_IGN) return OnInterrupt::kIgnored;
  return action.sa_handler == SIG_DFL ? OnInterrupt::kEnds : OnInterrupt::kHandled;
}

}  // namespace

void ProcessTerminator::start(Session& session, void (*before_end)() noexcept) noexcept {
  if (options_.after == AfterAction::kContinue && options_.timeout == 0) return;
  session_ = &session;
  before_end_ = before_end;
  if (const int failed = start_internal_thread(&entry, this); failed != 0) {
    Log::error(ThreadProblem("INJECT_AFTER and INJECT_TIMEOUT have no effect", failed).text());
  }
}

void ProcessTerminator::note_last_window() noexcept {
  const MutexLock lock(mutex_);
  last_window_closed_ = true;
  wake_.notify_one();
}

void* ProcessTerminator::entry(void* terminator) noexcept {
  enter_internal_thread();
  try {
    static_cast<ProcessTerminator*>(terminator)->run();
  } catch (...) {
    Log::error("INJECT_AFTER and INJECT_TIMEOUT have no effect: out of memory");
  }
  return nullptr;
}

bool ProcessTerminator::wait(bool soon) {
  MutexLock lock(mutex_);
  for (;;) {
    if (options_.after != AfterAction::kContinue && last_window_closed_) {
      last_window_closed_ = false;
      return false;
    }
    const Nanoseconds passed = now() - base_;
    if (options_.timeout != 0 && passed >= options_.timeout) return true;
    const Nanoseconds left = options_.timeout != 0 ? options_.timeout - passed : kMaxSleep;
    lock.wait_for(wake_, std::min(left, soon ? kSoon : kMaxSleep));
    if (soon) last_window_closed_ = true;
  }
}

void ProcessTerminator::run() {
  bool soon = false;
  for (;;) {
    const bool timed_out = wait(soon);
    const Session::Conclusion conclusion = session_->conclude(timed_out);
    soon = conclusion == Session::Conclusion::kSoon;
    switch (conclusion) {
      case Session::Conclusion::kNotYet:  // another window has opened after all
      case Session::Conclusion::kSoon:
        continue;
      case Session::Conclusion::kExiting:
        return;
      case Session::Conclusion::kDone:
        break;
    }
    const bool unsaid = timed_out && options_.after == AfterAction::kContinue;
    act(unsaid ? AfterAction::kInterrupt : options_.after, timed_out);
    return;
  }
}

void ProcessTerminator::act(AfterAction action, bool timed_out) {
  wait_for_other_ranks();
  const std::string why = timed_out ? "INJECT_TIMEOUT has expired" : "the last window has closed";
  if (action == AfterAction::kExit) {
    Log::info(why + ": the process ends with status 0 (INJECT_AFTER=exit)");
    end_with_descendants(before_end_);
    _exit(0);
  }
  const OnInterrupt what = on_interrupt();
  if (what == OnInterrupt::kIgnored) {
    Log::warn(
        why +
        ", but the program ignores SIGINT (as programs started in the background by a shell script do) and "
        "continues; INJECT_AFTER=exit would end it");
    return;
  }
  Log::info(why + ": sending SIGINT to the program");
  // To this process only. A program with a handler closes its workers when it unwinds; if they were
  // interrupted as well, as a terminal does, Python's pools would sometimes deadlock over a lock held by an
  // interrupted worker. Without a handler, nobody closes them.
  if (what == OnInterrupt::kEnds) {
    end_with_descendants(before_end_);
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);
  }
  kill(getpid(), SIGINT);
}

void ProcessTerminator::wait_for_other_ranks() {
  const unsigned count = ranks_of_this_host(environment_variable);
  if (count < 2) return;
  for (const std::string& path : control_folders(std::getenv("XDG_RUNTIME_DIR"), geteuid())) {
    std::string error;
    const int folder = open_control_folder(path, true, error);
    if (folder < 0) continue;
    const bool arrived =
        wait_at_rank_barrier(folder, rank_barrier_name(environment_variable), count, kRankPatience);
    close(folder);
    if (!arrived)
      Log::info(str_format("not all {} ranks on this host have finished; not waiting for the others", count));
    return;
  }
}

}  // namespace inject
