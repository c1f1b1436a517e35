// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace inject {

/// Room on the disk for one file of a folder, allocated before the disk is full: two hidden spare files,
/// either of which can be written over and renamed to the file. Neither step needs a free block. One spare is
/// kept for the last write: a spare that is used gives back as many blocks as its successor takes, but on a
/// full disk somebody else may be faster.
class ReservedFile {
 public:
  /// The longest text that is sure to fit.
  static constexpr std::size_t kBytes = std::size_t{64} << 10;
  enum class Write { kFurther, kLast };  ///< whether others follow

  ReservedFile() = default;
  ReservedFile(const ReservedFile&) = delete;
  ReservedFile& operator=(const ReservedFile&) = delete;

  /// Makes the spares of `folder`/`name`.
  void reserve(const std::string& folder, std::string_view name);
  /// Makes those that are missing: they have been used, or could not be allocated before.
  void renew();
  /// Puts `text` in the file's place, whole or not at all. False: there is no spare for this write, or it
  /// can't be written either; what was there stays. Takes no memory.
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
  std::array<Spare, 2> spares_;  // any write's, the last one's
};

}  // namespace inject
