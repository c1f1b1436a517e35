// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/out_path.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "libinject/base/format.h"
#include "libinject/base/safe_path.h"
#include "libinject/base/text.h"

namespace inject {

namespace {

constexpr std::array<std::string_view, 4> kRankVariables{"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                                         "SLURM_PROCID"};
constexpr int kLastSuffix = 9999;
constexpr mode_t kFolderMode = 0700;

PathResult failed(std::string error) {
  return {{}, std::move(error)};
}

}  // namespace

std::optional<std::string> rank_from_environment(const EnvironmentLookup& environment) {
  if (!environment) return std::nullopt;
  for (const std::string_view variable : kRankVariables) {
    std::optional<std::string> value = environment(variable);
    if (value && !value->empty()) return value;
  }
  return std::nullopt;
}

PathResult expand_path(std::string_view pattern, const PathNames& names, std::string_view folder) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      path += pattern[i];
      continue;
    }
    if (++i == pattern.size()) return failed("a lone % at the end");
    switch (pattern[i]) {
      case '%':
        path += '%';
        break;
      case 'p':
        path += std::to_string(names.pid);
        break;
      case 'h':
        path += names.host;
        break;
      case 'r':
        path += rank_from_environment(names.environment).value_or("0");
        break;
      case 'q': {
        const std::size_t close = pattern.find('}', i);
        if (i + 1 >= pattern.size() || pattern[i + 1] != '{' || close == std::string_view::npos ||
            close == i + 2) {
          return failed("%q without {VARIABLE}");
        }
        const std::string_view variable = pattern.substr(i + 2, close - i - 2);
        const std::optional<std::string> value =
            names.environment ? names.environment(variable) : std::optional<std::string>();
        if (!value) return failed("the environment has no variable " + quoted(variable));
        path += *value;
        i = close;
        break;
      }
      default:
        return failed("unknown placeholder " + quoted(pattern.substr(i - 1, 2)));
    }
  }
  if (path.empty()) return failed("the path is empty");
  if (path.find('\0') != std::string::npos) return failed("the path has a zero byte");
  if (path.front() != '/' && !folder.empty()) {
    std::string absolute(folder);
    if (absolute.back() != '/') absolute += '/';
    path.insert(0, absolute);
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return {path, {}};
}

PathResult make_unique_folder(const std::string& path) {
  const ParentFolder parent(path, ParentFolder::Missing::kMake);
  if (!parent.is_open()) return failed("cannot create " + path + ": " + parent.problem());
  int code = 0;
  for (int suffix = 0; suffix <= kLastSuffix; ++suffix) {
    const std::string added = suffix == 0 ? "" : str_format(".{}", suffix);
    if (::mkdirat(parent.descriptor(), (parent.name() + added).c_str(), kFolderMode) == 0)
      return {path + added, {}};
    code = errno;
    if (code != EEXIST) break;
    // A file may have the name by chance; a user who names a device does not want a folder beside it.
    struct stat found {};
    if (suffix == 0 && ::fstatat(parent.descriptor(), parent.name().c_str(), &found, 0) == 0 &&
        !S_ISDIR(found.st_mode) && !S_ISREG(found.st_mode)) {
      return failed(path + " is a device, pipe or socket, not a folder");
    }
  }
  return failed("cannot create " + path + ": " + std::generic_category().message(code));
}

}  // namespace inject
