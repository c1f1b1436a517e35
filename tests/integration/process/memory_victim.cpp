// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Counts libinject's memory requests, and denies VICTIM_DENY_COUNT of them, beginning with VICTIM_DENY_FROM.
// The executable's definitions of malloc and mmap are found first, by libinject, too.
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/integration/process/victim.h"

using namespace victim;

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

std::atomic<std::uintptr_t> begin{0};
std::atomic<std::uintptr_t> end{0};
std::atomic<unsigned long> requests{0};
unsigned long deny_from = 0;
unsigned long deny_count = 0;

bool denied(const void* caller) {
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  if (address < begin.load() || address >= end.load()) return false;
  const unsigned long number = requests.fetch_add(1) + 1;
  return deny_from != 0 && number >= deny_from && number - deny_from < deny_count;
}

int find_library(dl_phdr_info* info, std::size_t, void*) {
  if (std::strstr(info->dlpi_name, "libinject.so") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    begin = info->dlpi_addr + segment.p_vaddr;
    end = begin + segment.p_memsz;
  }
  return 1;
}

unsigned long number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
}

}  // namespace

extern "C" {

void* malloc(std::size_t size) {
  if (denied(__builtin_return_address(0))) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(size);
}

void* calloc(std::size_t count, std::size_t size) {
  if (denied(__builtin_return_address(0))) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_calloc(count, size);
}

void* realloc(void* memory, std::size_t size) {
  if (denied(__builtin_return_address(0))) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_realloc(memory, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  if (denied(__builtin_return_address(0))) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_memalign(alignment, size);
}

void* mmap(void* address, std::size_t length, int protection, int flags, int file, off_t offset) {
  if (denied(__builtin_return_address(0))) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, file, offset));
}
}

int main() {
  deny_from = number_in("VICTIM_DENY_FROM");
  deny_count = number_in("VICTIM_DENY_COUNT");
  dl_iterate_phdr(&find_library, nullptr);
  const cudaKernel_t quick = kernel("quick");
  for (int i = 0; i < 3; ++i) {
    open_window();
    for (int k = 0; k < 10; ++k) launch(kernel(("kernel" + std::to_string(i * 10 + k)).c_str()), 5);
    launch(quick, 100);
    require(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
    close_window();
    sleep_ms(5);
  }
  note("requests %lu", requests.load());
  say("done");
}
