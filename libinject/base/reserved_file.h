// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace inject {

/// Disk space for one file of a folder, allocated before the disk is full: two hidden spare files, either of
/// which can be overwritten and renamed to the file. Neither step needs a free block. One spare is kept for
/// the last write: using a spare frees as many blocks as its successor takes, but on a full disk somebody
/// else may be faster.
class ReservedFile {
 public:
  /// The maximum length of a text that is certain to fit.
  static constexpr std::size_t kBytes = std::size_t{64} << 10;
  enum class Write { kFurther, kLast };  ///< whether further writes follow

  ReservedFile() = default;
  ReservedFile(const ReservedFile&) = delete;
  ReservedFile& operator=(const ReservedFile&) = delete;

  /// Creates the spares of `folder`/`name`.
  void reserve(const std::string& folder, std::string_view name);
  /// Creates missing spares: they have been used, or could not be allocated before.
  void renew();
  /// Replaces the file's contents by `text`, completely or not at all. False if there is no spare for this
  /// write, or it can't be written either; the previous file stays. Allocates no memory.
  bool put(std::string_view text, Write write) noexcept;
  /// Removes the spares.
  void remove();

  /// The names of a file's spares, for cleaning up a folder that a killed process left behind.
  static std::array<std::string, 2> spare_names(std::string_view name);

 private:
  struct Spare {
    std::string path;
    bool allocated = false;
    dev_t device = 0;
    ino_t inode = 0;
  };
  static void allocate(Spare& spare);
  static int open_again(const Spare& spare) noexcept;
  bool replace(Spare& spare, std::string_view text) noexcept;

  std::string path_;
  std::array<Spare, 2> spares_;  // for any write, for the last one
};

}  // namespace inject
