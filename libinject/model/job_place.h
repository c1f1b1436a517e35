// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libinject/base/out_path.h"

namespace inject {

/// This process's place in a distributed job, as far as its launcher's environment variables say. None of
/// them is trusted: numbers have to be below 2^20 and consistent with each other, texts are reduced to one
/// line and cut.
struct JobPlace {
  std::string launcher;  ///< `torchrun`, `Open MPI`, `PMI`, `Slurm`; `environment`: RANK, by nobody we know
  std::string id;        ///< the same in all processes of the job, and in no other's; empty: not told
  std::uint32_t rank = 0;
  std::optional<std::uint32_t> world_size;
  std::optional<std::uint32_t> local_rank;  ///< among the processes of this node
  std::optional<std::uint32_t> local_size;
  std::optional<std::uint32_t> node;
  std::optional<std::uint32_t> nodes;
};

/// By the first launcher of torchrun, Open MPI, PMI (MPICH, Intel MPI) and Slurm whose rank is a number; what
/// it does not tell, by those after it that have the same rank and world size. Nothing outside of a job.
std::optional<JobPlace> job_from_environment(const EnvironmentLookup& environment);

}  // namespace inject
