// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the profiler costs a launch-bound program. Runs under the preload with INJECT_WINDOW=api; alternates
// the states that it compares in one process, because absolute times drift between processes. JSON on stdout.
//   loop             hooked against unhooked calls outside windows; our window against a bare CUPTI client
//   latency          opening and closing while 0, 1 and 16 threads launch, through the hooks and past them
//   million CLIENT   1,000,000 kernels of 200 names; CLIENT is none, bare, exit or stop (our window ends at
//                    exit, or before it)
#include <cublas_v2.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bare_cupti.h"

namespace {

#define CHECK(call)                                                                  \
  do {                                                                               \
    const auto check_status = (call);                                                \
    if (static_cast<int>(check_status) != 0) {                                       \
      std::fprintf(stderr, "%s: error %d\n", #call, static_cast<int>(check_status)); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

__global__ void empty_kernel() {}

template <int N>
__global__ void numbered_kernel(int* out) {
  if (out != nullptr) *out = N;
}

using Launch = cudaError_t (*)(const void*, dim3, dim3, void**, size_t, cudaStream_t);
using Gemm = decltype(&cublasSgemm_v2);
using Trivial = cudaError_t (*)();

std::uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

void sleep_ms(unsigned ms) {
  const timespec t{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000) * 1'000'000};
  nanosleep(&t, nullptr);
}

/// The same function twice: as the program's own call finds it (the preload comes first), and in the vendor's
/// library.
template <class Function>
struct Entry {
  Function hooked = nullptr;
  Function real = nullptr;

  Entry(const char* soname, const char* name) {
    void* library = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
    hooked = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    real = library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
    if (hooked == nullptr || real == nullptr) {
      std::fprintf(stderr, "%s is not in %s\n", name, soname);
      std::exit(1);
    }
  }
};

struct Program {
  Entry<Launch> launch{"libcudart.so.13", "cudaLaunchKernel"};
  Entry<Trivial> trivial{"libcudart.so.13", "cudaPeekAtLastError"};
  Entry<Gemm> gemm{"libcublas.so.13", "cublasSgemm_v2"};
  cublasHandle_t blas = nullptr;
  float* matrices = nullptr;

  Program() {
    CHECK(cudaSetDevice(0));
    CHECK(cublasCreate(&blas));
    CHECK(cudaMalloc(reinterpret_cast<void**>(&matrices), 3 * 64 * 64 * sizeof(float)));
    CHECK(cudaMemset(matrices, 0, 3 * 64 * 64 * sizeof(float)));
    launch_ns(launch.real, 1000);
    gemm_ns(gemm.real, 1000);
  }

  /// Nanoseconds of host time per launch of an empty kernel.
  double launch_ns(Launch function, int count) {
    CHECK(cudaDeviceSynchronize());
    const std::uint64_t begin = now_ns();
    for (int i = 0; i < count; ++i) {
      function(reinterpret_cast<const void*>(&empty_kernel), dim3(1), dim3(1), nullptr, 0, nullptr);
    }
    const std::uint64_t end = now_ns();
    CHECK(cudaDeviceSynchronize());
    return static_cast<double>(end - begin) / count;
  }

  double gemm_ns(Gemm function, int count) {
    const float one = 1, zero = 0;
    CHECK(cudaDeviceSynchronize());
    const std::uint64_t begin = now_ns();
    for (int i = 0; i < count; ++i) {
      function(blas, CUBLAS_OP_N, CUBLAS_OP_N, 64, 64, 64, &one, matrices, 64, matrices + 64 * 64, 64, &zero,
               matrices + 2 * 64 * 64, 64);
    }
    const std::uint64_t end = now_ns();
    CHECK(cudaDeviceSynchronize());
    return static_cast<double>(end - begin) / count;
  }

  double trivial_ns(Trivial function, int count) {
    const std::uint64_t begin = now_ns();
    for (int i = 0; i < count; ++i) function();
    return static_cast<double>(now_ns() - begin) / count;
  }
};

/// One measured quantity: every sample, in order.
struct Series {
  std::string name;
  std::vector<double> samples;
};

class Results {
 public:
  void add(const std::string& name, double value) {
    for (Series& s : series_) {
      if (s.name == name) {
        s.samples.push_back(value);
        return;
      }
    }
    series_.push_back({name, {value}});
  }

  void print() const {
    std::printf("{");
    const char* comma = "";
    for (const Series& s : series_) {
      std::printf("%s\"%s\": [", comma, s.name.c_str());
      for (std::size_t i = 0; i < s.samples.size(); ++i)
        std::printf("%s%.3f", i == 0 ? "" : ", ", s.samples[i]);
      std::printf("]");
      comma = ",\n ";
    }
    std::printf("}\n");
    std::fflush(stdout);
  }

 private:
  std::vector<Series> series_;
};

/// Windows of the profiler API that follow each other within a second keep CUPTI attached: stay well beyond.
constexpr unsigned kDetachedMs = 1300;

constexpr int kLaunches = 20000;
constexpr int kGemms = 8000;

void outside(Program& program, Results& results, const std::string& when, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    // Which goes first changes from round to round: a drift then hits both.
    for (int turn = 0; turn < 2; ++turn) {
      const bool hooked = (round + turn) % 2 == 0;
      const std::string state = when + (hooked ? ".hooked" : ".unhooked");
      results.add(state + ".launch_ns",
                  program.launch_ns(hooked ? program.launch.hooked : program.launch.real, kLaunches));
      results.add(state + ".gemm_ns",
                  program.gemm_ns(hooked ? program.gemm.hooked : program.gemm.real, kGemms));
      results.add(state + ".trivial_ns",
                  program.trivial_ns(hooked ? program.trivial.hooked : program.trivial.real, 1'000'000));
    }
  }
}

int loop(int rounds) {
  Program program;
  Results results;
  bench::BareCupti bare;
  const bool have_bare = bare.load(reinterpret_cast<const void*>(program.launch.real));
  outside(program, results, "before", rounds);
  for (int round = 0; round < rounds; ++round) {
    std::uint64_t begin = now_ns();
    CHECK(cudaProfilerStart());
    results.add("ours.start_ms", static_cast<double>(now_ns() - begin) / 1e6);
    program.launch_ns(program.launch.hooked, 2000);
    results.add("ours.launch_ns", program.launch_ns(program.launch.hooked, kLaunches));
    program.gemm_ns(program.gemm.hooked, 500);
    results.add("ours.gemm_ns", program.gemm_ns(program.gemm.hooked, kGemms));
    begin = now_ns();
    CHECK(cudaProfilerStop());
    results.add("ours.stop_ms", static_cast<double>(now_ns() - begin) / 1e6);
    sleep_ms(kDetachedMs);
    if (!have_bare) continue;
    if (!bare.open()) {
      std::fprintf(stderr, "the bare CUPTI client could not be enabled\n");
      continue;
    }
    program.launch_ns(program.launch.real, 2000);
    results.add("bare.launch_ns", program.launch_ns(program.launch.real, kLaunches));
    program.gemm_ns(program.gemm.real, 500);
    results.add("bare.gemm_ns", program.gemm_ns(program.gemm.real, kGemms));
    CHECK(cudaDeviceSynchronize());
    bare.close(true);
    results.add("bare.kernels", static_cast<double>(bare.kernels()));
  }
  outside(program, results, "after", rounds);
  results.print();
  return 0;
}

/// Threads that launch without pause, each into a stream of its own, and note their slowest launch.
class Launchers {
 public:
  Launchers(Launch launch, int number) : slowest_(static_cast<std::size_t>(number)) {
    for (int i = 0; i < number; ++i) {
      threads_.emplace_back([this, launch, i] {
        cudaStream_t stream = nullptr;
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        std::atomic<std::uint64_t>& slowest = slowest_[static_cast<std::size_t>(i)];
        while (!stop_.load(std::memory_order_relaxed)) {
          const std::uint64_t begin = now_ns();
          launch(reinterpret_cast<const void*>(&empty_kernel), dim3(1), dim3(1), nullptr, 0, stream);
          const std::uint64_t took = now_ns() - begin;
          if (took > slowest.load(std::memory_order_relaxed)) slowest.store(took, std::memory_order_relaxed);
        }
        CHECK(cudaStreamSynchronize(stream));
      });
    }
  }

  ~Launchers() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  /// The slowest launch of any thread since the last call, in ms.
  double slowest_ms() {
    std::uint64_t slowest = 0;
    for (auto& s : slowest_) slowest = std::max(slowest, s.exchange(0));
    return static_cast<double>(slowest) / 1e6;
  }

 private:
  std::vector<std::atomic<std::uint64_t>> slowest_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

void edges(Results& results, const std::string& name, Launch launch, int threads, int cycles) {
  Launchers launchers(launch, threads);
  sleep_ms(300);
  for (int cycle = 0; cycle < cycles; ++cycle) {
    launchers.slowest_ms();
    sleep_ms(100);
    results.add(name + ".quiet_stall_ms", launchers.slowest_ms());
    std::uint64_t begin = now_ns();
    CHECK(cudaProfilerStart());
    results.add(name + ".start_ms", static_cast<double>(now_ns() - begin) / 1e6);
    sleep_ms(30);
    results.add(name + ".open_stall_ms", launchers.slowest_ms());
    begin = now_ns();
    CHECK(cudaProfilerStop());
    const std::uint64_t stopped = now_ns();
    results.add(name + ".stop_ms", static_cast<double>(stopped - begin) / 1e6);
    sleep_ms(100);
    results.add(name + ".close_stall_ms", launchers.slowest_ms());
    // What is left of the pause: it has detached by then.
    const std::uint64_t passed_ms = (now_ns() - stopped) / 1'000'000;
    if (passed_ms < kDetachedMs) sleep_ms(static_cast<unsigned>(kDetachedMs - passed_ms));
    results.add(name + ".detach_stall_ms", launchers.slowest_ms());
  }
}

int latency(int cycles) {
  Program program;
  Results results;
  // Not a measured cycle: the first one also loads libcupti.
  edges(results, "first", program.launch.hooked, 0, 1);
  edges(results, "idle", program.launch.hooked, 0, cycles);
  edges(results, "hooked1", program.launch.hooked, 1, cycles);
  edges(results, "hooked16", program.launch.hooked, 16, cycles);
  edges(results, "unhooked1", program.launch.real, 1, cycles);
  edges(results, "unhooked16", program.launch.real, 16, cycles);
  results.print();
  return 0;
}

template <int... N>
std::array<const void*, sizeof...(N)> numbered(std::integer_sequence<int, N...>) {
  return {reinterpret_cast<const void*>(&numbered_kernel<N>)...};
}

double status_mb(const char* key) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  char line[256];
  double value = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, key, std::strlen(key)) == 0)
      value = std::atof(line + std::strlen(key) + 1) / 1000.0;
  }
  std::fclose(file);
  return value;
}

