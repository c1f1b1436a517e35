// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a hook adds to a call while no window is open. Each function is called by its name, as programs call
// it, and directly at the library's own address; under the preload the former goes through the hook. Without
// LD_PRELOAD this program starts itself anew with the library that its build made, so that both are measured
// in one process.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

using Word = unsigned long;

#define SIX Word, Word, Word, Word, Word, Word
extern "C" {
int cudaGetLastError();
int cudaStreamSynchronize(Word);
int cudaMemcpyAsync(Word, Word, Word, Word, Word);
int cublasSgemm_v2(SIX, SIX, Word, Word);
int cublasGemmStridedBatchedEx(SIX, SIX, SIX, Word, Word, Word, Word, Word);
int cudnnNormalizationBackward(SIX, SIX, SIX, SIX, SIX, Word, Word, Word);
}
int call_from_elsewhere();

namespace {

template <typename... A, std::size_t... I>
int call(int (*function)(A...), std::index_sequence<I...>) {
  return function(static_cast<Word>(I)...);
}

// `function` is opaque to the compiler: the same instruction calls the hook and the library.
template <typename... A>
void run(benchmark::State& state, int (*function)(A...)) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(function);
    benchmark::DoNotOptimize(call(function, std::index_sequence_for<A...>{}));
  }
}

template <typename Function>
void compare(const char* name, Function* hooked) {
  void* provider = dlopen("libbench_hook_provider.so", RTLD_NOW | RTLD_NOLOAD);
  auto* direct = provider != nullptr ? reinterpret_cast<Function*>(dlsym(provider, name)) : nullptr;
  if (direct == nullptr || direct == hooked) {
    std::fprintf(stderr, "%s is not hooked\n", name);
    std::exit(1);
  }
  const std::string prefix = std::string(name) + "/";
  benchmark::RegisterBenchmark((prefix + "direct").c_str(),
                               [=](benchmark::State& state) { run(state, direct); });
  benchmark::RegisterBenchmark((prefix + "hooked").c_str(),
                               [=](benchmark::State& state) { run(state, hooked); });
}

// Two modules in turn: each call finds the other's binding in front of its own.
void alternate(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(cudaStreamSynchronize(0));
    benchmark::DoNotOptimize(call_from_elsewhere());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv("LD_PRELOAD") == nullptr) {
    setenv("LD_PRELOAD", INJECT_LIBRARY, 1);
    execv("/proc/self/exe", argv);
    std::perror("execv");
    return 1;
  }
  compare("cudaGetLastError", &cudaGetLastError);
  compare("cudaMemcpyAsync", &cudaMemcpyAsync);
  compare("cublasSgemm_v2", &cublasSgemm_v2);
  compare("cublasGemmStridedBatchedEx", &cublasGemmStridedBatchedEx);
  compare("cudnnNormalizationBackward", &cudnnNormalizationBackward);
  benchmark::RegisterBenchmark("two callers in turn/hooked", alternate);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
