// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Paths that the environment gives, or that others can foresee, in folders to which others may write: nothing
// is written if another user has put a link, a folder or a file in the way.
#pragma once

#include <string>

namespace inject {

/// The folder of a path's last name, for openat() and similar functions. On the way there, only links of this
/// user or the administrator are followed, and in a folder like /tmp (everybody may write, nobody may remove
/// another's file) only their folders are entered.
class ParentFolder {
 public:
  enum class Missing { kFail, kMake };  ///< folders on the way that do not exist

  explicit ParentFolder(const std::string& path, Missing missing = Missing::kFail);
  ~ParentFolder();
  ParentFolder(const ParentFolder&) = delete;
  ParentFolder& operator=(const ParentFolder&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }  ///< the path's last one
  const std::string& problem() const { return problem_; }
  /// True if other users may put files into it.
  bool is_shared() const;

 private:
  ParentFolder() = default;
  void walk(const std::string& path, Missing missing);
  bool enter(const std::string& name, Missing missing, std::string& link);
  bool fail(const std::string& problem);
  void move_to(int descriptor);

  int descriptor_ = -1;
  std::string name_;
  std::string problem_;
  std::string walked_;  // for messages
};

/// Opens a file for writing that is this user's alone: created with mode 0600; an existing one is used as it
/// is, but in a folder to which others may write only if it is a plain file of this user with no other name.
/// `flags`: O_APPEND, O_TRUNC, O_EXCL, O_RDWR (a mapping has to be read as well). Never returns a descriptor
/// that the program takes for its own stdin, stdout or stderr, and never waits for the other end of a pipe.
/// Returns the descriptor, or -1 and sets `problem`.
int open_output(const ParentFolder& folder, int flags, std::string& problem);
int open_output(const std::string& path, int flags, std::string& problem);

}  // namespace inject
