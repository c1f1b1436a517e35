// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Host resources that threads and child processes use: readings of trees like /proc, their sums, the budget.
#include <unistd.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "libinject/analysis/input_cause.h"
#include "libinject/session/host_reader.h"
#include "libinject/session/host_source.h"
#include "libinject/session/host_tally.h"
#include "tests/unit/catch.h"
#include "tests/unit/folder_tree.h"

using namespace inject;

namespace {

constexpr pid_t kProcess = 100;

std::map<pid_t, std::uint64_t> clocks;
rusage own_usage;
rusage children_usage;

std::optional<std::uint64_t> fake_clock(pid_t task) {
  const auto found = clocks.find(task);
  return found == clocks.end() ? std::nullopt : std::optional(found->second);
}
bool fake_usage(int who, rusage& usage) {
  usage = who == RUSAGE_SELF ? own_usage : children_usage;
  return true;
}

struct FakeTask {
  std::string name = "python3";
  char state = 'S';
  pid_t parent = 1;
  std::uint64_t minor = 1;
  std::uint64_t major = 0;
  std::uint64_t children_ticks = 0;
  std::uint64_t threads = 1;
  std::uint64_t start = 5;
  std::uint64_t wait = 0;
  std::uint64_t voluntary = 0;
  std::uint64_t involuntary = 0;
  std::uint64_t bytes = 0;
  bool ignores_children = false;
};

struct FakeProc {
  FolderTree tree;

  FakeProc() {
    clocks.clear();
    own_usage = children_usage = {};
  }
  void write(const std::string& folder, pid_t id, const FakeTask& task) const {
    const auto n = [](std::uint64_t number) { return std::to_string(number); };
    tree.file(folder + "/stat", n(static_cast<std::uint64_t>(id)) + " (" + task.name + ") " + task.state +
                                    " " + std::to_string(task.parent) + " 1 1 0 -1 0 " + n(task.minor) +
                                    " 0 " + n(task.major) + " 0 0 0 " + n(task.children_ticks) + " 0 20 0 " +
                                    n(task.threads) + " 0 " + n(task.start) + " 0 0\n");
    tree.file(folder + "/schedstat", "1 " + n(task.wait) + " 3\n");
    const char* const ignored = task.ignores_children ? "\nSigIgn:\t0000000000010000" : "";
    tree.file(folder + "/status", "Name:\t" + task.name + ignored + "\nvoluntary_ctxt_switches:\t" +
                                      n(task.voluntary) + "\nnonvoluntary_ctxt_switches:\t" +
                                      n(task.involuntary) + "\n");
    tree.file(folder + "/io", "rchar: 1\nread_bytes: " + n(task.bytes) + "\nwrite_bytes: 0\n");
  }
  static std::string of(pid_t id) { return std::to_string(id); }
  void thread(pid_t process, pid_t id, const FakeTask& task, std::uint64_t time = 0) const {
    write(of(process) + "/task/" + of(id), id, task);
    if (process == kProcess) clocks[id] = time;
    if (id != process) return;
    write(of(process), id, task);
    clocks[process] = time;
  }
  HostReading read() {
    HostReading reading;
    REQUIRE(source.read(reading));
    return reading;
  }
  HostSource source{tree.path(), kProcess, {&fake_clock, &fake_clock, &fake_usage}};
};

const HostRoleUse* row_of(const HostWindow& window, HostRole role) {
  for (const HostRoleUse& row : window.roles)
    if (row.role == role) return &row;
  return nullptr;
}

std::uint64_t amount(const HostWindow& window, HostRole role, HostAmount which) {
  const HostRoleUse* row = row_of(window, role);
  REQUIRE(row != nullptr);
  REQUIRE(row->use.of(which));
  return *row->use.of(which);
}

HostUse use(std::uint64_t value) {
  HostUse all;
  all.amounts.fill(value);
  return all;
}

/// `start`: not before any reading.
HostTask task(pid_t id, HostRole role, std::uint64_t value, std::uint64_t start = 1'000) {
  HostTask one;
  one.id = id;
  one.start = start;
  one.role = role;
  one.use = use(value);
  one.ended_children = use(0);
  return one;
}

HostReading reading_at(Nanoseconds time, std::uint64_t process, std::vector<HostTask> threads,
                       std::vector<HostTask> children = {}, std::uint64_t ended = 0) {
  HostReading reading;
  reading.begin = time - 10;
  reading.time = time;
  reading.ticks = 1'000;
  reading.process = use(process);
  reading.ended_children = use(ended);
  reading.threads = std::move(threads);
  reading.children = std::move(children);
  return reading;
}

}  // namespace

TEST_CASE("Threads have roles by their names", "[host]") {
  const std::pair<const char*, HostRole> kNames[] = {{"pt_autograd_0", HostRole::kAutograd},
                                                     {"NCCL Progress 1", HostRole::kNccl},
                                                     {"pt_nccl_watchdg", HostRole::kNccl},
                                                     {"pt_data_pin", HostRole::kPinMemory},
                                                     {"Thread-1 (_pin_", HostRole::kPinMemory},
                                                     {"Thread-1 (worke", HostRole::kOtherThread},
                                                     {"libinject", HostRole::kOurs},
                                                     {"cuda-EvtHandlr", HostRole::kDriver},
                                                     {"cuda00001400006", HostRole::kDriver},
                                                     {"cudamaker", HostRole::kOtherThread},
                                                     {"cuda", HostRole::kOtherThread},
                                                     {"", HostRole::kOtherThread}};
  for (const auto& [name, role] : kNames) {
    CHECK(thread_role(name, false) == role);
    CHECK(thread_role(name, true) == HostRole::kMain);
  }
}

