// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libinject/base/out_path.h"

namespace inject {

/// This process's place in a distributed job, from its launcher's environment variables. None of them is
/// trusted: numbers have to be below 2^20 and consistent with each other, texts are reduced to one line and
/// truncated.
struct JobPlace {
  std::string launcher;  ///< `torchrun`, `Open MPI`, `PMI`, `Slurm`; `environment`: RANK, set by an unknown
                         ///< launcher
  std::string id;        ///< the same in all processes of the job, and in no other job's; empty: unknown
  std::uint32_t rank = 0;
  std::optional<std::uint32_t> world_size;
  std::optional<std::uint32_t> local_rank;  ///< among the processes of this node
  std::optional<std::uint32_t> local_size;
  std::optional<std::uint32_t> node;
  std::optional<std::uint32_t> nodes;
};

/// Uses the first of torchrun, Open MPI, PMI (MPICH, Intel MPI) and Slurm whose rank is a number; values that
/// it does not provide come from later ones with the same rank and world size. Empty outside of a job.
std::optional<JobPlace> job_from_environment(const EnvironmentLookup& environment);

}  // namespace inject
