// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/shutdown/process_tree.h"
#include "libinject/shutdown/rank_barrier.h"
#include "tests/unit/catch.h"
#include "tests/unit/pid_namespace.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

EnvironmentLookup environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

bool descends(pid_t pid) {
  const Descendants all;
  return std::any_of(all.begin(), all.end(),
                     [pid](const ProcessInfo& process) { return process.pid == pid; });
}

template <typename Condition>
bool soon(Condition&& condition) {
  for (const Nanoseconds deadline = now() + 5'000 * kMillisecond; now() < deadline; usleep(1'000)) {
    if (condition()) return true;
  }
  return false;
}

bool empty(const std::string& folder) {
  DIR* entries = opendir(folder.c_str());
  REQUIRE(entries != nullptr);
  int count = 0;
  while (readdir(entries) != nullptr) ++count;
  closedir(entries);
  return count == 2;
}

}  // namespace

TEST_CASE("How many ranks a host has", "[shutdown]") {
  CHECK(ranks_of_this_host(environment({})) == 1);
  CHECK(ranks_of_this_host(environment({{"LOCAL_WORLD_SIZE", "8"}, {"SLURM_NTASKS_PER_NODE", "4"}})) == 8);
  CHECK(ranks_of_this_host(environment({{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})) == 2);
  CHECK(ranks_of_this_host(environment({{"MPI_LOCALNRANKS", "3"}})) == 3);
  CHECK(ranks_of_this_host(environment({{"SLURM_NTASKS_PER_NODE", "4"}})) == 4);
  for (const char* text : {"", "0", "-1", "many", "2x", "4(x2)", "99999999999", "1025"}) {
    CHECK(ranks_of_this_host(environment({{"LOCAL_WORLD_SIZE", text}})) == 1);
  }
}

TEST_CASE("A barrier is one launcher's, and one attempt's", "[shutdown]") {
  const std::string name = rank_barrier_name(environment({}));
  CHECK(name.rfind("ending-" + std::to_string(getppid()) + "-", 0) == 0);
  CHECK(name == rank_barrier_name(environment({{"TORCHELASTIC_RESTART_COUNT", "0"}})));
  CHECK(name != rank_barrier_name(environment({{"TORCHELASTIC_RESTART_COUNT", "1"}})));
  CHECK(rank_barrier_name(environment({{"TORCHELASTIC_RESTART_COUNT", "../../x"}})).find('/') ==
        std::string::npos);
}

TEST_CASE("Ranks wait for each other", "[shutdown]") {
  const TemporaryFolder temporary;
  const int folder = open(temporary.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(folder >= 0);
  std::vector<Nanoseconds> left(4);
  std::vector<std::thread> ranks;
  const Nanoseconds begin = now();
  for (std::size_t rank = 0; rank < left.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      usleep(static_cast<useconds_t>(40'000 * rank));
      if (wait_at_rank_barrier(folder, "ending-1", 4, 20'000 * kMillisecond)) left[rank] = now();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const Nanoseconds time : left) CHECK(time >= begin + 120 * kMillisecond);
  CHECK(empty(temporary.path()));

  // A process that nobody joins continues alone and leaves nothing for the next ones.
  const Nanoseconds alone = now();
  CHECK_FALSE(wait_at_rank_barrier(folder, "ending-1", 2, 50 * kMillisecond));
  CHECK(now() - alone >= 50 * kMillisecond);
  CHECK_FALSE(wait_at_rank_barrier(folder, "ending-1", 2, 0));
  CHECK(empty(temporary.path()));
  // Files left by a killed rank of an earlier run do not count.
  const std::string left_behind = temporary.path() + "/ending-1";
  for (const time_t age : {time_t{0}, time_t{60}}) {
    const int file = open(left_behind.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(file >= 0);
    REQUIRE(write(file, "x", 1) == 1);
    const timespec times[2] = {{time(nullptr) - age, 0}, {time(nullptr) - age, 0}};
    REQUIRE(futimens(file, times) == 0);
    close(file);
    CHECK(wait_at_rank_barrier(folder, "ending-1", 2, 50 * kMillisecond) == (age == 0));
    CHECK(empty(temporary.path()));
  }
  // A link is not followed.
  REQUIRE(symlink("/dev/null", (temporary.path() + "/ending-1").c_str()) == 0);
  CHECK_FALSE(wait_at_rank_barrier(folder, "ending-1", 1, 0));
  close(folder);
}

TEST_CASE("A process as /proc shows it", "[shutdown][native]") {
  ProcessInfo self;
  REQUIRE(read_process(getpid(), self));
  CHECK(self.pid == getpid());
  CHECK(self.parent == getppid());
  CHECK(self.session == getsid(0));
  CHECK(self.start != 0);
  CHECK(self.running);
  CHECK_FALSE(read_process(0x7ffffff0, self));
}

TEST_CASE("Descendants: children, theirs, none in a session of their own, none that has ended",
          "[shutdown]") {
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      for (;;) pause();
    }
    const pid_t apart = fork();
    if (apart == 0) {
      setsid();
      for (;;) pause();
    }
    while (getsid(apart) != apart) usleep(1'000);
    const pid_t both[2] = {grandchild, apart};
    _exit(write(ready[1], both, sizeof both) == sizeof both && pause() != 0);
  }
  REQUIRE(child > 0);
  pid_t theirs[2] = {0, 0};
  REQUIRE(read(ready[0], theirs, sizeof theirs) == sizeof theirs);
  CHECK(descends(child));
  CHECK(descends(theirs[0]));
  CHECK_FALSE(descends(theirs[1]));
  CHECK_FALSE(descends(getpid()));
  CHECK_FALSE(descends(getppid()));
  kill(theirs[0], SIGKILL);
  CHECK(soon([&] { return !descends(theirs[0]); }));
  kill(theirs[1], SIGKILL);
  kill(child, SIGKILL);
  // It has ended but has not been waited for.
  CHECK(soon([&] { return !descends(child); }));
  CHECK(waitpid(child, nullptr, 0) == child);
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("No process is ended where /proc has the numbers of another PID namespace", "[shutdown][native]") {
  const std::optional<int> status = in_pid_namespace([] {
    const pid_t child = fork();
    if (child == 0) {
      for (;;) pause();
    }
    const bool none = Descendants().size() == 0;
    const bool refused = !end_descendants();
    const bool lives = kill(child, 0) == 0 && waitpid(child, nullptr, WNOHANG) == 0;
    kill(child, SIGKILL);
    return none && refused && lives ? 0 : 1;
  });
  if (!status) {
    WARN("not tested: this user may not make PID namespaces");
    return;
  }
  CHECK(*status == 0);
}
