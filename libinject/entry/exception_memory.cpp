// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Memory for the library's own exceptions, in place of libstdc++'s eh_alloc.o, which the linker then leaves
// out. That one takes 72 KB from malloc when the library is loaded, in every process, and never frees it: a
// leak check shows it as "still reachable". If there is no memory at that moment, it has no reserve, and the
// first std::bad_alloc ends the program. This reserve is static, and costs nothing until it is used.
//
// The functions are those of the Itanium C++ ABI (2.4.2, 2.4.3). inject.map hides them: they serve this
// library alone, which contains the runtime that frees what they return.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "libinject/base/spare_blocks.h"

namespace {

// The runtime keeps its own data directly in front of the exception, and expects it to be zero. Only the
// runtime knows its size: 128 bytes in libstdc++ on x86-64 and aarch64. This is room for twice as much. A
// dependent exception (std::rethrow_exception) consists only of such data.
constexpr std::size_t kHeader = 256;
constexpr std::size_t kMaxSpare = 256;  // largest exception that a spare block holds

// The number of exceptions in flight at once without other memory, in all threads; any more end the program,
// as in libstdc++. Exceptions thrown here are a few words long.
constinit inject::SpareBlocks<kHeader + kMaxSpare, 128> spare_blocks;

void* allocate(std::size_t size) noexcept {
  void* memory = std::malloc(kHeader + size);
  if (memory == nullptr && size <= kMaxSpare) memory = spare_blocks.take();
  if (memory == nullptr) std::terminate();
  std::memset(memory, 0, kHeader);
  return memory;
}

void release(void* memory) noexcept {
  if (!spare_blocks.give_back(memory)) std::free(memory);
}

}  // namespace

extern "C" {

void* __cxa_allocate_exception(std::size_t size) noexcept {
  return static_cast<std::byte*>(allocate(size)) + kHeader;
}

void __cxa_free_exception(void* exception) noexcept {
  release(static_cast<std::byte*>(exception) - kHeader);
}

void* __cxa_allocate_dependent_exception() noexcept {
  return allocate(0);
}

void __cxa_free_dependent_exception(void* exception) noexcept {
  release(exception);
}

}  // extern "C"
