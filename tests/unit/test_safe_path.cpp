// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/safe_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "libinject/base/atomic_file.h"
#include "libinject/base/out_path.h"
#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

constexpr uid_t kAnother = 65534;

std::string problem_above(const std::string& path) {
  return ParentFolder(path).problem();
}

/// Opens the file for writing; returns "" or the reason why not.
std::string problem_of(const std::string& path, int flags = O_APPEND) {
  std::string problem;
  const int file = open_output(path, flags, problem);
  CHECK((file > STDERR_FILENO) == problem.empty());
  if (file >= 0) close(file);
  return problem;
}

mode_t mode_of(const std::string& path) {
  struct stat found {};
  REQUIRE(lstat(path.c_str(), &found) == 0);
  return found.st_mode & 07777;
}

std::string made(const std::string& path, mode_t mode) {
  REQUIRE(mkdir(path.c_str(), 0700) == 0);
  REQUIRE(chmod(path.c_str(), mode) == 0);
  return path;
}

void give_away(const std::string& path) {
  REQUIRE(lchown(path.c_str(), kAnother, kAnother) == 0);
}

/// Whether other users can be simulated here.
bool root() {
  if (geteuid() == 0) return true;
  WARN("only root can give files to another user");
  return false;
}

}  // namespace

TEST_CASE("Files and folders are this user's alone", "[safe_path]") {
  const TemporaryFolder folder;
  const mode_t before = umask(0);
  const PathResult made = make_unique_folder(folder.path() + "/above/out");
  CHECK(problem_of(made.path + "/file").empty());
  AtomicFile file(made.path, "a.csv");
  CHECK((file.finish() && file.commit()));
  umask(before);
  CHECK(mode_of(folder.path() + "/above") == 0700);
  CHECK(mode_of(made.path) == 0700);
  CHECK(mode_of(made.path + "/file") == 0600);
  CHECK(mode_of(made.path + "/a.csv") == 0600);
}

TEST_CASE("Links of this user's are followed to where they lead", "[safe_path]") {
  const TemporaryFolder folder;
  const std::string& top = folder.path();
  made(top + "/real", 0700);
  made(top + "/real/deep", 0700);
  REQUIRE(symlink("real/deep", (top + "/relative").c_str()) == 0);
  REQUIRE(symlink((top + "/relative/..").c_str(), (top + "/absolute").c_str()) == 0);
  CHECK(problem_of(top + "/absolute//./deep/../deep/file").empty());
  CHECK(folder.read("real/deep/file").empty());
  CHECK(access((top + "/real/deep/file").c_str(), F_OK) == 0);
  CHECK(make_unique_folder(top + "/relative/out").path == top + "/relative/out");
  CHECK(mode_of(top + "/real/deep/out") == 0700);

  REQUIRE(symlink("loop", (top + "/loop").c_str()) == 0);
  CHECK(problem_above(top + "/loop/file") == "Too many levels of symbolic links");
  REQUIRE(symlink("nowhere", (top + "/dangling").c_str()) == 0);
  CHECK(problem_above(top + "/dangling/file") == "No such file or directory");
  std::ofstream(top + "/plain") << "x";
  CHECK(problem_above(top + "/plain/file") == "Not a directory");
  // The file itself is never a link.
  REQUIRE(symlink("plain", (top + "/link").c_str()) == 0);
  CHECK(problem_of(top + "/link") == "it is a link");
  CHECK(folder.read("plain") == "x");
}

TEST_CASE("Another user's link is not followed", "[safe_path]") {
  if (!root()) return;
  const TemporaryFolder folder;
  const std::string& top = folder.path();
  made(top + "/mine", 0700);
  const std::string link = top + "/link";
  REQUIRE(symlink("mine", link.c_str()) == 0);
  CHECK(problem_of(link + "/file").empty());
  give_away(link);
  const std::string problem = link + " is a link that another user has made";
  CHECK(problem_of(link + "/file") == problem);
  CHECK(make_unique_folder(link + "/out").error == "cannot create " + link + "/out: " + problem);
  // Nor a path that contains a link of one's own.
  REQUIRE(symlink("link", (top + "/own").c_str()) == 0);
  CHECK(problem_of(top + "/own/file") == problem);
  CHECK(make_unique_folder(link).path == link + ".1");
}

TEST_CASE("Another user's folder in one like /tmp is not entered", "[safe_path]") {
  if (!root()) return;
  const TemporaryFolder folder;
  const std::string shared = made(folder.path() + "/shared", 01777);
  made(shared + "/results", 0777);
  CHECK(problem_of(shared + "/results/file").empty());
  give_away(shared + "/results");
  const std::string problem =
      shared + "/results belongs to another user, in a folder that everybody may write to";
  CHECK(problem_of(shared + "/results/other") == problem);
  CHECK(make_unique_folder(shared + "/results/a/b").error ==
        "cannot create " + shared + "/results/a/b: " + problem);
  CHECK(make_unique_folder(shared + "/results").path == shared + "/results.1");
  // A group's folder within a folder that only its owner can write to is none of these.
  REQUIRE(chmod(shared.c_str(), 0755) == 0);
  CHECK(problem_of(shared + "/results/other").empty());
}

TEST_CASE("Files that others have prepared in a shared folder are left alone", "[safe_path]") {
  if (!root()) return;
  const TemporaryFolder folder;
  const std::string shared = made(folder.path() + "/shared", 01777);
  const std::string file = shared + "/log";
  std::ofstream(file) << "theirs";
  CHECK(problem_of(file).empty());
  give_away(file);
  CHECK(problem_of(file) == "it belongs to another user");
  CHECK(problem_of(file, O_TRUNC) == "it belongs to another user");
  CHECK(folder.read("shared/log") == "theirs");

  std::ofstream(folder.path() + "/precious") << "mine";
  REQUIRE(link((folder.path() + "/precious").c_str(), (shared + "/second").c_str()) == 0);
  const std::string not_plain =
      "it is not a regular file, or has other hard links, in a folder that others may write to";
  CHECK(problem_of(shared + "/second", O_TRUNC) == not_plain);
  CHECK(folder.read("precious") == "mine");
  CHECK(problem_of(shared + "/second", O_EXCL) == "File exists");

  // A file in the place of a table is replaced, not written to.
  REQUIRE(link((folder.path() + "/precious").c_str(), (shared + "/.a.csv.new").c_str()) == 0);
  AtomicFile table(shared, "a.csv");
  table.file().buffer() += "table";
  CHECK((table.finish() && table.commit()));
  CHECK(folder.read("precious") == "mine");
  CHECK(folder.read("shared/a.csv") == "table");
}

TEST_CASE("A pipe that nobody reads is not waited for", "[safe_path]") {
  const TemporaryFolder folder;
  const std::string pipe = folder.path() + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(problem_of(pipe) == "No such device or address");
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  CHECK(problem_of(pipe).empty());
  // In a folder that belongs to others it is a trap.
  REQUIRE(chmod(folder.path().c_str(), 0777) == 0);
  CHECK(problem_of(pipe) ==
        "it is not a regular file, or has other hard links, in a folder that others may write to");
  close(reader);
  OutputFile table;
  CHECK(table.open(pipe, OutputFile::Existing::kReplace));
}
