// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/config/out_path.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "libinject/config/text.h"

namespace inject {

namespace {

constexpr std::array<std::string_view, 4> kRankVariables{"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                                         "SLURM_PROCID"};
constexpr int kLastSuffix = 9999;
constexpr mode_t kFolderMode = 0755;

PathResult failed(std::string error) {
  return {{}, std::move(error)};
}

/// 0, or the errno of mkdir(). Every folder above `path` is made as well.
int make_folder(const std::string& path) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string above = path.substr(0, slash);
    if (::mkdir(above.c_str(), kFolderMode) == 0 || errno == EEXIST) continue;
    const int code = errno;
    // Some file systems answer EROFS or EACCES for a folder that exists.
    struct stat status {};
    if (::stat(above.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return code;
  }
  return ::mkdir(path.c_str(), kFolderMode) == 0 ? 0 : errno;
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
  int code = make_folder(path);
  for (int suffix = 1; code == EEXIST && suffix <= kLastSuffix; ++suffix) {
    std::string next = path + "." + std::to_string(suffix);
    code = ::mkdir(next.c_str(), kFolderMode) == 0 ? 0 : errno;
    if (code == 0) return {std::move(next), {}};
  }
  if (code == 0) return {path, {}};
  return failed("cannot create " + path + ": " + std::generic_category().message(code));
}

}  // namespace inject
