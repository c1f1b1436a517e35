// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/model/job_place.h"

#include <array>
#include <string_view>

#include "libinject/base/text.h"

namespace inject {

namespace {

using Number = std::optional<std::uint32_t>;

constexpr std::uint32_t kMax = (1u << 20) - 1;
constexpr std::size_t kMaxIdLength = 200;  // bytes, of one launcher

/// Variable names of one launcher; empty if it has no such variable.
struct Launcher {
  std::string_view name;
  std::string_view rank;
  std::string_view world_size;
  std::string_view local_rank;
  std::string_view local_size;
  std::string_view node;
  std::string_view nodes;
};

// OMPI_COMM_WORLD_NODE_RANK is not the number of a node, but another number of the process on its node.
// SLURM_NTASKS and SLURM_NNODES are the allocation's in a batch script, where this process may be the only
// one; therefore the step's are used.
constexpr std::array<Launcher, 4> kLaunchers{{
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "", ""},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", ""},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_NODEID",
     "SLURM_STEP_NUM_NODES"},
}};

std::string text_of(const EnvironmentLookup& environment, std::string_view variable) {
  if (variable.empty()) return {};
  return one_line(environment(variable).value_or(""), kMaxIdLength);
}

Number number_of(const EnvironmentLookup& environment, std::string_view variable) {
  if (variable.empty()) return {};
  const std::optional<std::string> text = environment(variable);
  if (!text) return {};
  std::uint32_t number = 0;
  if (!read_number(*text, number) || number > kMax) return {};
  return number;
}

// A place and the number of places: kept if consistent, otherwise both are dropped.
void keep_if_within(Number& place, Number& count) {
  if (count && (*count == 0 || (place && *place >= *count))) place = count = {};
}

std::optional<JobPlace> place_by(const Launcher& launcher, const EnvironmentLookup& environment) {
  const Number rank = number_of(environment, launcher.rank);
  if (!rank) return {};
  JobPlace place;
  place.launcher = launcher.name;
  place.rank = *rank;
  place.world_size = number_of(environment, launcher.world_size);
  if (place.world_size && *place.world_size <= *rank) place.world_size = {};
  place.local_rank = number_of(environment, launcher.local_rank);
  place.local_size = number_of(environment, launcher.local_size);
  keep_if_within(place.local_rank, place.local_size);
  place.node = number_of(environment, launcher.node);
  place.nodes = number_of(environment, launcher.nodes);
  keep_if_within(place.node, place.nodes);
  return place;
}

// Takes values from `more` that `place` lacks.
void complete(JobPlace& place, const JobPlace& more) {
  const auto both = [](Number& a, Number& a_count, const Number& b, const Number& b_count) {
    if (!a) a = b;
    if (!a_count) a_count = b_count;
    keep_if_within(a, a_count);
  };
  both(place.local_rank, place.local_size, more.local_rank, more.local_size);
  both(place.node, place.nodes, more.node, more.nodes);
}

void append(std::string& id, std::string_view what, const std::string& text) {
  if (text.empty()) return;
  if (!id.empty()) id += ' ';
  id.append(what).append(":").append(text);
}

std::string id_by(std::string_view launcher, const EnvironmentLookup& environment) {
  std::string id;
  if (launcher == "torchrun") {
    // Without an id of its own, torchrun sets `none`.
    if (const std::string run = text_of(environment, "TORCHELASTIC_RUN_ID"); run != "none")
      append(id, "torchrun", run);
  } else if (launcher == "Open MPI") {
    append(id, "pmix", text_of(environment, "PMIX_NAMESPACE"));
  }
  // Other launchers' ids may recur in another job, for example one chosen by the user. Steps are jobs if
  // Slurm itself starts the ranks; torchrun may have been started in one step per node.
  std::string batch = text_of(environment, "SLURM_JOB_ID");
  const std::string step = text_of(environment, "SLURM_STEP_ID");
  if (!batch.empty() && launcher == "Slurm" && !step.empty()) batch += "." + step;
  append(id, "slurm", batch);
  return id;
}

}  // namespace

std::optional<JobPlace> job_from_environment(const EnvironmentLookup& environment) {
  if (!environment) return {};
  std::optional<JobPlace> place;
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<JobPlace> by_this = place_by(launcher, environment);
    if (!by_this) continue;
    if (!place) {
      place = by_this;
      place->id = id_by(launcher.name, environment);
    } else if (by_this->rank == place->rank && by_this->world_size &&
               by_this->world_size == place->world_size) {
      complete(*place, *by_this);
    }
  }
  if (place && place->launcher == "torchrun" && !environment("TORCHELASTIC_RUN_ID"))
    place->launcher = "environment";
  return place;
}

}  // namespace inject
