// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace inject {

/// mremap(2), bypassing the C library's function: MPI libraries patch that to track unmapped memory, and UCX
/// (until 2023) and Open MPI 4 drop the last argument. If root runs the program, our pages would then be at
/// address 0.
inline void* remap_pages(void* pages, std::size_t old_bytes, std::size_t bytes, int flags,
                         void* address = nullptr) noexcept {
  const long result = syscall(SYS_mremap, pages, old_bytes, bytes, flags, address);
  return result == -1 ? MAP_FAILED : reinterpret_cast<void*>(result);
}

/// A part of a file that is mapped shared: what is written there outlives the process. Zero where nothing has
/// been written yet.
struct SharedRegion {
  std::uint8_t* base = nullptr;
  std::size_t bytes = 0;

  /// Maps the same pages over the private ones at `address`, too, whose contents are lost. All three
  /// arguments are multiples of the page size. False if the kernel refuses; private pages are then there as
  /// before.
  bool map_over(void* address, std::size_t offset, std::size_t length) const noexcept {
    if (base == nullptr || offset > bytes || length > bytes - offset) return false;
    // An old size of zero duplicates a shared mapping (mremap(2)), so that no descriptor has to stay open for
    // it. First to another place: if the kernel refuses because of memory limits, it does so here, and only a
    // move of the same size, which has no such limits, removes the private pages.
    void* const twin = remap_pages(base + offset, 0, length, MREMAP_MAYMOVE);
    if (twin == MAP_FAILED) return false;
    if (remap_pages(twin, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, address) == address) return true;
    munmap(twin, length);
    // If that is refused too, nothing is left to try.
    [[maybe_unused]] const void* const restored =
        mmap(address, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return false;
  }
};

/// Makes these pages writable at once, so that the program's threads need not wait for the file system at
/// their first write to one. Their contents stay, and other threads may write to them meanwhile. False,
/// without a signal, if a write would raise one, or if the kernel has no such call (before Linux 5.14).
inline bool warm_pages(void* begin, std::size_t bytes) noexcept {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack
  return madvise(begin, bytes, kPopulateWrite) == 0;
}

}  // namespace inject
