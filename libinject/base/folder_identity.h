// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace inject {

/// Which folder a path led to. Files are addressed by their paths, and a user may move a folder away and give
/// its name to another one.
class FolderIdentity {
 public:
  /// Remembers the folder that is there now.
  void note(std::string path);
  /// False if the path leads to another folder, or to none. True if none has been noted, or where the file
  /// system can't tell. Allocates nothing.
  bool is_in_place() const noexcept;

 private:
  struct Marks {
    std::uint64_t inode = 0;
    std::optional<std::uint64_t> born;  ///< in nanoseconds
  };
  /// Nothing after an error: see errno.
  static std::optional<Marks> marks_of(const char* path) noexcept;

  std::string path_;
  std::optional<Marks> marks_;
};

}  // namespace inject
