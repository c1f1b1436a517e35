// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/host_io.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

enum Outcome : int { kGood, kNotOpened, kStandardNumber, kWritten, kLeftOpen, kErrno };

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

}  // namespace

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
