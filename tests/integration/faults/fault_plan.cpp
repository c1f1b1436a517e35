// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Preloaded before libinject: counts libinject's calls to the C library, by function, and lets calls fail.
//
//   FAULT_PLAN=FUNCTION:N[+]   its Nth call from libinject fails as if the system refused it; with +, every
//                              later one as well
//   FAULT_WAIT=FUNCTION:N:MS   its Nth call from libinject, and every later one, takes MS ms longer; several
//                              are separated by commas
//   FAULT_COUNTS=FILE          at the process's end, lines FUNCTION COUNT, and `failed COUNT`
//
// A call is libinject's if it returns into the code of libinject.so. All others are passed on to the C
// library in a tail call, so that functions that determine their caller (dlopen, dlsym) find the program.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

struct Counter {
  const char* name;
  std::atomic<unsigned long> calls{0};
  std::atomic<void*> real{nullptr};
};

struct Plan {
  char function[64] = "";
  unsigned long from = 0;
  bool all_later = false;
};

struct Wait {
  char function[32] = "";
  unsigned long from = 0;
  unsigned long milliseconds = 0;
};

std::atomic<bool> known{false};
std::uintptr_t code_begin = 0;
std::uintptr_t code_end = 0;
Plan plan;
std::array<Wait, 4> waits{};
std::atomic<unsigned long> failed{0};
std::array<std::atomic<Counter*>, 128> counters{};
std::atomic<std::size_t> counted{0};

int find_library(dl_phdr_info* info, std::size_t, void*) {
  if (std::strstr(info->dlpi_name, "libinject.so") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    code_begin = info->dlpi_addr + segment.p_vaddr;
    code_end = code_begin + segment.p_memsz;
  }
  return 1;
}

// The first call comes while the process has one thread, with all preloaded libraries in place.
void look_around() {
  dl_iterate_phdr(&find_library, nullptr);
  if (const char* const text = std::getenv("FAULT_PLAN")) {
    const char* const colon = std::strchr(text, ':');
    const auto length = colon == nullptr ? 0 : static_cast<std::size_t>(colon - text);
    if (length != 0 && length < sizeof plan.function) {
      std::memcpy(plan.function, text, length);
      char* end = nullptr;
      plan.from = std::strtoul(colon + 1, &end, 10);
      plan.all_later = *end == '+';
    }
  }
  const char* text = std::getenv("FAULT_WAIT");
  for (Wait& wait : waits) {
    if (text == nullptr ||
        std::sscanf(text, "%31[^:]:%lu:%lu", wait.function, &wait.from, &wait.milliseconds) != 3)
      break;
    text = std::strchr(text, ',');
    if (text != nullptr) ++text;
  }
  known.store(true, std::memory_order_release);
}

void hold_up(const Counter& counter, unsigned long number) {
  for (const Wait& wait : waits) {
    if (wait.from == 0 || number < wait.from || std::strcmp(counter.name, wait.function) != 0) continue;
    timespec left{static_cast<time_t>(wait.milliseconds / 1000),
                  static_cast<long>(wait.milliseconds % 1000 * 1'000'000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
    }
  }
}

bool fails(Counter& counter, const void* caller) {
  if (!known.load(std::memory_order_acquire)) look_around();
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  if (address < code_begin || address >= code_end) return false;
  const unsigned long number = counter.calls.fetch_add(1) + 1;
  if (number == 1) {
    const std::size_t index = counted.fetch_add(1);
    if (index < counters.size()) counters[index] = &counter;
  }
  hold_up(counter, number);
  if (plan.from == 0 || number < plan.from || (number > plan.from && !plan.all_later)) return false;
  if (std::strcmp(counter.name, plan.function) != 0) return false;
  failed.fetch_add(1);
  return true;
}

template <typename Function>
Function* real(Counter& counter) {
  void* found = counter.real.load(std::memory_order_relaxed);
  if (found == nullptr) {
    // dlsym itself is among the replaced functions.
    static auto* const lookup = reinterpret_cast<decltype(&dlsym)>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
    found = lookup(RTLD_NEXT, counter.name);
    counter.real.store(found, std::memory_order_relaxed);
  }
  return reinterpret_cast<Function*>(found);
}

__attribute__((destructor)) void write_counts() {
  const char* const path = std::getenv("FAULT_COUNTS");
  if (path == nullptr) return;
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return;
  for (const std::atomic<Counter*>& entry : counters) {
    if (const Counter* const counter = entry.load())
      std::fprintf(file, "%s %lu\n", counter->name, counter->calls.load());
  }
  std::fprintf(file, "failed %lu\n", failed.load());
  std::fclose(file);
}

}  // namespace