TEST_CASE("Threads and children of a tree like /proc, with and without a list of children", "[host]") {
  const bool listed = GENERATE(false, true);
  FakeProc proc;
  proc.thread(kProcess, kProcess, {.minor = 70, .threads = 2, .wait = 5, .voluntary = 8, .bytes = 4096},
              1'000);
  own_usage.ru_inblock = 7;
  proc.thread(kProcess, 101, {.name = "pt_autograd_0", .minor = 3, .wait = 6}, 400);
  // A loader's worker and its child, a child that uses CUDA, one that runs another program, and unrelated
  // processes.
  proc.thread(200, 200, {.parent = kProcess, .threads = 2, .wait = 30, .voluntary = 2, .bytes = 9'216},
              9'000);
  proc.thread(200, 201, {.name = "feeder", .parent = kProcess, .wait = 12, .voluntary = 3});
  proc.thread(300, 300, {.name = "ffmpeg (a) b", .parent = 200, .children_ticks = 7, .bytes = 512}, 50);
  proc.thread(400, 400, {.parent = kProcess, .threads = 2}, 60);
  proc.thread(400, 401, {.name = "cuda-EvtHandlr", .parent = kProcess});
  proc.thread(500, 500, {.name = "torch_shm", .parent = kProcess}, 70);
  proc.thread(600, 600, {.parent = 1}, 80);
  proc.thread(700, 700, {.parent = 600}, 90);
  if (listed) {
    proc.tree.file("100/task/100/children", "200 400 500 ");
    proc.tree.file("100/task/101/children", "");
    proc.tree.file("200/task/200/children", "");
    proc.tree.file("200/task/201/children", "300 ");
  }
  const HostReading reading = proc.read();
  REQUIRE(reading.threads.size() == 2);
  std::map<pid_t, HostTask> tasks;
  for (const HostTask& one : reading.threads) tasks[one.id] = one;
  for (const HostTask& one : reading.children) tasks[one.id] = one;
  REQUIRE(tasks.size() == 6);
  CHECK(tasks[100].role == HostRole::kMain);
  CHECK(tasks[101].role == HostRole::kAutograd);
  CHECK(tasks[200].role == HostRole::kLoaderWorker);
  CHECK(tasks[300].role == HostRole::kOtherChild);
  CHECK(tasks[400].role == HostRole::kCudaChild);
  CHECK(tasks[500].role == HostRole::kOtherChild);
  CHECK(tasks[200].ended_children == use(0));
  CHECK(tasks[300].ended_children.of(HostAmount::kProcessorTime) == 7 * kernel_tick());
  CHECK_FALSE(tasks[300].ended_children.of(HostAmount::kVoluntarySwitches));
  CHECK(tasks[100].use.of(HostAmount::kProcessorTime) == 1'000u);
  CHECK(tasks[100].use.of(HostAmount::kMinorFaults) == 70u);
  CHECK(tasks[100].use.of(HostAmount::kReadBytes) == 4096u);
  // Summed over all threads of a child.
  CHECK(tasks[200].use.of(HostAmount::kRunQueueWait) == 42u);
  CHECK(tasks[200].use.of(HostAmount::kVoluntarySwitches) == 5u);
  CHECK(tasks[200].use.of(HostAmount::kProcessorTime) == 9'000u);
  CHECK(reading.process.of(HostAmount::kRunQueueWait) == 11u);
  // The io of a process includes what children read that it has waited for.
  CHECK(reading.process.of(HostAmount::kReadBytes) == 7u * 512);
  CHECK(tasks[200].use.of(HostAmount::kReadBytes) == 9'216u);
  CHECK_FALSE(tasks[300].use.of(HostAmount::kReadBytes));
  CHECK(proc.source.state_of(200, 5) == 'S');
  CHECK(proc.source.state_of(200, 6) == 0);  // another thread with the same id
  CHECK(proc.source.state_of(900, 5) == 0);
}

TEST_CASE("A worker is at work if any of its threads is", "[host]") {
  FakeProc proc;
  const auto states = [&proc](const char* of_threads, std::uint64_t threads) {
    pid_t id = 200;
    for (const char* state = of_threads; *state != 0; ++state, ++id)
      proc.thread(200, id, {.state = *state, .parent = kProcess, .threads = threads});
    return proc.source.state_of(200, 5);
  };
  CHECK(states("SRS", 3) == 'R');
  CHECK(states("DSR", 3) == 'R');
  CHECK(states("SDS", 3) == 'D');
  CHECK(states("RSS", 3) == 'R');
  CHECK(states("SSS", 3) == 'S');
  CHECK(states("ZSS", 3) == 0);
  // More than are looked at.
  CHECK(states("SSS", HostSource::kMostThreads + 1) == 'R');
}

TEST_CASE("What multiprocessing runs beside its workers is no worker", "[host]") {
  FakeProc proc;
  const auto child = [&proc](pid_t id, pid_t parent, const char* code, const char* name = "python3") {
    proc.thread(id, id, {.name = name, .parent = parent}, 10);
    proc.tree.file(FakeProc::of(id) + "/cmdline", std::string("/usr/bin/python3\0-c\0", 20) + code + '\0');
  };
  proc.thread(kProcess, kProcess, {}, 10);
  const char* tracker = "from multiprocessing.resource_tracker import main;main(5)";
  const char* server = "from multiprocessing.forkserver import main; main(8, 9, ['__main__'])";
  child(200, kProcess, tracker);
  child(300, kProcess, server);
  child(301, 300, server);
  child(302, 300, server, "pt_data_worker");
  child(400, kProcess, "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)");
  // A worker has a fork server of its own.
  child(401, 400, server);
  child(402, 401, server);
  std::map<pid_t, HostRole> roles;
  for (const HostTask& one : proc.read().children) roles[one.id] = one.role;
  using enum HostRole;
  CHECK(roles == std::map<pid_t, HostRole>{{200, kOtherChild},
                                           {300, kOtherChild},
                                           {301, kLoaderWorker},
                                           {302, kLoaderWorker},
                                           {400, kLoaderWorker},
                                           {401, kOtherChild},
                                           {402, kLoaderWorker}});
}

TEST_CASE("The numbers of another /proc are another process's", "[host]") {
  CHECK(HostSource().is_own());
  FakeProc proc;
  CHECK_FALSE(proc.source.is_own());
  for (const char* target : {"1000", "10", "x", "100"}) {
    proc.tree.remove("self");
    std::filesystem::create_symlink(target, proc.tree.path() + "/self");
    CHECK(proc.source.is_own() == (std::string_view(target) == "100"));
  }
}

TEST_CASE("What can't be read is left empty, and what has gone is left out", "[host]") {
  FakeProc proc;
  proc.thread(kProcess, kProcess, {}, 10);
  proc.thread(kProcess, 101, {}, 20);
  proc.thread(200, 200, {.parent = kProcess, .bytes = 9}, 30);
  proc.thread(300, 300, {.parent = kProcess}, 40);
  proc.tree.remove("200/io");
  proc.tree.remove("100/io");
  proc.tree.remove("100/task/101/schedstat");
  proc.tree.remove("300/task/300");  // it ends between reading one file and the next
  clocks.erase(200);
  const HostReading reading = proc.read();
  REQUIRE(reading.threads.size() == 2);
  const HostTask& thread = reading.threads[reading.threads[0].id == 101 ? 0 : 1];
  CHECK_FALSE(thread.use.of(HostAmount::kRunQueueWait));
  CHECK(thread.use.of(HostAmount::kVoluntarySwitches) == 0u);
  REQUIRE(reading.children.size() == 1);
  const HostTask& child = reading.children[0];
  CHECK(child.id == 200);
  CHECK_FALSE(child.use.of(HostAmount::kReadBytes));
  CHECK_FALSE(child.use.of(HostAmount::kProcessorTime));
  CHECK(child.use.of(HostAmount::kRunQueueWait) == 0u);
  // So the process's sum is unknown as well.
  CHECK_FALSE(reading.process.of(HostAmount::kRunQueueWait));
  CHECK_FALSE(reading.process.of(HostAmount::kReadBytes));
  CHECK_FALSE(reading.ended_children.of(HostAmount::kReadBytes));
}

TEST_CASE("Threads and children beyond the bounds are counted", "[host]") {
  FakeProc proc;
  proc.thread(kProcess, kProcess, {}, 10);
  for (pid_t id = 1'000; id < 1'000 + static_cast<pid_t>(HostSource::kMaxThreads) + 5; ++id)
    proc.thread(kProcess, id, {}, 1);
  for (pid_t id = 5'000; id < 5'000 + static_cast<pid_t>(HostSource::kMaxChildren) + 7; ++id)
    proc.thread(id, id, {.parent = kProcess}, 1);
  const HostReading reading = proc.read();
  CHECK(reading.threads.size() == HostSource::kMaxThreads);
  CHECK(reading.threads_beyond == 6);
  CHECK_FALSE(reading.process.of(HostAmount::kRunQueueWait));
  CHECK(reading.children.size() == HostSource::kMaxChildren);
  CHECK(reading.children_beyond == 7);
}

TEST_CASE("Children of a child's and of the process's last threads", "[host]") {
  FakeProc proc;
  proc.thread(kProcess, kProcess, {}, 10);
  proc.thread(200, 200, {.parent = kProcess}, 30);
  proc.thread(300, 300, {.parent = 200}, 40);
  proc.tree.file("100/task/100/children", "");
  // A thread that is not read itself.
  proc.tree.file("100/task/101/children", "200 ");
  for (int id = 1'000; id < 1'100; ++id) proc.tree.file("200/task/" + std::to_string(id) + "/children", "");
  proc.tree.file("200/task/1100/children", "300 ");
  const HostReading reading = proc.read();
  CHECK(reading.threads.size() == 1);
  CHECK(reading.children_beyond == 0);
  REQUIRE(reading.children.size() == 2);
  CHECK((reading.children[0].id == 200 && reading.children[0].parent == 0));
  CHECK((reading.children[1].id == 300 && reading.children[1].parent == 200));
}

TEST_CASE("A child that the kernel's list leaves out is found if it was there before", "[host]") {
  FakeProc proc;
  proc.thread(kProcess, kProcess, {}, 10);
  const auto list = [&](const char* children) { proc.tree.file("100/task/100/children", children); };
  list("200 300 400 ");
  proc.thread(200, 200, {.parent = kProcess}, 1);
  proc.thread(300, 300, {.parent = kProcess}, 1);
  proc.thread(400, 400, {.parent = kProcess}, 1);
  CHECK(proc.read().children.size() == 3);
  // Another is no longer its child, and the number of the third has been reused.
  list("");
  proc.thread(300, 300, {.parent = 1}, 1);
  proc.thread(400, 400, {.parent = kProcess, .start = 6}, 1);
  const HostReading reading = proc.read();
  REQUIRE(reading.children.size() == 1);
  CHECK(reading.children[0].id == 200);
}

TEST_CASE("A child that ignores its own children's ends", "[host]") {
  FakeProc proc;
  proc.thread(kProcess, kProcess, {}, 10);
  proc.thread(200, 200, {.parent = kProcess, .ignores_children = true}, 30);
  proc.thread(300, 300, {.parent = kProcess}, 30);
  for (const HostTask& child : proc.read().children) CHECK(child.drops_children == (child.id == 200));
}

TEST_CASE("A window has what was taken between its readings, by role", "[host]") {
  HostTally tally;
  tally.add(reading_at(1'000, 500, {task(1, HostRole::kMain, 300), task(2, HostRole::kOtherThread, 100)},
                       {task(7, HostRole::kLoaderWorker, 50)}));
  const HostTally::Mark open = tally.latest();
  // The second thread ends and two others begin; the worker continues, and one with a reused id begins.
  tally.add(reading_at(
      2'000, 900,
      {task(1, HostRole::kMain, 450), task(3, HostRole::kAutograd, 40), task(4, HostRole::kOtherThread, 5)},
      {task(7, HostRole::kLoaderWorker, 80), task(8, HostRole::kOtherChild, 11)}));
  // The ended thread's id was reused.
  tally.add(reading_at(3'000, 1'000,
                       {task(1, HostRole::kMain, 460), task(3, HostRole::kAutograd, 60),
                        task(2, HostRole::kOtherThread, 7, 1'099)},
                       {task(7, HostRole::kLoaderWorker, 81)}, 20));
  const HostWindow window = HostTally::window(open, tally.latest());
  CHECK(window.begin == 1'000);
  CHECK(window.end == 3'000);
  CHECK(window.reading == 20);
  const auto time = [&](HostRole role) { return amount(window, role, HostAmount::kProcessorTime); };
  CHECK(time(HostRole::kMain) == 160);
  CHECK(time(HostRole::kAutograd) == 60);
  CHECK(time(HostRole::kOtherThread) == 12);
  CHECK(time(HostRole::kProcess) == 500);
  CHECK(time(HostRole::kRest) == 500 - 160 - 60 - 12);
  CHECK(time(HostRole::kLoaderWorker) == 31);
  CHECK(time(HostRole::kOtherChild) == 11);
  CHECK(time(HostRole::kEndedChildren) == 20 - 11);
  CHECK(row_of(window, HostRole::kMain)->count == 1);
  CHECK(row_of(window, HostRole::kOtherThread)->count == 3);
  CHECK(row_of(window, HostRole::kRest)->count == 2);
  CHECK(row_of(window, HostRole::kEndedChildren)->count == 1);
  CHECK(row_of(window, HostRole::kProcess)->count == 5);
  CHECK(row_of(window, HostRole::kDriver) == nullptr);
  CHECK_FALSE(row_of(window, HostRole::kRest)->use.of(HostAmount::kRunQueueWait));
  CHECK(amount(window, HostRole::kProcess, HostAmount::kRunQueueWait) == 160 + 60 + 12);
}

TEST_CASE("A value that can't be read once is empty for that window, and no other", "[host]") {
  HostTally tally;
  tally.add(reading_at(1'000, 10, {task(1, HostRole::kMain, 5)}));
  const HostTally::Mark first = tally.latest();
  HostTask unreadable = task(1, HostRole::kMain, 6);
  unreadable.use.of(HostAmount::kReadBytes).reset();
  tally.add(reading_at(2'000, 20, {unreadable}));
  tally.add(reading_at(3'000, 30, {task(1, HostRole::kMain, 7)}));
  const HostTally::Mark second = tally.latest();
  tally.add(reading_at(4'000, 40, {task(1, HostRole::kMain, 9)}));
  const HostRoleUse* row = nullptr;
  const HostWindow before = HostTally::window(first, second);
  row = row_of(before, HostRole::kMain);
  CHECK_FALSE(row->use.of(HostAmount::kReadBytes));
  CHECK(row->use.of(HostAmount::kProcessorTime) == 2u);
  CHECK_FALSE(row_of(before, HostRole::kRest)->use.of(HostAmount::kReadBytes));
  const HostWindow after = HostTally::window(second, tally.latest());
  CHECK(row_of(after, HostRole::kMain)->use.of(HostAmount::kReadBytes) == 2u);
}

TEST_CASE("Children whose times the kernel drops", "[host]") {
  HostTally tally;
  tally.add(reading_at(1'000, 10, {}, {task(7, HostRole::kLoaderWorker, 5'000'000)}));
  const HostTally::Mark open = tally.latest();
  // No process has waited for it.
  tally.add(reading_at(2'000, 20, {}));
  CHECK_FALSE(row_of(HostTally::window(open, tally.latest()), HostRole::kEndedChildren)
                  ->use.of(HostAmount::kProcessorTime));
}

TEST_CASE("What a task had taken before it could be read is not known", "[host]") {
  HostTally tally;
  tally.add(reading_at(1'000, 10, {}));
  const HostTally::Mark open = tally.latest();
  // It has existed for long.
  tally.add(reading_at(2'000, 20, {}, {task(7, HostRole::kLoaderWorker, 5'000'000, 1)}));
  const HostTally::Mark seen = tally.latest();
  tally.add(reading_at(3'000, 30, {}, {task(7, HostRole::kLoaderWorker, 5'000'300, 1)}));
  CHECK_FALSE(
      row_of(HostTally::window(open, seen), HostRole::kLoaderWorker)->use.of(HostAmount::kProcessorTime));
  CHECK(amount(HostTally::window(seen, tally.latest()), HostRole::kLoaderWorker,
               HostAmount::kProcessorTime) == 300);
}

TEST_CASE("A child's number that comes back", "[host]") {
  HostTally tally;
  tally.add(reading_at(1'000, 10, {}));
  const HostTally::Mark open = tally.latest();
  tally.add(reading_at(2'000, 20, {}, {task(7, HostRole::kLoaderWorker, 5'000'000)}));
  tally.add(reading_at(3'000, 30, {}, {task(7, HostRole::kLoaderWorker, 300, 1'500)}, 5'000'100));
  const HostWindow window = HostTally::window(open, tally.latest());
  CHECK(amount(window, HostRole::kLoaderWorker, HostAmount::kProcessorTime) == 5'000'300);
  CHECK(amount(window, HostRole::kEndedChildren, HostAmount::kProcessorTime) == 100);
}

TEST_CASE("A child that nobody waits for hides what others took", "[host]") {
  HostTally tally;
  tally.add(reading_at(1'000, 10, {}));
  // Children that no reading saw took 50 ms.
  tally.add(reading_at(2'000, 20, {}, {task(7, HostRole::kOtherChild, 30'000'000)}, 50'000'000));
  const HostTally::Mark open = tally.latest();
  tally.add(reading_at(3'000, 30, {}, {}, 50'000'000));
  const HostTally::Mark gone = tally.latest();
  // 80 ms more are 30 ms more than are missing; which part of them was counted before is unknown.
  tally.add(reading_at(4'000, 40, {}, {}, 130'000'000));
  const HostTally::Mark made_up = tally.latest();
  tally.add(reading_at(5'000, 50, {}, {}, 131'000'000));
  const auto ended = [](const HostTally::Mark& from, const HostTally::Mark& to) {
    const HostWindow window = HostTally::window(from, to);
    const HostRoleUse* row = row_of(window, HostRole::kEndedChildren);
    REQUIRE(row != nullptr);
    return row->use.of(HostAmount::kProcessorTime);
  };
  CHECK_FALSE(ended(open, gone));
  CHECK_FALSE(ended(gone, made_up));
  CHECK(ended(made_up, tally.latest()) == 1'000'000u);
}

TEST_CASE("Children beyond those that are looked at", "[host]") {
  HostTally tally;
  HostReading reading = reading_at(1'000, 10, {});
  reading.children_beyond = 2;
  tally.add(reading);
  const HostTally::Mark open = tally.latest();
  // This includes what they used before.
  tally.add(reading_at(2'000, 20, {}, {}, 5'000'000));
  const HostTally::Mark close = tally.latest();
  tally.add(reading_at(3'000, 30, {}, {}, 5'000'400));
  CHECK_FALSE(
      row_of(HostTally::window(open, close), HostRole::kEndedChildren)->use.of(HostAmount::kProcessorTime));
  CHECK(amount(HostTally::window(close, tally.latest()), HostRole::kEndedChildren,
               HostAmount::kProcessorTime) == 400);
}

namespace {

std::optional<std::uint64_t> ended_time(const HostTally::Mark& open, const HostTally::Mark& close) {
  const HostWindow window = HostTally::window(open, close);
  const HostRoleUse* row = row_of(window, HostRole::kEndedChildren);
  REQUIRE(row != nullptr);
  // Where it is unknown, so is the sum.
  CHECK(host_sum({&window, 1}).times_known == row->use.of(HostAmount::kProcessorTime).has_value());
  return row->use.of(HostAmount::kProcessorTime);
}

}  // namespace

TEST_CASE("With children that were not read, no role of children is known", "[host]") {
  HostTally tally;
  const auto read = [&tally](Nanoseconds time, std::uint64_t used, std::uint64_t beyond) {
    HostTask worker = task(7, HostRole::kLoaderWorker, used);
    HostReading reading = reading_at(time, time, {}, {worker});
    reading.children_beyond = beyond;
    tally.add(reading);
    return tally.latest();
  };
  read(kSecond, 0, 0);
  const HostTally::Mark open = tally.begin_window();
  // In the middle of the window only.
  read(2 * kSecond, kSecond, 3);
  const HostTally::Mark close = read(3 * kSecond, kSecond, 0);
  read(4 * kSecond, kSecond, 0);
  const HostTally::Mark next = tally.begin_window();
  const HostWindow window = HostTally::window(open, close);
  CHECK(row_of(window, HostRole::kLoaderWorker)->count == 1);
  CHECK(row_of(window, HostRole::kLoaderWorker)->use == HostUse{});
  CHECK((window.workers == 0 && window.worker_life == 0));
  CHECK_FALSE(host_sum({&window, 1}).times_known);
  const HostWindow after = HostTally::window(next, read(5 * kSecond, 2 * kSecond, 0));
  CHECK(amount(after, HostRole::kLoaderWorker, HostAmount::kProcessorTime) == kSecond);
  CHECK(after.workers == 1);
  CHECK(host_sum({&after, 1}).times_known);
}

TEST_CASE("What the children of a child that ignores their ends used is not known", "[host]") {
  constexpr std::uint64_t kMs = 1'000'000;
  HostTally tally;
  HostTask parent = task(7, HostRole::kOtherChild, 10 * kMs);
  parent.drops_children = true;
  tally.add(reading_at(1'000, 10, {}, {parent}));
  const HostTally::Mark open = tally.latest();
  tally.add(reading_at(2'000, 20, {}, {parent}));
  const HostTally::Mark there = tally.latest();
  // It ends, after others whose use nobody has.
  tally.add(reading_at(3'000, 30, {}, {}, 900 * kMs));
  const HostTally::Mark gone = tally.latest();
  tally.add(reading_at(4'000, 40, {}, {}, 900 * kMs));
  const HostTally::Mark after = tally.latest();
  tally.add(reading_at(5'000, 50, {}, {}, 970 * kMs));
  CHECK_FALSE(ended_time(open, there));
  CHECK_FALSE(ended_time(there, gone));
  CHECK(ended_time(after, tally.latest()) == 70 * kMs);
}

TEST_CASE("A child's child that init may have waited for is not taken from what others used", "[host]") {
  constexpr std::uint64_t kMs = 1'000'000;
  HostTally tally;
  HostTask child = task(9, HostRole::kOtherChild, 400 * kMs);
  child.parent = 7;
  const HostTask parent = task(7, HostRole::kOtherChild, 10 * kMs);
  tally.add(reading_at(1'000, 10, {}, {parent, child}));
  const HostTally::Mark open = tally.latest();
  // Both are gone. Children that no reading saw used 900 ms: more than the one that may be missing.
  tally.add(reading_at(2'000, 20, {}, {}, 910 * kMs));
  const HostTally::Mark gone = tally.latest();
  tally.add(reading_at(3'000, 30, {}, {}, 910 * kMs));
  const HostTally::Mark after = tally.latest();
  tally.add(reading_at(4'000, 40, {}, {}, 980 * kMs));
  CHECK_FALSE(ended_time(open, gone));
  CHECK(ended_time(after, tally.latest()) == 70 * kMs);
  // The parent's number belongs to another process by now.
  tally.add(reading_at(5'000, 50, {}, {parent, child}, 980 * kMs));
  const HostTally::Mark again = tally.latest();
  tally.add(reading_at(6'000, 60, {}, {task(7, HostRole::kOtherChild, 0, 5'000)}, 1'990 * kMs));
  CHECK_FALSE(ended_time(again, tally.latest()));
}

TEST_CASE("A thread that is renamed is one thread of the process", "[host]") {
  HostTally tally;
  tally.add(reading_at(1'000, 10, {task(1, HostRole::kMain, 5), task(2, HostRole::kOtherThread, 5)}));
  const HostTally::Mark open = tally.latest();
  tally.add(reading_at(2'000, 30, {task(1, HostRole::kMain, 9), task(2, HostRole::kAutograd, 9)}));
  const HostWindow window = HostTally::window(open, tally.latest());
  CHECK(row_of(window, HostRole::kOtherThread)->count == 1);
  CHECK(row_of(window, HostRole::kAutograd)->count == 1);
  CHECK(row_of(window, HostRole::kProcess)->count == 2);
}

TEST_CASE("Processors allowed: only if they were the same at all readings of a window", "[host]") {
  HostTally tally;
  const auto read = [&tally](Nanoseconds time, std::uint64_t affinity, std::uint64_t quota) {
    HostReading reading = reading_at(time, time, {});
    reading.affinity = affinity;
    reading.quota_thousandths = quota;
    tally.add(reading);
  };
  read(1'000, 8, 500);
  read(2'000, 4, 1'500);
  const HostTally::Mark open = tally.begin_window();
  read(3'000, 4, 1'500);
  const HostWindow same = HostTally::window(open, tally.latest());
  CHECK((same.affinity == 4 && same.quota_thousandths == 1'500u));
  CHECK(host_sum({&same, 1}).allowed() == 1.5);
  // For a time in the middle.
  read(4'000, 2, 1'500);
  read(5'000, 4, 1'500);
  HostWindow window = HostTally::window(open, tally.latest());
  CHECK((window.affinity == 0 && window.quota_thousandths == 1'500u));
  CHECK(host_sum({&window, 1}).allowed() == 0);
  const HostTally::Mark second = tally.begin_window();
  read(6'000, 4, 0);
  read(7'000, 4, 1'500);
  window = HostTally::window(second, tally.latest());
  CHECK((window.affinity == 4 && !window.quota_thousandths));
  CHECK(host_sum({&window, 1}).allowed() == 0);
  // Nor if windows differ.
  HostWindow other = same;
  CHECK(host_sum(std::vector{same, other}).allowed() == 1.5);
  other.quota_thousandths = 0;
  CHECK(host_sum(std::vector{same, other}).allowed() == 0);
  other = same;
  other.affinity = 1;
  CHECK(host_sum(std::vector{other, same}).allowed() == 0);
}

TEST_CASE("Threads of a child that end", "[host]") {
  HostTally tally;
  tally.add(reading_at(1'000, 10, {}, {task(7, HostRole::kOtherChild, 500)}));
  const HostTally::Mark open = tally.latest();
  HostTask child = task(7, HostRole::kOtherChild, 900);
  child.use.of(HostAmount::kVoluntarySwitches) = 100;
  tally.add(reading_at(2'000, 20, {}, {child}));
  const HostWindow window = HostTally::window(open, tally.latest());
  CHECK(amount(window, HostRole::kOtherChild, HostAmount::kProcessorTime) == 400);
  CHECK_FALSE(row_of(window, HostRole::kOtherChild)->use.of(HostAmount::kVoluntarySwitches));
}

TEST_CASE("What children's children took goes from the one that waited to the one that waits for it",
          "[host]") {
  constexpr std::uint64_t kMs = 1'000'000;
  HostTally tally;
  HostTask parent = task(7, HostRole::kLoaderWorker, 100 * kMs);
  tally.add(reading_at(1'000, 10, {}, {parent, task(9, HostRole::kOtherChild, 40 * kMs)}));
  const HostTally::Mark open = tally.latest();
  const auto ended = [&] {
    return amount(HostTally::window(open, tally.latest()), HostRole::kEndedChildren,
                  HostAmount::kProcessorTime);
  };
  // It has waited for that child, which took 70 ms in all, and for another one of 500 ms that no reading saw.
  parent.use = use(110 * kMs);
  parent.ended_children.of(HostAmount::kProcessorTime) = 570 * kMs;
  parent.ended_children.of(HostAmount::kVoluntarySwitches).reset();
  tally.add(reading_at(2'000, 20, {}, {parent}));
  CHECK(ended() == 530 * kMs);
  CHECK_FALSE(row_of(HostTally::window(open, tally.latest()), HostRole::kEndedChildren)
                  ->use.of(HostAmount::kVoluntarySwitches));
  // Now it ends itself, after another 15 ms.
  tally.add(reading_at(3'000, 30, {}, {}, (125 + 570) * kMs));
  CHECK(ended() == 545 * kMs);
}

TEST_CASE("Roles add up to the process, whatever comes and goes", "[host]") {
  std::mt19937 random(7);
  const auto pick = [&](std::uint64_t most) { return random() % (most + 1); };
  for (int round = 0; round < 200; ++round) {
    HostTally tally;
    std::map<pid_t, HostTask> alive;
    std::uint64_t process = 0;
    HostTally::Mark open;
    std::uint64_t at_open = 0;
    const std::uint64_t readings = 2 + pick(10);
    for (std::uint64_t r = 0; r < readings; ++r) {
      std::vector<HostTask> threads;
      for (pid_t id = 1; id <= 12; ++id) {
        const auto dice = pick(9);
        if (dice < 2) alive.erase(id);
        if (dice < 4 && alive.count(id) == 0)
          alive[id] = task(id, static_cast<HostRole>(pick(6)), 0, 1'000 + r);
        const auto more = pick(1'000);
        process += more;  // of a thread that no reading sees, if there is none
        if (const auto one = alive.find(id); one != alive.end()) {
          one->second.use = use(*one->second.use.amounts[0] + more);
          threads.push_back(one->second);
        }
      }
      tally.add(reading_at(1'000 * (r + 1), process, threads));
      if (r == 0) {
        open = tally.latest();
        at_open = process;
      }
    }
    const HostWindow window = HostTally::window(open, tally.latest());
    std::uint64_t sum = 0;
    for (const HostRoleUse& row : window.roles) {
      if (row.role != HostRole::kProcess) sum += *row.use.of(HostAmount::kProcessorTime);
    }
    CHECK(sum == process - at_open);
    CHECK(amount(window, HostRole::kProcess, HostAmount::kProcessorTime) == sum);
  }
}

TEST_CASE("Moments: no worker at work, and one blocked", "[host]") {
  HostTally tally;
  const HostTally::Mark open = tally.latest();
  for (const char* states : {"", "S", "SSSS", "SRS", "DS", "DR", "DD", "R"}) tally.add_moment(states);
  CHECK(HostTally::window(open, tally.latest()).moments == LoaderMoments{7, 4, 2});
}

TEST_CASE("Idle workers do not thin out what the others do", "[host]") {
  HostTally tally;
  const auto worker = [](pid_t id, std::uint64_t time, std::uint64_t wait) {
    HostTask one = task(id, HostRole::kLoaderWorker, 0);
    one.use.of(HostAmount::kProcessorTime) = time;
    one.use.of(HostAmount::kRunQueueWait) = wait;
    return one;
  };
  tally.add(reading_at(kSecond, 0, {}, {worker(1, 0, 0), worker(2, 0, 0)}));
  const HostTally::Mark open = tally.latest();
  tally.add(reading_at(2 * kSecond, 0, {}, {worker(1, 900'000'000, 50'000'000), worker(2, 9'000'000, 0)}));
  const HostWindow window = HostTally::window(open, tally.latest());
  CHECK(window.worker_life == kSecond);
  CHECK(window.worker_time == 900'000'000);
  CHECK(window.worker_wait == 50'000'000);
}

TEST_CASE("The number of workers is the largest that were at work at once", "[host]") {
  HostTally tally;
  const auto worker = [](pid_t id, std::uint64_t time) {
    HostTask one = task(id, HostRole::kLoaderWorker, 0);
    one.use.of(HostAmount::kProcessorTime) = time;
    return one;
  };
  tally.add(reading_at(kSecond, 0, {}, {worker(1, 0), worker(2, 0), worker(3, 0)}));
  tally.add(reading_at(2 * kSecond, 0, {}, {worker(1, kSecond), worker(2, kSecond), worker(3, kSecond)}));
  const HostTally::Mark open = tally.begin_window();
  // Two for each epoch, and one that does nothing.
  for (pid_t epoch = 1; epoch <= 3; ++epoch) {
    tally.add(reading_at(
        (2 + static_cast<Nanoseconds>(epoch)) * kSecond, 0, {},
        {worker(1, kSecond), worker(10 * epoch, kSecond / 2), worker(10 * epoch + 1, kSecond / 2)}));
  }
  const HostWindow window = HostTally::window(open, tally.latest());
  CHECK(window.workers == 2);
  CHECK(row_of(window, HostRole::kLoaderWorker)->count == 9);
}

TEST_CASE("Readings cost a thousandth of a processor", "[host]") {
  ReadingBudget budget;
  Nanoseconds time = kSecond;
  Nanoseconds spent = 0;
  const Nanoseconds begin = time;
  constexpr Nanoseconds kCost = 50'000;
  while (time < begin + 1'000 * kSecond) {
    const Nanoseconds next = budget.next(time, kCost);
    if (next > time) {
      time = next;
      continue;
    }
    REQUIRE(budget.allows_more(time, kCost));
    budget.spend(time, kCost);
    spent += kCost;
    time += kCost;
  }
  CHECK(spent <= kSecond + ReadingBudget::kSaved);
  CHECK(spent >= kSecond - ReadingBudget::kSaved);
  // The part that is reserved for the edges.
  CHECK(budget.allows_edge(time, ReadingBudget::kSaved / 3));
  budget.spend(time, ReadingBudget::kSaved);
  CHECK_FALSE(budget.allows_edge(time, kCost));
  CHECK(budget.allows_edge(time + 30 * kSecond, kCost));
}

namespace {

/// Four workers for ten seconds, with a launching thread that waits for them.
HostSum waiting_program() {
  HostSum host;
  host.time = 10 * kSecond;
  host.main_time = kSecond / 2;
  host.workers = 4;
  host.worker_life = 40 * kSecond;
  host.affinity = 8;
  return host;
}

InputTimes waiting(std::uint64_t own_work = 0, bool on_main = true) {
  return {10 * kSecond, 9 * kSecond, own_work, on_main, 9 * kSecond - own_work, true};
}

}  // namespace

TEST_CASE("What the input waits for", "[host][diagnosis]") {
  HostSum host = waiting_program();
  CHECK(input_cause(waiting(), HostSum{}) == InputCause::kUnknown);
  CHECK(input_cause({}, host) == InputCause::kUnknown);

  host.worker_time = 38 * kSecond;
  CHECK(input_cause(waiting(), host) == InputCause::kWorkers);
  host.worker_time = 10 * kSecond;
  host.worker_wait = 29 * kSecond;
  CHECK(input_cause(waiting(), host) == InputCause::kProcessors);

  // Neither computing nor asleep for most of the time.
  host.worker_wait = 0;
  host.moments = {100, 40, 0};
  CHECK(input_cause(waiting(), host) == InputCause::kUnknown);
  host.moments = {100, 60, 0};
  CHECK(input_cause(waiting(), host) == InputCause::kStorage);
  host.moments = {9, 9, 9};
  CHECK(input_cause(waiting(), host) == InputCause::kUnknown);

  // It may be waiting for the thread that pins the batches, or for a worker's child.
  host.moments = {100, 95, 50};
  host.others = 3 * kSecond;
  CHECK(input_cause(waiting(), host) == InputCause::kStorage);
  host.others = 5 * kSecond;
  CHECK(input_cause(waiting(), host) == InputCause::kUnknown);
  host.others = 0;
  host.times_known = false;
  CHECK(input_cause(waiting(), host) == InputCause::kUnknown);

  // It does not wait in a fetch, or not for workers.
  host = waiting_program();
  host.worker_time = 38 * kSecond;
  CHECK(input_cause({10 * kSecond, 9 * kSecond, 0, true, kSecond, true}, host) == InputCause::kUnknown);
  CHECK(input_cause({10 * kSecond, 9 * kSecond, 0, true, 0, false}, host) == InputCause::kWorkers);

  // The launching thread computes, or is ready to.
  CHECK(input_cause(waiting(5 * kSecond), host) == InputCause::kMain);
  host.main_wait = 4 * kSecond;
  CHECK(input_cause(waiting(5 * kSecond), host) == InputCause::kProcessors);
  // Another thread launches: what the first one does says nothing of it.
  CHECK(input_cause(waiting(5 * kSecond, false), host) == InputCause::kMain);
}

TEST_CASE("Processors that are allowed, used and wanted", "[host]") {
  HostWindow window;
  window.begin = kSecond;
  window.end = 3 * kSecond;
  window.affinity = 4;
  const auto row = [](HostRole role, std::uint64_t time, std::uint64_t wait) {
    HostRoleUse one{role, 1, {}};
    one.use.of(HostAmount::kProcessorTime) = time;
    one.use.of(HostAmount::kRunQueueWait) = wait;
    return one;
  };
  window.roles = {row(HostRole::kMain, kSecond, 0), row(HostRole::kProcess, 2 * kSecond, kSecond),
                  row(HostRole::kLoaderWorker, kSecond, 3 * kSecond)};
  const HostSum sum = host_sum({&window, 1});
  CHECK(sum.allowed() == 4);
  CHECK(sum.used() == 1.5);
  CHECK(sum.wanted() == 3.5);
  CHECK_FALSE(sum.reads_known);
  window.roles[2].use.of(HostAmount::kReadBytes) = 0;
  CHECK(host_sum({&window, 1}).reads_known);
  window.quota_thousandths = 1'500;
  CHECK(host_sum({&window, 1}).allowed() == 1.5);
  window.affinity = 1;
  CHECK(host_sum({&window, 1}).allowed() == 1);
  CHECK(host_sum({}).used() == 0);
  // A thread that has ended has no wait.
  window.roles.push_back(row(HostRole::kRest, 1, 0));
  window.roles.back().use.of(HostAmount::kRunQueueWait).reset();
  CHECK((host_sum({&window, 1}).times_known && host_sum({&window, 1}).waits_known));
  window.roles[2].use.of(HostAmount::kRunQueueWait).reset();
  CHECK((host_sum({&window, 1}).times_known && !host_sum({&window, 1}).waits_known));
  window.roles[2].use.of(HostAmount::kProcessorTime).reset();
  CHECK_FALSE(host_sum({&window, 1}).times_known);
}
