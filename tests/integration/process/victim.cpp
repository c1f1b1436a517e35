// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/integration/process/victim.h"

#include <cuda_profiler_api.h>
#include <dirent.h>
#include <fcntl.h>
#include <inject/inject.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "tests/integration/looks.h"
#include "tests/sim/cudasim.h"

// Functions that nvcc's code calls, declared in headers that only nvcc's own code includes.
extern "C" {
void** __cudaRegisterFatBinary(void* fatCubin);
void __cudaRegisterFatBinaryEnd(void** fatCubinHandle);
void __cudaRegisterFunction(void** fatCubinHandle, const char* hostFun, char* deviceFun,
                            const char* deviceName, int thread_limit, uint3* tid, uint3* bid, dim3* bDim,
                            dim3* gDim, int* wSize);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entryFunction);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args,
                               size_t sharedMem, cudaStream_t stream);
}

namespace victim {

namespace {

constexpr int kPatience = 30'000;  // ms

void write_line(int descriptor, const char* format, va_list arguments) {
  char line[512];
  const int length = std::vsnprintf(line, sizeof line - 1, format, arguments);
  line[length] = '\n';
  // Not through stdio: nothing is buffered that a fork would write twice or _exit would lose.
  if (write(descriptor, line, static_cast<std::size_t>(length) + 1) != length + 1) _exit(97);
}

}  // namespace

cudaKernel_t kernel(const char* name) {
  char* stub = new char(0);  // a unique address stands for each host stub
  void** binary = __cudaRegisterFatBinary(nullptr);
  __cudaRegisterFunction(binary, stub, stub, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  __cudaRegisterFatBinaryEnd(binary);
  cudaKernel_t handle = nullptr;
  require(__cudaGetKernel(&handle, stub) == cudaSuccess, "__cudaGetKernel");
  return handle;
}

void launch(cudaKernel_t kernel, int count, cudaStream_t stream) {
  for (int i = 0; i < count; ++i) {
    if (__cudaLaunchKernel(kernel, dim3(1), dim3(32), nullptr, 0, stream) != cudaSuccess) {
      say("launch failed");
      _exit(99);
    }
  }
}

void open_window() {
  require(cudaProfilerStart() == cudaSuccess, "cudaProfilerStart");
}

void close_window() {
  require(cudaProfilerStop() == cudaSuccess, "cudaProfilerStop");
}

void flush_windows() {
  inject_flush_if_loaded();
}

void wait_for_open_on_disk() {
  if (inject_is_open == nullptr) return;
  const std::string path = "out-" + std::to_string(getpid()) + "/run.json";
  for (int i = 0; i < kPatience; ++i) {
    if (looks::text_of(path).find("\"state\": \"open\"") != std::string::npos) return;
    sleep_ms(1);
  }
  require(false, "an open window in run.json");
}

void wait_for_look() {
  const looks::Looks since;
  for (int i = 0; i < kPatience && !since.seen(2); ++i) sleep_ms(1);
}

void wait_for_call(const char* function, std::uint64_t before) {
  for (int i = 0; i < kPatience && cudasim_call_count(function) <= before; ++i) sleep_ms(1);
}

void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_line(STDOUT_FILENO, format, arguments);
  va_end(arguments);
}

void note(const char* format, ...) {
  const char* path = std::getenv("VICTIM_NOTES");
  if (path == nullptr) return;
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  va_list arguments;
  va_start(arguments, format);
  write_line(file, format, arguments);
  va_end(arguments);
  close(file);
}

void require(bool good, const char* what) {
  if (good) return;
  say("failed: %s (%s)", what, std::strerror(errno));
  _exit(98);
}

void sleep_ms(int milliseconds) {
  timespec rest{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
  while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
  }
}

int thread_count() {
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return -1;
  int count = 0;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(folder);
  return count;
}

int run(int argc, char** argv, std::initializer_list<Scenario> scenarios) {
  for (const Scenario& scenario : scenarios) {
    if (argc > 1 && std::strcmp(argv[1], scenario.name) == 0) {
      scenario.run();
      return 0;
    }
  }
  say("no such scenario");
  return 96;
}

}  // namespace victim
