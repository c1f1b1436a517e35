// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A training loop that runs for a given time, by the clock: `soak_victim api|time CYCLES SAMPLES`. A cycle
// takes two seconds and has a hundred steps; with `api` the first ten of them are a window, with `time`
// INJECT_WINDOW determines the windows. Each cycle has a range with a new name and a thread of its own, as
// long runs have, which become rows of the tables. SAMPLES gets a line every 20 seconds: the resources that
// the process holds.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dirent.h>
#include <fcntl.h>
#include <inject/inject.h>
#include <malloc.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>

#include "tests/integration/process/victim.h"
#include "tests/sim/cudasim.h"

namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kCycle = 2000 * kMillisecond;
constexpr std::int64_t kStep = 20 * kMillisecond;
constexpr int kSteps = static_cast<int>(kCycle / kStep);
constexpr int kProfiledSteps = 10;
constexpr int kCyclesPerSample = 10;

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}
std::int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return nanoseconds(time);
}
// The machine's own clock, unlike the one that this process sees.
std::int64_t machine_time() {
  timespec time{};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
  return nanoseconds(time);
}
void sleep_until(std::int64_t time) {
  for (std::int64_t left = time - now(); left > 0; left = time - now()) {
    const timespec rest{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    nanosleep(&rest, nullptr);
  }
}

// In kB, from a file like /proc/self/smaps_rollup. Read without an allocation, because allocations are what
// is measured.
long value_of(const char* text, const char* name) {
  const char* const found = std::strstr(text, name);
  return found == nullptr ? -1 : std::strtol(found + std::strlen(name), nullptr, 10);
}

struct Entries {
  long count = 0;
  long long bytes = 0;
};
Entries entries_of(const char* path) {
  Entries entries;
  DIR* const folder = opendir(path);
  if (folder == nullptr) return entries;
  while (const dirent* entry = readdir(folder)) {
    struct stat status {};
    if (entry->d_name[0] == '.') continue;
    ++entries.count;
    if (fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0)
      entries.bytes += status.st_size;
  }
  closedir(folder);
  return entries;
}

// Bytes of the heap in use, excluding its free memory, whose amount depends on how several threads'
// allocations are laid out. Covers all of malloc's arenas, which it only reports as XML.
long long heap_in_use() {
  static std::array<char, 1 << 20> text;
  FILE* const file = fmemopen(text.data(), text.size(), "w");
  victim::require(file != nullptr && malloc_info(0, file) == 0 && std::fclose(file) == 0, "malloc_info");
  // The sums follow the arenas, each as <total type="fast" count="0" size="0"/>.
  const char* const sums = std::strstr(text.data(), "</heap>\n<total");
  const char* at = text.data();
  for (const char* next = sums; next != nullptr; next = std::strstr(at + 1, "</heap>\n<total")) at = next;
  const auto size_of = [&](const char* name) {
    const char* found = std::strstr(at, name);
    if (found != nullptr) found = std::strstr(found, "size=\"");
    victim::require(found != nullptr, name);
    return std::strtoll(found + std::strlen("size=\""), nullptr, 10);
  };
  return size_of("system type=\"current\"") + size_of("total type=\"mmap\"") -
         size_of("total type=\"fast\"") - size_of("total type=\"rest\"");
}

// The thread on which libinject works, 0 if it has none at present; of two the older one, as the other one
// reads the devices' memory.
long own_thread() {
  long found = 0;
  DIR* const folder = opendir("/proc/self/task");
  victim::require(folder != nullptr, "/proc/self/task");
  // In order of creation.
  for (const dirent* entry = readdir(folder); entry != nullptr && found == 0; entry = readdir(folder)) {
    std::array<char, 300> path{};
    std::array<char, 16> name{};
    std::snprintf(path.data(), path.size(), "/proc/self/task/%s/comm", entry->d_name);
    const int file = open(path.data(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    if (read(file, name.data(), name.size() - 1) > 0 && std::strcmp(name.data(), "libinject\n") == 0)
      found = std::strtol(entry->d_name, nullptr, 10);
    close(file);
  }
  closedir(folder);
  return found;
}

class Samples {
 public:
  explicit Samples(const char* path) : file_(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    victim::require(file_ >= 0, "the file of samples");
    write(
        "seconds,cycles,rss_kb,anonymous_kb,heap_kb,descriptors,threads,files,output_bytes,processor_ms,own_"
        "thread,device_kb\n");
  }

  void take(long cycles) const {
    std::array<char, 4096> maps{};
    const int descriptor = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    const ssize_t size = read(descriptor, maps.data(), maps.size() - 1);
    close(descriptor);
    victim::require(size > 0, "/proc/self/smaps_rollup");
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const long processor = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
                           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
    const Entries output = entries_of(folder_.c_str());
    std::size_t free_bytes = 0, device_bytes = 0;
    victim::require(cudaMemGetInfo(&free_bytes, &device_bytes) == cudaSuccess, "cudaMemGetInfo");
    // Its own descriptor is one of them.
    std::array<char, 256> line{};
    std::snprintf(line.data(), line.size(), "%.3f,%ld,%ld,%ld,%lld,%ld,%d,%ld,%lld,%ld,%ld,%zu\n",
                  static_cast<double>(now() - begin_) / 1e9, cycles, value_of(maps.data(), "Rss:"),
                  value_of(maps.data(), "Anonymous:"), heap_in_use() / 1024,
                  entries_of("/proc/self/fd").count - 1, victim::thread_count(), output.count, output.bytes,
                  processor, own_thread(), (device_bytes - free_bytes) / 1024);
    write(line.data());
  }

 private:
  void write(const char* text) const {
    const auto size = static_cast<ssize_t>(std::strlen(text));
    victim::require(::write(file_, text, static_cast<std::size_t>(size)) == size, "a line of samples");
  }

  int file_;
  std::string folder_ = "out-" + std::to_string(getpid());
  std::int64_t begin_ = now();
};

class Training {
 public:
  Training() {
    victim::require(cudaMalloc(&batch_, sizeof host_) == cudaSuccess, "cudaMalloc");
    victim::require(cublasCreate(&blas_) == CUBLAS_STATUS_SUCCESS, "cublasCreate");
    cudasim_set_kernel_duration("", 300'000);
  }

  void step() {
    nvtxRangePushA("step");
    victim::sleep_ms(3);
    void* memory = nullptr;
    victim::require(cudaMalloc(&memory, 4096) == cudaSuccess, "cudaMalloc");
    victim::require(
        cudaMemcpyAsync(batch_, host_, sizeof host_, cudaMemcpyHostToDevice, nullptr) == cudaSuccess,
        "cudaMemcpyAsync");
    constexpr float kOne = 1;
    auto* const matrix = static_cast<float*>(batch_);
    launch(forward_, 3);
    victim::require(cublasSgemm(blas_, CUBLAS_OP_N, CUBLAS_OP_T, 16, 16, 16, &kOne, matrix, 16, matrix, 16,
                                &kOne, matrix, 16) == CUBLAS_STATUS_SUCCESS,
                    "cublasSgemm");
    launch(backward_, 6);
    launch(optimizer_, 1);
    victim::require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
    victim::require(cudaFree(memory) == cudaSuccess, "cudaFree");
    nvtxRangePop();
  }

  // The work after an epoch.
  void log(const char* name) {
    nvtxRangePushA(name);
    launch(log_, 1);
    victim::require(cudaMemcpyAsync(host_, batch_, 64, cudaMemcpyDeviceToHost, nullptr) == cudaSuccess,
                    "cudaMemcpyAsync");
    victim::require(cudaStreamSynchronize(nullptr) == cudaSuccess, "cudaStreamSynchronize");
    nvtxRangePop();
  }

  // Launches during which a window was certainly open, and those during which one may have been.
  long surely() const { return surely_; }
  long perhaps() const { return perhaps_; }

 private:
  void launch(cudaKernel_t kernel, int count) {
    for (int i = 0; i < count; ++i) {
      const int before = inject_is_open_if_loaded();
      victim::launch(kernel, 1);
      const int after = inject_is_open_if_loaded();
      surely_ += before & after;
      perhaps_ += before | after;
    }
  }

  cudaKernel_t forward_ = victim::kernel("forward");
  cudaKernel_t backward_ = victim::kernel("backward");
  cudaKernel_t optimizer_ = victim::kernel("optimizer");
  cudaKernel_t log_ = victim::kernel("log");
  cublasHandle_t blas_ = nullptr;
  void* batch_ = nullptr;
  char host_[4096] = {};
  long surely_ = 0;
  long perhaps_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    victim::say("usage: soak_victim api|time CYCLES SAMPLES");
    return 2;
  }
  const bool api = std::strcmp(argv[1], "api") == 0;
  const long cycles = std::strtol(argv[2], nullptr, 10);
  Training training;
  const Samples samples(argv[3]);
  const std::int64_t begin = now();
  for (long cycle = 0; cycle < cycles; ++cycle) {
    const std::int64_t cycle_begin = begin + cycle * kCycle;
    sleep_until(cycle_begin);
    if (api) victim::open_window();
    std::array<char, 32> epoch{};
    std::snprintf(epoch.data(), epoch.size(), "epoch %ld", cycle);
    for (int step = 0; step < kSteps; ++step) {
      if (step == kProfiledSteps) {
        std::thread([&] { training.log(epoch.data()); }).join();
        if (api) victim::close_window();
      }
      sleep_until(cycle_begin + step * kStep);
      training.step();
    }
    if ((cycle + 1) % kCyclesPerSample == 0) samples.take(cycle + 1);
  }
  victim::say("launches in windows: %ld to %ld", training.surely(), training.perhaps());
  victim::say("flush: %d", inject_flush_if_loaded());
  victim::say("seconds: %.3f", static_cast<double>(now() - begin) / 1e9);
  victim::say("end: %lld", static_cast<long long>(machine_time()));
  return 0;
}
