// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace inject::recovery {

/// A file's contents, to be read where they are: the memory that this takes is the kernel's, which can drop
/// it, and what was never written takes none. A file that becomes shorter meanwhile, or that the disk does
/// not give, raises SIGBUS.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// The first `bytes` of the open `file`. False: see errno.
  bool open(int file, std::size_t bytes);
  std::span<const std::uint8_t> bytes() const { return {base_, bytes_}; }

 private:
  bool map(int file, std::size_t begin, std::size_t end);

  std::uint8_t* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace inject::recovery
