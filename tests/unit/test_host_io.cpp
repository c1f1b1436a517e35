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

enum Outcome : int { kGood, kNotOpened, kStandardNumber, kWritten, kLeftOpen, kErrno, kFailed };
constexpr int kNoFilter = 77;

/// Runs in a process of its own that has closed its standard descriptors, but still prints.
int open_while_printing(const char* path) {
  for (const int number : {0, 1, 2}) ::close(number);
  std::atomic<bool> over{false};
  std::atomic<bool> written{false};
  std::thread printing([&] {
    while (!over.load()) {
      for (const int number : {0, 1, 2})
        // Bypasses ThreadSanitizer, which would report a race with opening and closing.
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

/// Makes this system call fail from now on in this process. False if system calls can't be filtered.
bool refuse(unsigned call, unsigned error) {
  std::array<sock_filter, 4> program = {
      sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | error},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog filter{program.size(), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// Runs `test`, which returns an Outcome, in a child, so that it may filter its system calls. False if they
/// can't be filtered.
bool done_in_a_child(int (*test)(const char*), const char* path) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(30);
    _exit(test(path));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoFilter) {
    WARN("left out: no system call can be filtered here");
    return false;
  }
  CHECK(WEXITSTATUS(status) == kGood);
  return true;
}

// Each of these calls fails with EINTR every time.
int ask_for_signals(const char*) {
  if (!refuse(SYS_rt_sigtimedwait, EINTR)) return kNoFilter;
  { const QuietSignals quiet; }
  return kGood;
}

int open_interrupted(const char* path) {
  if (!refuse(SYS_openat, EINTR)) return kNoFilter;
  return open_file(path, O_WRONLY | O_CREAT) < 0 && errno == EINTR ? kGood : kFailed;
}

int write_interrupted(const char* path) {
  if (!refuse(SYS_write, EINTR)) return kNoFilter;
  OutputFile file;
  if (!file.open(path)) return kNotOpened;
  file.buffer() = "text";
  return !file.flush() && !file.error().empty() ? kGood : kFailed;
}

int allocate_interrupted(const char* path) {
  if (!refuse(SYS_fallocate, EINTR)) return kNoFilter;
  const std::string folder = std::filesystem::path(path).parent_path();
  const RecordedRun run(folder);
  return !run.opened && run.problem.find("Interrupted") != std::string::npos &&
                 std::filesystem::is_empty(folder)
             ? kGood
             : kFailed;
}

/// As on a server that returns only errors.
int close_without_fstat(const char* path) {
  const auto open_descriptors = [] {
    int count = 0;
    for (int number = 0; number < 1024; ++number) count += ::fcntl(number, F_GETFD) >= 0;
    return count;
  };
  const int before = open_descriptors();
  OutputFile file;
  file.open(path, OutputFile::Existing::kEmpty);
  if (!refuse(SYS_fstat, EIO) || !refuse(SYS_newfstatat, EIO)) return kNoFilter;
  file.buffer() = "all of it";
  if (!file.close()) return kFailed;
  return open_descriptors() == before ? kGood : kLeftOpen;
}

int close_without_statx(const char* path) {
  if (!refuse(SYS_statx, ENOSYS)) return kNoFilter;
  OutputFile file;
  file.open(path, OutputFile::Existing::kEmpty);
  file.buffer() = "all of it";
  return file.close() ? kGood : kFailed;
}

}  // namespace

TEST_CASE("a system that answers EINTR for ever holds nobody up", "[native]") {
  for (const auto test : {&ask_for_signals, &open_interrupted, &write_interrupted, &allocate_interrupted}) {
    const TemporaryFolder folder;
    if (!done_in_a_child(test, (folder.path() + "/file").c_str())) return;
  }
}

TEST_CASE("a file is written and closed although its server gives no attributes, or without statx",
          "[native]") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  for (const auto test : {&close_without_fstat, &close_without_statx}) {
    if (!done_in_a_child(test, path.c_str())) return;
    CHECK(std::filesystem::file_size(path) == 9);
    std::filesystem::remove(path);
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
