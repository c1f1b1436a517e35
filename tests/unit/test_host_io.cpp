// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/host_io.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <thread>

#include "libinject/base/atomic_file.h"
#include "tests/unit/catch.h"
#include "tests/unit/recorded_run.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

enum Outcome : int { kGood, kNotOpened, kStandardNumber, kWritten, kLeftOpen, kErrno, kNotTold };

/// In a process of its own that has closed its standard descriptors, and prints all the same.
int open_while_printing(const char* path) {
  for (const int number : {0, 1, 2}) ::close(number);
  std::atomic<bool> over{false};
  std::atomic<bool> written{false};
  std::thread printing([&] {
    while (!over.load()) {
      for (const int number : {0, 1, 2})
        // Past ThreadSanitizer, which would call it a race with what opens and closes.
        if (::syscall(SYS_write, number, "x", 1) >= 0 || errno != EBADF) written.store(true);
    }
  });
  int outcome = kGood;
  for (int i = 0; i < 20'000 && outcome == kGood; ++i) {
    errno = 7;
    const int file = open_file(path, O_WRONLY | O_CREAT | O_APPEND);
    if (file < 0) {
      outcome = kNotOpened;
    } else if (file <= STDERR_FILENO) {
      outcome = kStandardNumber;
    } else if (errno != 7) {
      outcome = kErrno;
    }
    ::close(file);
  }
  over.store(true);
  printing.join();
  if (written.load()) outcome = kWritten;
  for (const int number : {0, 1, 2})
    if (::fcntl(number, F_GETFD) >= 0) outcome = kLeftOpen;
  return outcome;
}

/// From here on the process is told EINTR whenever it makes the call. False: that can't be had.
bool interrupt_for_ever(unsigned call) {
  std::array<sock_filter, 4> program = {
      sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EINTR},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog filter{program.size(), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace

TEST_CASE("a system that answers EINTR for ever holds nobody up", "[native]") {
  constexpr int kNoFilter = 77;
  struct Case {
    const char* call;
    unsigned number;
    bool (*told)(const std::string& folder);  // in vain, and what says so
  };
  const Case cases[] = {
      {"sigtimedwait", SYS_rt_sigtimedwait,
       [](const std::string&) {
         const QuietSignals quiet;
         return true;
       }},
      {"openat", SYS_openat,
       [](const std::string& folder) {
         return open_file((folder + "/file").c_str(), O_WRONLY | O_CREAT) < 0 && errno == EINTR;
       }},
      {"write", SYS_write,
       [](const std::string& folder) {
         OutputFile file;
         if (!file.open(folder + "/file")) return false;
         file.buffer() = "text";
         return !file.flush() && !file.error().empty();
       }},
      {"fallocate", SYS_fallocate,
       [](const std::string& folder) {
         const RecordedRun run(folder);
         return !run.opened && run.problem.find("Interrupted") != std::string::npos &&
                std::filesystem::is_empty(folder);
       }},
  };
  for (const Case& interrupted : cases) {
    INFO(interrupted.call);
    const TemporaryFolder folder;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(30);
      if (!interrupt_for_ever(interrupted.number)) _exit(kNoFilter);
      _exit(interrupted.told(folder.path()) ? kGood : kNotTold);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    if (!WIFEXITED(status)) continue;
    if (WEXITSTATUS(status) == kNoFilter) {
      WARN("left out: no system call can be filtered here");
      return;
    }
    CHECK(WEXITSTATUS(status) == kGood);
  }
}

TEST_CASE("what a program prints to descriptors that it has closed goes into none of our files") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(open_while_printing(path.c_str()));
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == kGood);
  CHECK(std::filesystem::file_size(path) == 0);
}
