// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Threads: many, short-lived, with very small stacks, and threads that load libraries while others launch.
#include <cuda_profiler_api.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "tests/integration/process/victim.h"
#include "tests/sim/cudasim.h"

using namespace victim;

namespace {

constexpr int kThreads = 32;

cudaStream_t own_stream() {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "cudaStreamCreate");
  return stream;
}

// Every launch is clearly inside or outside a window.
void rounds() {
  constexpr int kRounds = 30;
  const cudaKernel_t inside = kernel("inside");
  const cudaKernel_t outside = kernel("outside");
  launch(outside, 1);
  bool open = false;
  std::barrier edge(kThreads, [&open]() noexcept {
    open = !open;
    open ? open_window() : close_window();
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      cudaStream_t stream = own_stream();
      for (int round = 0; round < kRounds; ++round) {
        launch(outside, 5, stream);
        edge.arrive_and_wait();
        launch(inside, 20, stream);
        edge.arrive_and_wait();
      }
      require(cudaStreamSynchronize(stream) == cudaSuccess, "cudaStreamSynchronize");
    });
  }
  for (std::thread& thread : threads) thread.join();
  say("done");
}

// Edges are anywhere.
void without_pause() {
  const cudaKernel_t endless = kernel("endless");
  launch(endless, 1);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      cudaStream_t stream = own_stream();
      while (!done) {
        launch(endless, 20, stream);
        require(cudaStreamSynchronize(stream) == cudaSuccess, "cudaStreamSynchronize");
        // No GPU runs more than a few hundred thousand kernels per second.
        sleep_ms(2);
      }
    });
  }
  for (int i = 0; i < 25; ++i) {
    sleep_ms(10);
    open_window();
    sleep_ms(10);
    close_window();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  say("done");
}

unsigned long number_in(const char* variable, unsigned long otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoul(text, nullptr, 10);
}

// As many launches as a GPU can run, from more threads than CPUs, while windows come and go.
void crowd() {
  constexpr int kCrowd = 64;
  constexpr unsigned long kAtOnce = 50;
  const unsigned long each = number_in("VICTIM_LAUNCHES", 3000);
  const unsigned long pause = number_in("VICTIM_PAUSE", 12);  // about 250,000 per second in total
  const unsigned long most_between = number_in("VICTIM_GAP", 20);
  const cudaKernel_t endless = kernel("endless");
  launch(endless, 1);
  std::atomic<int> running{kCrowd};
  std::vector<std::thread> threads;
  for (int i = 0; i < kCrowd; ++i) {
    threads.emplace_back([&] {
      cudaStream_t stream = own_stream();
      for (unsigned long made = 0; made < each;) {
        const unsigned long now = std::min(kAtOnce, each - made);
        launch(endless, static_cast<int>(now), stream);
        made += now;
        require(cudaStreamSynchronize(stream) == cudaSuccess, "cudaStreamSynchronize");
        sleep_ms(static_cast<int>(pause));
      }
      --running;
    });
  }
  std::minstd_rand random(static_cast<unsigned>(number_in("VICTIM_SEED", 1)));
  while (running != 0) {
    sleep_ms(static_cast<int>(random() % most_between));
    open_window();
    sleep_ms(static_cast<int>(random() % 20));
    close_window();
  }
  for (std::thread& thread : threads) thread.join();
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  note("calls %llu", static_cast<unsigned long long>(cudasim_call_count("__cudaLaunchKernel")));
  say("done");
}

// More threads, one after the other, than libinject has room for at once.
void short_lived() {
  constexpr int kBatches = 600;
  constexpr int kBatch = 8;
  cudaGetLastError();
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  open_window();
  for (int i = 0; i < kBatches; ++i) {
    std::vector<std::thread> threads;
    for (int k = 0; k < kBatch; ++k) {
      threads.emplace_back([] {
        for (int call = 0; call < 3; ++call) cudaGetLastError();
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (i % 40 == 39) wait_for_look();  // there is room for a thousand
  }
  close_window();
  say("done");
}

void tiny_stacks() {
  static cudaKernel_t quick;
  quick = kernel("quick");
  launch(quick, 1);
  pthread_attr_t attributes;
  require(pthread_attr_init(&attributes) == 0, "pthread_attr_init");
  require(pthread_attr_setstacksize(&attributes, static_cast<std::size_t>(PTHREAD_STACK_MIN)) == 0,
          "pthread_attr_setstacksize");
  for (int i = 0; i < 3; ++i) {
    pthread_t thread;
    require(pthread_create(
                &thread, &attributes,
                [](void*) -> void* {
                  open_window();
                  launch(quick, 5);
                  void* memory = nullptr;
                  cudaMalloc(&memory, 64);
                  cudaFree(memory);
                  close_window();
                  flush_windows();
                  return nullptr;
                },
                nullptr) == 0,
            "pthread_create");
    require(pthread_join(thread, nullptr) == 0, "pthread_join");
  }
  say("done");
}

// VICTIM_PLUGIN calls a hook in a thread of its constructor, and in its destructor.
void loading() {
  const cudaKernel_t steady = kernel("steady");
  launch(steady, 1);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&done] {
      while (!done) {
        void* plugin = dlopen(VICTIM_PLUGIN, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        if (plugin == nullptr) say("%s", dlerror());
        auto* call = plugin == nullptr ? nullptr : reinterpret_cast<int (*)()>(dlsym(plugin, "plugin_call"));
        require(call != nullptr && call() == 0, "plugin_call");
        require(dlclose(plugin) == 0, "dlclose");
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    open_window();
    launch(steady, 200);
    close_window();
    sleep_ms(5);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  say("done");
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"rounds", rounds},
              {"without_pause", without_pause},
              {"crowd", crowd},
              {"short_lived", short_lived},
              {"tiny_stacks", tiny_stacks},
              {"loading", loading}});
}
