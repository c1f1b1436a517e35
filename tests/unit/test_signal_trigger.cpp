// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A process has only one trigger, so each test runs in a process of its own.
#include "libinject/session/signal_trigger.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <string>

#include "libinject/base/log.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

std::atomic<int> heard{0};      // by libinject
std::atomic<int> passed_on{0};  // to the program
int heard_pipe[2];
void hear() noexcept {
  ++heard;
  const char byte = 1;
  if (write(heard_pipe[1], &byte, 1) != 1) _exit(99);
}
/// Waits until the trigger's thread has been notified once more.
void wait_heard() {
  char byte = 0;
  if (read(heard_pipe[0], &byte, 1) != 1) _exit(98);
}
void plain(int /*signal*/) {
  ++passed_on;
}
void with_info(int signal, siginfo_t* info, void* /*context*/) {
  if (signal == SIGUSR2 && info != nullptr && info->si_pid == getpid()) ++passed_on;
}

void set_handler(void (*handler)(int), int flags = 0) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(SIGUSR2, &action, nullptr);
}
struct sigaction handler_now() {
  struct sigaction action {};
  sigaction(SIGUSR2, nullptr, &action);
  return action;
}
bool warned(const std::string& text) {
  for (const std::string& message : Log::notable()) {
    if (message.find(text) != std::string::npos) return true;
  }
  return false;
}

/// Returns the number of the first check that failed, 0 if none did.
int in_a_process(const std::function<int()>& run) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    heard = passed_on = 0;
    _exit(pipe(heard_pipe) == 0 ? run() : 97);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

// For use in a forked process, where Catch2's macros do not work.
#define HOLDS(number, condition) \
  if (!(condition)) return number

}  // namespace

TEST_CASE("a signal is heard on a thread of the trigger's own", "[window]") {
  CHECK(in_a_process([] {
          HOLDS(1, SignalTrigger::why_none().empty());  // not armed
          SignalTrigger::look();
          SignalTrigger::leave_child();
          HOLDS(2, SignalTrigger::arm(SIGUSR2, &hear));
          HOLDS(3, SignalTrigger::why_none() == ": no SIGUSR2 came");
          errno = 17;
          for (int i = 1; i <= 3; ++i) {
            raise(SIGUSR2);
            wait_heard();
            HOLDS(4, heard == i);
          }
          HOLDS(5, errno == 17);
          HOLDS(6, SignalTrigger::why_none() == ": SIGUSR2 came too late");
          SignalTrigger::look();
          HOLDS(7, !warned("has replaced libinject's handler"));
          return 0;
        }) == 0);
}

TEST_CASE("the program's handler is called after the trigger's", "[window]") {
  CHECK(in_a_process([] {
          set_handler(&plain);
          HOLDS(1, SignalTrigger::arm(SIGUSR2, &hear));
          HOLDS(2, (handler_now().sa_flags & SA_RESTART) == 0);  // as the program's handler requested
          raise(SIGUSR2);
          wait_heard();
          raise(SIGUSR2);
          wait_heard();
          HOLDS(3, passed_on == 2);
          return 0;
        }) == 0);
  CHECK(in_a_process([] {
          struct sigaction action {};
          action.sa_sigaction = &with_info;
          action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
          sigaddset(&action.sa_mask, SIGUSR1);
          sigaction(SIGUSR2, &action, nullptr);
          HOLDS(1, SignalTrigger::arm(SIGUSR2, &hear));
          const struct sigaction ours = handler_now();
          HOLDS(2, ours.sa_sigaction != &with_info);
          HOLDS(3, (ours.sa_flags & SA_RESTART) != 0 && (ours.sa_flags & SA_NODEFER) != 0);
          HOLDS(4, sigismember(&ours.sa_mask, SIGUSR1) == 1);
          raise(SIGUSR2);
          wait_heard();
          HOLDS(5, passed_on == 1);
          return 0;
        }) == 0);
}

TEST_CASE("a handler that asked to be called once is called once", "[window]") {
  CHECK(in_a_process([] {
          set_handler(&plain, static_cast<int>(SA_RESETHAND));
          HOLDS(1, SignalTrigger::arm(SIGUSR2, &hear));
          for (int i = 0; i < 3; ++i) {
            raise(SIGUSR2);
            wait_heard();
          }
          HOLDS(2, heard == 3);
          HOLDS(3, passed_on == 1);
          // A child gets the disposition that would be in effect without the trigger.
          SignalTrigger::leave_child();
          HOLDS(4, handler_now().sa_handler == SIG_DFL);
          return 0;
        }) == 0);
}

TEST_CASE("a handler of the program's in the trigger's place is warned of once", "[window]") {
  CHECK(in_a_process([] {
          HOLDS(1, SignalTrigger::arm(SIGUSR2, &hear));
          // An interpreter does this when it shuts down.
          set_handler(SIG_DFL);
          SignalTrigger::look();
          HOLDS(2, !warned("has replaced libinject's handler"));
          set_handler(&plain);
          SignalTrigger::look();
          HOLDS(3, warned("has replaced libinject's handler of SIGUSR2"));
          HOLDS(4, SignalTrigger::why_none() == ": no SIGUSR2 came to libinject's handler");
          const std::size_t messages = Log::notable().size();
          SignalTrigger::look();
          HOLDS(5, Log::notable().size() == messages);
          // It is the program's, and remains.
          SignalTrigger::leave_child();
          HOLDS(6, handler_now().sa_handler == &plain);
          return 0;
        }) == 0);
}

TEST_CASE("a child is as if the trigger had never been there", "[window]") {
  CHECK(in_a_process([] {
          set_handler(&plain);
          HOLDS(1, SignalTrigger::arm(SIGUSR2, &hear));
          const pid_t child = fork();
          if (child == 0) {
            // Nothing is counted there, but the program's handler is called.
            raise(SIGUSR2);
            if (passed_on != 1 || SignalTrigger::why_none() != ": no SIGUSR2 came") _exit(1);
            SignalTrigger::leave_child();
            _exit(handler_now().sa_handler == &plain ? 0 : 2);
          }
          int status = 0;
          HOLDS(2, waitpid(child, &status, 0) == child);
          HOLDS(3, status == 0);
          HOLDS(4, SignalTrigger::why_none() == ": no SIGUSR2 came");
          return 0;
        }) == 0);
}

TEST_CASE("a signal that can't be caught opens no window, and that is an error", "[window]") {
  CHECK(in_a_process([] {
          HOLDS(1, !SignalTrigger::arm(SIGKILL, &hear));
          HOLDS(2, warned(" can open no window: Invalid argument"));
          HOLDS(3, SignalTrigger::why_none().empty());
          return 0;
        }) == 0);
}
