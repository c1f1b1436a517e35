// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace inject {

/// Looks a variable up in the environment from which the options were read.
using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view)>;

/// The values of INJECT_OUT's placeholders in this process.
struct PathNames {
  int pid = 0;
  std::string host;
  EnvironmentLookup environment;
};

struct PathResult {
  std::string path;
  std::string error;  ///< empty on success
};

/// This process's rank in a distributed job, from RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID,
/// whichever is set first; nothing outside a distributed job.
std::optional<std::string> rank_from_environment(const EnvironmentLookup& environment);

/// Replaces %p, %h, %r (0 outside a distributed job), %q{VAR} and %%; an unknown placeholder or an unset
/// variable is an error. A relative path is resolved against `folder`, the working directory when the library
/// was loaded, so that a later chdir() does not move the output.
PathResult expand_path(std::string_view pattern, const PathNames& names, std::string_view folder);

/// Creates `path` and the folders above it, for this user only; if `path` exists, the first free one of
/// `path`.1, `path`.2, …. A device, pipe or socket of that name is an error. Nothing that another user has
/// put in the way is followed (safe_path.h).
PathResult make_unique_folder(const std::string& path);

}  // namespace inject
