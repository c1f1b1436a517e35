// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Child processes, created before CUDA is initialised or with a window open: by fork, vfork, posix_spawn and
// exec.
#include <cuda_profiler_api.h>
#include <inject/inject.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/integration/process/victim.h"
#include "tests/sim/cudasim.h"

using namespace victim;

namespace {

constexpr const char* kSelf = "/proc/self/exe";
cudaKernel_t quick_kernel = nullptr;

void prepare() {
  quick_kernel = kernel("quick");
  launch(quick_kernel, 1);
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
}

void finish_window() {
  launch(quick_kernel, 100);
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  close_window();
}

/// Exit status, or minus the signal.
int wait_for(pid_t child) {
  int status = 0;
  require(waitpid(child, &status, 0) == child, "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

pid_t in_child(void (*body)()) {
  const pid_t child = fork();
  require(child >= 0, "fork");
  if (child != 0) return child;
  body();
  _exit(0);
}

pid_t spawn(const char* path, std::vector<const char*> arguments, int& failed) {
  arguments.push_back(nullptr);
  pid_t child = -1;
  failed = posix_spawn(&child, path, nullptr, nullptr, const_cast<char**>(arguments.data()), environ);
  return child;
}

// Everything that a child might try with its parent's CUDA and libinject's own functions.
void try_everything(const char* who) {
  void* memory = nullptr;
  const cudaError_t allocated = cudaMalloc(&memory, 16);
  const cudaError_t waited = cudaDeviceSynchronize();
  const cudaError_t started = cudaProfilerStart();
  const cudaError_t stopped = cudaProfilerStop();
  say("%s: malloc %d, synchronize %d, start %d, stop %d", who, allocated, waited, started, stopped);
  const int open = inject_is_open_if_loaded();
  const int opened = inject_start_if_loaded();
  const int closed = inject_stop_if_loaded();
  note("%s: open %d, start %d, stop %d, flush %d", who, open, opened, closed, inject_flush_if_loaded());
}

void child_of_a_window() {
  try_everything("child");
  std::thread([] { try_everything("child's thread"); }).join();
  say("child has %d thread(s)", thread_count());
  const pid_t grandchild = in_child([] {
    try_everything("grandchild");
    std::exit(6);
  });
  say("grandchild: %d", wait_for(grandchild));
}

void fork_in_a_window(void (*body)()) {
  prepare();
  open_window();
  launch(quick_kernel, 100);
  const pid_t child = in_child(body);
  say("child: %d", wait_for(child));
  finish_window();
}

void fork_and_exit() {
  fork_in_a_window([] {
    child_of_a_window();
    std::exit(3);
  });
}

void fork_and_underscore_exit() {
  fork_in_a_window([] {
    child_of_a_window();
    _exit(4);
  });
}

void fork_and_abort() {
  fork_in_a_window([] { std::abort(); });
}

// The child outlives its parent's window and the parent itself.
void fork_and_outlive() {
  prepare();
  open_window();
  launch(quick_kernel, 100);
  in_child([] {
    sleep_ms(300);
    try_everything("orphan");
    std::exit(0);
  });
  finish_window();
}

// Locks that the opening thread holds when the child is created are never released in the child.
void fork_while_opening() {
  prepare();
  cudasim_set_fault("attach_ms", "300");
  std::thread opening([] { open_window(); });
  wait_for_call(inject_is_open == nullptr ? "cudaProfilerStart" : "cuptiSubscribe", 0);
  const pid_t child = in_child([] {
    try_everything("child");
    std::exit(5);
  });
  say("child: %d", wait_for(child));
  opening.join();
  finish_window();
}

void fork_while_threads_launch() {
  prepare();
  const cudaKernel_t steady = kernel("steady");
  open_window();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([steady] { launch(steady, 2000); });
  int sum = 0;
  for (int i = 0; i < 40; ++i) {
    sum += wait_for(in_child([] {
      cudaGetLastError();
      std::exit(1);
    }));
    sum += wait_for(in_child([] { _exit(1); }));
  }
  for (std::thread& thread : threads) thread.join();
  say("children: %d", sum);
  finish_window();
}

// Children are created at any point of a window's life.
void fork_while_windows_come_and_go() {
  prepare();
  std::atomic<bool> done{false};
  std::thread forking([&done] {
    int sum = 0;
    do {
      sum += wait_for(in_child([] {
        cudaProfilerStart();
        cudaProfilerStop();
        std::exit(0);
      }));
    } while (!done);
    say("statuses: %d", sum);
  });
  for (int i = 0; i < 30; ++i) {
    open_window();
    launch(quick_kernel, 10);
    close_window();
    if (i == 15) flush_windows();
  }
  done = true;
  forking.join();
}

// ---- other programs

void vfork_with_failing_exec() {
  prepare();
  open_window();
  launch(quick_kernel, 100);
  int sum = 0;
  for (int i = 0; i < 40; ++i) {
    const pid_t child = vfork();
    if (child == 0) {
      execl("/nonexistent/program", "program", nullptr);
      _exit(1);
    }
    sum += wait_for(child);
  }
  say("failed: %d", sum);
  finish_window();
}

void vfork_with_hooked_calls() {
  prepare();
  open_window();
  launch(quick_kernel, 100);
  const pid_t child = vfork();
  if (child == 0) {
    // Forbidden, but done anyway: on the parent's memory and thread.
    cudaGetLastError();
    cudaProfilerStop();
    _exit(1);
  }
  say("child: %d", wait_for(child));
  say("still open: %d", inject_is_open_if_loaded() == (inject_is_open == nullptr ? 0 : 1));
  finish_window();
}

void spawn_in_a_window() {
  prepare();
  open_window();
  launch(quick_kernel, 100);
  int failed = 0;
  say("echo: %d", wait_for(spawn("/bin/echo", {"echo", "another program"}, failed)));
  spawn("/nonexistent/program", {"program"}, failed);
  say("no program: %d", failed);
  say("system: %d",
      WEXITSTATUS(std::system("exit 7")));  // NOLINT(cert-env33-c): the C library's way to spawn
  FILE* stream = popen("echo piped", "r");  // NOLINT(cert-env33-c)
  std::array<char, 16> text{};
  require(stream != nullptr && std::fgets(text.data(), text.size(), stream) != nullptr, "popen");
  say("popen: %s%d", text.data(), pclose(stream));
  finish_window();
}

void one_window() {
  const cudaKernel_t other = kernel("other");
  open_window();
  launch(other, 7);
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  close_window();
}

void spawn_cuda_in_a_window() {
  prepare();
  open_window();
  launch(quick_kernel, 100);
  int failed = 0;
  say("spawned: %d", wait_for(spawn(kSelf, {"forks_victim", "one_window"}, failed)));
  // By fork and exec, as Python's subprocess does for some of its options.
  say("executed: %d", wait_for(in_child([] {
        execl(kSelf, "forks_victim", "one_window", nullptr);
        _exit(127);
      })));
  finish_window();
}

void exec_cuda_in_a_window() {
  prepare();
  open_window();
  launch(quick_kernel, 100);
  wait_for_open_on_disk();
  execl(kSelf, "forks_victim", "one_window", nullptr);
  _exit(127);
}

// ---- CUDA after the fork

void cuda_in_children_only() {
  std::array<pid_t, 3> children{};
  for (pid_t& child : children) {
    child = in_child([] {
      one_window();
      std::exit(0);
    });
  }
  const pid_t flushing = in_child([] {
    one_window();
    flush_windows();
    _exit(0);
  });
  for (const pid_t child : children) say("child: %d", wait_for(child));
  say("child: %d", wait_for(flushing));
}

void cuda_in_parent_and_child() {
  const pid_t child = in_child([] {
    one_window();
    std::exit(0);
  });
  prepare();
  open_window();
  launch(quick_kernel, 100);
  say("child: %d", wait_for(child));
  finish_window();
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"fork_and_exit", fork_and_exit},
              {"fork_and_underscore_exit", fork_and_underscore_exit},
              {"fork_and_abort", fork_and_abort},
              {"fork_and_outlive", fork_and_outlive},
              {"fork_while_opening", fork_while_opening},
              {"fork_while_threads_launch", fork_while_threads_launch},
              {"fork_while_windows_come_and_go", fork_while_windows_come_and_go},
              {"vfork_with_failing_exec", vfork_with_failing_exec},
              {"vfork_with_hooked_calls", vfork_with_hooked_calls},
              {"spawn_in_a_window", spawn_in_a_window},
              {"one_window", one_window},
              {"spawn_cuda_in_a_window", spawn_cuda_in_a_window},
              {"exec_cuda_in_a_window", exec_cuda_in_a_window},
              {"cuda_in_children_only", cuda_in_children_only},
              {"cuda_in_parent_and_child", cuda_in_parent_and_child}});
}
