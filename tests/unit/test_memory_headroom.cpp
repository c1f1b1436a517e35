// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/memory_headroom.h"

#include <string>

#include "tests/unit/catch.h"
#include "tests/unit/folder_tree.h"

using namespace inject;

namespace {

struct Groups : FolderTree {
  std::optional<MemoryHeadroom> room(const std::string& groups) const { return group_memory(groups, path()); }
};

void check(const std::optional<MemoryHeadroom>& room, std::uint64_t left, std::uint64_t limit) {
  REQUIRE(room);
  CHECK(room->left == left);
  CHECK(room->limit == limit);
}

}  // namespace

TEST_CASE("What version 2 of control groups leaves: the tightest group on the way up", "[base]") {
  const Groups groups;
  groups.file("slice/job/step/memory.max", "max\n");
  groups.file("slice/job/step/memory.high", "max\n");
  groups.file("slice/job/step/memory.current", "400\n");
  CHECK_FALSE(groups.room("0::/slice/job/step\n"));
  groups.file("slice/job/memory.max", "2000\n");
  groups.file("slice/job/memory.high", "max\n");
  groups.file("slice/job/memory.current", "1500\n");
  groups.file("slice/job/memory.stat", "anon 700\nfile 800\ninactive_file 300\nactive_file 500\n");
  check(groups.room("0::/slice/job/step\n"), 800, 2000);
  groups.file("slice/memory.max", "9000\n");
  groups.file("slice/memory.high", "5000\n");
  groups.file("slice/memory.current", "4900\n");
  check(groups.room("0::/slice/job/step\n"), 100, 5000);
  groups.file("slice/memory.current", "7000\n");  // above memory.high
  check(groups.room("0::/slice/job/step\n"), 0, 5000);
  // A container's own group is the root of what it sees, whatever path it is told.
  groups.file("memory.max", "1000\n");
  groups.file("memory.current", "10\n");
  check(groups.room("0::/\n"), 990, 1000);
  check(groups.room("0::/docker/0123\n"), 990, 1000);
  check(groups.room("0::/../../elsewhere\n"), 990, 1000);
}

TEST_CASE("What version 1 of control groups leaves, beside version 2", "[base]") {
  const Groups groups;
  const std::string lines = "9:name=systemd:/\n4:cpu,memory:/job\n3:cpuset:/job\n0::/job\n";
  CHECK_FALSE(groups.room(lines));
  groups.file("memory/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
  groups.file("memory/memory.usage_in_bytes", "12345\n");
  CHECK_FALSE(groups.room(lines));
  groups.file("memory/job/memory.limit_in_bytes", "1000\n");
  groups.file("memory/job/memory.usage_in_bytes", "900\n");
  groups.file("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 200\n");
  check(groups.room(lines), 300, 1000);
  groups.file("unified/job/memory.max", "700\n");
  groups.file("unified/job/memory.current", "600\n");
  check(groups.room(lines), 100, 700);
}

TEST_CASE("Files of control groups that make no sense are no limit", "[base]") {
  const Groups groups;
  for (const char* lines : {"", "\n", "0", "0:", "0::", "::::", "0::relative", "x:memory", "4:memory:"})
    CHECK_FALSE(groups.room(lines));
  groups.file("job/memory.max", "-1\n");
  groups.file("job/memory.high", "\n");
  CHECK_FALSE(groups.room("0::/job\n"));
  groups.file("job/memory.max", "99999999999999999999999\n");
  CHECK_FALSE(groups.room("0::/job\n"));
  groups.file("job/memory.max", "100\n");
  groups.file("job/memory.current", "what\n");
  check(groups.room("0::/job\n"), 100, 100);
}
