// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/atomic_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

TEST_CASE("A file appears whole when it is committed", "[output]") {
  const TemporaryFolder folder;
  {
    AtomicFile file(folder.path(), "a.csv");
    file.file().buffer() += "one,two\n";
    file.file().write_if_full();
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/a.csv"));
    CHECK(file.finish());
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/a.csv"));
    CHECK(file.commit());
    CHECK(file.error().empty());
  }
  CHECK(folder.read("a.csv") == "one,two\n");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("A file that is given up leaves its predecessor and nothing else", "[output]") {
  const TemporaryFolder folder;
  {
    AtomicFile first(folder.path(), "a.csv");
    first.file().buffer() += "first";
    REQUIRE((first.finish() && first.commit()));
    AtomicFile second(folder.path(), "a.csv");
    second.file().buffer() += "second";
    CHECK(second.finish());
    AtomicFile third(folder.path(), "b.csv");
    CHECK_FALSE(third.commit());
  }
  CHECK(folder.read("a.csv") == "first");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("A file that others may read, under a temporary name of its own", "[output]") {
  const TemporaryFolder folder;
  const mode_t mask = ::umask(077);
  AtomicFile file(folder.path(), "a.prom", ".mine");
  file.file().buffer() += "text";
  CHECK(file.file().let_others_read());
  CHECK(std::filesystem::exists(folder.path() + "/.mine"));
  CHECK((file.finish() && file.commit()));
  ::umask(mask);
  CHECK(folder.read("a.prom") == "text");
  struct stat found {};
  REQUIRE(::stat((folder.path() + "/a.prom").c_str(), &found) == 0);
  CHECK((found.st_mode & 07777) == 0644);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("Large files go through the buffer", "[output]") {
  const TemporaryFolder folder;
  std::string expected;
  AtomicFile file(folder.path(), "large");
  for (int i = 0; i < 100'000; ++i) {
    const std::string line = std::to_string(i) + "\n";
    expected += line;
    file.file().buffer() += line;
    file.file().write_if_full();
    REQUIRE(file.file().buffer().size() < 70'000);
  }
  CHECK(file.finish());
  CHECK(file.commit());
  CHECK(file.file().bytes() == expected.size());
  CHECK(folder.read("large") == expected);
}

TEST_CASE("A folder that is gone, a name that is taken", "[output]") {
  const TemporaryFolder folder;
  AtomicFile missing(folder.path() + "/gone", "a.csv");
  missing.file().buffer() += std::string(1 << 20, 'x');
  missing.file().write_if_full();
  CHECK(missing.file().buffer().empty());
  CHECK_FALSE(missing.finish());
  CHECK_FALSE(missing.commit());
  CHECK(missing.error() == "cannot create " + folder.path() + "/gone/.a.csv.new: No such file or directory");

  std::filesystem::create_directories(folder.path() + "/b.csv/inside");
  AtomicFile taken(folder.path(), "b.csv");
  CHECK(taken.finish());
  CHECK_FALSE(taken.commit());
  CHECK(taken.error().find("in place") != std::string::npos);

  OutputFile exclusive;
  CHECK(exclusive.open(folder.path() + "/c", OutputFile::Existing::kRefuse));
  OutputFile again;
  CHECK_FALSE(again.open(folder.path() + "/c", OutputFile::Existing::kRefuse));
  CHECK(again.error().find("File exists") != std::string::npos);
}

TEST_CASE("A full device is an error that names it", "[output]") {
  OutputFile full;
  if (!full.open("/dev/full")) return;  // not available everywhere
  full.buffer() += "text";
  CHECK_FALSE(full.flush());
  CHECK(full.error() == "cannot write /dev/full: No space left on device");
  full.buffer() += "more";
  CHECK_FALSE(full.flush());
  CHECK_FALSE(full.close());
}

TEST_CASE("The file size limit is an error where signals are blocked", "[output]") {
  const TemporaryFolder folder;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  std::string error;
  std::thread writer([&] {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    const rlimit small{4096, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    AtomicFile file(folder.path(), "a.csv");
    file.file().buffer() += std::string(100'000, 'x');
    if (!file.finish()) error = file.error();
    ::setrlimit(RLIMIT_FSIZE, &before);
  });
  writer.join();
  CHECK(error.find("File too large") != std::string::npos);
  CHECK(std::filesystem::is_empty(folder.path()));
}
