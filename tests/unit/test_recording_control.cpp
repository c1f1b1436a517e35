// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libinject/record/control.h"
#include "tests/unit/catch.h"

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
