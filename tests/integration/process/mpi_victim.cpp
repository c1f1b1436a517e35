// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A rank of an MPI job, which ends well or not. Only rank 0 writes to stdout, because the order in which the
// launcher passes on the output of several ranks is undefined.
#include <dirent.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/integration/looks.h"
#include "tests/integration/process/victim.h"

using namespace victim;

namespace {

constexpr int kSteps = 10;
constexpr int kPatience = 30'000;  // ms

int job_rank = -1;
int job_ranks = 0;

void join_job() {
  require(MPI_Init(nullptr, nullptr) == MPI_SUCCESS, "MPI_Init");
  MPI_Comm_rank(MPI_COMM_WORLD, &job_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job_ranks);
}

void meet() {
  require(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS, "MPI_Barrier");
}

// A window in which rank r launches r + 1 kernels per step, and the ranks sum them up.
void steps() {
  const cudaKernel_t step = kernel("step");
  open_window();
  long sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    launch(step, job_rank + 1);
    const long mine = job_rank + sum;
    require(MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS, "MPI_Allreduce");
  }
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  close_window();
  if (job_rank == 0) say("%d ranks, sum %ld", job_ranks, sum);
}

int threads_of_ours(const std::string& process) {
  const std::string path = "/proc/" + process + "/task";
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return -1;
  int count = 0;
  while (const dirent* entry = readdir(folder)) {
    if (looks::text_of(path + "/" + entry->d_name + "/comm") == "libinject\n") ++count;
  }
  closedir(folder);
  return count;
}

// What of libinject is in this process and in its ancestors, as far up as it was preloaded.
void note_launchers() {
  note("rank: threads of ours %d", threads_of_ours("self"));
  std::string process = std::to_string(getppid());
  while (looks::text_of("/proc/" + process + "/maps").find("libinject") != std::string::npos) {
    note("launcher: threads of ours %d", threads_of_ours(process));
    const std::string status = looks::text_of("/proc/" + process + "/status");
    process = std::to_string(std::atoi(status.c_str() + status.find("PPid:") + 5));
  }
}

void train() {
  join_job();
  steps();
  if (job_rank == 0) note_launchers();
  MPI_Finalize();
}

// The launcher ends the remaining ranks as soon as one fails; this one fails when the others have gone.
void train_and_fail() {
  join_job();
  steps();
  const int mine = getpid();
  std::vector<int> processes(static_cast<std::size_t>(job_ranks));
  MPI_Allgather(&mine, 1, MPI_INT, processes.data(), 1, MPI_INT, MPI_COMM_WORLD);
  MPI_Finalize();
  if (job_rank != 1) return;
  for (const int process : processes) {
    for (int i = 0; i < kPatience && process != mine && kill(process, 0) == 0; ++i) sleep_ms(1);
  }
  std::exit(3);
}

// Many jobs have ranks that only distribute work.
void half_of_them() {
  join_job();
  if (job_rank % 2 == 1) {
    const cudaKernel_t step = kernel("step");
    open_window();
    launch(step, job_rank);
    close_window();
  }
  meet();
  if (job_rank == 0) say("done");
  MPI_Finalize();
}

// The ranks reach the ends of their windows one after the other, and wait for a rank that may be gone.
void windows_one_after_the_other() {
  join_job();
  const cudaKernel_t step = kernel("step");
  open_window();
  for (int rank = 0; rank < job_ranks; ++rank) {
    if (rank == job_rank) {
      launch(step, job_rank + 1);
      close_window();
    }
    meet();
    sleep_ms(50);
  }
  sleep_ms(kPatience);
  if (job_rank == 0) say("not reached under INJECT_AFTER=exit");
  MPI_Finalize();
}

// Each rank has a window on disk, and is in a second one.
void in_second_window() {
  join_job();
  if (job_rank == 2) require(signal(SIGTERM, SIG_IGN) != SIG_ERR, "signal");
  const cudaKernel_t first = kernel("first");
  const cudaKernel_t second = kernel("second");
  open_window();
  launch(first, 20);
  close_window();
  flush_windows();
  open_window();
  wait_for_open_on_disk();
  launch(second, job_rank + 5);
  if (job_rank == 0) say("all are in their windows");
  meet();
}

// Waits until the launcher ends it, with half of the ranks in a collective.
void wait_for_the_end() {
  if (job_rank % 3 == 0) meet();
  sleep_ms(kPatience);
  _exit(95);
}

void aborted() {
  in_second_window();
  if (job_rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
  wait_for_the_end();
}

void killed() {
  in_second_window();
  if (job_rank == 1) raise(SIGKILL);
  wait_for_the_end();
}

void launcher_ended() {
  in_second_window();
  if (job_rank == 1) kill(getppid(), SIGTERM);
  wait_for_the_end();
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"train", train},
              {"train_and_fail", train_and_fail},
              {"half_of_them", half_of_them},
              {"windows_one_after_the_other", windows_one_after_the_other},
              {"aborted", aborted},
              {"killed", killed},
              {"launcher_ended", launcher_ended}});
}
