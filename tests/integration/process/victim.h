// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the programs of this folder share. Each is a set of scenarios: `program SCENARIO`. What they print on
// stdout is the same with and without the preloaded library; what only a test of the preloaded run needs goes
// into the file that VICTIM_NOTES names.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <initializer_list>

namespace victim {

/// A kernel as nvcc's code registers one.
cudaKernel_t kernel(const char* name);

/// Launches `count` kernels on `stream` and ends the program with status 99 if one can't be launched.
void launch(cudaKernel_t kernel, int count, cudaStream_t stream = nullptr);

/// cudaProfilerStart and cudaProfilerStop, checked.
void open_window();
void close_window();

/// Waits until what the closed windows recorded is on disk, if libinject is there.
void flush_windows();

/// Waits, if libinject is there, until run.json says that a window is open: then no file is being written any
/// more.
void wait_for_open_on_disk();

/// Waits until libinject's own thread, if there is one, has taken the records that lie there now.
void wait_for_look();

/// Waits until the simulation has been called more often than `before` (its cudasim_call_count).
void wait_for_call(const char* function, std::uint64_t before);

/// A line on stdout, at once.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);

/// A line in VICTIM_NOTES.
[[gnu::format(printf, 1, 2)]] void note(const char* format, ...);

/// Ends the program with status 98 and the failed expression on stdout.
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