// FAULT(RESULT, NAME, value returned on failure, its errno or 0, (parameters), (arguments)).
#define FAULT_BY(result, name, failure, error, parameters, call) \
  extern "C" result name parameters {                            \
    static constinit Counter counter{#name};                     \
    if (fails(counter, __builtin_return_address(0))) {           \
      if (error != 0) errno = error;                             \
      return failure;                                            \
    }                                                            \
    return call;                                                 \
  }
#define FAULT(result, name, failure, error, parameters, arguments) \
  FAULT_BY(result, name, failure, error, parameters, real<result parameters>(counter) arguments)

// Memory.
FAULT_BY(void*, malloc, nullptr, ENOMEM, (std::size_t size), __libc_malloc(size))
FAULT_BY(void*, realloc, nullptr, ENOMEM, (void* memory, std::size_t size), __libc_realloc(memory, size))
FAULT_BY(void*, aligned_alloc, nullptr, ENOMEM, (std::size_t alignment, std::size_t size),
         __libc_memalign(alignment, size))
FAULT(void*, mmap, MAP_FAILED, ENOMEM,
      (void* address, std::size_t length, int protection, int flags, int file, off_t offset),
      (address, length, protection, flags, file, offset))
FAULT(int, madvise, -1, EINVAL, (void* address, std::size_t length, int advice), (address, length, advice))
// libinject bypasses the function of that name.
extern "C" long syscall(long number, ...) {
  static constinit Counter counter{"syscall"};
  static constinit Counter remappings{"mremap"};
  std::array<long, 6> words;
  std::va_list more;
  va_start(more, number);
  for (long& word : words) word = va_arg(more, long);
  va_end(more);
  if (number == SYS_mremap && fails(remappings, __builtin_return_address(0))) {
    errno = ENOMEM;
    return -1;
  }
  return real<long(long, ...)>(counter)(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

// Files.
extern "C" int open(const char* path, int flags, ...) {
  static constinit Counter counter{"open"};
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (fails(counter, __builtin_return_address(0))) {
    errno = EACCES;
    return -1;
  }
  return real<int(const char*, int, ...)>(counter)(path, flags, mode);
}
extern "C" int openat(int folder, const char* path, int flags, ...) {
  static constinit Counter counter{"openat"};
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (fails(counter, __builtin_return_address(0))) {
    errno = EMFILE;
    return -1;
  }
  return real<int(int, const char*, int, ...)>(counter)(folder, path, flags, mode);
}
FAULT(int, access, -1, EACCES, (const char* path, int mode), (path, mode))
FAULT(ssize_t, read, -1, EIO, (int file, void* data, std::size_t size), (file, data, size))
FAULT(ssize_t, write, -1, ENOSPC, (int file, const void* data, std::size_t size), (file, data, size))
FAULT(int, fsync, -1, EIO, (int file), (file))
FAULT(int, ftruncate, -1, ENOSPC, (int file, off_t size), (file, size))
FAULT(int, mkdir, -1, EACCES, (const char* path, mode_t mode), (path, mode))
FAULT(int, mkdirat, -1, ENOSPC, (int folder, const char* path, mode_t mode), (folder, path, mode))
FAULT(int, fchmod, -1, EPERM, (int file, mode_t mode), (file, mode))
FAULT(int, fchmodat, -1, EPERM, (int folder, const char* path, mode_t mode, int flags),
      (folder, path, mode, flags))
FAULT(int, rename, -1, EIO, (const char* from, const char* to), (from, to))
FAULT(int, renameat, -1, EIO, (int from_folder, const char* from, int to_folder, const char* to),
      (from_folder, from, to_folder, to))
FAULT(int, unlink, -1, EACCES, (const char* path), (path))
FAULT(int, unlinkat, -1, EACCES, (int folder, const char* path, int flags), (folder, path, flags))
FAULT(ssize_t, readlink, -1, EACCES, (const char* path, char* text, std::size_t size), (path, text, size))
FAULT(ssize_t, readlinkat, -1, EACCES, (int folder, const char* path, char* text, std::size_t size),
      (folder, path, text, size))
FAULT(char*, realpath, nullptr, EACCES, (const char* path, char* result), (path, result))
FAULT(char*, getcwd, nullptr, ENOENT, (char* text, std::size_t size), (text, size))
FAULT(DIR*, fdopendir, nullptr, ENOMEM, (int file), (file))
FAULT(dirent*, readdir, nullptr, EBADF, (DIR * folder), (folder))
FAULT(int, gethostname, -1, EFAULT, (char* name, std::size_t size), (name, size))

FAULT(DIR*, opendir, nullptr, EMFILE, (const char* path), (path))
FAULT(int, fstatfs, -1, EIO, (int file, struct statfs* result), (file, result))
FAULT(int, fstatvfs, -1, EIO, (int file, struct statvfs* result), (file, result))
FAULT(int, posix_fallocate, ENOSPC, 0, (int file, off_t begin, off_t length), (file, begin, length))
FAULT(int, getrlimit, -1, EFAULT, (__rlimit_resource_t which, struct rlimit* result), (which, result))

// The loader.
FAULT(void*, dlopen, nullptr, 0, (const char* path, int flags), (path, flags))
FAULT(void*, dlsym, nullptr, 0, (void* library, const char* name), (library, name))
FAULT(int, dladdr, 0, 0, (const void* address, Dl_info* info), (address, info))
FAULT(int, dlinfo, -1, 0, (void* library, int request, void* result), (library, request, result))

// Threads, signals and time.
FAULT(int, pthread_attr_init, ENOMEM, 0, (pthread_attr_t * attributes), (attributes))
FAULT(int, pthread_attr_setstacksize, EINVAL, 0, (pthread_attr_t * attributes, std::size_t size),
      (attributes, size))
FAULT(int, pthread_create, EAGAIN, 0,
      (pthread_t * thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument),
      (thread, attributes, start, argument))
FAULT(int, pthread_key_create, EAGAIN, 0, (pthread_key_t * key, void (*destroy)(void*)), (key, destroy))
FAULT(int, pthread_setspecific, ENOMEM, 0, (pthread_key_t key, const void* value), (key, value))
FAULT(int, pthread_sigmask, EINVAL, 0, (int how, const sigset_t* set, sigset_t* old), (how, set, old))
FAULT(int, sigaction, -1, EINVAL, (int number, const struct sigaction* act, struct sigaction* old),
      (number, act, old))
FAULT(int, nanosleep, -1, EINTR, (const timespec* time, timespec* left), (time, left))
FAULT(int, setenv, -1, ENOMEM, (const char* name, const char* value, int overwrite), (name, value, overwrite))
FAULT(tm*, gmtime_r, nullptr, EOVERFLOW, (const time_t* time, tm* result), (time, result))
FAULT(tm*, localtime_r, nullptr, EOVERFLOW, (const time_t* time, tm* result), (time, result))

// The control socket.
FAULT(int, socket, -1, EMFILE, (int domain, int type, int protocol), (domain, type, protocol))
FAULT(int, bind, -1, EADDRINUSE, (int file, const sockaddr* address, socklen_t size), (file, address, size))
FAULT(int, listen, -1, EADDRINUSE, (int file, int most), (file, most))
FAULT(int, poll, -1, ENOMEM, (pollfd * files, nfds_t count, int wait), (files, count, wait))
FAULT(int, accept4, -1, EMFILE, (int file, sockaddr* address, socklen_t* size, int flags),
      (file, address, size, flags))
FAULT(int, getsockopt, -1, ENOBUFS, (int file, int level, int name, void* value, socklen_t* size),
      (file, level, name, value, size))
FAULT(ssize_t, recv, -1, ECONNRESET, (int file, void* data, std::size_t size, int flags),
      (file, data, size, flags))
FAULT(ssize_t, send, -1, EPIPE, (int file, const void* data, std::size_t size, int flags),
      (file, data, size, flags))
