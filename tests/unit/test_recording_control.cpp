// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libinject/record/control.h"
#include "tests/unit/catch.h"
#include "tests/unit/pid_namespace.h"

using namespace inject;

TEST_CASE("Recording is off in a child that no fork handler has seen", "[native]") {
  wipe_control_in_children();
  const std::uint32_t before = current_window.exchange(7);
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    const bool off =
        current_window.load() == 0 && control_word.load() == 0 && published_pool.load() == nullptr;
    _exit(off ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(current_window.exchange(before) == 7);
  // A larger page would have other variables as well: it is left alone.
  if (sysconf(_SC_PAGESIZE) == static_cast<long>(sizeof(RecordingControl))) CHECK(status == 0);
}

TEST_CASE("A copy of a process is another one, even with the same id", "[native]") {
  wipe_control_in_children();
  const OwnProcess own;
  CHECK(own.is_this());
  const auto is_other = [](const OwnProcess& process, unsigned long flags) {
    const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD | flags, 0, 0, 0, 0));
    if (child == 0) _exit(process.is_this() ? 1 : 0);
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
  };
  CHECK(is_other(own, 0));
  const std::optional<int> status = in_pid_namespace([&is_other] {
    wipe_control_in_children();
    const OwnProcess first;
    return getpid() == 1 && first.is_this() && is_other(first, CLONE_NEWPID) ? 0 : 1;
  });
  if (!status) {
    WARN("not tested with the same id: this user may not make PID namespaces");
    return;
  }
  // A larger page would have other variables as well: it is left alone.
  if (sysconf(_SC_PAGESIZE) == static_cast<long>(sizeof(RecordingControl))) CHECK(*status == 0);
}
