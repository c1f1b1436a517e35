// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/reserved_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;
namespace fs = std::filesystem;

namespace {

using Write = ReservedFile::Write;

std::vector<std::string> names_in(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::uint64_t allocated_bytes(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 ? static_cast<std::uint64_t>(found.st_blocks) * 512 : 0;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("Room for a file is allocated ahead and goes with its spares", "[output]") {
  const TemporaryFolder folder;
  ReservedFile reserved;
  CHECK_FALSE(reserved.put("nowhere", Write::kLast));
  reserved.renew();
  reserved.remove();
  std::ofstream(folder.path() + "/.a.spare") << "a dead process's";
  reserved.reserve(folder.path(), "a");
  CHECK(names_in(folder) == Names{".a.last", ".a.spare"});
  for (const std::string& name : ReservedFile::spare_names("a")) {
    CHECK(allocated_bytes(folder.path() + "/" + name) >= ReservedFile::kBytes);
    CHECK(fs::status(folder.path() + "/" + name).permissions() == fs::perms(0600));
  }
  std::ofstream(folder.path() + "/a") << "what there is";
  reserved.remove();
  CHECK(names_in(folder) == Names{"a"});
  CHECK_FALSE(reserved.put("too late", Write::kLast));
  CHECK(folder.read("a") == "what there is");
}

TEST_CASE("A spare takes a file's place whole, and one is kept for the last write", "[output]") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/a") << "before, and somewhat longer";
  ReservedFile reserved;
  reserved.reserve(folder.path(), "a");
  std::ifstream reader(folder.path() + "/a");
  REQUIRE(reserved.put("first", Write::kFurther));
  CHECK(folder.read("a") == "first");
  CHECK(names_in(folder) == Names{".a.last", "a"});
  // A process that opened the file before reads its old contents to the end.
  CHECK(std::string(std::istreambuf_iterator<char>(reader), {}) == "before, and somewhat longer");
  CHECK_FALSE(reserved.put("second", Write::kFurther));
  CHECK(folder.read("a") == "first");
  reserved.renew();
  CHECK(names_in(folder) == Names{".a.last", ".a.spare", "a"});
  REQUIRE(reserved.put("third", Write::kFurther));
  REQUIRE(reserved.put("last", Write::kLast));
  CHECK(folder.read("a") == "last");
  CHECK_FALSE(reserved.put("none left", Write::kLast));
  CHECK(names_in(folder) == Names{"a"});
}

TEST_CASE("A text of the reserved length fits, a longer one does not", "[output]") {
  const TemporaryFolder folder;
  ReservedFile reserved;
  reserved.reserve(folder.path(), "a");
  CHECK_FALSE(reserved.put(std::string(ReservedFile::kBytes + 1, 'x'), Write::kLast));
  CHECK(names_in(folder) == Names{".a.last", ".a.spare"});
  CHECK(reserved.put(std::string(ReservedFile::kBytes, 'x'), Write::kLast));
  CHECK(folder.read("a") == std::string(ReservedFile::kBytes, 'x'));
}

TEST_CASE("Room that is refused is missing, and had once it is granted", "[output]") {
  const TemporaryFolder folder;
  ReservedFile reserved;
  {
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit lower{1000, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &lower);  // otherwise SIGXFSZ would end the program
    reserved.reserve(folder.path(), "a");
    setrlimit(RLIMIT_FSIZE, &before);
  }
  CHECK(names_in(folder).empty());
  CHECK_FALSE(reserved.put("text", Write::kLast));
  reserved.renew();
  CHECK(reserved.put("text", Write::kLast));
  CHECK(folder.read("a") == "text");

  ReservedFile nowhere;
  nowhere.reserve("/nonexistent/folder", "a");
  CHECK_FALSE(nowhere.put("text", Write::kLast));
  nowhere.remove();
}

TEST_CASE("A spare that somebody has replaced by a link is not followed", "[output]") {
  const TemporaryFolder folder;
  ReservedFile reserved;
  reserved.reserve(folder.path(), "a");
  std::ofstream(folder.path() + "/precious") << "precious";
  fs::remove(folder.path() + "/.a.spare");
  fs::create_symlink(folder.path() + "/precious", folder.path() + "/.a.spare");
  CHECK_FALSE(reserved.put("text", Write::kFurther));
  reserved.renew();
  CHECK(reserved.put("text", Write::kFurther));
  CHECK(folder.read("precious") == "precious");
  CHECK(folder.read("a") == "text");
}