int million(const std::string& client, int launches) {
  const auto kernels = numbered(std::make_integer_sequence<int, 200>{});
  const Entry<Launch> launch("libcudart.so.13", "cudaLaunchKernel");
  CHECK(cudaSetDevice(0));
  int* none = nullptr;
  void* arguments[] = {&none};
  for (const void* kernel : kernels) CHECK(cudaLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, nullptr));
  CHECK(cudaDeviceSynchronize());
  bench::BareCupti bare;
  if (client == "bare" && !(bare.load(reinterpret_cast<const void*>(launch.real)) && bare.open())) return 1;
  const double before = status_mb("VmRSS:");
  if (client == "exit" || client == "stop") CHECK(cudaProfilerStart());
  const std::uint64_t begin = now_ns();
  for (int i = 0; i < launches; ++i) {
    launch.hooked(kernels[static_cast<std::size_t>(i) % kernels.size()], dim3(1), dim3(1), arguments, 0,
                  nullptr);
  }
  CHECK(cudaDeviceSynchronize());
  const std::uint64_t ran = now_ns() - begin;
  if (client == "stop") CHECK(cudaProfilerStop());
  if (client == "stop") sleep_ms(1500);
  if (client == "bare") bare.close(false);
  std::printf(
      "{\"client\": \"%s\", \"launches\": %d, \"launch_ns\": %.1f, \"rss_before_mb\": %.1f, \"rss_mb\": "
      "%.1f, "
      "\"peak_mb\": %.1f, \"anon_mb\": %.1f, \"kernels\": %llu, \"end_ns\": %llu}\n",
      client.c_str(), launches, static_cast<double>(ran) / launches, before, status_mb("VmRSS:"),
      status_mb("VmHWM:"), status_mb("RssAnon:"), static_cast<unsigned long long>(bare.kernels()),
      static_cast<unsigned long long>(now_ns()));
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "no CUDA device\n");
    return 77;
  }
  if (mode == "loop") return loop(argc > 2 ? std::atoi(argv[2]) : 7);
  if (mode == "latency") return latency(argc > 2 ? std::atoi(argv[2]) : 4);
  if (mode == "million" && argc > 2) return million(argv[2], argc > 3 ? std::atoi(argv[3]) : 1'000'000);
  std::fprintf(
      stderr,
      "usage: bench_launch loop [ROUNDS] | latency [CYCLES] | million none|bare|exit|stop [LAUNCHES]\n");
  return 2;
}
