// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// State of the calling thread that must not change: cancellation, errno, the last error, signals; and a wall
// clock that steps.
#include <cuda_profiler_api.h>
#include <dlfcn.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include "tests/integration/process/victim.h"
#include "tests/sim/cudasim.h"

using namespace victim;

namespace {

std::atomic<long> wall_clock_offset{0};  // seconds
std::atomic<long> monotonic_offset{0};   // seconds

}  // namespace

// This process's clocks: the wall clock steps when the program requests it, and the monotonic one may differ
// from the kernel's, as with libfaketime.
extern "C" int clock_gettime(clockid_t clock, timespec* time) {
  using Real = int (*)(clockid_t, timespec*);
  static std::atomic<Real> real{nullptr};
  Real call = real.load();
  if (call == nullptr) {
    call = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "clock_gettime"));
    real.store(call);
  }
  const int result = call(clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += wall_clock_offset.load();
  if (clock == CLOCK_MONOTONIC) time->tv_sec += monotonic_offset.load();
  return result;
}

namespace {

// ---- floating-point exceptions

// As with gfortran -ffpe-trap, and more.
void trap_floating_point() {
  const cudaKernel_t short_one = kernel("short_one");
  launch(short_one, 1);
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  feclearexcept(FE_ALL_EXCEPT);
  require(feenableexcept(FE_ALL_EXCEPT) == 0, "feenableexcept");
  open_window();
  launch(short_one, 100);
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  close_window();
  say("raised: %d, trapped: %d", fetestexcept(FE_ALL_EXCEPT), fegetexcept() == FE_ALL_EXCEPT);
}

// ---- cancellation

void in_thread(void* (*body)(void*)) {
  const std::uint64_t before = cudasim_call_count("cudaDeviceSynchronize");
  pthread_t thread;
  require(pthread_create(&thread, nullptr, body, nullptr) == 0, "pthread_create");
  wait_for_call("cudaDeviceSynchronize", before);
  sleep_ms(20);
  require(pthread_cancel(thread) == 0, "pthread_cancel");
  void* result = nullptr;
  require(pthread_join(thread, &result) == 0, "pthread_join");
  say("%s", result == PTHREAD_CANCELED ? "cancelled" : "ended");
}

cudaKernel_t slow_kernel = nullptr;
cudaKernel_t quick_kernel = nullptr;

cudaStream_t slow_stream = nullptr;

// The slow one ends once a quick one has started.
void make_kernels() {
  cudasim_set_fault("wait_for", "slow/quick");
  slow_kernel = kernel("slow");
  quick_kernel = kernel("quick");
  require(cudaStreamCreateWithFlags(&slow_stream, cudaStreamNonBlocking) == cudaSuccess, "cudaStreamCreate");
}

void cancel_in_blocking_call() {
  make_kernels();
  open_window();
  in_thread([](void*) -> void* {
    pthread_cleanup_push(
        [](void*) {
          say("clean-up handler");
          launch(quick_kernel, 5);
        },
        nullptr);
    launch(slow_kernel, 1, slow_stream);
    cudaDeviceSynchronize();
    say("not reached");
    pthread_cleanup_pop(0);
    return nullptr;
  });
  launch(quick_kernel, 5);
  close_window();
}

struct Destructor {
  ~Destructor() {
    say("destructor");
    launch(quick_kernel, 5);
  }
};

void cancel_through_destructors() {
  make_kernels();
  open_window();
  in_thread([](void*) -> void* {
    const Destructor destructor;
    launch(slow_kernel, 1, slow_stream);
    cudaDeviceSynchronize();
    say("not reached");
    return nullptr;
  });
  launch(quick_kernel, 5);
  close_window();
}

// A pending cancellation must not be acted upon inside libinject's own code, where the program never was. The
// thread writes nothing, because that would be a cancellation point.
void cancel_while_windows_open() {
  make_kernels();
  launch(quick_kernel, 1);
  static std::atomic<bool> due{false};
  static std::atomic<int> steps{0};
  pthread_t thread;
  require(pthread_create(
              &thread, nullptr,
              [](void*) -> void* {
                int before = 0;
                pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
                while (!due) sleep_ms(1);
                pthread_setcancelstate(before, nullptr);
                cudaProfilerStart();
                steps = 1;
                launch(quick_kernel, 7);
                steps = 2;
                cudaProfilerStop();
                steps = 3;
                flush_windows();
                steps = 4;
                pthread_testcancel();
                steps = 5;
                return nullptr;
              },
              nullptr) == 0,
          "pthread_create");
  require(pthread_cancel(thread) == 0, "pthread_cancel");
  due = true;
  void* result = nullptr;
  require(pthread_join(thread, &result) == 0, "pthread_join");
  say("%s after step %d", result == PTHREAD_CANCELED ? "cancelled" : "ended", steps.load());
}

// ---- errno, last error, signal state

int errno_at_start = -1;

// The program's own constructors run after libinject's.
[[gnu::constructor]] void look_at_errno() {
  errno_at_start = errno;
}

template <typename Call>
void errno_after(const char* name, Call call) {
  errno = 77;
  const int result = static_cast<int>(call());
  const int after = errno;
  say("%s returned %d, errno %d", name, result, after);
}

void keep_errno() {
  say("errno when main began: %d", errno_at_start);
  // The simulation's own first calls may change it.
  make_kernels();
  launch(quick_kernel, 1);
  cudaDeviceSynchronize();
  void* memory = nullptr;
  for (int i = 0; i < 3; ++i) {
    errno_after("cudaProfilerStart", [] { return cudaProfilerStart(); });
    errno_after("cudaMalloc", [&] { return cudaMalloc(&memory, 1024); });
    errno_after("launch", [] {
      launch(quick_kernel, 3);
      return 0;
    });
    errno_after("cudaMemset", [&] { return cudaMemset(memory, 0, 1024); });
    errno_after("cudaMemcpy", [&] {
      char host[1024];
      return cudaMemcpy(host, memory, sizeof host, cudaMemcpyDeviceToHost);
    });
    errno_after("cudaGetLastError", [] { return cudaGetLastError(); });
    errno_after("cudaFree", [&] { return cudaFree(memory); });
    errno_after("cudaProfilerStop", [] { return cudaProfilerStop(); });
    errno_after("launch", [] {
      launch(quick_kernel, 3);
      return 0;
    });
    std::thread([] {
      errno_after("launch of a new thread", [] {
        launch(quick_kernel, 1);
        return 0;
      });
    }).join();
    flush_windows();
  }
}

void keep_last_error() {
  make_kernels();
  launch(quick_kernel, 1);
  void* memory = nullptr;
  for (int i = 0; i < 2; ++i) {
    say("cudaMalloc of too much: %d", cudaMalloc(&memory, std::size_t{1} << 60));
    say("peek %d", cudaPeekAtLastError());
    say("start %d", cudaProfilerStart());
    say("peek %d", cudaPeekAtLastError());
    say("get %d, get %d", cudaGetLastError(), cudaGetLastError());
    say("free of nothing of ours %d", cudaFree(&memory));
    say("stop %d", cudaProfilerStop());
    say("peek %d, get %d, peek %d", cudaPeekAtLastError(), cudaGetLastError(), cudaPeekAtLastError());
    int device = -1;
    say("cudaGetDevice %d: %d", cudaGetDevice(&device), device);
    flush_windows();
  }
}

void say_signal_state(const char* when) {
  sigset_t mask;
  sigset_t pending;
  sigemptyset(&mask);
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  sigpending(&pending);
  for (int number = 1; number < 65; ++number) {
    struct sigaction action {};
    const bool handled = sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_DFL;
    if (sigismember(&mask, number) == 1 || sigismember(&pending, number) == 1 || handled) {
      say("%s: signal %d blocked %d pending %d handled %d", when, number, sigismember(&mask, number),
          sigismember(&pending, number), handled);
    }
  }
}

void keep_signal_state() {
  sigset_t some;
  sigemptyset(&some);
  sigaddset(&some, SIGUSR1);
  sigaddset(&some, SIGPIPE);
  pthread_sigmask(SIG_SETMASK, &some, nullptr);
  // A SIGPIPE of the program's own must stay pending, whatever libinject writes to.
  raise(SIGPIPE);
  say_signal_state("before");
  make_kernels();
  open_window();
  say_signal_state("open");
  launch(quick_kernel, 10);
  close_window();
  flush_windows();
  say_signal_state("after");
  std::thread([] { say_signal_state("new thread"); }).join();
}

// ---- handlers that call CUDA

std::atomic<int> handled{0};

// Interrupts the launching thread anywhere, including while it publishes a record.
void timer_with_cuda_calls(int which, int number) {
  make_kernels();
  launch(quick_kernel, 1);
  // Once before, because a first call's allocations must not happen in a handler.
  cudaGetLastError();
  cudaPeekAtLastError();
  struct sigaction action {};
  action.sa_handler = [](int) {
    cudaPeekAtLastError();
    handled.fetch_add(1);
  };
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
  open_window();
  const itimerval often{{0, 100}, {0, 100}};  // the kernel delivers as many as it can
  setitimer(static_cast<__itimer_which>(which), &often, nullptr);
  int calls = 0;
  // A busy machine delivers few signals. The ring has room for all the calls.
  constexpr int kMaxCalls = 2'500'000;
  constexpr int kSignals = 250;
  while (handled < kSignals || calls < kMaxCalls / 5) {
    if (calls >= kMaxCalls) continue;
    // Cheap calls, one after the other: much of the time is spent where records are made.
    for (int i = 0; i < 500; ++i) cudaGetLastError();
    calls += 500;
  }
  const itimerval never{};
  setitimer(static_cast<__itimer_which>(which), &never, nullptr);
  close_window();
  note("calls %d handled %d", calls, handled.load());
  say("done");
}

void alarm_with_cuda_calls() {
  timer_with_cuda_calls(ITIMER_REAL, SIGALRM);
}

void profiling_signal_with_cuda_calls() {
  timer_with_cuda_calls(ITIMER_PROF, SIGPROF);
}

// ---- the wall clock steps

void clock_steps() {
  cudasim_set_kernel_duration("timed", 1'000'000);
  const cudaKernel_t timed = kernel("timed");
  launch(timed, 1);
  // Far longer than any stall of the machine.
  const long steps[] = {600, -600, 3600, -3600, 0};
  for (const long step : steps) {
    open_window();
    launch(timed, 10);
    wall_clock_offset = step;
    sleep_ms(30);
    launch(timed, 10);
    require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
    close_window();
  }
  say("done");
}

// Launches until the window that the clock opens has closed and ended the process; 4 if none ever did.
void under_another_clock(long offset) {
  monotonic_offset = offset;
  const cudaKernel_t timed = kernel("timed");
  for (int i = 0; i < 2000; ++i) {
    launch(timed, 1);
    sleep_ms(10);
  }
  _exit(4);
}

void clock_behind() {
  under_another_clock(-864'000);
}

void clock_ahead() {
  under_another_clock(864'000);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"trap_floating_point", trap_floating_point},
              {"cancel_in_blocking_call", cancel_in_blocking_call},
              {"cancel_through_destructors", cancel_through_destructors},
              {"cancel_while_windows_open", cancel_while_windows_open},
              {"errno", keep_errno},
              {"last_error", keep_last_error},
              {"signal_state", keep_signal_state},
              {"alarm", alarm_with_cuda_calls},
              {"profiling_signal", profiling_signal_with_cuda_calls},
              {"clock_steps", clock_steps},
              {"clock_behind", clock_behind},
              {"clock_ahead", clock_ahead}});
}
