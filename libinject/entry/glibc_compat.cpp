// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What newer glibc headers and the static C++ runtime need from the C library and glibc 2.28 does not have
// (the link names what is missing: cmake/make_glibc_stubs.py). All of it is hidden: it serves this library
// alone.
//
// If the newer function matters, it is still used: the linker's --wrap sends calls of NAME to __wrap_NAME,
// and __real_NAME is a weak reference without a version, null if the machine's glibc has no such function.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>

#define INJECT_HIDDEN __attribute__((visibility("hidden")))

namespace {

constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * kNanosecondsPerSecond + time.tv_nsec;
}

std::int64_t now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return nanoseconds(time);
}

constexpr std::int64_t kMaxWait = 86'400 * kNanosecondsPerSecond;  // so that no sum overflows

constinit bool clockwait_is_glibc = false;

}  // namespace

extern "C" {

// GLIBC_2.32: lets libstdc++ skip atomic operations. "Never single-threaded" is always right.
extern char __libc_single_threaded;
INJECT_HIDDEN char __libc_single_threaded = 0;

// GLIBC_2.33: plain functions since then, inline calls of __xstat before. On 64-bit machines the kernel's
// struct stat is glibc's, and stat64 is the same.
INJECT_HIDDEN int fstatat(int directory, const char* path, struct stat* result, int flags) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, directory, path, result, flags));
}
INJECT_HIDDEN int stat(const char* path, struct stat* result) noexcept {
  return fstatat(AT_FDCWD, path, result, 0);
}
INJECT_HIDDEN int lstat(const char* path, struct stat* result) noexcept {
  return fstatat(AT_FDCWD, path, result, AT_SYMLINK_NOFOLLOW);
}
INJECT_HIDDEN int fstat(int file, struct stat* result) noexcept {
  return fstatat(file, "", result, AT_EMPTY_PATH);
}
INJECT_HIDDEN int stat64(const char* path, struct stat64* result) noexcept {
  return stat(path, reinterpret_cast<struct stat*>(result));
}
INJECT_HIDDEN int lstat64(const char* path, struct stat64* result) noexcept {
  return lstat(path, reinterpret_cast<struct stat*>(result));
}
INJECT_HIDDEN int fstat64(int file, struct stat64* result) noexcept {
  return fstat(file, reinterpret_cast<struct stat*>(result));
}

// GLIBC_2.30
INJECT_HIDDEN pid_t gettid() noexcept {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

// GLIBC_2.36: used by std::random_device.
INJECT_HIDDEN std::uint32_t arc4random() noexcept {
  std::uint32_t value = 0;
  while (getentropy(&value, sizeof(value)) != 0) {
  }
  return value;
}

// GLIBC_2.30: std::condition_variable's waits on the steady clock. The deadline is on the clock that the
// program sees, and a preloaded library may have changed that one without knowing of this wait (libfaketime
// until 0.9.10): glibc's function is given the kernel's time. An older glibc can only wait on the clock with
// which the condition was created, the wall clock: in slices, so that a step of that clock is noticed. The
// end of a slice is a spurious wake-up, which every wait has to expect.
__attribute__((weak)) int __real_pthread_cond_clockwait(pthread_cond_t*, pthread_mutex_t*, clockid_t,
                                                        const timespec*);
INJECT_HIDDEN int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                                clockid_t clock, const timespec* deadline) {
  const std::int64_t left = nanoseconds(*deadline) - now(clock);
  if (left <= 0) return ETIMEDOUT;
  if (__real_pthread_cond_clockwait != nullptr) {
    // A library that replaces the wait knows how it has changed the clock.
    if (!clockwait_is_glibc) return __real_pthread_cond_clockwait(condition, mutex, clock, deadline);
    timespec kernel_time{};
    syscall(SYS_clock_gettime, clock, &kernel_time);
    const std::int64_t until = nanoseconds(kernel_time) + std::min(left, kMaxWait);
    const timespec end{until / kNanosecondsPerSecond, until % kNanosecondsPerSecond};
    return __real_pthread_cond_clockwait(condition, mutex, clock, &end);
  }
  constexpr std::int64_t kSlice = kNanosecondsPerSecond / 10;
  const std::int64_t until = now(CLOCK_REALTIME) + std::min(left, kSlice);
  const timespec wall{until / kNanosecondsPerSecond, until % kNanosecondsPerSecond};
  const int status = pthread_cond_timedwait(condition, mutex, &wall);
  return status == ETIMEDOUT && now(clock) < nanoseconds(*deadline) ? 0 : status;
}

// From libm, with which the library is not linked. Optimised builds inline it; debug builds call it.
INJECT_HIDDEN double whole_above(double value) noexcept __asm__("ceil");
double whole_above(double value) noexcept {
  constexpr double kNoFractions = 4503599627370496.0;  // from 2^52 on, as in NaN, there are none
  if (!(value > -kNoFractions && value < kNoFractions)) return value;
  const auto whole = static_cast<double>(static_cast<std::int64_t>(value));
  return whole < value ? whole + 1 : whole;
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE
// GLIBC_2.35: how libgcc's unwinder finds an object's exception tables. It takes a failure for "no tables",
// so this has to find them, in the way that the unwinder itself did before this call existed.
__attribute__((weak)) int __real__dl_find_object(void*, dl_find_object*);
INJECT_HIDDEN int __wrap__dl_find_object(void* address, dl_find_object* result) {
  if (__real__dl_find_object != nullptr) return __real__dl_find_object(address, result);
  struct Search {
    std::uintptr_t address;
    dl_find_object* result;
  } search{reinterpret_cast<std::uintptr_t>(address), result};

  const auto visit = [](dl_phdr_info* object, std::size_t, void* data) {
    const auto* wanted = static_cast<Search*>(data);
    bool inside = false;
    std::uintptr_t begin = UINTPTR_MAX;
    std::uintptr_t end = 0;
    void* tables = nullptr;
    for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = object->dlpi_phdr[i];
      const std::uintptr_t from = object->dlpi_addr + segment.p_vaddr;
      if (segment.p_type == PT_LOAD) {
        begin = std::min(begin, from);
        end = std::max(end, from + segment.p_memsz);
        inside |= wanted->address >= from && wanted->address < from + segment.p_memsz;
      } else if (segment.p_type == PT_GNU_EH_FRAME) {
        tables = reinterpret_cast<void*>(from);
      }
    }
    if (!inside) return 0;
    if (tables == nullptr) return -1;
    *wanted->result = {};
    wanted->result->dlfo_map_start = reinterpret_cast<void*>(begin);
    wanted->result->dlfo_map_end = reinterpret_cast<void*>(end);
    wanted->result->dlfo_eh_frame = tables;
    return 1;
  };
  return dl_iterate_phdr(visit, &search) == 1 ? 0 : -1;
}
#endif

}  // extern "C"

namespace {

// At load time, because dladdr() takes the loader's lock. By the file's name: glibc before 2.34 has it in
// libpthread.so.0, and a library that replaces the wait may replace any other function as well.
__attribute__((constructor)) void find_out_whose_clockwait_it_is() {
  Dl_info wait{};
  if (__real_pthread_cond_clockwait == nullptr ||
      dladdr(reinterpret_cast<void*>(__real_pthread_cond_clockwait), &wait) == 0)
    return;
  const std::string_view path(wait.dli_fname);
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const std::string_view glibc : {"libc.so", "libc-2", "libpthread.so", "libpthread-2"})
    clockwait_is_glibc |= name.starts_with(glibc);
}

}  // namespace
