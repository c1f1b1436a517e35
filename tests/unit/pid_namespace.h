// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>

namespace inject {

/// Runs `program` as the first process of a PID namespace, with the /proc of the test's; its status, nothing
/// if this user may not do that. For children without other threads.
inline std::optional<int> in_pid_namespace(const std::function<int()>& program) {
  constexpr int kMayNot = 125;
  const pid_t outside = fork();
  if (outside == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(kMayNot);
    const pid_t inside = fork();
    if (inside == 0) _exit(program());
    int status = 0;
    _exit(waitpid(inside, &status, 0) == inside && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  int status = 0;
  if (waitpid(outside, &status, 0) != outside || !WIFEXITED(status)) return 1;
  if (WEXITSTATUS(status) == kMayNot) return std::nullopt;
  return WEXITSTATUS(status);
}

}  // namespace inject
