// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "libinject/journal/record_place.h"
#include "tests/unit/catch.h"

namespace {

using inject::recovery::pointer_text;
using inject::recovery::read_pointer;
using inject::recovery::RecordPointer;

const RecordPointer kPointer{"node 7", "/tmp/a folder/libinject-1/records-5-42", 42,
                             1'700'000'000'000'000'000};

}  // namespace

TEST_CASE("where the records are is read as it was written", "[recovery]") {
  const auto read = read_pointer(pointer_text(kPointer));
  REQUIRE(read);
  CHECK(read->host == kPointer.host);
  CHECK(read->path == kPointer.path);
  CHECK(read->pid == kPointer.pid);
  CHECK(read->base_utc == kPointer.base_utc);
}

TEST_CASE("what does not say where the records are is refused", "[recovery]") {
  const std::string good = pointer_text(kPointer);
  for (std::size_t length = 0; length < good.size(); ++length) {
    INFO(length);
    CHECK_FALSE(read_pointer(good.substr(0, length)));
  }
  CHECK_FALSE(read_pointer(good + "\n"));
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string changed = good;
    changed[at] = '\x01';
    INFO(at);
    CHECK_FALSE(read_pointer(changed));
  }
  RecordPointer relative = kPointer;
  relative.path = "tmp/records";
  CHECK_FALSE(read_pointer(pointer_text(relative)));
  RecordPointer two_lines = kPointer;
  two_lines.path = "/tmp/a\npath /etc/passwd";
  CHECK_FALSE(read_pointer(pointer_text(two_lines)));
}

TEST_CASE("records elsewhere are in a folder and have a name that libinject gives", "[recovery]") {
  using inject::recovery::is_local_path;
  RecordPointer pointer = kPointer;
  const std::string folder = "/tmp/libinject-7/";
  pointer.path = folder + inject::recovery::local_name(pointer.pid, pointer.base_utc);
  CHECK(is_local_path(pointer, 7));
  CHECK_FALSE(is_local_path(pointer, 0));
  const std::string name = pointer.path.substr(folder.size());
  for (const std::string& path :
       {name, "/" + name, "/tmp/" + name, "/tmp/xlibinject-7/" + name, folder + "x" + name,
        folder + name + "1", folder + "deeper/" + name, std::string("/etc/passwd")}) {
    INFO(path);
    pointer.path = path;
    CHECK_FALSE(is_local_path(pointer, 7));
  }
}

TEST_CASE("folders for records are this user's, each once, the user's own choice first", "[recovery]") {
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  const auto first_with = [](const char* value) {
    setenv("TMPDIR", value, 1);
    return inject::recovery::local_folders();
  };
  const std::string own = "/libinject-" + std::to_string(geteuid());
  CHECK(first_with("/scratch").front() == "/scratch" + own);
  const auto usual = first_with("/tmp");
  CHECK(usual.size() == 3);
  CHECK(usual.front() == "/tmp" + own);
  CHECK(usual.back() == "/dev/shm" + own);
  for (const char* unfit : {"", "relative", "/two\nlines"}) CHECK(first_with(unfit) == usual);
  if (before == nullptr) {
    unsetenv("TMPDIR");
  } else {
    setenv("TMPDIR", kept.c_str(), 1);
  }
}
