// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Ways to end, each with one window written, a second one open and its work still queued on the device.
#include <cuda_profiler_api.h>
#include <inject/inject.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/integration/process/victim.h"
#include "tests/sim/cudasim.h"

using namespace victim;

namespace {

cudaKernel_t late_kernel = nullptr;

// Constructed before CUDA is initialised, so its destructor runs after every exit handler registered since.
struct Late {
  ~Late() {
    if (late_kernel == nullptr) return;
    launch(late_kernel, 3);
    say("static destructor: synchronize %d", cudaDeviceSynchronize());
  }
} late;

// 100 kernels in a window that has been written, 50 in one that is open: at 2 ms each, 100 ms of device time.
void work(std::uint64_t slow_ns = 2'000'000) {
  cudasim_set_kernel_duration("slow", slow_ns);
  const cudaKernel_t quick = kernel("quick");
  const cudaKernel_t slow = kernel("slow");
  open_window();
  launch(quick, 100);
  close_window();
  flush_windows();
  open_window();
  launch(slow, 50);
  say("launched");
}

// Files are written once a second: gives libinject's own thread the time to report that a window is open
// again.
void work_and_wait() {
  work();
  wait_for_open_on_disk();
}

void end_by_return() {
  work();
}

void end_by_exit() {
  work();
  std::exit(3);
}

void end_by_quick_exit() {
  work();
  std::quick_exit(4);
}

void end_by_exit_of_a_thread() {
  work();
  std::thread([] { std::exit(5); }).join();
}

// The launching threads continue while the exit handlers run.
void end_while_threads_launch() {
  work();
  const cudaKernel_t busy = kernel("busy");
  static std::array<std::atomic<int>, 8> launched;
  std::vector<std::thread> threads;
  for (std::atomic<int>& mine : launched) {
    threads.emplace_back([&mine, busy] {
      cudaStream_t stream = nullptr;
      require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "cudaStreamCreate");
      for (;;) {
        launch(busy, 1, stream);
        mine.fetch_add(1);
      }
    });
  }
  int sum = 0;
  for (const std::atomic<int>& theirs : launched) {
    while (theirs.load() < 200) sleep_ms(1);
    sum += theirs.load();
  }
  note("launched %d", sum);
  std::exit(6);
}

void end_with_late_destructor() {
  work();
  late_kernel = kernel("late");
  // Its first launch is outside the window; all of its kernels come after the exit handlers.
}

void end_in_exit_handler() {
  work();
  std::atexit([] {
    say("exit handler");
    std::exit(8);
  });
  std::exit(7);
}

// Registered before CUDA is initialised, so it runs after libinject's.
void end_in_early_exit_handler() {
  std::atexit([] {
    say("exit handler: last error %d", cudaPeekAtLastError());
    std::exit(8);
  });
  work();
  std::exit(7);
}

// Registered after the window opened, so it runs before libinject's, and its launches are in the window.
void launch_in_exit_handler() {
  static cudaKernel_t handlers;
  work();
  handlers = kernel("handlers");
  std::atexit([] { launch(handlers, 10); });
}

void first_cuda_in_exit_handler() {
  std::atexit([] { work(); });
}

void end_in_signal_handler() {
  struct sigaction action {};
  action.sa_handler = [](int) { std::exit(9); };
  sigaction(SIGTERM, &action, nullptr);
  constexpr std::uint64_t kSlow = 20'000'000;  // a second in all, longer than the signal takes to arrive
  work(kSlow);
  const std::uint64_t before = cudasim_call_count("cudaDeviceSynchronize");
  std::thread([before] {
    wait_for_call("cudaDeviceSynchronize", before);
    kill(getpid(), SIGTERM);
  }).detach();
  // The other thread must not get the signal, which would interrupt no hooked call.
  cudaDeviceSynchronize();
  say("not reached");
}

// The handler interrupts the opening of a window, and whichever lock libinject holds at that moment.
void end_in_signal_handler_while_opening() {
  struct sigaction action {};
  action.sa_handler = [](int) { std::exit(10); };
  sigaction(SIGALRM, &action, nullptr);
  const cudaKernel_t quick = kernel("quick");
  launch(quick, 1);
  cudasim_set_fault("attach_ms", "400");
  say("opening");
  ualarm(100'000, 0);
  cudaProfilerStart();
  // Without libinject there is nothing to interrupt.
  for (;;) pause();
}

void end_while_a_thread_opens() {
  const cudaKernel_t quick = kernel("quick");
  launch(quick, 1);
  cudasim_set_fault("attach_ms", "400");
  std::thread([] { cudaProfilerStart(); }).detach();
  sleep_ms(100);
  say("exit");
  std::exit(11);
}

void end_by_exception() {
  work_and_wait();
  throw std::runtime_error("nobody catches this");
}

void end_by_exception_of_a_thread() {
  work_and_wait();
  std::thread([] { throw std::runtime_error("nobody catches this"); }).join();
}

void end_by_sigterm() {
  work_and_wait();
  kill(getpid(), SIGTERM);
  for (;;) pause();
}

void end_by_sigkill() {
  work_and_wait();
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void end_by_abort() {
  work_and_wait();
  std::abort();
}

void end_by_underscore_exit() {
  work_and_wait();
  _exit(12);
}

void end_by_exec() {
  work_and_wait();
  const char* arguments[] = {"/bin/echo", "another program", nullptr};
  execv(arguments[0], const_cast<char**>(arguments));
  _exit(13);
}

// Only a first window, which is cut off.
void cut_first_window() {
  const cudaKernel_t quick = kernel("quick");
  open_window();
  launch(quick, 10);
  wait_for_open_on_disk();
  _exit(12);
}

void no_window() {
  launch(kernel("quick"), 10);
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"return", end_by_return},
              {"exit", end_by_exit},
              {"quick_exit", end_by_quick_exit},
              {"exit_of_a_thread", end_by_exit_of_a_thread},
              {"threads_launch", end_while_threads_launch},
              {"late_destructor", end_with_late_destructor},
              {"in_exit_handler", end_in_exit_handler},
              {"in_early_exit_handler", end_in_early_exit_handler},
              {"launch_in_exit_handler", launch_in_exit_handler},
              {"first_cuda_in_exit_handler", first_cuda_in_exit_handler},
              {"in_signal_handler", end_in_signal_handler},
              {"in_signal_handler_while_opening", end_in_signal_handler_while_opening},
              {"while_a_thread_opens", end_while_a_thread_opens},
              {"exception", end_by_exception},
              {"exception_of_a_thread", end_by_exception_of_a_thread},
              {"sigterm", end_by_sigterm},
              {"sigkill", end_by_sigkill},
              {"abort", end_by_abort},
              {"underscore_exit", end_by_underscore_exit},
              {"exec", end_by_exec},
              {"cut_first_window", cut_first_window},
              {"no_window", no_window}});
}
