// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the search for iterations adds to a launch that passes a hook: before iterations have been found, and
// after. The launches themselves do nothing (bench_hook_provider.cpp), and go through the hook and past it in
// turn, some hundred at a time, with a pause after them as in a program that does something else as well:
// at the pace of real launches, with work of a microsecond after each, and (`burst`) without.
// Without LD_PRELOAD this program starts itself anew with the library that its build made. JSON on stdout:
// nanoseconds a launch, a sample each time.
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

struct Dim {
  unsigned x, y, z;
};
extern "C" int cudaLaunchKernel(const void*, Dim, Dim, void**, unsigned long, void*);

namespace {

using Launch = decltype(&cudaLaunchKernel);

constexpr int kKernels = 40;   // kinds of them
constexpr int kLaunches = 80;  // of an iteration
constexpr int kTimed = 2 * kLaunches;
constexpr std::uint64_t kPause = 100'000;

std::uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

void spin(std::uint64_t nanoseconds) {
  for (const std::uint64_t end = now() + nanoseconds; now() < end;) {
  }
}

// A microsecond or so that no launch can make shorter.
void work() {
  std::uint64_t state = 1;
  for (int i = 0; i < 800; ++i) {
    state = state * 6364136223846793005u + 1;
    asm volatile("" : "+r"(state));
  }
}

/// Kernels are told apart by their addresses.
constinit char stubs[kKernels] = {};

class Sequence {
 public:
  explicit Sequence(bool ordered) : ordered_(ordered) {}

  double timed(Launch launch, bool burst) {
    // Made before: what is timed is calls alone.
    std::vector<unsigned> order(kTimed);
    for (unsigned& kernel : order) kernel = next();
    const std::uint64_t begin = now();
    for (const unsigned kernel : order) {
      launch(&stubs[kernel % kKernels], {1 + kernel / kKernels, 1, 1}, {256, 1, 1}, nullptr, 0, nullptr);
      if (!burst) work();
    }
    const std::uint64_t end = now();
    spin(kPause);
    return static_cast<double>(end - begin) / kTimed;
  }

 private:
  unsigned next() {
    if (ordered_) return static_cast<unsigned>(position_++ % kLaunches);
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<unsigned>(state_ >> 33) % (kKernels * 64);
  }

  bool ordered_;
  std::uint64_t position_ = 0;
  std::uint64_t state_ = 1;
};

void measure(const char* name, Sequence& sequence, Launch hooked, Launch direct, int rounds, bool burst,
             bool last) {
  std::vector<double> samples[2];
  for (int round = 0; round < rounds; ++round) {
    for (int turn = 0; turn < 2; ++turn) {
      const bool through = (round + turn) % 2 == 0;
      samples[through ? 0 : 1].push_back(sequence.timed(through ? hooked : direct, burst));
    }
  }
  for (int i = 0; i < 2; ++i) {
    std::printf("\"%s.%s_ns\": [", name, i == 0 ? "hooked" : "direct");
    for (std::size_t k = 0; k < samples[i].size(); ++k)
      std::printf("%s%.2f", k == 0 ? "" : ", ", samples[i][k]);
    std::printf("]%s\n", i == 1 && last ? "}" : ",");
  }
}

bool found(const std::string& log) {
  std::FILE* file = std::fopen(log.c_str(), "r");
  if (file == nullptr) return false;
  char line[4096];
  bool there = false;
  while (std::fgets(line, sizeof line, file) != nullptr)
    there = there || std::strstr(line, "iterations found") != nullptr;
  std::fclose(file);
  return there;
}

int fail(const char* what) {
  std::fprintf(stderr, "bench_search: %s\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  char log[] = "/tmp/bench_search-XXXXXX";
  if (std::getenv("BENCH_SEARCH_LOG") == nullptr) {
    const int file = mkstemp(log);
    if (file < 0) return fail("no log file");
    close(file);
    setenv("LD_PRELOAD", INJECT_LIBRARY, std::getenv("LD_PRELOAD") == nullptr);
    setenv("INJECT_WINDOW", "iter:1000000000+1", 1);
    setenv("INJECT_LOG", "debug", 1);
    setenv("INJECT_LOG_FILE", log, 1);
    setenv("BENCH_SEARCH_LOG", log, 1);
    execv("/proc/self/exe", argv);
    return fail("execv failed");
  }
  const std::string kept = std::getenv("BENCH_SEARCH_LOG");
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  void* provider = dlopen("libbench_hook_provider.so", RTLD_NOW | RTLD_NOLOAD);
  const Launch hooked = &cudaLaunchKernel;
  const auto direct =
      provider == nullptr ? nullptr : reinterpret_cast<Launch>(dlsym(provider, "cudaLaunchKernel"));
  const auto start = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "InitializeInjection"));
  if (direct == nullptr || direct == hooked || start == nullptr) return fail("the launch is not hooked");

  Sequence anything(false);
  Sequence training(true);
  std::printf("{");
  measure("idle", training, hooked, direct, rounds, false, false);
  start();  // what the driver calls as the program initialises CUDA
  measure("searching", anything, hooked, direct, rounds, false, false);
  measure("searching_burst", anything, hooked, direct, rounds, true, false);
  if (found(kept)) return fail("iterations were found where there are none");
  for (const std::uint64_t end = now() + 20'000'000'000; now() < end && !found(kept);) {
    for (int i = 0; i < 20; ++i) training.timed(hooked, false);
  }
  if (!found(kept)) return fail("no iterations were found");
  measure("found", training, hooked, direct, rounds, false, false);
  measure("found_burst", training, hooked, direct, rounds, true, true);
  unlink(kept.c_str());
  return 0;
}
