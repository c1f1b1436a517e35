// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "libinject/base/text.h"
#include "libinject/control/endpoint.h"
#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

std::string problem_of(const std::string& path, bool create) {
  std::string error;
  const int folder = open_control_folder(path, create, error);
  CHECK(folder == -1);
  if (folder >= 0) close(folder);
  return error;
}

int opened(const std::string& path) {
  std::string error;
  const int folder = open_control_folder(path, true, error);
  INFO(error);
  REQUIRE(folder > STDERR_FILENO);
  return folder;
}

}  // namespace

TEST_CASE("Folders for control sockets", "[control]") {
  using Folders = std::vector<std::string>;
  CHECK(control_folders(nullptr, 7) == Folders{"/run/user/7/libinject", "/tmp/libinject-7"});
  CHECK(control_folders("", 7) == Folders{"/run/user/7/libinject", "/tmp/libinject-7"});
  CHECK(control_folders("relative", 7) == Folders{"/run/user/7/libinject", "/tmp/libinject-7"});
  CHECK(control_folders("/run/user/7", 7) == Folders{"/run/user/7/libinject", "/tmp/libinject-7"});
  CHECK(control_folders("/job", 7) == Folders{"/job/libinject", "/run/user/7/libinject", "/tmp/libinject-7"});
}

TEST_CASE("A folder for control sockets is this user's alone", "[control]") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path() + "/libinject";
  CHECK(problem_of(path, false).empty());  // none exists, which is no problem
  close(opened(path));
  struct stat made {};
  REQUIRE(stat(path.c_str(), &made) == 0);
  CHECK((made.st_mode & 07777) == 0700);
  close(opened(path));  // left as it is

  for (const mode_t mode : {0701u, 0710u, 0740u, 0777u}) {
    REQUIRE(chmod(path.c_str(), mode) == 0);
    CHECK(problem_of(path, true) == path + " is open to other users");
  }
  const std::string link = temporary.path() + "/link";
  REQUIRE(chmod(path.c_str(), 0700) == 0);
  REQUIRE(symlink(path.c_str(), link.c_str()) == 0);
  CHECK(problem_of(link, true) == link + " is not a folder");
  const std::string file = temporary.path() + "/file";
  std::ofstream(file) << "text";
  CHECK(problem_of(file, true) == file + " is not a folder");
  CHECK(problem_of(temporary.path() + "/none/libinject", true).find("No such file") != std::string::npos);
  if (geteuid() == 0) {
    REQUIRE(chown(path.c_str(), 65534, 65534) == 0);
    CHECK(problem_of(path, true) == path + " belongs to another user");
  }
}

TEST_CASE("Control sockets of the living and of the dead", "[control]") {
  const TemporaryFolder temporary;
  const int folder = opened(temporary.path() + "/libinject");
  std::string error;
  const int first = listen_control_socket(folder, 11, error);
  const int second = listen_control_socket(folder, 22, error);
  REQUIRE(first > STDERR_FILENO);
  REQUIRE(second > STDERR_FILENO);
  CHECK(control_sockets(folder) == std::vector<pid_t>{11, 22});

  // A live socket is not replaced; a dead one is.
  CHECK(listen_control_socket(folder, 11, error) == -1);
  CHECK(error == "11.sock belongs to another process");
  close(first);
  int connection = -1;
  CHECK(connect_control_socket(folder, "11.sock", connection) == SocketState::kDead);
  const int again = listen_control_socket(folder, 11, error);
  REQUIRE(again >= 0);
  CHECK(connect_control_socket(folder, "11.sock", connection) == SocketState::kAlive);
  REQUIRE(connection >= 0);
  uid_t user = 0;
  pid_t pid = 0;
  CHECK(peer_of(connection, user, pid));
  CHECK(user == geteuid());
  CHECK(pid == getpid());
  close(connection);

  close(second);
  CHECK(control_sockets(folder) == std::vector<pid_t>{11});
  CHECK(connect_control_socket(folder, "22.sock", connection) == SocketState::kGone);
  CHECK(connection == -1);
  close(again);
  CHECK(control_sockets(folder).empty());
  close(folder);
}

TEST_CASE("A process that takes no more connections is alive", "[control]") {
  const TemporaryFolder temporary;
  const int folder = opened(temporary.path() + "/libinject");
  std::string error;
  const int listening = listen_control_socket(folder, 11, error);
  REQUIRE(listening >= 0);
  std::vector<int> connections;
  for (int i = 0; i < 40; ++i) {
    int connection = -1;
    CHECK(connect_control_socket(folder, "11.sock", connection) == SocketState::kAlive);
    if (connection >= 0) connections.push_back(connection);
  }
  CHECK(connections.size() < 40);
  CHECK(control_sockets(folder) == std::vector<pid_t>{11});
  for (const int connection : connections) close(connection);
  close(listening);
  close(folder);
}

TEST_CASE("What others say stays on its line", "[control]") {
  CHECK(one_line("plain text, äöü", 80) == "plain text, äöü");
  CHECK(one_line("a\nb\x1b[31m\x7f\t", 80) == "a?b?[31m??");
  CHECK(one_line("\xc2\x9b"
                 "31m",
                 80) == "\xc2?31m");
  CHECK(one_line("12345", 5) == "12345");
  CHECK(one_line("123456", 5) == "12345...");
}
