// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Paths that the environment gives, or that others can foresee, in folders that others may write to: nothing
// is written where another user has put a link, a folder or a file in the way.
#pragma once

#include <string>

namespace inject {

/// The folder that a path's last name stands in, to be used by openat() and its kin. On the way there no link
/// is followed but this user's own or the administrator's, and in a folder like /tmp (everybody may write,
/// nobody may remove another's file) only such folders are entered.
class FolderAbove {
 public:
  enum class Missing { kFail, kMake };  ///< folders on the way that do not exist

  explicit FolderAbove(const std::string& path, Missing missing = Missing::kFail);
  ~FolderAbove();
  FolderAbove(const FolderAbove&) = delete;
  FolderAbove& operator=(const FolderAbove&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }  ///< the path's last
  const std::string& problem() const { return problem_; }
  /// Other users may put files into it.
  bool is_shared() const;

 private:
  FolderAbove() = default;
  void walk(const std::string& path, Missing missing);
  bool enter(const std::string& name, Missing missing, std::string& link);
  bool fail(const std::string& problem);
  void move_to(int descriptor);

  int descriptor_ = -1;
  std::string name_;
  std::string problem_;
  std::string walked_;  // for messages
};

/// A file for writing that is this user's alone: made with mode 0600; one that is there already is taken as
/// it is, but in a folder that others may write to only if it is a plain file of this user's with no other
/// name. `flags`: O_APPEND, O_TRUNC, O_EXCL, O_RDWR (a mapping has to be read as well). Never a descriptor
/// that the program takes for its own stdin, stdout or stderr, and never waits for the other end of a pipe.
/// The descriptor, or -1 and why.
int open_output(const FolderAbove& folder, int flags, std::string& problem);
int open_output(const std::string& path, int flags, std::string& problem);

}  // namespace inject
