// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a hook adds to a library call while a window is open, its arguments read and without: the calls
// themselves do nothing (bench_hook_provider.cpp), and go through the hook and past it in turn, some hundred
// at a time, with a pause after them. `blas` is a call whose arguments nobody reads. Needs CUDA, or the
// simulated one in LD_LIBRARY_PATH. JSON on stdout: nanoseconds a call, a sample each time.
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

using Word = unsigned long;
extern "C" {
int cublasSgemm_v2(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
int cublasSscal_v2(Word, Word, Word, Word, Word);
int cublasLtMatmul(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word,
                   Word);
int cudnnBackendExecute(Word, Word, Word);
}

namespace {

constexpr int kTimed = 160;
constexpr std::uint64_t kPause = 200'000;
constexpr int kShapes = 40;

std::uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

template <typename F>
F* real(void* provider, F* hooked, const char* name) {
  auto* found = reinterpret_cast<F*>(dlsym(provider, name));
  return found == hooked ? nullptr : found;
}

template <typename Call, typename F>
void measure(const char* name, F* hooked, F* direct, const Call& call, int rounds, bool last) {
  std::vector<double> samples[2];
  for (int round = 0; round < rounds; ++round) {
    for (int turn = 0; turn < 2; ++turn) {
      F* const function = (round + turn) % 2 == 0 ? hooked : direct;
      const std::uint64_t begin = now();
      for (Word i = 0; i < kTimed; ++i) call(function, i % kShapes);
      const std::uint64_t end = now();
      samples[function == hooked ? 0 : 1].push_back(static_cast<double>(end - begin) / kTimed);
      while (now() < end + kPause) {
      }
    }
  }
  for (int i = 0; i < 2; ++i) {
    std::printf("\"%s.%s_ns\": [", name, i == 0 ? "hooked" : "direct");
    for (std::size_t k = 0; k < samples[i].size(); ++k)
      std::printf("%s%.2f", k == 0 ? "" : ", ", samples[i][k]);
    std::printf("]%s\n", i == 1 && last ? "}" : ",");
  }
}

int fail(const char* what) {
  std::fprintf(stderr, "bench_shapes: %s\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv("INJECT_WINDOW") == nullptr) {
    setenv("LD_PRELOAD", INJECT_LIBRARY, std::getenv("LD_PRELOAD") == nullptr);
    setenv("INJECT_WINDOW", "always", 1);
    setenv("INJECT_SUMMARY", "off", 0);
    execv("/proc/self/exe", argv);
    return fail("execv failed");
  }
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto init =
      driver == nullptr ? nullptr : reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  if (init == nullptr || init(0) != 0) return fail("no CUDA");
  const auto is_open = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "inject_is_open"));
  if (is_open == nullptr) return fail("libinject is not loaded");
  for (int i = 0; i < 1000 && is_open() == 0; ++i) usleep(10'000);
  if (is_open() == 0) return fail("no window is open");
  void* provider = dlopen("libbench_hook_provider.so", RTLD_NOW | RTLD_NOLOAD);
  auto* const gemm = real(provider, &cublasSgemm_v2, "cublasSgemm_v2");
  auto* const blas = real(provider, &cublasSscal_v2, "cublasSscal_v2");
  auto* const matmul = real(provider, &cublasLtMatmul, "cublasLtMatmul");
  auto* const execute = real(provider, &cudnnBackendExecute, "cudnnBackendExecute");
  if (gemm == nullptr || blas == nullptr || matmul == nullptr || execute == nullptr)
    return fail("a call is not hooked");

  // A is 16 bytes further each time, as a weight of another layer is; operations, sizes and leading
  // dimensions vary.
  static Word layouts[kShapes][4][8];
  [[maybe_unused]] static Word desc[8];
  for (Word i = 0; i < kShapes; ++i) {
    for (Word(&layout)[8] : layouts[i]) {
      for (Word k = 0; k < 8; ++k) layout[k] = 64 * (i + k + 1);
    }
  }
  const auto address = [](const void* pointer) { return reinterpret_cast<Word>(pointer); };
  std::printf("{");
  measure(
      "blas", &cublasSscal_v2, blas, [&](auto* f, Word i) { f(8, i, 16, 4096, 1); }, rounds, false);
  measure(
      "gemm", &cublasSgemm_v2, gemm,
      [&](auto* f, Word i) {
        f(address(desc), 0, i & 1, 64 * i + 64, 128, 256, 0, 4096 + 16 * i, 64, 8192, 64, 0, 4096, 64);
      },
      rounds, false);
  measure(
      "matmul", &cublasLtMatmul, matmul,
      [&](auto* f, Word i) {
        f(8, address(desc), 0, 4096 + 16 * i, address(layouts[i][0]), 8192, address(layouts[i][1]), 0, 4096,
          address(layouts[i][2]), 4096, address(layouts[i][3]), 0, 0, 0, 0);
      },
      rounds, false);
  measure(
      "execute", &cudnnBackendExecute, execute, [&](auto* f, Word i) { f(8, 4096 + 64 * i, 0); }, rounds,
      true);
  return 0;
}
