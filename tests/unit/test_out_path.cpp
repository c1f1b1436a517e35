// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/out_path.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

EnvironmentLookup lookup(std::map<std::string, std::string, std::less<>> variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

std::string expand(std::string_view pattern, std::map<std::string, std::string, std::less<>> variables = {},
                   std::string_view folder = "/home/me") {
  const PathResult result = expand_path(pattern, {4242, "node7", lookup(std::move(variables))}, folder);
  CHECK(result.path.empty() != result.error.empty());
  return result.error.empty() ? result.path : "error: " + result.error;
}

}  // namespace

TEST_CASE("Placeholders of output paths", "[config]") {
  CHECK(expand("inject-%h-%p") == "/home/me/inject-node7-4242");
  CHECK(expand("/data/%%x") == "/data/%x");
  CHECK(expand("out/%q{JOB}", {{"JOB", "a b"}}) == "/home/me/out/a b");
  CHECK(expand("%q{EMPTY}x", {{"EMPTY", ""}}) == "/home/me/x");
  CHECK(expand("a///") == "/home/me/a");
  CHECK(expand("/") == "/");
  CHECK(expand("a", {}, "/") == "/a");
  CHECK(expand("a", {}, "") == "a");
  CHECK(expand("%x") == "error: unknown placeholder '%x'");
  CHECK(expand("a%") == "error: a lone % at the end");
  CHECK(expand("%q") == "error: %q without {VARIABLE}");
  CHECK(expand("%q{A") == "error: %q without {VARIABLE}");
  CHECK(expand("%q{}") == "error: %q without {VARIABLE}");
  CHECK(expand("%q{NONE}") == "error: the environment has no variable 'NONE'");
  CHECK(expand("") == "error: the path is empty");
}

TEST_CASE("The rank comes from the launcher's variables in their order", "[config]") {
  CHECK(expand("%r") == "/home/me/0");
  CHECK(expand("%r", {{"SLURM_PROCID", "5"}}) == "/home/me/5");
  CHECK(expand("%r", {{"SLURM_PROCID", "5"}, {"PMI_RANK", "4"}}) == "/home/me/4");
  CHECK(expand("%r", {{"SLURM_PROCID", "5"}, {"OMPI_COMM_WORLD_RANK", "3"}}) == "/home/me/3");
  CHECK(expand("%r", {{"RANK", "2"}, {"OMPI_COMM_WORLD_RANK", "3"}}) == "/home/me/2");
  CHECK(expand("%r", {{"RANK", ""}, {"PMI_RANK", "6"}}) == "/home/me/6");
  CHECK_FALSE(rank_from_environment(lookup({})).has_value());
  CHECK_FALSE(rank_from_environment(nullptr).has_value());
}

TEST_CASE("An existing folder is never used", "[config]") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a/b/out";
  CHECK(make_unique_folder(path).path == path);
  CHECK(make_unique_folder(path).path == path + ".1");
  CHECK(make_unique_folder(path).path == path + ".2");
  CHECK(std::filesystem::is_directory(path + ".2"));
  // A file or a dangling link of that name counts as well.
  std::ofstream(folder.path() + "/file") << "x";
  CHECK(make_unique_folder(folder.path() + "/file").path == folder.path() + "/file.1");
  std::filesystem::create_symlink("nowhere", folder.path() + "/link");
  CHECK(make_unique_folder(folder.path() + "/link").path == folder.path() + "/link.1");
}

TEST_CASE("No folder is made beside a device or pipe", "[config]") {
  const TemporaryFolder folder;
  const std::string pipe = folder.path() + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::filesystem::create_symlink("/dev/null", folder.path() + "/null");
  for (const std::string& path : {pipe, folder.path() + "/null"}) {
    CHECK(make_unique_folder(path).error == path + " is a device, pipe or socket, not a folder");
    CHECK_FALSE(std::filesystem::exists(path + ".1"));
  }
}

TEST_CASE("A folder that cannot be made is an error with the path and the reason", "[config]") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "x";
  const PathResult below_file = make_unique_folder(folder.path() + "/file/out");
  CHECK(below_file.path.empty());
  CHECK(below_file.error == "cannot create " + folder.path() + "/file/out: Not a directory");
  const PathResult too_long = make_unique_folder(folder.path() + "/" + std::string(300, 'x'));
  CHECK(too_long.error.find("File name too long") != std::string::npos);
  CHECK(make_unique_folder("/proc/nowhere/out").path.empty());
}
