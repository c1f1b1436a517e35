// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Programs to which a resource is denied: descriptors, threads, file sizes, memory.
#include <cuda_profiler_api.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <inject/inject.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/integration/looks.h"
#include "tests/integration/process/victim.h"

using namespace victim;

namespace {

std::atomic<bool> threads_denied{false};

}  // namespace

// The C library's, until threads are denied.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) {
  using Real = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const Real real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "pthread_create"));
  return threads_denied ? EAGAIN : real(thread, attributes, body, argument);
}

// As MPI libraries patch it: without the address to which pages are to be moved.
extern "C" void* mremap(void* pages, std::size_t old_bytes, std::size_t bytes, int flags, ...) noexcept {
  return reinterpret_cast<void*>(syscall(SYS_mremap, pages, old_bytes, bytes, flags, nullptr));
}

namespace {

cudaKernel_t quick_kernel = nullptr;

void prepare() {
  quick_kernel = kernel("quick");
  launch(quick_kernel, 1);
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
}

void window() {
  open_window();
  launch(quick_kernel, 100);
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  close_window();
}

void limit(int resource, rlim_t most) {
  rlimit limits{};
  require(getrlimit(static_cast<__rlimit_resource>(resource), &limits) == 0, "getrlimit");
  limits.rlim_cur = most;
  require(setrlimit(static_cast<__rlimit_resource>(resource), &limits) == 0, "setrlimit");
}

void write_to(int file, const char* text) {
  require(write(file, text, std::strlen(text)) == static_cast<ssize_t>(std::strlen(text)), "write");
}

void plain() {
  prepare();
  window();
  window();
  say("done");
}

void mremap_is_patched() {
  prepare();
  window();
  flush_windows();
  say("address 0 is %s", looks::text_of("/proc/self/maps").starts_with("00000000-") ? "mapped" : "free");
}

// Threads that are not libinject's: this one and, once there has been a second one, ThreadSanitizer's own.
#if defined(__SANITIZE_THREAD__)
constexpr int kThreads = 2;
#else
constexpr int kThreads = 1;
#endif

// Waits until libinject's own thread has gone: then the exiting thread does the remaining writes.
void settled() {
  prepare();
  window();
  flush_windows();
  if (inject_flush != nullptr) {
    // The simulation has a thread of its own while CUPTI is attached.
    for (int i = 0; i < 30'000 && thread_count() > kThreads; ++i) sleep_ms(1);
    require(thread_count() == kThreads, "no thread is left");
  }
}

void settled_and_done() {
  settled();
  say("done");
}

// ---- descriptors

// Started without a stderr, so a file of the program gets its descriptor.
void own_file_as_stderr() {
  const int file = open("own.txt", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  say("descriptor %d", file);
  write_to(file, "first\n");
  prepare();
  window();
  write_to(file, "second\n");
  window();
  sleep_ms(50);
  write_to(file, "third\n");
}

// A window is open, and files of libinject with it, when a standard descriptor becomes free.
void standard_descriptors_stay_free() {
  prepare();
  open_window();
  launch(quick_kernel, 100);
  wait_for_open_on_disk();
  for (const int number : {0, 2}) {
    const int kept = fcntl(number, F_DUPFD_CLOEXEC, 10);
    close(number);
    sleep_ms(50);
    const int file = open("own.txt", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    say("freed %d, opened %d", number, file);
    write_to(file, "text\n");
    close(file);
    require(dup2(kept, number) == number && close(kept) == 0, "dup2");
  }
  close_window();
}

// As programs do that don't know which descriptors they inherited; their next files get these numbers.
void close_every_descriptor() {
  prepare();
  open_window();
  launch(quick_kernel, 100);
  wait_for_open_on_disk();
  for (int number = 3; number < 256; ++number) close(number);
  for (int i = 0; i < 8; ++i) {
    const std::string name = "own" + std::to_string(i) + ".txt";
    const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    require(file >= 0, "open");
    write_to(file, "text\n");
  }
  launch(quick_kernel, 100);
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  close_window();
  say("done");
}

void no_descriptor_left() {
  prepare();
  limit(RLIMIT_NOFILE, 64);
  int taken = 0;
  while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) ++taken;
  require(errno == EMFILE && taken > 10, "all descriptors are taken");
  window();
  window();
  say("done");
}

void files_as_standard_descriptors() {
  settled();  // none of libinject's files is open
  for (int number = 0; number < 1024; ++number) close(number);
  for (int number = 0; number < 3; ++number) {
    const char name[] = {'f', static_cast<char>('0' + number), '\0'};
    require(open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600) == number,
            "a file with a standard descriptor's number");
    require(write(number, name, 2) == 2, "write");
  }
  window();
}

// ---- files

void no_file_may_grow() {
  prepare();
  limit(RLIMIT_FSIZE, 0);
  window();
  window();
  say("done");
}

void no_file_may_grow_at_exit() {
  settled();
  limit(RLIMIT_FSIZE, 0);
  say("done");
}

void files_may_grow_a_little() {
  prepare();
  limit(RLIMIT_FSIZE, 1000);
  window();
  window();
  say("done");
}

// ---- threads

void no_thread() {
  prepare();
  threads_denied = true;
  for (int i = 0; i < 20; ++i) window();
  say("done");
}

void no_thread_at_exit() {
  settled();
  threads_denied = true;
  say("done");
}

void thread_at_the_second_attempt() {
  prepare();
  threads_denied = true;
  window();
  threads_denied = false;
  window();
  say("done");
}

void no_process() {
  prepare();
  require(setuid(65534) == 0, "setuid");
  limit(RLIMIT_NPROC, 0);
  for (int i = 0; i < 20; ++i) window();
  say("done");
}

// ---- memory

std::size_t mapped_bytes() {
  FILE* file = std::fopen("/proc/self/statm", "r");
  require(file != nullptr, "/proc/self/statm");
  unsigned long pages = 0;
  require(std::fscanf(file, "%lu", &pages) == 1, "/proc/self/statm");
  std::fclose(file);
  return pages * 4096;
}

// Waits until no thread maps memory any more: memory mapped by other threads after the count would come out
// of the spare.
std::size_t settled_bytes() {
  std::size_t before = 0;
  std::size_t bytes = mapped_bytes();
  for (int same = 0; same < 4; same = bytes == before ? same + 1 : 0) {
    before = bytes;
    usleep(50'000);
    bytes = mapped_bytes();
  }
  return bytes;
}

std::size_t spare_bytes() {
  const char* text = std::getenv("VICTIM_SPARE_MIB");
  require(text != nullptr, "VICTIM_SPARE_MIB");
  return std::strtoul(text, nullptr, 10) << 20;
}

// Before CUDA is initialised, when libinject has not allocated anything yet.
void little_memory_from_the_start() {
  // The simulation's own mappings, including its "device" memory and its thread's stack, are not tested.
  quick_kernel = kernel("quick");
  limit(RLIMIT_AS, mapped_bytes() + spare_bytes());
  window();
  window();
  say("done");
}

void little_memory_before_the_window() {
  prepare();
  limit(RLIMIT_AS, mapped_bytes() + spare_bytes());
  window();
  window();
  say("done");
}

void little_memory_in_the_window() {
  prepare();
  open_window();
  launch(quick_kernel, 100);
  limit(RLIMIT_AS, settled_bytes() + spare_bytes());
  for (int i = 0; i < 300; ++i) {
    launch(quick_kernel, 100);
    cudaGetLastError();
  }
  require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  close_window();
  window();
  say("done");
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv,
             {{"plain", plain},
              {"mremap_is_patched", mremap_is_patched},
              {"settled", settled_and_done},
              {"own_file_as_stderr", own_file_as_stderr},
              {"standard_descriptors_stay_free", standard_descriptors_stay_free},
              {"close_every_descriptor", close_every_descriptor},
              {"no_descriptor_left", no_descriptor_left},
              {"files_as_standard_descriptors", files_as_standard_descriptors},
              {"no_file_may_grow", no_file_may_grow},
              {"no_file_may_grow_at_exit", no_file_may_grow_at_exit},
              {"files_may_grow_a_little", files_may_grow_a_little},
              {"no_thread", no_thread},
              {"no_thread_at_exit", no_thread_at_exit},
              {"thread_at_the_second_attempt", thread_at_the_second_attempt},
              {"no_process", no_process},
              {"little_memory_from_the_start", little_memory_from_the_start},
              {"little_memory_before_the_window", little_memory_before_the_window},
              {"little_memory_in_the_window", little_memory_in_the_window}});
}
