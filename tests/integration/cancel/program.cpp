// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Cancels a thread inside a hooked call. The C++ runtime that unwinds is the program's, not the one inside
// the library.
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <semaphore.h>

#include <cstdio>

extern "C" {
extern sem_t provider_entered;
int ncclGroupEnd();
}

namespace {
bool cleaned_up = false;

void* wait_for_peer(void* argument) {
  struct Cleanup {
    ~Cleanup() { cleaned_up = true; }
  } cleanup;
  ncclGroupEnd();
  return argument;
}
}  // namespace

int main() {
  sem_init(&provider_entered, 0, 0);
  if (cudaFree(nullptr) != cudaSuccess) return 2;  // initialises CUDA, and the profiler with it
  pthread_t thread;
  if (pthread_create(&thread, nullptr, &wait_for_peer, nullptr) != 0) return 3;
  sem_wait(&provider_entered);
  pthread_cancel(thread);
  void* result = nullptr;
  pthread_join(thread, &result);
  std::printf("%s, %s\n", result == PTHREAD_CANCELED ? "cancelled" : "returned",
              cleaned_up ? "cleaned up" : "left");
  return 0;
}
