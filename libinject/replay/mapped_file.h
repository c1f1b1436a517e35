// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace inject::recovery {

/// A file's contents, mapped for reading: the memory used is page cache, which the kernel can drop, and parts
/// never written use none. SIGBUS is raised if the file is truncated meanwhile, or the disk can't be read.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Maps the first `bytes` of the open `file`. False: see errno.
  bool open(int file, std::size_t bytes);
  std::span<const std::uint8_t> bytes() const { return {base_, bytes_}; }

 private:
  bool map(int file, std::size_t begin, std::size_t end);

  std::uint8_t* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace inject::recovery
