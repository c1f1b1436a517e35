// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "libinject/capture/python/layout.h"

namespace inject {

/// True if the kernel can read the eight bytes at `address`, a multiple of eight. rt_sigprocmask() copies the
/// new mask before it checks the operation, and ours is an unknown one: it returns EFAULT or EINVAL. Unlike a
/// write into a pipe it needs no descriptor, which the program could close, and unlike process_vm_readv() no
/// container forbids it.
inline bool can_be_read(const void* address) noexcept {
  constexpr int kNothingKnown = -1;
  constexpr std::size_t kMaskSize = 8;
  return syscall(SYS_rt_sigprocmask, kNothingKnown, address, nullptr, kMaskSize) == -1 && errno == EINVAL;
}

/// The common interface of both kinds of memory below, each with its own way of copying.
template <typename Memory>
class CopiedMemory {
  friend Memory;
  CopiedMemory() = default;

 public:
  /// False if it can't be read, or does not fit.
  template <typename T, std::size_t kCount>
  bool copy(const void* begin, std::array<T, kCount>& to, std::size_t bytes) const noexcept {
    return bytes <= sizeof to && memory().copy_bytes(begin, static_cast<void*>(to.data()), bytes);
  }

  /// Zero if it can't be read.
  template <typename T>
  T read(const void* object, std::size_t offset) const noexcept {
    T value{};
    const void* place = static_cast<const char*>(object) + offset;
    return is_plausible(object) && memory().copy_bytes(place, static_cast<void*>(&value), sizeof value)
               ? value
               : T{};
  }

  const void* pointer(const void* object, std::size_t offset) const noexcept {
    return read<const void*>(object, offset);
  }

  bool has_type(const void* object, const void* type) const noexcept {
    return is_plausible(object) && pointer(object, python_object::kType) == type;
  }

 private:
  const Memory& memory() const noexcept { return static_cast<const Memory&>(*this); }
};

/// Memory that may not be mapped. It can still disappear between check and read, if another thread frees it,
/// so it is read right after the check.
class UntrustedMemory : public CopiedMemory<UntrustedMemory> {
 public:
  /// False on emulated kernels that check the operation first: the test does not work there.
  bool works() const noexcept {
    alignas(8) std::uint64_t here = 0;
    return can_be_read(&here) && !can_be_read(reinterpret_cast<const void*>(std::uintptr_t{8}));
  }

  bool holds(const void* begin, std::size_t bytes) const noexcept {
    constexpr std::uintptr_t kSmallestPage = 4096;
    const auto first = reinterpret_cast<std::uintptr_t>(begin);
    if (first < kSmallestPage || bytes == 0 || first + bytes < first) return false;
    for (std::uintptr_t at = first & ~std::uintptr_t{7}; at < first + bytes;
         at = (at & ~(kSmallestPage - 1)) + kSmallestPage) {
      if (!can_be_read(reinterpret_cast<const void*>(at))) return false;
    }
    return true;
  }

  bool copy_bytes(const void* begin, void* to, std::size_t bytes) const noexcept {
    if (!holds(begin, bytes)) return false;
    std::memcpy(to, begin, bytes);
    return true;
  }
};

/// Memory that another thread uses, and may free at any moment: the kernel copies it, or reports that it is
/// not mapped. Some containers forbid that; nothing can be read then. It is copied in blocks: adjacent data
/// is from one moment, and takes one system call.
class VolatileMemory : public CopiedMemory<VolatileMemory> {
 public:
  /// Drops the copies: later reads copy the memory again.
  void forget() noexcept {
    process_ = getpid();
    begins_.fill(0);
  }

  bool copy_bytes(const void* begin, void* to, std::size_t bytes) const noexcept {
    auto at = reinterpret_cast<std::uintptr_t>(begin);
    if (bytes == 0 || at < kBlockBytes || at + bytes < at) return false;
    for (auto* out = static_cast<char*>(to); bytes != 0;) {
      const std::size_t offset = at % kBlockBytes;
      const std::size_t part = std::min(bytes, kBlockBytes - offset);
      const char* block = block_at(at - offset);
      if (block == nullptr) return false;
      std::memcpy(out, block + offset, part);
      out += part;
      at += part;
      bytes -= part;
    }
    return true;
  }

 private:
  static constexpr std::size_t kBlockBytes = 4096;  // no page is smaller
  static constexpr std::size_t kBlocks = 128;

  /// Null if it can't be read.
  const char* block_at(std::uintptr_t begin) const noexcept {
    const std::size_t slot = begin / kBlockBytes % kBlocks;
    if (begins_[slot] == begin) return blocks_[slot].data();
    begins_[slot] = 0;
    const iovec here{blocks_[slot].data(), kBlockBytes};
    const iovec there{reinterpret_cast<void*>(begin), kBlockBytes};
    if (process_vm_readv(process_, &here, 1, &there, 1, 0) != static_cast<ssize_t>(kBlockBytes))
      return nullptr;
    begins_[slot] = begin;
    return blocks_[slot].data();
  }

  pid_t process_ = getpid();
  mutable std::array<std::uintptr_t, kBlocks> begins_{};  // 0: empty
  mutable std::array<std::array<char, kBlockBytes>, kBlocks> blocks_;
};

}  // namespace inject
