// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <string>
#include <string_view>

#include "libinject/base/out_path.h"
#include "libinject/base/time.h"

namespace inject {

/// How many ranks of a distributed job run on this host, from LOCAL_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE,
/// MPI_LOCALNRANKS or SLURM_NTASKS_PER_NODE; 1 outside such a job.
unsigned ranks_of_this_host(const EnvironmentLookup& environment);

/// A name that the ranks of one job on this host share with no other job.
std::string rank_barrier_name(const EnvironmentLookup& environment);

/// Waits until `count` processes have arrived at the barrier `name` in `folder`, or for `patience`. False in
/// the latter case, or if there can be none. Without this, the first one to end would take the others down
/// with it: a launcher ends all ranks when one fails, and a rank that another has left hangs or fails in its
/// next collective.
bool wait_at_rank_barrier(int folder, const std::string& name, unsigned count, Nanoseconds patience);

}  // namespace inject
