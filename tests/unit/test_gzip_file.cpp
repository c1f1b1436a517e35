// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/gzip_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>
#include <string>

#include "libinject/base/host_io.h"
#include "tests/unit/catch.h"
#include "tests/unit/gunzip.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

constexpr const char* kName = "events.gz";
constexpr const char* kTemporary = ".events.gz.new";

bool exists(const TemporaryFolder& folder, const std::string& name) {
  return ::access((folder.path() + "/" + name).c_str(), F_OK) == 0;
}

/// Incompressible text.
std::string noise(std::size_t bytes) {
  std::mt19937 random(7);
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(random());
  return text;
}

}  // namespace

TEST_CASE("A gzip file is whole whenever it stands under its name", "[output]") {
  const TemporaryFolder folder;
  GzipFile file;
  REQUIRE(file.open(folder.path(), kName));
  CHECK(file.add("one,"));
  CHECK_FALSE(exists(folder, kName));
  CHECK(file.complete("end"));
  CHECK(gunzip(folder.read(kName)) == "one,end");
  CHECK_FALSE(exists(folder, kTemporary));
  // Later text is inserted before the end.
  CHECK(file.add("two,"));
  CHECK_FALSE(exists(folder, kName));
  CHECK(file.add("three,"));
  CHECK(file.complete("last"));
  CHECK(gunzip(folder.read(kName)) == "one,two,three,last");
  // Nothing new was added.
  CHECK(file.complete("l"));
  CHECK(gunzip(folder.read(kName)) == "one,two,three,l");
  struct stat status {};
  REQUIRE(::stat((folder.path() + "/" + kName).c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("A gzip file of many parts, made whole again and again", "[output]") {
  const TemporaryFolder folder;
  const std::string some = noise(100'000);
  std::string expected;
  GzipFile file;
  REQUIRE(file.open(folder.path(), kName));
  for (int i = 0; i < 20; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    for (int k = 0; k < 1000; ++k) {
      REQUIRE(file.add(line));
      expected += line;
    }
    REQUIRE(file.add(some));
    expected += some;
    // The new end is sometimes longer than the next one.
    const std::string end = i % 3 == 0 ? noise(300'000) : "end";
    REQUIRE(file.complete(end));
    const bool same = gunzip(folder.read(kName)) == expected + end;
    CHECK(same);
  }
}

TEST_CASE("A gzip file that is not completed leaves nothing", "[output]") {
  const TemporaryFolder folder;
  {
    GzipFile file;
    REQUIRE(file.open(folder.path(), kName));
    CHECK(file.add("some"));
    CHECK(exists(folder, kTemporary));
  }
  CHECK_FALSE(exists(folder, kTemporary));
  CHECK_FALSE(exists(folder, kName));
  {
    GzipFile file;
    REQUIRE(file.open(folder.path(), kName));
    CHECK(file.complete("whole"));
  }
  CHECK(gunzip(folder.read(kName)) == "whole");
}

TEST_CASE("A gzip file leaves others of its name alone when its folder has been moved", "[output]") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/out";
  const bool complete_before = GENERATE(false, true);
  REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  GzipFile file;
  REQUIRE(file.open(path, kName));
  CHECK(file.add("one,"));
  if (complete_before) CHECK(file.complete("end"));
  REQUIRE(::rename(path.c_str(), (folder.path() + "/moved").c_str()) == 0);
  REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  folder.write(std::string("out/") + kName, "theirs");
  folder.write(std::string("out/") + kTemporary, "theirs too");
  CHECK_FALSE((file.add("two,") && file.complete("end")));
  CHECK(folder.read(std::string("out/") + kName) == "theirs");
  CHECK(folder.read(std::string("out/") + kTemporary) == "theirs too");
  CHECK(file.error().find("has been moved or removed") != std::string::npos);
}

TEST_CASE("A gzip file that can't be written goes, and says why once", "[output]") {
  {
    GzipFile file;
    CHECK_FALSE(file.open("/nonexistent", kName));
    CHECK(file.error().find("cannot create /nonexistent/.events.gz.new") == 0);
    CHECK_FALSE(file.add("text"));
    CHECK_FALSE(file.complete("end"));
  }
  const TemporaryFolder folder;
  GzipFile file;
  REQUIRE(file.open(folder.path(), kName));
  CHECK(file.add("text"));
  REQUIRE(file.complete("end"));
  {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const QuietSignals quiet;
    rlimit small = before;
    small.rlim_cur = 10'000;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    const std::string some = noise(200'000);
    while (file.add(some)) {
    }
    CHECK(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  }
  CHECK(file.error().find("cannot write ") == 0);
  CHECK_FALSE(file.is_open());
  CHECK_FALSE(file.complete("end"));
  CHECK_FALSE(exists(folder, kName));
  CHECK_FALSE(exists(folder, kTemporary));
}
