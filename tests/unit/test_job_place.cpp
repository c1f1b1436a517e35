// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/model/job_place.h"

#include <map>
#include <string>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

std::string shown(std::optional<std::uint32_t> number) {
  return number ? std::to_string(*number) : "?";
}

/// launcher id rank/world local/of node/of
std::string place(const Variables& variables) {
  const std::optional<JobPlace> job =
      job_from_environment([&](std::string_view name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      });
  if (!job) return "none";
  return job->launcher + " [" + job->id + "] " + std::to_string(job->rank) + "/" + shown(job->world_size) +
         " " + shown(job->local_rank) + "/" + shown(job->local_size) + " " + shown(job->node) + "/" +
         shown(job->nodes);
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"GROUP_RANK", "1"},
                          {"GROUP_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "10.0.0.1"},
                          {"TORCHELASTIC_RUN_ID", "my job"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"OMPI_COMM_WORLD_NODE_RANK", "1"},  {"PMIX_NAMESPACE", "prterun-node7-99@1"}};
const Variables kSlurm{{"SLURM_PROCID", "3"},    {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"},
                       {"SLURM_LOCALID", "1"},   {"SLURM_NODEID", "1"}, {"SLURM_STEP_NUM_NODES", "2"},
                       {"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", "2"}};

}  // namespace

TEST_CASE("What each launcher tells of a process's place", "[config]") {
  CHECK_FALSE(job_from_environment(nullptr).has_value());
  CHECK(place({}) == "none");
  CHECK(place({{"WORLD_SIZE", "8"}, {"SLURM_JOB_ID", "4711"}}) == "none");
  CHECK(place(kTorchrun) == "torchrun [torchrun:my job] 5/8 1/4 1/2");
  CHECK(place(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}})) == "torchrun [] 5/8 1/4 1/2");
  CHECK(place({{"RANK", "0"}}) == "environment [] 0/? ?/? ?/?");
  CHECK(place(kOpenMpi) == "Open MPI [pmix:prterun-node7-99@1] 3/4 1/2 ?/?");
  CHECK(place({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}) ==
        "PMI [] 1/2 1/2 ?/?");
  CHECK(place(kSlurm) == "Slurm [slurm:4711.2] 3/4 1/? 1/2");
}

TEST_CASE("Of several launchers the first counts, and others where they agree with it", "[config]") {
  // srun starts each rank's process, and torchrun's variables are set by hand.
  Variables both = with(kSlurm, {{"RANK", "3"}, {"WORLD_SIZE", "4"}});
  CHECK(place(both) == "environment [slurm:4711] 3/4 1/? 1/2");
  // srun starts one torchrun per node: its variables describe the launcher's process, not this one.
  both = with(kSlurm, kTorchrun);
  both.erase("GROUP_RANK");
  both.erase("LOCAL_RANK");
  CHECK(place(both) == "torchrun [torchrun:my job slurm:4711] 5/8 ?/4 ?/2");
  both["SLURM_PROCID"] = "5";
  CHECK(place(both) == "torchrun [torchrun:my job slurm:4711] 5/8 ?/4 ?/2");
  both["SLURM_STEP_NUM_TASKS"] = "8";
  CHECK(place(both) == "torchrun [torchrun:my job slurm:4711] 5/8 1/4 1/2");
  // mpirun within an allocation.
  CHECK(place(with(kSlurm, kOpenMpi)) == "Open MPI [pmix:prterun-node7-99@1 slurm:4711] 3/4 1/2 1/2");
  CHECK(place(with(with(kSlurm, kOpenMpi), {{"SLURM_PROCID", "0"}})) ==
        "Open MPI [pmix:prterun-node7-99@1 slurm:4711] 3/4 1/2 ?/?");
  // A batch script's process, which is not one of the allocation's tasks.
  CHECK(
      place({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "64"}, {"SLURM_NNODES", "8"}, {"SLURM_JOB_ID", "5"}}) ==
      "Slurm [slurm:5] 0/? ?/? ?/?");
}

TEST_CASE("Variables of a launcher that make no sense are not believed", "[config]") {
  for (const char* rank :
       {"", "-1", "x", "3x", " 3", "+3", "0x3", "3.0", "1048576", "99999999999999999999"}) {
    INFO(rank);
    CHECK(place(with(kTorchrun, {{"RANK", rank}})) == "none");
    CHECK(place(with(with(kTorchrun, kOpenMpi), {{"RANK", rank}})) ==
          "Open MPI [pmix:prterun-node7-99@1] 3/4 1/2 ?/?");
    const std::string world = place(with(kTorchrun, {{"WORLD_SIZE", rank}}));
    CHECK(world == "torchrun [torchrun:my job] 5/? 1/4 1/2");
  }
  CHECK(place(with(kTorchrun, {{"WORLD_SIZE", "5"}})) == "torchrun [torchrun:my job] 5/? 1/4 1/2");
  CHECK(place(with(kTorchrun, {{"LOCAL_RANK", "4"}})) == "torchrun [torchrun:my job] 5/8 ?/? 1/2");
  CHECK(place(with(kTorchrun, {{"GROUP_WORLD_SIZE", "0"}})) == "torchrun [torchrun:my job] 5/8 1/4 ?/?");
  CHECK(place({{"RANK", "1048575"}, {"WORLD_SIZE", "1048576"}}) == "environment [] 1048575/? ?/? ?/?");
  const std::string cut =
      place(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "a\nb\x1b[31m" + std::string(5000, 'c')}}));
  CHECK(cut.find("[torchrun:a?b?[31mccc") != std::string::npos);
  CHECK(cut.size() < 300);
}
