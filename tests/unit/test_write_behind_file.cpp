// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/write_behind_file.h"

#include <sys/resource.h>

#include <string>
#include <thread>
#include <vector>

#include "libinject/base/host_io.h"
#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

constexpr auto kNew = OutputFile::Existing::kRefuse;

/// A queue whose jobs run when the test says so.
struct Queued {
  Queued() {
    file.write_behind(&queue);
    REQUIRE(file.open(folder.path() + "/rows", kNew));
  }
  void row(const std::string& text) {
    file.buffer() += text + "\n";
    file.end_row();
  }
  std::string written() const { return folder.read("rows"); }

  TemporaryFolder folder;
  int woken = 0;
  FileQueue queue{[this] {
    ++woken;
    return true;
  }};
  WriteBehindFile file;
};

/// Limits the size of this process's files during its lifetime.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit{bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  const QuietSignals quiet_;
  rlimit before_{};
};

}  // namespace

TEST_CASE("a file without a queue is written at once", "[output]") {
  const TemporaryFolder folder;
  WriteBehindFile file;
  CHECK_FALSE(file.is_open());
  REQUIRE(file.open(folder.path() + "/rows", kNew));
  file.buffer() += "one\n";
  CHECK(file.flush());
  CHECK(folder.read("rows") == "one\n");
  CHECK(file.bytes() == 4);
  CHECK(file.cut(0));
  file.buffer() += "two\n";
  CHECK(file.flush());
  CHECK(folder.read("rows") == "two\n");
  WriteBehindFile other;
  CHECK_FALSE(other.open(folder.path() + "/rows", kNew));
  CHECK_FALSE(other.is_open());
  CHECK(other.error().find("cannot create") == 0);
}

TEST_CASE_METHOD(Queued, "a file's rows and steps are done in order, by whoever runs the queue", "[output]") {
  std::vector<std::string> seen;
  row("one");
  CHECK(file.flush());
  file.then([&](OutputFile&) { seen.push_back(written()); });
  row("two");
  file.then([&](OutputFile& one) {
    seen.push_back(written());
    one.cut(0);
  });
  row("three");
  CHECK(file.flush());
  CHECK(written().empty());
  CHECK(woken == 5);
  CHECK(file.bytes() == 14);
  std::thread([this] { queue.run(); }).join();
  CHECK(seen == std::vector<std::string>{"one\n", "one\ntwo\n"});
  CHECK(written() == "three\n");
  CHECK(file.rows_lost() == 0);
  queue.run();  // nothing more to write
  CHECK(written() == "three\n");
}

TEST_CASE_METHOD(Queued, "rows that a file does not take are counted, then and later", "[output]") {
  {
    const FileSizeLimit limit(6);
    row("one");
    file.flush();
    row("two");
    row("three");
    CHECK(file.flush());  // not known yet
    row("four");
    file.flush();
    queue.run();
  }
  CHECK(file.failed());
  CHECK_FALSE(file.is_open());
  CHECK(file.rows_lost() == 3);
  CHECK(file.error().find("cannot write") == 0);
  CHECK(written() == "one\n");
  row("five");
  CHECK_FALSE(file.flush());
  CHECK(file.rows_lost() == 4);
  bool done = false;
  CHECK_FALSE(file.then([&](OutputFile&) { done = true; }));
  queue.run();
  CHECK(done);
}

TEST_CASE_METHOD(Queued, "a queue says when so much waits that something should be left out", "[output]") {
  CHECK(file.has_room());
  const std::string text(1 << 20, 'x');
  for (std::size_t bytes = 0; bytes < FileQueue::kMaxBytes; bytes += text.size()) row(text);
  CHECK_FALSE(file.has_room());
  queue.run();
  CHECK(file.has_room());
  CHECK(written().size() >= FileQueue::kMaxBytes);
}

TEST_CASE_METHOD(Queued, "where there is time for it, a file waits rather than that rows are left out",
                 "[output]") {
  row(std::string(FileQueue::kMaxBytes, 'x'));
  CHECK_FALSE(file.has_room());
  queue.be_patient();
  CHECK(file.has_room());
  CHECK(written().size() > FileQueue::kMaxBytes);
}

TEST_CASE_METHOD(Queued, "a file that is closed takes no more, and what comes is counted by who adds it",
                 "[output]") {
  row("one");
  CHECK(file.close());
  CHECK_FALSE(file.is_open());
  CHECK(file.was_opened());
  row("two");
  CHECK_FALSE(file.flush());
  queue.run();
  CHECK(written() == "one\n");
  CHECK(file.rows_lost() == 1);
}

TEST_CASE("where no thread can be started a file is written by its own", "[output]") {
  const TemporaryFolder folder;
  FileQueue queue([] { return false; });
  WriteBehindFile file;
  file.write_behind(&queue);
  REQUIRE(file.open(folder.path() + "/rows", kNew));
  file.buffer() += "one\n";
  CHECK(file.flush());
  CHECK(folder.read("rows") == "one\n");
}

TEST_CASE("what follows a job does not keep others from theirs", "[output]") {
  FileQueue queue([] { return true; });
  std::vector<std::string> done;
  CHECK(queue.add(
      0, [&] { done.emplace_back("first"); },
      [&] {
        std::thread([&] { const auto finished = queue.finish(); }).join();  // runs the second job
        done.emplace_back("after the first");
      }));
  CHECK(queue.add(
      0, [&] { done.emplace_back("second"); }, [&] { done.emplace_back("after the second"); }));
  queue.run();
  CHECK(done == std::vector<std::string>{"first", "second", "after the first"});
}

TEST_CASE("the rest of a queue's jobs can be done, or kept from being done", "[output]") {
  int done = 0;
  FileQueue queue([] { return false; });
  CHECK_FALSE(queue.add(0, [&] { ++done; }));
  {
    const auto stopped = queue.stop();
    std::thread([&] { CHECK_FALSE(queue.add(0, [&] { ++done; })); }).join();
    CHECK(done == 0);
  }
  const auto finished = queue.finish();
  CHECK(done == 2);
}
