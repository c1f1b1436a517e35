// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Shared by the programs in this folder. Each is a set of scenarios: `program SCENARIO`. Their output on
// stdout is the same with and without the preloaded library; output that only a test of the preloaded run
// needs goes into the file named by VICTIM_NOTES.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <initializer_list>

namespace victim {

/// A kernel as registered by nvcc's code.
cudaKernel_t kernel(const char* name);

/// Launches `count` kernels on `stream` and ends the program with status 99 if one can't be launched.
void launch(cudaKernel_t kernel, int count, cudaStream_t stream = nullptr);

/// cudaProfilerStart and cudaProfilerStop, checked.
void open_window();
void close_window();

/// Waits until the records of the closed windows are on disk, if libinject is loaded.
void flush_windows();

/// Waits, if libinject is loaded, until run.json reports an open window: then no file is being written any
/// more.
void wait_for_open_on_disk();

/// Waits until libinject's own thread, if there is one, has taken the records published so far.
void wait_for_look();

/// Waits until the simulated function has been called more often than `before` (its cudasim_call_count).
void wait_for_call(const char* function, std::uint64_t before);

/// Prints a line on stdout at once.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);

/// Writes a line to VICTIM_NOTES.
[[gnu::format(printf, 1, 2)]] void note(const char* format, ...);

/// If not `good`, ends the program with status 98 and the failed expression on stdout.
void require(bool good, const char* what);

void sleep_ms(int milliseconds);

/// Number of threads of this process.
int thread_count();

struct Scenario {
  const char* name;
  void (*run)();
};
int run(int argc, char** argv, std::initializer_list<Scenario> scenarios);

}  // namespace victim
