// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a hook adds to an allocation and to a free while no window is open: before CUDA is initialised
// (`idle`), and after it, when they are counted. The calls themselves do nothing (bench_hook_provider.cpp),
// and go through the hook and past it in turn. `ask` is the one question that the hook puts to the driver,
// cuCtxGetDevice, by itself. Needs CUDA, or the simulated one in LD_LIBRARY_PATH, whose answer to that takes
// longer. JSON on stdout: nanoseconds a call, a sample each time.
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" {
int cudaMalloc(void** memory, unsigned long bytes);
int cudaFree(void* memory);
}

namespace {

constexpr int kTimed = 160;
constexpr std::uint64_t kPause = 100'000;

std::uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

double each(std::uint64_t begin, std::uint64_t end) {
  return static_cast<double>(end - begin) / kTimed;
}

void print(const std::string& name, const std::vector<double>& samples, bool last = false) {
  std::printf("\"%s_ns\": [", name.c_str());
  for (std::size_t i = 0; i < samples.size(); ++i) std::printf("%s%.2f", i == 0 ? "" : ", ", samples[i]);
  std::printf("]%s\n", last ? "}" : ",");
}

struct Functions {
  decltype(&cudaMalloc) allocate;
  decltype(&cudaFree) release;
};

void measure(const std::string& name, const Functions& hooked, const Functions& direct, int rounds) {
  std::vector<double> allocations[2];
  std::vector<double> frees[2];
  for (int round = 0; round < rounds; ++round) {
    for (int turn = 0; turn < 2; ++turn) {
      const int past = (round + turn) % 2;
      const Functions& functions = past == 0 ? hooked : direct;
      void* memory[kTimed];
      const std::uint64_t begin = now();
      for (void*& one : memory) functions.allocate(&one, 4096);
      const std::uint64_t middle = now();
      for (void* one : memory) functions.release(one);
      const std::uint64_t end = now();
      allocations[past].push_back(each(begin, middle));
      frees[past].push_back(each(middle, end));
      while (now() < end + kPause) {
      }
    }
  }
  print(name + ".allocate.hooked", allocations[0]);
  print(name + ".allocate.direct", allocations[1]);
  print(name + ".free.hooked", frees[0]);
  print(name + ".free.direct", frees[1]);
}

int fail(const char* what) {
  std::fprintf(stderr, "bench_allocations: %s\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv("INJECT_WINDOW") == nullptr) {
    setenv("LD_PRELOAD", INJECT_LIBRARY, std::getenv("LD_PRELOAD") == nullptr);
    setenv("INJECT_WINDOW", "nvtx:never", 1);
    setenv("INJECT_LOG", "error", 1);
    execv("/proc/self/exe", argv);
    return fail("execv failed");
  }
  const int rounds = argc > 1 ? static_cast<int>(std::strtol(argv[1], nullptr, 10)) : 1000;
  void* provider = dlopen("libbench_hook_provider.so", RTLD_NOW | RTLD_NOLOAD);
  if (provider == nullptr) return fail("no functions to call");
  const Functions hooked{&cudaMalloc, &cudaFree};
  const Functions direct{reinterpret_cast<decltype(&cudaMalloc)>(dlsym(provider, "cudaMalloc")),
                         reinterpret_cast<decltype(&cudaFree)>(dlsym(provider, "cudaFree"))};
  if (direct.allocate == hooked.allocate) return fail("the calls are not hooked");
  std::printf("{");
  measure("idle", hooked, direct, rounds);

  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return fail("no CUDA driver");
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto retain = reinterpret_cast<int (*)(void**, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
  const auto set = reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxSetCurrent"));
  const auto ask = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuCtxGetDevice"));
  void* context = nullptr;
  if (init == nullptr || retain == nullptr || set == nullptr || ask == nullptr || init(0) != 0 ||
      retain(&context, 0) != 0 || set(context) != 0) {
    return fail("CUDA can't be initialised");
  }
  measure("counted", hooked, direct, rounds);
  std::vector<double> asked;
  for (int round = 0; round < rounds; ++round) {
    int device = 0;
    const std::uint64_t begin = now();
    for (int i = 0; i < kTimed; ++i) ask(&device);
    asked.push_back(each(begin, now()));
  }
  print("ask", asked, true);
  return 0;
}
