// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/proc_files.h"

#include <unistd.h>

#include <csignal>
#include <string>

#include "libinject/base/control_groups.h"
#include "tests/unit/catch.h"
#include "tests/unit/folder_tree.h"
#include "tests/unit/pid_namespace.h"

using namespace inject;

namespace {

const std::string kFields =
    "100 200 300 0 -1 4194304 11 12 13 14 15 16 17 18 20 0 5 0 987654 3133440 388 18446744073709551615 1\n";

std::string stat_line(const std::string& name, char state = 'S') {
  return "4711 (" + name + ") " + state + " " + kFields;
}

}  // namespace

TEST_CASE("A line of stat: the name ends at the last bracket, whatever is in it", "[base]") {
  for (const std::string name :
       {"python3", "", "a b", "(sd-pam)", "x) R 1 2 3 (y", "tab\there", ")", "(", "ü"}) {
    const auto stat = parse_task_stat(stat_line(name, 'D'));
    INFO(name);
    REQUIRE(stat);
    CHECK(stat->name.view() == name);
    CHECK(stat->state == 'D');
    CHECK(stat->parent == 100);
    CHECK(stat->session == 300);
    CHECK(stat->minor_faults == 11);
    CHECK(stat->major_faults == 13);
    CHECK(stat->children_minor_faults == 12);
    CHECK(stat->children_major_faults == 14);
    CHECK(stat->children_ticks == 17 + 18);
    CHECK(stat->threads == 5);
    CHECK(stat->start == 987654);
    CHECK(stat->running());
  }
  const auto longest = parse_task_stat(stat_line(std::string(64, 'k'), 'Z'));
  REQUIRE(longest);
  CHECK(longest->name.view() == std::string(32, 'k'));
  CHECK_FALSE(longest->running());
}

TEST_CASE("A line of stat that was cut says nothing, wherever that was before its start is complete",
          "[base]") {
  const std::string whole = stat_line("worker (2) 7");
  const std::size_t end_of_start = whole.find(" 987654 ") + 7;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    INFO(size);
    const auto stat = parse_task_stat(std::string_view(whole).substr(0, size));
    CHECK(stat.has_value() == (size > end_of_start));
    if (stat) CHECK(stat->start == 987654);
  }
  CHECK_FALSE(parse_task_stat("4711 (x) S 100 200 a 0 -1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 \n"));
  CHECK_FALSE(parse_task_stat(") S ("));
}

TEST_CASE("Run-queue wait, switches and bytes: nothing of what was cut", "[base]") {
  CHECK(parse_run_queue_wait("1234567 89 10\n") == 89u);
  CHECK_FALSE(parse_run_queue_wait("1234567 89"));
  CHECK_FALSE(parse_run_queue_wait("1234567\n"));
  CHECK_FALSE(parse_run_queue_wait(""));
  const std::string status =
      "Name:\tpy\\nvoluntary_ctxt_switches:\t9\nUmask:\t0022\nThreads:\t1\nvoluntary_ctxt_switches:\t120\n"
      "nonvoluntary_ctxt_switches:\t34\n";
  const auto switches = parse_switches(status);
  REQUIRE(switches);
  CHECK(switches->voluntary == 120);
  CHECK(switches->involuntary == 34);
  for (std::size_t size = 0; size < status.size(); ++size)
    CHECK_FALSE(parse_switches(std::string_view(status).substr(0, size)));
  CHECK(parse_read_bytes("rchar: 7\nread_bytes: 4096\nwrite_bytes: 1\n") == 4096u);
  CHECK_FALSE(parse_read_bytes("rchar: 7\nread_bytes: 40"));
  CHECK_FALSE(parse_read_bytes("rchar: 7\n"));
}

TEST_CASE("Signals that a process ignores", "[base]") {
  const std::string_view status = "Name:\tSigIgn:\nSigBlk:\t0000000000010000\nSigIgn:\t0000000000011000\n";
  CHECK(ignores_signal(status, SIGCHLD));
  CHECK(ignores_signal(status, SIGPIPE));
  CHECK_FALSE(ignores_signal(status, SIGINT));
  CHECK_FALSE(ignores_signal("Name:\tx\nSigIgn:\t0000000000000000\n", SIGCHLD));
  CHECK_FALSE(ignores_signal("Name:\tx\n", SIGCHLD));
}

TEST_CASE("What is in /proc of this process", "[base]") {
  std::array<char, 4096> room;
  const auto stat = parse_task_stat(read_text("/proc/self/stat", room));
  REQUIRE(stat);
  CHECK(stat->parent == getppid());
  CHECK(parse_switches(read_text("/proc/self/status", room)));
  std::size_t own = 0;
  CHECK(for_each_number("/proc", [&](pid_t pid) { own += pid == getpid() ? 1 : 0; }));
  CHECK(own == 1);
  CHECK_FALSE(for_each_number("/proc/self/nothing", [](pid_t) {}));
  CHECK(read_text("/proc/self/nothing", room).empty());
}

TEST_CASE("Quotas of control groups: the tightest on the way up, of both versions", "[base]") {
  const FolderTree groups;
  const auto allowed = [&](const std::string& text) { return group_processors(text, groups.path()); };
  CHECK_FALSE(allowed("0::/job/step\n"));
  groups.file("job/step/cpu.max", "max 100000\n");
  CHECK_FALSE(allowed("0::/job/step\n"));
  groups.file("job/cpu.max", "350000 100000\n");
  CHECK(allowed("0::/job/step\n") == 3.5);
  groups.file("cpu.max", "50000 100000\n");
  CHECK(allowed("0::/job/step\n") == 0.5);
  CHECK(allowed("0::/of/another/host\n") == 0.5);
  groups.file("cpu/pod/cpu.cfs_quota_us", "-1\n");
  groups.file("cpu/pod/cpu.cfs_period_us", "100000\n");
  groups.file("cpu/cpu.cfs_quota_us", "25000\n");
  groups.file("cpu/cpu.cfs_period_us", "100000\n");
  CHECK(allowed("4:cpu,cpuacct:/pod\n") == 0.25);
  CHECK_FALSE(allowed("4:cpuset,cpuacct:/pod\n"));
  groups.file("cpu.max", "nonsense\n");
  CHECK(allowed("0::/job/step\n") == 3.5);
}

TEST_CASE("Whether /proc has this process's own numbers", "[base][native]") {
  CHECK(proc_is_ours());
  CHECK(in_pid_namespace([] { return proc_is_ours() ? 1 : 0; }).value_or(0) == 0);
}
